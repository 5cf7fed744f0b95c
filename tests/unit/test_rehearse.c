/* SPDX-License-Identifier: Apache-2.0
 *
 * cloud/rehearse: the rehearsal service speaks AWS's protocol exactly, and the real watcher sees
 * its notice.
 */
#include "base/prelude.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/http.h"
#include "base/json.h"
#include "cloud/chaos.h"
#include "cloud/rehearse.h"
#include "cloud/watch.h"
#include "support_loop.h"

#define TTL   "X-aws-ec2-metadata-token-ttl-seconds"
#define TOKEN "X-aws-ec2-metadata-token"
#define PATH  "/latest/meta-data/spot/instance-action"

struct fixture {
    struct hf_loop loop;
    struct hf_http *http;
    struct hf_rehearsal *service;
    struct hf_http_req req;
    bool answered;
    struct hf_err err;
};

static int setup(void **state)
{
    struct fixture *f = HF_NEW(struct fixture);
    assert_int_equal(hf_loop_init(&f->loop, NULL), HF_OK);
    f->http = hf_http_new(&f->loop);
    assert_int_equal(hf_rehearsal_start(0, &f->service, &f->err), HF_OK);
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *f = *state;
    hf_http_req_release(&f->req);
    hf_http_free(f->http);
    hf_test_loop_close(&f->loop);
    hf_rehearsal_stop(f->service);
    hf_free(f);
    return 0;
}

static void on_done(void *user, const struct hf_err *err)
{
    struct fixture *f = user;
    f->answered = true;
    if (err != NULL) {
        f->err = *err;
    }
}

static bool is_answered(void *user)
{
    return ((struct fixture *)user)->answered;
}

/* One request; headers are lines, NULL-terminated. Returns the status; the reply is in f->req. */
static int ask(struct fixture *f, const char *method, const char *path, const char *const *headers)
{
    hf_http_req_release(&f->req);
    hf_http_req_init(&f->req, method, 4096);
    hf_http_req_url(&f->req, "http://127.0.0.1:%u%s", (unsigned)hf_rehearsal_port(f->service),
                    path);
    for (; headers != NULL && *headers != NULL; headers++) {
        hf_http_req_header(&f->req, "%s", *headers);
    }
    f->req.metadata = true;
    f->answered = false;
    f->err.code = HF_OK;
    assert_int_equal(hf_http_start(f->http, NULL, &f->req, on_done, f, NULL, NULL), HF_OK);
    assert_true(hf_test_run_until(&f->loop, is_answered, f, 10000));
    assert_int_equal(f->err.code, HF_OK);
    return f->req.status;
}

/* The header line of a fresh token; owned by the caller. */
static char *fresh_token(struct fixture *f, const char *ttl)
{
    const char *const headers[] = {ttl, NULL};
    assert_int_equal(ask(f, "PUT", "/latest/api/token", headers), 200);
    return hf_asprintf(TOKEN ": %s", hf_buf_str(&f->req.reply));
}

static void token_requests(void **state)
{
    struct fixture *f = *state;
    static const struct {
        const char *method, *path, *headers[3];
        int status;
    } rows[] = {
        {"PUT", "/latest/api/token", {TTL ": 21600"}, 200},
        {"PUT", "/latest/api/token", {TTL ": 1"}, 200},
        {"PUT", "/latest/api/token", {"x-AWS-ec2-metadata-TOKEN-ttl-seconds: 60"}, 200},
        {"PUT", "/latest/api/token", {NULL}, 400},
        {"PUT", "/latest/api/token", {TTL ": 0"}, 400},
        {"PUT", "/latest/api/token", {TTL ": 21601"}, 400},
        {"PUT", "/latest/api/token", {TTL ": -5"}, 400},
        {"PUT", "/latest/api/token", {TTL ": 60s"}, 400},
        {"PUT", "/latest/api/token", {TTL ": 99999999999999999999999"}, 400},
        {"PUT", "/latest/api/token", {TTL ": 60", "X-Forwarded-For: 10.0.0.1"}, 403},
        {"PUT", "/2021-07-15/api/token", {TTL ": 60"}, 403},
        {"GET", "/latest/api/token", {NULL}, 405},
        {"POST", "/latest/api/token", {TTL ": 60"}, 405},
        {"PUT", PATH, {TTL ": 60"}, 405},
    };
    for (size_t i = 0; i < HF_COUNT(rows); i++) {
        int status = ask(f, rows[i].method, rows[i].path, rows[i].headers);
        if (status != rows[i].status) {
            fail_msg("row %zu: %d, not %d", i, status, rows[i].status);
        }
        const char *ttl = hf_http_reply_header(&f->req, TTL);
        assert_int_equal(ttl != NULL, status == 200);
        assert_non_null(hf_http_reply_header(&f->req, "Date"));
    }
    assert_int_equal(hf_rehearsal_requests(f->service), HF_COUNT(rows));
}

