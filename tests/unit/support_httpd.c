/* SPDX-License-Identifier: Apache-2.0
 *
 * The raw HTTP server for tests: one thread accepts, one thread a connection. An eventfd tells all
 * of them to end. Every failure of the server itself aborts the test program.
 */
#include "base/prelude.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/mem.h"
#include "support_httpd.h"

#define SLOTS 64

struct slot {
    struct hf_httpd *server;
    pthread_t thread;
    int fd;
    unsigned number;
    bool used;
    atomic_bool over;
};

struct hf_httpd {
    hf_httpd_fn *fn;
    void *user;
    int listener, stop;
    uint16_t port;
    pthread_t acceptor;
    pthread_mutex_t lock; /* around fn */
    atomic_uint requests, connections, releases;
    struct slot slots[SLOTS];
};

static void must(bool ok, const char *what)
{
    if (!ok) {
        fprintf(stderr, "test server: %s: %s\n", what, strerror(errno));
        abort();
    }
}

/* False when the server stops or the peer hangs up; with fd -1 it only waits. */
static bool wait_for(const struct hf_httpd *s, int fd, short events, int timeout_ms)
{
    struct pollfd p[2] = {{.fd = s->stop, .events = POLLIN}, {.fd = fd, .events = events}};
    int n = poll(p, 2, timeout_ms);
    return !(p[0].revents & POLLIN) && (n == 0 || p[1].revents != 0);
}

static int loopback(uint16_t *port)
{
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct sockaddr_in a = {.sin_family = AF_INET};
    a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t len = sizeof(a);
    must(fd >= 0 && bind(fd, (struct sockaddr *)&a, len) == 0, "bind");
    must(getsockname(fd, (struct sockaddr *)&a, &len) == 0, "getsockname");
    *port = ntohs(a.sin_port);
    return fd;
}

static bool send_all(int fd, const char *data, size_t len)
{
    while (len > 0) {
        ssize_t n = send(fd, data, len, MSG_NOSIGNAL);
        if (n <= 0) {
            return false;
        }
        data += n;
        len -= (size_t)n;
    }
    return true;
}

/* Requests */

unsigned hf_httpd_header(const struct hf_httpd_request *rq, const char *name, char *ret,
                         size_t size)
{
    unsigned found = 0;
    size_t len = strlen(name);
    for (const char *p = strstr(rq->head, "\r\n"); p != NULL; p = strstr(p + 2, "\r\n")) {
        const char *line = p + 2;
        if (strncasecmp(line, name, len) == 0 && line[len] == ':') {
            const char *value = line + len + 1 + strspn(line + len + 1, " ");
            if (ret != NULL) {
                snprintf(ret, size, "%.*s", (int)strcspn(value, "\r"), value);
            }
            found++;
        }
    }
    return found;
}

/* Reads until there are `want` bytes, or the blank line when want is 0. */
static bool fill(struct slot *c, char *data, size_t room, size_t *len, size_t want)
{
    while (want > 0 ? *len < want : strstr(data, "\r\n\r\n") == NULL) {
        if (*len + 1 >= room || !wait_for(c->server, c->fd, POLLIN, -1)) {
            return false;
        }
        ssize_t n = recv(c->fd, data + *len, room - 1 - *len, 0);
        if (n <= 0) {
            return false;
        }
        *len += (size_t)n;
        data[*len] = '\0';
    }
    return true;
}

/* One request at a time: a client that sends the next one early is not served. */
static bool read_request(struct slot *c, struct hf_httpd_request *rq)
{
    memset(rq, 0, sizeof(*rq));
    size_t len = 0;
    if (!fill(c, rq->head, sizeof(rq->head), &len, 0)) {
        return false;
    }
    char text[24] = "0";
    hf_httpd_header(rq, "Content-Length", text, sizeof(text));
    rq->body_len = strtoul(text, NULL, 10);
    char *body = strstr(rq->head, "\r\n\r\n") + 4;
    size_t head_len = (size_t)(body - rq->head);
    if (!fill(c, rq->head, sizeof(rq->head), &len, head_len + rq->body_len)) {
        return false;
    }
    snprintf(rq->body, sizeof(rq->body), "%s", body);
    *body = '\0';
    sscanf(rq->head, "%7s %511s", rq->method, rq->path);
    rq->connection = c->number;
    return true;
}

/* Replies */

static bool send_reply(struct slot *c, const struct hf_httpd_reply *r)
{
    char head[1024];
    size_t body = strlen(r->body), total = body + r->filler_bytes;
    int n = snprintf(head, sizeof(head), "HTTP/1.1 %d Status\r\n%sContent-Length: %zu\r\n\r\n",
                     r->status != 0 ? r->status : 200, r->headers, total);
    size_t limit = r->act == HF_HTTPD_CUT ? total / 2 : total;
    if (!send_all(c->fd, head, (size_t)n) ||
        !send_all(c->fd, r->body, body < limit ? body : limit)) {
        return false;
    }
    char filler[4096];
    memset(filler, 'x', sizeof(filler));
    for (size_t sent = body; sent < limit;) {
        size_t part = limit - sent < sizeof(filler) ? limit - sent : sizeof(filler);
        if (!send_all(c->fd, filler, part)) {
            return false;
        }
        sent += part;
    }
    return r->act == HF_HTTPD_ANSWER;
}

