/* SPDX-License-Identifier: Apache-2.0
 *
 * base/http over real sockets: what goes out on the wire, what comes back, and every way in which
 * a server can fail to answer. The four rules of base/loop.h are checked for each transfer.
 */
#include "base/prelude.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>

#include <cmocka.h>

#include "base/http.h"
#include "support_httpd.h"
#include "support_loop.h"

struct fixture {
    struct hf_loop loop;
    struct hf_http *http;
    struct hf_httpd *server;
    struct hf_httpd_reply reply; /* what the server gives */
    struct hf_httpd_request got; /* what it got last */
};

/* One transfer of a test. */
struct call {
    struct hf_http_req req;
    struct hf_err err; /* code HF_OK: a reply */
    int reported;
    bool starting;
};

static void on_request(void *user, const struct hf_httpd_request *rq, struct hf_httpd_reply *ret)
{
    struct fixture *f = user;
    f->got = *rq;
    *ret = f->reply;
}

static int setup(void **state)
{
    struct fixture *f = HF_NEW(struct fixture);
    assert_int_equal(hf_loop_init(&f->loop, NULL), HF_OK);
    f->http = hf_http_new(&f->loop);
    f->server = hf_httpd_start(on_request, f);
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *f = *state;
    hf_httpd_stop(f->server);
    hf_http_free(f->http);
    hf_test_loop_close(&f->loop);
    hf_free(f);
    return 0;
}

static void on_done(void *user, const struct hf_err *err)
{
    struct call *c = user;
    assert_false(c->starting);
    c->reported++;
    if (err != NULL) {
        c->err = *err;
    }
}

static bool has_reported(void *user)
{
    return ((struct call *)user)->reported > 0;
}

static void start(struct fixture *f, struct call *c, struct hf_op **ret_op)
{
    struct hf_err err;
    c->starting = true;
    assert_int_equal(hf_http_start(f->http, NULL, &c->req, on_done, c, ret_op, &err), HF_OK);
    c->starting = false;
}

static void make(const struct fixture *f, struct call *c, const char *method, const char *path)
{
    memset(c, 0, sizeof(*c));
    hf_http_req_init(&c->req, method, 1000);
    hf_http_req_url(&c->req, "http://127.0.0.1:%u%s", (unsigned)hf_httpd_port(f->server), path);
    c->req.metadata = true;
    c->req.total_ms = 2000;
}

static void finish(struct fixture *f, struct call *c)
{
    assert_true(hf_test_run_until(&f->loop, has_reported, c, 10000));
    assert_int_equal(c->reported, 1);
}

static void gets_a_reply(void **state)
{
    struct fixture *f = *state;
    struct call c;
    make(f, &c, "GET", "/a/b?c=d");
    hf_http_req_header(&c.req, "X-Thing: %d", 7);
    f->reply = (struct hf_httpd_reply){.status = 404, .body = "nothing here"};
    snprintf(f->reply.headers, sizeof(f->reply.headers),
             "X-One:   spaced  \r\nDate: Tue, 09 Aug 2022 17:07:32 GMT\r\nx-one: second\r\n");
    start(f, &c, NULL);
    finish(f, &c);
    assert_int_equal(c.err.code, HF_OK);
    assert_int_equal(c.req.status, 404);
    assert_string_equal(hf_buf_str(&c.req.reply), "nothing here");
    assert_string_equal(hf_http_reply_header(&c.req, "x-ONE"), "spaced");
    assert_string_equal(hf_http_reply_header(&c.req, "date"), "Tue, 09 Aug 2022 17:07:32 GMT");
    assert_null(hf_http_reply_header(&c.req, "X-On"));
    assert_null(hf_http_reply_header(&c.req, "missing"));
    assert_true(c.req.connected);
    assert_true(c.req.sent_ns > 0 && c.req.done_ns >= c.req.sent_ns);
    char value[32];
    assert_int_equal(hf_httpd_header(&f->got, "X-Thing", value, sizeof(value)), 1);
    assert_string_equal(value, "7");
    assert_string_equal(f->got.path, "/a/b?c=d");
    hf_http_req_release(&c.req);
}

