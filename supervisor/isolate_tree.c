/* SPDX-License-Identifier: Apache-2.0
 *
 * Trees of files for the drill's isolation: walking, looking at one path, copying, removing, and
 * the inventory as JSON lines (one object a path, then a last line that counts them). Blocking,
 * one thread. Follows no symbolic link.
 */
#include "base/prelude.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/fault.h"
#include "base/fsx.h"
#include "base/json.h"
#include "supervisor/isolate_internal.h"

#define LINE_MAX_BYTES (64 * 1024)
#define CHUNK_BYTES    (64 * 1024)

static bool broken(void)
{
    if (hf_fault("file")) {
        errno = EIO;
        return true;
    }
    return false;
}

/* ---- the list -------------------------------------------------------------------------- */

struct hf_iso_entry *hf_iso_list_add(struct hf_iso_list *list, const char *path)
{
    if (list->len == list->cap) {
        list->cap = list->cap > 0 ? list->cap * 2 : 64;
        list->items = hf_realloc(list->items, list->cap * sizeof(list->items[0]));
    }
    struct hf_iso_entry *e = &list->items[list->len++];
    *e = (struct hf_iso_entry){.path = hf_strdup(path)};
    return e;
}

static int by_path(const void *a, const void *b)
{
    const struct hf_iso_entry *x = a;
    const struct hf_iso_entry *y = b;
    return strcmp(x->path, y->path);
}

void hf_iso_list_sort(struct hf_iso_list *list)
{
    if (list->len > 1) {
        qsort(list->items, list->len, sizeof(list->items[0]), by_path);
    }
}

struct hf_iso_entry *hf_iso_list_find(const struct hf_iso_list *list, const char *path)
{
    size_t low = 0;
    size_t high = list->len;
    while (low < high) {
        size_t mid = low + (high - low) / 2;
        int order = strcmp(path, list->items[mid].path);
        if (order == 0) {
            return &list->items[mid];
        }
        if (order < 0) {
            high = mid;
        } else {
            low = mid + 1;
        }
    }
    return NULL;
}

void hf_iso_entry_release(struct hf_iso_entry *entry)
{
    hf_free(entry->path);
    hf_free(entry->target);
    *entry = (struct hf_iso_entry){0};
}

void hf_iso_list_release(struct hf_iso_list *list)
{
    for (size_t i = 0; i < list->len; i++) {
        hf_iso_entry_release(&list->items[i]);
    }
    hf_free(list->items);
    *list = (struct hf_iso_list){0};
}

static void add_time(cJSON *obj, const char *key, struct statx_timestamp t)
{
    cJSON *pair = hf_json_obj();
    hf_json_add_int(pair, "s", t.tv_sec);
    hf_json_add_int(pair, "n", t.tv_nsec);
    hf_json_add(obj, key, pair);
}

static char *entry_print(const struct hf_iso_entry *e)
{
    cJSON *obj = hf_json_obj();
    hf_json_add(obj, "path", hf_json_bytes(e->path));
    hf_json_add_int(obj, "kind", e->kind);
    hf_json_add_int(obj, "guard", e->guard);
    hf_json_add_int(obj, "place", e->place);
    hf_json_add_int(obj, "number", e->number);
    hf_json_add_int(obj, "mode", e->mode);
    hf_json_add_int(obj, "uid", e->uid);
    hf_json_add_int(obj, "gid", e->gid);
    hf_json_add_int(obj, "links", e->links);
    hf_json_add_int(obj, "size", (int64_t)e->size);
    char inode[24]; /* a number of 64 bits does not fit a double */
    snprintf(inode, sizeof(inode), "%jx", (uintmax_t)e->inode);
    hf_json_add_str(obj, "inode", inode);
    add_time(obj, "mtime", e->mtime);
    add_time(obj, "ctime", e->ctime);
    if (e->target != NULL) {
        hf_json_add(obj, "target", hf_json_bytes(e->target));
    }
    char *text = hf_json_print(obj);
    hf_json_free(obj);
    return text;
}

static enum hf_rc add_line(struct hf_buf *b, int fd, const char *path, char *text_taken,
                           struct hf_err *err)
{
    enum hf_rc rc = hf_buf_addf(b, err, "%s\n", text_taken);
    hf_free(text_taken);
    if (rc == HF_OK && b->len >= CHUNK_BYTES) {
        rc = hf_fs_write_all(fd, hf_buf_span(b), path, err);
        hf_buf_reset(b);
    }
    return rc;
}

