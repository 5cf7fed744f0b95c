/* SPDX-License-Identifier: Apache-2.0
 *
 * The local log of an attempt: what its command wrote, as it came, in segments of which the oldest
 * go when the sum would pass the limit. The keeper alone writes; anybody reads, also meanwhile.
 *
 * In the attempt's folder: "log.<offset>" holds the bytes from that offset of the whole output on
 * (15 digits, decimal); it is only appended to. "log.<offset>.times" beside it has a line
 * "<wall ms> <offset>" for the first bytes of each second; lines of another form mean nothing.
 */
#ifndef HF_SUPERVISOR_LOGRING_H
#define HF_SUPERVISOR_LOGRING_H

#include "base/prelude.h"

#include "base/err.h"

#define HF_LOGRING_FIRST    "log.000000000000000"
#define HF_LOGRING_SEGMENTS 8  /* a segment is this part of the limit */
#define HF_LOGRING_FILES    16 /* segments kept at most, where a file-size limit makes them short */

/* ---- writing: one thread, never waits for a reader ---- */

struct hf_logring_segment {
    uint64_t start, bytes;
    uint64_t times_bytes;
};

struct hf_logring {
    char *dir;
    int fd, times_fd; /* of the newest segment; -1: it could not be opened */
    uint64_t limit;   /* bytes of all segments with their times */
    struct hf_logring_segment kept[HF_LOGRING_FILES];
    size_t n_kept;
    uint64_t end;      /* offset of the next byte */
    uint64_t timed_ns; /* when the last line of times was written */
    uint64_t dropped;  /* bytes that found no room, all together */
    uint64_t missing;  /* of those: not yet told of in the log itself */
    int why;           /* errno of the last write, 0: it went well */
    bool whole_line;   /* the log ends with a newline, or is empty */
    bool shut;         /* the newest segment takes no more */
    char mark[200];    /* the line that tells of missing bytes, being written */
    size_t mark_off, mark_len;
};

/* fd: "log.000000000000000", opened O_APPEND by the caller; it becomes the ring's. */
void hf_logring_init(struct hf_logring *r, const char *dir, int fd_taken, uint64_t limit);
void hf_logring_release(struct hf_logring *r);
/* Appends. What finds no room (full disk, quota, file-size limit, folder gone) is dropped and
 * counted; a line in the log says so when there is room again. */
void hf_logring_add(struct hf_logring *r, struct hf_span data, uint64_t now_ns, int64_t wall_ms);

/* ---- reading: any thread; every call looks at the folder anew ---- */

/* The first offset that is there and the one after the last. HF_ENOTFOUND: no log here. */
enum hf_rc hf_logread_bounds(const char *dir, uint64_t *ret_first, uint64_t *ret_end,
                             struct hf_err *err) HF_MUST_USE;
/* Reads at most max bytes at *offset, which is moved on to the oldest byte left when it has gone.
 * *ret_len 0: nothing there yet. */
enum hf_rc hf_logread_at(const char *dir, uint64_t *offset, void *out, size_t max, size_t *ret_len,
                         struct hf_err *err) HF_MUST_USE;
/* Where that begins which was written at or after wall_ms, to the second; the end: nothing was. */
enum hf_rc hf_logread_since(const char *dir, int64_t wall_ms, uint64_t *ret_offset,
                            struct hf_err *err) HF_MUST_USE;
/* Bytes on the disk, times included; 0 where there is no log. */
uint64_t hf_logread_disk_bytes(const char *dir);
/* Deletes a log whose keeper is gone. */
void hf_logread_delete(const char *dir);

#endif
