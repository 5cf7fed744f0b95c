/* SPDX-License-Identifier: Apache-2.0
 *
 * The keeper's copying: from the command's pty or pipes to the log and to the original stdout and
 * stderr. Runs in the keeper's poll loop. Must never block on a sink, never lose a byte that the
 * sink can take, and never change the flags of a description that others share.
 */
#include "base/prelude.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/kcmp.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/clock.h"
#include "supervisor/keeper_role.h"

#define PUMP_ROUNDS       16
#define TELL_PAUSE_NS     HF_SEC
#define CAREFUL_PIPE_MAX  4096 /* a pipe that polls writable has a free page */
#define CAREFUL_OTHER_MAX 256  /* a terminal that polls writable has a little room */

enum wrote { WROTE_SOME, WROTE_LATER, WROTE_BROKEN, WROTE_FAILED };

int hf_reopen(int fd, int flags)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    int own = open(path, flags | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    if (own >= 0 && own < 3) {
        int high = fcntl(own, F_DUPFD_CLOEXEC, 3);
        close(own);
        return high;
    }
    return own;
}

bool hf_same_description(int a, int b)
{
    long order = syscall(SYS_kcmp, getpid(), getpid(), KCMP_FILE, a, b);
    if (order >= 0) {
        return order == 0;
    }
    /* Not permitted here (some containers): the same pipe or socket is enough. */
    struct stat x;
    struct stat y;
    return fstat(a, &x) == 0 && fstat(b, &y) == 0 && x.st_dev == y.st_dev && x.st_ino == y.st_ino &&
           (S_ISFIFO(x.st_mode) || S_ISSOCK(x.st_mode));
}

void hf_sink_open(struct hf_sink *s, int fd)
{
    hf_sink_close(s);
    struct stat st;
    if (fd < 0 || fstat(fd, &st) != 0) {
        return;
    }
    enum hf_sink_kind kind = S_ISSOCK(st.st_mode) ? HF_SINK_SOCKET : HF_SINK_FILE;
    if (S_ISFIFO(st.st_mode) || isatty(fd)) {
        s->fd = hf_reopen(fd, O_WRONLY);
        kind = s->fd >= 0 ? HF_SINK_OWN : HF_SINK_CAREFUL;
    }
    if (s->fd < 0) {
        s->fd = fcntl(fd, F_DUPFD_CLOEXEC, 3);
    }
    s->kind = s->fd >= 0 ? kind : HF_SINK_NONE;
}

void hf_sink_close(struct hf_sink *s)
{
    if (s->fd >= 0) {
        close(s->fd);
    }
    *s = (struct hf_sink){.fd = -1, .kind = HF_SINK_NONE};
}

/* Writable right now, and by how much without blocking. */
static size_t careful_len(int fd, size_t len)
{
    struct pollfd p = {.fd = fd, .events = POLLOUT};
    struct stat st;
    if (poll(&p, 1, 0) != 1 || fstat(fd, &st) != 0) {
        return 0;
    }
    size_t max = S_ISFIFO(st.st_mode) ? CAREFUL_PIPE_MAX : CAREFUL_OTHER_MAX;
    return len < max ? len : max;
}

static ssize_t sink_write(const struct hf_sink *s, const char *data, size_t len)
{
    if (s->kind == HF_SINK_SOCKET) {
        return send(s->fd, data, len, MSG_DONTWAIT | MSG_NOSIGNAL);
    }
    if (s->kind == HF_SINK_CAREFUL) {
        len = careful_len(s->fd, len);
        if (len == 0) {
            errno = EAGAIN;
            return -1;
        }
    }
    return write(s->fd, data, len);
}

