/* SPDX-License-Identifier: Apache-2.0
 *
 * Claiming the next attempt. Worker thread; the store and small local files only. An attempt is
 * taken over when its end is recorded, when this machine proves its processes gone, or when its
 * heartbeat has stood still; never because a listing or one failed read says so.
 */
#include "base/prelude.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fsx.h"
#include "base/hash.h"
#include "base/json.h"
#include "supervisor/cgroup.h"
#include "supervisor/handoff.h"
#include "supervisor/held.h"
#include "supervisor/journal.h"
#include "supervisor/relaunch.h"
#include "supervisor/tree.h"

#define SMALL_FILE 65536

void hf_handoff_out_release(struct hf_handoff_out *out)
{
    hf_claim_release(&out->claim);
    hf_claim_release(&out->last);
}

static enum hf_rc read_json(const char *dir, const char *name, cJSON **ret, struct hf_err *err)
{
    HF_CLEANUP(hf_freep) char *path = hf_asprintf("%s/%s", dir, name);
    struct hf_buf text;
    hf_buf_init(&text, SMALL_FILE);
    enum hf_rc rc = hf_fs_read(path, &text, err);
    if (rc == HF_OK) {
        rc = hf_json_parse(hf_buf_span(&text), SMALL_FILE, ret, err);
    }
    hf_buf_release(&text);
    return rc;
}

static bool keeper_lives(const char *attempt_dir)
{
    HF_CLEANUP(hf_json_freep) cJSON *obj = NULL;
    if (read_json(attempt_dir, "keeper.json", &obj, NULL) != HF_OK) {
        return false;
    }
    int64_t pid = hf_json_opt_int(obj, "pid", 0);
    int64_t start = hf_json_opt_int(obj, "start", 0);
    return pid > 0 && hf_proc_alive((pid_t)pid, (uint64_t)start);
}

static bool same_host(const struct hf_handoff_in *in, const struct hf_claim *c)
{
    return c->boot_id != NULL && strcmp(c->boot_id, in->boot_id) == 0 && c->pid_ns == in->pid_ns;
}

static void busy(struct hf_handoff_out *out, const char *how)
{
    char utc[HF_UTC_STRLEN];
    out->verdict = HF_HANDOFF_BUSY;
    snprintf(out->why, sizeof(out->why), "attempt %u, started %s on '%s' (pid %" PRId64 "), %s",
             out->last.attempt, hf_utc_format(out->last.at_wall_ms, utc),
             out->last.host != NULL ? out->last.host : "unknown", out->last.pid, how);
}

bool hf_handoff_exit(const char *attempt_dir, int *ret_status, bool *ret_forced)
{
    HF_CLEANUP(hf_json_freep) cJSON *obj = NULL;
    if (read_json(attempt_dir, "exit", &obj, NULL) != HF_OK) {
        return false;
    }
    int64_t status = hf_json_opt_int(obj, "status", -1);
    if (status < 0 || status > UINT16_MAX) {
        return false;
    }
    *ret_status = (int)status;
    *ret_forced = hf_json_opt_bool(obj, "forced", false);
    return true;
}

/* The command ended by itself while no supervisor was there: exit 0, and nobody had asked it to
 * leave. */
static bool finished_alone(const char *attempt_dir, struct hf_end *end)
{
    int status = 0;
    if (!hf_handoff_exit(attempt_dir, &status, &end->forced)) {
        return false;
    }
    end->exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    end->signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
    HF_CLEANUP(hf_freep) char *leaving = hf_asprintf("%s/leaving", attempt_dir);
    return end->exit_code == 0 && !hf_fs_exists(leaving);
}

