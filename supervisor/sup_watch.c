/* SPDX-License-Identifier: Apache-2.0
 *
 * Programs that save by themselves: what is done to watched folders before a start, what is found
 * in them, and whether a program that was resumed really went on. Loop thread, but for the _work
 * function.
 */
#include "base/prelude.h"

#include <inttypes.h>
#include <string.h>

#include "supervisor/sup.h"

#define FILE_CLOCK_MS 20 /* so far the clock of files may be behind */

const char *hf_sup_held_key(const struct hf_sup *sup)
{
    const char *slash = strrchr(sup->dir.dir, '/');
    return slash != NULL ? slash + 1 : sup->dir.dir;
}

/* ---- before a start ---- */

void hf_sup_folders_init(struct hf_sup *sup, struct hf_sup_folders *f)
{
    for (size_t i = 0; i < sup->watch_dirs.len; i++) {
        hf_strv_add(&f->dirs, sup->watch_dirs.items[i]);
    }
    f->attempt_dir = hf_strdup(sup->at.dir);
    f->key = hf_strdup(hf_sup_held_key(sup));
}

enum hf_rc hf_sup_folders_work(struct hf_sup_folders *f, struct hf_err *err)
{
    if (f->dirs.len == 0) {
        return HF_OK;
    }
    hf_held_clean(&f->dirs, f->key, 0);
    hf_leftovers_move(&f->dirs, 0, &f->left);
    return hf_judge_baseline(f->attempt_dir, &f->dirs, 0, err);
}

void hf_sup_folders_tell(struct hf_sup *sup, const struct hf_sup_folders *f)
{
    for (size_t i = 0; i < f->left.len; i++) {
        const struct hf_leftover *one = &f->left.items[i];
        hf_log(&sup->log, HF_LOG_WARN,
               "moved an incomplete checkpoint aside: '%s' is now '%s' (%s)", one->path, one->to,
               one->why);
        cJSON *e = hf_json_obj();
        hf_json_add(e, "path", hf_json_bytes(one->path));
        hf_json_add(e, "to", hf_json_bytes(one->to));
        hf_json_add_str(e, "why", one->why);
        hf_event(&sup->events, sup->at.claim.attempt, "moved-aside", e);
    }
    for (size_t i = 0; i < f->left.troubles.len; i++) {
        hf_log(&sup->log, HF_LOG_WARN, "%s", f->left.troubles.items[i]);
    }
}

void hf_sup_folders_release(struct hf_sup_folders *f)
{
    hf_strv_clear(&f->dirs);
    hf_free(f->attempt_dir);
    hf_free(f->key);
    hf_leftovers_release(&f->left);
}

/* ---- what is found ---- */

static void tell_found(struct hf_sup *sup, const struct hf_judge_out *out)
{
    cJSON *f = hf_json_obj();
    hf_json_add_int(f, "step", out->look.step);
    hf_json_add(f, "path", hf_json_bytes(out->look.path));
    hf_json_add_str(f, "layout", out->look.layout);
    hf_json_add_str(f, "state", hf_layout_state_name(out->look.state));
    bool held = out->hold.folder != NULL;
    hf_json_add_str(f, "held", !held ? "no" : out->hold.cloned ? "clone" : "link");
    if (!held) {
        hf_json_add_str(f, "why_not", out->why_not);
    }
    if (!held && !sup->unheld_warned) {
        sup->unheld_warned = true;
        hf_log(
            &sup->log, HF_LOG_WARN,
            "a checkpoint cannot be held until it is shipped (%s): one that the training program "
            "removes before is lost",
            out->why_not);
    }
    hf_event(&sup->events, sup->at.claim.attempt, "found", f);
}

static void on_found(void *user, struct hf_judge_out *out)
{
    struct hf_sup *sup = user;
    struct hf_attempt *at = &sup->at;
    tell_found(sup, out);
    at->saves_seen++;
    if (at->ending.superseded) {
        hf_watchdir_unhold(at->watchdir, &out->hold.paths);
        return;
    }
    if (out->look.step >= 0) {
        hf_sup_check_resume(sup, out->look.step, "checkpoint");
    }
    struct hf_saved *s = HF_NEW(struct hf_saved);
    s->step = out->look.step;
    s->reason = hf_strdup(sup->leaving.notice ? "notice" : "own");
    s->strategy = hf_strdup("watch");
    s->resume_path = out->look.path;
    s->roots = out->roots;
    s->stamps = out->stamps;
    s->held = out->hold.paths;
    out->look.path = NULL;
    out->roots = (struct hf_strv){0};
    out->stamps = (struct hf_stamps){0};
    out->hold.paths = (struct hf_strv){0};
    hf_ship_add(at->ship, s);
    /* One that was complete before the program was asked is no answer. */
    if (out->newest_ns / 1000000 + FILE_CLOCK_MS >= at->otherwise_wall_ms) {
        hf_sup_answered(sup);
    }
}

