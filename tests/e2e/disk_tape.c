/* SPDX-License-Identifier: Apache-2.0
 *
 * Preloaded by a test: records every change that a program and its children make below a folder
 * (DISK_TAPE_BELOW), in order, on a tape (DISK_TAPE), so that the test can lay the folder out as a
 * kill at any moment would have left it. Any thread; one change at a time over all processes.
 * Writes through a mapping, or by stdio's own buffers, are not seen: the test compares the end.
 */
#include "base/prelude.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

/* One record: this, then the name, the other name, the data. Read by tape.py. */
struct record {
    uint32_t op; /* a letter */
    uint32_t name_len, other_len, mode;
    uint64_t off, len;
};

struct place {
    char path[PATH_MAX];
    bool below;
};

/* The kernel itself: syscall() is one of the ways in that are watched. */
static long kernel(long number, ...)
{
    static long (*next)(long, ...) = NULL;
    if (next == NULL) {
        *(void **)&next = dlsym(RTLD_NEXT, "syscall");
    }
    long a[6];
    va_list args;
    va_start(args, number);
    for (size_t i = 0; i < HF_COUNT(a); i++) {
        a[i] = va_arg(args, long);
    }
    va_end(args);
    return next(number, a[0], a[1], a[2], a[3], a[4], a[5]);
}

static void check_below(struct place *p)
{
    const char *below = getenv("DISK_TAPE_BELOW");
    size_t n = below != NULL ? strlen(below) : 0;
    p->below = n > 0 && strncmp(p->path, below, n) == 0 && p->path[n] == '/';
}

static void of_fd(int fd, struct place *ret)
{
    int saved = errno;
    char link[64];
    snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
    ssize_t n = readlink(link, ret->path, sizeof(ret->path) - 1);
    ret->path[n > 0 ? n : 0] = '\0';
    check_below(ret);
    if (ret->below && strstr(ret->path, " (deleted)") != NULL) {
        ret->below = false;
    }
    errno = saved;
}

static void of_name(int dir, const char *name, struct place *ret)
{
    int saved = errno;
    char base[PATH_MAX] = "";
    if (name[0] != '/' && dir == AT_FDCWD) {
        if (getcwd(base, sizeof(base)) == NULL) {
            base[0] = '\0';
        }
    } else if (name[0] != '/') {
        struct place at;
        of_fd(dir, &at);
        memcpy(base, at.path, sizeof(base));
    }
    int n = name[0] == '/' ? snprintf(ret->path, sizeof(ret->path), "%s", name)
                           : snprintf(ret->path, sizeof(ret->path), "%s/%s", base, name);
    if (n < 0 || (size_t)n >= sizeof(ret->path)) {
        abort();
    }
    check_below(ret);
    errno = saved;
}

/* A description of its own each time: it excludes threads and forked children alike. */
static int lock(void)
{
    int saved = errno;
    int fd = (int)kernel(SYS_openat, AT_FDCWD, getenv("DISK_TAPE"),
                         O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0 || flock(fd, LOCK_EX) != 0) {
        abort();
    }
    errno = saved;
    return fd;
}

static void unlock(int tape)
{
    int saved = errno;
    kernel(SYS_close, tape);
    errno = saved;
}

static void put(int tape, struct record r, const struct place *p, const char *other,
                const void *data)
{
    int saved = errno;
    r.name_len = (uint32_t)strlen(p->path);
    r.other_len = other != NULL ? (uint32_t)strlen(other) : 0;
    size_t n = data != NULL ? r.len : 0;
    struct iovec parts[4] = {{&r, sizeof(r)},
                             {(void *)(uintptr_t)p->path, r.name_len},
                             {(void *)(uintptr_t)other, r.other_len},
                             {(void *)(uintptr_t)data, n}};
    size_t all = sizeof(r) + r.name_len + r.other_len + n;
    if (kernel(SYS_writev, tape, parts, 4) != (long)all) {
        abort();
    }
    errno = saved;
}

/* By descriptor, the name last put on the tape. A few libraries rename by a system call of their
 * own and close afterwards: the close finds another name. */
#define MAX_FDS 1024
static char *names[MAX_FDS];

static void remember(int fd, const char *name)
{
    if (fd >= 0 && fd < MAX_FDS) {
        free(names[fd]);
        names[fd] = name != NULL ? strdup(name) : NULL;
    }
}

