/* SPDX-License-Identifier: Apache-2.0
 *
 * Looks at checkpoints: finds the row that knows an entry, lets it judge, and then looks at every
 * file by itself. Blocking, read only; it must never follow a link out of the folder looked at.
 */
#include "base/prelude.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/mem.h"
#include "checkpoint/layout_row.h"

#define DEPTH_MAX 16

const char *hf_layout_state_name(enum hf_layout_state s)
{
    static const char *const names[] = {"whole", "partial", "unsure", "foreign"};
    return (size_t)s < HF_COUNT(names) ? names[s] : "unknown";
}

void hf_layout_look_release(struct hf_layout_look *l)
{
    hf_free(l->path);
    hf_strv_clear(&l->roots);
    *l = (struct hf_layout_look){.step = -1};
}

void hf_layout_looks_release(struct hf_layout_looks *l)
{
    for (size_t i = 0; i < l->len; i++) {
        hf_layout_look_release(&l->items[i]);
    }
    hf_free(l->items);
    *l = (struct hf_layout_looks){0};
}

/* Every file of a folder by itself. Returns how many there are, logs and settings aside. */
static size_t members(struct hf_scene *s, const struct hf_folder *f, unsigned depth)
{
    size_t n = 0;
    for (size_t i = 0; i < f->len && s->look->state != HF_LAYOUT_PARTIAL; i++) {
        const struct hf_item *item = &f->items[i];
        if (item->regular) {
            struct hf_box_look box;
            hf_box_judge(f->fd, item->name, &box);
            n += hf_name_is_foreign(item->name) ? 0 : 1;
            if (box.state == HF_BOX_SHORT) {
                hf_scene_say(s, HF_LAYOUT_PARTIAL, "'%s': %s", item->name, box.why);
            }
            continue;
        }
        struct hf_folder inner;
        if (!item->dir || depth == DEPTH_MAX) {
            continue;
        }
        if (hf_folder_open_in(f, item->name, &inner, NULL) != HF_OK) {
            hf_scene_say(s, HF_LAYOUT_PARTIAL, "'%s' cannot be read", item->name);
            continue;
        }
        n += members(s, &inner, depth + 1);
        hf_folder_close(&inner);
    }
    return n;
}

/* NeMo's mark lies beside what it marks, and is named without the endings. */
static bool marked_unfinished(const struct hf_scene *s)
{
    static const char *const ends[] = {".nemo", ".ckpt", "-EMA"};
    HF_CLEANUP(hf_freep) char *stem = hf_strdup(s->item->name);
    HF_CLEANUP(hf_freep) char *whole = hf_asprintf("%s-unfinished", stem);
    for (size_t i = 0; i < HF_COUNT(ends); i++) {
        if (hf_name_ends(stem, ends[i])) {
            stem[strlen(stem) - strlen(ends[i])] = '\0';
        }
    }
    HF_CLEANUP(hf_freep) char *mark = hf_asprintf("%s-unfinished", stem);
    return hf_folder_find(s->in, whole) != NULL || hf_folder_find(s->in, mark) != NULL;
}

static bool named_unfinished(const char *name)
{
    static const char *const patterns[] = {
        "*.tmp", "*.temp", "*.part",       "*.partial", "*.tmp.*",      "tmp.*",
        "tmp-*", "tmp_*",  "*.tempstate*", "*_tmp",     "*.incomplete", "*_tmp.pth.tar"};
    for (size_t i = 0; i < HF_COUNT(patterns); i++) {
        if (hf_name_like(name, patterns[i], NULL)) {
            return true;
        }
    }
    return false;
}

static void say_instead(struct hf_scene *s, enum hf_layout_state state, const char *why)
{
    s->look->why[0] = '\0';
    hf_scene_say(s, state, "%s", why);
}

