/* SPDX-License-Identifier: Apache-2.0
 *
 * cloud/aws and cloud/registry without sockets: conformance, the token's life, what every status
 * and body means, firmware strings. The service is a table of replies.
 */
#include "base/prelude.h"

#include <malloc.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/fsx.h"
#include "cloud/notices.h"
#include "support_conform_cloud.h"
#include "support_longpoll.h"

#define ENDPOINT "http://127.0.0.1:7777"
#define TOKEN    "AQAEAHn0b7w3fake-token=="

/* Conformance */

static void serve_mood(void *mood, const struct hf_httpd_request *rq, struct hf_httpd_reply *ret)
{
    char token[128] = "";
    if (strcmp(rq->method, "PUT") == 0) {
        assert_string_equal(rq->path, "/latest/api/token");
        snprintf(ret->body, sizeof(ret->body), TOKEN);
        snprintf(ret->headers, sizeof(ret->headers),
                 "X-aws-ec2-metadata-token-ttl-seconds: 21600\r\n");
        return;
    }
    unsigned n = hf_httpd_header(rq, "X-aws-ec2-metadata-token", token, sizeof(token));
    if (n != 1 || strcmp(token, TOKEN) != 0) {
        ret->status = 401;
    } else if (strstr(rq->path, "rebalance") != NULL && *(enum hf_mood *)mood == HF_MOOD_HINT) {
        snprintf(ret->body, sizeof(ret->body), "{\"noticeTime\": \"2026-10-27T08:22:00Z\"}");
    } else if (strstr(rq->path, "rebalance") != NULL || *(enum hf_mood *)mood == HF_MOOD_HINT) {
        ret->status = 404;
    } else if (*(enum hf_mood *)mood == HF_MOOD_CALM) {
        ret->status = 404;
        snprintf(ret->body, sizeof(ret->body), "<html>404 - Not Found</html>");
    } else {
        snprintf(ret->body, sizeof(ret->body),
                 "{\"action\": \"terminate\", \"time\": \"2017-09-18T08:2%d:00Z\"}",
                 *(enum hf_mood *)mood == HF_MOOD_OTHER ? 3 : 2);
    }
}

static const struct hf_conform_subject aws_subject = {&hf_cloud_aws, serve_mood, true, true};

static void conforms(void **state)
{
    (void)state;
    hf_conform_cloud(&aws_subject);
}

static void longpoll_conforms(void **state)
{
    (void)state;
    hf_conform_cloud(&hf_longpoll_subject);
}

/* One request and its reply, as written down in a test. */
struct step {
    const char *expect;  /* method and path; "+T" behind it: with the token of that letter */
    int status;          /* 0: no reply */
    const char *body;    /* of the reply */
    const char *headers; /* lines, \r\n */
    enum hf_rc transport;
    bool refused; /* with transport: no connection came up */
    enum hf_poll_result result;
};

#define PUT_TOKEN  "PUT /latest/api/token"
#define GET_NOTICE "GET /latest/meta-data/spot/instance-action"
#define GET_HINT   "GET /latest/meta-data/events/recommendations/rebalance"
#define GET_PROOF  "GET /latest/meta-data/instance-id"

static void describe_request(const struct hf_http_req *req, char *ret, size_t size)
{
    size_t len = (size_t)snprintf(ret, size, "%s %s", req->method, req->url + strlen(ENDPOINT));
    for (size_t i = 0; i < req->headers.len; i++) {
        static const char name[] = "X-aws-ec2-metadata-token: ";
        if (strncmp(req->headers.items[i], name, sizeof(name) - 1) == 0) {
            len += (size_t)snprintf(ret + len, size - len, "+%s",
                                    req->headers.items[i] + sizeof(name) - 1);
        }
    }
}

