/* SPDX-License-Identifier: Apache-2.0
 *
 * A folder as a store: a key is a path below it. A put writes a temporary file in the key's own
 * folder, flushes it, and gives it its name by link(2), which never replaces (create-only), or by
 * rename(2); then the folder is flushed. All paths hang on one descriptor of the folder, so that
 * an unmounted share is an error and not a silent write to the disk under it. Any worker thread.
 */
#include "base/prelude.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "base/fault.h"
#include "base/fsx.h"
#include "base/hash.h"
#include "base/mem.h"
#include "cloud/store_backend.h"

#define TMP_OLD_MS    (INT64_C(24) * 3600 * 1000) /* nobody writes one object for a day */
#define PUT_TRIES     8
#define DEPTH_MAX     64
#define READ_BYTES    (64u << 10)
#define WRITE_BYTES   (1u << 20)
#define MAGIC_FUSE    0x65735546u
#define NAME_MAX_ROOM 256

struct file_store {
    struct hf_store store;
    int dir; /* the folder of the URI */
};

/* True (with errno = EIO) when a test wants the call about to be made to fail. */
static bool broken(void)
{
    if (hf_fault("store")) {
        errno = EIO;
        return true;
    }
    return false;
}

static int dir_of(const struct hf_store *s)
{
    return ((const struct file_store *)s)->dir;
}

bool hf_store_fs_outlives(uint64_t magic, const char *mount_type)
{
    /* nfs, smb (three numbers), lustre, ceph, gpfs, afs, beegfs, ocfs2, gfs2. Not 9p: sandboxes
     * serve a container's own disk by it. */
    static const uint64_t shared[] = {0x6969,     0x517b,     0xff534d42, 0xfe534d42,
                                      0x0bd00bd0, 0x00c36400, 0x47504653, 0x5346414f,
                                      0x19830326, 0x7461636f, 0x01161970};
    for (size_t i = 0; i < HF_COUNT(shared); i++) {
        if (magic == shared[i]) {
            return true;
        }
    }
    return magic == MAGIC_FUSE && strcmp(mount_type, "virtiofs") == 0;
}

/* The type of the mount with this device number, from lines such as
 * "36 35 0:32 / /mnt rw,noatime shared:1 - virtiofs tag rw"; "" when it is not found. */
static void mount_type_of(dev_t dev, char out[NAME_MAX_ROOM])
{
    out[0] = '\0';
    FILE *f = fopen("/proc/self/mountinfo", "re");
    if (f == NULL) {
        return;
    }
    char want[32];
    snprintf(want, sizeof(want), "%u:%u", major(dev), minor(dev));
    char *line = NULL;
    size_t room = 0;
    while (getline(&line, &room, f) > 0) {
        char number[32] = "";
        const char *dash = strstr(line, " - ");
        if (dash != NULL && sscanf(line, "%*s %*s %31s", number) == 1 &&
            strcmp(number, want) == 0 && sscanf(dash, " - %255s", out) == 1) {
            break;
        }
    }
    hf_free(line);
    fclose(f);
}

/* The root filesystem never outlives the machine in the sense meant here, whatever its type is:
 * the sandbox or the diskless node that it belongs to ends with the machine. */
static bool outlives(int dir)
{
    struct statfs fs;
    struct stat st, root;
    if (fstatfs(dir, &fs) != 0 || fstat(dir, &st) != 0 || stat("/", &root) != 0 ||
        st.st_dev == root.st_dev) {
        return false;
    }
    char type[NAME_MAX_ROOM];
    mount_type_of(st.st_dev, type);
    return hf_store_fs_outlives((uint64_t)(unsigned int)fs.f_type, type);
}

