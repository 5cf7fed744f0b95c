/* SPDX-License-Identifier: Apache-2.0
 *
 * The conformance suite of providers. It stands where watcher and HTTP client stand: asks for a
 * request, has the subject's service answer it, and hands the reply in.
 */
#include "base/prelude.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "support_conform_cloud.h"

#define ENDPOINT "http://127.0.0.1:7777"

static void add_reply_headers(struct hf_http_req *req, const char *headers)
{
    size_t n = 0;
    for (const char *p = headers; *p != '\0' && n + 1 < HF_HTTP_HEADERS;) {
        size_t len = strcspn(p, "\r");
        req->reply_headers[n++] = hf_strndup(p, len);
        p += len + 2;
    }
}

/* The healthy service's answer, put into req. */
static void answer(const struct hf_conform_subject *s, enum hf_mood mood, struct hf_http_req *req)
{
    struct hf_httpd_request rq = {.connection = 1};
    struct hf_httpd_reply reply = {.act = HF_HTTPD_ANSWER};
    assert_memory_equal(req->url, ENDPOINT, strlen(ENDPOINT));
    snprintf(rq.method, sizeof(rq.method), "%s", req->method);
    snprintf(rq.path, sizeof(rq.path), "%s", req->url + strlen(ENDPOINT));
    size_t len =
        (size_t)snprintf(rq.head, sizeof(rq.head), "%s %s HTTP/1.1\r\n", rq.method, rq.path);
    for (size_t i = 0; i < req->headers.len; i++) {
        len +=
            (size_t)snprintf(rq.head + len, sizeof(rq.head) - len, "%s\r\n", req->headers.items[i]);
    }
    snprintf(rq.body, sizeof(rq.body), "%s", hf_buf_str(&req->body));
    s->serve(&mood, &rq, &reply);
    req->status = reply.status != 0 ? reply.status : 200;
    req->connected = true;
    add_reply_headers(req, reply.headers);
    assert_int_equal(hf_buf_add(&req->reply, reply.body, strlen(reply.body), NULL), HF_OK);
}

static void misbehave(enum hf_conform_fault fault, struct hf_http_req *req,
                      struct hf_err *transport)
{
    static const char html[] = "<html><body>Please log in</body></html>";
    static const char rubbish[] = "\x01\xff\x80{\"action\":";
    req->connected = fault != HF_CONFORM_REFUSED;
    switch (fault) {
    case HF_CONFORM_TIMEOUT:
        hf_fail(transport, HF_ETIMEOUT, "no answer within 2000 ms");
        return;
    case HF_CONFORM_REFUSED:
        hf_fail(transport, HF_EIO, "connection refused");
        return;
    case HF_CONFORM_TOO_LONG:
        hf_fail(transport, HF_EFULL, "the reply is too long");
        return;
    case HF_CONFORM_500:
    case HF_CONFORM_503:
    case HF_CONFORM_429:
        req->status = fault == HF_CONFORM_500 ? 500 : fault == HF_CONFORM_503 ? 503 : 429;
        assert_int_equal(hf_buf_add(&req->reply, html, sizeof(html) - 1, NULL), HF_OK);
        return;
    case HF_CONFORM_HTML:
        req->status = 200;
        assert_int_equal(hf_buf_add(&req->reply, html, sizeof(html) - 1, NULL), HF_OK);
        return;
    case HF_CONFORM_RUBBISH:
        req->status = 200;
        assert_int_equal(hf_buf_add(&req->reply, rubbish, sizeof(rubbish), NULL), HF_OK);
        return;
    case HF_CONFORM_EMPTY:
        req->status = 200;
        return;
    case HF_CONFORM_HEALTHY:
    case HF_CONFORM_FAULTS:
        fail_msg("not a fault");
    }
}