static void run_step(void *self, uint64_t now_ns, const struct step *s, struct hf_notice_list *ret,
                     struct hf_err *err)
{
    struct hf_http_req req;
    char got[256];
    assert_int_equal(hf_cloud_aws.poll_req(self, now_ns, &req, err), HF_OK);
    describe_request(&req, got, sizeof(got));
    assert_string_equal(got, s->expect);
    struct hf_err transport = {.code = HF_OK};
    if (s->transport != HF_OK) {
        hf_fail(&transport, s->transport, "no reply");
    }
    req.connected = !s->refused;
    req.status = s->status;
    if (s->headers != NULL) {
        req.reply_headers[0] = hf_strdup(s->headers);
    }
    const char *body = s->body != NULL ? s->body : "";
    assert_int_equal(hf_buf_add(&req.reply, body, strlen(body), NULL), HF_OK);
    enum hf_poll_result result = hf_cloud_aws.poll_read(
        self, now_ns, &req, s->transport != HF_OK ? &transport : NULL, ret, err);
    if (result != s->result) {
        fail_msg("%s %d: result %d, not %d (%s)", s->expect, s->status, (int)result, (int)s->result,
                 err->msg);
    }
    hf_http_req_release(&req);
}

static void run_steps(void *self, uint64_t now_ns, const struct step *s, size_t n)
{
    struct hf_notice_list list = {.len = 0};
    for (size_t i = 0; i < n; i++) {
        struct hf_err err = {.code = HF_OK};
        run_step(self, now_ns, &s[i], &list, &err);
    }
}

#define TTL(s) "X-aws-ec2-metadata-token-ttl-seconds: " #s
#define MORE   HF_POLL_MORE
#define DONE   HF_POLL_DONE
#define FAULT  HF_POLL_FAULT

static void token_life(void **state)
{
    (void)state;
    void *self = hf_cloud_aws.create(ENDPOINT);
    const uint64_t t = 5 * HF_SEC;
    static const struct step first[] = {
        {PUT_TOKEN, 200, "A\n", TTL(100), 0, false, MORE},
        {GET_NOTICE "+A", 404, NULL, NULL, 0, false, DONE},
        {GET_NOTICE "+A", 404, NULL, NULL, 0, false, DONE},
    };
    run_steps(self, t, first, HF_COUNT(first));
    static const struct step still[] = {{GET_NOTICE "+A", 404, NULL, NULL, 0, false, MORE},
                                        {GET_HINT "+A", 404, NULL, NULL, 0, false, DONE}};
    run_steps(self, t + 84 * HF_SEC, still, 2); /* 16 s left */
    static const struct step renewed[] = {
        {PUT_TOKEN, 200, "B", TTL(10), 0, false, MORE},
        {GET_NOTICE "+B", 404, NULL, NULL, 0, false, DONE}, /* used although 10 s are few */
        {PUT_TOKEN, 200, "C", TTL(21600), 0, false, MORE},
        {GET_NOTICE "+C", 404, NULL, TTL(16), 0, false, DONE}, /* the service knows better */
    };
    run_steps(self, t + 85 * HF_SEC, renewed, HF_COUNT(renewed));
    static const struct step again[] = {
        {PUT_TOKEN, 200, "D", "X-Nothing: 1", 0, false, MORE}, /* as asked for: 21600 */
        {GET_NOTICE "+D", 404, NULL, TTL(99999), 0, false, DONE},
    };
    run_steps(self, t + 86 * HF_SEC, again, HF_COUNT(again));
    static const struct step late[] = {{GET_NOTICE "+D", 404, NULL, NULL, 0, false, MORE},
                                       {GET_HINT "+D", 404, NULL, NULL, 0, false, DONE}};
    run_steps(self, t + (86 + 21584) * HF_SEC, late, 2);
    static const struct step over[] = {{PUT_TOKEN, 503, NULL, NULL, 0, false, MORE},
                                       {GET_NOTICE "+D", 404, NULL, NULL, 0, false, MORE},
                                       {GET_HINT "+D", 404, NULL, NULL, 0, false, DONE}};
    run_steps(self, t + (86 + 21590) * HF_SEC, over, 3); /* not renewed, but it still stands */
    static const struct step gone[] = {{PUT_TOKEN, 503, NULL, NULL, 0, false, FAULT}};
    run_steps(self, t + (86 + 21600) * HF_SEC, gone, 1);
    hf_cloud_aws.destroy(self);
}

