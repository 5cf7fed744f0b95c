/* SPDX-License-Identifier: Apache-2.0
 *
 * When watched folders are looked at. Loop thread; a look is an item of work on a pool, one at a
 * time, and so are the removing of what was held and the watch over free space. Hints bring a look
 * nearer; without any there is one every few seconds, so that a lost hint costs time alone.
 */
#include "base/prelude.h"

#include <stdio.h>
#include <string.h>

#include "supervisor/rundir.h"
#include "supervisor/watch_hints.h"
#include "supervisor/watchdir.h"

#define RESCAN_MS   10000
#define UNARMED_MS  2000 /* a folder is not there, or has no hints */
#define HINT_MIN_MS 50   /* from a hint to its look */
#define HINT_MAX_MS 1000
#define SPACE_MS    1000 /* between two looks at the free space while something is held */
#define RESERVE     11   /* tenths of the last checkpoint's bytes that stay free */

/* Something that is held. */
struct held {
    char *folder;
    uint64_t bytes;
};

/* What a worker does and finds; owns all that it uses but the judge. */
struct errand {
    struct hf_watchdir *w;
    bool look;
    uint64_t serves; /* the newest look asked for when it began */
    uint64_t begun_ns;
    struct hf_judge_in in;
    struct hf_judge_out out;
    struct hf_strv unhold; /* folders to remove */
    struct held *held;     /* oldest first */
    size_t n_held, n_dropped;
    uint64_t reserve, free_bytes;
};

struct hf_watchdir {
    struct hf_loop *loop;
    struct hf_pool *pool;
    struct hf_watchdir_cb cb;
    void *user;
    struct hf_strv dirs;
    char *key, *token;
    uint32_t attempt;
    uint64_t quiet_ms;
    struct hf_hints *hints;
    struct hf_judge *judge; /* the errand's, while there is one */
    struct hf_timer next, space;
    uint64_t next_ns; /* when the next look is due; 0: none */
    uint64_t look_ms; /* how long the last one took */
    struct errand *errand;
    struct hf_op *op;
    bool closed;
    /* for the next look */
    struct hf_strv renamed;
    bool hints_lost, once_more;
    /* for who waits */
    uint64_t asked, served, final_from; /* numbers of looks asked for; final_from 0: not final */
    bool final_looked, waiting;
    bool ended, clean;
    uint64_t ended_ns;
    /* what is held, oldest first, and what is to be removed of it */
    struct held *held;
    size_t n_held;
    struct hf_strv unhold;
    uint64_t last_bytes;
    struct hf_strv told;     /* troubles */
    struct hf_strv finished; /* as told last */
};

static void begin(struct hf_watchdir *w, bool look);

/* ---- the worker ---- */

static void relieve(struct errand *e)
{
    while (e->n_dropped < e->n_held) {
        const char *folder = e->held[e->n_dropped].folder;
        uint64_t free_now = hf_free_bytes(folder);
        if (free_now >= e->reserve) {
            return;
        }
        e->free_bytes = free_now;
        hf_held_drop(folder);
        e->n_dropped++;
    }
}

static enum hf_rc errand_work(void *arg, const struct hf_op *op, struct hf_err *err)
{
    (void)op;
    (void)err;
    struct errand *e = arg;
    for (size_t i = 0; i < e->unhold.len; i++) {
        hf_held_drop(e->unhold.items[i]);
    }
    relieve(e);
    if (e->look) {
        hf_judge_look(e->w->judge, &e->in, &e->out);
    }
    return HF_OK;
}

/* ---- the loop ---- */

static void errand_free(struct errand *e)
{
    for (size_t i = 0; i < e->n_held; i++) {
        hf_free(e->held[i].folder);
    }
    hf_free(e->held);
    hf_strv_clear(&e->unhold);
    hf_strv_clear(&e->in.renamed);
    hf_judge_out_release(&e->out);
    hf_free(e);
}

static void watchdir_free(struct hf_watchdir *w)
{
    for (size_t i = 0; i < w->n_held; i++) {
        hf_free(w->held[i].folder);
    }
    hf_free(w->held);
    hf_judge_free(w->judge);
    hf_strv_clear(&w->dirs);
    hf_strv_clear(&w->renamed);
    hf_strv_clear(&w->unhold);
    hf_strv_clear(&w->told);
    hf_strv_clear(&w->finished);
    hf_free(w->key);
    hf_free(w->token);
    hf_free(w);
}

static void next_due(void *user)
{
    struct hf_watchdir *w = user;
    w->next_ns = 0;
    begin(w, true);
}

static void look_within(struct hf_watchdir *w, uint64_t ms)
{
    uint64_t at = hf_now_ns() + ms * HF_MS;
    if (w->next_ns == 0 || at < w->next_ns) {
        w->next_ns = at;
        hf_timer_start(&w->next, w->loop, ms, next_due, w);
    }
}

static void space_due(void *user)
{
    struct hf_watchdir *w = user;
    begin(w, false);
}

