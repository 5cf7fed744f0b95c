/* SPDX-License-Identifier: Apache-2.0
 *
 * cloud/watch over real loopback sockets, against an AWS service that misbehaves in every way seen
 * in the field and against the long-poll double.
 */
#include "base/prelude.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/hash.h"
#include "cloud/watch.h"
#include "support_httpd.h"
#include "support_longpoll.h"
#include "support_loop.h"

/* AWS's service. Everything is set before the watcher starts, or with `lock` held. */
struct imds {
    pthread_mutex_t lock;
    unsigned token; /* number of the one that holds; 0: none */
    unsigned uses;  /* of that token */
    bool storm;     /* a used token is forgotten at random */
    int spoil;      /* that many of the next notice questions are answered with `spoiled` */
    struct hf_httpd_reply spoiled;
    enum hf_httpd_act token_act; /* MUTE: the token never arrives */
    bool mute;                   /* nothing is ever answered */
    int64_t at_ms;               /* 0: calm */
    int64_t date_ms;             /* 0: no Date header */
    const char *action;
    unsigned questions, storms;
};

static void give_token(struct imds *m, struct hf_httpd_reply *ret)
{
    ret->act = m->token_act;
    m->token++;
    m->uses = 0;
    snprintf(ret->body, sizeof(ret->body), "token-%u", m->token);
    snprintf(ret->headers, sizeof(ret->headers), "X-aws-ec2-metadata-token-ttl-seconds: 21600\r\n");
}

static bool token_holds(struct imds *m, const struct hf_httpd_request *rq)
{
    char want[32], got[64] = "";
    snprintf(want, sizeof(want), "token-%u", m->token);
    unsigned n = hf_httpd_header(rq, "X-aws-ec2-metadata-token", got, sizeof(got));
    if (n > 1) {
        abort(); /* the header must be replaced, never added */
    }
    if (m->storm && m->uses > 0 && hf_random_u64() % 2 == 0) {
        m->storms++;
        return false;
    }
    m->uses++;
    return strcmp(want, got) == 0;
}

static void write_date(const struct imds *m, struct hf_httpd_reply *ret)
{
    if (m->date_ms == 0) {
        return;
    }
    static const char *const months[] = {"Jan", "Feb", "Mar", "Apr", "May", "Jun",
                                         "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"};
    char utc[HF_UTC_STRLEN];
    hf_utc_format(m->date_ms, utc);
    snprintf(ret->headers, sizeof(ret->headers), "Date: Mon, %.2s %s %.4s %.8s GMT\r\n", utc + 8,
             months[strtol(utc + 5, NULL, 10) - 1], utc, utc + 11);
}

static void serve_question(struct imds *m, const struct hf_httpd_request *rq,
                           struct hf_httpd_reply *ret)
{
    m->questions++;
    if (!token_holds(m, rq)) {
        ret->status = 401;
    } else if (m->spoil > 0) {
        m->spoil--;
        *ret = m->spoiled;
    } else if (m->at_ms == 0) {
        ret->status = 404;
        snprintf(ret->body, sizeof(ret->body), "<html>404 - Not Found</html>");
    } else {
        char utc[HF_UTC_STRLEN];
        snprintf(ret->body, sizeof(ret->body), "{\"action\":\"%s\",\"time\":\"%s\"}",
                 m->action != NULL ? m->action : "terminate", hf_utc_format(m->at_ms, utc));
        write_date(m, ret);
    }
}

static void serve_imds(void *user, const struct hf_httpd_request *rq, struct hf_httpd_reply *ret)
{
    struct imds *m = user;
    pthread_mutex_lock(&m->lock);
    if (m->mute) {
        ret->act = HF_HTTPD_MUTE;
    } else if (strcmp(rq->method, "PUT") == 0) {
        give_token(m, ret);
    } else if (strcmp(rq->path, "/latest/meta-data/spot/instance-action") == 0) {
        serve_question(m, rq, ret);
    } else {
        ret->status = 401;
    }
    pthread_mutex_unlock(&m->lock);
}

