/* SPDX-License-Identifier: Apache-2.0
 *
 * base/http against a server that means it: answers cut at every byte, lengths that lie, headers
 * without end, answers to questions not yet asked, silence and rubbish. Each time there is one
 * report, in time, that says what happened, and the client still works afterwards.
 */
#include "base/prelude.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/http.h"
#include "support_loop.h"
#include "support_rawd.h"
#include "support_seed.h"

#define REPLY_MAX 1000
#define SHORT_MS  200
#define SLACK_MS  1500

struct fixture {
    struct hf_loop loop;
    struct hf_http *http;
    struct hf_rawd *server;
};

struct call {
    struct hf_http_req req;
    struct hf_err err;
    int reported;
};

static int setup(void **state)
{
    struct fixture *f = HF_NEW(struct fixture);
    assert_int_equal(hf_loop_init(&f->loop, NULL), HF_OK);
    f->http = hf_http_new(&f->loop);
    f->server = hf_rawd_start();
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *f = *state;
    hf_http_free(f->http);
    hf_test_loop_close(&f->loop);
    hf_rawd_stop(f->server);
    hf_free(f);
    return 0;
}

static void on_done(void *user, const struct hf_err *err)
{
    struct call *c = user;
    c->reported++;
    c->err = err != NULL ? *err : (struct hf_err){.code = HF_OK};
}

static bool has_reported(void *user)
{
    return ((struct call *)user)->reported > 0;
}

static void run(struct fixture *f, struct call *c)
{
    struct hf_err err;
    uint64_t from_ns = hf_now_ns();
    c->reported = 0;
    assert_int_equal(hf_http_start(f->http, NULL, &c->req, on_done, c, NULL, &err), HF_OK);
    while (!has_reported(c)) {
        uv_run(&f->loop.uv, UV_RUN_ONCE);
    }
    uv_run(&f->loop.uv, UV_RUN_NOWAIT);
    assert_int_equal(c->reported, 1);
    uint64_t spent_ms = (hf_now_ns() - from_ns) / HF_MS;
    if (spent_ms > c->req.total_ms + SLACK_MS) {
        fail_msg("%u ms allowed, %u spent", c->req.total_ms, (unsigned)spent_ms);
    }
    assert_true(c->req.done_ns >= c->req.sent_ns && c->req.sent_ns >= from_ns);
    assert_true(c->req.reply.len <= REPLY_MAX);
    /* Either a whole reply or a reason that names the address. */
    assert_int_equal(c->req.status == 0, c->err.code != HF_OK);
    if (c->err.code != HF_OK && strstr(c->err.msg, c->req.url) == NULL) {
        fail_msg("'%s'", c->err.msg);
    }
}

static void make(const struct fixture *f, struct call *c, const char *method, uint32_t total_ms)
{
    memset(c, 0, sizeof(*c));
    hf_http_req_init(&c->req, method, REPLY_MAX);
    hf_http_req_url(&c->req, "http://127.0.0.1:%u/x", (unsigned)hf_rawd_port(f->server));
    c->req.metadata = true;
    c->req.total_ms = total_ms;
}

/* The client still works: a plain question has its plain answer. */
static void still_works(struct fixture *f)
{
    static const char fine[] = "HTTP/1.1 200 OK\r\nContent-Length: 4\r\nX-Is: fine\r\n\r\nfine";
    struct call c;
    hf_rawd_set(f->server, &(struct hf_rawd_say){.data = fine, .len = sizeof(fine) - 1});
    make(f, &c, "GET", 5000);
    run(f, &c);
    if (c.err.code != HF_OK || c.req.status != 200 ||
        strcmp(hf_buf_str(&c.req.reply), "fine") != 0) {
        fail_msg("afterwards: status %d, '%s', '%s'", c.req.status, hf_buf_str(&c.req.reply),
                 c.err.msg);
    }
    assert_string_equal(hf_http_reply_header(&c.req, "x-is"), "fine");
    assert_null(c.req.reply_headers[2]);
    hf_http_req_release(&c.req);
}

static void say(struct fixture *f, const char *data, size_t len, enum hf_rawd_after after)
{
    hf_rawd_set(f->server, &(struct hf_rawd_say){.data = data, .len = len, .after = after});
}