static void trouble(struct hf_watchdir *w, const char *what)
{
    if (what[0] != '\0' && !hf_strv_has(&w->told, what)) {
        hf_strv_add(&w->told, what);
        w->cb.trouble(w->user, what);
    }
}

static void held_forget(struct hf_watchdir *w, const char *folder)
{
    for (size_t i = 0; i < w->n_held; i++) {
        if (strcmp(w->held[i].folder, folder) == 0) {
            hf_free(w->held[i].folder);
            memmove(&w->held[i], &w->held[i + 1], (w->n_held - i - 1) * sizeof(*w->held));
            w->n_held--;
            return;
        }
    }
}

static void held_add(struct hf_watchdir *w, const struct hf_hold *h)
{
    w->held = hf_realloc(w->held, (w->n_held + 1) * sizeof(*w->held));
    w->held[w->n_held++] = (struct held){hf_strdup(h->folder), h->bytes};
}

/* Whether the same files were told before; else they are noted. */
static bool is_told(struct hf_watchdir *w, struct hf_strv *finished)
{
    bool news = false;
    for (size_t i = 0; i < finished->len && !news; i++) {
        news = i >= w->finished.len || strcmp(w->finished.items[i], finished->items[i]) != 0;
    }
    if (news) {
        struct hf_strv before = w->finished;
        w->finished = (struct hf_strv){0};
        for (size_t i = 0; i < finished->len; i++) {
            hf_strv_add(&w->finished, finished->items[i]);
        }
        hf_strv_clear(&before);
    }
    return !news;
}

/* What became of a look. */
static void looked(struct hf_watchdir *w, struct errand *e)
{
    struct hf_judge_out *out = &e->out;
    w->served = e->serves;
    w->look_ms = (hf_now_ns() - e->begun_ns) / HF_MS;
    trouble(w, out->trouble);
    for (size_t i = 0; i < out->folders.len; i++) {
        hf_hints_add(w->hints, out->folders.items[i]);
    }
    if (w->final_from != 0 && e->serves >= w->final_from) {
        /* What is found first was complete already; what is found later is what was waited for, and
         * the one that the program begins next is not. */
        w->waiting = out->making && !(out->any && w->final_looked);
        w->final_from = w->waiting ? w->final_from : 0;
        w->final_looked = true;
    }
    if (out->any) {
        w->last_bytes = 0;
        for (size_t i = 0; i < out->stamps.len; i++) {
            w->last_bytes += out->stamps.items[i].size;
        }
        if (out->hold.folder != NULL) {
            held_add(w, &out->hold);
        }
        w->cb.found(w->user, out);
    } else if (!is_told(w, &out->finished)) {
        w->cb.finished(w->user, &out->finished);
    }
    if (out->again_ms > 0) {
        look_within(w, out->again_ms);
    }
}

static void errand_done(void *user, const struct hf_err *err)
{
    struct errand *e = user;
    struct hf_watchdir *w = e->w;
    bool ran = err == NULL;
    w->errand = NULL;
    w->op = NULL;
    if (w->closed) {
        errand_free(e);
        watchdir_free(w);
        return;
    }
    for (size_t i = 0; ran && i < e->n_dropped; i++) {
        w->cb.dropped(w->user, e->held[i].folder, e->held[i].bytes, e->free_bytes);
        held_forget(w, e->held[i].folder);
    }
    bool look = e->look && ran;
    if (look) {
        looked(w, e);
    }
    errand_free(e);
    look_within(w, hf_hints_refresh(w->hints) ? RESCAN_MS : UNARMED_MS);
    if (w->n_held > 0 && !hf_timer_active(&w->space)) {
        hf_timer_start(&w->space, w->loop, SPACE_MS, space_due, w);
    }
    if (w->served != w->asked) {
        begin(w, true);
    } else if (w->unhold.len > 0) {
        begin(w, false);
    }
    if (look) {
        w->cb.looked(w->user);
    }
}

static void fill_look(struct hf_watchdir *w, struct errand *e)
{
    e->in = (struct hf_judge_in){
        .dirs = &w->dirs,
        .key = w->key,
        .attempt = w->attempt,
        .token = w->token,
        .world = w->cb.world(w->user),
        .quiet_ms = w->quiet_ms,
        .renamed = w->renamed,
        .hints_lost = w->hints_lost,
        .once_more = w->once_more,
        .ended = w->ended,
        .clean = w->clean,
        .ended_ns = w->ended_ns,
    };
    w->renamed = (struct hf_strv){0};
    w->hints_lost = false;
    w->once_more = false;
    hf_timer_stop(&w->next);
    w->next_ns = 0;
}