static void questions(void **state)
{
    struct fixture *f = *state;
    HF_CLEANUP(hf_freep) char *token = fresh_token(f, TTL ": 60");
    assert_string_equal(hf_http_reply_header(&f->req, TTL), "60");
    const struct {
        const char *path, *header;
        int status;
    } rows[] = {
        {PATH, token, 404},
        {PATH, NULL, 401},
        {PATH, TOKEN ": wrong", 401},
        {PATH, TOKEN ";", 401}, /* libcurl's way to send an empty one */
        {"/latest/meta-data/events/recommendations/rebalance", token, 404},
        {"/latest/meta-data/events/recommendations/rebalance", NULL, 401},
        {"/latest/meta-data/spot/instance-action/", token, 404},
        {"/", token, 404},
        {"/anything", token, 404},
    };
    for (int marked = 0; marked < 2; marked++) {
        for (size_t i = 0; i < HF_COUNT(rows); i++) {
            const char *const headers[] = {rows[i].header, NULL};
            int status = ask(f, "GET", rows[i].path, headers);
            int expect = marked && i == 0 ? 200 : rows[i].status;
            if (status != expect) {
                fail_msg("row %zu, marked %d: %d, not %d", i, marked, status, expect);
            }
            if (status != 200) { /* a page, which nobody should parse */
                assert_non_null(strstr(hf_buf_str(&f->req.reply), "<html>"));
            }
        }
        assert_int_equal(hf_rehearsal_seen_ns(f->service) != 0, marked);
        hf_rehearsal_notice(f->service, "terminate", 120000);
    }
}

static void tokens_end(void **state)
{
    struct fixture *f = *state;
    HF_CLEANUP(hf_freep) char *brief = fresh_token(f, TTL ": 1");
    const char *const headers[] = {brief, NULL};
    assert_int_equal(ask(f, "GET", PATH, headers), 404);
    uint64_t begin_ns = hf_now_ns();
    while (ask(f, "GET", PATH, headers) != 401) {
        assert_true(hf_now_ns() - begin_ns < 5 * HF_SEC);
    }
    assert_true(hf_now_ns() - begin_ns > 900 * HF_MS);
    /* Several hold at a time. */
    HF_CLEANUP(hf_freep) char *a = fresh_token(f, TTL ": 60");
    HF_CLEANUP(hf_freep) char *b = fresh_token(f, TTL ": 60");
    const char *const first[] = {a, NULL}, *const second[] = {b, NULL};
    assert_int_equal(ask(f, "GET", PATH, first), 404);
    assert_int_equal(ask(f, "GET", PATH, second), 404);
    assert_string_not_equal(a, b);
}

static void notice_body(void **state)
{
    struct fixture *f = *state;
    HF_CLEANUP(hf_freep) char *token = fresh_token(f, TTL ": 60");
    const char *const headers[] = {token, NULL};
    int64_t before_ms = hf_wall_ms();
    hf_rehearsal_notice(f->service, "hibernate", 30000);
    int64_t after_ms = hf_wall_ms();
    uint64_t asked_ns = hf_now_ns();
    assert_int_equal(ask(f, "GET", PATH, headers), 200);
    uint64_t seen_ns = hf_rehearsal_seen_ns(f->service);
    assert_true(seen_ns >= asked_ns && seen_ns <= hf_now_ns());
    HF_CLEANUP(hf_json_freep) cJSON *json = NULL;
    const char *text;
    int64_t at_ms;
    assert_int_equal(hf_json_parse(hf_buf_span(&f->req.reply), 4096, &json, NULL), HF_OK);
    assert_int_equal(hf_json_get_str(json, "action", &text, NULL), HF_OK);
    assert_string_equal(text, "hibernate");
    assert_int_equal(hf_json_get_str(json, "time", &text, NULL), HF_OK);
    assert_int_equal(strlen(text), 20); /* whole seconds */
    assert_int_equal(hf_utc_parse(text, &at_ms, NULL), HF_OK);
    assert_true(at_ms > before_ms + 29000 - 1 && at_ms <= after_ms + 30000);
    /* The same text each time; seen stays at the first answer. */
    HF_CLEANUP(hf_freep) char *body = hf_strdup(hf_buf_str(&f->req.reply));
    assert_int_equal(ask(f, "GET", PATH, headers), 200);
    assert_string_equal(hf_buf_str(&f->req.reply), body);
    assert_int_equal(hf_rehearsal_seen_ns(f->service), seen_ns);
    hf_rehearsal_calm(f->service);
    assert_int_equal(ask(f, "GET", PATH, headers), 404);
    hf_rehearsal_notice(f->service, "terminate", 120000);
    assert_int_equal(hf_rehearsal_seen_ns(f->service), 0); /* anew */
}