struct fixture {
    struct hf_loop loop;
    struct hf_http *http;
    struct hf_httpd *server;
    struct imds imds;
    struct hf_cloud_ops ops; /* AWS; with a short time-out where the test waits for it */
    char endpoint[64];
    struct hf_watch *watch;
    /* What was told. */
    unsigned told, withdrawn;
    struct hf_notice last, last_withdrawn;
    uint64_t told_ns, told_polls;
    enum hf_watch_health health;
    unsigned healths; /* changes */
    struct hf_err why;
    bool stop_on_notice, stop_on_health;
};

static struct hf_watch_status status_of(const struct fixture *f)
{
    struct hf_watch_status st;
    hf_watch_get_status(f->watch, &st);
    return st;
}

static void stop_now(struct fixture *f)
{
    hf_watch_stop(f->watch);
    f->watch = NULL;
}

static void on_notice(void *user, const struct hf_notice *n)
{
    struct fixture *f = user;
    assert_non_null(f->watch);
    f->told++;
    f->told_ns = hf_now_ns();
    f->told_polls = status_of(f).polls;
    f->last = *n;
    if (f->stop_on_notice) {
        stop_now(f);
    }
}

static void on_withdrawn(void *user, const struct hf_notice *n)
{
    struct fixture *f = user;
    assert_non_null(f->watch);
    f->withdrawn++;
    f->last_withdrawn = *n;
}

static void on_health(void *user, enum hf_watch_health health, const struct hf_err *why)
{
    struct fixture *f = user;
    assert_non_null(f->watch);
    assert_int_equal(why == NULL, health == HF_WATCH_SEEING);
    f->health = health;
    f->healths++;
    if (why != NULL) {
        f->why = *why;
    }
    if (f->stop_on_health) {
        stop_now(f);
    }
}

static const struct hf_watch_cb callbacks = {on_notice, on_withdrawn, on_health};

static int setup(void **state)
{
    struct fixture *f = HF_NEW(struct fixture);
    assert_int_equal(hf_loop_init(&f->loop, NULL), HF_OK);
    f->http = hf_http_new(&f->loop);
    pthread_mutex_init(&f->imds.lock, NULL);
    f->server = hf_httpd_start(serve_imds, &f->imds);
    snprintf(f->endpoint, sizeof(f->endpoint), "http://127.0.0.1:%u",
             (unsigned)hf_httpd_port(f->server));
    f->ops = hf_cloud_aws;
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *f = *state;
    hf_watch_stop(f->watch);
    for (int i = 0; i < 3; i++) {
        uv_run(&f->loop.uv, UV_RUN_NOWAIT);
    }
    hf_http_free(f->http);
    hf_test_loop_close(&f->loop);
    hf_httpd_stop(f->server);
    pthread_mutex_destroy(&f->imds.lock);
    hf_free(f);
    return 0;
}

static void start(struct fixture *f, uint32_t poll_ms, uint32_t rearm_ms)
{
    struct hf_watch_cfg cfg = {&f->ops, f->endpoint, poll_ms, rearm_ms, 0};
    f->watch = hf_watch_start(&f->loop, f->http, &cfg, &callbacks, f);
}

static void set_notice(struct fixture *f, int64_t at_ms, int64_t date_ms)
{
    pthread_mutex_lock(&f->imds.lock);
    f->imds.at_ms = at_ms;
    f->imds.date_ms = date_ms;
    pthread_mutex_unlock(&f->imds.lock);
}

#define COND(name, expr)                          \
    static bool name(void *user)                  \
    {                                             \
        struct fixture *f = user;                 \
        struct hf_watch_status st = status_of(f); \
        (void)st;                                 \
        return (expr);                            \
    }
COND(is_seeing, f->health == HF_WATCH_SEEING)
COND(is_blind, f->health == HF_WATCH_BLIND)
COND(is_told, f->told > 0)
COND(is_told_twice, f->told > 1)
COND(is_withdrawn, f->withdrawn > 0)
COND(has_30_rounds, st.ok >= 30)
COND(has_2_timeouts, st.timeouts >= 2)

static void until(struct fixture *f, hf_test_cond_fn *cond)
{
    if (!hf_test_run_until(&f->loop, cond, f, 20000)) {
        struct hf_watch_status st = status_of(f);
        fail_msg("waited in vain: health %d, %u told, %u withdrawn, %u rounds, last '%s'",
                 (int)f->health, f->told, f->withdrawn, (unsigned)st.polls, st.last_err.msg);
    }
}

static bool never(void *user)
{
    (void)user;
    return false;
}

