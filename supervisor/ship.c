/* SPDX-License-Identifier: Apache-2.0
 *
 * The shipper. Loop thread, with two kinds of work items: "note" (stamp the files, write the
 * journal) and "send" (hf_save). A failed send is repeated while it may help; a newer save
 * always goes first.
 */
#include "base/prelude.h"

#include <stdio.h>
#include <string.h>

#include "base/fsx.h"
#include "base/hash.h"
#include "base/retry.h"
#include "checkpoint/early.h"
#include "supervisor/disk.h"
#include "supervisor/held.h"
#include "supervisor/ship.h"

struct job {
    struct hf_ship *ship;
    struct hf_saved *save;
    uint64_t reported_ns;
    struct hf_retry retry;
    /* worker's output */
    struct hf_manifest done;
    struct hf_strv remove; /* folders to remove, for the clean-up item */
    uint64_t room;         /* 0: remove all; else stop once so many bytes are free */
};

struct hf_ship {
    struct hf_ship_cfg cfg;
    struct hf_ship_cb cb;
    void *user;
    struct hf_manifest parent;
    bool has_parent;
    uint32_t number; /* next; 0: ask the store */
    uint64_t serial;
    size_t notes;        /* journal items under way */
    struct job *sending; /* in flight or waiting for its next try */
    struct job *waiting;
    struct hf_op *op; /* of the send under way */
    struct hf_timer again;
    uint64_t deadline_ns;
    bool stopped;
    uint32_t committed;
    struct hf_verdict verdict;
    /* Parts of a save to come. `early` is touched by the ship pool's one thread alone while an item
     * is under way, and by the loop only when none is. */
    struct hf_early *early;
    struct hf_op *early_op;    /* of the item under way */
    struct hf_strv early_now;  /* what it reads */
    struct hf_strv early_next; /* to be read after it */
    char *reported;            /* the newest folder that was reported */
    char *last_root;           /* what was shipped last */
    struct hf_strv stale;      /* folders below save_dir that go when the next save is committed */
};

static bool is_ours(const struct hf_ship *s, const char *path)
{
    size_t len = strlen(s->cfg.save_dir);
    return strncmp(path, s->cfg.save_dir, len) == 0 && path[len] == '/';
}

/* A folder of ours that nobody will resume from once a newer save is committed. */
static void leave_behind(struct hf_ship *s, const char *path)
{
    if (is_ours(s, path) && !hf_strv_has(&s->stale, path)) {
        hf_strv_add(&s->stale, path);
    }
}

static void send_next(struct hf_ship *s);
static void early_next(struct hf_ship *s);
static void take_up(struct hf_ship *s);

const char *hf_verdict_name(enum hf_verdict_kind kind)
{
    static const char *const names[] = {"none", "durable", "local", "stale", "lost"};
    return (size_t)kind < HF_COUNT(names) ? names[kind] : "none";
}

static void job_free(struct job *j)
{
    if (j != NULL) {
        if (j->save != NULL && j->save->held.len > 0 && j->ship->cb.unheld != NULL) {
            j->ship->cb.unheld(j->ship->user, &j->save->held);
        }
        hf_saved_free(j->save);
        hf_manifest_release(&j->done);
        hf_strv_clear(&j->remove);
        hf_free(j);
    }
}

struct hf_ship *hf_ship_new(const struct hf_ship_cfg *cfg, const struct hf_ship_cb *cb, void *user,
                            struct hf_manifest *base_taken)
{
    struct hf_ship *s = HF_NEW(struct hf_ship);
    s->cfg = *cfg;
    s->cb = *cb;
    s->user = user;
    s->number = cfg->adopted ? 0 : 1;
    s->verdict.step = -1;
    s->verdict.tried_step = -1;
    if (base_taken != NULL) {
        s->parent = *base_taken;
        *base_taken = (struct hf_manifest){0};
        s->has_parent = true;
        s->verdict.step = s->parent.step;
        s->verdict.attempt = s->parent.attempt;
        s->verdict.number = s->parent.number;
        s->verdict.bytes = s->parent.bytes;
        s->last_root = hf_strdup(s->parent.resume_path);
    }
    if (cfg->adopted) {
        take_up(s);
    }
    return s;
}

void hf_ship_free(struct hf_ship *s)
{
    if (s == NULL) {
        return;
    }
    job_free(s->sending);
    job_free(s->waiting);
    hf_manifest_release(&s->parent);
    hf_early_free(s->early);
    hf_strv_clear(&s->early_now);
    hf_strv_clear(&s->early_next);
    hf_timer_close(&s->again);
    hf_free(s->reported);
    hf_free(s->last_root);
    hf_strv_clear(&s->stale);
    hf_free(s);
}

