/* SPDX-License-Identifier: Apache-2.0
 *
 * Judging watched folders. Worker thread. The layout table says what is complete; this says what of
 * that is new and the newest, and takes it. What is taken was the same before it was judged and
 * after it was held, so that no mixture of two states is ever shipped.
 */
#include "base/prelude.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>

#include "base/clock.h"
#include "supervisor/known.h"
#include "supervisor/watch_judge.h"

#define MAKING_MS      10000 /* unchanged for longer: nobody is writing it */
#define MAKING_AGAIN   500
#define CHANGED_AGAIN  200
#define BLIND_FACTOR   4 /* so much longer must be quiet what may have writers that nobody sees */
#define FOLDERS_A_LOOK 64
#define FINISHED_MS    1000 /* unchanged for so long, and without a writer: worth putting ahead */
#define FINISHED_MAX   4096
#define RESERVE_TENTHS 11 /* free space below 1.1 x the checkpoint: nothing is held */

struct hf_judge {
    char *file;
    struct hf_knowns known;
    bool loaded;
    char *last; /* the path that was taken last */
    int64_t last_step;
};

/* A checkpoint that is not done. */
struct item {
    const struct hf_layout_look *look;
    const char *dir;
    struct hf_strv roots;
    struct hf_stamps stamps;
    struct hf_cand cand;
    enum hf_ready ready;
};

struct looking {
    struct hf_judge *j;
    const struct hf_judge_in *in;
    struct hf_judge_out *out;
    uint64_t now_ns;
    struct hf_layout_looks *looks; /* one for each folder */
    struct item *items;
    size_t len;
    unsigned kind; /* the first that is there: none of a later one is taken */
};

/* ---- pure ---- */

enum hf_ready hf_judge_ready(const struct hf_facts *f)
{
    bool quiet = f->still_ms >= f->quiet_ms;
    if (f->state == HF_LAYOUT_WHOLE) {
        return f->writers == HF_WRITERS_SOME && !f->ended && !quiet ? HF_NOT_YET : HF_READY;
    }
    if (f->state != HF_LAYOUT_UNSURE) {
        return HF_NEVER;
    }
    if (f->renamed) {
        return HF_READY;
    }
    if (f->ended) {
        return f->clean || (quiet && f->writers != HF_WRITERS_SOME) ? HF_READY : HF_NEVER;
    }
    if (f->writers == HF_WRITERS_UNKNOWN) {
        quiet = f->still_ms >= BLIND_FACTOR * f->quiet_ms;
    }
    return quiet && f->writers != HF_WRITERS_SOME ? HF_READY : HF_NOT_YET;
}

bool hf_judge_newer(const struct hf_cand *a, const struct hf_cand *b)
{
    if (a->kind != b->kind) {
        return a->kind < b->kind;
    }
    if (a->step >= 0 && b->step >= 0 && a->step != b->step) {
        return a->step > b->step;
    }
    return a->newest_ns > b->newest_ns;
}

/* Of the first kind: by step among those that have one, then by time against the latest of those
 * that have none. */
size_t hf_judge_newest(const struct hf_cand *c, size_t n)
{
    size_t with = n;
    size_t without = n;
    unsigned kind = HF_KIND_BEST;
    for (size_t i = 0; i < n; i++) {
        kind = c[i].kind < kind ? c[i].kind : kind;
    }
    for (size_t i = 0; i < n; i++) {
        if (c[i].kind != kind) {
            continue;
        }
        size_t *best = c[i].step >= 0 ? &with : &without;
        if (*best == n || hf_judge_newer(&c[i], &c[*best])) {
            *best = i;
        }
    }
    if (with == n || without == n) {
        return with == n ? without : with;
    }
    return hf_judge_newer(&c[without], &c[with]) ? without : with;
}

bool hf_is_best(const char *name)
{
    for (const char *p = name; *p != '\0'; p++) {
        if (strncasecmp(p, "best", 4) == 0 && (p == name || !isalpha((unsigned char)p[-1])) &&
            !isalpha((unsigned char)p[4])) {
            return true;
        }
    }
    return false;
}

/* ---- what is there ---- */

struct hf_judge *hf_judge_new(const char *attempt_dir)
{
    struct hf_judge *j = HF_NEW(struct hf_judge);
    j->file = hf_asprintf("%s/watched.json", attempt_dir);
    j->last_step = -1;
    return j;
}

void hf_judge_free(struct hf_judge *j)
{
    if (j != NULL) {
        hf_free(j->file);
        hf_free(j->last);
        hf_knowns_release(&j->known);
        hf_free(j);
    }
}

