/* SPDX-License-Identifier: Apache-2.0
 *
 * cloud/transfer against a server of a few lines: what is a whole reply and what is not, where a
 * body goes, and how soon a cancel or a deadline is seen by an exchange that waits.
 */
#include "base/prelude.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"
#include "cloud/transfer.h"
#include "tests/unit/support_conform_store.h"

/* Answers each connection with the same text once a request's head has come, and closes. */
struct server {
    int fd;
    uint16_t port;
    const char *reply; /* NULL: never answers */
    pthread_t thread;
};

static void *serve(void *user)
{
    struct server *s = user;
    for (int c = accept(s->fd, NULL, NULL); c >= 0; c = accept(s->fd, NULL, NULL)) {
        char head[4096];
        size_t len = 0;
        ssize_t n = 1;
        while (n > 0 && len + 1 < sizeof(head) && (len < 4 || strstr(head, "\r\n\r\n") == NULL)) {
            n = read(c, head + len, sizeof(head) - 1 - len);
            len += n > 0 ? (size_t)n : 0;
            head[len] = '\0';
        }
        n = write(c, s->reply, strlen(s->reply));
        assert_int_equal(n, strlen(s->reply));
        close(c);
    }
    return NULL;
}

static void start(struct server *s, const char *reply)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof(at);
    *s = (struct server){.fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), .reply = reply};
    assert_int_equal(bind(s->fd, (struct sockaddr *)&at, len), 0);
    assert_int_equal(listen(s->fd, 8), 0);
    assert_int_equal(getsockname(s->fd, (struct sockaddr *)&at, &len), 0);
    s->port = ntohs(at.sin_port);
    if (reply != NULL) { /* else the kernel takes the connection, and nobody reads it */
        assert_int_equal(pthread_create(&s->thread, NULL, serve, s), 0);
    }
}

static void stop(struct server *s)
{
    shutdown(s->fd, SHUT_RDWR);
    if (s->reply != NULL) {
        pthread_join(s->thread, NULL);
    }
    close(s->fd);
}

static enum hf_rc get(const struct server *s, const struct hf_call *c, const char *proof,
                      struct hf_reply *ret, struct hf_err *err)
{
    struct hf_transfers_cfg cfg = {.direct = true};
    struct hf_transfers *t = NULL;
    expect_rc(hf_transfers_new(&cfg, &t, err), HF_OK, err);
    struct hf_request req = {.method = "GET",
                             .url = hf_asprintf("http://127.0.0.1:%u/x", (unsigned)s->port),
                             .proof = proof};
    enum hf_rc rc = hf_transfer(t, c, &req, ret, err);
    hf_request_release(&req);
    hf_transfers_free(t);
    return rc;
}

static void replies(void **state)
{
    (void)state;
    static const struct {
        const char *reply;
        enum hf_rc want;
        int status;
        const char *body, *error; /* where what came is */
    } rows[] = {
        {"HTTP/1.1 200 OK\r\nETag: 1\r\nContent-Length: 3\r\n\r\nabc", HF_OK, 200, "abc", ""},
        {"HTTP/1.1 200 OK\r\nETag: 1\r\nContent-Length: 0\r\n\r\n", HF_OK, 200, "", ""},
        {"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nlogin", HF_OK, 200, "", "login"},
        {"HTTP/1.1 404 No\r\nETag: 1\r\nContent-Length: 2\r\n\r\nno", HF_OK, 404, "", "no"},
        {"HTTP/1.1 100 Go on\r\nETag: 1\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nx",
         HF_OK, 200, "", "x"},
        {"HTTP/1.1 200 OK\r\nETag: 1\r\nContent-Length: 9\r\n\r\nabc", HF_EAGAIN, 0, "", NULL},
        {"HTTP/1.1 200 OK\r\nETag: 1\r\nContent-Len", HF_EAGAIN, 0, "", NULL},
        {"HTTP/1.1 200 OK\r\nETag: 1\r\n", HF_EAGAIN, 0, "", NULL},
        {"HTTP/1.1 2", HF_EAGAIN, 0, "", NULL},
        {"", HF_EAGAIN, 0, "", NULL},
        {"HTTP/1.1 200 OK\r\nETag: 1\r\nContent-Length: 11\r\n\r\n12345678901", HF_EFULL, 0, "",
         NULL},
        {"HTTP/1.1 302 Go\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 0\r\n\r\n", HF_OK,
         302, "", ""},
    };
    for (size_t i = 0; i < HF_COUNT(rows); i++) {
        struct server s;
        start(&s, rows[i].reply);
        struct hf_buf body;
        hf_buf_init(&body, 14);
        expect_rc(hf_buf_add(&body, "old:", 4, NULL), HF_OK, NULL);
        struct hf_reply reply = {.body = &body};
        struct hf_err err = {.code = HF_OK};
        enum hf_rc rc = get(&s, NULL, "etag", &reply, &err);
        stop(&s);
        if (rc != rows[i].want || strcmp(hf_buf_str(&body) + 4, rows[i].body) != 0) {
            fail_msg("row %zu: %s, '%s': %s", i, hf_rc_name(rc), hf_buf_str(&body), err.msg);
        }
        if (rc == HF_OK) {
            assert_int_equal(reply.status, rows[i].status);
            assert_string_equal(hf_buf_str(&reply.error), rows[i].error);
        }
        hf_reply_release(&reply);
        hf_buf_release(&body);
    }
}

/* The whole of what a silent server can cost. */
static void a_deadline_is_seen_while_nothing_comes(void **state)
{
    (void)state;
    struct server s;
    start(&s, NULL);
    struct hf_call c = {.deadline_ns = hf_now_ns() + 100 * HF_MS};
    struct hf_reply reply = {.body = NULL};
    struct hf_err err = {.code = HF_OK};
    expect_rc(get(&s, &c, NULL, &reply, &err), HF_ETIMEOUT, &err);
    uint64_t late_ns = hf_now_ns() - c.deadline_ns;
    if (late_ns > 500 * HF_MS) {
        fail_msg("%.0f ms after the deadline", (double)late_ns / 1e6);
    }
    hf_reply_release(&reply);
    stop(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(replies),
                                       cmocka_unit_test(a_deadline_is_seen_while_nothing_comes)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