bool hf_ship_idle(const struct hf_ship *s)
{
    return s->notes == 0 && s->sending == NULL && s->waiting == NULL && s->early_op == NULL;
}

bool hf_ship_pending(const struct hf_ship *s, int64_t *ret_step)
{
    const struct job *newest = s->waiting != NULL ? s->waiting : s->sending;
    *ret_step = newest != NULL ? newest->save->step : -1;
    return newest != NULL;
}

void hf_ship_deadline(struct hf_ship *s, uint64_t deadline_ns)
{
    s->deadline_ns = deadline_ns;
}

const struct hf_verdict *hf_ship_verdict(const struct hf_ship *s)
{
    return &s->verdict;
}

uint32_t hf_ship_committed(const struct hf_ship *s)
{
    return s->committed;
}

static bool is_save(const struct job *j, uint32_t life, uint64_t request, int64_t step)
{
    return j != NULL && j->save->life == life && j->save->request == request &&
           j->save->step == step;
}

bool hf_ship_has(const struct hf_ship *s, uint32_t life, uint64_t request, int64_t step)
{
    const struct hf_manifest *p = &s->parent;
    bool shipped = s->has_parent && p->attempt == s->cfg.claim->attempt && p->life == life &&
                   p->request == request && p->step == step;
    return shipped || is_save(s->sending, life, request, step) ||
           is_save(s->waiting, life, request, step);
}

static void maybe_idle(struct hf_ship *s)
{
    if (hf_ship_idle(s)) {
        s->cb.idle(s->user);
    }
}

/* A save that failed for good, or could not be tried: what stands is the parent. */
static void settle_failed(struct hf_ship *s, struct job *j_taken, const struct hf_err *err)
{
    const struct hf_saved *save = j_taken->save;
    leave_behind(s, save->resume_path);
    struct hf_verdict v = {.step = -1, .tried_step = save->step};
    v.kind = s->has_parent ? HF_VERDICT_STALE : HF_VERDICT_LOST;
    if (s->has_parent) {
        v.step = s->parent.step;
        v.attempt = s->parent.attempt;
        v.number = s->parent.number;
        v.bytes = s->parent.bytes;
    }
    v.at_ns = hf_now_ns();
    v.at_wall_ms = hf_wall_ms();
    v.took_ms = (v.at_ns - j_taken->reported_ns) / HF_MS;
    snprintf(v.reason, sizeof(v.reason), "%s", save->reason);
    snprintf(v.why, sizeof(v.why), "%.*s", (int)sizeof(v.why) - 1, err->msg);
    if (strcmp(save->reason, "window") != 0) {
        s->verdict = v;
    }
    s->cb.settled(s->user, &v, NULL);
    job_free(j_taken);
}

static void judge_committed(struct hf_ship *s, const struct job *j)
{
    struct hf_verdict *v = &s->verdict;
    *v = (struct hf_verdict){.step = j->done.step, .tried_step = j->save->step};
    v->kind =
        (s->cfg.run->store->caps & HF_STORE_OUTLIVES) != 0 ? HF_VERDICT_DURABLE : HF_VERDICT_LOCAL;
    v->attempt = j->done.attempt;
    v->number = j->done.number;
    v->bytes = j->done.bytes;
    v->bytes_sent = j->done.bytes_sent;
    v->at_ns = hf_now_ns();
    v->at_wall_ms = hf_wall_ms();
    v->took_ms = (v->at_ns - j->reported_ns) / HF_MS;
    snprintf(v->reason, sizeof(v->reason), "%s", j->save->reason);
    const struct hf_strv *out = &j->done.left_out;
    if (out->len > 0) {
        snprintf(v->why, sizeof(v->why),
                 "left out, being neither file, folder nor link: '%.150s'%s", out->items[0],
                 out->len > 1 ? " and others" : "");
    }
}

static enum hf_rc clean_work(void *arg, const struct hf_op *op, struct hf_err *err)
{
    (void)op;
    struct job *j = arg;
    if (j->save != NULL) {
        HF_TRY(hf_journal_put_shipped(j->ship->cfg.attempt_dir, j->save->serial, err));
    }
    for (size_t i = 0; i < j->remove.len; i++) {
        struct hf_disk disk;
        if (j->room > 0 && hf_disk_look(j->ship->cfg.save_dir, &disk, NULL) == HF_OK &&
            !hf_disk_is_short(&disk, j->room)) {
            return HF_OK;
        }
        HF_TRY(hf_fs_remove_tree(j->remove.items[i], err));
    }
    return HF_OK;
}

