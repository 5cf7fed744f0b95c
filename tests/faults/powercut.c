/* SPDX-License-Identifier: Apache-2.0
 *
 * The crash layer: wrappers that record what the store does to files below one folder, and the
 * making of what a power cut could have left. Test code, any thread may call the wrappers.
 */
#include "base/prelude.h"

#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/mem.h"
#include "tests/faults/powercut.h"

enum kind {
    OP_NAME,
    OP_UNNAME,
    OP_MOVE,
    OP_FOLDER,
    OP_UNFOLDER,
    OP_WRITE,
    OP_SYNC,
    OP_SYNC_FOLDER
};

struct op {
    enum kind kind;
    size_t node;     /* the file; of NAME, MOVE, WRITE, SYNC */
    char *path, *to; /* below the root; `to`: MOVE's new name */
    char *data;      /* WRITE */
    size_t len;
};

#define FDS_MAX 1024

static struct {
    pthread_mutex_t lock;
    bool on;
    char root[PATH_MAX];
    struct op *ops;
    size_t n_ops, room, n_nodes;
    size_t node_of_fd[FDS_MAX]; /* + 1; 0: none */
    char *dir_of_fd[FDS_MAX];   /* a folder below the root that is open for flushing */
} rec = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void check(bool ok, const char *what)
{
    if (!ok) {
        perror(what);
        abort();
    }
}

/* The path below the root ("" for itself), or NULL; owned by the caller. */
static char *below(int dirfd, const char *path)
{
    char link[64];
    char dir[PATH_MAX];
    snprintf(link, sizeof(link), "/proc/self/fd/%d", dirfd);
    ssize_t n = path[0] == '/' ? 0 : readlink(link, dir, sizeof(dir) - 1);
    if (n < 0) {
        return NULL;
    }
    dir[n] = '\0';
    char *all = n == 0 ? hf_strdup(path) : hf_asprintf("%s/%s", dir, path);
    size_t len = strlen(rec.root);
    bool mine = strncmp(all, rec.root, len) == 0 && (all[len] == '/' || all[len] == '\0');
    char *rest = mine ? hf_strdup(all + len + (all[len] == '/' ? 1 : 0)) : NULL;
    free(all);
    if (rest != NULL && strcmp(rest, ".") == 0) {
        rest[0] = '\0';
    }
    return rest;
}

static struct op *add(enum kind kind)
{
    if (rec.n_ops == rec.room) {
        rec.room = rec.room == 0 ? 256 : rec.room * 2;
        rec.ops = hf_realloc(rec.ops, rec.room * sizeof(rec.ops[0]));
    }
    rec.ops[rec.n_ops] = (struct op){.kind = kind};
    return &rec.ops[rec.n_ops++];
}

/* The file that has this name after all that is recorded; SIZE_MAX: none. */
static size_t node_named(const char *path)
{
    for (size_t i = rec.n_ops; i > 0; i--) {
        const struct op *o = &rec.ops[i - 1];
        const char *name = o->kind == OP_MOVE ? o->to : o->path;
        if ((o->kind == OP_NAME || o->kind == OP_MOVE) && strcmp(name, path) == 0) {
            return o->node;
        }
    }
    return SIZE_MAX;
}

/* ---- wrappers ---- */

int __real_openat(int dirfd, const char *path, int flags, ...);
int __wrap_openat(int dirfd, const char *path, int flags, ...);
int __real_close(int fd);
int __wrap_close(int fd);
ssize_t __real_write(int fd, const void *data, size_t len);
ssize_t __wrap_write(int fd, const void *data, size_t len);
int __real_fsync(int fd);
int __wrap_fsync(int fd);
int __real_linkat(int fd, const char *from, int tofd, const char *to, int flags);
int __wrap_linkat(int fd, const char *from, int tofd, const char *to, int flags);
int __real_renameat(int fd, const char *from, int tofd, const char *to);
int __wrap_renameat(int fd, const char *from, int tofd, const char *to);
int __real_unlinkat(int fd, const char *path, int flags);
int __wrap_unlinkat(int fd, const char *path, int flags);
int __real_mkdirat(int fd, const char *path, mode_t mode);
int __wrap_mkdirat(int fd, const char *path, mode_t mode);

int __wrap_openat(int dirfd, const char *path, int flags, ...)
{
    va_list args;
    va_start(args, flags);
    mode_t mode = (flags & O_CREAT) != 0 ? va_arg(args, mode_t) : 0;
    va_end(args);
    int fd = __real_openat(dirfd, path, flags, mode);
    pthread_mutex_lock(&rec.lock);
    char *name = rec.on && fd >= 0 && fd < FDS_MAX ? below(dirfd, path) : NULL;
    if (name != NULL && (flags & O_CREAT) != 0) {
        struct op *o = add(OP_NAME);
        o->node = rec.n_nodes++;
        o->path = hf_strdup(name);
        rec.node_of_fd[fd] = o->node + 1;
    } else if (name != NULL && (flags & O_DIRECTORY) != 0) {
        free(rec.dir_of_fd[fd]);
        rec.dir_of_fd[fd] = hf_strdup(name);
    }
    free(name);
    pthread_mutex_unlock(&rec.lock);
    return fd;
}

