/* SPDX-License-Identifier: Apache-2.0
 *
 * From "begin" to a running command: claim, heartbeat, restore, hooks, keeper. The store work
 * is done on workers; a notice that comes meanwhile cancels it.
 */
#include "base/prelude.h"

#include <inttypes.h>
#include <signal.h>
#include <string.h>

#include "base/fsx.h"
#include "supervisor/journal.h"
#include "supervisor/sup.h"
#include "supervisor/tree.h"
#include "supervisor/world.h"

/* What the two workers of a start are given and give back; freed by the second's report. */
struct prepare {
    struct hf_sup *sup;
    struct hf_handoff_in in; /* immutable while a worker has it */
    bool open;               /* the store is not open yet */
    struct hf_store_cfg store_cfg;
    struct hf_pulse *pulse;
    uint64_t limit_rate; /* bytes a second, 0: none */
    const struct hf_unlock *key;
    struct hf_run run;
    struct hf_handoff_out out;
    struct hf_restored restored;
    struct hf_sup_folders folders;
};

static void prepare_free(struct prepare *p)
{
    hf_handoff_out_release(&p->out);
    hf_restored_release(&p->restored);
    hf_sup_folders_release(&p->folders);
    hf_free(p);
}

static void refuse(struct hf_sup *sup, struct prepare *p, int status)
{
    prepare_free(p);
    sup->exit_status = status;
    hf_job_event(sup, HF_EV_REFUSED);
}

static enum hf_rc open_store(struct prepare *p, struct hf_err *err)
{
    size_t place = hf_pulse_begin(p->pulse, "open", p->in.dir->store);
    enum hf_rc rc = hf_store_open(p->in.dir->store, &p->store_cfg, &p->run.store, err);
    hf_pulse_end(p->pulse, place);
    HF_TRY(rc);
    p->run.store = hf_store_pulse(p->run.store, p->pulse);
    if (p->limit_rate > 0) { /* outside: waiting for one's turn is no trouble of the store's */
        p->run.store = hf_store_limit(p->run.store, p->limit_rate);
    }
    return HF_OK;
}

static enum hf_rc claim_work(void *arg, const struct hf_op *op, struct hf_err *err)
{
    struct prepare *p = arg;
    struct hf_call c = {.op = op};
    if (p->open) {
        enum hf_rc rc = open_store(p, err);
        rc = rc == HF_OK ? hf_run_begin(&p->run, p->key, &c, err) : rc;
        if (rc != HF_OK) { /* never to be used without its key */
            hf_run_close(&p->run);
        }
        if (rc != HF_OK && err != NULL && err->hint[0] == '\0') {
            hf_hint(err, rc, "Point --store (HOLDFAST_STORE) at a place that you can write.");
        }
        HF_TRY(rc);
    }
    return hf_handoff_claim(&p->in, &c, &p->out, err);
}

/* The newest checkpoint of a living attempt that is taken over, or what it started from. */
static enum hf_rc find_parent(struct prepare *p, const struct hf_call *c, struct hf_err *err)
{
    const struct hf_claim *mine = &p->out.last;
    HF_TRY(
        hf_handoff_newest(&p->run, c, mine->attempt, &p->restored.manifest, &p->restored.any, err));
    if (p->restored.any) {
        return HF_OK;
    }
    /* Not what would be chosen now: that may be one which proved damaged, and was passed over. */
    struct hf_base base;
    struct hf_decision d = {.kind = HF_DECISION_ABORT};
    enum hf_rc rc = hf_lineage_get_base(&p->run, c, mine->attempt, &base, err);
    if (rc == HF_OK && base.attempt > 0) {
        rc = hf_lineage_get_decision(&p->run, c, base.attempt, base.number, &d, err);
    }
    if (d.kind == HF_DECISION_MANIFEST &&
        !hf_lineage_is_retired(&p->run, c, base.attempt, base.number)) {
        p->restored.any = true;
        p->restored.manifest = d.manifest;
    } else {
        hf_decision_release(&d);
    }
    return rc == HF_ENOTFOUND || rc == HF_ECORRUPT ? HF_OK : rc; /* then all is sent anew */
}