void hf_judge_out_release(struct hf_judge_out *out)
{
    hf_layout_look_release(&out->look);
    hf_strv_clear(&out->roots);
    hf_stamps_release(&out->stamps);
    hf_hold_release(&out->hold);
    hf_strv_clear(&out->folders);
    hf_strv_clear(&out->finished);
    *out = (struct hf_judge_out){0};
}

static const char *name_of(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash != NULL ? slash + 1 : path;
}

/* Names under which things are written that will be renamed. */
static bool is_draft(const char *name)
{
    static const char *const marks[] = {"tmp", ".incomplete", ".part", "-unfinished"};
    for (size_t i = 0; i < HF_COUNT(marks); i++) {
        if (strstr(name, marks[i]) != NULL) {
            return true;
        }
    }
    return false;
}

static bool concerns_us(const struct hf_layout_look *l)
{
    const char *name = name_of(l->path);
    if (strstr(name, ".holdfast-") != NULL) {
        return false;
    }
    return is_draft(name) || (name[0] != '.' && l->state != HF_LAYOUT_FOREIGN);
}

/* The roots with their stamps. Where links cannot be roots, what they point to has to do. */
static enum hf_rc stamp(const struct hf_layout_look *l, struct hf_strv *ret_roots,
                        struct hf_stamps *ret, struct hf_err *err)
{
    for (size_t i = 0; i < l->roots.len; i++) {
        hf_strv_add(ret_roots, l->roots.items[i]);
    }
    enum hf_rc rc = hf_stamps_take(ret_roots, ret, err);
    if (rc != HF_ENOTSUP) {
        return rc;
    }
    hf_strv_clear(ret_roots);
    for (size_t i = 0; i < l->roots.len; i++) {
        struct stat st;
        if (lstat(l->roots.items[i], &st) != 0 || !S_ISLNK(st.st_mode)) {
            hf_strv_add(ret_roots, l->roots.items[i]);
        }
    }
    return hf_stamps_take(ret_roots, ret, err);
}

static bool was_renamed(const struct looking *lk, const struct hf_layout_look *l)
{
    struct stat st;
    if (hf_strv_has(&lk->in->renamed, l->path)) {
        return true;
    }
    /* A rename leaves an inode that changed after its content did. */
    return lk->in->hints_lost && lstat(l->path, &st) == 0 &&
           (st.st_ctim.tv_sec != st.st_mtim.tv_sec ? st.st_ctim.tv_sec > st.st_mtim.tv_sec
                                                   : st.st_ctim.tv_nsec > st.st_mtim.tv_nsec);
}

static uint64_t still_ms(const struct looking *lk, const struct hf_known *e)
{
    uint64_t now = lk->in->ended ? lk->in->ended_ns : lk->now_ns;
    return now > e->since_ns ? (now - e->since_ns) / HF_MS : 0;
}

/* Writers are looked for only where they decide. */
static enum hf_ready ready_now(const struct looking *lk, const struct item *it, struct hf_known *e)
{
    struct hf_facts f = {
        .state = it->look->state,
        .renamed = e->renamed,
        .still_ms = still_ms(lk, e),
        .quiet_ms = lk->in->quiet_ms,
        .writers = lk->in->ended && e->open ? HF_WRITERS_SOME : HF_WRITERS_NONE,
        .ended = lk->in->ended,
        .clean = lk->in->clean,
    };
    enum hf_ready ready = hf_judge_ready(&f);
    if (ready != HF_READY || lk->in->ended || f.renamed) {
        return ready;
    }
    f.writers = hf_writers_of(lk->in->token, &it->stamps);
    if (e->open && f.writers == HF_WRITERS_NONE) {
        /* Closed, or its writer was killed: the rest begins now. */
        e->since_ns = lk->now_ns;
        f.still_ms = 0;
    }
    e->open = f.writers == HF_WRITERS_SOME;
    return hf_judge_ready(&f);
}

static void look_again(struct looking *lk, uint64_t ms)
{
    if (lk->out->again_ms == 0 || ms < lk->out->again_ms) {
        lk->out->again_ms = ms;
    }
}