static void judge_by_row(struct hf_scene *s)
{
    size_t at = 0;
    while (hf_layout_rows[at].dir != s->item->dir || !hf_layout_rows[at].is(s)) {
        at++; /* the last row of either kind takes all */
    }
    const struct hf_layout_row *row = &hf_layout_rows[at];
    s->look->layout = row->name;
    row->judge(s);
    if (s->look->why[0] == '\0') {
        hf_scene_say(s, HF_LAYOUT_PARTIAL, "nothing says that it is whole");
    }
    enum hf_layout_state state = s->look->state;
    if (s->item->dir && (state == HF_LAYOUT_WHOLE || state == HF_LAYOUT_UNSURE) &&
        members(s, &s->inside, 0) == 0 && s->look->state != HF_LAYOUT_PARTIAL) {
        hf_scene_say(s, HF_LAYOUT_FOREIGN, "nothing in it but logs, settings or empty folders");
    }
    if (s->look->state == HF_LAYOUT_FOREIGN) {
        return;
    }
    if (named_unfinished(s->item->name)) {
        /* A stray file with such a name may be anybody's; a folder is a checkpoint's. */
        bool stray = !s->item->dir && strcmp(row->name, "unknown") == 0;
        say_instead(s, stray ? HF_LAYOUT_FOREIGN : HF_LAYOUT_PARTIAL,
                    "its name says that it is not finished");
    } else if (marked_unfinished(s)) {
        say_instead(s, HF_LAYOUT_PARTIAL, "a mark beside it says that it is not finished");
    }
}

/* HF_ENOTFOUND: it went away; ret is released. */
static enum hf_rc look_at(const struct hf_folder *in, const struct hf_item *item, uint32_t world,
                          struct hf_layout_look *ret)
{
    *ret = (struct hf_layout_look){
        .layout = "none",
        .path = hf_asprintf("%s/%s", in->path, item->name),
        .step = hf_name_step(item->name),
    };
    hf_strv_add(&ret->roots, ret->path);
    struct hf_scene s = {.in = in, .item = item, .inside = {.fd = -1}, .world = world, .look = ret};
    if (item->link || (!item->dir && !item->regular)) {
        hf_scene_say(&s, HF_LAYOUT_FOREIGN, item->link ? "a link" : "no file and no folder");
        return HF_OK;
    }
    enum hf_rc rc = item->dir ? hf_folder_open_in(in, item->name, &s.inside, NULL) : HF_OK;
    if (rc == HF_ENOTFOUND) {
        hf_layout_look_release(ret);
        return rc;
    }
    if (rc != HF_OK) {
        hf_scene_say(&s, HF_LAYOUT_PARTIAL, "it cannot be read");
        return HF_OK;
    }
    judge_by_row(&s);
    hf_folder_close(&s.inside);
    return HF_OK;
}

/* ---- links ---- */

/* Where a link of the folder leads, as a path in it; NULL: not a link, or a long one. */
static char *link_target(const struct hf_folder *in, const struct hf_item *item)
{
    char target[4096];
    ssize_t n = item->link ? readlinkat(in->fd, item->name, target, sizeof(target) - 1) : -1;
    if (n <= 0 || (size_t)n == sizeof(target) - 1) {
        return NULL;
    }
    while (n > 1 && target[n - 1] == '/') {
        n--;
    }
    target[n] = '\0';
    const char *at = target;
    while (strncmp(at, "./", 2) == 0) {
        at += 2 + strspn(at + 2, "/");
    }
    return at[0] == '/' ? hf_strdup(at) : hf_asprintf("%s/%s", in->path, at);
}

/* A root of one of the looks. */
struct owned {
    const char *path; /* borrowed */
    size_t look;
};

static int by_owned_path(const void *a, const void *b)
{
    const struct owned *x = a;
    const struct owned *y = b;
    return strcmp(x->path, y->path);
}