/* Cut short, by a close and by a reset, at every byte: only the whole is a reply. */
static void cut_at_every_byte(void **state)
{
    struct fixture *f = *state;
    static const struct {
        const char *data, *body;
        int status;
        size_t spare; /* bytes at the end that change nothing */
    } rows[] = {
        {"HTTP/1.1 200 OK\r\nServer: x\r\nContent-Length: 5\r\n\r\nhello", "hello", 200, 0},
        {"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n", "", 404, 0},
        {"HTTP/1.1 200 OK\r\nTransfer-Encoding: "
         "chunked\r\n\r\n3\r\nhel\r\n2;a=b\r\nlo\r\n0\r\n\r\n",
         "hello", 200, 1},
        {"HTTP/1.1 103 Early\r\nLink: y\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok",
         "ok", 200, 0},
        {"HTTP/1.0 204 No Content\r\n\r\n", "", 204, 0},
    };
    for (size_t i = 0; i < HF_COUNT(rows) * 2; i++) {
        size_t row = i / 2, len = strlen(rows[row].data);
        enum hf_rawd_after after = i % 2 == 0 ? HF_RAWD_CLOSE : HF_RAWD_RESET;
        for (size_t n = 0; n <= len; n++) {
            struct call c;
            say(f, rows[row].data, n, after);
            make(f, &c, "GET", 3000);
            run(f, &c);
            bool whole = c.err.code == HF_OK;
            /* A reset may overtake the end of a whole answer. */
            bool may = n + rows[row].spare >= len;
            bool right = c.err.code == HF_EIO ? n < len || after == HF_RAWD_RESET : whole && may;
            if (!right || (whole && (c.req.status != rows[row].status ||
                                     strcmp(hf_buf_str(&c.req.reply), rows[row].body) != 0))) {
                fail_msg("%zu of %zu bytes of '%s': status %d, '%s', '%s'", n, len, rows[row].data,
                         c.req.status, hf_buf_str(&c.req.reply), c.err.msg);
            }
            hf_http_req_release(&c.req);
        }
        still_works(f);
    }
}

/* What a wrong answer gives. code HF_OK: a reply with that status and body. */
struct wrong {
    const char *data;
    enum hf_rc code;
    int status;
    const char *body;
};

static void check_row(struct fixture *f, const struct wrong *w, const char *method,
                      enum hf_rawd_after after)
{
    struct call c;
    say(f, w->data, strlen(w->data), after);
    make(f, &c, method, SHORT_MS);
    run(f, &c);
    if (c.err.code != w->code || c.req.status != w->status ||
        (w->code == HF_OK && strcmp(hf_buf_str(&c.req.reply), w->body) != 0)) {
        fail_msg("'%s': %s, status %d, '%s', '%s'", w->data, hf_rc_name(c.err.code), c.req.status,
                 hf_buf_str(&c.req.reply), c.err.msg);
    }
    hf_http_req_release(&c.req);
    still_works(f);
}

#define OK     "HTTP/1.1 200 OK\r\n"
#define LENGTH "Content-Length: "
#define CHUNKS OK "Transfer-Encoding: chunked\r\n\r\n"