/* Sends a worker, unless one is under way: then what is due is begun when it is back. */
static void begin(struct hf_watchdir *w, bool look)
{
    if (w->errand != NULL) {
        if (look) {
            look_within(w, HINT_MIN_MS);
        }
        return;
    }
    if (look) {
        hf_hints_refresh(w->hints);
    }
    struct errand *e = HF_NEW(struct errand);
    e->w = w;
    e->look = look;
    e->serves = w->asked;
    e->begun_ns = hf_now_ns();
    e->unhold = w->unhold;
    w->unhold = (struct hf_strv){0};
    e->reserve = w->last_bytes / 10 * RESERVE;
    e->held = hf_calloc(w->n_held + 1, sizeof(*e->held));
    for (size_t i = 0; i < w->n_held; i++) {
        e->held[e->n_held++] = (struct held){hf_strdup(w->held[i].folder), w->held[i].bytes};
    }
    if (look) {
        fill_look(w, e);
    }
    struct hf_err err = {0};
    w->errand = e;
    if (hf_pool_submit(w->pool, NULL, errand_work, e, errand_done, e, &w->op, &err) != HF_OK) {
        w->errand = NULL;
        w->op = NULL;
        w->served = e->serves; /* nobody waits for a look that cannot be made */
        errand_free(e);
        trouble(w, err.msg);
        look_within(w, UNARMED_MS);
    }
}

/* ---- hints ---- */

static void on_hint(void *user)
{
    struct hf_watchdir *w = user;
    uint64_t ms = 4 * w->look_ms;
    look_within(w, ms < HINT_MIN_MS ? HINT_MIN_MS : ms > HINT_MAX_MS ? HINT_MAX_MS : ms);
}

static void on_renamed(void *user, const char *path)
{
    struct hf_watchdir *w = user;
    hf_strv_add(&w->renamed, path);
}

static void on_lost(void *user)
{
    struct hf_watchdir *w = user;
    w->hints_lost = true;
}

static const struct hf_hints_cb hints_cb = {
    .hint = on_hint, .renamed = on_renamed, .lost = on_lost};

/* ---- from outside ---- */

void hf_watchdir_paths(const char *folder, const struct hf_strv *dirs, struct hf_strv *ret)
{
    for (size_t i = 0; i < dirs->len; i++) {
        HF_CLEANUP(hf_freep) char *path = hf_path_from(folder, dirs->items[i]);
        if (!hf_strv_has(ret, path)) {
            hf_strv_add(ret, path);
        }
    }
}

enum hf_rc hf_watchdir_start(const struct hf_watchdir_cfg *cfg, const struct hf_watchdir_cb *cb,
                             void *user, struct hf_watchdir **ret, struct hf_err *err)
{
    struct hf_watchdir *w = HF_NEW(struct hf_watchdir);
    w->loop = cfg->loop;
    w->pool = cfg->pool;
    w->cb = *cb;
    w->user = user;
    w->attempt = cfg->attempt;
    w->quiet_ms = cfg->quiet_ms;
    w->hints_lost = cfg->adopted;
    w->key = hf_strdup(cfg->key);
    w->token = hf_strdup(cfg->token);
    for (size_t i = 0; i < cfg->dirs->len; i++) {
        hf_strv_add(&w->dirs, cfg->dirs->items[i]);
    }
    w->judge = hf_judge_new(cfg->attempt_dir);
    enum hf_rc rc = hf_hints_start(w->loop, &w->dirs, &hints_cb, w, &w->hints, err);
    if (rc != HF_OK) {
        watchdir_free(w);
        return rc;
    }
    look_within(w, HINT_MIN_MS);
    *ret = w;
    return HF_OK;
}

static void ask(struct hf_watchdir *w)
{
    w->asked++;
    begin(w, true);
}

void hf_watchdir_scan(struct hf_watchdir *w)
{
    ask(w);
}

void hf_watchdir_final(struct hf_watchdir *w)
{
    w->final_from = w->asked + 1;
    w->final_looked = false;
    ask(w);
}

void hf_watchdir_ended(struct hf_watchdir *w, bool clean)
{
    w->final_from = 0;
    w->waiting = false;
    w->ended = true;
    w->clean = clean;
    w->ended_ns = hf_now_ns();
    ask(w);
}

bool hf_watchdir_calm(const struct hf_watchdir *w)
{
    return w->served == w->asked && !w->waiting;
}

void hf_watchdir_once_more(struct hf_watchdir *w)
{
    w->once_more = true;
}

void hf_watchdir_unhold(struct hf_watchdir *w, const struct hf_strv *held)
{
    if (held->len == 0) {
        return;
    }
    const char *slash = strrchr(held->items[0], '/');
    char *folder = hf_strndup(held->items[0], (size_t)(slash - held->items[0]));
    held_forget(w, folder);
    hf_strv_take(&w->unhold, folder);
    begin(w, false);
}

void hf_watchdir_stop(struct hf_watchdir *w)
{
    if (w == NULL) {
        return;
    }
    hf_timer_close(&w->next);
    hf_timer_close(&w->space);
    hf_hints_stop(w->hints);
    w->hints = NULL;
    w->closed = true;
    if (w->errand != NULL) {
        hf_op_cancel(w->op);
    } else {
        watchdir_free(w);
    }
}
