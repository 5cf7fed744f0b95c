/* SPDX-License-Identifier: Apache-2.0
 *
 * Frames between keeper and supervisor, on either side's one thread. Never blocks: what the
 * socket does not take stays in a bounded queue. Must not look into a body beyond its length,
 * as the other end may be a newer or older program.
 */
#include "base/prelude.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "supervisor/keeper_wire.h"

struct head {
    uint32_t type, len;
};

struct numbers {
    int64_t a;
    uint64_t b;
};

void hf_wire_init(struct hf_wire *w, int fd_taken, size_t max_in)
{
    *w = (struct hf_wire){.fd = fd_taken};
    hf_buf_init(&w->in, max_in + sizeof(struct head));
    hf_buf_init(&w->out, HF_WIRE_MAX_SPEC + HF_WIRE_MAX_QUEUED);
}

void hf_wire_close(struct hf_wire *w)
{
    if (w->fd >= 0) {
        close(w->fd);
    }
    for (size_t i = 0; i < w->got_len; i++) {
        (void)close(w->got[i]);
    }
    hf_buf_release(&w->in);
    hf_buf_release(&w->out);
    *w = (struct hf_wire){.fd = -1};
}

int hf_wire_take_fd(struct hf_wire *w, size_t index)
{
    if (index >= w->got_len) {
        return -1;
    }
    int fd = w->got[index];
    w->got[index] = -1;
    return fd;
}

enum hf_rc hf_wire_put_raw(struct hf_wire *w, enum hf_wire_type type, struct hf_span body,
                           struct hf_err *err)
{
    if (w->fd < 0) {
        return hf_fail(err, HF_EIO, "the keeper's socket is closed");
    }
    if (type != HF_WIRE_SPEC && w->out.len > HF_WIRE_MAX_QUEUED) {
        return hf_fail(err, HF_EFULL, "the keeper's socket is not read");
    }
    struct head head = {.type = type, .len = (uint32_t)body.len};
    HF_TRY(hf_buf_add(&w->out, &head, sizeof head, err));
    return hf_buf_add(&w->out, body.ptr, body.len, err);
}

enum hf_rc hf_wire_put(struct hf_wire *w, enum hf_wire_type type, int64_t a, uint64_t b,
                       const char *text, struct hf_err *err)
{
    char body[sizeof(struct numbers) + 256];
    struct numbers numbers = {.a = a, .b = b};
    size_t len = text == NULL ? 0 : strnlen(text, 256);
    memcpy(body, &numbers, sizeof numbers);
    if (len > 0) {
        memcpy(body + sizeof numbers, text, len);
    }
    return hf_wire_put_raw(w, type, (struct hf_span){body, sizeof numbers + len}, err);
}

/* One sendmsg; the descriptors go with the very first bytes. */
static ssize_t send_some(struct hf_wire *w)
{
    struct iovec iov = {.iov_base = w->out.data, .iov_len = w->out.len};
    union {
        char room[CMSG_SPACE(sizeof(int) * HF_WIRE_MAX_FDS)];
        struct cmsghdr align;
    } control = {0};
    struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1};
    if (w->give_len > 0) {
        msg.msg_control = control.room;
        msg.msg_controllen = CMSG_SPACE(sizeof(int) * w->give_len);
        struct cmsghdr *c = CMSG_FIRSTHDR(&msg);
        if (c != NULL) {
            c->cmsg_level = SOL_SOCKET;
            c->cmsg_type = SCM_RIGHTS;
            c->cmsg_len = CMSG_LEN(sizeof(int) * w->give_len);
            memcpy(CMSG_DATA(c), w->give, sizeof(int) * w->give_len);
        }
    }
    return sendmsg(w->fd, &msg, MSG_NOSIGNAL | MSG_DONTWAIT);
}

enum hf_rc hf_wire_flush(struct hf_wire *w, struct hf_err *err)
{
    while (w->fd >= 0 && w->out.len > 0) {
        ssize_t n = send_some(w);
        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n < 0 && errno == EAGAIN) {
            return HF_OK;
        }
        if (n < 0) {
            return hf_fail_errno(err, errno, "write to the keeper's socket");
        }
        w->give_len = 0;
        hf_buf_drop_front(&w->out, (size_t)n);
    }
    return HF_OK;
}

static void keep_fds(struct hf_wire *w, struct msghdr *msg)
{
    for (struct cmsghdr *c = CMSG_FIRSTHDR(msg); c != NULL; c = CMSG_NXTHDR(msg, c)) {
        if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS) {
            continue;
        }
        size_t count = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        for (size_t i = 0; i < count; i++) {
            int fd = -1;
            memcpy(&fd, CMSG_DATA(c) + i * sizeof(int), sizeof fd);
            if (w->got_len < HF_WIRE_MAX_FDS) {
                w->got[w->got_len++] = fd;
            } else {
                close(fd);
            }
        }
    }
}

bool hf_wire_fill(struct hf_wire *w)
{
    char piece[16384];
    while (w->fd >= 0) {
        struct iovec iov = {.iov_base = piece, .iov_len = sizeof piece};
        union {
            char room[CMSG_SPACE(sizeof(int) * HF_WIRE_MAX_FDS)];
            struct cmsghdr align;
        } control = {0};
        struct msghdr msg = {.msg_iov = &iov,
                             .msg_iovlen = 1,
                             .msg_control = control.room,
                             .msg_controllen = sizeof control.room};
        ssize_t n = recvmsg(w->fd, &msg, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n < 0 && errno == EAGAIN) {
            return true;
        }
        if (n <= 0) {
            return false;
        }
        keep_fds(w, &msg);
        if (hf_buf_add(&w->in, piece, (size_t)n, NULL) != HF_OK) {
            return false;
        }
    }
    return false;
}

bool hf_wire_next(struct hf_wire *w, struct hf_wire_msg *ret)
{
    struct head head;
    if (w->in.len < sizeof head) {
        return false;
    }
    memcpy(&head, w->in.data, sizeof head);
    if (w->in.len - sizeof head < head.len) {
        return false;
    }
    const char *body = w->in.data + sizeof head;
    *ret = (struct hf_wire_msg){.type = head.type, .body = {body, head.len}};
    ret->size = sizeof head + head.len;
    struct numbers numbers;
    if (head.type != HF_WIRE_SPEC && head.len >= sizeof numbers) {
        memcpy(&numbers, body, sizeof numbers);
        ret->a = numbers.a;
        ret->b = numbers.b;
        ret->body = (struct hf_span){body + sizeof numbers, head.len - sizeof numbers};
    }
    return true;
}

void hf_wire_drop(struct hf_wire *w, const struct hf_wire_msg *msg)
{
    hf_buf_drop_front(&w->in, msg->size);
}

enum hf_rc hf_wire_add(struct hf_buf *b, const void *data, size_t len, struct hf_err *err)
{
    uint32_t size = (uint32_t)len;
    HF_TRY(hf_buf_add(b, &size, sizeof size, err));
    return hf_buf_add(b, data, len, err);
}

bool hf_wire_cut(struct hf_span *rest, struct hf_span *ret)
{
    uint32_t size = 0;
    if (rest->len < sizeof size) {
        return false;
    }
    memcpy(&size, rest->ptr, sizeof size);
    if (rest->len - sizeof size < size) {
        return false;
    }
    const char *p = (const char *)rest->ptr + sizeof size;
    *ret = (struct hf_span){p, size};
    *rest = (struct hf_span){p + size, rest->len - sizeof size - size};
    return true;
}