/* Opens the folder that holds the key, for a flush. */
static int open_folder(int dir, const char *key)
{
    const char *slash = strrchr(key, '/');
    HF_CLEANUP(hf_freep)
    char *path = slash == NULL ? hf_strdup(".") : hf_strndup(key, (size_t)(slash - key));
    return broken() ? -1 : openat(dir, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
}

static enum hf_rc flush_folder(int dir, const char *key, struct hf_err *err)
{
    HF_CLEANUP(hf_closep) int fd = open_folder(dir, key);
    if (fd < 0 || broken() || fsync(fd) != 0) {
        return hf_fail_errno(err, errno, "flush the folder of '%s'", key);
    }
    return HF_OK;
}

/* Makes every missing folder above the key. A folder whose own entry could not be flushed is taken
 * away again: the next writer would find it there and flush only below it. */
static enum hf_rc make_folders(int dir, const char *key, bool sync, struct hf_err *err)
{
    HF_CLEANUP(hf_freep) char *path = hf_strdup(key);
    for (char *slash = strchr(path, '/'); slash != NULL; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        int made = broken() ? -1 : mkdirat(dir, path, 0700);
        if (made != 0 && errno != EEXIST) {
            return hf_fail_errno(err, errno, "create folder '%s'", path);
        }
        if (made == 0 && sync) {
            enum hf_rc rc = flush_folder(dir, path, err);
            if (rc != HF_OK) {
                unlinkat(dir, path, AT_REMOVEDIR);
                return rc;
            }
        }
        *slash = '/';
    }
    return HF_OK;
}

/* One put under way. */
struct writing {
    int dir;
    int fd;
    const char *key;
    char *tmp;
    bool sync;
};

/* "a/b/.tmp-<pid>-<random>" for the key "a/b/c". */
static char *tmp_name(const char *key)
{
    const char *slash = strrchr(key, '/');
    int folder = slash == NULL ? 0 : (int)(slash - key) + 1;
    char rand[17];
    hf_random_hex(8, rand);
    return hf_asprintf("%.*s" HF_STORE_TMP "%ld-%s", folder, key, (long)getpid(), rand);
}

/* Another process that prunes empty folders may take ours away between mkdir and open: again. */
static enum hf_rc open_tmp(struct writing *w, struct hf_err *err)
{
    int num = ENOENT;
    for (int i = 0; i < PUT_TRIES && num == ENOENT; i++) {
        w->fd =
            broken() ? -1 : openat(w->dir, w->tmp, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
        if (w->fd >= 0) {
            return HF_OK;
        }
        num = errno;
        if (num == ENOENT) {
            HF_TRY(make_folders(w->dir, w->key, w->sync, err));
        }
    }
    return hf_fail_errno(err, num, "create '%s'", w->tmp);
}

static enum hf_rc fill(int fd, const struct hf_call *c, struct hf_span data, bool sync,
                       struct hf_err *err)
{
    const char *p = data.ptr;
    size_t left = data.len;
    while (left > 0) {
        HF_TRY(hf_call_check(c, err));
        ssize_t n = broken() ? -1 : write(fd, p, left < WRITE_BYTES ? left : WRITE_BYTES);
        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n < 0) {
            return hf_fail_errno(err, errno, "write");
        }
        p += n;
        left -= (size_t)n;
    }
    if (sync && (broken() || fsync(fd) != 0)) {
        return hf_fail_errno(err, errno, "flush");
    }
    return HF_OK;
}

/* Gives the temporary file the key's name unless something has it. HF_ENOTSUP: this filesystem
 * cannot. */
static enum hf_rc name_new(const struct writing *w, struct hf_err *err)
{
    if (!broken() && linkat(w->dir, w->tmp, w->dir, w->key, 0) == 0) {
        unlinkat(w->dir, w->tmp, 0); /* if that fails, the second name goes when it is old */
        return HF_OK;
    }
    int num = errno;
    struct stat st;
    if (num == EEXIST && fstat(w->fd, &st) == 0 && st.st_nlink > 1) {
        unlinkat(w->dir, w->tmp, 0); /* NFS repeats a request whose reply was lost: it is ours */
        return HF_OK;
    }
    if (num == EPERM || num == EOPNOTSUPP || num == ENOSYS || num == EMLINK) {
        if (!broken() && renameat2(w->dir, w->tmp, w->dir, w->key, RENAME_NOREPLACE) == 0) {
            return HF_OK;
        }
        num = errno == EINVAL ? EOPNOTSUPP : errno;
    }
    /* Our temporary file gone under us is no word about the key. */
    return hf_fail_errno(err, num == ENOENT ? EAGAIN : num, "name '%s'", w->key);
}

static enum hf_rc name_over(const struct writing *w, struct hf_err *err)
{
    if (broken() || renameat(w->dir, w->tmp, w->dir, w->key) != 0) {
        return hf_fail_errno(err, errno == ENOENT ? EAGAIN : errno, "name '%s'", w->key);
    }
    return HF_OK;
}

/* Writes, names, flushes. The temporary file is gone in the end, whatever happens. */
static enum hf_rc write_and_name(struct writing *w, const struct hf_call *c, struct hf_span data,
                                 bool create_only, struct hf_err *err)
{
    enum hf_rc rc = fill(w->fd, c, data, w->sync, err);
    if (rc == HF_OK) {
        rc = create_only ? name_new(w, err) : name_over(w, err);
    }
    if (rc != HF_OK) {
        unlinkat(w->dir, w->tmp, 0);
    }
    /* A network filesystem may tell only here that the bytes did not arrive. */
    int fd = w->fd;
    w->fd = -1;
    if (close(fd) != 0 && rc == HF_OK && !w->sync) {
        rc = hf_fail_errno(err, errno, "close");
    }
    /* "Exists" must be as lasting as "stored": the flush of whoever put it may have failed. */
    if (w->sync && (rc == HF_OK || rc == HF_EEXISTS)) {
        enum hf_rc flushed = flush_folder(w->dir, w->key, err);
        rc = flushed != HF_OK ? flushed : rc;
    }
    return rc;
}

static enum hf_rc file_put(struct hf_store *s, const struct hf_call *c, const char *key,
                           struct hf_span data, enum hf_put_flags flags, struct hf_err *err)
{
    struct writing w = {.dir = dir_of(s), .fd = -1, .key = key, .tmp = tmp_name(key)};
    w.sync = (flags & HF_PUT_NO_SYNC) == 0;
    enum hf_rc rc = open_tmp(&w, err);
    if (rc == HF_OK) {
        rc = write_and_name(&w, c, data, (flags & HF_PUT_CREATE_ONLY) != 0, err);
    }
    hf_free(w.tmp);
    return rc == HF_OK ? rc : hf_wrap(err, rc, "put '%s'", key);
}

/* Adds the open file to *ret; the caller undoes a part. */
static enum hf_rc read_all(int fd, const struct hf_call *c, struct hf_buf *ret, struct hf_err *err)
{
    struct stat st;
    if (broken() || fstat(fd, &st) != 0) {
        return hf_fail_errno(err, errno, "stat");
    }
    if (!S_ISREG(st.st_mode)) {
        return hf_fail(err, HF_ENOTFOUND, "not a file");
    }
    if ((uint64_t)st.st_size > ret->max - ret->len) {
        return hf_fail(err, HF_EFULL, "%lld bytes, more than %zu", (long long)st.st_size,
                       ret->max - ret->len);
    }
    char chunk[READ_BYTES];
    for (;;) {
        HF_TRY(hf_call_check(c, err));
        ssize_t n = broken() ? -1 : read(fd, chunk, sizeof(chunk));
        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n < 0) {
            return hf_fail_errno(err, errno, "read");
        }
        if (n == 0) {
            return HF_OK;
        }
        HF_TRY(hf_buf_add(ret, chunk, (size_t)n, err));
    }
}