static enum hf_rc restore_work(void *arg, const struct hf_op *op, struct hf_err *err)
{
    struct prepare *p = arg;
    struct hf_call c = {.op = op};
    if (p->out.verdict == HF_HANDOFF_ADOPT) {
        return find_parent(p, &c, err);
    }
    HF_TRY(hf_handoff_restore(&p->run, &c, &p->out.claim, &p->restored, err));
    return hf_sup_folders_work(&p->folders, err);
}

static void ship_start(struct hf_sup *sup, struct prepare *p)
{
    struct hf_attempt *at = &sup->at;
    struct hf_ship_cfg cfg = {
        .loop = &sup->loop,
        .scope = &sup->scope,
        .local_pool = sup->local_pool,
        .ship_pool = sup->ship_pool,
        .run = &sup->run,
        .claim = &at->claim,
        .attempt_dir = at->dir,
        .save_dir = sup->save_dir,
        .block_bytes = (uint32_t)hf_set_int(sup->ctx->settings, HF_SET_BLOCK_SIZE),
        .lanes = (uint32_t)hf_set_int(sup->ctx->settings, HF_SET_LANES),
        .adopted = at->adopted,
    };
    if (p->restored.any) {
        at->resume_path = hf_strdup(p->restored.manifest.resume_path);
        at->resume_step = p->restored.manifest.step;
        at->resume_world = p->restored.manifest.world;
    }
    at->ship =
        hf_ship_new(&cfg, &hf_sup_ship_cb, sup, p->restored.any ? &p->restored.manifest : NULL);
}

static void tell_restored(struct hf_sup *sup, const struct prepare *p)
{
    cJSON *f = hf_json_obj();
    hf_json_add_bool(f, "any", p->restored.any);
    if (p->restored.any) {
        hf_json_add_int(f, "from_attempt", p->restored.manifest.attempt);
        hf_json_add_int(f, "number", p->restored.manifest.number);
        hf_json_add_int(f, "step", p->restored.manifest.step);
        hf_json_add_int(f, "bytes", (int64_t)p->restored.report.bytes);
        hf_json_add_int(f, "bytes_kept", (int64_t)p->restored.report.bytes_kept);
        hf_json_add(f, "path", hf_json_bytes(p->restored.manifest.resume_path));
    }
    hf_event(&sup->events, sup->at.claim.attempt, "restored", f);
    for (size_t i = 0; i < p->restored.claims.len; i++) {
        hf_log(&sup->log, HF_LOG_WARN, "%s", p->restored.claims.items[i]);
    }
    for (size_t i = 0; i < p->restored.damaged.len; i++) {
        hf_log(&sup->log, HF_LOG_WARN, "%s%s", p->restored.damaged.items[i],
               p->restored.any ? "; stepping back to an older one" : "");
    }
    for (size_t i = 0; i < p->restored.report.aside.len; i++) {
        hf_log(&sup->log, HF_LOG_WARN, "moved aside what was in the way: '%s'",
               p->restored.report.aside.items[i]);
    }
    hf_sup_folders_tell(sup, &p->folders);
}

static void say_start(struct hf_sup *sup, const struct prepare *p)
{
    const char *store = sup->dir.store;
    const char *safe = hf_sup_safe_word(sup);
    if (p->restored.any && p->restored.manifest.step >= 0) {
        hf_log(&sup->log, HF_LOG_INFO,
               "run '%s', attempt %u, from the checkpoint of step %" PRId64 "; store %s (%s)",
               sup->run.name, sup->at.claim.attempt, p->restored.manifest.step, store, safe);
    } else {
        hf_log(&sup->log, HF_LOG_INFO, "run '%s', attempt %u, from %s; store %s (%s)",
               sup->run.name, sup->at.claim.attempt,
               p->restored.any ? p->restored.manifest.resume_path : "the beginning", store, safe);
    }
    if ((sup->run.store->caps & HF_STORE_CREATE_ONLY) == 0) {
        hf_log(&sup->log, HF_LOG_WARN,
               "the store overwrites what it is told only to create: two machines that take run "
               "'%s' over in the same second may both go on",
               sup->run.name);
    }
}

/* The attempt lives, whatever came meanwhile: its end must not be recorded before its tree is gone.
 * A notice is acted on once it is taken over; where that fails it is left as it was found. */