enum hf_rc hf_iso_list_write(const struct hf_iso_list *list, const char *path, struct hf_err *err)
{
    HF_CLEANUP(hf_closep) int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (fd < 0) {
        return hf_fail_errno(err, errno, "create '%s'", path);
    }
    struct hf_buf b;
    hf_buf_init(&b, CHUNK_BYTES + LINE_MAX_BYTES);
    enum hf_rc rc = HF_OK;
    for (size_t i = 0; i < list->len && rc == HF_OK; i++) {
        rc = add_line(&b, fd, path, entry_print(&list->items[i]), err);
    }
    if (rc == HF_OK) {
        rc = hf_buf_addf(&b, err, "{\"entries\":%zu}\n", list->len);
    }
    if (rc == HF_OK) {
        rc = hf_fs_write_all(fd, hf_buf_span(&b), path, err);
    }
    hf_buf_release(&b);
    HF_TRY(rc);
    return broken() || fsync(fd) != 0 ? hf_fail_errno(err, errno, "flush '%s'", path) : HF_OK;
}

static enum hf_rc get_u32(const cJSON *obj, const char *key, uint32_t *ret, struct hf_err *err)
{
    int64_t n = 0;
    HF_TRY(hf_json_get_int(obj, key, 0, UINT32_MAX, &n, err));
    *ret = (uint32_t)n;
    return HF_OK;
}

static enum hf_rc get_time(const cJSON *obj, const char *key, struct statx_timestamp *ret,
                           struct hf_err *err)
{
    const cJSON *pair = NULL;
    int64_t sec = 0;
    uint32_t nsec = 0;
    HF_TRY(hf_json_get_obj(obj, key, &pair, err));
    HF_TRY(hf_json_get_int(pair, "s", -(INT64_C(1) << 53), INT64_C(1) << 53, &sec, err));
    HF_TRY(get_u32(pair, "n", &nsec, err));
    *ret = (struct statx_timestamp){.tv_sec = sec, .tv_nsec = nsec};
    return HF_OK;
}

static enum hf_rc entry_read(const cJSON *obj, struct hf_iso_entry *e, struct hf_err *err)
{
    int64_t n = 0;
    const char *inode = NULL;
    HF_TRY(hf_json_get_int(obj, "kind", HF_ISO_DIR, HF_ISO_ABSENT, &n, err));
    e->kind = (enum hf_iso_kind)n;
    HF_TRY(hf_json_get_int(obj, "guard", HF_ISO_UNGUARDED, HF_ISO_LINK, &n, err));
    e->guard = (enum hf_iso_guard)n;
    HF_TRY(get_u32(obj, "place", &e->place, err));
    HF_TRY(get_u32(obj, "number", &e->number, err));
    HF_TRY(get_u32(obj, "mode", &e->mode, err));
    HF_TRY(get_u32(obj, "uid", &e->uid, err));
    HF_TRY(get_u32(obj, "gid", &e->gid, err));
    HF_TRY(get_u32(obj, "links", &e->links, err));
    HF_TRY(hf_json_get_int(obj, "size", 0, INT64_C(1) << 53, &n, err));
    e->size = (uint64_t)n;
    HF_TRY(hf_json_get_str(obj, "inode", &inode, err));
    e->inode = strtoull(inode, NULL, 16);
    HF_TRY(get_time(obj, "mtime", &e->mtime, err));
    HF_TRY(get_time(obj, "ctime", &e->ctime, err));
    const cJSON *target = hf_json_opt(obj, "target");
    return target != NULL ? hf_json_bytes_read(target, &e->target, err) : HF_OK;
}

/* *ret_end: it was the last line. */
static enum hf_rc line_read(struct hf_iso_list *list, const char *line, size_t len, bool *ret_end,
                            struct hf_err *err)
{
    HF_CLEANUP(hf_json_freep) cJSON *obj = NULL;
    HF_TRY(hf_json_parse((struct hf_span){line, len}, LINE_MAX_BYTES, &obj, err));
    int64_t entries = hf_json_opt_int(obj, "entries", -1);
    if (entries >= 0) {
        if ((size_t)entries != list->len) {
            return hf_fail(err, HF_ECORRUPT, "%zu entries instead of %jd", list->len,
                           (intmax_t)entries);
        }
        *ret_end = true;
        return HF_OK;
    }
    HF_CLEANUP(hf_freep) char *path = NULL;
    HF_TRY(hf_json_bytes_read(hf_json_opt(obj, "path"), &path, err));
    return entry_read(obj, hf_iso_list_add(list, path), err);
}