static enum hf_poll_result round_at(const struct hf_conform_subject *s, void *self, uint64_t now_ns,
                                    enum hf_mood mood, const struct hf_conform_plan *plan,
                                    struct hf_notice_list *ret, struct hf_err *err)
{
    for (unsigned i = 0; i <= HF_POLL_MORE_MAX; i++) {
        struct hf_http_req req;
        assert_int_equal(s->ops->poll_req(self, now_ns, &req, err), HF_OK);
        struct hf_err transport = {.code = HF_OK};
        if (plan != NULL && plan->fault != HF_CONFORM_HEALTHY && i >= plan->from && i <= plan->to) {
            misbehave(plan->fault, &req, &transport);
        } else {
            answer(s, mood, &req);
        }
        memset(ret, 0xa5, sizeof(*ret)); /* what is not set must not be used */
        ret->len = 0;
        enum hf_poll_result result = s->ops->poll_read(
            self, now_ns, &req, transport.code != HF_OK ? &transport : NULL, ret, err);
        hf_http_req_release(&req);
        if (result != HF_POLL_MORE) {
            return result;
        }
    }
    fail_msg("%s: more than %d requests in a round", s->ops->name, HF_POLL_MORE_MAX + 1);
    return HF_POLL_FAULT;
}

enum hf_poll_result hf_conform_round(const struct hf_conform_subject *s, void *self,
                                     enum hf_mood mood, const struct hf_conform_plan *plan,
                                     struct hf_notice_list *ret, struct hf_err *err)
{
    return round_at(s, self, hf_now_ns(), mood, plan, ret, err);
}

/* The parts */

static void table(const struct hf_cloud_ops *ops)
{
    assert_int_equal(ops->size, sizeof(*ops));
    assert_true(ops->name != NULL && ops->name[0] != '\0');
    assert_true(strlen(ops->name) < sizeof(((struct hf_notice *)NULL)->source));
    assert_true(ops->window_ms > 0);
    if (ops->flags & HF_CLOUD_NO_HTTP) {
        assert_true(ops->poll_req == NULL && ops->poll_read == NULL && ops->endpoint == NULL);
        return;
    }
    assert_true(ops->poll_req != NULL && ops->poll_read != NULL);
    assert_true(ops->create != NULL && ops->destroy != NULL);
    assert_true(strncmp(ops->endpoint, "http://", 7) == 0);
    assert_true(ops->endpoint[strlen(ops->endpoint) - 1] != '/');
    assert_true(ops->poll_ms >= 100 && ops->poll_ms <= 5000);
    assert_true(ops->total_ms >= 100 && ops->total_ms <= 10000);
}

static void is_calm(const struct hf_conform_subject *s, void *self)
{
    struct hf_notice_list list;
    struct hf_err err;
    assert_int_equal(hf_conform_round(s, self, HF_MOOD_CALM, NULL, &list, &err), HF_POLL_DONE);
    assert_int_equal(list.len, 0);
}

static void has_notice(const struct hf_conform_subject *s, void *self, enum hf_mood mood,
                       struct hf_notice *ret)
{
    struct hf_notice_list list;
    struct hf_err err;
    assert_int_equal(hf_conform_round(s, self, mood, NULL, &list, &err), HF_POLL_DONE);
    assert_int_equal(list.len, 1);
    *ret = list.items[0];
    assert_int_equal(ret->kind, HF_NOTICE_RECLAIM);
    assert_true(memchr(ret->id, '\0', sizeof(ret->id)) != NULL && ret->id[0] != '\0');
    assert_true(memchr(ret->action, '\0', sizeof(ret->action)) != NULL);
    assert_string_equal(ret->source, s->ops->name);
}

static void identities(const struct hf_conform_subject *s, void *self)
{
    struct hf_notice a, b, c;
    is_calm(s, self);
    has_notice(s, self, HF_MOOD_NOTICE, &a);
    has_notice(s, self, HF_MOOD_NOTICE, &b);
    assert_string_equal(a.id, b.id);
    assert_int_equal(a.at_wall_ms, b.at_wall_ms);
    is_calm(s, self);
    if (s->has_other) {
        has_notice(s, self, HF_MOOD_OTHER, &c);
        assert_true(strcmp(a.id, c.id) != 0 || a.at_wall_ms != c.at_wall_ms);
    }
}

static void check_fault(const struct hf_conform_subject *s, const struct hf_conform_plan *plan,
                        const struct hf_err *err)
{
    if (err->code == HF_OK || err->msg[0] == '\0' || strchr(err->msg, '\n') != NULL) {
        fail_msg("%s: fault %d at %u: no sentence", s->ops->name, (int)plan->fault, plan->from);
    }
}

