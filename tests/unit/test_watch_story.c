/* SPDX-License-Identifier: Apache-2.0
 *
 * Many watchers at once, each with a random story of its own from one simulated AWS service: calm,
 * notices that come, move and go, and every fault between. What is called back is what follows from
 * the answers that the service gave, in their order, and nobody is asked faster than agreed.
 */
#include "base/prelude.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "cloud/watch.h"
#include "support_httpd.h"
#include "support_loop.h"
#include "support_seed.h"

#define WATCHERS 24
#define EVENTS   14
#define POLL_MS  20
#define TOTAL_MS 700
#define MUTES    2 /* a story; each costs TOTAL_MS */
#define LOG_MAX  400

enum event { CALM, NOTICE, MOVED, LOST, BUSY, FLOOD, FORBIDDEN, DROP, CUT, GARBAGE, MUTE, KINDS };

struct play {
    enum event events[EVENTS]; /* then calm for ever */
    size_t at;
    unsigned token, mutes;
    bool token_good;
    int64_t now_ms; /* what stands */
    unsigned calm_at_the_end, requests;
    char want[LOG_MAX]; /* the calls that follow from the answers */
    int64_t told_ms;
    /* Of the loop thread. */
    struct hf_watch *watch;
    char got[LOG_MAX];
    enum hf_watch_health health;
};

struct stage {
    struct hf_loop loop;
    struct hf_http *http;
    struct hf_httpd *server;
    struct hf_cloud_ops ops;
    pthread_mutex_t lock; /* the service's part of the plays */
    int64_t base_ms;
    struct play plays[WATCHERS];
};

static void note(char *log, char what, int64_t ms)
{
    size_t len = strlen(log);
    snprintf(log + len, LOG_MAX - len, "%c%lld ", what, (long long)(ms % 1000000 / 1000));
}

/* An answer was given: what does it change for one who sees them all? */
static void answered(struct play *p)
{
    if (p->now_ms != p->told_ms) {
        if (p->now_ms != 0) {
            note(p->want, '+', p->now_ms);
        }
        if (p->told_ms != 0) {
            note(p->want, '-', p->told_ms);
        }
    }
    p->told_ms = p->now_ms;
}

static void answer(struct stage *s, struct play *p, struct hf_httpd_reply *ret)
{
    enum event e = p->at < EVENTS ? p->events[p->at] : CALM;
    p->calm_at_the_end += p->at >= EVENTS;
    p->at++;
    p->now_ms = e == CALM ? 0 : s->base_ms + (e == NOTICE ? 100000 : 60000);
    answered(p);
    if (e == CALM) {
        ret->status = 404;
    } else {
        char utc[HF_UTC_STRLEN];
        snprintf(ret->body, sizeof(ret->body), "{\"action\":\"terminate\",\"time\":\"%s\"}",
                 hf_utc_format(p->now_ms, utc));
    }
}

/* True: the event at hand is a fault, and this is its answer. */
static bool spoil(struct play *p, struct hf_httpd_reply *ret)
{
    static const int statuses[KINDS] = {[BUSY] = 503, [FLOOD] = 429, [FORBIDDEN] = 403};
    enum event e = p->at < EVENTS ? p->events[p->at] : CALM;
    while (e == LOST) {
        p->token_good = false;
        e = ++p->at < EVENTS ? p->events[p->at] : CALM;
    }
    if (e <= MOVED) {
        return false;
    }
    p->at++;
    ret->status = statuses[e];
    ret->act = e == DROP   ? HF_HTTPD_DROP
               : e == CUT  ? HF_HTTPD_CUT
               : e == MUTE ? HF_HTTPD_MUTE
                           : HF_HTTPD_ANSWER;
    snprintf(ret->body, sizeof(ret->body), "{\"action\": \"terminate\", ");
    return true;
}

static void serve(void *user, const struct hf_httpd_request *rq, struct hf_httpd_reply *ret)
{
    struct stage *s = user;
    size_t at = strtoul(rq->path + 1, NULL, 10);
    const char *path = strchr(rq->path + 1, '/');
    char token[64] = "", want[64];
    pthread_mutex_lock(&s->lock);
    struct play *p = &s->plays[at % WATCHERS];
    p->requests++;
    snprintf(want, sizeof(want), "token-%zu-%u", at, p->token);
    hf_httpd_header(rq, "X-aws-ec2-metadata-token", token, sizeof(token));
    if (path == NULL || spoil(p, ret)) {
        ret->status = path == NULL ? 400 : ret->status;
    } else if (strcmp(rq->method, "PUT") == 0) {
        p->token_good = true;
        snprintf(ret->body, sizeof(ret->body), "token-%zu-%u", at, ++p->token);
    } else if (!p->token_good || strcmp(token, want) != 0) {
        ret->status = 401;
    } else if (strcmp(path, "/latest/meta-data/spot/instance-action") == 0) {
        answer(s, p, ret);
    } else {
        ret->status = 404; /* no recommendation; no instance id is asked for with a token */
    }
    pthread_mutex_unlock(&s->lock);
}