static void adopt_done(struct hf_sup *sup, struct prepare *p, const struct hf_err *err)
{
    if (err != NULL) {
        hf_log_err(&sup->log, HF_LOG_ERROR, err, "attempt %u could not be taken over: it goes on",
                   sup->at.claim.attempt);
        hf_sup_end_attempt(sup);
        refuse(sup, p, HF_EXIT_OWN);
        return;
    }
    sup->start_canceled = false;
    sup->at.ending.notice = false;
    ship_start(sup, p);
    prepare_free(p);
    hf_job_event(sup, HF_EV_ADOPTED);
}

/* P1: another number of ranks than the checkpoint was saved by fails late, or loads wrongly. */
static bool world_fits(struct hf_sup *sup, const struct prepare *p)
{
    uint32_t saved = p->restored.any ? p->restored.manifest.world : 0;
    uint32_t declared =
        hf_declared_world((const char *const *)sup->ctx->argv, (const char *const *)sup->ctx->env);
    if (saved == 0 || declared == 0 || saved == declared) {
        return true;
    }
    cJSON *f = hf_json_obj();
    hf_json_add_int(f, "saved_by", saved);
    hf_json_add_int(f, "declared", declared);
    hf_event(&sup->events, sup->at.claim.attempt, "world-differs", f);
    bool allowed = hf_set_bool(sup->ctx->settings, HF_SET_ALLOW_WORLD_CHANGE);
    hf_log(&sup->log, allowed ? HF_LOG_WARN : HF_LOG_ERROR,
           "the checkpoint of step %" PRId64 " was saved by %u rank%s, and the command starts %u%s",
           p->restored.manifest.step, saved, saved == 1 ? "" : "s", declared,
           allowed ? ""
                   : ": nothing was started. Start as many ranks as before, or add "
                     "--allow-world-change if your program can load it");
    return allowed;
}

static void restore_done(void *user, const struct hf_err *err)
{
    struct prepare *p = user;
    struct hf_sup *sup = p->sup;
    sup->prepare_op = NULL;
    if (sup->at.adopted) {
        adopt_done(sup, p, err);
        return;
    }
    if (err != NULL) {
        if (!sup->start_canceled) {
            hf_log_err(&sup->log, HF_LOG_ERROR, err, "attempt %u could not be restored",
                       sup->at.claim.attempt);
        }
        sup->at.ending.superseded = err->code == HF_EEXISTS;
    }
    bool all_damaged = err == NULL && !p->restored.any && p->restored.damaged.len > 0;
    if (all_damaged) {
        tell_restored(sup, p);
        hf_log(&sup->log, HF_LOG_ERROR,
               "run '%s' has checkpoints and every one is damaged: nothing was started; --fresh "
               "starts over from the beginning",
               sup->run.name);
    }
    bool fits = err != NULL || sup->start_canceled || all_damaged || world_fits(sup, p);
    if (err != NULL || sup->start_canceled || all_damaged || !fits) {
        sup->at.ending.not_started = true;
        prepare_free(p);
        hf_job_event(sup, HF_EV_GONE);
        return;
    }
    tell_restored(sup, p);
    say_start(sup, p);
    ship_start(sup, p);
    prepare_free(p);
    hf_job_event(sup, HF_EV_PREPARED);
}

/* The claim is ours, or the living attempt is: its folder, its journal, its heartbeat. */
static enum hf_rc take_claim(struct hf_sup *sup, struct prepare *p, struct hf_err *err)
{
    struct hf_attempt *at = &sup->at;
    at->adopted = p->out.verdict == HF_HANDOFF_ADOPT;
    const struct hf_claim *c = at->adopted ? &p->out.last : &p->out.claim;
    /* A copy: the prepare struct keeps its own until the restore has reported. */
    HF_CLEANUP(hf_freep) char *text = hf_claim_print(c);
    HF_TRY(hf_claim_parse((struct hf_span){text, strlen(text)}, &at->claim, err));
    at->dir = hf_rundir_attempt(&sup->dir, at->claim.attempt);
    hf_sup_beat_start(sup);
    if (!at->adopted) {
        /* Left from a store that was deleted since: nothing of it may pass for this attempt's. */
        HF_TRY(hf_fs_remove_tree(at->dir, err));
    }
    HF_TRY(hf_fs_mkdirs(at->dir, 0700, err));
    return at->adopted ? HF_OK : hf_journal_put_claim(at->dir, &at->claim, err);
}