enum hf_rc hf_iso_list_read(struct hf_iso_list *list, const char *path, struct hf_err *err)
{
    HF_CLEANUP(hf_closep) int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        return hf_fail_errno(err, errno, "open '%s'", path);
    }
    HF_CLEANUP(hf_freep) char *chunk = hf_calloc(1, CHUNK_BYTES);
    struct hf_buf b;
    hf_buf_init(&b, CHUNK_BYTES + LINE_MAX_BYTES);
    bool end = false;
    enum hf_rc rc = HF_OK;
    while (rc == HF_OK && !end) {
        ssize_t n = read(fd, chunk, CHUNK_BYTES);
        if (n <= 0) {
            rc = n < 0 ? hf_fail_errno(err, errno, "read '%s'", path)
                       : hf_fail(err, HF_ECORRUPT, "'%s' is cut off", path);
            break;
        }
        rc = hf_buf_add(&b, chunk, (size_t)n, err);
        size_t pos = 0;
        size_t len = 0;
        char *line = NULL;
        while (rc == HF_OK && !end && (line = hf_buf_next_line(&b, &pos, &len)) != NULL) {
            rc = line_read(list, line, len, &end, err);
        }
        hf_buf_drop_front(&b, pos);
    }
    hf_buf_release(&b);
    return rc == HF_OK ? HF_OK : hf_wrap(err, rc, "inventory '%s'", path);
}

/* ---- the file system ------------------------------------------------------------------- */

static enum hf_iso_kind kind_of(mode_t mode)
{
    if (S_ISDIR(mode)) {
        return HF_ISO_DIR;
    }
    if (S_ISREG(mode)) {
        return HF_ISO_FILE;
    }
    return S_ISLNK(mode) ? HF_ISO_SYMLINK : HF_ISO_SPECIAL;
}

enum hf_rc hf_iso_look(const char *path, struct hf_iso_entry *ret, uint64_t *ret_dev,
                       bool *ret_mount_root, struct hf_err *err)
{
    struct statx sx;
    if (broken() ||
        statx(AT_FDCWD, path, AT_SYMLINK_NOFOLLOW | AT_NO_AUTOMOUNT, STATX_BASIC_STATS, &sx) != 0) {
        return hf_fail_errno(err, errno, "look at '%s'", path);
    }
    ret->kind = kind_of(sx.stx_mode);
    ret->mode = sx.stx_mode & 07777u;
    ret->uid = sx.stx_uid;
    ret->gid = sx.stx_gid;
    ret->links = sx.stx_nlink;
    ret->size = sx.stx_size;
    ret->inode = sx.stx_ino;
    ret->mtime = sx.stx_mtime;
    ret->ctime = sx.stx_ctime;
    if (ret_dev != NULL) {
        *ret_dev = (uint64_t)sx.stx_dev_major << 32 | sx.stx_dev_minor;
    }
    if (ret_mount_root != NULL) {
        *ret_mount_root = (sx.stx_attributes & STATX_ATTR_MOUNT_ROOT) != 0;
    }
    hf_free(ret->target);
    ret->target = NULL;
    if (ret->kind == HF_ISO_SYMLINK) {
        char target[4097];
        ssize_t n = readlink(path, target, sizeof(target) - 1);
        if (n < 0) {
            return hf_fail_errno(err, errno, "read link '%s'", path);
        }
        ret->target = hf_strndup(target, (size_t)n);
    }
    return HF_OK;
}

static enum hf_rc names_in(const char *dir, struct hf_strv *ret, struct hf_err *err)
{
    DIR *d = broken() ? NULL : opendir(dir);
    if (d == NULL) {
        return hf_fail_errno(err, errno, "open folder '%s'", dir);
    }
    enum hf_rc rc = HF_OK;
    for (;;) {
        errno = 0;
        const struct dirent *e = readdir(d);
        if (e == NULL) {
            rc = errno != 0 ? hf_fail_errno(err, errno, "read folder '%s'", dir) : HF_OK;
            break;
        }
        if (ret->len > HF_ISO_ENTRIES_MAX) {
            rc = hf_fail(err, HF_ENOTSUP, "folder '%s' holds more than %d files", dir,
                         HF_ISO_ENTRIES_MAX);
            break;
        }
        if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0) {
            hf_strv_add(ret, e->d_name);
        }
    }
    closedir(d);
    return rc;
}

/* The names are read before any is visited: visit may take them away. */
static enum hf_rc walk_one(const char *dir, struct hf_strv *todo, hf_iso_visit_fn *visit,
                           void *user, struct hf_err *err)
{
    struct hf_strv names = {0};
    enum hf_rc rc = names_in(dir, &names, err);
    for (size_t i = 0; i < names.len && rc == HF_OK; i++) {
        HF_CLEANUP(hf_freep) char *path = hf_asprintf("%s/%s", dir, names.items[i]);
        bool descend = false;
        rc = visit(user, path, &descend, err);
        if (rc == HF_OK && descend) {
            hf_strv_add(todo, path);
        }
    }
    hf_strv_clear(&names);
    return rc;
}

