/* SPDX-License-Identifier: Apache-2.0
 *
 * Lists what lies below some roots, and the stamps made of such a list. Worker threads; it reads
 * folders and the metadata of files, never their content, and follows no link.
 */
#include "base/prelude.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fault.h"
#include "checkpoint/fileset.h"
#include "checkpoint/record.h"
#include "checkpoint/save.h"

#define DEPTH_MAX 200

/* The shortest text that a manifest can have for an entry beside its path (decision.c). */
#define ENTRY_TEXT_MIN  40
#define FILE_TEXT_MIN   140
#define EXTENT_TEXT_MIN 28

struct listing {
    struct hf_fileset *set;
    uint32_t root;
    const char *root_path;
};

static bool broken(void)
{
    if (hf_fault("file")) {
        errno = EIO;
        return true;
    }
    return false;
}

void hf_fileset_release(struct hf_fileset *s)
{
    for (size_t i = 0; i < s->len; i++) {
        hf_free(s->items[i].path);
        hf_free(s->items[i].target);
    }
    hf_free(s->items);
    hf_strv_clear(&s->left_out);
    *s = (struct hf_fileset){.len = 0};
}

static struct hf_entry *add(struct hf_fileset *s)
{
    if (s->len == s->room) {
        s->room = s->room > 0 ? 2 * s->room : 64;
        s->items = hf_realloc(s->items, s->room * sizeof(struct hf_entry));
    }
    s->items[s->len] = (struct hf_entry){.root = 0};
    return &s->items[s->len++];
}

static const char *odd_kind(mode_t mode)
{
    return S_ISSOCK(mode) ? "socket" : S_ISFIFO(mode) ? "pipe" : "device";
}

/* A stray socket or pipe must not cost the checkpoint. As a root it was asked for by name. */
static enum hf_rc leave_out(struct listing *l, const char *path, mode_t mode, struct hf_err *err)
{
    if (path[0] == '\0') {
        enum hf_rc rc = hf_fail(err, HF_ENOTSUP, "'%s' is a %s", l->root_path, odd_kind(mode));
        return hf_hint(err, rc, "Files, folders and links can be saved.");
    }
    if (l->set->left_out.len < HF_LEFT_OUT_MAX) {
        hf_strv_take(&l->set->left_out, hf_asprintf("%s/%s", l->root_path, path));
    }
    return HF_OK;
}

/* *ret stays NULL when the link is gone, or none any more. */
static enum hf_rc read_target(int dir, const char *name, char **ret, struct hf_err *err)
{
    char target[PATH_MAX];
    ssize_t n = broken() ? -1 : readlinkat(dir, name, target, sizeof(target));
    if (n < 0 && (errno == ENOENT || errno == EINVAL)) {
        return HF_OK;
    }
    if (n < 0 || (size_t)n >= sizeof(target)) {
        return hf_fail_errno(err, n < 0 ? errno : ENAMETOOLONG, "read the link '%s'", name);
    }
    *ret = hf_strndup(target, (size_t)n);
    return HF_OK;
}

/* Whether all that opens it by its path can do so. */
static enum hf_rc check_length(const struct listing *l, const char *path, struct hf_err *err)
{
    size_t len = strlen(l->root_path) + 1 + strlen(path);
    return len < PATH_MAX ? HF_OK
                          : hf_fail(err, HF_ENOTSUP, "a path of %zu bytes, more than %d: '%s/%s'",
                                    len, PATH_MAX - 1, l->root_path, path);
}

static enum hf_rc add_entry(struct listing *l, int dir, const char *name, const char *path,
                            const struct stat *st, struct hf_err *err)
{
    if (!S_ISREG(st->st_mode) && !S_ISDIR(st->st_mode) && !S_ISLNK(st->st_mode)) {
        return leave_out(l, path, st->st_mode, err);
    }
    HF_TRY(check_length(l, path, err));
    char *target = NULL;
    if (S_ISLNK(st->st_mode)) {
        HF_TRY(read_target(dir, name, &target, err));
        if (target == NULL) {
            return HF_OK;
        }
    }
    struct hf_entry *e = add(l->set);
    *e = (struct hf_entry){.root = l->root,
                           .path = hf_strdup(path),
                           .kind = HF_FILE_DIR,
                           .mode = st->st_mode & 07777,
                           .inode = st->st_ino,
                           .target = target};
    if (target != NULL) {
        e->kind = HF_FILE_SYMLINK;
    } else if (S_ISREG(st->st_mode)) {
        e->kind = HF_FILE_REGULAR;
        e->size = (uint64_t)st->st_size;
        e->mtime_ns = (int64_t)st->st_mtim.tv_sec * 1000000000 + st->st_mtim.tv_nsec;
    }
    return HF_OK;
}