/* It is not ready: is somebody writing it, and when is it worth another look? */
static void follow(struct looking *lk, const struct item *it, const struct hf_known *e)
{
    uint64_t still = still_ms(lk, e);
    uint64_t quiet = lk->in->quiet_ms;
    if (lk->in->ended) {
        return;
    }
    if (it->ready == HF_NOT_YET) {
        lk->out->making = lk->out->making || still < MAKING_MS;
        uint64_t left = still < quiet ? quiet - still : quiet;
        look_again(lk, left < MAKING_AGAIN || it->look->state == HF_LAYOUT_UNSURE ? left + 1
                                                                                  : MAKING_AGAIN);
    } else if (still < (quiet > MAKING_MS ? quiet : MAKING_MS)) {
        lk->out->making = true;
        look_again(lk, MAKING_AGAIN);
    }
}

/* Folders within a checkpoint: the parents of its files. */
static void note_folders(struct looking *lk, const struct hf_stamps *stamps)
{
    size_t most = lk->out->folders.len + FOLDERS_A_LOOK;
    for (size_t i = 0; i < stamps->len && lk->out->folders.len < most; i++) {
        const struct hf_stamp *s = &stamps->items[i];
        struct stat st;
        if (s->mtime_ns == 0 && lstat(s->path, &st) == 0 && S_ISDIR(st.st_mode)) {
            hf_strv_add(&lk->out->folders, s->path);
        }
    }
}

static void item_release(struct item *it)
{
    hf_strv_clear(&it->roots);
    hf_stamps_release(&it->stamps);
}

static enum hf_kind kind_of(const struct hf_layout_look *l)
{
    if (hf_is_best(name_of(l->path))) {
        return HF_KIND_BEST;
    }
    return strcmp(l->layout, "unknown") == 0 ? HF_KIND_UNKNOWN : HF_KIND_PLAIN;
}

/* One entry of a folder: noted, and among the items if it is new. */
static void weigh(struct looking *lk, const char *dir, const struct hf_layout_look *l)
{
    struct item it = {.look = l, .dir = dir};
    struct hf_err err;
    if (!concerns_us(l)) {
        return;
    }
    enum hf_rc rc = stamp(l, &it.roots, &it.stamps, &err);
    if (rc != HF_OK) {
        if (rc != HF_ENOTFOUND) {
            snprintf(lk->out->trouble, sizeof(lk->out->trouble), "%.250s", err.msg);
        }
        item_release(&it);
        struct hf_known *known = hf_known_find(&lk->j->known, l->path);
        if (known != NULL) {
            known->seen = true;
        }
        return;
    }
    struct hf_known *e = hf_known_note(&lk->j->known, l->path, l->step, &it.stamps, lk->now_ns);
    e->renamed = e->renamed || was_renamed(lk, l);
    note_folders(lk, &it.stamps);
    it.cand = (struct hf_cand){l->step, e->newest_ns, kind_of(l)};
    bool complete = l->state == HF_LAYOUT_WHOLE || l->state == HF_LAYOUT_UNSURE;
    if (complete && it.cand.kind < lk->kind) {
        lk->kind = it.cand.kind;
    }
    /* Something was added to an old one: it is still the old one. */
    if (e->grown && l->step >= 0 && l->step < lk->j->last_step && complete) {
        e->done = true;
    }
    if (e->done) {
        item_release(&it);
        return;
    }
    it.ready = ready_now(lk, &it, e);
    if (it.ready != HF_READY) {
        follow(lk, &it, e);
    }
    lk->items = hf_realloc(lk->items, (lk->len + 1) * sizeof(*lk->items));
    lk->items[lk->len++] = it;
}

/* A folder that cannot be read just now is not an empty one. */
static void keep_known(struct hf_judge *j, const char *dir)
{
    size_t len = strlen(dir);
    for (size_t i = 0; i < j->known.len; i++) {
        struct hf_known *e = &j->known.items[i];
        e->seen = e->seen || (strncmp(e->path, dir, len) == 0 && e->path[len] == '/');
    }
}

static void look_into(struct looking *lk, size_t i)
{
    const char *dir = lk->in->dirs->items[i];
    struct hf_err err;
    enum hf_rc rc = hf_layout_scan(dir, lk->in->world, &lk->looks[i], &err);
    if (rc != HF_OK && rc != HF_ENOTFOUND) {
        snprintf(lk->out->trouble, sizeof(lk->out->trouble), "%.250s", err.msg);
        keep_known(lk->j, dir);
    }
    for (size_t k = 0; rc == HF_OK && k < lk->looks[i].len; k++) {
        weigh(lk, dir, &lk->looks[i].items[k]);
    }
}

/* ---- taking ---- */