/* A folder that stays behind, or a note that is missing, costs space or a needless look: no
 * more. */
static void clean_done(void *user, const struct hf_err *err)
{
    (void)err;
    struct job *j = user;
    struct hf_ship *s = j->ship;
    job_free(j);
    s->notes--;
    maybe_idle(s);
}

/* Notes the save as shipped and removes the folders that it makes needless. */
static void clean_up(struct hf_ship *s, struct job *j_taken)
{
    const char *now = j_taken->save->resume_path;
    if (s->last_root != NULL && strcmp(s->last_root, now) != 0) {
        leave_behind(s, s->last_root);
    }
    hf_free(s->last_root);
    s->last_root = hf_strdup(now);
    for (size_t i = 0; i < s->stale.len; i++) {
        if (strcmp(s->stale.items[i], now) != 0) {
            hf_strv_add(&j_taken->remove, s->stale.items[i]);
        }
    }
    hf_strv_clear(&s->stale);
    s->notes++;
    if (hf_pool_submit(s->cfg.local_pool, s->cfg.scope, clean_work, j_taken, clean_done, j_taken,
                       NULL, NULL) != HF_OK) {
        s->notes--;
        job_free(j_taken);
    }
}

static bool has_path(const struct job *j, const char *path)
{
    return j != NULL &&
           (strcmp(j->save->resume_path, path) == 0 || hf_strv_has(&j->save->roots, path));
}

/* Removes folders, at once: those that are still of use are passed over. */
static void drop(struct hf_ship *s, const struct hf_strv *paths, uint64_t room)
{
    struct job *j = HF_NEW(struct job);
    j->ship = s;
    j->room = room;
    for (size_t i = 0; i < paths->len; i++) {
        const char *path = paths->items[i];
        bool used = has_path(s->sending, path) || has_path(s->waiting, path) ||
                    (s->last_root != NULL && strcmp(s->last_root, path) == 0) ||
                    (s->reported != NULL && strcmp(s->reported, path) == 0);
        if (!used && is_ours(s, path)) {
            hf_strv_add(&j->remove, path);
        }
    }
    s->notes++;
    if (j->remove.len == 0 || hf_pool_submit(s->cfg.local_pool, s->cfg.scope, clean_work, j,
                                             clean_done, j, NULL, NULL) != HF_OK) {
        s->notes--;
        job_free(j);
    }
}

void hf_ship_trim(struct hf_ship *s, uint64_t need)
{
    drop(s, &s->stale, need);
}

/* A save gives way to a newer one, which is complete on the same disk: its folder is of no use
 * any more, and must not wait for an upload to end. */
static void skip(struct hf_ship *s, struct job *j_taken, const struct job *newer)
{
    struct hf_strv paths = {0};
    s->cb.skipped(s->user, j_taken->save->step);
    if (!has_path(newer, j_taken->save->resume_path)) {
        hf_strv_add(&paths, j_taken->save->resume_path);
    }
    s->sending = j_taken == s->sending ? NULL : s->sending;
    s->waiting = j_taken == s->waiting ? NULL : s->waiting;
    job_free(j_taken);
    drop(s, &paths, 0);
    hf_strv_clear(&paths);
}

static enum hf_rc send_work(void *arg, const struct hf_op *op, struct hf_err *err)
{
    struct job *j = arg;
    struct hf_ship *s = j->ship; /* number and parent change only between sends */
    struct hf_call c = {.op = op, .deadline_ns = 0};
    if (s->number == 0) {
        bool sealed = false;
        HF_TRY(hf_lineage_next_number(s->cfg.run, &c, s->cfg.claim->attempt, &s->number, &sealed,
                                      err));
        if (sealed) {
            return hf_fail(err, HF_EEXISTS, "the run was taken over");
        }
    }
    const struct hf_saved *v = j->save;
    bool held = hf_held_there(&v->held);
    struct hf_save_in in = {
        .run = s->cfg.run,
        .claim = s->cfg.claim,
        .number = s->number,
        .life = v->life,
        .request = v->request,
        .step = v->step,
        .reason = v->reason,
        .strategy = v->strategy,
        .world = v->world,
        .ranks = v->ranks,
        .n_ranks = v->n_ranks,
        .roots = v->roots,
        .sources = held ? v->held : (struct hf_strv){0},
        .resume_path = v->resume_path,
        .parent = s->has_parent ? &s->parent : NULL,
        .expect = &v->stamps,
        .early = s->early,
        .block_bytes = s->cfg.block_bytes,
        .lanes = s->cfg.lanes,
    };
    return hf_save(&in, &c, &j->done, err);
}

