/* SPDX-License-Identifier: Apache-2.0
 *
 * Every order of events at the AWS metadata service, over four to six polls: the provider and the
 * table of standing notices against what the service (a fake, here) knows it has said. No fault may
 * take a notice back or tell it twice, every refused token is renewed in the same round, and no
 * question is asked more often than it should.
 */
#include "base/prelude.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "cloud/notices.h"
#include "cloud/watch.h"

#define ENDPOINT  "http://127.0.0.1:7777"
#define WINDOW_MS 120000
#define WALL_MS   INT64_C(1800000000000)
#define TTL_S     21600

enum event {
    CALM,
    NOTICE,
    MOVED, /* the same with an earlier time */
    HINT,  /* calm, and a recommendation to move */
    LOST,  /* the token is forgotten; what stood stands */
    BUSY,  /* 503 to everything */
    FLOOD, /* 429 */
    FORBIDDEN,
    UNAUTHORIZED, /* whatever the token */
    SILENT,       /* connected, no answer */
    REFUSED,      /* no connection */
    GARBAGE,      /* 200 with no JSON, and no token */
    EVENTS
};

static const char letters[] = "CNMHLBFXUSRG";

struct world {
    enum event now;
    uint64_t now_ns;
    int64_t at_ms;        /* of the notice that stands; 0: none */
    bool hint, hint_seen; /* seen: the last time that it was asked for and told */
    unsigned tokens;      /* number of the newest */
    bool good;            /* it was delivered and not refused since */
    uint64_t token_end_ns, hint_asked_ns;
    char story[16];
};

static void set_body(struct hf_http_req *req, int status, const char *text)
{
    req->status = status;
    req->connected = true;
    assert_int_equal(hf_buf_add(&req->reply, text, strlen(text), NULL), HF_OK);
}

/* True: the fault was this request's answer. */
static bool misbehave(const struct world *w, struct hf_http_req *req, struct hf_err *transport)
{
    switch (w->now) {
    case BUSY:
        set_body(req, 503, "<html>");
        return true;
    case FLOOD:
        set_body(req, 429, "");
        return true;
    case FORBIDDEN:
        set_body(req, 403, "");
        return true;
    case SILENT:
        req->connected = true;
        hf_fail(transport, HF_ETIMEOUT, "no complete answer");
        return true;
    case REFUSED:
        hf_fail(transport, HF_EIO, "no connection");
        return true;
    case GARBAGE:
        set_body(req, 200, "\x01{\"action\":");
        return true;
    default:
        return false;
    }
}

static void give_token(struct world *w, struct hf_http_req *req)
{
    char text[32];
    if (w->good && w->now_ns + 15 * HF_SEC < w->token_end_ns) {
        fail_msg("%s: asks for a token and has one", w->story);
    }
    snprintf(text, sizeof(text), "token-%u", ++w->tokens);
    w->good = true;
    w->token_end_ns = w->now_ns + TTL_S * HF_SEC;
    req->reply_headers[0] = hf_asprintf("X-aws-ec2-metadata-token-ttl-seconds: %d", TTL_S);
    set_body(req, 200, text);
}

static bool token_holds(struct world *w, const struct hf_http_req *req)
{
    static const char name[] = "X-aws-ec2-metadata-token: ";
    const char *token = NULL;
    for (size_t i = 0; i < req->headers.len; i++) {
        const char *line = req->headers.items[i];
        if (strncmp(line, name, sizeof(name) - 1) == 0) {
            assert_null(token); /* replaced, never added */
            token = line + sizeof(name) - 1;
        }
    }
    char want[32];
    snprintf(want, sizeof(want), "token-%u", w->tokens);
    bool holds = token != NULL && w->good && w->now != UNAUTHORIZED &&
                 w->now_ns < w->token_end_ns && strcmp(token, want) == 0;
    w->good = w->good && (holds || token == NULL);
    return holds;
}

static void serve(struct world *w, struct hf_http_req *req, struct hf_err *transport)
{
    const char *path = req->url + strlen(ENDPOINT);
    char text[HF_UTC_STRLEN], body[128];
    bool is_hint = strcmp(path, "/latest/meta-data/events/recommendations/rebalance") == 0;
    if (is_hint) {
        assert_true(w->hint_asked_ns == 0 || w->now_ns - w->hint_asked_ns >= 5 * HF_SEC);
        w->hint_asked_ns = w->now_ns;
    }
    if (misbehave(w, req, transport)) {
        return;
    }
    if (strcmp(req->method, "PUT") == 0) {
        assert_string_equal(path, "/latest/api/token");
        give_token(w, req);
    } else if (!token_holds(w, req)) {
        set_body(req, 401, "");
    } else if (is_hint) {
        w->hint_seen = w->hint;
        set_body(req, w->hint ? 200 : 404, "{\"noticeTime\":\"2027-01-15T08:00:00Z\"}");
    } else if (w->at_ms == 0) {
        set_body(req, 404, "<html>404</html>");
    } else {
        assert_string_equal(path, "/latest/meta-data/spot/instance-action");
        snprintf(body, sizeof(body), "{\"action\":\"terminate\",\"time\":\"%s\"}",
                 hf_utc_format(w->at_ms, text));
        set_body(req, 200, body);
    }
}

