/* SPDX-License-Identifier: Apache-2.0
 *
 * The server of raw answers: one thread polls the listener and its connections. It waits for
 * nothing longer than its own gaps, and an eventfd ends it.
 */
#include "base/prelude.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/mem.h"
#include "support_rawd.h"

#define CONNECTIONS 16
#define HEAD_MAX    4096

struct peer {
    int fd; /* -1: free */
    bool mute;
    char head[HEAD_MAX];
    size_t head_len, body_left;
    bool in_body;
};

struct hf_rawd {
    int listener, stop;
    uint16_t port;
    pthread_t thread;
    pthread_mutex_t lock; /* around say and data */
    struct hf_rawd_say say;
    char *data;
    atomic_uint answers;
    struct peer peers[CONNECTIONS];
};

static void must(bool ok, const char *what)
{
    if (!ok) {
        fprintf(stderr, "raw test server: %s: %s\n", what, strerror(errno));
        abort();
    }
}

/* True: it is time to end, or the client has gone. */
static bool pause_for(const struct hf_rawd *d, int fd, unsigned ms)
{
    struct pollfd p[2] = {{.fd = d->stop, .events = POLLIN}, {.fd = fd, .events = POLLRDHUP}};
    return poll(p, 2, (int)ms) > 0;
}

static void hang_up(struct peer *p, bool reset)
{
    if (reset) {
        struct linger now = {.l_onoff = 1, .l_linger = 0};
        (void)setsockopt(p->fd, SOL_SOCKET, SO_LINGER, &now, sizeof(now));
    }
    close(p->fd);
    p->fd = -1;
}

/* False when the client has had enough. */
static bool send_all(const struct hf_rawd *d, const struct peer *p, const struct hf_rawd_say *say,
                     const char *data)
{
    for (size_t at = 0; at < say->len;) {
        size_t n = say->piece != 0 && say->piece < say->len - at ? say->piece : say->len - at;
        ssize_t sent = send(p->fd, data + at, n, MSG_NOSIGNAL);
        if (sent < 0) {
            return false;
        }
        at += (size_t)sent;
        if (say->gap_ms > 0 && at < say->len && pause_for(d, p->fd, say->gap_ms)) {
            return false;
        }
    }
    return true;
}

static void answer(struct hf_rawd *d, struct peer *p)
{
    pthread_mutex_lock(&d->lock);
    struct hf_rawd_say say = d->say;
    char *data = hf_calloc(say.len + 1, 1);
    memcpy(data, d->data, say.len);
    pthread_mutex_unlock(&d->lock);
    atomic_fetch_add(&d->answers, 1);
    bool ok = true;
    do {
        ok = send_all(d, p, &say, data);
    } while (ok && say.for_ever && !pause_for(d, p->fd, 0));
    hf_free(data);
    p->head_len = 0;
    p->in_body = false;
    p->mute = say.after == HF_RAWD_MUTE;
    if (!ok || say.for_ever || say.after == HF_RAWD_CLOSE || say.after == HF_RAWD_RESET) {
        hang_up(p, say.after == HF_RAWD_RESET);
    }
}

static enum hf_rawd_when when_of(struct hf_rawd *d)
{
    pthread_mutex_lock(&d->lock);
    enum hf_rawd_when when = d->say.when;
    pthread_mutex_unlock(&d->lock);
    return when;
}

static void head_is_there(struct hf_rawd *d, struct peer *p, size_t beyond)
{
    const char *name = strcasestr(p->head, "\r\nContent-Length:");
    size_t length = name != NULL ? strtoul(name + 17, NULL, 10) : 0;
    p->body_left = length > beyond ? length - beyond : 0;
    p->in_body = true;
    if (when_of(d) == HF_RAWD_HEAD || p->body_left == 0) {
        answer(d, p);
    }
}