static void committed(struct hf_ship *s, struct job *j)
{
    s->committed++;
    s->number = j->done.number + 1;
    judge_committed(s, j);
    hf_manifest_release(&s->parent);
    s->parent = j->done;
    s->has_parent = true;
    hf_early_free(s->early); /* it was for this number */
    s->early = NULL;
    j->done = (struct hf_manifest){0};
    s->cb.settled(s->user, &s->verdict, j->save->resume_path);
    clean_up(s, j);
}

static void try_again(void *user)
{
    struct hf_ship *s = user;
    send_next(s);
    maybe_idle(s);
}

static void failed(struct hf_ship *s, struct job *j, const struct hf_err *err)
{
    uint32_t delay = 0;
    bool newer = s->waiting != NULL;
    if (!newer && !s->stopped &&
        hf_retry_next(&j->retry, err, hf_random_u64(), hf_now_ns(), s->deadline_ns, &delay)) {
        s->sending = j;
        hf_timer_start(&s->again, s->cfg.loop, delay, try_again, s);
        return;
    }
    settle_failed(s, j, err);
}

static void send_done(void *user, const struct hf_err *err)
{
    struct hf_ship *s = user;
    struct job *j = s->sending;
    s->sending = NULL;
    s->op = NULL;
    if (err == NULL) {
        committed(s, j);
    } else if (err->code == HF_EEXISTS) {
        s->stopped = true;
        settle_failed(s, j, err);
        s->cb.superseded(s->user);
    } else {
        failed(s, j, err);
    }
    if (s->sending == NULL) {
        send_next(s);
    }
    early_next(s);
    maybe_idle(s);
}

/* Whether the path is a root of the save, or lies below one. */
static bool is_part(const struct hf_saved *save, const char *path)
{
    for (size_t i = 0; i < save->roots.len; i++) {
        size_t len = strlen(save->roots.items[i]);
        if (strncmp(path, save->roots.items[i], len) == 0 &&
            (path[len] == '\0' || path[len] == '/')) {
            return true;
        }
    }
    return false;
}

/* A save is to be sent: it reads what is left of its parts itself, and waits for no others. */
static void early_give_way(struct hf_ship *s, const struct hf_saved *save)
{
    hf_strv_clear(&s->early_next);
    for (size_t i = 0; s->early_op != NULL && i < s->early_now.len; i++) {
        if (!is_part(save, s->early_now.items[i])) {
            hf_op_cancel(s->early_op);
            return;
        }
    }
}

/* Starts the send that is due: the one being repeated, unless a newer one waits. */
static void send_next(struct hf_ship *s)
{
    if (s->op != NULL) {
        return;
    }
    if (s->waiting != NULL) {
        hf_timer_stop(&s->again);
        if (s->sending != NULL) {
            skip(s, s->sending, s->waiting);
        }
        s->sending = s->waiting;
        s->waiting = NULL;
    }
    if (s->sending == NULL || s->stopped) {
        job_free(s->sending);
        s->sending = NULL;
        return;
    }
    early_give_way(s, s->sending->save);
    struct hf_err err = {0};
    if (hf_pool_submit(s->cfg.ship_pool, s->cfg.scope, send_work, s->sending, send_done, s, &s->op,
                       &err) != HF_OK) {
        struct job *j = s->sending;
        s->sending = NULL;
        failed(s, j, &err);
    }
}

static void enqueue(struct hf_ship *s, struct job *j)
{
    if (s->waiting != NULL) {
        skip(s, s->waiting, j);
    }
    s->waiting = j;
    send_next(s);
}

/* ---- parts of a save to come ---- */

static enum hf_rc early_work(void *arg, const struct hf_op *op, struct hf_err *err)
{
    struct hf_ship *s = arg; /* number and parent change only between sends */
    struct hf_call c = {.op = op};
    struct hf_save_in in = {
        .run = s->cfg.run,
        .claim = s->cfg.claim,
        .number = s->number,
        .roots = s->early_now,
        .parent = s->has_parent ? &s->parent : NULL,
        .block_bytes = s->cfg.block_bytes,
        .lanes = s->cfg.lanes,
    };
    return hf_early_take(s->early, &in, &c, err);
}

/* What failed is read by the save itself, which then says why. */
static void early_done(void *user, const struct hf_err *err)
{
    (void)err;
    struct hf_ship *s = user;
    s->early_op = NULL;
    early_next(s);
    maybe_idle(s);
}