static void remember_rename(const char *name, const char *to)
{
    for (int fd = 0; fd < MAX_FDS; fd++) {
        if (names[fd] != NULL && strcmp(names[fd], name) == 0) {
            remember(fd, to);
        }
    }
}

/* What was just written is read back: it need not have passed through this process's memory. */
static void put_region(int tape, const struct place *p, uint32_t op, uint64_t off, size_t len)
{
    int saved = errno;
    char *data = malloc(len);
    int fd = (int)kernel(SYS_openat, AT_FDCWD, p->path, O_RDONLY | O_CLOEXEC, 0);
    if (data == NULL || fd < 0 || kernel(SYS_pread64, fd, data, len, off) != (long)len) {
        abort();
    }
    kernel(SYS_close, fd);
    put(tape, (struct record){.op = op, .off = off, .len = len}, p, NULL, data);
    free(data);
    errno = saved;
}

/* Where a write without an offset begins. */
static uint64_t write_at(int fd)
{
    int flags = fcntl(fd, F_GETFL);
    off_t at = lseek(fd, 0, (flags & O_APPEND) != 0 ? SEEK_END : SEEK_CUR);
    return at > 0 ? (uint64_t)at : 0;
}

/* ---- data ---- */

ssize_t write(int fd, const void *data, size_t n)
{
    struct place p;
    of_fd(fd, &p);
    if (!p.below) {
        return kernel(SYS_write, fd, data, n);
    }
    int tape = lock();
    uint64_t at = write_at(fd);
    ssize_t did = kernel(SYS_write, fd, data, n);
    if (did > 0) {
        put(tape, (struct record){.op = 'w', .off = at, .len = (uint64_t)did}, &p, NULL, data);
    }
    unlock(tape);
    return did;
}

ssize_t pwrite(int fd, const void *data, size_t n, off_t at)
{
    struct place p;
    of_fd(fd, &p);
    if (!p.below) {
        return kernel(SYS_pwrite64, fd, data, n, at);
    }
    int tape = lock();
    ssize_t did = kernel(SYS_pwrite64, fd, data, n, at);
    if (did > 0) {
        put(tape, (struct record){.op = 'w', .off = (uint64_t)at, .len = (uint64_t)did}, &p, NULL,
            data);
    }
    unlock(tape);
    return did;
}

ssize_t pwrite64(int fd, const void *data, size_t n, off_t at)
{
    return pwrite(fd, data, n, at);
}

ssize_t writev(int fd, const struct iovec *parts, int count)
{
    struct place p;
    of_fd(fd, &p);
    if (!p.below) {
        return kernel(SYS_writev, fd, parts, count);
    }
    int tape = lock();
    uint64_t at = write_at(fd);
    ssize_t did = kernel(SYS_writev, fd, parts, count);
    if (did > 0) {
        put_region(tape, &p, 'w', at, (size_t)did);
    }
    unlock(tape);
    return did;
}

ssize_t pwritev(int fd, const struct iovec *parts, int count, off_t at)
{
    struct place p;
    of_fd(fd, &p);
    int tape = p.below ? lock() : -1;
    ssize_t did = kernel(SYS_pwritev, fd, parts, count, at, 0);
    if (p.below) {
        if (did > 0) {
            put_region(tape, &p, 'w', (uint64_t)at, (size_t)did);
        }
        unlock(tape);
    }
    return did;
}

ssize_t pwritev64(int fd, const struct iovec *parts, int count, off_t at)
{
    return pwritev(fd, parts, count, at);
}

ssize_t sendfile(int out, int in, off_t *off, size_t n)
{
    struct place p;
    of_fd(out, &p);
    int tape = p.below ? lock() : -1;
    uint64_t at = p.below ? write_at(out) : 0;
    ssize_t did = kernel(SYS_sendfile, out, in, off, n);
    if (p.below) {
        if (did > 0) {
            put_region(tape, &p, 'w', at, (size_t)did);
        }
        unlock(tape);
    }
    return did;
}

ssize_t sendfile64(int out, int in, off_t *off, size_t n)
{
    return sendfile(out, in, off, n);
}