/* Judged once more, now that its stamps are known. */
static bool still_so(const struct looking *lk, const struct item *it)
{
    struct hf_layout_looks again = {0};
    struct hf_err err;
    bool same = false;
    if (hf_layout_scan(it->dir, lk->in->world, &again, &err) == HF_OK) {
        for (size_t i = 0; i < again.len && !same; i++) {
            same = again.items[i].state == it->look->state &&
                   again.items[i].step == it->cand.step &&
                   strcmp(again.items[i].path, it->look->path) == 0;
        }
    }
    hf_layout_looks_release(&again);
    return same;
}

static bool unchanged(const struct item *it)
{
    struct hf_stamps now;
    struct hf_err err;
    if (hf_stamps_take(&it->roots, &now, &err) != HF_OK) {
        return false;
    }
    bool same = hf_stamps_equal(&it->stamps, &now, NULL);
    hf_stamps_release(&now);
    return same;
}

static uint64_t bytes_of(const struct hf_stamps *stamps)
{
    uint64_t sum = 0;
    for (size_t i = 0; i < stamps->len; i++) {
        sum += stamps->items[i].size;
    }
    return sum;
}

/* HF_EAGAIN: it is no longer what was judged. A checkpoint that cannot be held is still shipped. */
static enum hf_rc hold(const struct looking *lk, struct item *it, struct hf_err *err)
{
    struct hf_judge_out *out = lk->out;
    struct hf_hold_in in = {
        .dir = it->dir,
        .key = lk->in->key,
        .attempt = lk->in->attempt,
        .inside = strcmp(it->look->layout, "accelerate") != 0,
        .roots = &it->roots,
    };
    uint64_t bytes = bytes_of(&it->stamps);
    if (hf_free_bytes(it->dir) < bytes / 10 * RESERVE_TENTHS) {
        snprintf(out->why_not, sizeof(out->why_not), "too little space is free");
    } else {
        enum hf_rc rc = hf_hold_take(&in, &it->stamps, &out->hold, err);
        if (rc == HF_OK || rc == HF_EAGAIN) {
            return rc;
        }
        snprintf(out->why_not, sizeof(out->why_not), "%.250s", err->msg);
    }
    return unchanged(it) ? HF_OK : hf_fail(err, HF_EAGAIN, "it changed");
}

static void mark_done(struct looking *lk, const struct item *it)
{
    struct hf_known *e = hf_known_find(&lk->j->known, it->look->path);
    if (e != NULL) {
        e->done = true;
    }
}

/* Everything older gives way, now and when it becomes complete. */
static void give_way(struct looking *lk, const struct item *taken)
{
    for (size_t i = 0; i < lk->len; i++) {
        const struct item *it = &lk->items[i];
        if (it == taken || it->ready == HF_READY || hf_judge_newer(&taken->cand, &it->cand)) {
            mark_done(lk, it);
        }
    }
}

static void take(struct looking *lk, struct item *it)
{
    struct hf_judge_out *out = lk->out;
    struct hf_judge *j = lk->j;
    struct hf_err err;
    if (!still_so(lk, it) || hold(lk, it, &err) != HF_OK) {
        look_again(lk, CHANGED_AGAIN);
        return;
    }
    out->any = true;
    out->newest_ns = it->cand.newest_ns;
    out->roots = it->roots;
    it->roots = (struct hf_strv){0};
    out->stamps = it->stamps;
    it->stamps = (struct hf_stamps){0};
    out->look = (struct hf_layout_look){
        .layout = it->look->layout,
        .state = it->look->state,
        .path = hf_strdup(it->look->path),
        .step = it->look->step,
        .world = it->look->world,
    };
    memcpy(out->look.why, it->look->why, sizeof(out->look.why));
    give_way(lk, it);
    hf_free(j->last);
    j->last = hf_strdup(it->look->path);
    j->last_step = it->look->step >= 0 ? it->look->step : j->last_step;
}

static void take_newest(struct looking *lk)
{
    struct hf_cand *cands = hf_calloc(lk->len + 1, sizeof(*cands));
    size_t *index = hf_calloc(lk->len + 1, sizeof(*index));
    size_t n = 0;
    for (size_t i = 0; i < lk->len; i++) {
        if (lk->items[i].ready != HF_READY) {
            continue;
        }
        if (lk->items[i].cand.kind > lk->kind) {
            mark_done(lk, &lk->items[i]);
            continue;
        }
        index[n] = i;
        cands[n++] = lk->items[i].cand;
    }
    if (n > 0) {
        take(lk, &lk->items[index[hf_judge_newest(cands, n)]]);
    }
    hf_free(index);
    hf_free(cands);
}

/* ---- putting ahead ---- */