enum hf_rc hf_handoff_newest(const struct hf_run *run, const struct hf_call *c, uint32_t attempt,
                             struct hf_manifest *ret, bool *ret_any, struct hf_err *err)
{
    uint32_t next = 0;
    bool sealed = false;
    *ret_any = false;
    HF_TRY(hf_lineage_next_number(run, c, attempt, &next, &sealed, err));
    for (uint32_t n = next; n > 1; n--) {
        struct hf_decision d = {.kind = HF_DECISION_ABORT};
        enum hf_rc rc = hf_lineage_get_decision(run, c, attempt, n - 1, &d, err);
        if (rc != HF_OK && rc != HF_ECORRUPT) {
            return rc;
        }
        if (d.kind == HF_DECISION_MANIFEST && !hf_lineage_is_retired(run, c, attempt, n - 1)) {
            *ret = d.manifest; /* taken out of d, which holds nothing else */
            *ret_any = true;
            return HF_OK;
        }
        hf_decision_release(&d);
    }
    return HF_OK;
}

/* Commits, as the dead attempt's own, what its trainer had reported and nobody had shipped. */
static enum hf_rc recover_save(const struct hf_handoff_in *in, const struct hf_call *c,
                               const struct hf_claim *dead, const struct hf_saved *s,
                               struct hf_err *err)
{
    uint32_t number = 0;
    bool sealed = false;
    HF_TRY(hf_lineage_next_number(in->run, c, dead->attempt, &number, &sealed, err));
    if (sealed) {
        return hf_fail(err, HF_EEXISTS, "attempt %u is sealed", dead->attempt);
    }
    bool held = hf_held_there(&s->held);
    struct hf_manifest parent = {0};
    bool has_parent = false;
    HF_TRY(hf_handoff_newest(in->run, c, dead->attempt, &parent, &has_parent, err));
    struct hf_save_in save = {
        .run = in->run,
        .claim = dead,
        .number = number,
        .life = s->life,
        .request = s->request,
        .step = s->step,
        .reason = "recovered",
        .strategy = s->strategy,
        .world = s->world,
        .ranks = s->ranks,
        .n_ranks = s->n_ranks,
        .roots = s->roots,
        .sources = held ? s->held : (struct hf_strv){0},
        .resume_path = s->resume_path,
        .parent = has_parent ? &parent : NULL,
        .expect = &s->stamps,
        .block_bytes = in->block_bytes,
        .lanes = in->lanes,
    };
    struct hf_manifest m = {0};
    enum hf_rc rc = hf_save(&save, c, &m, err);
    hf_manifest_release(&m);
    hf_manifest_release(&parent);
    return rc;
}

static void recover(const struct hf_handoff_in *in, const struct hf_call *c, const char *dir,
                    const struct hf_claim *dead, struct hf_handoff_out *out)
{
    struct hf_err why = {0};
    struct hf_saved *s = NULL;
    uint64_t serial = 0;
    enum hf_rc rc = hf_journal_unshipped(dir, &s, &serial, &why);
    if (rc == HF_OK && s != NULL) {
        rc = recover_save(in, c, dead, s, &why);
        if (rc == HF_OK) {
            out->recovered = true;
            out->recovered_step = s->step;
            rc = hf_journal_put_shipped(dir, s->serial, &why);
        }
    }
    if (rc != HF_OK) {
        snprintf(out->why, sizeof(out->why), "%.*s", (int)sizeof(out->why) - 1, why.msg);
    }
    hf_saved_free(s);
}

/* The dead attempt is this machine's own: its processes are ended, its last save is recovered
 * and its end is recorded in its name. */
static enum hf_rc bury(const struct hf_handoff_in *in, const struct hf_call *c, const char *dir,
                       struct hf_handoff_out *out, bool *ret_finished, struct hf_err *err)
{
    struct hf_claim *dead = &out->last;
    hf_cgroup_end(dir, dead->nonce, 2000);
    HF_TRY(hf_tree_kill_token(dead->nonce, 10000, err));
    recover(in, c, dir, dead, out);
    struct hf_end end = {.exit_code = -1, .last_step = -1, .at_wall_ms = hf_wall_ms()};
    memcpy(end.nonce, dead->nonce, sizeof(end.nonce));
    *ret_finished = finished_alone(dir, &end);
    char outcome[] = "vanished";
    char finished[] = "finished";
    char replacement[] = "unknown";
    end.outcome = *ret_finished ? finished : outcome;
    end.replacement = replacement;
    return hf_lineage_end(in->run, c, dead->attempt, &end, err);
}