/* Every root of what is a checkpoint, sorted. */
static struct owned *owned_paths(const struct hf_layout_look *looks, size_t n, size_t *ret_n)
{
    size_t room = 1;
    for (size_t i = 0; i < n; i++) {
        room += looks[i].roots.len;
    }
    struct owned *paths = hf_calloc(room, sizeof(paths[0]));
    size_t count = 0;
    for (size_t i = 0; i < n; i++) {
        for (size_t k = 0; looks[i].state != HF_LAYOUT_FOREIGN && k < looks[i].roots.len; k++) {
            paths[count++] = (struct owned){.path = looks[i].roots.items[k], .look = i};
        }
    }
    qsort(paths, count, sizeof(paths[0]), by_owned_path);
    *ret_n = count;
    return paths;
}

/* The links of the folder that lead to what belongs to a checkpoint belong to it as well: each is
 * read once. taken: an entry for each of the folder's, or NULL. */
static void add_links(const struct hf_folder *in, struct hf_layout_look *looks, size_t n,
                      bool *taken)
{
    size_t n_owned = 0;
    struct owned *owned = owned_paths(looks, n, &n_owned);
    for (size_t i = 0; i < in->len && n_owned > 0; i++) {
        HF_CLEANUP(hf_freep) char *target = link_target(in, &in->items[i]);
        const struct owned key = {.path = target};
        const struct owned *found =
            target == NULL ? NULL : bsearch(&key, owned, n_owned, sizeof(owned[0]), by_owned_path);
        if (found == NULL) {
            continue;
        }
        hf_strv_take(&looks[found->look].roots, hf_asprintf("%s/%s", in->path, in->items[i].name));
        if (taken != NULL) {
            taken[i] = true;
        }
    }
    hf_free(owned);
}

enum hf_rc hf_layout_judge(const char *path, uint32_t world, struct hf_layout_look *ret,
                           struct hf_err *err)
{
    *ret = (struct hf_layout_look){.step = -1};
    const char *slash = strrchr(path, '/');
    if (path[0] != '/' || slash[1] == '\0') {
        return hf_fail(err, HF_EINVAL, "'%s' is no absolute path of a checkpoint", path);
    }
    HF_CLEANUP(hf_freep)
    char *parent = hf_strndup(path, slash == path ? 1 : (size_t)(slash - path));
    struct hf_folder in;
    HF_TRY(hf_folder_open(parent, &in, err));
    const struct hf_item *item = hf_folder_find(&in, slash + 1);
    enum hf_rc rc = HF_OK;
    if (item == NULL) {
        rc = hf_fail(err, HF_ENOTFOUND, "'%s' is not there", path);
    } else if (look_at(&in, item, world, ret) != HF_OK) {
        rc = hf_fail(err, HF_ENOTFOUND, "'%s' went away", path);
    } else {
        add_links(&in, ret, 1, NULL);
    }
    hf_folder_close(&in);
    return rc;
}

/* ---- how much ---- */

static uint64_t bytes_in(const struct hf_folder *f, unsigned depth)
{
    uint64_t sum = 0;
    for (size_t i = 0; i < f->len; i++) {
        struct hf_folder inner;
        sum += f->items[i].size;
        if (f->items[i].dir && depth < DEPTH_MAX &&
            hf_folder_open_in(f, f->items[i].name, &inner, NULL) == HF_OK) {
            sum += bytes_in(&inner, depth + 1);
            hf_folder_close(&inner);
        }
    }
    return sum;
}

uint64_t hf_layout_bytes(const struct hf_layout_look *l)
{
    uint64_t sum = 0;
    for (size_t i = 0; i < l->roots.len; i++) {
        const char *path = l->roots.items[i];
        struct stat st;
        struct hf_folder f;
        if (lstat(path, &st) != 0) {
            continue;
        }
        sum += S_ISREG(st.st_mode) ? (uint64_t)st.st_size : 0;
        if (S_ISDIR(st.st_mode) && hf_folder_open(path, &f, NULL) == HF_OK) {
            sum += bytes_in(&f, 0);
            hf_folder_close(&f);
        }
    }
    return sum;
}