/* For what must not happen within a time. */
static void run_for(struct fixture *f, uint64_t ms)
{
    hf_test_run_until(&f->loop, never, NULL, ms);
}

/* Calm, then a notice */

static void calm_then_notice(void **state)
{
    struct fixture *f = *state;
    start(f, 20, 0);
    assert_int_equal(hf_httpd_requests(f->server), 0); /* nothing before the loop runs */
    until(f, has_30_rounds);
    struct hf_watch_status st = status_of(f);
    assert_int_equal(st.health, HF_WATCH_SEEING);
    assert_int_equal(f->healths, 1);
    assert_int_equal(st.noticed + st.refused + st.timeouts + st.server_errors + st.unauthorized, 0);
    assert_int_equal(f->imds.token, 1);
    assert_int_equal(hf_httpd_connections(f->server), 1); /* one, kept alive */
    set_notice(f, INT64_C(1505722920000), INT64_C(1505722800000));
    uint64_t set_ns = hf_now_ns();
    until(f, is_told);
    assert_true(f->told_ns - set_ns < 500 * HF_MS);
    assert_int_equal(f->last.at_wall_ms, INT64_C(1505722920000));
    assert_int_equal(f->last.date_wall_ms, INT64_C(1505722800000));
    assert_string_equal(f->last.action, "terminate");
    uint64_t ok = status_of(f).ok;
    while (status_of(f).ok < ok + 10) {
        uv_run(&f->loop.uv, UV_RUN_ONCE);
    }
    assert_int_equal(f->told, 1); /* once, however long it stands */
    assert_int_equal(f->withdrawn, 0);
    assert_true(status_of(f).noticed >= 10);
}

static void interval_is_kept(void **state)
{
    struct fixture *f = *state;
    start(f, 40, 0);
    until(f, is_seeing);
    uint64_t polls = status_of(f).polls, begin_ns = hf_now_ns();
    until(f, has_30_rounds);
    uint64_t rounds = status_of(f).polls - polls, spent_ms = (hf_now_ns() - begin_ns) / HF_MS;
    assert_true(spent_ms >= (rounds - 1) * 38);
}

/* Tokens that vanish cost no poll: each round is answered, however many were refused. */
static void storm_of_401(void **state)
{
    struct fixture *f = *state;
    f->imds.storm = true;
    start(f, 20, 0);
    until(f, has_30_rounds);
    struct hf_watch_status before = status_of(f);
    assert_true(before.unauthorized > 3);
    assert_true(before.polls - before.ok <= 1); /* one may be under way */
    set_notice(f, hf_wall_ms() + 120000, 0);
    until(f, is_told);
    struct hf_watch_status after = status_of(f);
    assert_true(f->told_polls - before.polls <= 2);
    assert_true(after.polls - after.ok <= 1);
    assert_int_equal(f->healths, 1);
}

static void five_503_then_notice(void **state)
{
    struct fixture *f = *state;
    f->imds.spoil = 5;
    f->imds.spoiled = (struct hf_httpd_reply){.status = 503, .body = "<html>busy</html>"};
    f->imds.at_ms = hf_wall_ms() + 120000;
    start(f, 20, 0);
    until(f, is_told);
    struct hf_watch_status st = status_of(f);
    assert_int_equal(st.server_errors, 5);
    assert_int_equal(f->told_polls, 6);
    assert_int_equal(f->healths, 2); /* blind after the third, then seeing */
    assert_int_equal(f->health, HF_WATCH_SEEING);
    assert_non_null(strstr(f->why.msg, "status 503"));
    assert_int_equal(st.last_err.native, 503);
}

/* Back-off grows, but never past 5 s: with 1 s between polls, 6 faults may not cost 30 s. Here the
 * scale is smaller and only the growth is looked at. */
static void faults_do_not_storm(void **state)
{
    struct fixture *f = *state;
    f->imds.spoil = 1000;
    f->imds.spoiled = (struct hf_httpd_reply){.status = 500};
    start(f, 20, 0);
    until(f, is_blind);
    uint64_t polls = status_of(f).polls;
    run_for(f, 1000);
    uint64_t more = status_of(f).polls - polls;
    assert_true(more >= 1 && more <= 50);
}