/* Judged by its heartbeat; while that was watched, its end may have been recorded. */
static enum hf_rc judge_by_heartbeat(const struct hf_handoff_in *in, const struct hf_call *c,
                                     struct hf_handoff_out *out, struct hf_err *err)
{
    bool dead = false;
    HF_TRY(hf_lineage_judge(in->run, c, out->last.attempt, in->dead_after_ms, &dead, err));
    if (dead) {
        return HF_OK;
    }
    struct hf_end end = {0};
    enum hf_rc rc = hf_lineage_get_end(in->run, c, out->last.attempt, &end, err);
    hf_end_release(&end);
    if (rc == HF_ENOTFOUND) {
        busy(out, "is alive: its heartbeat moves");
        return HF_OK;
    }
    return rc == HF_ECORRUPT ? HF_OK : rc;
}

/* The attempt was started with this state folder. */
static enum hf_rc settle_own(const struct hf_handoff_in *in, const struct hf_call *c,
                             const char *dir, struct hf_handoff_out *out, struct hf_err *err)
{
    struct hf_claim *last = &out->last;
    bool here = same_host(in, last);
    if (here && keeper_lives(dir)) {
        out->verdict = HF_HANDOFF_ADOPT;
        return HF_OK;
    }
    /* Another boot of this machine has no process of it; another machine that shares the folder
     * may. */
    if (!here && (last->host == NULL || strcmp(last->host, in->host) != 0)) {
        HF_TRY(judge_by_heartbeat(in, c, out, err));
        if (out->verdict != 0) {
            return HF_OK;
        }
    }
    bool finished = false;
    HF_TRY(bury(in, c, dir, out, &finished, err));
    if (finished) {
        HF_TRY(hf_handoff_close_run(in->run, c, last, HF_CLAIM_FINISHED, err));
        out->verdict = HF_HANDOFF_FINISHED;
    }
    return HF_OK;
}

/* Whether its folder lies here. Where a crash of the machine has cost the copy of the claim, the
 * folder alone says so: only who wins a claim makes it. */
static bool started_here(const struct hf_handoff_in *in, const struct hf_claim *last,
                         const char *dir)
{
    struct hf_claim local = {0};
    bool same = hf_journal_get_claim(dir, &local, NULL) == HF_OK
                    ? strcmp(local.nonce, last->nonce) == 0
                    : last->host != NULL && strcmp(last->host, in->host) == 0 && hf_fs_exists(dir);
    hf_claim_release(&local);
    return same;
}

/* Whether the attempt out->last may be followed. Fills verdict (BUSY, ADOPT) when not. */
static enum hf_rc settle_last(const struct hf_handoff_in *in, const struct hf_call *c,
                              struct hf_handoff_out *out, struct hf_err *err)
{
    struct hf_claim *last = &out->last;
    struct hf_end end = {0};
    enum hf_rc rc = hf_lineage_get_end(in->run, c, last->attempt, &end, err);
    hf_end_release(&end);
    if (rc != HF_ENOTFOUND) { /* that it was put says that it has ended, though it be damaged now */
        return rc == HF_ECORRUPT ? HF_OK : rc;
    }
    HF_CLEANUP(hf_freep) char *dir = hf_rundir_attempt(in->dir, last->attempt);
    if (started_here(in, last, dir)) {
        return settle_own(in, c, dir, out, err);
    }
    if (!same_host(in, last)) {
        return judge_by_heartbeat(in, c, out, err);
    }
    struct hf_procs procs = {0};
    HF_TRY(hf_tree_by_token(last->nonce, &procs, err));
    bool lives = procs.len > 0 || hf_proc_alive((pid_t)last->pid, last->pid_start);
    hf_procs_release(&procs);
    if (lives) {
        busy(out, "still runs here with another state folder");
    }
    return HF_OK;
}