int __wrap_close(int fd)
{
    pthread_mutex_lock(&rec.lock);
    if (fd >= 0 && fd < FDS_MAX) {
        rec.node_of_fd[fd] = 0;
        free(rec.dir_of_fd[fd]);
        rec.dir_of_fd[fd] = NULL;
    }
    pthread_mutex_unlock(&rec.lock);
    return __real_close(fd);
}

ssize_t __wrap_write(int fd, const void *data, size_t len)
{
    ssize_t n = __real_write(fd, data, len);
    pthread_mutex_lock(&rec.lock);
    if (rec.on && n > 0 && fd < FDS_MAX && rec.node_of_fd[fd] != 0) {
        struct op *o = add(OP_WRITE);
        o->node = rec.node_of_fd[fd] - 1;
        o->len = (size_t)n;
        o->data = hf_calloc(o->len, 1);
        memcpy(o->data, data, o->len);
    }
    pthread_mutex_unlock(&rec.lock);
    return n;
}

int __wrap_fsync(int fd)
{
    int rc = __real_fsync(fd);
    pthread_mutex_lock(&rec.lock);
    if (rec.on && rc == 0 && fd < FDS_MAX && rec.node_of_fd[fd] != 0) {
        add(OP_SYNC)->node = rec.node_of_fd[fd] - 1;
    } else if (rec.on && rc == 0 && fd < FDS_MAX && rec.dir_of_fd[fd] != NULL) {
        struct op *o = add(OP_SYNC_FOLDER);
        o->path = hf_strdup(rec.dir_of_fd[fd]);
    }
    pthread_mutex_unlock(&rec.lock);
    return rc;
}

/* A second name, or another one. */
static void named(enum kind kind, int fd, const char *from, int tofd, const char *to)
{
    pthread_mutex_lock(&rec.lock);
    char *old = rec.on ? below(fd, from) : NULL;
    char *new = rec.on ? below(tofd, to) : NULL;
    if (old != NULL && new != NULL) {
        size_t node = node_named(old);
        check(node != SIZE_MAX, old);
        struct op *o = add(kind);
        o->node = node;
        o->path = kind == OP_MOVE ? hf_strdup(old) : hf_strdup(new);
        o->to = kind == OP_MOVE ? hf_strdup(new) : NULL;
    }
    free(old);
    free(new);
    pthread_mutex_unlock(&rec.lock);
}

int __wrap_linkat(int fd, const char *from, int tofd, const char *to, int flags)
{
    int rc = __real_linkat(fd, from, tofd, to, flags);
    if (rc == 0) {
        named(OP_NAME, fd, from, tofd, to);
    }
    return rc;
}

int __wrap_renameat(int fd, const char *from, int tofd, const char *to)
{
    int rc = __real_renameat(fd, from, tofd, to);
    if (rc == 0) {
        named(OP_MOVE, fd, from, tofd, to);
    }
    return rc;
}

static void changed(enum kind kind, int fd, const char *path)
{
    pthread_mutex_lock(&rec.lock);
    char *name = rec.on ? below(fd, path) : NULL;
    if (name != NULL) {
        add(kind)->path = name;
    }
    pthread_mutex_unlock(&rec.lock);
}

int __wrap_unlinkat(int fd, const char *path, int flags)
{
    int rc = __real_unlinkat(fd, path, flags);
    if (rc == 0) {
        changed((flags & AT_REMOVEDIR) != 0 ? OP_UNFOLDER : OP_UNNAME, fd, path);
    }
    return rc;
}

int __wrap_mkdirat(int fd, const char *path, mode_t mode)
{
    int rc = __real_mkdirat(fd, path, mode);
    if (rc == 0) {
        changed(OP_FOLDER, fd, path);
    }
    return rc;
}

/* ---- recording ---- */

void cut_record(const char *root)
{
    pthread_mutex_lock(&rec.lock);
    check(realpath(root, rec.root) != NULL, root);
    rec.on = true;
    pthread_mutex_unlock(&rec.lock);
}

void cut_stop(void)
{
    pthread_mutex_lock(&rec.lock);
    rec.on = false;
    pthread_mutex_unlock(&rec.lock);
}

size_t cut_ops(void)
{
    pthread_mutex_lock(&rec.lock);
    size_t n = rec.n_ops;
    pthread_mutex_unlock(&rec.lock);
    return n;
}

