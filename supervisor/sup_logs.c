/* SPDX-License-Identifier: Apache-2.0
 *
 * The command's output, seen from the supervisor: its way to the store, what the local log lost,
 * and the logs of older attempts, which share one more --log-disk. Loop thread. Nothing here may
 * hold training up.
 */
#include "base/prelude.h"

#include <string.h>

#include "supervisor/logring.h"
#include "supervisor/sup.h"

#define FINISH_MS UINT64_C(10000) /* at most, for what is not in the store at the end */

void hf_sup_log_dropped(void *user, uint64_t bytes, int num)
{
    struct hf_sup *sup = user;
    struct hf_attempt *at = &sup->at;
    at->log_dropped = bytes;
    at->log_errno = num;
    cJSON *f = hf_json_obj();
    hf_json_add_int(f, "bytes", (int64_t)bytes);
    hf_json_add_str(f, "why", num != 0 ? strerrordesc_np(num) : NULL);
    hf_event(&sup->events, at->claim.attempt, "log-dropped", f);
    hf_sup_status_changed(sup);
    if (num != 0 && !at->log_told) {
        at->log_told = true;
        hf_log(&sup->log, HF_LOG_WARN,
               "the command's output is not kept in '%s': %s; training goes on, and so does the "
               "log when there is room",
               at->dir, strerrordesc_np(num));
    } else if (num == 0 && at->log_told) {
        at->log_told = false;
        hf_log(&sup->log, HF_LOG_INFO, "the command's output is kept again; %llu bytes are missing",
               (unsigned long long)bytes);
    }
}

/* The newest attempts' logs stay; any older one goes with all that are older still. */
void hf_sup_logs_trim(struct hf_sup *sup)
{
    uint64_t left = (uint64_t)hf_set_int(sup->ctx->settings, HF_SET_LOG_DISK);
    for (uint32_t n = sup->at.claim.attempt; n-- > 1;) {
        HF_CLEANUP(hf_freep) char *dir = hf_rundir_attempt(&sup->dir, n);
        uint64_t bytes = hf_logread_disk_bytes(dir);
        left = bytes <= left ? left - bytes : 0;
        if (left == 0) {
            hf_logread_delete(dir);
        }
    }
}

static void on_finished(void *user)
{
    hf_sup_maybe_settled(user);
}

static void on_trouble(void *user, const struct hf_err *err)
{
    struct hf_sup *sup = user;
    cJSON *f = hf_json_obj();
    hf_json_add_bool(f, "ok", err == NULL);
    hf_json_add_str(f, "why", err != NULL ? err->msg : NULL);
    hf_event(&sup->events, sup->at.claim.attempt, "log-store", f);
    hf_sup_status_changed(sup);
    if (err != NULL) {
        hf_log_err(&sup->log, HF_LOG_WARN, err,
                   "the command's output does not reach the store, it is tried again");
    } else {
        hf_log(&sup->log, HF_LOG_INFO, "the command's output reaches the store again");
    }
}

void hf_sup_logs_start(struct hf_sup *sup)
{
    static const struct hf_logship_cb cb = {.finished = on_finished, .trouble = on_trouble};
    struct hf_attempt *at = &sup->at;
    if (at->logship != NULL || !hf_set_bool(sup->ctx->settings, HF_SET_STORE_LOGS)) {
        return;
    }
    struct hf_logship_cfg cfg = {
        .loop = &sup->loop,
        .scope = &sup->scope,
        .pool = sup->log_pool,
        .run = &sup->run,
        .dir = at->dir,
        .attempt = at->claim.attempt,
        .nonce = at->claim.nonce,
    };
    at->logship = hf_logship_new(&cfg, &cb, sup);
}

void hf_sup_logs_finish(struct hf_sup *sup)
{
    struct hf_logship *s = sup->at.logship;
    uint64_t limit_ms = FINISH_MS;
    if (sup->leaving.notice) {
        /* Recording the end needs the other half. */
        uint64_t now = hf_now_ns();
        uint64_t end = sup->leaving.deadline_ns;
        uint64_t half_ms = end > now ? (end - now) / HF_MS / 2 : 0;
        limit_ms = half_ms < limit_ms ? half_ms : limit_ms;
    }
    if (s != NULL && (sup->at.ending.superseded || sup->at.hurried)) {
        limit_ms = 0;
    }
    hf_logship_finish(s, limit_ms);
}

cJSON *hf_sup_logs_json(const struct hf_sup *sup)
{
    const struct hf_attempt *at = &sup->at;
    char utc[HF_UTC_STRLEN];
    cJSON *obj = hf_json_obj();
    hf_json_add_int(obj, "dropped_bytes", (int64_t)at->log_dropped);
    hf_json_add_str(obj, "why", at->log_errno != 0 ? strerrordesc_np(at->log_errno) : NULL);
    struct hf_logship_status st = {.pieces = 0};
    if (at->logship != NULL) {
        hf_logship_get_status(at->logship, &st);
    }
    hf_json_add_int(obj, "stored_pieces", st.pieces);
    hf_json_add_int(obj, "stored_bytes", (int64_t)st.offset);
    hf_json_add_int(obj, "not_stored_bytes", (int64_t)st.missing);
    hf_json_add_str(obj, "stored_at",
                    st.last_wall_ms != 0 ? hf_utc_format(st.last_wall_ms, utc) : NULL);
    hf_json_add_bool(obj, "store_failing", st.failing);
    return obj;
}