static bool same_command(const struct hf_claim *c, const char *const *argv)
{
    size_t n = 0;
    while (argv[n] != NULL) {
        if (n >= c->command.len || strcmp(c->command.items[n], argv[n]) != 0) {
            return false;
        }
        n++;
    }
    return n == c->command.len;
}

/* Whether that attempt leaves something to go on with. One that was misspelt, refused before its
 * start, or failed before its first step with nothing saved does not: the person corrects the
 * command and starts again. */
static enum hf_rc leaves_something(const struct hf_handoff_in *in, const struct hf_call *c,
                                   const struct hf_claim *claim, bool *ret, struct hf_err *err)
{
    *ret = claim->kind == HF_CLAIM_RUN;
    if (!*ret) {
        return HF_OK;
    }
    struct hf_end end;
    enum hf_rc rc = hf_lineage_get_end(in->run, c, claim->attempt, &end, err);
    if (rc != HF_OK) {
        return rc == HF_ENOTFOUND || rc == HF_ECORRUPT ? HF_OK : rc;
    }
    bool failed = strcmp(end.outcome, hf_outcome_name(HF_OUTCOME_FAILED)) == 0;
    bool no_step = failed && end.last_step < 0;
    *ret = strcmp(end.outcome, hf_outcome_name(HF_OUTCOME_NOT_STARTED)) != 0;
    hf_end_release(&end);
    if (*ret && no_step) {
        uint32_t number = 0;
        bool sealed = false;
        HF_TRY(hf_lineage_next_number(in->run, c, claim->attempt, &number, &sealed, err));
        *ret = number > 1;
    }
    return HF_OK;
}

/* The newest attempt, from out->last down, that left something has the command to compare with. */
static enum hf_rc compare_command(const struct hf_handoff_in *in, const struct hf_call *c,
                                  struct hf_handoff_out *out, struct hf_err *err)
{
    bool left = false;
    HF_TRY(leaves_something(in, c, &out->last, &left, err));
    while (!left && out->last.attempt > 1) {
        struct hf_claim lower = {0};
        bool damaged = false;
        HF_TRY(hf_lineage_need_claim(in->run, c, out->last.attempt - 1, &lower, &damaged, err));
        hf_claim_release(&out->last);
        out->last = lower;
        if (!damaged) { /* its command is not known */
            HF_TRY(leaves_something(in, c, &out->last, &left, err));
        }
    }
    if (left && !same_command(&out->last, in->argv)) {
        out->verdict = HF_HANDOFF_DIFFERS;
    }
    return HF_OK;
}

static void fill_claim(const struct hf_handoff_in *in, uint32_t attempt, struct hf_claim *c)
{
    c->attempt = attempt;
    c->kind = HF_CLAIM_RUN;
    hf_random_hex(16, c->nonce);
    for (size_t i = 0; in->argv[i] != NULL; i++) {
        hf_strv_add(&c->command, in->argv[i]);
    }
    c->folder = hf_strdup(in->folder);
    c->fresh = in->fresh;
    c->host = hf_strdup(in->host);
    c->boot_id = hf_strdup(in->boot_id);
    c->pid_ns = in->pid_ns;
    c->pid = getpid();
    c->pid_start = hf_proc_start(getpid());
    c->provider = hf_strdup(in->provider);
    c->at_wall_ms = hf_wall_ms();
}

/* The claim that is the run's state. One that is damaged says neither whether the run is finished
 * nor where its attempt lives: a person has to say that it may be passed over. Its own machine has
 * a copy. */
