/* SPDX-License-Identifier: Apache-2.0
 *
 * Preloaded by a test: calls into a store in a folder wait, or fail, as a file of rules says at
 * that moment (STORE_GATE). This simulates a store that is silent, read-only or full, and lets a
 * test stop a program at any object. A rule is a line: "hold OP TEXT" or "fail ERRNO OP TEXT"; OP
 * is get, put, name or any, and TEXT a part of the key, which is relative and begins with "r/" (the
 * run's name). A call that waits leaves a mark beside the rules (".held") and looks again.
 */
#include "base/prelude.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum verdict { PASS, WAIT, FAIL };

static bool fits(const char *op, const char *text, const char *want, const char *key)
{
    return (strcmp(op, "any") == 0 || strcmp(op, want) == 0) && strstr(key, text) != NULL;
}

static enum verdict judge(const char *rules, const char *want, const char *key, int *ret_errno)
{
    char all[2048] = "";
    int fd = (int)syscall(SYS_openat, AT_FDCWD, rules, O_RDONLY | O_CLOEXEC, 0);
    ssize_t n = fd >= 0 ? read(fd, all, sizeof(all) - 1) : 0;
    if (fd >= 0) {
        close(fd);
    }
    all[n > 0 ? n : 0] = '\0';
    char *rest = all;
    for (char *line = strtok_r(all, "\n", &rest); line != NULL;
         line = strtok_r(NULL, "\n", &rest)) {
        char op[16] = "";
        char text[256] = "";
        if (sscanf(line, "hold %15s %255s", op, text) == 2 && fits(op, text, want, key)) {
            return WAIT;
        }
        if (sscanf(line, "fail %d %15s %255s", ret_errno, op, text) == 3 &&
            fits(op, text, want, key)) {
            return FAIL;
        }
    }
    return PASS;
}

/* True: the call fails, errno is set. */
static bool stopped(const char *want, const char *key)
{
    const char *rules = getenv("STORE_GATE");
    int num = 0;
    if (rules == NULL || strncmp(key, "r/", 2) != 0) {
        return false;
    }
    for (;;) {
        enum verdict v = judge(rules, want, key, &num);
        if (v != WAIT) {
            errno = num;
            return v == FAIL;
        }
        char mark[512];
        snprintf(mark, sizeof(mark), "%s.held", rules);
        int fd = (int)syscall(SYS_openat, AT_FDCWD, mark, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
        close(fd);
        nanosleep(&(struct timespec){.tv_nsec = 2000000}, NULL);
    }
}

static int open_at(int dir, const char *key, int flags, unsigned mode)
{
    bool put = (flags & O_CREAT) != 0;
    if ((flags & O_DIRECTORY) == 0 && stopped(put ? "put" : "get", key)) {
        return -1;
    }
    return (int)syscall(SYS_openat, dir, key, flags, mode);
}

int openat(int dir, const char *key, int flags, ...)
{
    va_list args;
    va_start(args, flags);
    unsigned mode = (flags & O_CREAT) != 0 ? va_arg(args, unsigned) : 0;
    va_end(args);
    return open_at(dir, key, flags, mode);
}

int openat64(int dir, const char *key, int flags, ...)
{
    va_list args;
    va_start(args, flags);
    unsigned mode = (flags & O_CREAT) != 0 ? va_arg(args, unsigned) : 0;
    va_end(args);
    return open_at(dir, key, flags, mode);
}

int mkdirat(int dir, const char *key, mode_t mode)
{
    return stopped("put", key) ? -1 : (int)syscall(SYS_mkdirat, dir, key, mode);
}

int linkat(int dir, const char *from, int to_dir, const char *key, int flags)
{
    return stopped("name", key) ? -1 : (int)syscall(SYS_linkat, dir, from, to_dir, key, flags);
}

int renameat(int dir, const char *from, int to_dir, const char *key)
{
    return stopped("name", key) ? -1 : (int)syscall(SYS_renameat2, dir, from, to_dir, key, 0);
}