/* Metadata services take neither chunked bodies nor Expect, and a PUT needs its length. */
static void bodies_on_the_wire(void **state)
{
    struct fixture *f = *state;
    static const struct {
        const char *method, *body, *length;
    } rows[] = {
        {"PUT", "", "0"},  {"PUT", "abc", "3"},  {"POST", "", "0"},
        {"GET", "", NULL}, {"DELETE", "", NULL}, {"POST", "{\"a\":1}", "7"},
    };
    for (size_t i = 0; i < HF_COUNT(rows); i++) {
        struct call c;
        make(f, &c, rows[i].method, "/x");
        assert_int_equal(hf_buf_add(&c.req.body, rows[i].body, strlen(rows[i].body), NULL), HF_OK);
        f->reply = (struct hf_httpd_reply){.status = 200};
        start(f, &c, NULL);
        finish(f, &c);
        assert_int_equal(c.req.status, 200);
        assert_string_equal(f->got.method, rows[i].method);
        assert_string_equal(f->got.body, rows[i].body);
        char value[32] = "";
        unsigned lengths = hf_httpd_header(&f->got, "Content-Length", value, sizeof(value));
        assert_int_equal(lengths, rows[i].length != NULL);
        assert_string_equal(value, rows[i].length != NULL ? rows[i].length : "");
        assert_int_equal(hf_httpd_header(&f->got, "Transfer-Encoding", NULL, 0), 0);
        assert_int_equal(hf_httpd_header(&f->got, "Expect", NULL, 0), 0);
        assert_int_equal(hf_httpd_header(&f->got, "Content-Type", NULL, 0), 0);
        hf_http_req_release(&c.req);
    }
    assert_int_equal(hf_httpd_connections(f->server), 1); /* kept alive over all of them */
}

static void failures(void **state)
{
    struct fixture *f = *state;
    static const struct {
        const char *what;
        struct hf_httpd_reply reply;
        enum hf_rc code;
        bool connected;
        const char *text;
    } rows[] = {
        {"never answers", {.act = HF_HTTPD_MUTE}, HF_ETIMEOUT, true, "no complete answer within"},
        {"answers late", {.delay_ms = 5000}, HF_ETIMEOUT, true, "connected, but"},
        {"drops", {.act = HF_HTTPD_DROP}, HF_EIO, true, "Empty reply"},
        {"cut short", {.act = HF_HTTPD_CUT, .body = "0123456789"}, HF_EIO, true, "GET '"},
        {"too long", {.body = "x", .filler_bytes = 1000}, HF_EFULL, true, "longer than 1000"},
        {"far too long", {.filler_bytes = 50u << 20}, HF_EFULL, true, "longer than 1000"},
    };
    for (size_t i = 0; i < HF_COUNT(rows); i++) {
        struct call c;
        make(f, &c, "GET", "/x");
        c.req.total_ms = 150;
        f->reply = rows[i].reply;
        uint64_t begin_ns = hf_now_ns();
        start(f, &c, NULL);
        finish(f, &c);
        if (c.err.code != rows[i].code || strstr(c.err.msg, rows[i].text) == NULL ||
            c.req.connected != rows[i].connected || c.req.status != 0) {
            fail_msg("%s: %s, '%s', connected %d, status %d", rows[i].what, hf_rc_name(c.err.code),
                     c.err.msg, c.req.connected, c.req.status);
        }
        assert_true(hf_now_ns() - begin_ns < 1500 * HF_MS);
        hf_http_req_release(&c.req);
    }
}

static void exactly_the_maximum(void **state)
{
    struct fixture *f = *state;
    struct call c;
    make(f, &c, "GET", "/x");
    f->reply = (struct hf_httpd_reply){.filler_bytes = 1000};
    start(f, &c, NULL);
    finish(f, &c);
    assert_int_equal(c.err.code, HF_OK);
    assert_int_equal(c.req.reply.len, 1000);
    hf_http_req_release(&c.req);
}