static void refused_tokens(void **state)
{
    (void)state;
    void *self = hf_cloud_aws.create(ENDPOINT);
    static const struct step steps[] = {
        {PUT_TOKEN, 200, "A", NULL, 0, false, MORE},
        {GET_NOTICE "+A", 404, NULL, NULL, 0, false, DONE},
        /* Once more in the same round, with the header replaced. */
        {GET_NOTICE "+A", 401, NULL, NULL, 0, false, MORE},
        {PUT_TOKEN, 200, "B", NULL, 0, false, MORE},
        {GET_NOTICE "+B", 404, NULL, NULL, 0, false, DONE},
        /* Twice is a fault, and the next round begins anew. */
        {GET_NOTICE "+B", 401, NULL, NULL, 0, false, MORE},
        {PUT_TOKEN, 200, "C", NULL, 0, false, MORE},
        {GET_NOTICE "+C", 401, NULL, NULL, 0, false, FAULT},
        {PUT_TOKEN, 200, "D", NULL, 0, false, MORE},
        {GET_NOTICE "+D", 404, NULL, NULL, 0, false, DONE},
        /* Refused, and no new one to be had. */
        {GET_NOTICE "+D", 401, NULL, NULL, 0, false, MORE},
        {PUT_TOKEN, 0, NULL, NULL, HF_EIO, true, FAULT},
        {PUT_TOKEN, 200, "E", NULL, 0, false, MORE},
        {GET_NOTICE "+E", 404, NULL, NULL, 0, false, DONE},
    };
    run_steps(self, HF_SEC, steps, HF_COUNT(steps));
    hf_cloud_aws.destroy(self);
}

static void no_tokens(void **state)
{
    (void)state;
    static const int statuses[] = {403, 404, 405};
    for (size_t i = 0; i < HF_COUNT(statuses); i++) {
        void *self = hf_cloud_aws.create(ENDPOINT);
        struct step steps[] = {
            {PUT_TOKEN, statuses[i], NULL, NULL, 0, false, MORE},
            {GET_PROOF, 200, "i-0abc", NULL, 0, false, MORE},
            {GET_NOTICE, 404, NULL, NULL, 0, false, DONE},
            {GET_NOTICE, 200, "{\"action\":\"stop\",\"time\":\"2026-01-01T00:00:00Z\"}", NULL, 0,
             false, DONE},
            {GET_NOTICE, 503, NULL, NULL, 0, false, FAULT},
            /* Tokens are wanted after all. */
            {GET_NOTICE, 401, NULL, NULL, 0, false, MORE},
            {PUT_TOKEN, 200, "A", NULL, 0, false, MORE},
            {GET_NOTICE "+A", 404, NULL, NULL, 0, false, DONE},
        };
        run_steps(self, HF_SEC, steps, HF_COUNT(steps));
        hf_cloud_aws.destroy(self);
    }
    /* After five minutes it asks for one again. */
    void *self = hf_cloud_aws.create(ENDPOINT);
    static const struct step early[] = {{PUT_TOKEN, 404, NULL, NULL, 0, false, MORE},
                                        {GET_PROOF, 200, "i-0abc", NULL, 0, false, MORE},
                                        {GET_NOTICE, 404, NULL, NULL, 0, false, DONE}};
    run_steps(self, HF_SEC, early, HF_COUNT(early));
    static const struct step last[] = {{GET_NOTICE, 404, NULL, NULL, 0, false, MORE},
                                       {GET_HINT, 404, NULL, NULL, 0, false, DONE}};
    run_steps(self, 300 * HF_SEC, last, 2);
    run_steps(self, 301 * HF_SEC, early, HF_COUNT(early));
    hf_cloud_aws.destroy(self);
}

#define HINTED(t) "{\"noticeTime\": \"2026-10-27T08:22:0" t "Z\"}"