static enum wrote stream_write_some(struct hf_stream *s)
{
    if (s->sink.kind == HF_SINK_NONE) {
        s->len = 0;
        return WROTE_SOME;
    }
    ssize_t n = -1;
    do {
        n = sink_write(&s->sink, s->data + s->off, s->len);
    } while (n < 0 && errno == EINTR);
    if (n >= 0) {
        s->off += (size_t)n;
        s->len -= (size_t)n;
        return WROTE_SOME;
    }
    if (errno == EAGAIN) {
        return WROTE_LATER;
    }
    return errno == EPIPE || errno == ECONNRESET ? WROTE_BROKEN : WROTE_FAILED;
}

static void stream_end(struct hf_stream *s)
{
    if (s->src >= 0 && !s->pty) {
        close(s->src);
    }
    s->src = -1;
}

/* False: no more for now. */
static bool stream_write(struct hf_role *r, struct hf_stream *s)
{
    enum wrote what = stream_write_some(s);
    if (what == WROTE_SOME || what == WROTE_LATER) {
        return what == WROTE_SOME;
    }
    s->len = 0;
    if (what == WROTE_FAILED && s->sink.kind == HF_SINK_FILE) {
        return true; /* a full disk may have room again; the log has these bytes */
    }
    hf_sink_close(&s->sink);
    if (what == WROTE_BROKEN && !s->pty && hf_role_attached(r)) {
        /* The reader has gone: the command is to see it as it would without us. With nobody
         * attached the reader went with the supervisor, and training goes on. */
        stream_end(s);
    }
    return true;
}

void hf_log_tell(struct hf_role *r, bool at_once)
{
    int why = r->log.missing > 0 ? r->log.why : 0;
    uint64_t now = hf_now_ns();
    bool news = r->log.dropped != r->log_told_bytes || why != r->log_told_why;
    /* Losing goes on at the speed of the output; its beginning and its end are told at once. */
    bool waits = (why != 0) == (r->log_told_why != 0) && now - r->log_told_ns < TELL_PAUSE_NS;
    if (!news || (waits && !at_once)) {
        return;
    }
    r->log_told_bytes = r->log.dropped;
    r->log_told_why = why;
    r->log_told_ns = now;
    hf_role_tell(r, HF_WIRE_LOG_DROPPED, why, r->log.dropped, NULL);
}

static void log_add(struct hf_role *r, const char *data, size_t len)
{
    hf_logring_add(&r->log, (struct hf_span){data, len}, hf_now_ns(), hf_wall_ms());
    hf_log_tell(r, false);
}

/* False: nothing was read. */
static bool stream_read(struct hf_role *r, struct hf_stream *s)
{
    if (s->src < 0) {
        return false;
    }
    ssize_t n = read(s->src, s->data, sizeof s->data);
    if (n > 0) {
        s->off = 0;
        s->len = (size_t)n;
        s->dry = false;
        log_add(r, s->data, s->len);
        if (s->pty) {
            s->len = hf_tty_uncook(r, s->data, s->len);
        }
        return true;
    }
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) {
        s->dry = errno == EAGAIN;
        return false;
    }
    stream_end(s); /* end of file; EIO is a pty's */
    return false;
}

void hf_stream_pump(struct hf_role *r, struct hf_stream *s)
{
    for (int round = 0; round < PUMP_ROUNDS; round++) {
        if (s->len == 0 && !stream_read(r, s)) {
            return;
        }
        if (s->len > 0 && !stream_write(r, s)) {
            return;
        }
    }
}

void hf_streams_pump(struct hf_role *r)
{
    for (size_t i = 0; i < HF_COUNT(r->streams); i++) {
        hf_stream_pump(r, &r->streams[i]);
    }
}

bool hf_streams_drained(struct hf_role *r)
{
    bool drained = true;
    for (size_t i = 0; i < HF_COUNT(r->streams); i++) {
        struct hf_stream *s = &r->streams[i];
        s->dry = false;
        hf_stream_pump(r, s);
        if (s->len == 0 && s->dry) {
            stream_end(s); /* the writer that is left is no process of this tree */
        }
        drained = drained && s->len == 0 && s->src < 0;
    }
    return drained;
}