static void no_connection(void **state)
{
    struct fixture *f = *state;
    static const struct {
        const char *url;
        enum hf_rc code;
        const char *text;
    } rows[] = {
        {NULL, HF_EIO, "Connection refused"},
        {"https://127.0.0.1:1/x", HF_EINVAL, "expected 'http://...'"},
        {"file:///etc/passwd", HF_EINVAL, "expected 'http://...'"},
        {"http://", HF_EINVAL, "not an address"},
        {"ht tp://x/", HF_EINVAL, "not an address"},
    };
    for (size_t i = 0; i < HF_COUNT(rows); i++) {
        struct call c;
        make(f, &c, "GET", "/x");
        if (rows[i].url != NULL) {
            hf_http_req_url(&c.req, "%s", rows[i].url);
        } else {
            hf_http_req_url(&c.req, "http://127.0.0.1:%u/", (unsigned)hf_httpd_refusing_port());
        }
        start(f, &c, NULL);
        finish(f, &c);
        if (c.err.code != rows[i].code || strstr(c.err.msg, rows[i].text) == NULL ||
            c.req.connected) {
            fail_msg("'%s': %s, '%s'", rows[i].url, hf_rc_name(c.err.code), c.err.msg);
        }
        hf_http_req_release(&c.req);
    }
}

static void follows_no_redirect(void **state)
{
    struct fixture *f = *state;
    struct call c;
    make(f, &c, "GET", "/x");
    f->reply = (struct hf_httpd_reply){.status = 302};
    snprintf(f->reply.headers, sizeof(f->reply.headers), "Location: http://127.0.0.1:%u/y\r\n",
             (unsigned)hf_httpd_port(f->server));
    start(f, &c, NULL);
    finish(f, &c);
    assert_int_equal(c.req.status, 302);
    assert_int_equal(hf_httpd_requests(f->server), 1);
    hf_http_req_release(&c.req);
}

/* The environment names a proxy where nobody listens: metadata requests never see it, while others
 * do (which shows that the variable is really in force). */
static void proxies(void **state)
{
    struct fixture *f = *state;
    char proxy[64];
    snprintf(proxy, sizeof(proxy), "http://127.0.0.1:%u", (unsigned)hf_httpd_refusing_port());
    static const char *const names[] = {"http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"};
    for (size_t i = 0; i < HF_COUNT(names); i++) {
        setenv(names[i], proxy, 1);
    }
    unsetenv("no_proxy");
    unsetenv("NO_PROXY");
    f->reply = (struct hf_httpd_reply){.status = 200};
    for (int metadata = 0; metadata < 2; metadata++) {
        struct call c;
        make(f, &c, "GET", "/x");
        c.req.metadata = metadata;
        start(f, &c, NULL);
        finish(f, &c);
        assert_int_equal(c.err.code, metadata ? HF_OK : HF_EIO);
        assert_int_equal(hf_httpd_requests(f->server), metadata);
        hf_http_req_release(&c.req);
    }
    for (size_t i = 0; i < HF_COUNT(names); i++) {
        unsetenv(names[i]);
    }
}

static void cancel(void **state)
{
    struct fixture *f = *state;
    f->reply = (struct hf_httpd_reply){.act = HF_HTTPD_MUTE};
    struct call c;
    struct hf_op *op;
    make(f, &c, "GET", "/x");
    start(f, &c, &op);
    hf_op_cancel(op);
    hf_op_cancel(op);
    assert_int_equal(c.reported, 0);
    finish(f, &c);
    assert_int_equal(c.err.code, HF_ECANCELED);
    hf_http_req_release(&c.req);
}

static bool has_asked(void *user)
{
    return hf_httpd_requests(user) > 0;
}

static void cancel_in_flight(void **state)
{
    struct fixture *f = *state;
    f->reply = (struct hf_httpd_reply){.act = HF_HTTPD_MUTE};
    struct call c;
    struct hf_op *op;
    make(f, &c, "GET", "/x");
    start(f, &c, &op);
    assert_true(hf_test_run_until(&f->loop, has_asked, f->server, 5000));
    hf_op_cancel(op);
    finish(f, &c);
    assert_int_equal(c.err.code, HF_ECANCELED);
    hf_http_req_release(&c.req);
}

struct many {
    struct fixture *f;
    struct call calls[20];
    size_t reported;
};

static bool all_reported(void *user)
{
    struct many *m = user;
    m->reported = 0;
    for (size_t i = 0; i < HF_COUNT(m->calls); i++) {
        m->reported += m->calls[i].reported > 0;
    }
    return m->reported == HF_COUNT(m->calls);
}