/* One round at `at_s`; its last step fills the list. */
static void hint_round(void *self, uint64_t at_s, const struct step *s, size_t n,
                       struct hf_notice_list *ret)
{
    ret->len = 0;
    for (size_t i = 0; i < n; i++) {
        struct hf_err err = {.code = HF_OK};
        run_step(self, at_s * HF_SEC, &s[i], ret, &err);
    }
}

static void a_hint(void **state)
{
    (void)state;
    void *self = hf_cloud_aws.create(ENDPOINT);
    struct hf_notice_list list;
    char id[sizeof(list.items[0].id)];
    static const struct step first[] = {{PUT_TOKEN, 200, "A", NULL, 0, false, MORE},
                                        {GET_NOTICE "+A", 404, NULL, NULL, 0, false, DONE}};
    static const struct step calm[] = {{GET_NOTICE "+A", 404, NULL, NULL, 0, false, DONE}};
    static const struct step told[] = {{GET_NOTICE "+A", 404, NULL, NULL, 0, false, MORE},
                                       {GET_HINT "+A", 200, HINTED("1"), NULL, 0, false, DONE}};
    static const struct step later[] = {{GET_NOTICE "+A", 404, NULL, NULL, 0, false, MORE},
                                        {GET_HINT "+A", 200, HINTED("2"), NULL, 0, false, DONE}};
    static const struct step gone[] = {{GET_NOTICE "+A", 404, NULL, NULL, 0, false, MORE},
                                       {GET_HINT "+A", 404, NULL, NULL, 0, false, DONE}};
    static const struct step taken[] = {{GET_NOTICE "+A", 200,
                                         "{\"action\":\"stop\",\"time\":\"2026-10-27T09:00:00Z\"}",
                                         NULL, 0, false, DONE}};
    hint_round(self, 10, first, 2, &list);
    hint_round(self, 14, calm, 1, &list);
    assert_int_equal(list.len, 0);
    hint_round(self, 15, told, 2, &list);
    assert_int_equal(list.len, 1);
    assert_int_equal(list.items[0].kind, HF_NOTICE_REBALANCE);
    assert_string_equal(list.items[0].source, "aws");
    assert_int_equal(list.items[0].at_wall_ms, 0);
    memcpy(id, list.items[0].id, sizeof(id));
    /* It stands in the rounds that do not ask for it. */
    hint_round(self, 16, calm, 1, &list);
    assert_int_equal(list.len, 1);
    assert_string_equal(list.items[0].id, id);
    hint_round(self, 20, told, 2, &list);
    assert_string_equal(list.items[0].id, id);
    /* A notice is never kept waiting by it, and stands beside it. */
    hint_round(self, 25, taken, 1, &list);
    assert_int_equal(list.len, 2);
    assert_int_equal(list.items[0].kind, HF_NOTICE_RECLAIM);
    assert_int_equal(list.items[1].kind, HF_NOTICE_REBALANCE);
    hint_round(self, 26, later, 2, &list);
    assert_int_equal(list.len, 1);
    assert_string_not_equal(list.items[0].id, id);
    hint_round(self, 31, gone, 2, &list);
    assert_int_equal(list.len, 0);
    hf_cloud_aws.destroy(self);
}

