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

/* Every file of a folder by itself. Returns how many regular files there are. */
static size_t members(struct hf_scene *s, const struct hf_folder *f, unsigned depth)
{
    size_t n = 0;
    for (size_t i = 0; i < f->len && s->look->state != HF_LAYOUT_PARTIAL; i++) {
        const struct hf_item *item = &f->items[i];
        if (item->regular) {
            struct hf_box_look box;
            hf_box_judge(f->fd, item->name, &box);
            n++;
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

/* NeMo's mark lies beside what it marks, with or without the ending. */
static bool marked_unfinished(const struct hf_scene *s)
{
    const char *name = s->item->name;
    const char *dot = strrchr(name, '.');
    HF_CLEANUP(hf_freep) char *whole = hf_asprintf("%s-unfinished", name);
    HF_CLEANUP(hf_freep)
    char *stem = hf_asprintf("%.*s-unfinished", (int)(dot != NULL ? dot - name : 0), name);
    return hf_folder_find(s->in, whole) != NULL ||
           (dot != NULL && hf_folder_find(s->in, stem) != NULL);
}

static void judge_by_row(struct hf_scene *s)
{
    for (size_t i = 0; i < hf_layout_n_rows; i++) {
        const struct hf_layout_row *row = &hf_layout_rows[i];
        if (row->dir != s->item->dir || !row->is(s)) {
            continue;
        }
        s->look->layout = row->name;
        row->judge(s);
        break;
    }
    enum hf_layout_state state = s->look->state;
    if (s->item->dir && (state == HF_LAYOUT_WHOLE || state == HF_LAYOUT_UNSURE) &&
        members(s, &s->inside, 0) == 0 && s->look->state != HF_LAYOUT_PARTIAL) {
        hf_scene_say(s, HF_LAYOUT_FOREIGN, "no file in it");
    }
    if (s->look->state != HF_LAYOUT_FOREIGN && marked_unfinished(s)) {
        s->look->why[0] = '\0';
        hf_scene_say(s, HF_LAYOUT_PARTIAL, "a mark beside it says that it is not finished");
    }
}

/* The links of the folder that lead to what belongs to this checkpoint belong to it as well. */
static void add_links(struct hf_scene *s)
{
    if (s->look->state == HF_LAYOUT_FOREIGN) {
        return;
    }
    for (size_t i = 0; i < s->in->len; i++) {
        const struct hf_item *item = &s->in->items[i];
        char target[4096];
        ssize_t n = item->link ? readlinkat(s->in->fd, item->name, target, sizeof(target) - 1) : -1;
        if (n <= 0) {
            continue;
        }
        target[n] = '\0';
        HF_CLEANUP(hf_freep)
        char *path =
            target[0] == '/' ? hf_strdup(target) : hf_asprintf("%s/%s", s->in->path, target);
        if (hf_strv_has(&s->look->roots, path)) {
            hf_scene_add_root(s, item->name);
        }
    }
}

static void look_at(const struct hf_folder *in, const struct hf_item *item, uint32_t world,
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
    } else if (item->dir && hf_folder_open_in(in, item->name, &s.inside, NULL) != HF_OK) {
        hf_scene_say(&s, HF_LAYOUT_PARTIAL, "it cannot be read");
    } else {
        judge_by_row(&s);
        add_links(&s);
    }
    hf_folder_close(&s.inside);
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
    } else {
        look_at(&in, item, world, ret);
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

static int by_text(const void *a, const void *b)
{
    const char *const *x = a;
    const char *const *y = b;
    return strcmp(*x, *y);
}

/* Paths that belong to some checkpoint, sorted; borrowed. */
static const char **owned_paths(const struct dated *all, size_t n, size_t *ret_n)
{
    size_t count = 0;
    for (size_t i = 0; i < n; i++) {
        count += all[i].look.state == HF_LAYOUT_FOREIGN ? 0 : all[i].look.roots.len;
    }
    const char **paths = hf_calloc(count, sizeof(paths[0]));
    count = 0;
    for (size_t i = 0; i < n; i++) {
        for (size_t k = 0; all[i].look.state != HF_LAYOUT_FOREIGN && k < all[i].look.roots.len;
             k++) {
            paths[count++] = all[i].look.roots.items[k];
        }
    }
    if (count > 0) {
        qsort(paths, count, sizeof(paths[0]), by_text);
    }
    *ret_n = count;
    return paths;
}

/* Sorted, told once each, and without what belongs to another. */
static void keep(struct dated *all, size_t n, struct hf_layout_looks *ret)
{
    size_t n_owned = 0;
    const char **owned = owned_paths(all, n, &n_owned);
    qsort(all, n, sizeof(all[0]), by_step);
    ret->items = hf_calloc(n, sizeof(ret->items[0]));
    ret->room = n;
    for (size_t i = 0; i < n; i++) {
        const char *path = all[i].look.path;
        bool again = i > 0 && ret->len > 0 && strcmp(ret->items[ret->len - 1].path, path) == 0;
        bool part = all[i].look.state == HF_LAYOUT_FOREIGN && n_owned > 0 &&
                    bsearch(&path, owned, n_owned, sizeof(owned[0]), by_text) != NULL;
        if (!again && !part) {
            ret->items[ret->len++] = all[i].look;
            all[i].look = (struct hf_layout_look){.step = -1};
        }
    }
    hf_free(owned);
}

enum hf_rc hf_layout_scan(const char *dir, uint32_t world, struct hf_layout_looks *ret,
                          struct hf_err *err)
{
    *ret = (struct hf_layout_looks){0};
    struct hf_folder in;
    HF_TRY(hf_folder_open(dir, &in, err));
    struct dated *all = hf_calloc(in.len, sizeof(all[0]));
    for (size_t i = 0; i < in.len; i++) {
        look_at(&in, &in.items[i], world, &all[i].look);
        /* Of files that are one checkpoint, the one that it is named after. */
        const struct hf_item *named = hf_folder_find(&in, strrchr(all[i].look.path, '/') + 1);
        all[i].mtime_ns = named != NULL ? named->mtime_ns : in.items[i].mtime_ns;
    }
    if (in.len > 0) {
        keep(all, in.len, ret);
    }
    for (size_t i = 0; i < in.len; i++) {
        hf_layout_look_release(&all[i].look);
    }
    hf_free(all);
    hf_folder_close(&in);
    return HF_OK;
}