static void many_at_once(void **state)
{
    struct fixture *f = *state;
    struct many m = {.f = f};
    f->reply = (struct hf_httpd_reply){.body = "ok", .delay_ms = 20};
    for (size_t i = 0; i < HF_COUNT(m.calls); i++) {
        make(f, &m.calls[i], "GET", "/x");
        start(f, &m.calls[i], NULL);
    }
    assert_true(hf_test_run_until(&f->loop, all_reported, &m, 10000));
    for (size_t i = 0; i < HF_COUNT(m.calls); i++) {
        assert_int_equal(m.calls[i].reported, 1);
        assert_int_equal(m.calls[i].req.status, 200);
        hf_http_req_release(&m.calls[i].req);
    }
}

/* A request is started again from its own done: the pattern of the watcher. */
struct chain {
    struct fixture *f;
    struct hf_http_req req;
    int left;
};

static void next_link(void *user, const struct hf_err *err)
{
    struct chain *c = user;
    assert_null(err);
    assert_string_equal(hf_buf_str(&c->req.reply), "ok");
    if (--c->left > 0) {
        assert_int_equal(hf_http_start(c->f->http, NULL, &c->req, next_link, c, NULL, NULL), HF_OK);
    }
}

static bool at_end(void *user)
{
    return ((struct chain *)user)->left == 0;
}

static void starts_again_from_done(void **state)
{
    struct fixture *f = *state;
    f->reply = (struct hf_httpd_reply){.body = "ok"};
    struct chain c = {.f = f, .left = 200};
    hf_http_req_init(&c.req, "GET", 100);
    hf_http_req_url(&c.req, "http://127.0.0.1:%u/", (unsigned)hf_httpd_port(f->server));
    assert_int_equal(hf_http_start(f->http, NULL, &c.req, next_link, &c, NULL, NULL), HF_OK);
    assert_true(hf_test_run_until(&f->loop, at_end, &c, 10000));
    assert_int_equal(hf_httpd_connections(f->server), 1);
    hf_http_req_release(&c.req);
}

#define FD_LIMIT 256

static bool is_socket(int fd)
{
    struct stat st;
    return fstat(fd, &st) == 0 && S_ISSOCK(st.st_mode);
}

/* Sockets of libcurl's would be inherited by the training program. */
static void sockets_are_not_inherited(void **state)
{
    struct fixture *f = *state;
    bool before[FD_LIMIT];
    for (int fd = 0; fd < FD_LIMIT; fd++) {
        before[fd] = is_socket(fd);
    }
    f->reply = (struct hf_httpd_reply){.act = HF_HTTPD_MUTE};
    struct call c;
    struct hf_op *op;
    make(f, &c, "GET", "/x");
    start(f, &c, &op);
    assert_true(hf_test_run_until(&f->loop, has_asked, f->server, 5000));
    unsigned sockets = 0, bad = 0;
    for (int fd = 0; fd < FD_LIMIT; fd++) {
        if (is_socket(fd) && !before[fd]) {
            sockets++;
            bad += !(fcntl(fd, F_GETFD) & FD_CLOEXEC);
        }
    }
    hf_op_cancel(op);
    finish(f, &c);
    hf_http_req_release(&c.req);
    assert_true(sockets >= 2); /* both ends at least */
    assert_int_equal(bad, 0);
}

static void nothing_asked(void **state)
{
    (void)state;
    struct hf_loop loop;
    assert_int_equal(hf_loop_init(&loop, NULL), HF_OK);
    struct hf_http *http = hf_http_new(&loop);
    struct hf_http_req req;
    struct hf_err err;
    hf_http_req_init(&req, "GET", 10);
    assert_int_equal(hf_http_start(http, NULL, &req, on_done, NULL, NULL, &err), HF_EINVAL);
    assert_int_equal(loop.live, 0);
    hf_http_req_release(&req);
    hf_http_free(http);
    hf_http_free(NULL);
    hf_test_loop_close(&loop);
}

int main(void)
{
#define WITH(test) cmocka_unit_test_setup_teardown(test, setup, teardown)
    const struct CMUnitTest tests[] = {
        WITH(gets_a_reply),
        WITH(bodies_on_the_wire),
        WITH(failures),
        WITH(exactly_the_maximum),
        WITH(no_connection),
        WITH(follows_no_redirect),
        WITH(proxies),
        WITH(cancel),
        WITH(cancel_in_flight),
        WITH(many_at_once),
        WITH(starts_again_from_done),
        WITH(sockets_are_not_inherited),
        cmocka_unit_test(nothing_asked),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
