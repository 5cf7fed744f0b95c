/* SPDX-License-Identifier: Apache-2.0
 *
 * Reading the log ring while the keeper writes it, or after. Any thread; blocks on local files.
 * Nothing is kept between two calls, so that a segment deleted meanwhile is no special case. Must
 * not write, but for the deletion of a whole log.
 */
#include "base/prelude.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fsx.h"
#include "base/mem.h"
#include "supervisor/logring.h"

#define DIGITS    15
#define TRIES     8
#define TIMES_MAX (size_t)(64 * 1024 * 1024)

/* The segments of a folder, oldest first. */
struct listing {
    uint64_t starts[HF_LOGRING_FILES * 4];
    size_t n;
};

/* "log.<15 digits>" and nothing after it. */
static bool segment_of(const char *name, uint64_t *ret)
{
    if (strncmp(name, "log.", 4) != 0) {
        return false;
    }
    uint64_t v = 0;
    for (size_t i = 4; i < 4 + DIGITS; i++) {
        if (name[i] < '0' || name[i] > '9') {
            return false;
        }
        v = v * 10 + (uint64_t)(name[i] - '0');
    }
    *ret = v;
    return name[4 + DIGITS] == '\0';
}

static int by_number(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a;
    uint64_t y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

static enum hf_rc list_segments(const char *dir, struct listing *ret, struct hf_err *err)
{
    ret->n = 0;
    DIR *d = opendir(dir);
    if (d == NULL) {
        return hf_fail_errno(err, errno, "look for the log in '%s'", dir);
    }
    for (const struct dirent *e = readdir(d); e != NULL; e = readdir(d)) {
        uint64_t start = 0;
        if (segment_of(e->d_name, &start) && ret->n < HF_COUNT(ret->starts)) {
            ret->starts[ret->n++] = start;
        }
    }
    closedir(d);
    if (ret->n == 0) {
        return hf_fail(err, HF_ENOTFOUND, "no log is kept in '%s'", dir);
    }
    qsort(ret->starts, ret->n, sizeof ret->starts[0], by_number);
    return HF_OK;
}

static char *path_of(const char *dir, uint64_t start, const char *tail)
{
    return hf_asprintf("%s/log.%015" PRIu64 "%s", dir, start, tail);
}

static bool size_of(const char *dir, uint64_t start, const char *tail, uint64_t *ret)
{
    HF_CLEANUP(hf_freep) char *path = path_of(dir, start, tail);
    struct stat st;
    if (stat(path, &st) != 0) {
        return false;
    }
    *ret = (uint64_t)st.st_size;
    return true;
}

enum hf_rc hf_logread_bounds(const char *dir, uint64_t *ret_first, uint64_t *ret_end,
                             struct hf_err *err)
{
    for (int i = 0; i < TRIES; i++) {
        struct listing l;
        uint64_t size = 0;
        HF_TRY(list_segments(dir, &l, err));
        if (size_of(dir, l.starts[l.n - 1], "", &size)) {
            *ret_first = l.starts[0];
            *ret_end = l.starts[l.n - 1] + size;
            return HF_OK;
        }
    }
    return hf_fail(err, HF_EAGAIN, "the log in '%s' changes faster than it can be read", dir);
}

/* HF_ENOTFOUND: the segment went meanwhile. */
static enum hf_rc read_segment(const char *path, uint64_t skip, void *out, size_t max,
                               size_t *ret_len, struct hf_err *err)
{
    HF_CLEANUP(hf_closep) int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        return hf_fail_errno(err, errno, "open '%s'", path);
    }
    size_t len = 0;
    while (len < max) {
        ssize_t n = pread(fd, (char *)out + len, max - len, (off_t)(skip + len));
        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n < 0) {
            return hf_fail_errno(err, errno, "read '%s'", path);
        }
        if (n == 0) {
            break;
        }
        len += (size_t)n;
    }
    *ret_len = len;
    return HF_OK;
}

/* The index of the segment that holds *offset, which is moved on to the oldest byte left. */
static size_t find_segment(const struct listing *l, uint64_t *offset)
{
    if (*offset < l->starts[0]) {
        *offset = l->starts[0];
    }
    size_t i = l->n - 1;
    while (i > 0 && l->starts[i] > *offset) {
        i--;
    }
    return i;
}