static enum hf_rc list_folder(struct listing *l, int fd_taken, const char *path, unsigned depth,
                              struct hf_err *err);

static enum hf_rc list_one(struct listing *l, int dir, const char *folder, const char *name,
                           unsigned depth, struct hf_err *err)
{
    HF_CLEANUP(hf_freep)
    char *path = folder[0] == '\0' ? hf_strdup(name) : hf_asprintf("%s/%s", folder, name);
    struct stat st;
    if (broken() || fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) != 0) {
        return errno == ENOENT ? HF_OK
                               : hf_fail_errno(err, errno, "stat '%s/%s'", l->root_path, path);
    }
    HF_TRY(add_entry(l, dir, name, path, &st, err));
    if (!S_ISDIR(st.st_mode)) {
        return HF_OK;
    }
    if (depth >= DEPTH_MAX) {
        return hf_fail(err, HF_ENOTSUP, "more than %d folders in one another: '%s/%s'", DEPTH_MAX,
                       l->root_path, path);
    }
    int fd = broken() ? -1 : openat(dir, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0) { /* gone, or something else by now: the look after the reading will tell */
        return errno == ENOENT || errno == ENOTDIR || errno == ELOOP
                   ? HF_OK
                   : hf_fail_errno(err, errno, "open folder '%s/%s'", l->root_path, path);
    }
    return list_folder(l, fd, path, depth + 1, err);
}

static enum hf_rc list_folder(struct listing *l, int fd_taken, const char *path, unsigned depth,
                              struct hf_err *err)
{
    DIR *d = fdopendir(fd_taken);
    if (d == NULL) {
        enum hf_rc failed = hf_fail_errno(err, errno, "list '%s/%s'", l->root_path, path);
        close(fd_taken);
        return failed;
    }
    enum hf_rc rc = HF_OK;
    while (rc == HF_OK) {
        errno = 0;
        const struct dirent *e = broken() ? NULL : readdir(d);
        if (e == NULL) {
            rc = errno == 0 ? HF_OK : hf_fail_errno(err, errno, "list '%s/%s'", l->root_path, path);
            break;
        }
        if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0) {
            rc = list_one(l, dirfd(d), path, e->d_name, depth, err);
        }
    }
    closedir(d);
    return rc;
}

static enum hf_rc list_root(struct hf_fileset *set, uint32_t index, const char *path,
                            struct hf_err *err)
{
    struct listing l = {.set = set, .root = index, .root_path = path};
    struct stat st;
    if (broken() || lstat(path, &st) != 0) {
        return hf_fail_errno(err, errno, "'%s'", path);
    }
    size_t before = set->len;
    HF_TRY(add_entry(&l, AT_FDCWD, path, "", &st, err));
    if (set->len == before) {
        return hf_fail(err, HF_ENOTFOUND, "'%s' has just gone", path);
    }
    if (!S_ISDIR(st.st_mode)) {
        return HF_OK;
    }
    int fd = broken() ? -1 : open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0) {
        return hf_fail_errno(err, errno, "open folder '%s'", path);
    }
    return list_folder(&l, fd, "", 0, err);
}

int hf_entry_order(const struct hf_entry *a, const struct hf_entry *b)
{
    return a->root != b->root ? (a->root < b->root ? -1 : 1) : hf_path_order(a->path, b->path);
}

static int by_order(const void *a, const void *b)
{
    return hf_entry_order(a, b);
}

enum hf_rc hf_fileset_list(const struct hf_strv *roots, struct hf_fileset *ret, struct hf_err *err)
{
    HF_TRY(hf_roots_check(roots, err));
    struct hf_fileset set = {.len = 0};
    for (size_t i = 0; i < roots->len; i++) {
        enum hf_rc rc = list_root(&set, (uint32_t)i, roots->items[i], err);
        if (rc != HF_OK) {
            hf_fileset_release(&set);
            return rc;
        }
    }
    if (set.len > 1) {
        qsort(set.items, set.len, sizeof(struct hf_entry), by_order);
    }
    *ret = set;
    return HF_OK;
}

bool hf_entry_same(const struct hf_entry *a, const struct hf_entry *b)
{
    return a->kind == b->kind && a->mode == b->mode && a->size == b->size &&
           a->mtime_ns == b->mtime_ns && a->inode == b->inode &&
           strcmp(a->target != NULL ? a->target : "", b->target != NULL ? b->target : "") == 0;
}

char *hf_entry_path(const struct hf_strv *roots, const struct hf_entry *e)
{
    const char *root = roots->items[e->root];
    return e->path[0] == '\0' ? hf_strdup(root) : hf_asprintf("%s/%s", root, e->path);
}