static enum hf_rc file_get(struct hf_store *s, const struct hf_call *c, const char *key,
                           struct hf_buf *ret, struct hf_err *err)
{
    /* Non-blocking: a fifo put there by somebody must not hold a worker. */
    HF_CLEANUP(hf_closep)
    int fd = broken() ? -1 : openat(dir_of(s), key, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) {
        /* A file where the key has a folder: the key is not there. */
        int num = errno == ENOTDIR ? ENOENT : errno;
        return hf_fail_errno(err, num, "get '%s'", key);
    }
    size_t before = ret->len;
    enum hf_rc rc = read_all(fd, c, ret, err);
    if (rc != HF_OK) {
        ret->len = before;
        if (ret->data != NULL) {
            ret->data[before] = '\0';
        }
        return hf_wrap(err, rc, "get '%s'", key);
    }
    return HF_OK;
}

struct listing {
    const struct hf_call *call;
    const char *prefix;
    hf_list_fn *each;
    void *user;
    bool stopped;
};

static void remove_if_old(int dir, const char *name)
{
    struct stat st;
    if (fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(st.st_mode) &&
        hf_wall_ms() - (int64_t)st.st_mtim.tv_sec * 1000 > TMP_OLD_MS) {
        unlinkat(dir, name, 0);
    }
}

/* Could a key below folder `path` (with its slash) begin with the prefix? */
static bool leads_to(const char *path, const char *prefix)
{
    size_t a = strlen(path), b = strlen(prefix);
    return strncmp(path, prefix, a < b ? a : b) == 0;
}

static enum hf_rc list_folder(struct listing *l, int fd_taken, const char *folder, unsigned depth,
                              struct hf_err *err);