/* Only between sends: the number and the parent are then those of the save to come. */
static void early_next(struct hf_ship *s)
{
    if (s->early_next.len == 0 || s->early_op != NULL || s->op != NULL || s->sending != NULL ||
        s->waiting != NULL || s->number == 0 || s->stopped) {
        return;
    }
    hf_strv_clear(&s->early_now);
    s->early_now = s->early_next;
    s->early_next = (struct hf_strv){0};
    if (s->early == NULL) {
        s->early = hf_early_new();
    }
    if (hf_pool_submit(s->cfg.ship_pool, s->cfg.scope, early_work, s, early_done, s, &s->early_op,
                       NULL) != HF_OK) {
        s->early_op = NULL;
    }
}

void hf_ship_early(struct hf_ship *s, const struct hf_strv *paths)
{
    for (size_t i = 0; i < paths->len; i++) {
        if (!hf_strv_has(&s->early_next, paths->items[i])) {
            hf_strv_add(&s->early_next, paths->items[i]);
        }
    }
    early_next(s);
}

void hf_ship_early_drop(struct hf_ship *s)
{
    hf_strv_clear(&s->early_next);
    if (s->notes == 0 && s->sending == NULL && s->waiting == NULL) {
        hf_op_cancel(s->early_op);
    }
}

/* ---- taking saves ---- */

/* What the supervisor before us had noted and not shipped. */
static enum hf_rc left_work(void *arg, const struct hf_op *op, struct hf_err *err)
{
    (void)op;
    struct job *j = arg;
    return hf_journal_unshipped(j->ship->cfg.attempt_dir, &j->save, &j->ship->serial, err);
}

static void left_done(void *user, const struct hf_err *err)
{
    struct job *j = user;
    struct hf_ship *s = j->ship;
    s->notes--;
    /* Saves of a watched folder may all have one step: they are told apart by nothing. */
    if (err != NULL || j->save == NULL || s->waiting != NULL ||
        (strcmp(j->save->strategy, "watch") != 0 &&
         hf_ship_has(s, j->save->life, j->save->request, j->save->step))) {
        job_free(j);
    } else {
        enqueue(s, j);
    }
    maybe_idle(s);
}

static struct job *job_new(struct hf_ship *s, struct hf_saved *save_taken)
{
    struct job *j = HF_NEW(struct job);
    j->ship = s;
    j->save = save_taken;
    j->reported_ns = hf_now_ns();
    j->retry = (struct hf_retry){.base_ms = 200, .cap_ms = 5000, .tries = 6};
    return j;
}

static void take_up(struct hf_ship *s)
{
    struct job *j = job_new(s, NULL);
    s->notes++;
    if (hf_pool_submit(s->cfg.local_pool, s->cfg.scope, left_work, j, left_done, j, NULL, NULL) !=
        HF_OK) {
        s->notes--;
        job_free(j);
    }
}

static enum hf_rc note_work(void *arg, const struct hf_op *op, struct hf_err *err)
{
    (void)op;
    struct job *j = arg;
    struct hf_ship *s = j->ship; /* serial: one note at a time, on a pool of one thread */
    j->save->serial = ++s->serial;
    if (j->save->stamps.len == 0) {
        HF_TRY(hf_stamps_take(&j->save->roots, &j->save->stamps, err));
    }
    return hf_journal_put_save(s->cfg.attempt_dir, j->save, err);
}

static void note_done(void *user, const struct hf_err *err)
{
    struct job *j = user;
    struct hf_ship *s = j->ship;
    s->notes--;
    /* A journal that cannot be written costs the recovery after a crash, not the save itself. */
    if (j->save->stamps.len == 0 && err != NULL) {
        settle_failed(s, j, err);
        maybe_idle(s);
        return;
    }
    enqueue(s, j);
    maybe_idle(s);
}

void hf_ship_add(struct hf_ship *s, struct hf_saved *save_taken)
{
    struct job *j = job_new(s, save_taken);
    struct hf_err err = {0};
    hf_free(s->reported);
    s->reported = hf_strdup(save_taken->resume_path);
    s->notes++;
    if (s->stopped || hf_pool_submit(s->cfg.local_pool, s->cfg.scope, note_work, j, note_done, j,
                                     NULL, &err) != HF_OK) {
        s->notes--;
        if (s->stopped) {
            hf_fail(&err, HF_ECANCELED, "no more saves are shipped");
        }
        settle_failed(s, j, &err);
    }
}

void hf_ship_stop(struct hf_ship *s)
{
    s->stopped = true;
    hf_op_cancel(s->op);
    hf_op_cancel(s->early_op);
    job_free(s->waiting);
    s->waiting = NULL;
    if (s->op == NULL) {
        job_free(s->sending);
        s->sending = NULL;
    }
    hf_timer_start(&s->again, s->cfg.loop, 0, try_again, s); /* idle, but not from in here */
}