static void broken_bodies(void **state)
{
    struct fixture *f = *state;
    f->imds.spoil = 2;
    f->imds.spoiled = (struct hf_httpd_reply){.status = 200, .body = "<html>hello</html>"};
    f->imds.at_ms = hf_wall_ms() + 120000;
    start(f, 20, 0);
    until(f, is_told);
    struct hf_watch_status st = status_of(f);
    assert_int_equal(f->told_polls, 3);
    assert_int_equal(st.last_err.code, HF_ECORRUPT);
    assert_int_equal(f->healths, 1); /* two are not three */
}

/* Connections cut in the middle of a reply, or before it. */
static void cut_replies(void **state)
{
    struct fixture *f = *state;
    f->imds.spoil = 2;
    f->imds.spoiled = (struct hf_httpd_reply){
        .act = HF_HTTPD_CUT,
        .body = "{\"action\":\"terminate\",\"time\":\"2017-09-18T08:22:00Z\"}"};
    f->imds.at_ms = hf_wall_ms() + 120000;
    start(f, 20, 0);
    until(f, is_told);
    struct hf_watch_status st = status_of(f);
    assert_int_equal(st.refused, 2);
    assert_int_equal(f->told, 1);
    assert_true(f->last.at_wall_ms > INT64_C(1600000000000));
}

/* Dead services */

static void black_hole(void **state)
{
    struct fixture *f = *state;
    f->imds.mute = true;
    f->ops.total_ms = 60;
    start(f, 20, 0);
    until(f, has_2_timeouts);
    assert_int_equal(f->health, HF_WATCH_STARTING);
    until(f, is_blind);
    struct hf_watch_status st = status_of(f);
    assert_int_equal(st.ok, 0);
    assert_int_equal(st.last_ok_ns, 0);
    assert_true(st.timeouts >= 6); /* token, and without */
    assert_non_null(strstr(f->why.msg, "no complete answer within 60 ms"));
    assert_null(strstr(f->why.msg, "hop limit"));
    pthread_mutex_lock(&f->imds.lock);
    f->imds.mute = false;
    pthread_mutex_unlock(&f->imds.lock);
    until(f, is_seeing);
}

static void hop_limit_is_named(void **state)
{
    struct fixture *f = *state;
    f->imds.token_act = HF_HTTPD_MUTE;
    f->ops.total_ms = 200; /* the question without a token must be answered within it */
    start(f, 20, 0);
    until(f, is_blind);
    assert_non_null(strstr(f->why.msg, "hop limit"));
    assert_non_null(strstr(f->why.hint, "HttpPutResponseHopLimit"));
    struct hf_watch_status st = status_of(f);
    assert_true(st.timeouts >= 3 && st.unauthorized >= 3);
}

static void refusals(void **state)
{
    struct fixture *f = *state;
    snprintf(f->endpoint, sizeof(f->endpoint), "http://127.0.0.1:%u",
             (unsigned)hf_httpd_refusing_port());
    start(f, 20, 0);
    until(f, is_blind);
    assert_non_null(strstr(f->why.msg, "Connection refused"));
    assert_true(status_of(f).refused >= 3);
    assert_int_equal(status_of(f).timeouts, 0);
}

static void goes_blind_and_sees_again(void **state)
{
    struct fixture *f = *state;
    f->ops.total_ms = 200;
    start(f, 20, 0);
    until(f, is_seeing);
    pthread_mutex_lock(&f->imds.lock);
    f->imds.mute = true;
    pthread_mutex_unlock(&f->imds.lock);
    until(f, is_blind);
    set_notice(f, hf_wall_ms() + 120000, 0);
    pthread_mutex_lock(&f->imds.lock);
    f->imds.mute = false;
    pthread_mutex_unlock(&f->imds.lock);
    until(f, is_told);
    assert_int_equal(f->healths, 3);
}

static void bad_endpoint(void **state)
{
    struct fixture *f = *state;
    snprintf(f->endpoint, sizeof(f->endpoint), "ftp://127.0.0.1");
    start(f, 20, 0);
    until(f, is_blind);
    assert_non_null(strstr(f->why.msg, "ftp://127.0.0.1"));
}

/* Where to ask */

