/* SPDX-License-Identifier: Apache-2.0
 *
 * How an attempt is known to live or to have ended: its heartbeat, its end record, and the
 * judgement of one that says nothing. Worker threads; only hf_lineage_judge waits.
 */
#include "base/prelude.h"

#include <stdio.h>
#include <string.h>

#include "base/hash.h"
#include "checkpoint/objects.h"
#include "checkpoint/record.h"

#define READS_MIN       3
#define ALIVE_MAX       4096
#define PACES           4 /* looks in one limit */
#define PACE_MIN_MS     10
#define PATIENCE_LIMITS 2

enum hf_rc hf_lineage_beat(const struct hf_run *run, const struct hf_call *c,
                           const struct hf_claim *mine, const struct hf_beat *beat,
                           bool *ret_superseded, struct hf_err *err)
{
    cJSON *json = hf_record_new("alive");
    hf_json_add_str(json, "nonce", mine->nonce);
    hf_json_add_int(json, "counter", (int64_t)beat->counter);
    hf_json_add_int(json, "every_ms", (int64_t)beat->every_ms);
    hf_json_add_int(json, "at_ms", beat->at_wall_ms);
    hf_json_add_str(json, "state", beat->state[0] != '\0' ? beat->state : NULL);
    if (beat->step >= 0) {
        hf_json_add_int(json, "step", beat->step);
    } else {
        hf_json_add_null(json, "step");
    }
    HF_CLEANUP(hf_freep) char *text = hf_record_print(json);
    char key[HF_KEY_MAX];
    struct hf_span data = {.ptr = text, .len = strlen(text)};
    HF_TRY(hf_obj_put_record(run, c, hf_key_alive(key, run->name, mine->attempt), data,
                             HF_PUT_NO_SYNC, err));
    return hf_lineage_superseded(run, c, mine->attempt, ret_superseded, err);
}

static enum hf_rc read_beat(struct hf_span text, const struct hf_claim *of, struct hf_beat *ret,
                            struct hf_err *err)
{
    HF_CLEANUP(hf_json_freep) cJSON *json = NULL;
    const char *nonce = NULL;
    int64_t counter = 0;
    HF_TRY(hf_record_parse(text, ALIVE_MAX, "alive", &json, err));
    HF_TRY(hf_json_get_str(json, "nonce", &nonce, err));
    HF_TRY(hf_json_get_int(json, "counter", 0, INT64_MAX, &counter, err));
    if (strcmp(nonce, of->nonce) != 0) {
        return hf_fail(err, HF_ENOTFOUND, "no heartbeat of attempt %u", of->attempt);
    }
    int64_t every_ms = hf_json_opt_int(json, "every_ms", 0);
    *ret = (struct hf_beat){.counter = (uint64_t)counter,
                            .every_ms = every_ms > 0 ? (uint64_t)every_ms : 0,
                            .at_wall_ms = hf_json_opt_int(json, "at_ms", 0),
                            .step = hf_json_opt_int(json, "step", -1)};
    snprintf(ret->state, sizeof(ret->state), "%.15s", hf_json_opt_str(json, "state", ""));
    return HF_OK;
}

enum hf_rc hf_lineage_get_beat(const struct hf_run *run, const struct hf_call *c,
                               const struct hf_claim *of, struct hf_beat *ret, struct hf_err *err)
{
    char key[HF_KEY_MAX];
    struct hf_buf text;
    hf_buf_init(&text, ALIVE_MAX);
    enum hf_rc rc = hf_obj_get(run, c, hf_key_alive(key, run->name, of->attempt), &text, err);
    if (rc == HF_OK) {
        rc = read_beat(hf_buf_span(&text), of, ret, err);
        rc = rc == HF_OK ? rc : hf_wrap(err, rc, "'%s'", key);
    }
    hf_buf_release(&text);
    return rc;
}

enum hf_rc hf_lineage_get_end(const struct hf_run *run, const struct hf_call *c, uint32_t attempt,
                              struct hf_end *ret, struct hf_err *err)
{
    char key[HF_KEY_MAX];
    struct hf_buf text;
    hf_buf_init(&text, HF_RECORD_MAX);
    enum hf_rc rc = hf_obj_get(run, c, hf_key_end(key, run->name, attempt), &text, err);
    struct hf_end end = {.exit_code = -1};
    if (rc == HF_OK) {
        rc = hf_record_check_sum(hf_buf_span(&text), err);
        rc = rc == HF_OK ? hf_end_parse(hf_buf_span(&text), &end, err) : rc;
        rc = rc == HF_OK ? rc : hf_wrap(err, rc, "'%s'", key);
    }
    hf_buf_release(&text);
    if (rc == HF_OK) {
        *ret = end;
    }
    return rc;
}

