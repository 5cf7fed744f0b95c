/* SPDX-License-Identifier: Apache-2.0
 *
 * Writing the log ring. Runs in the keeper, which has one thread and must go on whatever the disk
 * says: no call here fails, and none is tried again but by the next bytes that come. Must not
 * change what is already in a segment, as readers follow it.
 */
#include "base/prelude.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/mem.h"
#include "supervisor/logring.h"

#define MODE      0600
#define LIMIT_MIN UINT64_C(65536)

static void segment_path(const struct hf_logring *r, uint64_t start, const char *tail, char *out,
                         size_t room)
{
    int n = snprintf(out, room, "%s/log.%015" PRIu64 "%s", r->dir, start, tail);
    if (n < 0 || (size_t)n >= room) {
        out[0] = '\0'; /* no such file: opening it fails, and is counted */
    }
}

static int segment_open(const struct hf_logring *r, uint64_t start, const char *tail)
{
    char path[512];
    segment_path(r, start, tail, path, sizeof path);
    return open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOFOLLOW, MODE);
}

static void close_newest(struct hf_logring *r)
{
    hf_closep(&r->fd);
    hf_closep(&r->times_fd);
    r->fd = r->times_fd = -1;
}

static struct hf_logring_segment *newest(struct hf_logring *r)
{
    return &r->kept[r->n_kept - 1];
}

void hf_logring_init(struct hf_logring *r, const char *dir, int fd_taken, uint64_t limit)
{
    *r = (struct hf_logring){.dir = hf_strdup(dir),
                             .fd = fd_taken,
                             .limit = limit < LIMIT_MIN ? LIMIT_MIN : limit,
                             .n_kept = 1,
                             .whole_line = true};
    r->times_fd = segment_open(r, 0, ".times");
}

void hf_logring_release(struct hf_logring *r)
{
    close_newest(r);
    hf_free(r->dir);
    *r = (struct hf_logring){.fd = -1, .times_fd = -1};
}

static uint64_t segment_limit(const struct hf_logring *r)
{
    return r->limit / HF_LOGRING_SEGMENTS;
}

static uint64_t room_left(struct hf_logring *r)
{
    const struct hf_logring_segment *s = newest(r);
    uint64_t used = s->bytes + s->times_bytes;
    return r->shut || used >= segment_limit(r) ? 0 : segment_limit(r) - used;
}

static void drop_oldest(struct hf_logring *r)
{
    char path[512];
    segment_path(r, r->kept[0].start, "", path, sizeof path);
    (void)unlink(path);
    segment_path(r, r->kept[0].start, ".times", path, sizeof path);
    (void)unlink(path);
    r->n_kept--;
    memmove(&r->kept[0], &r->kept[1], r->n_kept * sizeof r->kept[0]);
}

/* Room for one more whole segment. */
static void make_room(struct hf_logring *r)
{
    uint64_t sum = 0;
    for (size_t i = 0; i < r->n_kept; i++) {
        sum += r->kept[i].bytes + r->kept[i].times_bytes;
    }
    while (r->n_kept > 0 && (sum + segment_limit(r) > r->limit || r->n_kept == HF_LOGRING_FILES)) {
        sum -= r->kept[0].bytes + r->kept[0].times_bytes;
        drop_oldest(r);
    }
}

/* False: the next segment cannot be made; the newest one stays as it is. */
static bool next_segment(struct hf_logring *r)
{
    int fd = segment_open(r, r->end, "");
    if (fd < 0) {
        r->why = errno;
        return false;
    }
    close_newest(r);
    r->fd = fd;
    make_room(r);
    r->kept[r->n_kept++] = (struct hf_logring_segment){.start = r->end};
    r->times_fd = segment_open(r, r->end, ".times");
    r->timed_ns = 0;
    r->shut = false;
    return true;
}

static void note_time(struct hf_logring *r, uint64_t offset, uint64_t now_ns, int64_t wall_ms)
{
    if (r->times_fd < 0 || (r->timed_ns != 0 && now_ns - r->timed_ns < HF_SEC)) {
        return;
    }
    char line[64];
    int len = snprintf(line, sizeof line, "%013" PRId64 " %015" PRIu64 "\n", wall_ms, offset);
    ssize_t n = write(r->times_fd, line, (size_t)len);
    if (n > 0) {
        newest(r)->times_bytes += (uint64_t)n;
        r->timed_ns = now_ns;
    }
}

/* One write; a segment that is full is followed by the next one first. 0: no room, r->why says
 * why. */
static size_t put(struct hf_logring *r, const char *data, size_t len)
{
    ssize_t n = -1;
    do {
        if ((r->fd < 0 || room_left(r) == 0) && !next_segment(r)) {
            return 0;
        }
        uint64_t room = room_left(r);
        n = write(r->fd, data, len < room ? len : (size_t)room);
        /* The process may write no longer files: another one may still be begun. */
        r->shut = n < 0 && errno == EFBIG && newest(r)->bytes > 0;
    } while (r->shut || (n < 0 && errno == EINTR));
    if (n <= 0) {
        r->why = n < 0 ? errno : ENOSPC;
        return 0;
    }
    r->why = 0;
    r->end += (uint64_t)n;
    newest(r)->bytes += (uint64_t)n;
    r->whole_line = data[n - 1] == '\n';
    return (size_t)n;
}

/* The line that says how much is missing here; until it is begun it tells of all. False: not all of
 * it is out. */
static bool put_mark(struct hf_logring *r)
{
    while (r->missing > 0 || r->mark_len > 0) {
        if (r->mark_off == 0) {
            int len = snprintf(r->mark, sizeof r->mark,
                               "%s[holdfast: %" PRIu64 " bytes of output are missing here: %s]\n",
                               r->whole_line ? "" : "\n", r->missing, strerrordesc_np(r->why));
            r->mark_len = (size_t)len;
        }
        size_t n = put(r, r->mark + r->mark_off, r->mark_len - r->mark_off);
        if (n == 0) {
            return false;
        }
        r->missing = r->mark_off == 0 ? 0 : r->missing;
        r->mark_off += n;
        if (r->mark_off == r->mark_len) {
            r->mark_off = r->mark_len = 0;
        }
    }
    return true;
}

void hf_logring_add(struct hf_logring *r, struct hf_span data, uint64_t now_ns, int64_t wall_ms)
{
    const char *at = data.ptr;
    size_t left = data.len;
    while (left > 0) {
        if (!put_mark(r)) {
            break;
        }
        size_t n = put(r, at, left);
        if (n == 0) {
            break;
        }
        note_time(r, r->end - n, now_ns, wall_ms);
        at += n;
        left -= n;
    }
    r->dropped += left;
    r->missing += left;
}