static void endpoint_from_the_environment(void **state)
{
    struct fixture *f = *state;
    char url[80], proxy[64];
    snprintf(url, sizeof(url), "%s/", f->endpoint);
    snprintf(proxy, sizeof(proxy), "http://127.0.0.1:%u", (unsigned)hf_httpd_refusing_port());
    setenv("AWS_EC2_METADATA_SERVICE_ENDPOINT", url, 1);
    setenv("http_proxy", proxy, 1);
    setenv("ALL_PROXY", proxy, 1);
    struct hf_watch_cfg cfg = {.ops = &f->ops, .poll_ms = 20};
    f->watch = hf_watch_start(&f->loop, f->http, &cfg, &callbacks, f);
    unsetenv("AWS_EC2_METADATA_SERVICE_ENDPOINT");
    until(f, is_seeing);
    unsetenv("http_proxy");
    unsetenv("ALL_PROXY");
    assert_int_equal(status_of(f).refused, 0);
}

/* Notices that end */

static void withdrawn_when_gone(void **state)
{
    struct fixture *f = *state;
    int64_t at_ms = hf_wall_ms() + 120000;
    f->imds.at_ms = at_ms;
    start(f, 20, 0);
    until(f, is_told);
    set_notice(f, 0, 0);
    until(f, is_withdrawn);
    assert_string_equal(f->last_withdrawn.id, f->last.id);
    set_notice(f, at_ms, 0);
    until(f, is_told_twice); /* it is back, and the machine is in danger again */
    assert_int_equal(f->withdrawn, 1);
}

/* The machine was not taken: the time stays where it was and training must go on. */
static void past_time_rearms(void **state)
{
    struct fixture *f = *state;
    int64_t date_ms = INT64_C(1505722800000);
    f->imds.at_ms = date_ms; /* the moment is now, by the service's clock */
    f->imds.date_ms = date_ms;
    start(f, 20, 300);
    until(f, is_told);
    uint64_t told_ns = f->told_ns;
    until(f, is_withdrawn);
    assert_true(hf_now_ns() - told_ns >= 300 * HF_MS);
    uint64_t ok = status_of(f).ok;
    while (status_of(f).ok < ok + 10) {
        uv_run(&f->loop.uv, UV_RUN_ONCE);
    }
    assert_int_equal(f->told, 1);
    assert_int_equal(f->withdrawn, 1);
    set_notice(f, date_ms + 120000, date_ms); /* another time is another notice */
    until(f, is_told_twice);
    assert_int_equal(f->withdrawn, 1);
}

static void long_past_is_not_told(void **state)
{
    struct fixture *f = *state;
    f->imds.date_ms = INT64_C(1505722800000);
    f->imds.at_ms = f->imds.date_ms - 3600000;
    start(f, 20, 0);
    until(f, has_30_rounds);
    assert_int_equal(f->told, 0);
    assert_int_equal(f->withdrawn, 0);
    assert_true(status_of(f).noticed >= 30); /* seen all the same */
}

/* Ends */

static void stops_inside_callbacks(void **state)
{
    struct fixture *f = *state;
    f->imds.at_ms = hf_wall_ms() + 120000;
    f->stop_on_notice = true;
    start(f, 20, 0);
    hf_loop_run(&f->loop); /* ends by itself when nothing of the watcher is left */
    assert_int_equal(f->told, 1);
    assert_null(f->watch);
    f->stop_on_notice = false;
    f->stop_on_health = true;
    start(f, 20, 0);
    hf_loop_run(&f->loop);
    assert_int_equal(f->healths, 2);
    assert_int_equal(f->told, 1); /* stopped by the health callback before it was told */
}

static bool was_asked(void *user)
{
    return hf_httpd_requests(user) > 0;
}

static void stops_in_flight(void **state)
{
    struct fixture *f = *state;
    f->imds.mute = true;
    f->ops.total_ms = 10000;
    start(f, 20, 0);
    assert_true(hf_test_run_until(&f->loop, was_asked, f->server, 5000));
    stop_now(f);
    hf_loop_run(&f->loop);
    assert_int_equal(f->healths, 0);
    start(f, 20, 0); /* and at once, before anything was sent */
    stop_now(f);
    hf_loop_run(&f->loop);
    hf_watch_stop(NULL);
}

/* The long-poll double */