/* A fault at any request of a round, or from there on: no invented notice, and sight comes back. */
static void one_fault(const struct hf_conform_subject *s, const struct hf_conform_plan *plan,
                      enum hf_mood mood, bool warm)
{
    void *self = s->ops->create(ENDPOINT);
    if (warm) {
        is_calm(s, self);
    }
    struct hf_notice_list list;
    struct hf_err err = {.code = HF_OK};
    enum hf_poll_result result = hf_conform_round(s, self, mood, plan, &list, &err);
    if (result == HF_POLL_FAULT) {
        assert_int_equal(list.len, 0);
        check_fault(s, plan, &err);
    } else if (list.len != (mood == HF_MOOD_CALM ? 0 : 1)) {
        fail_msg("%s: fault %d at %u..%u in mood %d: %zu notices", s->ops->name, (int)plan->fault,
                 plan->from, plan->to, (int)mood, list.len);
    }
    if (plan->from == 0 && plan->to > HF_POLL_MORE_MAX && result != HF_POLL_FAULT) {
        fail_msg("%s: nothing but fault %d, and yet answered", s->ops->name, (int)plan->fault);
    }
    struct hf_notice n;
    is_calm(s, self);
    has_notice(s, self, HF_MOOD_NOTICE, &n);
    s->ops->destroy(self);
}

static void faults(const struct hf_conform_subject *s)
{
    for (int fault = HF_CONFORM_TIMEOUT; fault < HF_CONFORM_FAULTS; fault++) {
        for (unsigned from = 0; from <= HF_POLL_MORE_MAX; from++) {
            for (int way = 0; way < 8; way++) {
                struct hf_conform_plan plan = {.fault = (enum hf_conform_fault)fault, .from = from};
                plan.to = way & 1 ? UINT32_MAX : from;
                one_fault(s, &plan, way & 2 ? HF_MOOD_CALM : HF_MOOD_NOTICE, way & 4);
            }
        }
    }
}

static void lifetimes(const struct hf_cloud_ops *ops)
{
    struct hf_http_req req;
    struct hf_err err;
    ops->destroy(NULL);
    ops->destroy(ops->create(ENDPOINT));
    void *self = ops->create(ENDPOINT);
    assert_int_equal(ops->poll_req(self, hf_now_ns(), &req, &err), HF_OK);
    ops->destroy(self); /* between request and reply */
    hf_http_req_release(&req);
}

static void acknowledges(const struct hf_conform_subject *s, void *self)
{
    if (s->ops->ack_req == NULL) {
        return;
    }
    struct hf_notice n;
    struct hf_http_req req;
    struct hf_err err;
    has_notice(s, self, HF_MOOD_NOTICE, &n);
    assert_int_equal(s->ops->ack_req(self, &n, &req, &err), HF_OK);
    answer(s, HF_MOOD_NOTICE, &req);
    assert_int_equal(req.status / 100, 2);
    hf_http_req_release(&req);
}

/* Within two minutes it is seen; it sets no time, stands under one id, and goes. */
static void hints(const struct hf_conform_subject *s)
{
    if (!s->has_hint) {
        return;
    }
    void *self = s->ops->create(ENDPOINT);
    struct hf_notice_list list;
    struct hf_err err;
    char id[sizeof(list.items[0].id)] = "";
    bool gone = false;
    for (uint64_t at_s = 1; at_s <= 360 && !gone; at_s++) {
        enum hf_mood mood = at_s <= 240 ? HF_MOOD_HINT : HF_MOOD_CALM;
        assert_int_equal(round_at(s, self, at_s * HF_SEC, mood, NULL, &list, &err), HF_POLL_DONE);
        assert_true(list.len <= 1);
        assert_true(at_s < 120 || at_s > 240 || list.len == 1);
        gone = at_s > 240 && list.len == 0;
        if (list.len == 1) {
            assert_int_equal(list.items[0].kind, HF_NOTICE_REBALANCE);
            assert_int_equal(list.items[0].at_wall_ms, 0);
            assert_string_equal(list.items[0].source, s->ops->name);
            assert_true(id[0] == '\0' || strcmp(id, list.items[0].id) == 0);
            memcpy(id, list.items[0].id, sizeof(id));
        }
    }
    assert_true(gone);
    s->ops->destroy(self);
}

void hf_conform_cloud(const struct hf_conform_subject *s)
{
    table(s->ops);
    if (s->ops->flags & HF_CLOUD_NO_HTTP) {
        return;
    }
    lifetimes(s->ops);
    void *self = s->ops->create(ENDPOINT);
    identities(s, self);
    acknowledges(s, self);
    s->ops->destroy(self);
    hints(s);
    faults(s);
}