/* Whatever becomes of the hint, the round has its answer; after a fault it is left for a minute. */
static void hints_that_fail(void **state)
{
    (void)state;
    static const struct {
        struct step hint;
        uint64_t again_s;
    } rows[] = {
        {{GET_HINT "+A", 500, NULL, NULL, 0, false, DONE}, 60},
        {{GET_HINT "+A", 403, NULL, NULL, 0, false, DONE}, 60},
        {{GET_HINT "+A", 200, "", NULL, 0, false, DONE}, 60},
        {{GET_HINT "+A", 200, "<html>", NULL, 0, false, DONE}, 60},
        {{GET_HINT "+A", 200, "{\"noticeTime\": 5}", NULL, 0, false, DONE}, 60},
        {{GET_HINT "+A", 200, "{\"noticeTime\": \"soon\"}", NULL, 0, false, DONE}, 60},
        {{GET_HINT "+A", 0, NULL, NULL, HF_ETIMEOUT, false, DONE}, 60},
        {{GET_HINT "+A", 0, NULL, NULL, HF_EIO, true, DONE}, 60},
        {{GET_HINT "+A", 404, NULL, NULL, 0, false, DONE}, 5},
    };
    static const struct step first[] = {{PUT_TOKEN, 200, "A", NULL, 0, false, MORE},
                                        {GET_NOTICE "+A", 404, NULL, NULL, 0, false, DONE}};
    static const struct step calm = {GET_NOTICE "+A", 404, NULL, NULL, 0, false, DONE};
    static const struct step ask = {GET_NOTICE "+A", 404, NULL, NULL, 0, false, MORE};
    for (size_t i = 0; i < HF_COUNT(rows); i++) {
        void *self = hf_cloud_aws.create(ENDPOINT);
        struct hf_notice_list list;
        hint_round(self, 10, first, 2, &list);
        struct step faulty[] = {ask, rows[i].hint};
        hint_round(self, 20, faulty, 2, &list);
        assert_int_equal(list.len, 0);
        hint_round(self, 20 + rows[i].again_s - 1, &calm, 1, &list);
        hint_round(self, 20 + rows[i].again_s, faulty, 2, &list);
        hf_cloud_aws.destroy(self);
    }
    /* A token that is refused here is renewed in the next round. */
    void *self = hf_cloud_aws.create(ENDPOINT);
    struct hf_notice_list list;
    hint_round(self, 10, first, 2, &list);
    struct step refused[] = {ask, {GET_HINT "+A", 401, NULL, NULL, 0, false, DONE}};
    hint_round(self, 20, refused, 2, &list);
    hint_round(self, 21, first, 2, &list);
    hf_cloud_aws.destroy(self);
}

/* Of the sanitizer's allocator, where it is there. */
size_t __sanitizer_get_current_allocated_bytes(void) __attribute__((weak));

static size_t bytes_in_use(void)
{
    return __sanitizer_get_current_allocated_bytes != NULL
               ? __sanitizer_get_current_allocated_bytes()
               : mallinfo2().uordblks;
}

/* Row B5: rounds without end, in every mood and with every fault. What is kept between them is of
 * fixed size: as much is in use after the second half as after the first. */
static void b5_a_million_polls(void **state)
{
    (void)state;
    const char *more = getenv("HOLDFAST_TEST_LONG");
    unsigned rounds = more != NULL && *more != '\0' ? 1000000 : 100000;
    void *self = hf_cloud_aws.create(ENDPOINT);
    struct hf_notices standing = {.window_ms = 120000, .rearm_ms = 300000};
    struct hf_notices_change changes[HF_NOTICES_CHANGES_MAX];
    size_t at_half = 0;
    unsigned told = 0;
    for (unsigned i = 0; i < rounds; i++) {
        enum hf_mood mood = i % 97 == 0   ? HF_MOOD_NOTICE
                            : i % 89 == 0 ? HF_MOOD_OTHER
                                          : HF_MOOD_CALM;
        struct hf_conform_plan plan = {
            .fault = (enum hf_conform_fault)(i % HF_CONFORM_FAULTS), .from = i % 3, .to = i % 3};
        struct hf_notice_list list = {.len = 0};
        struct hf_err err = {.code = HF_OK};
        if (hf_conform_round(&aws_subject, self, mood, &plan, &list, &err) == HF_POLL_DONE) {
            told += (unsigned)hf_notices_update(&standing, &list, i * HF_SEC, 0, changes);
        }
        assert_true(standing.len <= HF_NOTICES_KEPT_MAX);
        if (i == rounds / 2) {
            at_half = bytes_in_use();
        }
    }
    assert_true(told > rounds / 200);
    size_t at_end = bytes_in_use();
    if (at_end > at_half + 16384) {
        fail_msg("%zu bytes more after %u rounds", at_end - at_half, rounds / 2);
    }
    hf_cloud_aws.destroy(self);
}