static const struct item *newest_unfinished(const struct looking *lk)
{
    const struct item *newest = NULL;
    for (size_t i = 0; i < lk->len; i++) {
        const struct item *it = &lk->items[i];
        bool growing = it->ready != HF_READY && it->stamps.len > 1;
        if (growing && (newest == NULL || hf_judge_newer(&it->cand, &newest->cand))) {
            newest = it;
        }
    }
    return newest;
}

/* Files that have their content though their checkpoint has not all its files: they need not be
 * sent when it is whole. A hint: what changes after all is read again. */
static void tell_finished(struct looking *lk)
{
    const struct item *it = lk->in->ended ? NULL : newest_unfinished(lk);
    int64_t before_ns = (hf_wall_ms() - FINISHED_MS) * (int64_t)HF_MS;
    struct hf_stamps still = {0};
    still.items = it != NULL ? hf_calloc(it->stamps.len, sizeof(*still.items)) : NULL;
    for (size_t i = 0; it != NULL && i < it->stamps.len && still.len < FINISHED_MAX; i++) {
        const struct hf_stamp *s = &it->stamps.items[i];
        if (s->size > 0 && s->mtime_ns != 0 && s->mtime_ns < before_ns) {
            still.items[still.len++] = *s;
        } else if (s->size > 0 && s->mtime_ns != 0) {
            look_again(lk, FINISHED_MS + 1);
        }
    }
    if (still.len > 0 && hf_writers_of(lk->in->token, &still) == HF_WRITERS_NONE) {
        for (size_t i = 0; i < still.len; i++) {
            hf_strv_add(&lk->out->finished, still.items[i].path);
        }
    }
    hf_free(still.items); /* the paths are the item's */
}

/* ---- a look ---- */

static void load(struct hf_judge *j)
{
    struct hf_err err;
    if (!j->loaded && hf_knowns_load(&j->known, j->file, &err) != HF_OK) {
        hf_knowns_release(&j->known); /* all is new then: something is shipped twice, at worst */
    }
    j->loaded = true;
}

static void save(struct looking *lk)
{
    struct hf_err err;
    /* What was taken last is not yet in the journal of saves: a successor finds it again. */
    if (hf_knowns_save(&lk->j->known, lk->j->last, lk->j->file, &err) != HF_OK) {
        snprintf(lk->out->trouble, sizeof(lk->out->trouble), "%.250s", err.msg);
    }
}

static void forget_last(struct hf_judge *j)
{
    struct hf_known *e = j->last != NULL ? hf_known_find(&j->known, j->last) : NULL;
    if (e != NULL) {
        e->done = false;
    }
}

static void look_all(struct looking *lk)
{
    size_t n = lk->in->dirs->len;
    lk->looks = hf_calloc(n, sizeof(*lk->looks));
    for (size_t i = 0; i < n; i++) {
        look_into(lk, i);
    }
    hf_knowns_drop_unseen(&lk->j->known);
}

static void looking_release(struct looking *lk)
{
    for (size_t i = 0; i < lk->len; i++) {
        item_release(&lk->items[i]);
    }
    hf_free(lk->items);
    for (size_t i = 0; i < lk->in->dirs->len; i++) {
        hf_layout_looks_release(&lk->looks[i]);
    }
    hf_free(lk->looks);
}

void hf_judge_look(struct hf_judge *j, const struct hf_judge_in *in, struct hf_judge_out *ret)
{
    *ret = (struct hf_judge_out){0};
    struct looking lk = {.j = j, .in = in, .out = ret, .now_ns = hf_now_ns(), .kind = HF_KIND_BEST};
    load(j);
    if (in->once_more) {
        forget_last(j);
    }
    look_all(&lk);
    take_newest(&lk);
    if (ret->any) {
        save(&lk);
    } else {
        tell_finished(&lk);
    }
    looking_release(&lk);
}

enum hf_rc hf_judge_baseline(const char *attempt_dir, const struct hf_strv *dirs, uint32_t world,
                             struct hf_err *err)
{
    struct hf_judge *j = hf_judge_new(attempt_dir);
    struct hf_judge_in in = {.dirs = dirs, .world = world, .ended = true};
    struct hf_judge_out out = {0};
    struct looking lk = {
        .j = j, .in = &in, .out = &out, .now_ns = hf_now_ns(), .kind = HF_KIND_BEST};
    look_all(&lk);
    for (size_t i = 0; i < j->known.len; i++) {
        j->known.items[i].done = true;
    }
    enum hf_rc rc = hf_knowns_save(&j->known, NULL, j->file, err);
    looking_release(&lk);
    hf_judge_out_release(&out);
    hf_judge_free(j);
    return rc;
}
