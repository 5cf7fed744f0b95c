/* SPDX-License-Identifier: Apache-2.0
 *
 * The watcher: rounds of requests at an interval, back-off after faults, health, and the table of
 * standing notices behind the callbacks. Loop thread only. Every callback may stop the watcher, so
 * `stopped` is looked at after each. It must never give up, wait longer than a notice allows, or
 * grow.
 */
#include "base/prelude.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/retry.h"
#include "cloud/notices.h"
#include "cloud/watch.h"

#define REARM_MS_DEFAULT 300000
#define BLIND_MS_DEFAULT 10000
#define BLIND_FAULTS     3
#define SLOWEST_MS       5000 /* a notice may leave 30 s: no back-off is longer */
#define FASTEST_RETRY_MS 100

struct hf_watch {
    struct hf_loop *loop;
    struct hf_http *http;
    const struct hf_cloud_ops *ops;
    const struct hf_watch_cb *cb;
    void *user;
    void *self; /* the provider's */
    char *endpoint;
    uint32_t poll_ms, blind_ms;

    uv_timer_t next;  /* the next round */
    uv_timer_t blind; /* looks whether there has been an answer */
    int open_timers;
    bool stopped, closing;

    struct hf_scope scope;
    struct hf_http_req req; /* empty, or the last one made */
    bool asking;            /* req is out */
    unsigned more;          /* HF_POLL_MORE of this round */
    uint64_t round_ns;      /* start of this round */
    uint64_t answered_ns;   /* end of the last answered round; at first the start */
    unsigned faults;        /* in a row */
    struct hf_retry retry;
    struct hf_notices standing;
    struct hf_watch_status status;
};

static void ask(struct hf_watch *w);
static void look_for_answers(uv_timer_t *timer);

static void start_timer(struct hf_watch *w, uv_timer_t *timer, uint64_t delay_ms, uv_timer_cb fn)
{
    uv_update_time(&w->loop->uv);
    uv_timer_start(timer, fn, delay_ms, 0);
}

static void set_health(struct hf_watch *w, enum hf_watch_health health, const struct hf_err *why)
{
    if (w->status.health == health) {
        return;
    }
    w->status.health = health;
    if (health != HF_WATCH_BLIND) {
        start_timer(w, &w->blind, w->blind_ms, look_for_answers);
    }
    w->cb->health(w->user, health, why);
}

/* Lazy: set once, it finds out when it fires how much longer to wait. */
static void look_for_answers(uv_timer_t *timer)
{
    struct hf_watch *w = timer->data;
    if (w->status.health == HF_WATCH_BLIND) {
        return;
    }
    uint64_t now_ns = hf_now_ns();
    uint64_t until_ns = w->answered_ns + w->blind_ms * HF_MS;
    if (w->asking && w->req.total_ms > w->blind_ms) {
        uint64_t allowed_ns = w->req.sent_ns + w->req.total_ms * HF_MS;
        until_ns = allowed_ns > until_ns ? allowed_ns : until_ns;
    }
    if (now_ns < until_ns) {
        start_timer(w, timer, (until_ns - now_ns) / HF_MS + 1, look_for_answers);
        return;
    }
    if (w->faults == 0) {
        hf_fail(&w->status.last_err, HF_ETIMEOUT,
                "%s metadata: no answer from '%s' for %" PRIu64 " ms", w->ops->name, w->endpoint,
                (now_ns - w->answered_ns) / HF_MS);
    }
    set_health(w, HF_WATCH_BLIND, &w->status.last_err);
}

static void round_due(uv_timer_t *timer)
{
    struct hf_watch *w = timer->data;
    w->round_ns = hf_now_ns();
    w->more = 0;
    w->status.polls++;
    ask(w);
}

static void round_failed(struct hf_watch *w, const struct hf_err *why)
{
    uint32_t delay_ms = SLOWEST_MS;
    /* Whatever its class, the question is asked again: nobody else will notice the end. */
    struct hf_err again = *why;
    again.code = HF_EAGAIN;
    hf_retry_next(&w->retry, &again, hf_random_u64(), 0, 0, &delay_ms);
    delay_ms = delay_ms > w->retry.cap_ms ? w->retry.cap_ms : delay_ms;
    uint32_t least_ms = w->poll_ms < FASTEST_RETRY_MS ? w->poll_ms : FASTEST_RETRY_MS;
    start_timer(w, &w->next, delay_ms < least_ms ? least_ms : delay_ms, round_due);

    w->status.last_err = *why;
    if (++w->faults >= BLIND_FAULTS) {
        set_health(w, HF_WATCH_BLIND, &w->status.last_err);
    }
}

static void round_answered(struct hf_watch *w, const struct hf_notice_list *list)
{
    uint64_t now_ns = hf_now_ns();
    w->answered_ns = w->status.last_ok_ns = now_ns;
    w->faults = 0;
    w->retry.done = 0;
    w->status.ok++;
    w->status.noticed += list->len > 0;
    uint64_t spent_ms = (now_ns - w->round_ns) / HF_MS;
    start_timer(w, &w->next, spent_ms < w->poll_ms ? w->poll_ms - spent_ms : 0, round_due);

    struct hf_notices_change changes[HF_NOTICES_CHANGES_MAX];
    size_t n = hf_notices_update(&w->standing, list, now_ns, hf_wall_ms(), changes);
    set_health(w, HF_WATCH_SEEING, NULL);
    for (size_t i = 0; i < n && !w->stopped; i++) {
        if (changes[i].what == HF_NOTICES_TOLD) {
            w->cb->notice(w->user, &changes[i].n);
        } else {
            w->cb->withdrawn(w->user, &changes[i].n);
        }
    }
}