void cut_forget(void)
{
    for (size_t i = 0; i < rec.n_ops; i++) {
        free(rec.ops[i].path);
        free(rec.ops[i].to);
        free(rec.ops[i].data);
    }
    free(rec.ops);
    rec.ops = NULL;
    rec.n_ops = rec.room = rec.n_nodes = 0;
}

/* ---- making ---- */

static uint64_t next(uint64_t *x)
{
    *x = *x * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return *x >> 33;
}

static bool in_folder(const char *path, const char *folder)
{
    const char *slash = strrchr(path, '/');
    size_t len = slash == NULL ? 0 : (size_t)(slash - path);
    return len == strlen(folder) && strncmp(path, folder, len) == 0;
}

static const char *name_of(const struct op *o)
{
    return o->kind == OP_MOVE ? o->to : o->path;
}

static bool is_name_op(const struct op *o)
{
    return o->kind <= OP_UNFOLDER;
}

static bool flushed(size_t op, size_t end)
{
    for (size_t i = op + 1; i < end; i++) {
        if (rec.ops[i].kind == OP_SYNC_FOLDER &&
            in_folder(name_of(&rec.ops[op]), rec.ops[i].path)) {
            return true;
        }
    }
    return false;
}

/* Whether the loose op survives. PREFIX: a folder loses its last few, by a number of its own. */
static bool survives(size_t op, size_t end, enum cut_how how, uint64_t *x)
{
    if (how == CUT_KEEP || how == CUT_DROP) {
        return how == CUT_KEEP;
    }
    if (how == CUT_RANDOM) {
        return next(x) % 2 == 0;
    }
    const char *name = name_of(&rec.ops[op]);
    const char *slash = strrchr(name, '/');
    size_t after = 0;
    uint64_t own = *x + (slash == NULL ? 0 : (uint64_t)(slash - name) * 31 + (uint64_t)slash[-1]);
    for (size_t i = op + 1; i < end; i++) {
        HF_CLEANUP(hf_freep)
        char *dir = hf_strndup(name, slash == NULL ? 0 : (size_t)(slash - name));
        after += is_name_op(&rec.ops[i]) && in_folder(name_of(&rec.ops[i]), dir) ? 1 : 0;
    }
    return after >= next(&own) % 4;
}

static void write_node(const char *path, size_t node, size_t end, enum cut_how how, uint64_t *x)
{
    size_t safe = 0;
    size_t len = 0;
    for (size_t i = 0; i < end; i++) {
        const struct op *o = &rec.ops[i];
        len += o->kind == OP_WRITE && o->node == node ? o->len : 0;
        safe = o->kind == OP_SYNC && o->node == node ? len : safe;
    }
    char *data = hf_calloc(len + 1, 1);
    size_t at = 0;
    for (size_t i = 0; i < end; i++) {
        const struct op *o = &rec.ops[i];
        if (o->kind == OP_WRITE && o->node == node) {
            memcpy(data + at, o->data, o->len);
            at += o->len;
        }
    }
    if (how == CUT_DROP) {
        len = safe;
    } else if (how == CUT_PREFIX && len > safe) {
        len = safe + next(x) % (len - safe + 1);
    } else if (how == CUT_RANDOM && len > safe) {
        uint64_t fate = next(x) % 3;
        len = fate == 0 ? safe : len;
        for (size_t i = safe; fate == 1 && i < len; i++) {
            data[i] = (char)next(x);
        }
    }
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    check(fd >= 0 && __real_write(fd, data, len) == (ssize_t)len && __real_close(fd) == 0, path);
    free(data);
}

void cut_make(const char *folder, size_t op, enum cut_how how, uint64_t seed)
{
    uint64_t x = seed;
    check(mkdir(folder, 0700) == 0, folder);
    for (size_t i = 0; i < op; i++) {
        const struct op *o = &rec.ops[i];
        if (!is_name_op(o) || !(flushed(i, op) || survives(i, op, how, &x))) {
            continue;
        }
        HF_CLEANUP(hf_freep) char *path = hf_asprintf("%s/%s", folder, name_of(o));
        HF_CLEANUP(hf_freep) char *old = hf_asprintf("%s/%s", folder, o->path);
        HF_CLEANUP(hf_freep) char *parent = hf_strndup(path, (size_t)(strrchr(path, '/') - path));
        struct stat st;
        if (stat(parent, &st) != 0) {
            continue; /* the folder itself did not survive */
        }
        if (o->kind == OP_FOLDER) {
            mkdir(path, 0700);
        } else if (o->kind == OP_UNFOLDER) {
            rmdir(path);
        } else if (o->kind == OP_UNNAME) {
            unlink(path);
        } else {
            write_node(path, o->node, op, how, &x);
        }
        if (o->kind == OP_MOVE) {
            unlink(old);
        }
    }
}
