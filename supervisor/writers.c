/* SPDX-License-Identifier: Apache-2.0
 *
 * Looks through the descriptors of our tree. Worker threads. Files are compared by device and
 * inode: a path in /proc/PID/fd is as that process sees it, and it may see another one.
 */
#include "base/prelude.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "supervisor/tree.h"
#include "supervisor/writers.h"

static int by_value(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a;
    uint64_t y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

struct files {
    dev_t dev;
    uint64_t *inodes; /* sorted */
    size_t len;
};

static bool is_one(const struct files *f, const struct stat *st)
{
    uint64_t inode = st->st_ino;
    return S_ISREG(st->st_mode) && st->st_dev == f->dev &&
           bsearch(&inode, f->inodes, f->len, sizeof(inode), by_value) != NULL;
}

/* "flags:" of fdinfo is octal, as in open(2). */
static bool open_for_writing(pid_t pid, const char *fd)
{
    char path[64];
    char text[512];
    snprintf(path, sizeof(path), "/proc/%d/fdinfo/%.16s", pid, fd);
    HF_CLEANUP(hf_closep) int in = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = in >= 0 ? read(in, text, sizeof(text) - 1) : -1;
    if (n <= 0) {
        return false;
    }
    text[n] = '\0';
    const char *flags = strstr(text, "flags:");
    unsigned long mode =
        flags != NULL ? strtoul(flags + strlen("flags:"), NULL, 8) & O_ACCMODE : O_RDONLY;
    return mode == O_WRONLY || mode == O_RDWR;
}

static enum hf_writers of_process(pid_t pid, const struct files *f)
{
    char path[64];
    snprintf(path, sizeof(path), "/proc/%d/fd", pid);
    DIR *d = opendir(path);
    if (d == NULL) {
        return errno == ENOENT ? HF_WRITERS_NONE : HF_WRITERS_UNKNOWN;
    }
    enum hf_writers found = HF_WRITERS_NONE;
    const struct dirent *e = NULL;
    while (found == HF_WRITERS_NONE && (e = readdir(d)) != NULL) {
        struct stat st;
        if (fstatat(dirfd(d), e->d_name, &st, 0) == 0 && is_one(f, &st) &&
            open_for_writing(pid, e->d_name)) {
            found = HF_WRITERS_SOME;
        }
    }
    closedir(d);
    return found;
}

static enum hf_writers of_tree(const char *token, const struct files *f)
{
    struct hf_procs procs = {0};
    struct hf_err ignored;
    if (hf_tree_by_token(token, &procs, &ignored) != HF_OK) {
        return HF_WRITERS_UNKNOWN;
    }
    enum hf_writers found = HF_WRITERS_NONE;
    for (size_t i = 0; i < procs.len && found != HF_WRITERS_SOME; i++) {
        enum hf_writers one = of_process(procs.items[i].pid, f);
        found = one != HF_WRITERS_NONE ? one : found;
    }
    hf_procs_release(&procs);
    return found;
}

enum hf_writers hf_writers_of(const char *token, const struct hf_stamps *stamps)
{
    struct stat st;
    if (stamps->len == 0 || lstat(stamps->items[0].path, &st) != 0) {
        return HF_WRITERS_NONE;
    }
    struct files f = {.dev = st.st_dev, .inodes = hf_calloc(stamps->len, sizeof(uint64_t))};
    for (size_t i = 0; i < stamps->len; i++) {
        f.inodes[f.len++] = stamps->items[i].inode;
    }
    qsort(f.inodes, f.len, sizeof(uint64_t), by_value);
    enum hf_writers found = of_tree(token, &f);
    hf_free(f.inodes);
    return found;
}