static void say_differs(struct hf_sup *sup, const struct hf_claim *last)
{
    struct hf_buf was;
    struct hf_buf is;
    hf_buf_init(&was, 400);
    hf_buf_init(&is, 400);
    bool cut = false;
    for (size_t i = 0; i < last->command.len; i++) {
        cut = hf_buf_addf(&was, NULL, " %s", last->command.items[i]) != HF_OK || cut;
    }
    for (int i = 0; i < sup->ctx->argc; i++) {
        cut = hf_buf_addf(&is, NULL, " %s", sup->ctx->argv[i]) != HF_OK || cut;
    }
    hf_log(&sup->log, HF_LOG_ERROR, "run '%s' is not finished and has another command%s",
           sup->run.name, cut ? " (shown shortened)" : "");
    hf_log(&sup->log, HF_LOG_ERROR, "  unfinished:%s", hf_buf_str(&was));
    hf_log(&sup->log, HF_LOG_ERROR, "  given now: %s", hf_buf_str(&is));
    hf_log(&sup->log, HF_LOG_ERROR,
           "add --resume to go on with the new command, --run NAME for another run, or --fresh to "
           "start this one over");
    hf_buf_release(&was);
    hf_buf_release(&is);
}

static void claim_failed(struct hf_sup *sup, struct prepare *p, const struct hf_err *err)
{
    if (!sup->start_canceled) {
        hf_log_err(&sup->log, HF_LOG_ERROR, err, "run '%s' was not started", sup->run.name);
    }
    refuse(sup, p,
           sup->at.ending.notice        ? HF_EXIT_AGAIN
           : sup->at.ending.interrupted ? 128 + SIGINT
                                        : HF_EXIT_OWN);
}

static void tell_recovered(struct hf_sup *sup, const struct hf_handoff_out *out)
{
    if (out->recovered) {
        hf_log(&sup->log, HF_LOG_INFO,
               "the save of step %" PRId64 " of attempt %u had not been shipped: it is now",
               out->recovered_step, out->last.attempt);
        cJSON *f = hf_json_obj();
        hf_json_add_int(f, "step", out->recovered_step);
        hf_event(&sup->events, out->last.attempt, "recovered", f);
    } else if (out->why[0] != '\0' && out->verdict != HF_HANDOFF_BUSY) {
        hf_log(&sup->log, HF_LOG_WARN, "the last save of attempt %u could not be recovered: %s",
               out->last.attempt, out->why);
    }
}

static void claim_done(void *user, const struct hf_err *err)
{
    struct prepare *p = user;
    struct hf_sup *sup = p->sup;
    sup->prepare_op = NULL;
    sup->run = p->run;
    if (sup->run.store != NULL) { /* it is unlocked: what the user gave is not needed any more */
        hf_unlock_free(sup->key);
        sup->key = NULL;
    }
    hf_store_limit_lift(sup->run.store, sup->leaving.notice);
    if (err != NULL) {
        claim_failed(sup, p, err);
        return;
    }
    tell_recovered(sup, &p->out);
    switch (p->out.verdict) {
    case HF_HANDOFF_FINISHED:
        hf_log(&sup->log, HF_LOG_INFO, "run '%s' is finished; --fresh starts it over",
               sup->run.name);
        refuse(sup, p, HF_EXIT_OK);
        return;
    case HF_HANDOFF_DIFFERS:
        say_differs(sup, &p->out.last);
        refuse(sup, p, HF_EXIT_OWN);
        return;
    case HF_HANDOFF_BUSY:
        hf_log(&sup->log, HF_LOG_ERROR, "run '%s' is taken: %s", sup->run.name, p->out.why);
        refuse(sup, p, HF_EXIT_OWN);
        return;
    case HF_HANDOFF_ADOPT:
    case HF_HANDOFF_CLAIMED:
        break;
    }
    struct hf_err own = {0};
    enum hf_rc rc = take_claim(sup, p, &own);
    if (rc == HF_OK && !sup->at.adopted) {
        cJSON *f = hf_json_obj();
        hf_json_add_str(f, "nonce", sup->at.claim.nonce);
        hf_event(&sup->events, sup->at.claim.attempt, "claimed", f);
    }
    if (rc == HF_OK) {
        hf_sup_folders_init(sup, &p->folders);
        rc = hf_pool_submit(sup->ship_pool, &sup->scope, restore_work, p, restore_done, p,
                            &sup->prepare_op, &own);
    }
    if (rc != HF_OK) {
        restore_done(p, &own);
    }
}

