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

#include "base/mem.h"
#include "checkpoint/layout_row.h"

#define NUMBER_MAX   (INT64_C(1) << 53)
#define TEXT_MAX     4096
#define METADATA_MAX (64 << 20)
#define HOLES_MAX    65536 /* a row of files with a number beyond this is no row of ranks */

/* ---- folders ---- */

static int by_name(const void *a, const void *b)
{
    return strcmp(((const struct hf_item *)a)->name, ((const struct hf_item *)b)->name);
}

static void add_item(struct hf_folder *f, const char *name)
{
    struct stat st;
    if (strcmp(name, ".") == 0 || strcmp(name, "..") == 0 ||
        fstatat(f->fd, name, &st, AT_SYMLINK_NOFOLLOW) != 0) {
        return;
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
}

static enum hf_rc list(struct hf_folder *f, int fd, struct hf_err *err)
{
    f->fd = fd;
    int own = dup(fd);
    DIR *dir = own < 0 ? NULL : fdopendir(own);
    if (dir == NULL) {
        enum hf_rc rc = hf_fail_errno(err, errno, "list folder '%s'", f->path);
        if (own >= 0) {
            close(own);
        }
        hf_folder_close(f);
        return rc;
    }
    for (struct dirent *e = readdir(dir); e != NULL; e = readdir(dir)) {
        add_item(f, e->d_name);
    }
    closedir(dir);
    if (f->len > 0) {
        qsort(f->items, f->len, sizeof(f->items[0]), by_name);
    }
    return HF_OK;
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
    *ret = (struct hf_folder){.path = hf_strdup(path), .fd = -1};
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

const struct hf_item *hf_folder_find(const struct hf_folder *f, const char *name)
{
    size_t low = 0;
    size_t high = f->len;
    while (low < high) {
        size_t mid = low + (high - low) / 2;
        int order = strcmp(f->items[mid].name, name);
        if (order == 0) {
            return &f->items[mid];
        }
        if (order < 0) {
            low = mid + 1;
        } else {
            high = mid;
        }
    }
    return NULL;
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
    for (size_t i = 0; i < f->len; i++) {
        if (f->items[i].regular && hf_name_like(f->items[i].name, pattern, NULL)) {
            return true;
        }
    }
    return false;
}

char *hf_folder_text(const struct hf_folder *f, const char *name)
{
    char text[TEXT_MAX + 1];
    HF_CLEANUP(hf_closep)
    int fd = openat(f->fd, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY);
    ssize_t n = fd < 0 ? -1 : read(fd, text, TEXT_MAX);
    if (n < 0) {
        return NULL;
    }
    size_t len = (size_t)n;
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

int64_t hf_name_step(const char *name)
{
    size_t end = stem_len(name);
    while (end > 0 && (name[end - 1] < '0' || name[end - 1] > '9')) {
        end--;
    }
    size_t from = end;
    while (from > 0 && name[from - 1] >= '0' && name[from - 1] <= '9') {
        from--;
    }
    const char *at = name + from;
    int64_t v = -1;
    return from < end && digits(&at, &v) ? v : -1;
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
    if (!hf_strv_has(&s->look->roots, path)) {
        hf_strv_add(&s->look->roots, path);
    }
}

uint32_t hf_scene_need_row(struct hf_scene *s, const struct hf_folder *f, const char *pattern,
                           uint32_t want)
{
    HF_CLEANUP(hf_freep) bool *seen = hf_calloc(HOLES_MAX, sizeof(bool));
    uint32_t top = want;
    bool any = false;
    for (size_t i = 0; i < f->len; i++) {
        int64_t n[4];
        if (!f->items[i].regular || !hf_name_like(f->items[i].name, pattern, n) ||
            n[0] >= HOLES_MAX) {
            continue;
        }
        any = true;
        seen[n[0]] = true;
        top = (uint32_t)n[0] + 1 > top ? (uint32_t)n[0] + 1 : top;
        if (!hf_scene_need_in(s, f, f->items[i].name)) {
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

/* ".metadata" is a pickle; the names of the data files stand in it as plain text. */
static bool named_files_are_there(struct hf_scene *s, const struct hf_folder *f, const char *text,
                                  size_t len)
{
    for (size_t i = 0; i + 2 < len; i++) {
        if (text[i] != '_' || text[i + 1] != '_') {
            continue;
        }
        char name[64] = "";
        size_t n = 0;
        while (n + 1 < sizeof(name) && i + n < len && text[i + n] >= '.' && text[i + n] <= 'z') {
            name[n] = text[i + n];
            n++;
            name[n] = '\0';
            if (hf_name_like(name, "__#_#.distcp", NULL) ||
                hf_name_like(name, "__#_#.safetensors", NULL)) {
                break;
            }
        }
        bool data = hf_name_like(name, "__#_#.distcp", NULL) ||
                    hf_name_like(name, "__#_#.safetensors", NULL);
        if (data && !hf_scene_need_in(s, f, name)) {
            return false;
        }
    }
    return true;
}

/* Each data file is a row of what torch.save wrote: it ends as a zip does. */
static bool data_ends(struct hf_scene *s, const struct hf_folder *f)
{
    for (size_t i = 0; i < f->len; i++) {
        const struct hf_item *item = &f->items[i];
        if (!item->regular || !hf_name_like(item->name, "__#_#.distcp", NULL)) {
            continue;
        }
        char end[22] = "";
        HF_CLEANUP(hf_closep) int fd = openat(f->fd, item->name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
        if (fd < 0 || item->size < sizeof(end) ||
            pread(fd, end, sizeof(end), (off_t)(item->size - sizeof(end))) != sizeof(end) ||
            memcmp(end, "PK\5\6", 4) != 0) {
            hf_scene_say(s, HF_LAYOUT_PARTIAL, "'%s' is cut", item->name);
            return false;
        }
    }
    return true;
}

bool hf_scene_need_dcp(struct hf_scene *s, const struct hf_folder *f)
{
    const struct hf_item *meta = hf_folder_find(f, ".metadata");
    if (meta == NULL || !meta->regular || meta->size == 0) {
        hf_scene_say(s, HF_LAYOUT_PARTIAL, "'.metadata' is missing%s",
                     meta != NULL ? ", or empty" : "");
        return false;
    }
    if (meta->size > METADATA_MAX) {
        return data_ends(s, f);
    }
    HF_CLEANUP(hf_closep) int fd = openat(f->fd, ".metadata", O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    HF_CLEANUP(hf_freep) char *text = hf_calloc((size_t)meta->size, 1);
    size_t len = 0;
    for (ssize_t n = 1; fd >= 0 && n > 0 && len<meta->size; len += n> 0 ? (size_t)n : 0) {
        n = pread(fd, text + len, (size_t)meta->size - len, (off_t)len);
    }
    if (len != meta->size || text[len - 1] != '.') {
        hf_scene_say(s, HF_LAYOUT_PARTIAL, "'.metadata' is cut");
        return false;
    }
    if (!named_files_are_there(s, f, text, len) || !data_ends(s, f)) {
        return false;
    }
    for (size_t i = 0; i < f->len; i++) {
        if (f->items[i].regular && hf_name_like(f->items[i].name, "__#_#.distcp", NULL) &&
            f->items[i].mtime_ns > meta->mtime_ns) {
            hf_scene_say(s, HF_LAYOUT_UNSURE, "'%s' is newer than '.metadata': being overwritten?",
                         f->items[i].name);
            break;
        }
    }
    return true;
}