static void hint_body(void **state)
{
    struct fixture *f = *state;
    HF_CLEANUP(hf_freep) char *token = fresh_token(f, TTL ": 60");
    const char *const headers[] = {token, NULL};
    static const char path[] = "/latest/meta-data/events/recommendations/rebalance";
    assert_int_equal(ask(f, "GET", path, NULL), 401);
    assert_int_equal(ask(f, "GET", path, headers), 404);
    hf_rehearsal_hint(f->service);
    assert_int_equal(ask(f, "GET", PATH, headers), 404);
    assert_int_equal(ask(f, "GET", path, headers), 200);
    HF_CLEANUP(hf_json_freep) cJSON *json = NULL;
    const char *text;
    int64_t at_ms;
    assert_int_equal(hf_json_parse(hf_buf_span(&f->req.reply), 4096, &json, NULL), HF_OK);
    assert_int_equal(hf_json_get_str(json, "noticeTime", &text, NULL), HF_OK);
    assert_int_equal(strlen(text), 20);
    assert_int_equal(hf_utc_parse(text, &at_ms, NULL), HF_OK);
    assert_in_range(hf_wall_ms() - at_ms, 0, 60000);
    hf_rehearsal_calm(f->service);
    assert_int_equal(ask(f, "GET", path, headers), 404);
}

static void taken_port(void **state)
{
    struct fixture *f = *state;
    struct hf_rehearsal *other = NULL;
    struct hf_err err = {.code = HF_OK};
    uint16_t port = hf_rehearsal_port(f->service);
    assert_int_equal(hf_rehearsal_start(port, &other, &err), HF_EIO);
    assert_null(other);
    char number[16];
    snprintf(number, sizeof(number), ":%u", (unsigned)port);
    assert_non_null(strstr(err.msg, number));
    hf_rehearsal_stop(NULL);
}

/* The watcher against it, through a whole drill's notices. */

struct seen {
    struct hf_watch *watch;
    struct hf_notice last;
    unsigned told, withdrawn, healths;
    uint64_t told_ns;
};

static void on_notice(void *user, const struct hf_notice *n)
{
    struct seen *s = user;
    s->told++;
    s->told_ns = hf_now_ns();
    s->last = *n;
}

static void on_withdrawn(void *user, const struct hf_notice *n)
{
    (void)n;
    ((struct seen *)user)->withdrawn++;
}

static void on_health(void *user, enum hf_watch_health health, const struct hf_err *why)
{
    (void)why;
    struct seen *s = user;
    s->healths++;
    assert_int_equal(health, HF_WATCH_SEEING);
}

static bool told_once(void *user)
{
    return ((struct seen *)user)->told == 1;
}

static bool told_twice(void *user)
{
    return ((struct seen *)user)->told == 2;
}

static bool withdrawn_once(void *user)
{
    return ((struct seen *)user)->withdrawn == 1;
}

static bool is_calm(void *user)
{
    return ((struct seen *)user)->healths == 1;
}