void hf_act_prepare(struct hf_sup *sup)
{
    struct prepare *p = HF_NEW(struct prepare);
    const struct hf_settings *set = sup->ctx->settings;
    p->sup = sup;
    p->open = sup->run.store == NULL;
    p->pulse = sup->pulse;
    p->store_cfg = hf_set_store(set);
    p->key = sup->key;
    p->limit_rate = (uint64_t)hf_set_int(set, HF_SET_LIMIT_RATE);
    p->run = sup->run;
    sup->at = (struct hf_attempt){.resume_step = -1, .first_step = -1, .last_step = -1};
    p->in = (struct hf_handoff_in){
        .dir = &sup->dir,
        .run = &p->run,
        .argv = (const char *const *)sup->ctx->argv,
        .folder = sup->folder,
        .provider = sup->provider != NULL ? sup->provider->name : "local",
        .host = sup->host,
        .boot_id = sup->boot_id,
        .pid_ns = sup->pid_ns,
        .resume = sup->resume_given || hf_set_bool(set, HF_SET_RESUME),
        .fresh = !sup->resume_given && hf_set_bool(set, HF_SET_FRESH),
        .dead_after_ms = hf_set_ms(set, HF_SET_DEAD_AFTER),
        .block_bytes = (uint32_t)hf_set_int(set, HF_SET_BLOCK_SIZE),
        .lanes = (uint32_t)hf_set_int(set, HF_SET_LANES),
    };
    struct hf_err err = {0};
    if (hf_pool_submit(sup->store_pool, &sup->scope, claim_work, p, claim_done, p, &sup->prepare_op,
                       &err) != HF_OK) {
        claim_failed(sup, p, &err);
    }
}

void hf_act_prepare_cancel(struct hf_sup *sup)
{
    sup->start_canceled = true;
    /* Given up for a notice, also if that is withdrawn before the worker has looked. */
    sup->at.ending.notice = sup->at.ending.notice || sup->leaving.notice;
    if (!sup->at.adopted) {
        hf_op_cancel(sup->prepare_op);
    }
}

static enum hf_rc hooks_start(struct hf_sup *sup, struct hf_err *err)
{
    struct hf_attempt *at = &sup->at;
    HF_TRY(hf_fs_mkdirs(sup->save_dir, 0700, err));
    struct hf_hooks_cfg cfg = {
        .dir = at->dir,
        .run = sup->run.name,
        .attempt = at->claim.attempt,
        .save_dir = sup->save_dir,
        .resume_path = at->resume_path,
        .resume_step = at->resume_step,
    };
    HF_TRY(hf_hooks_open(&sup->loop, &cfg, &hf_sup_hooks_cb, sup, &at->hooks, err));
    return hf_sup_watchdir_start(sup, err);
}

/* The user's environment as it was, less what an outer Holdfast set, plus ours. */
void hf_sup_build_env(struct hf_sup *sup, struct hf_strv *env)
{
    static const char *const ours[] = {
        "HOLDFAST_RUN=",     "HOLDFAST_ATTEMPT=",    "HOLDFAST_TOKEN=",
        "HOLDFAST_CONTROL=", "HOLDFAST_SOCKET=",     "HOLDFAST_SAVE_DIR=",
        "HOLDFAST_RESUME=",  "HOLDFAST_RESUME_DIR=", "HOLDFAST_RESUME_STEP=",
    };
    struct hf_attempt *at = &sup->at;
    for (char *const *e = sup->ctx->env; *e != NULL; e++) {
        bool replaced = false;
        for (size_t i = 0; i < HF_COUNT(ours) && !replaced; i++) {
            replaced = strncmp(*e, ours[i], strlen(ours[i])) == 0;
        }
        if (!replaced) {
            hf_strv_add(env, *e);
        }
    }
    hf_strv_take(env, hf_asprintf("HOLDFAST_RUN=%s", sup->run.name));
    hf_strv_take(env, hf_asprintf("HOLDFAST_ATTEMPT=%u", at->claim.attempt));
    hf_strv_take(env, hf_asprintf("HOLDFAST_TOKEN=%s", at->claim.nonce));
    if (at->resume_path != NULL) {
        const char *slash = strrchr(at->resume_path, '/');
        hf_strv_take(env, hf_asprintf("HOLDFAST_RESUME=%s", at->resume_path));
        hf_strv_take(env, hf_asprintf("HOLDFAST_RESUME_DIR=%.*s", (int)(slash - at->resume_path),
                                      at->resume_path));
        if (at->resume_step >= 0) {
            hf_strv_take(env, hf_asprintf("HOLDFAST_RESUME_STEP=%" PRId64, at->resume_step));
        }
    }
    hf_hooks_env(at->hooks, env);
}

