/* SPDX-License-Identifier: Apache-2.0
 *
 * The small questions that the layouts' rows ask of folders, names and files. Blocking, read only.
 */
#include "base/prelude.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/json.h"
#include "base/mem.h"
#include "checkpoint/layout_row.h"

#define NUMBER_MAX   HF_JSON_INT_MAX
#define TEXT_MAX     4096
#define METADATA_MAX (64 << 20)
#define HOLES_MAX    65536 /* a row of files with a number beyond this is no row of ranks */

/* ---- folders ---- */

static int by_name(const void *a, const void *b)
{
    return strcmp(((const struct hf_item *)a)->name, ((const struct hf_item *)b)->name);
}

static enum hf_rc add_item(struct hf_folder *f, const char *name, struct hf_err *err)
{
    struct stat st;
    if (strcmp(name, ".") == 0 || strcmp(name, "..") == 0) {
        return HF_OK;
    }
    if (fstatat(f->fd, name, &st, AT_SYMLINK_NOFOLLOW) != 0) {
        return errno == ENOENT ? HF_OK
                               : hf_fail_errno(err, errno, "look at '%s/%s'", f->path, name);
    }
    if (f->len == f->room) {
        f->room = f->room == 0 ? 32 : f->room * 2;
        f->items = hf_realloc(f->items, f->room * sizeof(f->items[0]));
    }
    f->items[f->len++] = (struct hf_item){
        .name = hf_strdup(name),
        .dir = S_ISDIR(st.st_mode),
        .link = S_ISLNK(st.st_mode),
        .regular = S_ISREG(st.st_mode),
        .size = S_ISREG(st.st_mode) ? (uint64_t)st.st_size : 0,
        .mtime_ns = (int64_t)st.st_mtim.tv_sec * 1000000000 + st.st_mtim.tv_nsec,
    };
    return HF_OK;
}

static enum hf_rc list(struct hf_folder *f, int fd, struct hf_err *err)
{
    enum hf_rc rc = HF_OK;
    f->fd = fd;
    int own = dup(fd);
    DIR *dir = own < 0 ? NULL : fdopendir(own);
    if (dir == NULL) {
        rc = hf_fail_errno(err, errno, "list folder '%s'", f->path);
        if (own >= 0) {
            close(own);
        }
    }
    while (dir != NULL && rc == HF_OK) {
        errno = 0;
        const struct dirent *e = readdir(dir);
        if (e == NULL) {
            rc = errno == 0 ? HF_OK : hf_fail_errno(err, errno, "list folder '%s'", f->path);
            break;
        }
        rc = add_item(f, e->d_name, err);
    }
    if (dir != NULL) {
        closedir(dir);
    }
    if (rc != HF_OK) {
        hf_folder_close(f);
    } else if (f->len > 0) {
        qsort(f->items, f->len, sizeof(f->items[0]), by_name);
    }
    return rc;
}

static enum hf_rc open_at(int at, const char *name, int flags, struct hf_folder *ret,
                          struct hf_err *err)
{
    int fd = openat(at, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC | flags);
    if (fd < 0) {
        int num = errno;
        enum hf_rc rc = num == ENOTDIR ? hf_fail(err, HF_EINVAL, "'%s' is not a folder", ret->path)
                                       : hf_fail_errno(err, num, "open folder '%s'", ret->path);
        hf_folder_close(ret);
        return rc;
    }
    return list(ret, fd, err);
}

enum hf_rc hf_folder_open(const char *path, struct hf_folder *ret, struct hf_err *err)
{
    size_t len = strlen(path);
    while (len > 0 && path[len - 1] == '/') {
        len--; /* what is joined to it then has one slash, and "/" is "" */
    }
    *ret = (struct hf_folder){.path = hf_strndup(path, len), .fd = -1};
    return open_at(AT_FDCWD, path, 0, ret, err);
}

enum hf_rc hf_folder_open_in(const struct hf_folder *f, const char *name, struct hf_folder *ret,
                             struct hf_err *err)
{
    *ret = (struct hf_folder){.path = hf_asprintf("%s/%s", f->path, name), .fd = -1};
    return open_at(f->fd, name, O_NOFOLLOW, ret, err);
}