enum hf_rc hf_iso_walk(const char *root, hf_iso_visit_fn *visit, void *user, struct hf_err *err)
{
    struct hf_strv todo = {0};
    hf_strv_add(&todo, root);
    enum hf_rc rc = HF_OK;
    while (rc == HF_OK && todo.len > 0) {
        char *dir = todo.items[--todo.len];
        todo.items[todo.len] = NULL;
        rc = walk_one(dir, &todo, visit, user, err);
        hf_free(dir);
    }
    hf_strv_clear(&todo);
    return rc;
}

static enum hf_rc open_up(void *user, const char *path, bool *descend, struct hf_err *err)
{
    (void)user;
    (void)err;
    struct stat st;
    if (lstat(path, &st) == 0 && S_ISDIR(st.st_mode)) {
        *descend = (st.st_mode & S_IRWXU) == S_IRWXU || chmod(path, 0700) == 0;
    }
    return HF_OK;
}

enum hf_rc hf_iso_remove(const char *path, struct hf_err *err)
{
    if (hf_fs_remove_tree(path, NULL) == HF_OK) {
        return HF_OK;
    }
    bool descend = false;
    HF_TRY(open_up(NULL, path, &descend, err));
    if (descend && hf_iso_walk(path, open_up, NULL, NULL) != HF_OK) {
        return hf_fs_remove_tree(path, err);
    }
    return hf_fs_remove_tree(path, err);
}

static enum hf_rc pump(int in, int out, const char *from, const char *to, struct hf_err *err)
{
    HF_CLEANUP(hf_freep) char *chunk = hf_calloc(1, CHUNK_BYTES);
    for (;;) {
        ssize_t n = broken() ? -1 : read(in, chunk, CHUNK_BYTES);
        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n < 0) {
            return hf_fail_errno(err, errno, "read '%s'", from);
        }
        if (n == 0) {
            return HF_OK;
        }
        HF_TRY(hf_fs_write_all(out, (struct hf_span){chunk, (size_t)n}, to, err));
    }
}

enum hf_rc hf_iso_copy(const char *from, const char *to, uint64_t max_bytes,
                       enum hf_iso_copy *ret_how, struct hf_err *err)
{
    HF_CLEANUP(hf_closep)
    int in = broken() ? -1 : open(from, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    struct stat st;
    if (in < 0 || fstat(in, &st) != 0) {
        return hf_fail_errno(err, errno, "open '%s'", from);
    }
    HF_CLEANUP(hf_closep)
    int out = broken() ? -1 : open(to, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (out < 0) {
        return hf_fail_errno(err, errno, "create '%s'", to);
    }
    enum hf_iso_copy how = HF_ISO_CLONED;
    enum hf_rc rc = HF_OK;
    if (ioctl(out, FICLONE, in) != 0) {
        how = (uint64_t)st.st_size <= max_bytes ? HF_ISO_COPIED : HF_ISO_TOO_BIG;
        rc = how == HF_ISO_COPIED ? pump(in, out, from, to, err) : HF_OK;
    }
    if (rc != HF_OK || how == HF_ISO_TOO_BIG) {
        unlink(to);
    }
    if (rc == HF_OK) {
        *ret_how = how;
    }
    return rc;
}

static size_t read_full(int fd, char *out, size_t len)
{
    size_t got = 0;
    while (got < len) {
        ssize_t n = read(fd, out + got, len - got);
        if (n <= 0) {
            return n == 0 ? got : SIZE_MAX;
        }
        got += (size_t)n;
    }
    return got;
}

bool hf_iso_equal(const char *a, const char *b)
{
    HF_CLEANUP(hf_closep) int x = open(a, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    HF_CLEANUP(hf_closep) int y = open(b, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    HF_CLEANUP(hf_freep) char *chunks = hf_calloc(2, CHUNK_BYTES);
    if (x < 0 || y < 0) {
        return false;
    }
    for (;;) {
        size_t n = read_full(x, chunks, CHUNK_BYTES);
        size_t m = read_full(y, chunks + CHUNK_BYTES, CHUNK_BYTES);
        if (n == SIZE_MAX || n != m || memcmp(chunks, chunks + CHUNK_BYTES, n) != 0) {
            return false;
        }
        if (n < CHUNK_BYTES) {
            return true;
        }
    }
}

enum hf_rc hf_iso_rename(const char *from, const char *to, struct hf_err *err)
{
    if (broken() || rename(from, to) != 0) {
        return hf_fail_errno(err, errno, "rename '%s' to '%s'", from, to);
    }
    return HF_OK;
}