/* `word` with every "{checkpoint}" replaced. */
static char *fill_in(const char *word, const char *path)
{
    static const char mark[] = "{checkpoint}";
    char *out = hf_strdup("");
    for (;;) {
        const char *hit = strstr(word, mark);
        char *longer =
            hf_asprintf("%s%.*s%s", out, (int)(hit != NULL ? (size_t)(hit - word) : strlen(word)),
                        word, hit != NULL ? path : "");
        hf_free(out);
        out = longer;
        if (hit == NULL) {
            return out;
        }
        word = hit + sizeof(mark) - 1;
    }
}

static void build_argv(struct hf_sup *sup, struct hf_strv *argv)
{
    for (int i = 0; i < sup->ctx->argc; i++) {
        hf_strv_add(argv, sup->ctx->argv[i]);
    }
    const struct hf_strv *more = hf_set_list(sup->ctx->settings, HF_SET_RESUME_ARGS);
    for (size_t i = 0; sup->at.resume_path != NULL && i < more->len; i++) {
        hf_strv_take(argv, fill_in(more->items[i], sup->at.resume_path));
    }
}

void hf_act_start(struct hf_sup *sup)
{
    struct hf_attempt *at = &sup->at;
    struct hf_err err = {0};
    enum hf_rc rc = hooks_start(sup, &err);
    if (rc == HF_OK) {
        struct hf_strv env = {0};
        struct hf_strv argv = {0};
        hf_sup_build_env(sup, &env);
        build_argv(sup, &argv);
        struct hf_keeper_spec spec = {
            .dir = at->dir,
            .argv = argv.items,
            .env = env.items,
            .token = at->claim.nonce,
            .inherited = sup->ctx->inherited,
            .linger_ms = (uint32_t)hf_set_ms(sup->ctx->settings, HF_SET_LINGER),
            .log_limit = (uint64_t)hf_set_int(sup->ctx->settings, HF_SET_LOG_DISK),
        };
        hf_sup_logs_trim(sup);
        rc = hf_keeper_start(&sup->loop, &spec, &hf_sup_keeper_cb, sup, &at->keeper, &err);
        hf_strv_clear(&env);
        hf_strv_clear(&argv);
    }
    if (rc != HF_OK) {
        hf_log_err(&sup->log, HF_LOG_ERROR, &err, "the command was not started");
        at->ending.not_started = true;
        hf_job_event(sup, HF_EV_GONE);
    }
}

void hf_act_running(struct hf_sup *sup)
{
    hf_sup_logs_start(sup);
    hf_sup_every_start(sup);
    hf_sup_every_learn(sup);
    hf_sup_disk_look(sup);
    /* A notice that came while the command was being started is acted on now. */
    if (sup->leaving.notice) {
        hf_job_event(sup, HF_EV_NOTICE);
    }
}

/* What the supervisor before was leaving for is told again if it still stands: nobody is held
 * for it. */
static void forget_leaving(struct hf_sup *sup)
{
    struct hf_attempt *at = &sup->at;
    struct hf_hooks_status st;
    hf_hooks_get_status(at->hooks, &st);
    if (st.request != 0) {
        at->request = st.request;
        at->ask = HF_ASK_EVERY;
        hf_hooks_release(at->hooks, false);
    }
    hf_sup_mark_leaving(sup, sup->leaving.notice);
}

/* What came while the living attempt was being taken over, beside a notice: nothing could be ended
 * then. */