void hf_folder_close(struct hf_folder *f)
{
    if (f->fd >= 0) {
        close(f->fd);
    }
    for (size_t i = 0; i < f->len; i++) {
        hf_free(f->items[i].name);
    }
    hf_free(f->items);
    hf_free(f->path);
    *f = (struct hf_folder){.fd = -1};
}

size_t hf_folder_from(const struct hf_folder *f, const char *name)
{
    size_t low = 0;
    size_t high = f->len;
    while (low < high) {
        size_t mid = low + (high - low) / 2;
        if (strcmp(f->items[mid].name, name) < 0) {
            low = mid + 1;
        } else {
            high = mid;
        }
    }
    return low;
}

const struct hf_item *hf_folder_find(const struct hf_folder *f, const char *name)
{
    size_t at = hf_folder_from(f, name);
    return at < f->len && strcmp(f->items[at].name, name) == 0 ? &f->items[at] : NULL;
}

const struct hf_item *hf_folder_next_after(const struct hf_folder *f, const char *start,
                                           const char *rest, size_t *at, int64_t *numbers)
{
    /* Names are sorted: those that begin so stand together. */
    size_t n = strlen(start);
    for (size_t i = *at == 0 ? hf_folder_from(f, start) : *at;
         i < f->len && strncmp(f->items[i].name, start, n) == 0; i++) {
        if (f->items[i].regular && hf_name_like(f->items[i].name + n, rest, numbers)) {
            *at = i + 1;
            return &f->items[i];
        }
    }
    return NULL;
}

const struct hf_item *hf_folder_next_like(const struct hf_folder *f, const char *pattern,
                                          size_t *at, int64_t *numbers)
{
    char start[256];
    size_t n = strcspn(pattern, "#*");
    n = n < sizeof(start) ? n : sizeof(start) - 1;
    memcpy(start, pattern, n);
    start[n] = '\0';
    return hf_folder_next_after(f, start, pattern + n, at, numbers);
}

bool hf_folder_has(const struct hf_folder *f, const char *name)
{
    const struct hf_item *item = hf_folder_find(f, name);
    return item != NULL && item->regular;
}

bool hf_folder_has_dir(const struct hf_folder *f, const char *name)
{
    const struct hf_item *item = hf_folder_find(f, name);
    return item != NULL && item->dir;
}

bool hf_folder_has_like(const struct hf_folder *f, const char *pattern)
{
    size_t at = 0;
    return hf_folder_next_like(f, pattern, &at, NULL) != NULL;
}

char *hf_folder_read(const struct hf_folder *f, const char *name, size_t max, size_t *ret_len)
{
    struct stat st;
    HF_CLEANUP(hf_closep)
    int fd = openat(f->fd, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY);
    if (fd < 0 || fstat(fd, &st) != 0 || !S_ISREG(st.st_mode)) {
        return NULL;
    }
    size_t room = (uint64_t)st.st_size < max ? (size_t)st.st_size : max;
    char *text = hf_calloc(room + 1, 1);
    size_t len = 0;
    ssize_t n = 1;
    while (len < room && n != 0) {
        n = read(fd, text + len, room - len);
        if (n < 0 && errno != EINTR) {
            hf_free(text);
            return NULL;
        }
        len += n > 0 ? (size_t)n : 0;
    }
    *ret_len = len;
    return text;
}

char *hf_folder_text(const struct hf_folder *f, const char *name)
{
    size_t len = 0;
    HF_CLEANUP(hf_freep) char *text = hf_folder_read(f, name, TEXT_MAX, &len);
    if (text == NULL) {
        return NULL;
    }
    while (len > 0 && strchr(" \t\r\n", text[len - 1]) != NULL) {
        len--;
    }
    text[len] = '\0';
    return hf_strdup(text + strspn(text, " \t\r\n"));
}

/* ---- names ---- */

static bool digits(const char **at, int64_t *ret)
{
    const char *p = *at;
    int64_t v = 0;
    while (*p >= '0' && *p <= '9') {
        v = v * 10 + (*p++ - '0');
        if (v > NUMBER_MAX) {
            return false;
        }
    }
    bool any = p > *at;
    *at = p;
    *ret = v;
    return any;
}