ssize_t copy_file_range(int in, off_t *in_off, int out, off_t *out_off, size_t n, unsigned flags)
{
    struct place p;
    of_fd(out, &p);
    int tape = p.below ? lock() : -1;
    uint64_t at = !p.below ? 0 : out_off != NULL ? (uint64_t)*out_off : write_at(out);
    ssize_t did = kernel(SYS_copy_file_range, in, in_off, out, out_off, n, flags);
    if (p.below) {
        if (did > 0) {
            put_region(tape, &p, 'w', at, (size_t)did);
        }
        unlock(tape);
    }
    return did;
}

int ftruncate(int fd, off_t len)
{
    struct place p;
    of_fd(fd, &p);
    int tape = p.below ? lock() : -1;
    int rc = (int)kernel(SYS_ftruncate, fd, len);
    if (p.below) {
        if (rc == 0) {
            put(tape, (struct record){.op = 't', .len = (uint64_t)len}, &p, NULL, NULL);
        }
        unlock(tape);
    }
    return rc;
}

int ftruncate64(int fd, off_t len)
{
    return ftruncate(fd, len);
}

/* ---- names ---- */

static int open_at(int dir, const char *name, int flags, mode_t mode)
{
    struct place p;
    of_name(dir, name, &p);
    bool changes = p.below && (flags & (O_CREAT | O_TRUNC)) != 0 && (flags & O_TMPFILE) == 0;
    int tape = changes ? lock() : -1;
    int fd = (int)kernel(SYS_openat, dir, name, flags, mode);
    if (changes) {
        if (fd >= 0) {
            put(tape, (struct record){.op = 'o', .mode = (flags & O_TRUNC) != 0}, &p, NULL, NULL);
            remember(fd, p.path);
        }
        unlock(tape);
    }
    return fd;
}

#define TAKE_MODE(mode, flags)                    \
    mode_t mode = 0;                              \
    if (((flags) & (O_CREAT | O_TMPFILE)) != 0) { \
        va_list args;                             \
        va_start(args, flags);                    \
        mode = va_arg(args, mode_t);              \
        va_end(args);                             \
    }

int open(const char *name, int flags, ...)
{
    TAKE_MODE(mode, flags)
    return open_at(AT_FDCWD, name, flags, mode);
}

int open64(const char *name, int flags, ...)
{
    TAKE_MODE(mode, flags)
    return open_at(AT_FDCWD, name, flags, mode);
}

int openat(int dir, const char *name, int flags, ...)
{
    TAKE_MODE(mode, flags)
    return open_at(dir, name, flags, mode);
}

int openat64(int dir, const char *name, int flags, ...)
{
    TAKE_MODE(mode, flags)
    return open_at(dir, name, flags, mode);
}

static FILE *open_stream(const char *symbol, const char *name, const char *mode)
{
    FILE *(*next)(const char *, const char *) = NULL;
    *(void **)&next = dlsym(RTLD_NEXT, symbol);
    struct place p;
    of_name(AT_FDCWD, name, &p);
    bool changes = p.below && strpbrk(mode, "wa") != NULL;
    int tape = changes ? lock() : -1;
    FILE *f = next(name, mode);
    if (changes) {
        if (f != NULL) {
            put(tape, (struct record){.op = 'o', .mode = strchr(mode, 'w') != NULL}, &p, NULL,
                NULL);
        }
        unlock(tape);
    }
    return f;
}

FILE *fopen(const char *name, const char *mode)
{
    return open_stream("fopen", name, mode);
}

FILE *fopen64(const char *name, const char *mode)
{
    return open_stream("fopen64", name, mode);
}

static int renamed(int dir, const char *name, int to_dir, const char *to, unsigned flags)
{
    struct place p;
    struct place q;
    of_name(dir, name, &p);
    of_name(to_dir, to, &q);
    bool below = p.below || q.below;
    int tape = below ? lock() : -1;
    int rc = (int)kernel(SYS_renameat2, dir, name, to_dir, to, flags);
    if (below) {
        struct stat st;
        if (rc == 0 && !p.below && lstat(q.path, &st) == 0 && S_ISREG(st.st_mode)) {
            put_region(tape, &q, 'i', 0, (size_t)st.st_size);
        } else if (rc == 0) {
            put(tape, (struct record){.op = 'r'}, &p, q.path, NULL);
            remember_rename(p.path, q.path);
        }
        unlock(tape);
    }
    return rc;
}