static void start_longpoll(struct fixture *f, struct hf_longpoll_service *s, uint32_t blind_ms)
{
    s->server = hf_httpd_start(hf_longpoll_serve, s);
    snprintf(f->endpoint, sizeof(f->endpoint), "http://127.0.0.1:%u",
             (unsigned)hf_httpd_port(s->server));
    struct hf_watch_cfg cfg = {&hf_cloud_longpoll, f->endpoint, 0, 0, blind_ms};
    f->watch = hf_watch_start(&f->loop, f->http, &cfg, &callbacks, f);
}

static void end_longpoll(struct fixture *f, struct hf_longpoll_service *s)
{
    stop_now(f);
    hf_loop_run(&f->loop);
    hf_httpd_stop(s->server);
}

static bool hangs(void *service)
{
    return ((struct hf_longpoll_service *)service)->hanging > 0;
}

static void long_poll_tells_at_once(void **state)
{
    struct fixture *f = *state;
    struct hf_longpoll_service s = {.hold_ms = 15000};
    start_longpoll(f, &s, 300);
    assert_true(hf_test_run_until(&f->loop, hangs, &s, 5000));
    run_for(f, 600); /* twice blind_ms without an answer */
    assert_int_equal(f->health, HF_WATCH_SEEING);
    assert_int_equal(s.questions, 2);
    s.state = 1;
    uint64_t changed_ns = hf_now_ns();
    hf_httpd_release(s.server);
    until(f, is_told);
    assert_true(f->told_ns - changed_ns < 250 * HF_MS);
    assert_string_equal(f->last.id, "1");
    assert_int_equal(f->last.at_wall_ms, 0);
    end_longpoll(f, &s);
}

/* A notice that stands before the first question would never be told by hanging ones. */
static void long_poll_sees_what_stands(void **state)
{
    struct fixture *f = *state;
    struct hf_longpoll_service s = {.hold_ms = 15000, .state = 3};
    start_longpoll(f, &s, 0);
    until(f, is_told);
    assert_string_equal(f->last.id, "3");
    end_longpoll(f, &s);
}

static void long_poll_does_not_spin(void **state)
{
    struct fixture *f = *state;
    struct hf_longpoll_service s = {.hold_ms = 0};
    start_longpoll(f, &s, 0);
    run_for(f, 1000);
    assert_true(s.questions >= 4 && s.questions <= 6);
    end_longpoll(f, &s);
}

/* The service's own time-out is calm, and the next question follows at once. */
static void long_poll_ends_calmly(void **state)
{
    struct fixture *f = *state;
    struct hf_longpoll_service s = {.hold_ms = 250};
    start_longpoll(f, &s, 0);
    run_for(f, 1600);
    assert_true(s.questions >= 5);
    assert_int_equal(status_of(f).timeouts + status_of(f).refused, 0);
    assert_int_equal(f->healths, 1);
    end_longpoll(f, &s);
}

/* A first answer that takes long (two minutes at one cloud) is neither sight nor blindness. */
static void slow_first_answer(void **state)
{
    struct fixture *f = *state;
    struct hf_longpoll_service s = {.hold_ms = 15000, .first_delay_ms = 700};
    start_longpoll(f, &s, 200);
    until(f, is_seeing);
    assert_int_equal(f->healths, 1);
    assert_true(status_of(f).last_ok_ns != 0);
    end_longpoll(f, &s);
}

int main(void)
{
#define WITH(test) cmocka_unit_test_setup_teardown(test, setup, teardown)
    const struct CMUnitTest tests[] = {
        WITH(calm_then_notice),
        WITH(interval_is_kept),
        WITH(storm_of_401),
        WITH(five_503_then_notice),
        WITH(faults_do_not_storm),
        WITH(broken_bodies),
        WITH(cut_replies),
        WITH(black_hole),
        WITH(hop_limit_is_named),
        WITH(refusals),
        WITH(goes_blind_and_sees_again),
        WITH(bad_endpoint),
        WITH(endpoint_from_the_environment),
        WITH(withdrawn_when_gone),
        WITH(past_time_rearms),
        WITH(long_past_is_not_told),
        WITH(stops_inside_callbacks),
        WITH(stops_in_flight),
        WITH(long_poll_tells_at_once),
        WITH(long_poll_sees_what_stands),
        WITH(long_poll_does_not_spin),
        WITH(long_poll_ends_calmly),
        WITH(slow_first_answer),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