static bool like(const char *name, const char *pattern, int64_t *numbers, unsigned n)
{
    while (*pattern != '\0') {
        if (*pattern == '*') {
            for (const char *rest = name;; rest++) {
                if (like(rest, pattern + 1, numbers, n)) {
                    return true;
                }
                if (*rest == '\0') {
                    return false;
                }
            }
        }
        if (*pattern == '#') {
            int64_t v = 0;
            if (!digits(&name, &v)) {
                return false;
            }
            if (numbers != NULL && n < 4) {
                numbers[n] = v;
            }
            n++;
            pattern++;
            continue;
        }
        if (*name++ != *pattern++) {
            return false;
        }
    }
    return *name == '\0';
}

bool hf_name_like(const char *name, const char *pattern, int64_t *numbers)
{
    return like(name, pattern, numbers, 0);
}

bool hf_name_ends(const char *name, const char *end)
{
    size_t n = strlen(name);
    size_t m = strlen(end);
    return n >= m && strcmp(name + n - m, end) == 0;
}

/* The part of a name before its endings: "step-5.pth.tar" is "step-5", "v1.5-step3.ckpt" is
 * "v1.5-step3": an ending begins with a letter, and is short. */
static size_t stem_len(const char *name)
{
    size_t len = strlen(name);
    for (;;) {
        size_t dot = len;
        while (dot > 0 && name[dot - 1] != '.') {
            dot--;
        }
        /* dot: behind the last '.', 0: none */
        if (dot < 2 || len - dot > 12 || dot == len || (name[dot] >= '0' && name[dot] <= '9')) {
            return len;
        }
        for (size_t i = dot; i < len; i++) {
            if (strchr("-_= ", name[i]) != NULL) {
                return len;
            }
        }
        len = dot - 1;
    }
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

/* The number behind the last `word`, as in "step=5", "step5", "iter_0000005"; -1: none. */
static int64_t number_behind(const char *stem, const char *word)
{
    size_t n = strlen(word);
    int64_t v = -1;
    for (const char *at = strstr(stem, word); at != NULL; at = strstr(at + 1, word)) {
        const char *p = at + n;
        p += *p != '\0' && strchr("=-_ ", *p) != NULL ? 1 : 0;
        int64_t found = -1;
        if (digits(&p, &found)) {
            v = found;
        }
    }
    return v;
}

/* The last run of digits that is no part of a fraction such as a loss; -1: none. */
static int64_t last_number(const char *stem)
{
    size_t end = strlen(stem);
    while (end > 0) {
        if (!is_digit(stem[end - 1])) {
            end--;
            continue;
        }
        size_t from = end;
        while (from > 0 && is_digit(stem[from - 1])) {
            from--;
        }
        bool tail = from > 1 && stem[from - 1] == '.' && is_digit(stem[from - 2]);
        bool front = stem[end] == '.' && is_digit(stem[end + 1]);
        const char *at = stem + from;
        int64_t v = -1;
        if (!tail && !front) {
            return digits(&at, &v) ? v : -1;
        }
        end = from;
    }
    return -1;
}

int64_t hf_name_step(const char *name)
{
    static const char *const words[] = {"step", "iteration", "iter", "epoch"};
    HF_CLEANUP(hf_freep) char *stem = hf_strndup(name, stem_len(name));
    /* "last-v1", "epoch=1-step=5-v1": Lightning's way out where the name is taken. */
    char *version = strrchr(stem, '-');
    if (version != NULL && hf_name_like(version, "-v#", NULL)) {
        *version = '\0';
    }
    int64_t v = -1;
    for (size_t i = 0; i < HF_COUNT(words) && v < 0; i++) {
        v = number_behind(stem, words[i]);
    }
    return v >= 0 ? v : last_number(stem);
}

/* ---- the scene ---- */

static unsigned weight(enum hf_layout_state state)
{
    return state == HF_LAYOUT_WHOLE ? 0 : state == HF_LAYOUT_UNSURE ? 1 : 2;
}

void hf_scene_say(struct hf_scene *s, enum hf_layout_state state, const char *fmt, ...)
{
    struct hf_layout_look *l = s->look;
    bool first = l->why[0] == '\0';
    bool worse = weight(state) > weight(l->state);
    if (!first && !worse && !(state == HF_LAYOUT_WHOLE && l->state == HF_LAYOUT_WHOLE)) {
        return; /* the first of the worst reasons is kept */
    }
    va_list args;
    va_start(args, fmt);
    vsnprintf(l->why, sizeof(l->why), fmt, args);
    va_end(args);
    l->state = state;
}

bool hf_scene_need_in(struct hf_scene *s, const struct hf_folder *f, const char *name)
{
    const struct hf_item *item = hf_folder_find(f, name);
    if (item == NULL || !item->regular) {
        hf_scene_say(s, HF_LAYOUT_PARTIAL, "'%s' is missing", name);
        return false;
    }
    struct hf_box_look box;
    hf_box_judge(f->fd, name, &box);
    if (box.state == HF_BOX_SHORT) {
        hf_scene_say(s, HF_LAYOUT_PARTIAL, "'%s': %s", name, box.why);
        return false;
    }
    return true;
}

bool hf_scene_need(struct hf_scene *s, const char *name)
{
    return hf_scene_need_in(s, &s->inside, name);
}

void hf_scene_add_root(struct hf_scene *s, const char *name)
{
    HF_CLEANUP(hf_freep) char *path = hf_asprintf("%s/%s", s->in->path, name);
    if (hf_folder_find(s->in, name) != NULL && !hf_strv_has(&s->look->roots, path)) {
        hf_strv_add(&s->look->roots, path);
    }
}

void hf_scene_name_after(struct hf_scene *s, const char *name)
{
    hf_free(s->look->path);
    s->look->path = hf_asprintf("%s/%s", s->in->path, name);
    hf_strv_clear(&s->look->roots);
    hf_scene_add_root(s, name);
}

uint32_t hf_scene_need_row(struct hf_scene *s, const struct hf_folder *f, const char *pattern,
                           uint32_t want)
{
    HF_CLEANUP(hf_freep) bool *seen = hf_calloc(HOLES_MAX, sizeof(bool));
    uint32_t top = want < HOLES_MAX ? want : HOLES_MAX;
    bool any = false;
    size_t at = 0;
    int64_t n[4] = {0};
    for (const struct hf_item *item = hf_folder_next_like(f, pattern, &at, n); item != NULL;
         item = hf_folder_next_like(f, pattern, &at, n)) {
        if (n[0] >= HOLES_MAX) {
            continue;
        }
        any = true;
        seen[n[0]] = true;
        top = (uint32_t)n[0] + 1 > top ? (uint32_t)n[0] + 1 : top;
        if (!hf_scene_need_in(s, f, item->name)) {
            return 0;
        }
    }
    for (uint32_t i = 0; any && i < top; i++) {
        if (!seen[i]) {
            hf_scene_say(s, HF_LAYOUT_PARTIAL, "of '%s' number %u of %u is missing", pattern, i,
                         top);
            return 0;
        }
    }
    return any ? top : 0;
}

/* ---- torch.distributed.checkpoint ---- */

#define DATA "__#_#.distcp"

/* The name of a data file that starts here, "" for none. */
static void data_name(const char *text, size_t len, char *name, size_t room)
{
    name[0] = '\0';
    for (size_t n = 0; n + 1 < room && n < len && text[n] >= '.' && text[n] <= 'z'; n++) {
        name[n] = text[n];
        name[n + 1] = '\0';
        if (hf_name_like(name, DATA, NULL) || hf_name_like(name, "__#_#.safetensors", NULL)) {
            return;
        }
    }
    name[0] = '\0';
}

/* ".metadata" is a pickle; the names of the data files stand in it as plain text. A rank that had
 * nothing to save leaves an empty file, but that is not named. */
static bool named_files_are_there(struct hf_scene *s, const struct hf_folder *f, const char *text,
                                  size_t len)
{
    for (size_t i = 0; i + 2 < len; i++) {
        char name[64];
        if (text[i] != '_' || text[i + 1] != '_') {
            continue;
        }
        data_name(text + i, len - i, name, sizeof(name));
        const struct hf_item *item = name[0] == '\0' ? NULL : hf_folder_find(f, name);
        if (name[0] != '\0' && (item == NULL || !item->regular || item->size == 0)) {
            hf_scene_say(s, HF_LAYOUT_PARTIAL, "'%s' is %s", name,
                         item == NULL ? "missing" : "empty");
            return false;
        }
    }
    return true;
}

static bool data_files_are_whole(struct hf_scene *s, const struct hf_folder *f, int64_t meta_ns)
{
    size_t at = 0;
    for (const struct hf_item *item = hf_folder_next_like(f, DATA, &at, NULL); item != NULL;
         item = hf_folder_next_like(f, DATA, &at, NULL)) {
        if (!hf_scene_need_in(s, f, item->name)) {
            return false;
        }
        if (item->mtime_ns > meta_ns) {
            hf_scene_say(s, HF_LAYOUT_UNSURE, "'%s' is newer than '.metadata': being overwritten?",
                         item->name);
        }
    }
    return true;
}

bool hf_scene_need_dcp(struct hf_scene *s, const struct hf_folder *f)
{
    if (!hf_scene_need_in(s, f, ".metadata")) {
        return false;
    }
    const struct hf_item *meta = hf_folder_find(f, ".metadata");
    size_t len = 0;
    HF_CLEANUP(hf_freep) char *text = hf_folder_read(f, ".metadata", METADATA_MAX, &len);
    if (text == NULL || len == 0) {
        hf_scene_say(s, HF_LAYOUT_PARTIAL, "'.metadata' cannot be read");
        return false;
    }
    return named_files_are_there(s, f, text, len) && data_files_are_whole(s, f, meta->mtime_ns);
}

/* ---- half removed ---- */

/* What others of its kind are called: "step_#" for "step_50"; NULL: it does not end in a number.
 * Owned by the caller. */
static char *like_own_name(const struct hf_scene *s)
{
    const char *name = s->item->name;
    if (hf_name_like(name, "*checkpoint-#", NULL)) {
        return hf_strdup("*checkpoint-#");
    }
    size_t len = strlen(name);
    size_t stem = len;
    while (stem > 0 && name[stem - 1] >= '0' && name[stem - 1] <= '9') {
        stem--;
    }
    return stem < len ? hf_asprintf("%.*s#", (int)stem, name) : NULL;
}

static bool has_any(const struct hf_folder *f, const char *const *names, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (hf_folder_has_like(f, names[i])) {
            return true;
        }
    }
    return false;
}