static enum hf_rc read_last(const struct hf_handoff_in *in, const struct hf_call *c,
                            uint32_t *ret_highest, struct hf_claim *ret, struct hf_err *err)
{
    HF_TRY(hf_lineage_top(in->run, c, ret_highest, err));
    if (*ret_highest == 0) {
        return HF_OK;
    }
    bool damaged = false;
    HF_TRY(hf_lineage_need_claim(in->run, c, *ret_highest, ret, &damaged, err));
    if (!damaged) {
        return HF_OK;
    }
    HF_CLEANUP(hf_freep) char *dir = hf_rundir_attempt(in->dir, *ret_highest);
    struct hf_claim local = {0};
    if (hf_journal_get_claim(dir, &local, NULL) == HF_OK && local.attempt == *ret_highest &&
        (ret->nonce[0] == '\0' || strcmp(ret->nonce, local.nonce) == 0)) {
        hf_claim_release(ret);
        *ret = local;
        return HF_OK;
    }
    hf_claim_release(&local);
    if (in->resume || in->fresh) {
        return HF_OK;
    }
    hf_claim_release(ret);
    enum hf_rc rc =
        hf_fail(err, HF_ECORRUPT, "the claim of attempt %u, the last, is damaged", *ret_highest);
    return hf_hint(err, rc,
                   "Make sure that it has ended. Then --resume goes on from its newest checkpoint, "
                   "--fresh from nothing; nothing is deleted.");
}

enum hf_rc hf_handoff_claim(const struct hf_handoff_in *in, const struct hf_call *c,
                            struct hf_handoff_out *ret, struct hf_err *err)
{
    *ret = (struct hf_handoff_out){0};
    uint32_t highest = 0;
    HF_TRY(read_last(in, c, &highest, &ret->last, err));
    if (highest > 0 && ret->last.kind == HF_CLAIM_RUN) {
        HF_TRY(settle_last(in, c, ret, err));
    } else if (highest > 0 && ret->last.kind == HF_CLAIM_FINISHED) {
        ret->verdict = HF_HANDOFF_FINISHED;
    }
    if (ret->verdict == HF_HANDOFF_FINISHED && in->fresh) {
        ret->verdict = 0;
        HF_TRY(hf_lineage_top(in->run, c, &highest, err));
    }
    if (ret->verdict == HF_HANDOFF_ADOPT && in->fresh) {
        busy(ret, "still runs here; without --fresh it is taken over");
    }
    bool follows = ret->verdict == 0 || ret->verdict == HF_HANDOFF_ADOPT;
    if (follows && highest > 0 && !in->fresh && !in->resume) {
        HF_TRY(compare_command(in, c, ret, err));
    }
    if (ret->verdict != 0) {
        return HF_OK;
    }
    fill_claim(in, highest + 1, &ret->claim);
    enum hf_rc rc = hf_lineage_claim(in->run, c, &ret->claim, err);
    if (rc == HF_EEXISTS) {
        hf_claim_release(&ret->last);
        HF_TRY(hf_lineage_get_claim(in->run, c, highest + 1, &ret->last, err));
        busy(ret, "was claimed a moment before this one");
        return HF_OK;
    }
    HF_TRY(rc);
    ret->verdict = HF_HANDOFF_CLAIMED;
    return HF_OK;
}

enum hf_rc hf_handoff_close_run(const struct hf_run *run, const struct hf_call *c,
                                const struct hf_claim *mine, enum hf_claim_kind kind,
                                struct hf_err *err)
{
    struct hf_claim claim = {.attempt = mine->attempt + 1, .kind = kind};
    hf_random_hex(16, claim.nonce);
    claim.host = hf_strdup(mine->host);
    claim.boot_id = hf_strdup(mine->boot_id);
    claim.pid_ns = mine->pid_ns;
    claim.pid = getpid();
    claim.pid_start = hf_proc_start(getpid());
    claim.provider = hf_strdup(mine->provider);
    claim.at_wall_ms = hf_wall_ms();
    enum hf_rc rc = hf_lineage_claim(run, c, &claim, err);
    hf_claim_release(&claim);
    return rc;
}