/* The last step's fault. */
static void fault_of(const struct step *s, size_t n, struct hf_err *ret)
{
    void *self = hf_cloud_aws.create(ENDPOINT);
    struct hf_notice_list list = {.len = 0};
    for (size_t i = 0; i < n; i++) {
        ret->code = HF_OK;
        run_step(self, HF_SEC, &s[i], &list, ret);
    }
    hf_cloud_aws.destroy(self);
}

static void hop_limit(void **state)
{
    (void)state;
    static const struct step steps[] = {{PUT_TOKEN, 0, NULL, NULL, HF_ETIMEOUT, false, MORE},
                                        {GET_PROOF, 401, NULL, NULL, 0, false, FAULT}};
    struct hf_err err;
    fault_of(steps, HF_COUNT(steps), &err);
    assert_int_equal(err.code, HF_EDENIED);
    assert_non_null(strstr(err.msg, "hop limit"));
    assert_non_null(strstr(err.msg, ENDPOINT));
    assert_non_null(strstr(err.hint, "HttpPutResponseHopLimit to 2"));
    assert_non_null(strstr(err.hint, "host networking"));
    assert_null(strstr(err.hint, "..."));

    /* The same on each round, and healed by a tokenless service or by an answer. */
    void *self = hf_cloud_aws.create(ENDPOINT);
    static const struct step more[] = {
        {PUT_TOKEN, 0, NULL, NULL, HF_ETIMEOUT, false, MORE},
        {GET_PROOF, 401, NULL, NULL, 0, false, FAULT},
        {PUT_TOKEN, 0, NULL, NULL, HF_ETIMEOUT, false, MORE},
        {GET_PROOF, 200, "i-0abc", NULL, 0, false, MORE},
        {GET_NOTICE, 404, NULL, NULL, 0, false, DONE},
        {GET_NOTICE, 404, NULL, NULL, 0, false, DONE}, /* no waiting for the PUT each time */
    };
    run_steps(self, HF_SEC, more, HF_COUNT(more));
    hf_cloud_aws.destroy(self);
}