static void readable(struct hf_rawd *d, struct peer *p)
{
    char chunk[65536];
    size_t room = p->in_body ? sizeof(chunk) : HEAD_MAX - 1 - p->head_len;
    ssize_t n = recv(p->fd, p->in_body ? chunk : p->head + p->head_len, room, 0);
    if (n <= 0) {
        hang_up(p, false);
        return;
    }
    if (p->in_body) {
        p->body_left -= (size_t)n < p->body_left ? (size_t)n : p->body_left;
        if (p->body_left == 0) {
            answer(d, p);
        }
        return;
    }
    p->head_len += (size_t)n;
    p->head[p->head_len] = '\0';
    const char *end = strstr(p->head, "\r\n\r\n");
    if (end != NULL) {
        head_is_there(d, p, p->head_len - (size_t)(end + 4 - p->head));
    } else if (p->head_len == HEAD_MAX - 1) {
        hang_up(p, false);
    }
}

static void take_one(struct hf_rawd *d)
{
    int fd = accept4(d->listener, NULL, NULL, SOCK_CLOEXEC);
    must(fd >= 0, "accept");
    int on = 1;
    (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    for (size_t i = 0; i < CONNECTIONS; i++) {
        struct peer *p = &d->peers[i];
        if (p->fd < 0) {
            *p = (struct peer){.fd = fd};
            if (when_of(d) == HF_RAWD_ACCEPT) {
                answer(d, p);
            }
            return;
        }
    }
    close(fd);
}

static void *serve(void *arg)
{
    struct hf_rawd *d = arg;
    for (;;) {
        struct pollfd p[CONNECTIONS + 2] = {{.fd = d->stop, .events = POLLIN},
                                            {.fd = d->listener, .events = POLLIN}};
        for (size_t i = 0; i < CONNECTIONS; i++) {
            const struct peer *peer = &d->peers[i];
            p[i + 2] = (struct pollfd){.fd = peer->fd, .events = peer->mute ? POLLRDHUP : POLLIN};
        }
        must(poll(p, CONNECTIONS + 2, -1) > 0 || errno == EINTR, "poll");
        if (p[0].revents != 0) {
            break;
        }
        for (size_t i = 0; i < CONNECTIONS; i++) {
            if (p[i + 2].revents != 0 && d->peers[i].mute) {
                hang_up(&d->peers[i], false);
            } else if (p[i + 2].revents != 0) {
                readable(d, &d->peers[i]);
            }
        }
        if (p[1].revents != 0) {
            take_one(d);
        }
    }
    for (size_t i = 0; i < CONNECTIONS; i++) {
        if (d->peers[i].fd >= 0) {
            close(d->peers[i].fd);
        }
    }
    return NULL;
}

struct hf_rawd *hf_rawd_start(void)
{
    struct hf_rawd *d = HF_NEW(struct hf_rawd);
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof(a);
    d->data = hf_strdup("");
    d->stop = eventfd(0, EFD_CLOEXEC);
    d->listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    must(d->stop >= 0 && d->listener >= 0, "socket");
    must(bind(d->listener, (struct sockaddr *)&a, sizeof(a)) == 0, "bind");
    must(listen(d->listener, 64) == 0, "listen");
    must(getsockname(d->listener, (struct sockaddr *)&a, &len) == 0, "getsockname");
    d->port = ntohs(a.sin_port);
    for (size_t i = 0; i < CONNECTIONS; i++) {
        d->peers[i].fd = -1;
    }
    must(pthread_mutex_init(&d->lock, NULL) == 0, "mutex");
    must(pthread_create(&d->thread, NULL, serve, d) == 0, "thread");
    return d;
}

void hf_rawd_stop(struct hf_rawd *d)
{
    uint64_t one = 1;
    must(write(d->stop, &one, sizeof(one)) == sizeof(one), "write");
    must(pthread_join(d->thread, NULL) == 0, "join");
    pthread_mutex_destroy(&d->lock);
    close(d->stop);
    close(d->listener);
    hf_free(d->data);
    hf_free(d);
}

uint16_t hf_rawd_port(const struct hf_rawd *d)
{
    return d->port;
}

void hf_rawd_set(struct hf_rawd *d, const struct hf_rawd_say *say)
{
    pthread_mutex_lock(&d->lock);
    hf_free(d->data);
    d->say = *say;
    d->data = hf_calloc(say->len + 1, 1);
    if (say->len > 0) {
        memcpy(d->data, say->data, say->len);
    }
    pthread_mutex_unlock(&d->lock);
}

unsigned hf_rawd_answers(struct hf_rawd *d)
{
    return atomic_load(&d->answers);
}