/* They are put ahead, so that the rest is quickly done once the checkpoint is whole. */
static void on_finished(void *user, const struct hf_strv *paths)
{
    struct hf_sup *sup = user;
    if (sup->at.ship != NULL && !sup->at.ending.superseded) {
        hf_ship_early(sup->at.ship, paths);
    }
}

static void on_trouble(void *user, const char *what)
{
    struct hf_sup *sup = user;
    hf_log(&sup->log, HF_LOG_WARN, "a watched folder: %s", what);
}

static void on_dropped(void *user, const char *folder, uint64_t bytes, uint64_t free_bytes)
{
    struct hf_sup *sup = user;
    cJSON *f = hf_json_obj();
    hf_json_add(f, "path", hf_json_bytes(folder));
    hf_json_add_int(f, "bytes", (int64_t)bytes);
    hf_json_add_int(f, "free_bytes", (int64_t)free_bytes);
    hf_event(&sup->events, sup->at.claim.attempt, "held-dropped", f);
    if (!sup->held_warned) {
        hf_log(&sup->log, HF_LOG_WARN,
               "little disk space is left (%" PRIu64 " bytes): a checkpoint that was held to be "
               "shipped is given up, so that the training program can save",
               free_bytes);
    }
    sup->held_warned = true;
}

static void on_looked(void *user)
{
    struct hf_sup *sup = user;
    hf_sup_check_safe(sup);
    hf_sup_maybe_settled(sup);
}

static uint32_t world_of(void *user)
{
    struct hf_sup *sup = user;
    struct hf_hooks_status st = {0};
    if (sup->at.hooks != NULL) {
        hf_hooks_get_status(sup->at.hooks, &st);
    }
    return st.world;
}

enum hf_rc hf_sup_watchdir_start(struct hf_sup *sup, struct hf_err *err)
{
    static const struct hf_watchdir_cb cb = {
        .found = on_found,
        .finished = on_finished,
        .trouble = on_trouble,
        .dropped = on_dropped,
        .looked = on_looked,
        .world = world_of,
    };
    struct hf_attempt *at = &sup->at;
    if (sup->watch_dirs.len == 0) {
        return HF_OK;
    }
    struct hf_watchdir_cfg cfg = {
        .loop = &sup->loop,
        .pool = sup->watch_pool,
        .dirs = &sup->watch_dirs,
        .attempt_dir = at->dir,
        .key = hf_sup_held_key(sup),
        .attempt = at->claim.attempt,
        .token = at->claim.nonce,
        .quiet_ms = hf_set_ms(sup->ctx->settings, HF_SET_CHECKPOINT_QUIET),
        .adopted = at->adopted,
    };
    return hf_watchdir_start(&cfg, &cb, sup, &at->watchdir, err);
}

void hf_sup_unheld(void *user, const struct hf_strv *held)
{
    struct hf_sup *sup = user;
    if (sup->at.watchdir != NULL) {
        hf_watchdir_unhold(sup->at.watchdir, held);
    }
}

void hf_sup_watch_final(struct hf_sup *sup)
{
    struct hf_attempt *at = &sup->at;
    if (at->watchdir == NULL) {
        return;
    }
    const struct hf_verdict *last = hf_ship_verdict(at->ship);
    if (last->kind == HF_VERDICT_STALE || last->kind == HF_VERDICT_LOST) {
        hf_watchdir_once_more(at->watchdir);
    }
    hf_watchdir_final(at->watchdir);
}

bool hf_sup_watch_calm(const struct hf_sup *sup)
{
    return sup->at.watchdir == NULL || hf_watchdir_calm(sup->at.watchdir);
}

/* ---- after a start ---- */

void hf_sup_check_resume(struct hf_sup *sup, int64_t step, const char *how)
{
    struct hf_attempt *at = &sup->at;
    if (at->resume_path == NULL || at->resume_step < 0 || at->resume_doubted || at->resume_proven) {
        return;
    }
    if (step >= at->resume_step) {
        at->resume_proven = true;
        return;
    }
    at->resume_doubted = true;
    hf_log(&sup->log, HF_LOG_WARN,
           "the training program is at step %" PRId64 ", before the restored checkpoint's %" PRId64
           ": it did not load it",
           step, at->resume_step);
    cJSON *f = hf_json_obj();
    hf_json_add_int(f, "step", step);
    hf_json_add_int(f, "checkpoint_step", at->resume_step);
    hf_json_add_str(f, "how", how);
    hf_event(&sup->events, at->claim.attempt, "resume-not-proven", f);
}