/* ---- a whole folder ---- */

struct survey {
    const struct hf_folder *in;
    struct hf_layout_look *looks;
    size_t *items; /* each look's entry */
    size_t len;
    bool *taken; /* of each entry: it belongs to some checkpoint */
};

static const char *base_name(const char *path)
{
    return strrchr(path, '/') + 1;
}

static void take_roots(struct survey *v, const struct hf_layout_look *l)
{
    for (size_t i = 0; l->state != HF_LAYOUT_FOREIGN && i < l->roots.len; i++) {
        const struct hf_item *item = hf_folder_find(v->in, base_name(l->roots.items[i]));
        if (item != NULL) {
            v->taken[item - v->in->items] = true;
        }
    }
}

/* An entry that an earlier one took is not looked at again, so that the files of many ranks are not
 * each judged once for every one of them. */
static void look_at_all(struct survey *v, uint32_t world)
{
    for (size_t i = 0; i < v->in->len; i++) {
        struct hf_layout_look *l = &v->looks[v->len];
        if (v->taken[i] || look_at(v->in, &v->in->items[i], world, l) != HF_OK) {
            continue;
        }
        take_roots(v, l);
        v->items[v->len++] = i;
    }
}

struct dated {
    struct hf_layout_look look;
    int64_t mtime_ns;
};

static int by_step(const void *a, const void *b)
{
    const struct dated *x = a;
    const struct dated *y = b;
    if (x->look.step != y->look.step) {
        return x->look.step < y->look.step ? -1 : 1;
    }
    if (x->mtime_ns != y->mtime_ns) {
        return x->mtime_ns < y->mtime_ns ? -1 : 1;
    }
    return strcmp(x->look.path, y->look.path);
}

/* Sorted, and without what an earlier look had passed by before its owner was seen: trackers,
 * links. */
static void keep(struct survey *v, struct hf_layout_looks *ret)
{
    struct dated *all = hf_calloc(v->len + 1, sizeof(all[0]));
    size_t n = 0;
    for (size_t i = 0; i < v->len; i++) {
        if (v->looks[i].state == HF_LAYOUT_FOREIGN && v->taken[v->items[i]]) {
            hf_layout_look_release(&v->looks[i]);
            continue;
        }
        /* Of files that are one checkpoint, the time of the one that it is named after. */
        const struct hf_item *item = hf_folder_find(v->in, base_name(v->looks[i].path));
        item = item != NULL ? item : &v->in->items[v->items[i]];
        all[n++] = (struct dated){.look = v->looks[i], .mtime_ns = item->mtime_ns};
    }
    qsort(all, n, sizeof(all[0]), by_step);
    *ret = (struct hf_layout_looks){
        .items = hf_calloc(n + 1, sizeof(ret->items[0])), .len = n, .room = n + 1};
    for (size_t i = 0; i < n; i++) {
        ret->items[i] = all[i].look;
    }
    hf_free(all);
}

enum hf_rc hf_layout_scan(const char *dir, uint32_t world, struct hf_layout_looks *ret,
                          struct hf_err *err)
{
    *ret = (struct hf_layout_looks){0};
    struct hf_folder in;
    HF_TRY(hf_folder_open(dir, &in, err));
    struct survey v = {.in = &in,
                       .looks = hf_calloc(in.len + 1, sizeof(v.looks[0])),
                       .items = hf_calloc(in.len + 1, sizeof(v.items[0])),
                       .taken = hf_calloc(in.len + 1, sizeof(v.taken[0]))};
    look_at_all(&v, world);
    add_links(&in, v.looks, v.len, v.taken);
    keep(&v, ret);
    hf_free(v.looks);
    hf_free(v.items);
    hf_free(v.taken);
    hf_folder_close(&in);
    return HF_OK;
}