enum hf_rc hf_logread_at(const char *dir, uint64_t *offset, void *out, size_t max, size_t *ret_len,
                         struct hf_err *err)
{
    for (int tries = 0; tries < TRIES; tries++) {
        struct listing l;
        uint64_t at = *offset;
        HF_TRY(list_segments(dir, &l, err));
        size_t i = find_segment(&l, &at);
        uint64_t next = i + 1 < l.n ? l.starts[i + 1] : UINT64_MAX;
        size_t len = next - at < max ? (size_t)(next - at) : max;
        struct hf_err why = {0};
        HF_CLEANUP(hf_freep) char *path = path_of(dir, l.starts[i], "");
        enum hf_rc rc = read_segment(path, at - l.starts[i], out, len, ret_len, &why);
        if (rc == HF_ENOTFOUND) {
            continue;
        }
        if (rc == HF_OK) {
            *offset = at;
        } else if (err != NULL) {
            *err = why;
        }
        return rc;
    }
    return hf_fail(err, HF_EAGAIN, "the log in '%s' changes faster than it can be read", dir);
}

static bool read_number(const char **p, size_t digits, uint64_t *ret)
{
    uint64_t v = 0;
    for (size_t i = 0; i < digits; i++) {
        if (**p < '0' || **p > '9') {
            return false;
        }
        v = v * 10 + (uint64_t)(*(*p)++ - '0');
    }
    *ret = v;
    return true;
}

/* "<13 digits> <15 digits>" and nothing else. */
static bool read_time(const char *line, int64_t *ret_ms, uint64_t *ret_offset)
{
    uint64_t ms = 0;
    if (!read_number(&line, 13, &ms) || *line++ != ' ' || !read_number(&line, DIGITS, ret_offset) ||
        *line != '\0') {
        return false;
    }
    *ret_ms = (int64_t)ms;
    return true;
}

/* The bytes of a line's second may be as late as the next line's. */
static bool find_time(const char *dir, uint64_t start, int64_t wall_ms, uint64_t *ret_offset)
{
    HF_CLEANUP(hf_freep) char *path = path_of(dir, start, ".times");
    struct hf_buf b;
    hf_buf_init(&b, TIMES_MAX);
    bool found = false;
    if (hf_fs_read(path, &b, NULL) == HF_OK) {
        size_t pos = 0;
        size_t len = 0;
        int64_t ms = 0;
        const char *line = NULL;
        while (!found && (line = hf_buf_next_line(&b, &pos, &len)) != NULL) {
            found = read_time(line, &ms, ret_offset) && ms > wall_ms - 1000;
        }
    }
    hf_buf_release(&b);
    return found;
}

enum hf_rc hf_logread_since(const char *dir, int64_t wall_ms, uint64_t *ret_offset,
                            struct hf_err *err)
{
    struct listing l;
    uint64_t first = 0;
    HF_TRY(list_segments(dir, &l, err));
    for (size_t i = 0; i < l.n; i++) {
        if (find_time(dir, l.starts[i], wall_ms, ret_offset)) {
            return HF_OK;
        }
    }
    return hf_logread_bounds(dir, &first, ret_offset, err);
}

uint64_t hf_logread_disk_bytes(const char *dir)
{
    struct listing l;
    uint64_t sum = 0;
    if (list_segments(dir, &l, NULL) != HF_OK) {
        return 0;
    }
    for (size_t i = 0; i < l.n; i++) {
        uint64_t bytes = 0;
        uint64_t times = 0;
        sum += size_of(dir, l.starts[i], "", &bytes) ? bytes : 0;
        sum += size_of(dir, l.starts[i], ".times", &times) ? times : 0;
    }
    return sum;
}

void hf_logread_delete(const char *dir)
{
    struct listing l;
    if (list_segments(dir, &l, NULL) != HF_OK) {
        return;
    }
    for (size_t i = 0; i < l.n; i++) {
        HF_CLEANUP(hf_freep) char *log = path_of(dir, l.starts[i], "");
        HF_CLEANUP(hf_freep) char *times = path_of(dir, l.starts[i], ".times");
        (void)unlink(log);
        (void)unlink(times);
    }
}