enum hf_rc hf_lineage_end(const struct hf_run *run, const struct hf_call *c, uint32_t attempt,
                          const struct hf_end *end, struct hf_err *err)
{
    HF_CLEANUP(hf_freep) char *text = hf_end_print(end);
    char key[HF_KEY_MAX];
    struct hf_span data = {.ptr = text, .len = strlen(text)};
    enum hf_rc rc = hf_obj_create(run, c, hf_key_end(key, run->name, attempt), data, NULL, err);
    if (rc != HF_EEXISTS) {
        return rc == HF_OK ? rc : hf_wrap(err, rc, "recording the end of attempt %u", attempt);
    }
    struct hf_end other;
    HF_TRY(hf_lineage_get_end(run, c, attempt, &other, err));
    bool ours = strcmp(other.nonce, end->nonce) == 0;
    hf_end_release(&other);
    return ours ? HF_OK
                : hf_fail(err, HF_EEXISTS, "another has recorded the end of attempt %u", attempt);
}

/* One judgement under way. */
struct judging {
    struct hf_buf before; /* the heartbeat as first seen; empty: there was none */
    unsigned equal;       /* successful equal reads */
    uint64_t still_ns;    /* time between them */
    uint64_t last_ns;     /* of the last successful read */
    uint64_t gap_max_ns;  /* what one pause between reads can prove at most */
    bool wrote;
};

/* Our own write proves that it is not our own connection that stands still. */
static bool write_works(const struct hf_run *run, const struct hf_call *c)
{
    char rand[17];
    hf_random_hex(8, rand);
    HF_CLEANUP(hf_freep) char *key = hf_asprintf("%s/judge-%s", run->name, rand);
    struct hf_span data = {.ptr = rand, .len = 16};
    if (hf_store_put(run->store, c, key, data, HF_PUT_NO_SYNC, NULL) != HF_OK) {
        return false;
    }
    return hf_store_remove(run->store, c, key, NULL) == HF_OK;
}

/* Looks once; *ret_moved: it lives. A look that fails proves nothing. */
static void look(const struct hf_run *run, const struct hf_call *c, uint32_t attempt,
                 struct judging *j, bool *ret_moved)
{
    char key[HF_KEY_MAX];
    struct hf_buf now;
    hf_buf_init(&now, ALIVE_MAX);
    enum hf_rc rc = hf_store_get(run->store, c, hf_key_alive(key, run->name, attempt), &now, NULL);
    if (rc == HF_OK || rc == HF_ENOTFOUND) {
        uint64_t at_ns = hf_now_ns();
        bool same =
            now.len == j->before.len && strcmp(hf_buf_str(&now), hf_buf_str(&j->before)) == 0;
        if (j->equal == 0) {
            hf_buf_release(&j->before);
            j->before = now;
            hf_buf_init(&now, ALIVE_MAX);
        } else if (!same) {
            *ret_moved = true;
        } else {
            /* After a suspend of this machine, one long gap must not pass for patience. */
            uint64_t gap_ns = at_ns - j->last_ns;
            j->still_ns += gap_ns < j->gap_max_ns ? gap_ns : j->gap_max_ns;
        }
        j->equal++;
        j->last_ns = at_ns;
    }
    hf_buf_release(&now);
}

static enum hf_rc judge(const struct hf_run *run, const struct hf_call *c, uint32_t attempt,
                        uint64_t limit_ms, struct judging *j, bool *ret_dead, struct hf_err *err)
{
    uint64_t pace_ms = limit_ms / PACES > PACE_MIN_MS ? limit_ms / PACES : PACE_MIN_MS;
    uint64_t give_up_ns = hf_now_ns() + PATIENCE_LIMITS * limit_ms * HF_MS;
    j->gap_max_ns = 2 * pace_ms * HF_MS;
    for (;;) {
        bool moved = false;
        look(run, c, attempt, j, &moved);
        char key[HF_KEY_MAX];
        bool ended = false;
        enum hf_rc rc = hf_obj_exists(run, c, hf_key_end(key, run->name, attempt), &ended, NULL);
        if (moved || (rc == HF_OK && ended)) {
            *ret_dead = false;
            return HF_OK;
        }
        j->wrote = j->wrote || write_works(run, c);
        if (rc == HF_OK && j->wrote && j->equal >= READS_MIN && j->still_ns >= limit_ms * HF_MS) {
            *ret_dead = true;
            return HF_OK;
        }
        if (hf_now_ns() > give_up_ns) {
            return hf_fail(err, HF_ETIMEOUT, "attempt %u cannot be judged: the store fails",
                           attempt);
        }
        HF_TRY(hf_call_wait(c, pace_ms, err));
    }
}

enum hf_rc hf_lineage_judge(const struct hf_run *run, const struct hf_call *c, uint32_t attempt,
                            uint64_t limit_ms, bool *ret_dead, struct hf_err *err)
{
    struct judging j = {.equal = 0};
    hf_buf_init(&j.before, ALIVE_MAX);
    enum hf_rc rc = judge(run, c, attempt, limit_ms, &j, ret_dead, err);
    hf_buf_release(&j.before);
    return rc;
}