static void answers_that_lie(void **state)
{
    struct fixture *f = *state;
    static const struct wrong rows[] = {
        /* Lengths. */
        {OK LENGTH "9\r\n\r\nhello", HF_EIO, 0, NULL},
        {OK LENGTH "2\r\n\r\nhello", HF_OK, 200, "he"},
        {OK LENGTH "-5\r\n\r\nhello", HF_EIO, 0, NULL},
        {OK LENGTH "99999999999999999999999\r\n\r\nhello", HF_OK, 200, "hello"} /* not heeded */,
        {OK LENGTH "9223372036854775807\r\n\r\nhello", HF_EIO, 0, NULL},
        {OK LENGTH "\r\n\r\nhello", HF_EIO, 0, NULL},
        {OK LENGTH "0\r\n\r\nHTTP/1.1 500 No\r\n\r\n", HF_OK, 200, ""},
        {OK "\r\nuntil the end", HF_OK, 200, "until the end"},
        /* Chunks. */
        {CHUNKS "5\r\nhello\r\n0\r\n\r\n", HF_OK, 200, "hello"},
        {CHUNKS "5\r\nhello\r\n0\r\nX-Trailer: 1\r\n\r\n", HF_OK, 200, "hello"},
        {CHUNKS "zz\r\nhello\r\n0\r\n\r\n", HF_EIO, 0, NULL},
        {CHUNKS "-1\r\nhello\r\n0\r\n\r\n", HF_EIO, 0, NULL},
        {CHUNKS "fffffffffffffffffffff\r\nhello", HF_EIO, 0, NULL},
        {CHUNKS "7fffffffffffffff\r\nhello", HF_EIO, 0, NULL},
        {CHUNKS "5\r\nhelloXX0\r\n\r\n", HF_EIO, 0, NULL},
        {CHUNKS "3\r\nhello\r\n0\r\n\r\n", HF_EIO, 0, NULL},
        {CHUNKS "\r\n\r\n", HF_EIO, 0, NULL},
        /* No HTTP. */
        {"hello", HF_EIO, 0, NULL},
        {"HTTP/1.1", HF_EIO, 0, NULL},
        {"HTTP/1.1 \r\n\r\n", HF_EIO, 0, NULL},
        {"SSH-2.0-OpenSSH_9.2\r\n", HF_EIO, 0, NULL},
        {"\x16\x03\x01\x02", HF_EIO, 0, NULL},
        {"HTTP/9.9 200 OK\r\n\r\n", HF_EIO, 0, NULL},
        {"\r\n\r\n\r\n", HF_EIO, 0, NULL},
        /* Bodies where none belongs. */
        {"HTTP/1.1 204 No Content\r\n" LENGTH "5\r\n\r\nhello", HF_OK, 204, ""},
        {"HTTP/1.1 304 Not Modified\r\n" LENGTH "5\r\n\r\nhello", HF_OK, 304, ""},
        /* Before the answer. */
        {"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 102 Processing\r\nX: 1\r\n\r\n" OK LENGTH
         "2\r\n\r\nok",
         HF_OK, 200, "ok"},
        {"HTTP/1.1 100 Continue\r\n\r\n", HF_EIO, 0, NULL},
        /* Elsewhere. */
        {"HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:1/\r\n" LENGTH "0\r\n\r\n", HF_OK, 302,
         ""},
        {"HTTP/1.1 401 Who\r\nWWW-Authenticate: Basic realm=\"x\"\r\n" LENGTH "0\r\n\r\n", HF_OK,
         401, ""},
    };
    for (size_t i = 0; i < HF_COUNT(rows); i++) {
        check_row(f, &rows[i], "GET", HF_RAWD_CLOSE);
    }
    /* A question for the head alone has no body, whatever is sent. */
    struct wrong head = {OK LENGTH "5\r\n\r\nhello", HF_OK, 200, ""};
    check_row(f, &head, "HEAD", HF_RAWD_KEEP);
    check_row(f, &head, "HEAD", HF_RAWD_CLOSE);
}

/* What stays behind in a kept connection is never taken for the next answer. */
static void left_over_bytes(void **state)
{
    struct fixture *f = *state;
    static const struct wrong rows[] = {
        {OK LENGTH "2\r\n\r\nokHTTP/1.1 500 Evil\r\n" LENGTH "0\r\n\r\n", HF_OK, 200, "ok"},
        {"HTTP/1.1 204 No\r\n\r\nHTTP/1.1 500 Evil\r\n" LENGTH "0\r\n\r\n", HF_OK, 204, ""},
        {CHUNKS "2\r\nok\r\n0\r\n\r\nHTTP/1.1 500 Evil\r\n" LENGTH "0\r\n\r\n", HF_OK, 200, "ok"},
    };
    for (size_t i = 0; i < HF_COUNT(rows) * 5; i++) {
        check_row(f, &rows[i / 5], "GET", HF_RAWD_KEEP);
    }
}

/* Headers */