static void on_notice(void *user, const struct hf_notice *n)
{
    struct play *p = user;
    note(p->got, '+', n->at_wall_ms);
}

static void on_withdrawn(void *user, const struct hf_notice *n)
{
    struct play *p = user;
    note(p->got, '-', n->at_wall_ms);
}

static void on_health(void *user, enum hf_watch_health health, const struct hf_err *why)
{
    struct play *p = user;
    assert_int_not_equal(p->health, health);
    assert_int_equal(why == NULL, health == HF_WATCH_SEEING);
    p->health = health;
}

static const struct hf_watch_cb callbacks = {on_notice, on_withdrawn, on_health};

static void invent(struct play *p, uint64_t *random)
{
    unsigned mutes = 0;
    for (size_t i = 0; i < EVENTS; i++) {
        enum event e = (enum event)hf_test_below(random, KINDS);
        e = hf_test_below(random, 3) == 0 ? (enum event)hf_test_below(random, LOST) : e;
        mutes += e == MUTE;
        p->events[i] = e == MUTE && mutes > MUTES ? CUT : e;
    }
    p->mutes = mutes < MUTES ? mutes : MUTES;
}

static bool all_calm(void *user)
{
    struct stage *s = user;
    bool calm = true;
    pthread_mutex_lock(&s->lock);
    for (size_t i = 0; i < WATCHERS; i++) {
        calm = calm && s->plays[i].calm_at_the_end >= 3;
    }
    pthread_mutex_unlock(&s->lock);
    return calm;
}

static void judge(struct play *p, uint64_t spent_ms, unsigned *judged)
{
    struct hf_watch_status st;
    hf_watch_get_status(p->watch, &st);
    assert_int_equal(st.health, HF_WATCH_SEEING);
    assert_true(st.ok <= st.polls && st.noticed <= st.ok);
    /* From one round to the next no less than the interval: one more may have begun. */
    if (st.polls > spent_ms / POLL_MS + 2) {
        fail_msg("%u rounds in %u ms", (unsigned)st.polls, (unsigned)spent_ms);
    }
    assert_true(p->requests <= st.polls * (HF_POLL_MORE_MAX + 1));
    if (st.timeouts > p->mutes) {
        return; /* this machine was too slow for one of the answers */
    }
    ++*judged;
    if (strcmp(p->got, p->want) != 0) {
        fail_msg("called back '%s', by the answers '%s'", p->got, p->want);
    }
}

static void random_stories(void **state)
{
    (void)state;
    struct stage *s = HF_NEW(struct stage);
    uint64_t random = hf_test_seed();
    unsigned judged = 0;
    pthread_mutex_init(&s->lock, NULL);
    assert_int_equal(hf_loop_init(&s->loop, NULL), HF_OK);
    s->base_ms = hf_wall_ms() / 1000 * 1000;
    s->http = hf_http_new(&s->loop);
    s->server = hf_httpd_start(serve, s);
    s->ops = hf_cloud_aws;
    s->ops.total_ms = TOTAL_MS;
    uint64_t from_ns = hf_now_ns();
    for (size_t i = 0; i < WATCHERS; i++) {
        char endpoint[64];
        struct play *p = &s->plays[i];
        invent(p, &random);
        snprintf(endpoint, sizeof(endpoint), "http://127.0.0.1:%u/%zu",
                 (unsigned)hf_httpd_port(s->server), i);
        struct hf_watch_cfg cfg = {.ops = &s->ops, .endpoint = endpoint, .poll_ms = POLL_MS};
        p->watch = hf_watch_start(&s->loop, s->http, &cfg, &callbacks, p);
    }
    assert_true(hf_test_run_until(&s->loop, all_calm, s, 60000));
    uint64_t spent_ms = (hf_now_ns() - from_ns) / HF_MS;
    for (size_t i = 0; i < WATCHERS; i++) {
        judge(&s->plays[i], spent_ms, &judged);
        hf_watch_stop(s->plays[i].watch);
    }
    assert_true(judged >= WATCHERS / 2);
    for (int i = 0; i < 3; i++) {
        uv_run(&s->loop.uv, UV_RUN_NOWAIT);
    }
    hf_http_free(s->http);
    hf_test_loop_close(&s->loop);
    hf_httpd_stop(s->server);
    pthread_mutex_destroy(&s->lock);
    hf_free(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(random_stories)};
    return cmocka_run_group_tests_name("watch_story", tests, NULL, NULL);
}