static void decide(struct hf_httpd *s, const struct hf_httpd_request *rq,
                   struct hf_httpd_reply *ret)
{
    memset(ret, 0, sizeof(*ret));
    pthread_mutex_lock(&s->lock);
    s->fn(s->user, rq, ret);
    pthread_mutex_unlock(&s->lock);
}

/* False: the server stops. */
static bool hold(struct hf_httpd *s, unsigned releases, unsigned hold_ms)
{
    uint64_t until_ns = hf_now_ns() + hold_ms * HF_MS;
    while (atomic_load(&s->releases) == releases && hf_now_ns() < until_ns) {
        if (!wait_for(s, -1, 0, 2)) {
            return false;
        }
    }
    return true;
}

/* Returns whether the connection goes on. */
static bool serve_one(struct slot *c)
{
    struct hf_httpd *s = c->server;
    struct hf_httpd_request rq;
    if (!read_request(c, &rq)) {
        return false;
    }
    atomic_fetch_add(&s->requests, 1);
    unsigned releases = atomic_load(&s->releases);
    struct hf_httpd_reply reply;
    decide(s, &rq, &reply);
    if (reply.hold_ms > 0) {
        if (!hold(s, releases, reply.hold_ms)) {
            return false;
        }
        rq.held = true;
        decide(s, &rq, &reply);
    }
    if (reply.delay_ms > 0 && !wait_for(s, -1, 0, (int)reply.delay_ms)) {
        return false;
    }
    switch (reply.act) {
    case HF_HTTPD_DROP:
        return false;
    case HF_HTTPD_MUTE:
        wait_for(s, c->fd, POLLIN, -1); /* until the client hangs up */
        return false;
    case HF_HTTPD_ANSWER:
    case HF_HTTPD_CUT:
        break;
    }
    return send_reply(c, &reply);
}

static void *serve(void *arg)
{
    struct slot *c = arg;
    while (serve_one(c)) {
    }
    close(c->fd);
    atomic_store(&c->over, true);
    return NULL;
}

static struct slot *free_slot(struct hf_httpd *s)
{
    for (size_t i = 0; i < SLOTS; i++) {
        struct slot *c = &s->slots[i];
        if (c->used && atomic_load(&c->over)) {
            pthread_join(c->thread, NULL);
            c->used = false;
        }
        if (!c->used) {
            return c;
        }
    }
    must(false, "too many connections at a time");
    return NULL;
}

static void *accept_all(void *arg)
{
    struct hf_httpd *s = arg;
    while (wait_for(s, s->listener, POLLIN, -1)) {
        int fd = accept4(s->listener, NULL, NULL, SOCK_CLOEXEC);
        if (fd < 0) {
            continue;
        }
        int one = 1;
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
        struct slot *c = free_slot(s);
        c->server = s;
        c->fd = fd;
        c->number = atomic_fetch_add(&s->connections, 1) + 1;
        c->used = true;
        atomic_store(&c->over, false);
        must(pthread_create(&c->thread, NULL, serve, c) == 0, "thread");
    }
    return NULL;
}

/* The server */

struct hf_httpd *hf_httpd_start(hf_httpd_fn *fn, void *user)
{
    struct hf_httpd *s = HF_NEW(struct hf_httpd);
    s->fn = fn;
    s->user = user;
    s->stop = eventfd(0, EFD_CLOEXEC);
    s->listener = loopback(&s->port);
    must(s->stop >= 0 && listen(s->listener, 64) == 0, "listen");
    pthread_mutex_init(&s->lock, NULL);
    must(pthread_create(&s->acceptor, NULL, accept_all, s) == 0, "thread");
    return s;
}

void hf_httpd_stop(struct hf_httpd *s)
{
    if (s == NULL) {
        return;
    }
    uint64_t one = 1;
    must(write(s->stop, &one, sizeof(one)) == sizeof(one), "eventfd");
    pthread_join(s->acceptor, NULL);
    for (size_t i = 0; i < SLOTS; i++) {
        if (s->slots[i].used) {
            pthread_join(s->slots[i].thread, NULL);
        }
    }
    close(s->listener);
    close(s->stop);
    pthread_mutex_destroy(&s->lock);
    hf_free(s);
}

uint16_t hf_httpd_port(const struct hf_httpd *s)
{
    return s->port;
}

void hf_httpd_release(struct hf_httpd *s)
{
    atomic_fetch_add(&s->releases, 1);
}

unsigned hf_httpd_requests(struct hf_httpd *s)
{
    return atomic_load(&s->requests);
}

unsigned hf_httpd_connections(struct hf_httpd *s)
{
    return atomic_load(&s->connections);
}

uint16_t hf_httpd_refusing_port(void)
{
    uint16_t port;
    close(loopback(&port));
    return port;
}

void hf_httpd_play(void *script, const struct hf_httpd_request *rq, struct hf_httpd_reply *ret)
{
    (void)rq;
    struct hf_httpd_script *s = script;
    *ret = s->replies[s->next];
    if (s->next + 1 < s->len) {
        s->next++;
    }
}