static void headers_of_all_sizes(void **state)
{
    struct fixture *f = *state;
    static const struct {
        size_t lines, line;
        enum hf_rc code;
        size_t kept;
    } rows[] = {
        {1, 1000, HF_OK, 1},       {1, 1024, HF_OK, 1},     {1, 1025, HF_OK, 0},
        {1, 60000, HF_OK, 0},      {1, 70000, HF_EFULL, 0}, {1, 200000, HF_EFULL, 0},
        {60, 1000, HF_OK, 22},     {70, 1000, HF_EFULL, 0}, {4000, 12, HF_OK, 22},
        {200000, 12, HF_EFULL, 0},
    };
    for (size_t i = 0; i < HF_COUNT(rows); i++) {
        struct hf_buf b;
        hf_buf_init(&b, 16u << 20);
        assert_int_equal(hf_buf_addf(&b, NULL, OK LENGTH "2\r\n"), HF_OK);
        for (size_t k = 0; k < rows[i].lines; k++) {
            assert_int_equal(hf_buf_addf(&b, NULL, "X-H: %0*d\r\n", (int)rows[i].line - 5, 7),
                             HF_OK);
        }
        assert_int_equal(hf_buf_addf(&b, NULL, "\r\nok"), HF_OK);
        struct call c;
        say(f, b.data, b.len, HF_RAWD_KEEP);
        make(f, &c, "GET", 3000);
        run(f, &c);
        if (c.err.code != rows[i].code) {
            fail_msg("%zu lines of %zu: %s, '%s'", rows[i].lines, rows[i].line,
                     hf_rc_name(c.err.code), c.err.msg);
        }
        if (rows[i].code == HF_EFULL) {
            assert_non_null(strstr(c.err.msg, "headers"));
        } else {
            size_t n = 0;
            while (c.req.reply_headers[n] != NULL) {
                n++;
            }
            assert_int_equal(n, rows[i].kept + 1);
            const char *value = hf_http_reply_header(&c.req, "X-H");
            assert_int_equal(value != NULL ? strlen(value) + 5 : 0, n > 1 ? rows[i].line : 0);
        }
        hf_http_req_release(&c.req);
        hf_buf_release(&b);
        still_works(f);
    }
}

/* A server that never comes to the point. */
static void without_end(void **state)
{
    struct fixture *f = *state;
    static const struct {
        const char *first, *data;
        enum hf_rc code;
    } rows[] = {
        {"interim answers", "HTTP/1.1 100 Continue\r\n\r\n", HF_EFULL},
        {"a header line", "XXXXXXXXXXXXXXXXXXXXXXXXXXXXXXXXX", HF_EIO},
        {"a body",
         CHUNKS "40\r\n0123456789012345678901234567890123456789012345678901234567890123\r\n",
         HF_EIO},
    };
    for (size_t i = 0; i < HF_COUNT(rows); i++) {
        struct call c;
        hf_rawd_set(f->server, &(struct hf_rawd_say){.data = rows[i].data,
                                                     .len = strlen(rows[i].data),
                                                     .for_ever = true});
        make(f, &c, "GET", 3000);
        run(f, &c);
        if (c.err.code != rows[i].code) {
            fail_msg("%s: %s, '%s'", rows[i].first, hf_rc_name(c.err.code), c.err.msg);
        }
        hf_http_req_release(&c.req);
        still_works(f);
    }
}

/* Time */

static void slow_answers(void **state)
{
    struct fixture *f = *state;
    static const char data[] = OK LENGTH "5\r\n\r\nhello";
    static const struct {
        size_t len;
        unsigned gap_ms;
        enum hf_rawd_after after;
        enum hf_rc code;
    } rows[] = {
        {sizeof(data) - 1, 1, HF_RAWD_KEEP, HF_OK},
        {sizeof(data) - 1, 30, HF_RAWD_KEEP, HF_ETIMEOUT},
        {0, 0, HF_RAWD_MUTE, HF_ETIMEOUT},
        {9, 0, HF_RAWD_MUTE, HF_ETIMEOUT},
        {sizeof(data) - 7, 0, HF_RAWD_MUTE, HF_ETIMEOUT},
        {sizeof(data) - 2, 0, HF_RAWD_MUTE, HF_ETIMEOUT},
        {0, 0, HF_RAWD_CLOSE, HF_EIO},
        {0, 0, HF_RAWD_RESET, HF_EIO},
    };
    for (size_t i = 0; i < HF_COUNT(rows); i++) {
        struct call c;
        hf_rawd_set(f->server, &(struct hf_rawd_say){.data = data,
                                                     .len = rows[i].len,
                                                     .piece = rows[i].gap_ms > 0 ? 1 : 0,
                                                     .gap_ms = rows[i].gap_ms,
                                                     .after = rows[i].after});
        make(f, &c, "GET", rows[i].code == HF_OK ? 5000 : SHORT_MS);
        run(f, &c);
        if (c.err.code != rows[i].code) {
            fail_msg("row %zu: %s, '%s'", i, hf_rc_name(c.err.code), c.err.msg);
        }
        if (rows[i].code == HF_ETIMEOUT) {
            assert_true(c.req.connected);
            assert_true(c.req.done_ns - c.req.sent_ns >= (SHORT_MS - 5) * HF_MS);
        }
        hf_http_req_release(&c.req);
        still_works(f);
    }
}