static void faults_are_told_apart(void **state)
{
    (void)state;
    static const struct {
        struct step s[3];
        size_t n;
        enum hf_rc code;
        const char *msg, *hint;
    } rows[] = {
        {{{PUT_TOKEN, 0, NULL, NULL, HF_EIO, true, FAULT}}, 1, HF_EIO, "no reply", "EC2 machine"},
        {{{PUT_TOKEN, 0, NULL, NULL, HF_ETIMEOUT, true, FAULT}}, 1, HF_ETIMEOUT, "no reply", ""},
        {{{PUT_TOKEN, 400, NULL, NULL, 0, false, FAULT}}, 1, HF_EIO, "status 400", ""},
        {{{PUT_TOKEN, 503, NULL, NULL, 0, false, FAULT}}, 1, HF_EAGAIN, "status 503", ""},
        {{{PUT_TOKEN, 200, "", NULL, 0, false, FAULT}}, 1, HF_ECORRUPT, "no token", ""},
        {{{PUT_TOKEN, 200, "two words", NULL, 0, false, FAULT}}, 1, HF_ECORRUPT, "no token", ""},
        {{{PUT_TOKEN, 200, "a\r\nX: b", NULL, 0, false, FAULT}}, 1, HF_ECORRUPT, "no token", ""},
        /* Accepts, and never answers anything. */
        {{{PUT_TOKEN, 0, NULL, NULL, HF_ETIMEOUT, false, MORE},
          {GET_PROOF, 0, NULL, NULL, HF_ETIMEOUT, false, FAULT}},
         2,
         HF_ETIMEOUT,
         "no reply",
         "EC2 machine"},
        /* Turned off: everything is 403. */
        {{{PUT_TOKEN, 403, NULL, NULL, 0, false, MORE},
          {GET_PROOF, 403, NULL, NULL, 0, false, FAULT}},
         2,
         HF_EDENIED,
         "status 403",
         "HttpEndpoint"},
        /* Some web server, which has never heard of anything. */
        {{{PUT_TOKEN, 404, NULL, NULL, 0, false, MORE},
          {GET_PROOF, 404, NULL, NULL, 0, false, FAULT}},
         2,
         HF_ENOTFOUND,
         "no EC2 metadata service",
         "--metadata-endpoint"},
        {{{PUT_TOKEN, 200, "A", NULL, 0, false, MORE},
          {GET_NOTICE "+A", 302, NULL, NULL, 0, false, FAULT}},
         2,
         HF_EIO,
         "status 302",
         ""},
        {{{PUT_TOKEN, 200, "A", NULL, 0, false, MORE},
          {GET_NOTICE "+A", 429, NULL, NULL, 0, false, FAULT}},
         2,
         HF_EAGAIN,
         "status 429",
         ""},
        {{{PUT_TOKEN, 200, "A", NULL, 0, false, MORE},
          {GET_NOTICE "+A", 200, "<html>hello", NULL, 0, false, FAULT}},
         2,
         HF_ECORRUPT,
         "beginning '<html>hello'",
         ""},
    };
    for (size_t i = 0; i < HF_COUNT(rows); i++) {
        struct hf_err err;
        fault_of(rows[i].s, rows[i].n, &err);
        if (err.code != rows[i].code || strstr(err.msg, rows[i].msg) == NULL ||
            strstr(err.hint, rows[i].hint) == NULL || strncmp(err.msg, "aws metadata: ", 14) != 0) {
            fail_msg("row %zu: %s, '%s' ('%s')", i, hf_rc_name(err.code), err.msg, err.hint);
        }
    }
}

/* What a body with status 200 means. at_s: seconds since 1970; -1: no notice. */
static void bodies(void **state)
{
    (void)state;
    static const struct {
        const char *body;
        int64_t at_s;
        const char *action;
        uint32_t window_ms;
    } rows[] = {
        {"{\"action\": \"terminate\", \"time\": \"2017-09-18T08:22:00Z\"}", 1505722920, "terminate",
         0},
        {"{\"time\":\"2017-09-18T08:22:00Z\",\"action\":\"stop\",\"more\":[1]}", 1505722920, "stop",
         0},
        {"{\"action\":\"hibernate\",\"time\":\"2017-09-18T08:22:00Z\"}", 1505722920, "hibernate",
         1},
        {"{\"action\":\"retire\",\"time\":\"2017-09-18T08:22:00Z\"}", 1505722920, "retire", 0},
        {"{\"action\":\"terminate\",\"time\":\"soon\"}", 0, "terminate", 0},
        {"{\"action\":\"terminate\"}", 0, "terminate", 0},
        {"{\"action\":\"terminate\",\"time\":5}", 0, "terminate", 0},
        {"{\"action\":\"retire\",\"time\":\"soon\"}", -1, NULL, 0},
        {"{\"action\":\"a very long word indeed\",\"time\":\"2017-09-18T08:22:00Z\"}", -1, NULL, 0},
        {"{\"action\":\"two words\",\"time\":\"2017-09-18T08:22:00Z\"}", -1, NULL, 0},
        {"{\"action\":\"\",\"time\":\"2017-09-18T08:22:00Z\"}", -1, NULL, 0},
        {"{\"action\":1,\"time\":\"2017-09-18T08:22:00Z\"}", -1, NULL, 0},
        {"{\"time\":\"2017-09-18T08:22:00Z\"}", -1, NULL, 0},
        {"[{\"action\":\"terminate\"}]", -1, NULL, 0},
        {"\"terminate\"", -1, NULL, 0},
        {"null", -1, NULL, 0},
        {"{}", -1, NULL, 0},
        {"{\"action\":\"terminate\",", -1, NULL, 0},
        {"", -1, NULL, 0},
    };
    for (size_t i = 0; i < HF_COUNT(rows); i++) {
        void *self = hf_cloud_aws.create(ENDPOINT);
        struct hf_notice_list list = {.len = 0};
        struct hf_err err;
        struct step steps[] = {{PUT_TOKEN, 200, "A", NULL, 0, false, MORE},
                               {GET_NOTICE "+A", 200, rows[i].body,
                                "Date: Mon, 18 Sep 2017 08:20:00 GMT", 0, false,
                                rows[i].at_s < 0 ? FAULT : DONE}};
        run_step(self, HF_SEC, &steps[0], &list, &err);
        run_step(self, HF_SEC, &steps[1], &list, &err);
        assert_int_equal(list.len, rows[i].at_s < 0 ? 0 : 1);
        if (rows[i].at_s >= 0) {
            assert_int_equal(list.items[0].at_wall_ms, rows[i].at_s * 1000);
            assert_int_equal(list.items[0].date_wall_ms, INT64_C(1505722800000));
            assert_string_equal(list.items[0].action, rows[i].action);
            assert_int_equal(list.items[0].window_ms, rows[i].window_ms);
        }
        hf_cloud_aws.destroy(self);
    }
}