static enum hf_poll_result one_round(struct world *w, void *self, struct hf_notice_list *ret,
                                     struct hf_err *err)
{
    for (unsigned i = 0; i <= HF_POLL_MORE_MAX; i++) {
        struct hf_http_req req;
        struct hf_err transport = {.code = HF_OK};
        assert_int_equal(hf_cloud_aws.poll_req(self, w->now_ns, &req, err), HF_OK);
        serve(w, &req, &transport);
        memset(ret, 0xa5, sizeof(*ret));
        enum hf_poll_result result = hf_cloud_aws.poll_read(
            self, w->now_ns, &req, transport.code != HF_OK ? &transport : NULL, ret, err);
        hf_http_req_release(&req);
        if (result != HF_POLL_MORE) {
            return result;
        }
    }
    fail_msg("%s: more than %d requests in one round", w->story, HF_POLL_MORE_MAX + 1);
    return HF_POLL_FAULT;
}

static void begin_event(struct world *w, enum event e)
{
    w->now = e;
    if (e == LOST) {
        w->good = false;
    } else if (e <= HINT) {
        w->at_ms = e == NOTICE ? WALL_MS + 100000 : e == MOVED ? WALL_MS + 60000 : 0;
        w->hint = e == HINT;
    }
}

/* The list of an answered round is what the service knows to stand. */
static void check_list(const struct world *w, const struct hf_notice_list *list)
{
    size_t want = (w->at_ms != 0 ? 1 : 0) + (w->hint_seen ? 1 : 0);
    if (list->len != want) {
        fail_msg("%s: %zu notices, not %zu", w->story, list->len, want);
    }
    if (w->at_ms != 0) {
        assert_int_equal(list->items[0].kind, HF_NOTICE_RECLAIM);
        assert_int_equal(list->items[0].at_wall_ms, w->at_ms);
    }
    if (w->hint_seen) {
        assert_int_equal(list->items[want - 1].kind, HF_NOTICE_REBALANCE);
        assert_int_equal(list->items[want - 1].at_wall_ms, 0);
    }
}

/* What has been told and not withdrawn, by the calls alone. */
struct told {
    struct hf_notices table;
    int64_t at_ms[2]; /* of reclaims; at most two, while one takes the other's place */
    uint64_t deadline_ns[2];
    size_t n;
    bool hint;
};

static void apply(const struct world *w, struct told *t, const struct hf_notices_change *c)
{
    if (c->n.kind == HF_NOTICE_REBALANCE) {
        assert_int_equal(t->hint, c->what == HF_NOTICES_WITHDRAWN);
        t->hint = !t->hint;
        return;
    }
    size_t at = 0;
    while (at < t->n && t->at_ms[at] != c->n.at_wall_ms) {
        at++;
    }
    if (c->what == HF_NOTICES_TOLD) {
        if (at < t->n || t->n == 2) {
            fail_msg("%s: told twice", w->story);
        }
        t->at_ms[at] = c->n.at_wall_ms;
        t->deadline_ns[at] = hf_notice_deadline(&c->n, w->now_ns, WALL_MS, WINDOW_MS);
        /* By the document: the time told, counted from first sight, and never over the window. */
        int64_t left_ms = c->n.at_wall_ms - WALL_MS;
        left_ms = left_ms < WINDOW_MS ? left_ms : WINDOW_MS;
        assert_int_equal(t->deadline_ns[at], w->now_ns + (uint64_t)left_ms * HF_MS);
        t->n++;
    } else {
        if (at == t->n) {
            fail_msg("%s: withdrawn and not told", w->story);
        }
        t->n--;
        t->at_ms[at] = t->at_ms[t->n];
        t->deadline_ns[at] = t->deadline_ns[t->n];
    }
}

