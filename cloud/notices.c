/* SPDX-License-Identifier: Apache-2.0
 *
 * The table of standing notices, and the deadline that a notice sets. Pure: no clock is read, no
 * memory is taken, nothing is called back. A time once known is never forgotten because the
 * service stops giving it.
 */
#include "base/prelude.h"

#include <string.h>

#include "cloud/notices.h"
#include "cloud/watch.h"

#define FAR_MS (INT64_C(30) * 24 * 3600 * 1000)

uint64_t hf_notice_deadline(const struct hf_notice *n, uint64_t first_seen_ns,
                            int64_t first_seen_wall_ms, uint32_t window_ms)
{
    int64_t left_ms = n->window_ms != 0 ? n->window_ms : window_ms;
    if (n->at_wall_ms != 0) {
        int64_t said_ms = n->date_wall_ms != 0 ? n->date_wall_ms : first_seen_wall_ms;
        int64_t told_ms = n->at_wall_ms - said_ms;
        left_ms = told_ms < left_ms ? told_ms : left_ms;
    }
    return first_seen_ns + (left_ms > 0 ? (uint64_t)left_ms * HF_MS : 0);
}

/* Unlike the deadline this may lie in the past, or beyond the window where both times are the
 * service's own: it answers "should the machine be gone by now?". */
static int64_t due_ns(const struct hf_notices *s, const struct hf_notice *n, uint64_t now_ns,
                      int64_t wall_ms)
{
    int64_t window_ms = n->window_ms != 0 ? n->window_ms : s->window_ms;
    int64_t left_ms = window_ms;
    if (n->at_wall_ms != 0 && n->date_wall_ms != 0) {
        left_ms = n->at_wall_ms - n->date_wall_ms;
    } else if (n->at_wall_ms != 0) {
        left_ms = n->at_wall_ms - wall_ms;
        left_ms = left_ms < window_ms ? left_ms : window_ms;
    }
    left_ms = left_ms < -FAR_MS ? -FAR_MS : left_ms;
    left_ms = left_ms > FAR_MS ? FAR_MS : left_ms;
    return (int64_t)now_ns + left_ms * (int64_t)HF_MS;
}

static bool overdue(const struct hf_notices *s, const struct hf_noticed *e, uint64_t now_ns)
{
    return (int64_t)now_ns >= e->due_ns + (int64_t)(s->rearm_ms * HF_MS);
}

static struct hf_noticed *find(struct hf_notices *s, const struct hf_notice *n)
{
    for (size_t i = 0; i < s->len; i++) {
        if (s->items[i].n.kind == n->kind && strcmp(s->items[i].n.id, n->id) == 0) {
            return &s->items[i];
        }
    }
    return NULL;
}

/* Returns whether the notice is to be told. */
static bool take(struct hf_notices *s, const struct hf_notice *n, uint64_t now_ns, int64_t wall_ms)
{
    struct hf_noticed *e = find(s, n);
    bool same = e != NULL && (n->at_wall_ms == 0 || n->at_wall_ms == e->n.at_wall_ms);
    if (same) {
        e->here = true;
        return false;
    }
    bool was_told = e != NULL && e->told;
    if (e == NULL) {
        e = &s->items[s->len++];
    }
    *e = (struct hf_noticed){.n = *n, .here = true};
    e->due_ns = due_ns(s, n, now_ns, wall_ms);
    bool tell = !overdue(s, e, now_ns);
    /* One that was told and moved into the past stays told, so that it is withdrawn below. */
    e->told = tell || was_told;
    return tell;
}

size_t hf_notices_update(struct hf_notices *s, const struct hf_notice_list *list, uint64_t now_ns,
                         int64_t wall_ms, struct hf_notices_change ret[HF_NOTICES_CHANGES_MAX])
{
    size_t changes = 0;
    for (size_t i = 0; i < s->len; i++) {
        s->items[i].here = false;
    }
    for (size_t i = 0; i < list->len && i < HF_NOTICES_MAX; i++) {
        if (take(s, &list->items[i], now_ns, wall_ms)) {
            ret[changes++] =
                (struct hf_notices_change){.what = HF_NOTICES_TOLD, .n = list->items[i]};
        }
    }
    size_t kept = 0;
    for (size_t i = 0; i < s->len; i++) {
        struct hf_noticed *e = &s->items[i];
        if (e->told && (!e->here || overdue(s, e, now_ns))) {
            ret[changes++] = (struct hf_notices_change){.what = HF_NOTICES_WITHDRAWN, .n = e->n};
            e->told = false;
        }
        if (e->here) {
            s->items[kept++] = *e;
        }
    }
    s->len = kept;
    return changes;
}