static void count(struct hf_watch *w, const struct hf_err *transport)
{
    if (transport != NULL && transport->code == HF_ETIMEOUT) {
        w->status.timeouts++;
    } else if (transport != NULL) {
        w->status.refused++;
    } else if (w->req.status >= 500) {
        w->status.server_errors++;
    } else if (w->req.status == 401) {
        w->status.unauthorized++;
    } else if (w->req.status == 404) {
        w->status.not_found++;
    } else if (w->req.status == 200 && strcmp(w->req.method, "PUT") == 0) {
        w->status.tokens++;
    } else if (w->req.status == 200) {
        w->status.told++;
    } else {
        w->status.others++;
    }
}

static void got_reply(void *user, const struct hf_err *transport)
{
    struct hf_watch *w = user;
    w->asking = false;
    if (w->stopped) {
        return;
    }
    count(w, transport);
    struct hf_notice_list list = {.len = 0};
    struct hf_err err = {.code = HF_OK};
    switch (w->ops->poll_read(w->self, hf_now_ns(), &w->req, transport, &list, &err)) {
    case HF_POLL_DONE:
        round_answered(w, &list);
        return;
    case HF_POLL_MORE:
        if (w->more++ < HF_POLL_MORE_MAX) {
            ask(w);
            return;
        }
        hf_fail(&err, HF_EINTERNAL, "%s metadata: more than %d requests in one round", w->ops->name,
                HF_POLL_MORE_MAX + 1);
        break;
    case HF_POLL_FAULT:
        break;
    }
    round_failed(w, &err);
}

static void ask(struct hf_watch *w)
{
    struct hf_err err = {.code = HF_OK};
    hf_http_req_release(&w->req);
    memset(&w->req, 0, sizeof(w->req));
    enum hf_rc rc = w->ops->poll_req(w->self, hf_now_ns(), &w->req, &err);
    if (rc == HF_OK) {
        w->req.metadata = true;
        w->req.total_ms = w->req.total_ms != 0 ? w->req.total_ms : w->ops->total_ms;
        rc = hf_http_start(w->http, &w->scope, &w->req, got_reply, w, NULL, &err);
    }
    w->asking = rc == HF_OK;
    if (rc != HF_OK) {
        round_failed(w, &err);
    }
}

/* The end */

static void timer_closed(uv_handle_t *handle)
{
    struct hf_watch *w = handle->data;
    if (--w->open_timers > 0) {
        return;
    }
    w->ops->destroy(w->self);
    hf_http_req_release(&w->req);
    hf_free(w->endpoint);
    hf_free(w);
}

static void close_timers(void *user)
{
    struct hf_watch *w = user;
    if (!w->stopped || w->closing) {
        return;
    }
    w->closing = true;
    uv_close((uv_handle_t *)&w->next, timer_closed);
    uv_close((uv_handle_t *)&w->blind, timer_closed);
}

void hf_watch_stop(struct hf_watch *w)
{
    if (w == NULL || w->stopped) {
        return;
    }
    w->stopped = true;
    uv_timer_stop(&w->next);
    uv_timer_stop(&w->blind);
    hf_scope_cancel(&w->scope);
    if (!w->asking) {
        close_timers(w);
    }
}

static char *choose_endpoint(const struct hf_watch_cfg *cfg)
{
    const char *from = cfg->endpoint;
    if (from == NULL && cfg->ops->endpoint_env != NULL) {
        from = getenv(cfg->ops->endpoint_env);
    }
    if (from == NULL || from[0] == '\0') {
        from = cfg->ops->endpoint;
    }
    char *endpoint = hf_strdup(from);
    size_t len = strlen(endpoint);
    while (len > 0 && endpoint[len - 1] == '/') {
        endpoint[--len] = '\0';
    }
    return endpoint;
}

struct hf_watch *hf_watch_start(struct hf_loop *loop, struct hf_http *http,
                                const struct hf_watch_cfg *cfg, const struct hf_watch_cb *cb,
                                void *user)
{
    struct hf_watch *w = HF_NEW(struct hf_watch);
    w->loop = loop;
    w->http = http;
    w->ops = cfg->ops;
    w->cb = cb;
    w->user = user;
    w->endpoint = choose_endpoint(cfg);
    w->self = cfg->ops->create(w->endpoint);
    w->poll_ms = cfg->poll_ms != 0 ? cfg->poll_ms : cfg->ops->poll_ms;
    w->blind_ms = cfg->blind_ms != 0 ? cfg->blind_ms : BLIND_MS_DEFAULT;
    uint32_t cap_ms = w->poll_ms > SLOWEST_MS ? w->poll_ms : SLOWEST_MS;
    w->retry = (struct hf_retry){.base_ms = w->poll_ms, .cap_ms = cap_ms};
    w->standing.window_ms = cfg->ops->window_ms;
    w->standing.rearm_ms = cfg->rearm_ms != 0 ? cfg->rearm_ms : REARM_MS_DEFAULT;
    w->scope = (struct hf_scope){.empty = close_timers, .user = w};
    w->answered_ns = hf_now_ns();
    uv_timer_init(&loop->uv, &w->next);
    uv_timer_init(&loop->uv, &w->blind);
    w->next.data = w->blind.data = w;
    w->open_timers = 2;
    start_timer(w, &w->next, 0, round_due);
    start_timer(w, &w->blind, w->blind_ms, look_for_answers);
    return w;
}

void hf_watch_get_status(const struct hf_watch *w, struct hf_watch_status *ret)
{
    *ret = w->status;
}