static void watcher_sees_it(void **state)
{
    struct fixture *f = *state;
    static const struct hf_watch_cb cb = {on_notice, on_withdrawn, on_health};
    struct seen s = {.told = 0};
    HF_CLEANUP(hf_freep)
    char *endpoint = hf_asprintf("http://127.0.0.1:%u/", (unsigned)hf_rehearsal_port(f->service));
    struct hf_watch_cfg cfg = {.ops = &hf_cloud_aws, .endpoint = endpoint, .poll_ms = 20};
    s.watch = hf_watch_start(&f->loop, f->http, &cfg, &cb, &s);
    assert_true(hf_test_run_until(&f->loop, is_calm, &s, 5000));
    hf_rehearsal_notice(f->service, "terminate", 30000);
    assert_true(hf_test_run_until(&f->loop, told_once, &s, 5000));
    uint64_t seen_ns = hf_rehearsal_seen_ns(f->service);
    assert_true(s.told_ns >= seen_ns && s.told_ns - seen_ns < 50 * HF_MS);
    uint64_t left_ms =
        (hf_notice_deadline(&s.last, s.told_ns, hf_wall_ms(), hf_cloud_aws.window_ms) - s.told_ns) /
        HF_MS;
    /* Both times are whole seconds, so it is right within one on either side. */
    assert_true(left_ms >= 28000 && left_ms <= 31000);
    hf_rehearsal_calm(f->service);
    assert_true(hf_test_run_until(&f->loop, withdrawn_once, &s, 5000));
    hf_rehearsal_notice(f->service, "hibernate", 120000);
    assert_true(hf_test_run_until(&f->loop, told_twice, &s, 5000));
    assert_true(hf_notice_deadline(&s.last, HF_SEC, hf_wall_ms(), 120000) <= HF_SEC + HF_MS);
    struct hf_watch_status st;
    hf_watch_get_status(s.watch, &st);
    assert_int_equal(st.unauthorized + st.timeouts + st.refused + st.server_errors, 0);
    hf_watch_stop(s.watch);
    hf_loop_run(&f->loop);
}

static void on_any_health(void *user, enum hf_watch_health health, const struct hf_err *why)
{
    (void)user;
    (void)health;
    (void)why;
}

/* Whatever the faults, a notice is seen, and its end, and both only once. */
static void watcher_in_chaos(void **state)
{
    struct fixture *f = *state;
    static const struct hf_watch_cb cb = {on_notice, on_withdrawn, on_any_health};
    struct seen s = {.told = 0};
    HF_CLEANUP(hf_freep)
    char *endpoint = hf_asprintf("http://127.0.0.1:%u/", (unsigned)hf_rehearsal_port(f->service));
    struct hf_watch_cfg cfg = {.ops = &hf_cloud_aws, .endpoint = endpoint, .poll_ms = 20};
    hf_rehearsal_chaos(f->service, 7);
    s.watch = hf_watch_start(&f->loop, f->http, &cfg, &cb, &s);
    hf_rehearsal_notice(f->service, "terminate", 60000);
    assert_true(hf_test_run_until(&f->loop, told_once, &s, 20000));
    hf_rehearsal_calm(f->service);
    assert_true(hf_test_run_until(&f->loop, withdrawn_once, &s, 20000));
    assert_int_equal(s.told, 1);
    assert_true(hf_rehearsal_faults(f->service) > 0);
    hf_watch_stop(s.watch);
    hf_loop_run(&f->loop);
}

static void rows_of_faults(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 200; seed++) {
        unsigned kinds[HF_CHAOS_KINDS] = {0};
        unsigned in_a_row = 0;
        for (uint64_t nth = 0; nth < 300; nth++) {
            enum hf_chaos kind = hf_chaos_of(seed, nth);
            assert_in_range(kind, 0, HF_CHAOS_KINDS - 1);
            assert_int_equal(kind, hf_chaos_of(seed, nth));
            kinds[kind]++;
            in_a_row = kind == HF_CHAOS_NONE ? 0 : in_a_row + 1;
            assert_true(in_a_row < 3);
        }
        for (unsigned k = 0; k < HF_CHAOS_KINDS; k++) {
            assert_true(kinds[k] > 0);
        }
    }
    assert_true(hf_chaos_of(1, 0) != hf_chaos_of(2, 0) || hf_chaos_of(1, 1) != hf_chaos_of(2, 1) ||
                hf_chaos_of(1, 3) != hf_chaos_of(2, 3));
}

int main(void)
{
#define WITH(test) cmocka_unit_test_setup_teardown(test, setup, teardown)
    const struct CMUnitTest tests[] = {
        WITH(token_requests),  WITH(questions),        WITH(tokens_end),
        WITH(notice_body),     WITH(hint_body),        WITH(taken_port),
        WITH(watcher_sees_it), WITH(watcher_in_chaos), cmocka_unit_test(rows_of_faults),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