/* A body of 4 MiB that the server does not wait for, or does not take. */
static void answers_before_the_end_of_the_question(void **state)
{
    struct fixture *f = *state;
    static const char full[] =
        "HTTP/1.1 413 Too Large\r\nConnection: close\r\n" LENGTH "2\r\n\r\nno";
    static const struct {
        size_t len;
        enum hf_rawd_when when;
        enum hf_rawd_after after;
        bool status, fails; /* what it may come to */
        enum hf_rc code;
    } rows[] = {
        {sizeof(full) - 1, HF_RAWD_BODY, HF_RAWD_KEEP, true, false, HF_OK},
        {sizeof(full) - 1, HF_RAWD_HEAD, HF_RAWD_MUTE, true, false, HF_OK},
        {sizeof(full) - 1, HF_RAWD_HEAD, HF_RAWD_CLOSE, true, true, HF_EIO},
        {sizeof(full) - 1, HF_RAWD_ACCEPT, HF_RAWD_MUTE, true, true, HF_EIO},
        {0, HF_RAWD_HEAD, HF_RAWD_MUTE, false, true, HF_ETIMEOUT},
        {0, HF_RAWD_HEAD, HF_RAWD_RESET, false, true, HF_EIO},
        {20, HF_RAWD_HEAD, HF_RAWD_CLOSE, false, true, HF_EIO},
    };
    char *body = hf_calloc(4u << 20, 1);
    for (size_t i = 0; i < HF_COUNT(rows); i++) {
        struct call c;
        hf_rawd_set(f->server, &(struct hf_rawd_say){.data = full,
                                                     .len = rows[i].len,
                                                     .when = rows[i].when,
                                                     .after = rows[i].after});
        make(f, &c, "PUT", rows[i].code == HF_ETIMEOUT ? SHORT_MS : 3000);
        assert_int_equal(hf_buf_add(&c.req.body, body, 4u << 20, NULL), HF_OK);
        run(f, &c);
        bool replied = c.err.code == HF_OK && c.req.status == 413;
        if (!(rows[i].status && replied) && !(rows[i].fails && c.err.code == rows[i].code)) {
            fail_msg("row %zu: status %d, '%s'", i, c.req.status, c.err.msg);
        }
        hf_http_req_release(&c.req);
        still_works(f);
    }
    hf_free(body);
}

/* Rubbish */

static void spoilt_answers(void **state)
{
    struct fixture *f = *state;
    static const char good[] =
        OK "Date: x\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n";
    uint64_t random = hf_test_seed();
    unsigned replies = 0;
    for (int round = 0; round < 600; round++) {
        char data[sizeof(good)];
        size_t len = sizeof(good) - 1;
        memcpy(data, good, len);
        for (size_t n = 1 + hf_test_below(&random, 4); n > 0; n--) {
            data[hf_test_below(&random, len)] = (char)hf_test_random(&random);
        }
        struct call c;
        say(f, data, len, HF_RAWD_CLOSE);
        make(f, &c, "GET", 3000);
        run(f, &c);
        assert_true(c.err.code == HF_OK || c.err.code == HF_EIO || c.err.code == HF_EFULL);
        assert_true(c.err.code != HF_OK || (c.req.status >= 100 && c.req.status <= 999));
        for (size_t i = 0; i < HF_HTTP_HEADERS && c.req.reply_headers[i] != NULL; i++) {
            assert_non_null(strchr(c.req.reply_headers[i], ':'));
        }
        replies += c.err.code == HF_OK;
        hf_http_req_release(&c.req);
    }
    assert_true(replies > 20 && replies < 590);
    still_works(f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(cut_at_every_byte, setup, teardown),
        cmocka_unit_test_setup_teardown(answers_that_lie, setup, teardown),
        cmocka_unit_test_setup_teardown(left_over_bytes, setup, teardown),
        cmocka_unit_test_setup_teardown(headers_of_all_sizes, setup, teardown),
        cmocka_unit_test_setup_teardown(without_end, setup, teardown),
        cmocka_unit_test_setup_teardown(slow_answers, setup, teardown),
        cmocka_unit_test_setup_teardown(answers_before_the_end_of_the_question, setup, teardown),
        cmocka_unit_test_setup_teardown(spoilt_answers, setup, teardown),
    };
    return cmocka_run_group_tests_name("http_hostile", tests, NULL, NULL);
}
