/* SPDX-License-Identifier: Apache-2.0
 *
 * Files. Every call blocks; each system call that can fail is a fault point of test builds.
 */
#include "base/prelude.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fault.h"
#include "base/fsx.h"
#include "base/hash.h"
#include "base/mem.h"

/* True (with errno = EIO) when a test wants the call about to be made to fail. */
static bool broken(void)
{
    if (hf_fault("file")) {
        errno = EIO;
        return true;
    }
    return false;
}

/* Back to what it held before, with the NUL behind it. */
static void take_back(struct hf_buf *b, size_t len)
{
    b->len = len;
    if (b->data != NULL) {
        b->data[len] = '\0';
    }
}

enum hf_rc hf_fs_read(const char *path, struct hf_buf *b, struct hf_err *err)
{
    HF_CLEANUP(hf_closep) int fd = broken() ? -1 : open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        return hf_fail_errno(err, errno, "open '%s'", path);
    }
    size_t before = b->len;
    char chunk[16384];
    for (;;) {
        ssize_t n = broken() ? -1 : read(fd, chunk, sizeof(chunk));
        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n < 0) {
            take_back(b, before);
            return hf_fail_errno(err, errno, "read '%s'", path);
        }
        if (n == 0) {
            return HF_OK;
        }
        enum hf_rc rc = hf_buf_add(b, chunk, (size_t)n, err);
        if (rc != HF_OK) {
            take_back(b, before);
            return hf_wrap(err, rc, "'%s'", path);
        }
    }
}

enum hf_rc hf_fs_write_all(int fd, struct hf_span data, const char *what, struct hf_err *err)
{
    const char *p = data.ptr;
    size_t left = data.len;
    while (left > 0) {
        ssize_t n = broken() ? -1 : write(fd, p, left);
        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n < 0) {
            return hf_fail_errno(err, errno, "write '%s'", what);
        }
        p += n;
        left -= (size_t)n;
    }
    return HF_OK;
}

enum hf_rc hf_fs_sync_dir(const char *path, struct hf_err *err)
{
    HF_CLEANUP(hf_closep) int fd = broken() ? -1 : open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) {
        return hf_fail_errno(err, errno, "open folder '%s'", path);
    }
    if (broken() || fsync(fd) != 0) {
        return hf_fail_errno(err, errno, "flush folder '%s'", path);
    }
    return HF_OK;
}

static enum hf_rc sync_parent(const char *path, struct hf_err *err)
{
    const char *slash = strrchr(path, '/');
    if (slash == NULL) {
        return hf_fs_sync_dir(".", err);
    }
    HF_CLEANUP(hf_freep) char *dir = hf_strndup(path, slash == path ? 1 : (size_t)(slash - path));
    return hf_fs_sync_dir(dir, err);
}

static enum hf_rc fill(int fd, const char *path, struct hf_span data, bool sync, struct hf_err *err)
{
    HF_TRY(hf_fs_write_all(fd, data, path, err));
    if (sync && (broken() || fsync(fd) != 0)) {
        return hf_fail_errno(err, errno, "flush '%s'", path);
    }
    return HF_OK;
}

enum hf_rc hf_fs_write(const char *path, struct hf_span data, mode_t mode, bool sync,
                       struct hf_err *err)
{
    char rand[17];
    hf_random_hex(8, rand);
    HF_CLEANUP(hf_freep) char *tmp = hf_asprintf("%s.tmp-%s", path, rand);
    HF_CLEANUP(hf_closep)
    int fd = broken() ? -1 : open(tmp, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode);
    if (fd < 0) {
        return hf_fail_errno(err, errno, "create '%s'", path);
    }
    /* The same failure has the same text each time: the temporary name is no part of it. */
    enum hf_rc rc = fill(fd, path, data, sync, err);
    if (rc == HF_OK && (broken() || rename(tmp, path) != 0)) {
        rc = hf_fail_errno(err, errno, "replace '%s'", path);
    }
    if (rc != HF_OK) {
        unlink(tmp);
        return rc;
    }
    return sync ? sync_parent(path, err) : HF_OK;
}

static enum hf_rc make_one(const char *path, mode_t mode, struct hf_err *err)
{
    if (!broken() && mkdir(path, mode) == 0) {
        return HF_OK;
    }
    int num = errno;
    struct stat st;
    if (num == EEXIST && stat(path, &st) == 0) {
        if (S_ISDIR(st.st_mode)) {
            return HF_OK;
        }
        return hf_fail(err, HF_EEXISTS, "'%s' is there and is not a folder", path);
    }
    return hf_fail_errno(err, num, "create folder '%s'", path);
}

enum hf_rc hf_fs_mkdirs(const char *path, mode_t mode, struct hf_err *err)
{
    struct stat st;
    if (stat(path, &st) == 0 && S_ISDIR(st.st_mode)) {
        return HF_OK;
    }
    HF_CLEANUP(hf_freep) char *copy = hf_strdup(path);
    for (char *p = copy + 1; *p != '\0'; p++) {
        if (*p != '/' || p[-1] == '/') {
            continue;
        }
        *p = '\0';
        if (stat(copy, &st) != 0 || !S_ISDIR(st.st_mode)) {
            HF_TRY(make_one(copy, mode, err));
        }
        *p = '/';
    }
    return make_one(copy, mode, err);
}

enum hf_rc hf_fs_append(const char *path, struct hf_span data, struct hf_err *err)
{
    HF_CLEANUP(hf_closep)
    int fd = broken() ? -1 : open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0) {
        return hf_fail_errno(err, errno, "open '%s'", path);
    }
    return hf_fs_write_all(fd, data, path, err);
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
    (void)st;
    (void)type;
    (void)ftw;
    if (broken() || (remove(path) != 0 && errno != ENOENT)) {
        return errno;
    }
    return 0;
}

enum hf_rc hf_fs_remove_tree(const char *path, struct hf_err *err)
{
    struct stat st;
    if (lstat(path, &st) != 0 && errno == ENOENT) {
        return HF_OK;
    }
    int num = nftw(path, remove_one, 16, FTW_DEPTH | FTW_PHYS);
    if (num != 0) {
        return hf_fail_errno(err, num > 0 ? num : errno, "remove '%s'", path);
    }
    return HF_OK;
}

enum hf_rc hf_fs_lock(const char *path, int *ret_fd, struct hf_err *err)
{
    HF_CLEANUP(hf_closep)
    int fd = broken() ? -1 : open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0) {
        return hf_fail_errno(err, errno, "open '%s'", path);
    }
    if (broken() || flock(fd, LOCK_EX | LOCK_NB) != 0) {
        return errno == EWOULDBLOCK
                   ? hf_fail(err, HF_EAGAIN, "'%s' is locked by another process", path)
                   : hf_fail_errno(err, errno, "lock '%s'", path);
    }
    *ret_fd = fd;
    fd = -1;
    return HF_OK;
}

bool hf_fs_exists(const char *path)
{
    struct stat st;
    return lstat(path, &st) == 0;
}
