/* SPDX-License-Identifier: Apache-2.0
 *
 * One watcher for all providers: interval, back-off, health, telling notices apart, withdrawal.
 * Loop thread only. It never stops by itself, whatever the service answers, and its memory does
 * not grow.
 */
#ifndef HF_CLOUD_WATCH_H
#define HF_CLOUD_WATCH_H

#include "cloud/cloud.h"

struct hf_watch;

enum hf_watch_health {
    HF_WATCH_STARTING, /* no answer yet */
    HF_WATCH_SEEING,   /* the last round was answered */
    /* A notice would be missed: three rounds in a row failed, or none was answered for blind_ms and
     * no request is open that may take longer. */
    HF_WATCH_BLIND
};

/* All members are required. Each may call hf_watch_stop. */
struct hf_watch_cb {
    /* A notice not told before, or one whose time changed. Valid during the call. One that is past
     * by more than rearm_ms when first seen was never carried out and is not told. Of several
     * changes in one round the new notices come before the withdrawn ones. */
    void (*notice)(void *user, const struct hf_notice *n);
    /* A notice told before no longer stands, or its time is past by rearm_ms and the machine still
     * lives. Told once; the same notice is not told again while it merely stays. It is the one with
     * this id: another of the same source, told just before, may have taken its place. */
    void (*withdrawn)(void *user, const struct hf_notice *n);
    /* On change; why is NULL when seeing. */
    void (*health)(void *user, enum hf_watch_health health, const struct hf_err *why);
};

struct hf_watch_cfg {
    const struct hf_cloud_ops *ops; /* any table, test doubles included */
    const char *endpoint;           /* NULL: the provider's variable, then its default */
    uint32_t poll_ms;               /* 0: the provider's */
    uint32_t rearm_ms;              /* how long past its time a notice stands; 0: 5 minutes */
    uint32_t blind_ms;              /* without an answer for so long it is blind; 0: 10 s */
};

struct hf_watch_status {
    enum hf_watch_health health;
    uint64_t polls;         /* rounds begun */
    uint64_t ok;            /* rounds answered, calm or not */
    uint64_t noticed;       /* of these: with a notice standing */
    uint64_t tokens;        /* replies 200 to a PUT: a session token */
    uint64_t told;          /* replies 200 to a question: something is announced */
    uint64_t not_found;     /* replies 404: nothing is announced, the usual and healthy one */
    uint64_t refused;       /* requests that got no connection or a broken reply */
    uint64_t timeouts;      /* requests that got no reply in time */
    uint64_t server_errors; /* replies 5xx */
    uint64_t unauthorized;  /* replies 401 */
    uint64_t others;        /* any other reply */
    uint64_t last_ok_ns;    /* CLOCK_BOOTTIME; 0: never */
    struct hf_err last_err; /* of the last failed round; code HF_OK: none yet */
};

/* cfg is copied, cfg->ops and cb are borrowed; they, user and http outlive the watcher. The
 * provider must speak HTTP. Nothing is sent before the loop runs. */
struct hf_watch *hf_watch_start(struct hf_loop *loop, struct hf_http *http,
                                const struct hf_watch_cfg *cfg, const struct hf_watch_cb *cb,
                                void *user);
/* No callback follows. NULL is fine. Memory goes when the open transfer has reported: run the
 * loop once more. */
void hf_watch_stop(struct hf_watch *w);
void hf_watch_get_status(const struct hf_watch *w, struct hf_watch_status *ret);

/* Pure: the deadline that a notice sets, CLOCK_BOOTTIME ns. The smaller of (at - the service's
 * Date) and window_ms, counted from first sight; without a time window_ms. A time in the past
 * gives first_seen_ns. Without a Date header our own wall clock stands in for it, still capped
 * by the window. A window of the notice's own replaces window_ms. Not for HF_NOTICE_REBALANCE,
 * which sets none. */
uint64_t hf_notice_deadline(const struct hf_notice *n, uint64_t first_seen_ns,
                            int64_t first_seen_wall_ms, uint32_t window_ms);

#endif