static void take_round(struct world *w, struct told *t, const struct hf_notice_list *list)
{
    struct hf_notices_change changes[HF_NOTICES_CHANGES_MAX];
    int64_t before_ms = t->n > 0 ? t->at_ms[0] : 0;
    uint64_t before_ns = t->n > 0 ? t->deadline_ns[0] : 0;
    size_t n = hf_notices_update(&t->table, list, w->now_ns, WALL_MS, changes);
    for (size_t i = 0; i < n; i++) {
        apply(w, t, &changes[i]);
    }
    /* What is told is what stands; and while it stands its deadline does not move. */
    assert_int_equal(t->n, w->at_ms != 0);
    assert_int_equal(t->hint, w->hint_seen);
    if (t->n > 0) {
        assert_int_equal(t->at_ms[0], w->at_ms);
        assert_true(before_ms != w->at_ms || t->deadline_ns[0] == before_ns);
    }
}

/* step_s: how long between two polls. with_table: short enough for notices not to get overdue. */
static void play(const unsigned char *events, size_t n, uint64_t step_s, bool with_table)
{
    struct world w = {.now_ns = 1000 * HF_SEC};
    struct told t = {.table = {.window_ms = WINDOW_MS, .rearm_ms = 300000}};
    void *self = hf_cloud_aws.create(ENDPOINT);
    for (size_t i = 0; i < n; i++) {
        w.story[i] = letters[events[i]];
        begin_event(&w, (enum event)events[i]);
        struct hf_notice_list list;
        struct hf_err err = {.code = HF_OK};
        enum hf_poll_result result = one_round(&w, self, &list, &err);
        bool answers = events[i] <= LOST;
        if (result != (answers ? HF_POLL_DONE : HF_POLL_FAULT)) {
            fail_msg("%s: result %d (%s)", w.story, (int)result, err.msg);
        }
        if (answers) {
            check_list(&w, &list);
            if (with_table) {
                take_round(&w, &t, &list);
            }
        } else {
            assert_int_equal(list.len, 0);
            assert_int_not_equal(err.code, HF_OK);
            assert_non_null(strstr(err.msg, "aws metadata"));
        }
        w.now_ns += step_s * HF_SEC;
    }
    hf_cloud_aws.destroy(self);
}

/* All rows of n out of `some` events. */
static void play_all(const enum event *some, size_t kinds, size_t n, uint64_t step_s,
                     bool with_table)
{
    size_t total = 1;
    for (size_t i = 0; i < n; i++) {
        total *= kinds;
    }
    for (size_t row = 0; row < total; row++) {
        unsigned char events[8];
        size_t rest = row;
        for (size_t i = 0; i < n; i++, rest /= kinds) {
            events[i] = (unsigned char)some[rest % kinds];
        }
        play(events, n, step_s, with_table);
    }
}

static const enum event everything[] = {CALM,  NOTICE,    MOVED,        HINT,   LOST,    BUSY,
                                        FLOOD, FORBIDDEN, UNAUTHORIZED, SILENT, REFUSED, GARBAGE};

/* A poll a second, as it is. */
static void b1_all_stories_of_four(void **state)
{
    (void)state;
    play_all(everything, EVENTS, getenv("HOLDFAST_TEST_LONG") != NULL ? 5 : 4, 1, true);
}

/* Seven seconds apart: every calm round asks for a recommendation too. */
static void b1_all_stories_with_hints(void **state)
{
    (void)state;
    static const enum event some[] = {CALM, NOTICE, HINT, LOST, UNAUTHORIZED, SILENT};
    play_all(everything, EVENTS, 3, 7, true);
    play_all(some, HF_COUNT(some), 5, 7, true);
}

/* Six hours apart: no token outlives two polls. */
static void b1_all_stories_with_old_tokens(void **state)
{
    (void)state;
    static const enum event some[] = {CALM, NOTICE, LOST, FORBIDDEN, SILENT, REFUSED};
    static const uint64_t steps_s[] = {TTL_S - 16, TTL_S - 14, TTL_S, TTL_S + 1};
    for (size_t i = 0; i < HF_COUNT(steps_s); i++) {
        play_all(some, HF_COUNT(some), 4, steps_s[i], false);
    }
}

static void b1_all_stories_of_six(void **state)
{
    (void)state;
    static const enum event some[] = {CALM, NOTICE, MOVED, LOST, BUSY};
    play_all(some, HF_COUNT(some), 6, 1, true);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(b1_all_stories_of_four),
        cmocka_unit_test(b1_all_stories_with_hints),
        cmocka_unit_test(b1_all_stories_with_old_tokens),
        cmocka_unit_test(b1_all_stories_of_six),
    };
    return cmocka_run_group_tests_name("aws_story", tests, NULL, NULL);
}