static enum hf_rc list_entry(struct listing *l, int dir, const char *folder, const char *name,
                             unsigned depth, struct hf_err *err)
{
    if (strncmp(name, HF_STORE_TMP, strlen(HF_STORE_TMP)) == 0) {
        remove_if_old(dir, name);
        return HF_OK;
    }
    HF_CLEANUP(hf_freep) char *key = hf_asprintf("%s%s", folder, name);
    struct stat st;
    if (!leads_to(key, l->prefix) || strlen(key) > HF_KEY_BYTES_MAX) {
        return HF_OK;
    }
    if (broken() || fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) != 0) {
        return errno == ENOENT ? HF_OK : hf_fail_errno(err, errno, "stat '%s'", key);
    }
    if (S_ISREG(st.st_mode) && strlen(key) >= strlen(l->prefix)) {
        l->stopped = !l->each(l->user, key, (uint64_t)st.st_size);
        return HF_OK;
    }
    if (!S_ISDIR(st.st_mode) || depth >= DEPTH_MAX) {
        return HF_OK;
    }
    int fd = broken() ? -1 : openat(dir, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0) {
        return errno == ENOENT ? HF_OK : hf_fail_errno(err, errno, "open folder '%s'", key);
    }
    HF_CLEANUP(hf_freep) char *below = hf_asprintf("%s/", key);
    return list_folder(l, fd, below, depth + 1, err);
}

static enum hf_rc list_folder(struct listing *l, int fd_taken, const char *folder, unsigned depth,
                              struct hf_err *err)
{
    DIR *d = fdopendir(fd_taken);
    if (d == NULL) {
        enum hf_rc failed = hf_fail_errno(err, errno, "list '%s'", folder);
        close(fd_taken);
        return failed;
    }
    enum hf_rc rc = HF_OK;
    while (rc == HF_OK && !l->stopped) {
        rc = hf_call_check(l->call, err);
        errno = 0;
        const struct dirent *e = rc != HF_OK || broken() ? NULL : readdir(d);
        if (e == NULL) {
            if (rc == HF_OK && errno != 0) {
                rc = hf_fail_errno(err, errno, "list '%s'", folder);
            }
            break;
        }
        if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0) {
            rc = list_entry(l, dirfd(d), folder, e->d_name, depth, err);
        }
    }
    closedir(d);
    return rc;
}

static enum hf_rc file_list(struct hf_store *s, const struct hf_call *c, const char *prefix,
                            hf_list_fn *each, void *user, struct hf_err *err)
{
    const char *slash = strrchr(prefix, '/');
    HF_CLEANUP(hf_freep)
    char *folder = hf_strndup(prefix, slash == NULL ? 0 : (size_t)(slash - prefix) + 1);
    int fd = broken() ? -1
                      : openat(dir_of(s), slash == NULL ? "." : folder,
                               O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) {
        return errno == ENOENT || errno == ENOTDIR ? HF_OK
                                                   : hf_fail_errno(err, errno, "list '%s'", folder);
    }
    struct listing l = {.call = c, .prefix = prefix, .each = each, .user = user};
    return list_folder(&l, fd, folder, 0, err);
}

static enum hf_rc file_remove(struct hf_store *s, const struct hf_call *c, const char *key,
                              struct hf_err *err)
{
    (void)c;
    int dir = dir_of(s);
    if (broken() || unlinkat(dir, key, 0) != 0) {
        return errno == ENOENT || errno == ENOTDIR ? HF_OK
                                                   : hf_fail_errno(err, errno, "remove '%s'", key);
    }
    HF_CLEANUP(hf_freep) char *path = hf_strdup(key);
    for (char *slash = strrchr(path, '/'); slash != NULL; slash = strrchr(path, '/')) {
        *slash = '\0';
        if (unlinkat(dir, path, AT_REMOVEDIR) != 0) {
            break; /* others live there */
        }
    }
    return HF_OK;
}

static void file_close(struct hf_store *s)
{
    struct file_store *f = (struct file_store *)s;
    hf_closep(&f->dir);
    hf_free(f);
}

static const struct hf_store_ops file_ops = {.size = sizeof(struct hf_store_ops),
                                             .scheme = "file",
                                             .close = file_close,
                                             .get = file_get,
                                             .put = file_put,
                                             .list = file_list,
                                             .remove = file_remove};

static enum hf_rc file_open(const char *rest, const struct hf_store_cfg *cfg, struct hf_store **ret,
                            struct hf_err *err)
{
    const char *path = rest + 2;
    if (strncmp(rest, "///", 3) != 0) {
        return hf_fail(err, HF_EINVAL, "no absolute path");
    }
    HF_TRY(hf_fs_mkdirs(path, 0700, err));
    int dir = broken() ? -1 : open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (dir < 0) {
        return hf_fail_errno(err, errno, "open folder '%s'", path);
    }
    struct file_store *f = HF_NEW(struct file_store);
    f->store.ops = &file_ops;
    f->store.caps = HF_STORE_CREATE_ONLY;
    f->dir = dir;
    if (cfg->survives || outlives(dir)) {
        f->store.caps |= HF_STORE_OUTLIVES;
    }
    *ret = &f->store;
    return HF_OK;
}

const struct hf_store_backend hf_store_backend_file = {
    .scheme = "file", .form = "file:///folder", .open = file_open};