enum hf_rc hf_fileset_fits(const struct hf_fileset *s, uint64_t block_bytes, struct hf_err *err)
{
    uint64_t bytes = 0;
    size_t files = 0;
    for (size_t i = 0; i < s->len; i++) {
        const struct hf_entry *e = &s->items[i];
        bytes += strlen(e->path);
        if (e->kind == HF_FILE_REGULAR) {
            bytes += FILE_TEXT_MIN + e->size / block_bytes * EXTENT_TEXT_MIN;
            files++;
        } else {
            bytes += ENTRY_TEXT_MIN;
        }
    }
    if (bytes <= HF_DECISION_MAX) {
        return HF_OK;
    }
    enum hf_rc rc = hf_fail(err, HF_EFULL,
                            "%zu files and %zu folders and links need a manifest of more than %u "
                            "MiB",
                            files, s->len - files, HF_DECISION_MAX >> 20);
    return hf_hint(err, rc,
                   "Put many small files into few (tar, shards), or keep what is no checkpoint "
                   "elsewhere; for huge files a larger --block-size helps.");
}

char *hf_link_leads(const char *path, const char *target)
{
    int folder = target[0] == '/' ? 0 : (int)(strrchr(path, '/') - path);
    HF_CLEANUP(hf_freep) char *full = hf_asprintf("%.*s/%s", folder, path, target);
    char *out = hf_calloc(strlen(full) + 2, 1);
    size_t n = 0;
    for (const char *part = full; *part != '\0';) {
        size_t len = strcspn(part, "/");
        if (len == 2 && memcmp(part, "..", 2) == 0) {
            while (n > 0 && out[--n] != '/') {
            }
        } else if (len > 0 && !(len == 1 && part[0] == '.')) {
            out[n++] = '/';
            memcpy(out + n, part, len);
            n += len;
        }
        part += len + (part[len] == '/' ? 1 : 0);
    }
    out[n == 0 ? 1 : n] = '\0';
    out[0] = '/';
    return out;
}

static int stamp_order(const void *a, const void *b)
{
    const struct hf_stamp *x = a;
    const struct hf_stamp *y = b;
    return hf_path_order(x->path, y->path);
}

void hf_stamps_of(const struct hf_strv *roots, const struct hf_fileset *set, struct hf_stamps *ret)
{
    struct hf_stamp *items = hf_calloc(set->len, sizeof(struct hf_stamp));
    for (size_t i = 0; i < set->len; i++) {
        const struct hf_entry *e = &set->items[i];
        items[i] = (struct hf_stamp){.path = hf_entry_path(roots, e),
                                     .size = e->size,
                                     .mtime_ns = e->mtime_ns,
                                     .inode = e->inode};
    }
    if (set->len > 1) {
        qsort(items, set->len, sizeof(struct hf_stamp), stamp_order);
    }
    *ret = (struct hf_stamps){.items = items, .len = set->len};
    for (size_t i = 0; i < set->left_out.len; i++) {
        hf_strv_add(&ret->left_out, set->left_out.items[i]);
    }
}

enum hf_rc hf_stamps_take(const struct hf_strv *roots, struct hf_stamps *ret, struct hf_err *err)
{
    struct hf_fileset set;
    HF_TRY(hf_fileset_list(roots, &set, err));
    hf_stamps_of(roots, &set, ret);
    hf_fileset_release(&set);
    return HF_OK;
}

static bool stamp_same(const struct hf_stamp *x, const struct hf_stamp *y)
{
    bool any_inode = x->inode == 0 || y->inode == 0;
    return strcmp(x->path, y->path) == 0 && x->size == y->size && x->mtime_ns == y->mtime_ns &&
           (any_inode || x->inode == y->inode);
}

bool hf_stamps_equal(const struct hf_stamps *a, const struct hf_stamps *b, const char **ret_which)
{
    for (size_t i = 0; i < a->len || i < b->len; i++) {
        const struct hf_stamp *x = i < a->len ? &a->items[i] : NULL;
        const struct hf_stamp *y = i < b->len ? &b->items[i] : NULL;
        if (x != NULL && y != NULL && stamp_same(x, y)) {
            continue;
        }
        if (ret_which != NULL) {
            bool first = y == NULL || (x != NULL && hf_path_order(x->path, y->path) <= 0);
            *ret_which = first ? a->items[i].path : b->items[i].path;
        }
        return false;
    }
    return true;
}

void hf_stamps_release(struct hf_stamps *s)
{
    for (size_t i = 0; i < s->len; i++) {
        hf_free(s->items[i].path);
    }
    hf_free(s->items);
    hf_strv_clear(&s->left_out);
    *s = (struct hf_stamps){.len = 0};
}