static void heed_missed(struct hf_sup *sup)
{
    struct hf_attempt *at = &sup->at;
    if (at->ending.superseded) {
        hf_job_event(sup, HF_EV_FORCE);
    } else if (at->ending.interrupted) {
        at->ending.interrupted = false;
        hf_keeper_signal(at->keeper, SIGINT);
    }
}

void hf_act_adopted(struct hf_sup *sup)
{
    struct hf_attempt *at = &sup->at;
    struct hf_err err = {0};
    at->started_ns = hf_now_ns();
    at->last_save_ns = at->started_ns;
    enum hf_rc rc = hooks_start(sup, &err);
    if (rc == HF_OK) {
        rc = hf_keeper_attach(&sup->loop, at->dir, &hf_sup_keeper_cb, sup, &at->keeper, &err);
    }
    if (rc != HF_OK) {
        hf_log_err(&sup->log, HF_LOG_WARN, &err, "attempt %u could not be taken over; ending it",
                   at->claim.attempt);
        hf_job_event(sup, HF_EV_LOST);
        return;
    }
    hf_log(&sup->log, HF_LOG_INFO,
           "run '%s', attempt %u goes on: its supervisor had gone; store %s (%s)", sup->run.name,
           at->claim.attempt, sup->dir.store, hf_sup_safe_word(sup));
    hf_event(&sup->events, at->claim.attempt, "adopted", NULL);
    forget_leaving(sup);
    hf_act_running(sup);
    heed_missed(sup);
}

/* The heartbeat: one put and one look at a time, never faster than it is answered. */
struct beat {
    struct hf_sup *sup;
    struct hf_run run;
    struct hf_claim claim; /* attempt and nonce alone are looked at */
    struct hf_beat tell;
    bool superseded;
};

static void beat_due(void *user);

static enum hf_rc beat_work(void *arg, const struct hf_op *op, struct hf_err *err)
{
    struct beat *b = arg;
    struct hf_call c = {.op = op};
    return hf_lineage_beat(&b->run, &c, &b->claim, &b->tell, &b->superseded, err);
}

static void beat_done(void *user, const struct hf_err *err)
{
    struct beat *b = user;
    struct hf_sup *sup = b->sup;
    bool current = b->claim.attempt == sup->at.claim.attempt && sup->state != HF_JOB_ENDED;
    bool superseded = b->superseded;
    hf_free(b);
    sup->at.beat_busy = false;
    if (!current) {
        return;
    }
    if (err == NULL) {
        sup->at.beat_ns = hf_now_ns();
        sup->at.beat_wall_ms = hf_wall_ms();
    } else {
        hf_log(&sup->log, HF_LOG_DEBUG, "heartbeat: %s", err->msg);
    }
    hf_timer_start(&sup->beat, &sup->loop, sup->heartbeat_ms, beat_due, sup);
    if (superseded && !sup->at.ending.superseded) {
        hf_sup_ship_cb.superseded(sup);
    }
}

static void beat_due(void *user)
{
    struct hf_sup *sup = user;
    if (sup->at.claim.attempt == 0 || sup->at.beat_busy || sup->state == HF_JOB_ENDED) {
        return;
    }
    struct beat *b = HF_NEW(struct beat);
    b->sup = sup;
    b->run = sup->run;
    b->claim.attempt = sup->at.claim.attempt;
    memcpy(b->claim.nonce, sup->at.claim.nonce, sizeof(b->claim.nonce));
    b->tell = (struct hf_beat){.counter = ++sup->at.beats,
                               .every_ms = sup->heartbeat_ms,
                               .at_wall_ms = hf_wall_ms(),
                               .step = sup->at.last_step};
    snprintf(b->tell.state, sizeof(b->tell.state), "%s", hf_job_state_name(sup->state));
    sup->at.beat_busy = true;
    if (hf_pool_submit(sup->store_pool, &sup->scope, beat_work, b, beat_done, b, NULL, NULL) !=
        HF_OK) {
        hf_free(b);
        sup->at.beat_busy = false;
        hf_timer_start(&sup->beat, &sup->loop, sup->heartbeat_ms, beat_due, sup);
    }
}

void hf_sup_beat_start(struct hf_sup *sup)
{
    hf_timer_start(&sup->beat, &sup->loop, 0, beat_due, sup);
}
