/* SPDX-License-Identifier: Apache-2.0
 *
 * Lanes: threads over one atomic counter. Own threads, made and joined within the call, with every
 * signal blocked; nothing here touches the loop.
 */
#include "base/prelude.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <unistd.h>

#include "base/mem.h"
#include "checkpoint/lanes.h"

#define LANES_DEFAULT 4
#define LANES_MAX     64

struct crew {
    const struct hf_lanes *in;
    atomic_size_t next;
    atomic_bool failed;
    pthread_mutex_t lock;
    struct hf_err first; /* under lock: the first failure */
    enum hf_rc rc;       /* under lock */
};

struct hand {
    struct crew *crew;
    pthread_t thread;
    uint32_t index;
};

uint32_t hf_lanes_default(void)
{
    long n = sysconf(_SC_NPROCESSORS_ONLN);
    return n < 1 ? 1 : n < LANES_DEFAULT ? (uint32_t)n : LANES_DEFAULT;
}

static void report(struct crew *crew, enum hf_rc rc, const struct hf_err *err)
{
    pthread_mutex_lock(&crew->lock);
    if (crew->rc == HF_OK) {
        crew->rc = rc;
        crew->first = *err;
    }
    pthread_mutex_unlock(&crew->lock);
    atomic_store(&crew->failed, true);
}

static void work(struct crew *crew, struct hf_lane *lane)
{
    const struct hf_lanes *in = crew->in;
    while (!atomic_load_explicit(&crew->failed, memory_order_relaxed)) {
        size_t i = atomic_fetch_add(&crew->next, 1);
        if (i >= in->items) {
            return;
        }
        struct hf_err err = {.code = HF_OK};
        enum hf_rc rc = hf_call_check(in->call, &err);
        if (rc == HF_OK) {
            hf_buf_reset(&lane->buf);
            rc = in->item(in->user, lane, i, &err);
        }
        if (rc != HF_OK) {
            report(crew, rc, &err);
        }
    }
}

/* false: no memory for this lane. */
static bool run_lane(struct crew *crew)
{
    const struct hf_lanes *in = crew->in;
    struct hf_lane lane = {.room.len = in->room_bytes};
    hf_buf_init(&lane.buf, in->buf_bytes);
    if (in->room_bytes > 0) {
        lane.room.ptr = hf_big_new(in->room_bytes);
        if (lane.room.ptr == NULL) {
            return false;
        }
    }
    work(crew, &lane);
    hf_big_free(lane.room.ptr, in->room_bytes);
    hf_buf_release(&lane.buf);
    return true;
}

static void *lane_main(void *arg)
{
    struct hand *hand = arg;
    char name[16];
    snprintf(name, sizeof(name), "%.12s-%u", hand->crew->in->name, hand->index % 100);
    pthread_setname_np(pthread_self(), name);
    bool served = run_lane(hand->crew);
    (void)served; /* the calling thread's own lane decides whether there was memory at all */
    return NULL;
}

static uint32_t start_hands(struct crew *crew, struct hand *hands, uint32_t n)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    uint32_t started = 0;
    for (uint32_t i = 0; i < n; i++) {
        hands[i] = (struct hand){.crew = crew, .index = i + 1};
        if (pthread_create(&hands[i].thread, NULL, lane_main, &hands[i]) != 0) {
            break; /* fewer lanes do the same work */
        }
        started++;
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return started;
}

enum hf_rc hf_lanes_run(const struct hf_lanes *in, struct hf_err *err)
{
    if (in->items == 0) {
        return HF_OK;
    }
    uint32_t lanes = in->lanes > 0 ? in->lanes : hf_lanes_default();
    lanes = lanes > LANES_MAX ? LANES_MAX : lanes;
    lanes = lanes > in->items ? (uint32_t)in->items : lanes;
    struct crew crew = {.in = in, .lock = PTHREAD_MUTEX_INITIALIZER};
    struct hand hands[LANES_MAX];
    uint32_t started = start_hands(&crew, hands, lanes - 1);
    bool served = run_lane(&crew);
    for (uint32_t i = 0; i < started; i++) {
        pthread_join(hands[i].thread, NULL);
    }
    pthread_mutex_destroy(&crew.lock);
    if (crew.rc != HF_OK) {
        if (err != NULL) {
            *err = crew.first;
        }
        return crew.rc;
    }
    if (!served && atomic_load(&crew.next) < in->items) {
        return hf_fail(err, HF_EFULL, "no memory for a block of %zu bytes", in->room_bytes);
    }
    return HF_OK;
}