static bool one_has(const struct hf_scene *s, const struct hf_item *one, const char *sub,
                    const char *const *names, size_t n)
{
    struct hf_folder f;
    if (hf_folder_open_in(s->in, one->name, &f, NULL) != HF_OK) {
        return false;
    }
    bool has = sub == NULL && has_any(&f, names, n);
    for (size_t i = 0; i < f.len && sub != NULL && !has; i++) {
        struct hf_folder inner;
        if (f.items[i].dir && hf_name_like(f.items[i].name, sub, NULL) &&
            hf_folder_open_in(&f, f.items[i].name, &inner, NULL) == HF_OK) {
            has = has_any(&inner, names, n);
            hf_folder_close(&inner);
        }
    }
    hf_folder_close(&f);
    return has;
}

bool hf_scene_others_have(const struct hf_scene *s, const char *sub, const char *const *names,
                          size_t n)
{
    const struct hf_item *newest[2] = {NULL, NULL};
    HF_CLEANUP(hf_freep) char *like = like_own_name(s);
    for (size_t i = 0; i < s->in->len && like != NULL; i++) {
        const struct hf_item *item = &s->in->items[i];
        if (!item->dir || item == s->item || !hf_name_like(item->name, like, NULL)) {
            continue;
        }
        int64_t step = hf_name_step(item->name);
        if (newest[0] == NULL || step > hf_name_step(newest[0]->name)) {
            newest[1] = newest[0];
            newest[0] = item;
        } else if (newest[1] == NULL || step > hf_name_step(newest[1]->name)) {
            newest[1] = item;
        }
    }
    bool found = false;
    for (size_t i = 0; i < HF_COUNT(newest) && newest[i] != NULL && !found; i++) {
        found = one_has(s, newest[i], sub, names, n);
    }
    return found;
}