/* Registry */

static void registry(void **state)
{
    (void)state;
    for (size_t i = 0; hf_clouds[i] != NULL; i++) {
        assert_ptr_equal(hf_cloud_by_name(hf_clouds[i]->name), hf_clouds[i]); /* unique, too */
        assert_int_equal(hf_clouds[i]->size, sizeof(struct hf_cloud_ops));
    }
    assert_ptr_equal(hf_cloud_by_name("aws"), &hf_cloud_aws);
    assert_null(hf_cloud_by_name("AWS"));
    assert_null(hf_cloud_by_name(""));
}

static void put_file(const char *dir, const char *name, const char *text)
{
    HF_CLEANUP(hf_freep) char *path = hf_asprintf("%s/%s", dir, name);
    assert_int_equal(hf_fs_write(path, (struct hf_span){text, strlen(text)}, 0600, false, NULL),
                     HF_OK);
}

static void firmware(void **state)
{
    (void)state;
    static const struct {
        const char *vendor, *bios;
        bool aws;
    } rows[] = {
        {"Amazon EC2\n", NULL, true},
        {"Amazon EC2", "1.0\n", true},
        {"Xen\n", "4.11.amazon\n", true},
        {"Xen\n", "4.11\n", false},
        {"Xen\n", NULL, false},
        {"Google\n", "Google\n", false},
        {"Microsoft Corporation\n", NULL, false},
        {"Amazon EC2 look-alike\n", NULL, false},
        {"", "4.2.amazon\n", false},
        {NULL, NULL, false},
    };
    for (size_t i = 0; i < HF_COUNT(rows); i++) {
        char dir[] = "/tmp/hf-dmi-XXXXXX";
        assert_non_null(mkdtemp(dir));
        if (rows[i].vendor != NULL) {
            put_file(dir, "sys_vendor", rows[i].vendor);
        }
        if (rows[i].bios != NULL) {
            put_file(dir, "bios_version", rows[i].bios);
        }
        assert_ptr_equal(hf_cloud_detect_dmi(dir), rows[i].aws ? &hf_cloud_aws : NULL);
        assert_int_equal(hf_fs_remove_tree(dir, NULL), HF_OK);
    }
    assert_null(hf_cloud_detect_dmi("/nonexistent"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(conforms),        cmocka_unit_test(longpoll_conforms),
        cmocka_unit_test(token_life),      cmocka_unit_test(refused_tokens),
        cmocka_unit_test(no_tokens),       cmocka_unit_test(a_hint),
        cmocka_unit_test(hints_that_fail), cmocka_unit_test(b5_a_million_polls),
        cmocka_unit_test(hop_limit),       cmocka_unit_test(faults_are_told_apart),
        cmocka_unit_test(bodies),          cmocka_unit_test(registry),
        cmocka_unit_test(firmware),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