int rename(const char *name, const char *to)
{
    return renamed(AT_FDCWD, name, AT_FDCWD, to, 0);
}

int renameat(int dir, const char *name, int to_dir, const char *to)
{
    return renamed(dir, name, to_dir, to, 0);
}

int renameat2(int dir, const char *name, int to_dir, const char *to, unsigned flags)
{
    return renamed(dir, name, to_dir, to, flags);
}

int close(int fd)
{
    struct place p;
    if (fd >= 0 && fd < MAX_FDS && names[fd] != NULL) {
        of_fd(fd, &p);
        if (p.below && strcmp(p.path, names[fd]) != 0) {
            struct place old = {.below = true};
            snprintf(old.path, sizeof(old.path), "%s", names[fd]);
            int tape = lock();
            put(tape, (struct record){.op = 'r'}, &old, p.path, NULL);
            unlock(tape);
        }
        int tape = lock();
        remember(fd, NULL);
        unlock(tape);
    }
    return (int)kernel(SYS_close, fd);
}

static int removed(int dir, const char *name, int flags)
{
    struct place p;
    of_name(dir, name, &p);
    int tape = p.below ? lock() : -1;
    int rc = (int)kernel(SYS_unlinkat, dir, name, flags);
    if (p.below) {
        if (rc == 0) {
            put(tape, (struct record){.op = 'u'}, &p, NULL, NULL);
        }
        unlock(tape);
    }
    return rc;
}

int unlink(const char *name)
{
    return removed(AT_FDCWD, name, 0);
}

int unlinkat(int dir, const char *name, int flags)
{
    return removed(dir, name, flags);
}

int remove(const char *name)
{
    int rc = removed(AT_FDCWD, name, 0);
    return rc != 0 && errno == EISDIR ? removed(AT_FDCWD, name, AT_REMOVEDIR) : rc;
}

int rmdir(const char *name)
{
    return removed(AT_FDCWD, name, AT_REMOVEDIR);
}

static int made(int dir, const char *name, mode_t mode)
{
    struct place p;
    of_name(dir, name, &p);
    int tape = p.below ? lock() : -1;
    int rc = (int)kernel(SYS_mkdirat, dir, name, mode);
    if (p.below) {
        if (rc == 0) {
            put(tape, (struct record){.op = 'm'}, &p, NULL, NULL);
        }
        unlock(tape);
    }
    return rc;
}

int mkdir(const char *name, mode_t mode)
{
    return made(AT_FDCWD, name, mode);
}

int mkdirat(int dir, const char *name, mode_t mode)
{
    return made(dir, name, mode);
}

static int linked(const char *target, int dir, const char *name, uint32_t op)
{
    struct place p;
    of_name(dir, name, &p);
    int tape = p.below ? lock() : -1;
    int rc = op == 's' ? (int)kernel(SYS_symlinkat, target, dir, name)
                       : (int)kernel(SYS_linkat, AT_FDCWD, target, dir, name, 0);
    if (p.below) {
        if (rc == 0) {
            put(tape, (struct record){.op = op}, &p, target, NULL);
        }
        unlock(tape);
    }
    return rc;
}

int symlink(const char *target, const char *name)
{
    return linked(target, AT_FDCWD, name, 's');
}

int symlinkat(const char *target, int dir, const char *name)
{
    return linked(target, dir, name, 's');
}

int link(const char *target, const char *name)
{
    return linked(target, AT_FDCWD, name, 'l');
}

/* Rust's standard library renames and copies this way. */
long syscall(long number, ...)
{
    long a[6];
    va_list args;
    va_start(args, number);
    for (size_t i = 0; i < HF_COUNT(a); i++) {
        a[i] = va_arg(args, long);
    }
    va_end(args);
    switch (number) {
    case SYS_renameat:
        return renamed((int)a[0], (const char *)a[1], (int)a[2], (const char *)a[3], 0);
    case SYS_renameat2:
        return renamed((int)a[0], (const char *)a[1], (int)a[2], (const char *)a[3],
                       (unsigned)a[4]);
    case SYS_copy_file_range:
        return copy_file_range((int)a[0], (off_t *)a[1], (int)a[2], (off_t *)a[3], (size_t)a[4],
                               (unsigned)a[5]);
    default:
        return kernel(number, a[0], a[1], a[2], a[3], a[4], a[5]);
    }
}
