/* SPDX-License-Identifier: Apache-2.0
 *
 * A shipper in a test: what it says is written down, and its pool can be held.
 */
#include "base/prelude.h"

#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/fsx.h"
#include "tests/unit/support_conform_store.h"
#include "tests/unit/support_loop.h"
#include "tests/unit/support_ship.h"

static void tell(struct ship_scene *s, const char *what, int64_t step)
{
    size_t n = strlen(s->story);
    snprintf(s->story + n, sizeof(s->story) - n, "%s%lld ", what, (long long)step);
}

static void on_settled(void *user, const struct hf_verdict *v, const char *resume_path)
{
    struct ship_scene *s = user;
    bool well = v->kind == HF_VERDICT_LOCAL || v->kind == HF_VERDICT_DURABLE;
    assert_int_equal(well, resume_path != NULL);
    if (well || strcmp(v->reason, "window") != 0) {
        assert_memory_equal(v, hf_ship_verdict(s->ship), sizeof(*v));
    }
    s->last = *v;
    s->settled++;
    tell(s, well ? "S" : "F", v->tried_step);
}

static void on_skipped(void *user, int64_t step)
{
    tell(user, "K", step);
}

static void on_idle(void *user)
{
    struct ship_scene *s = user;
    assert_true(hf_ship_idle(s->ship));
    s->idles++;
}

static void on_superseded(void *user)
{
    struct ship_scene *s = user;
    s->superseded++;
    snprintf(s->story + strlen(s->story), 4, "! ");
}

static const struct hf_ship_cb callbacks = {
    .settled = on_settled, .skipped = on_skipped, .idle = on_idle, .superseded = on_superseded};

void ship_open(struct ship_scene *s, struct hf_store *store_taken)
{
    struct hf_err err;
    *s = (struct ship_scene){.settled = 0};
    bench_take(&s->bench, store_taken);
    s->claim = must_claim(&s->bench, 1);
    expect_rc(hf_loop_init(&s->loop, &err), HF_OK, &err);
    s->local_pool = hf_pool_new(&s->loop, "local", 1, 64);
    s->ship_pool = hf_pool_new(&s->loop, "ship", 1, 8);
    s->attempt_dir = bench_path(&s->bench, "attempt");
    s->save_dir = bench_path(&s->bench, "save");
    expect_rc(hf_fs_mkdirs(s->attempt_dir, 0700, &err), HF_OK, &err);
    pthread_mutex_init(&s->lock, NULL);
}

void ship_begin(struct ship_scene *s, bool adopted, struct hf_manifest *base)
{
    struct hf_ship_cfg cfg = {
        .loop = &s->loop,
        .scope = &s->scope,
        .local_pool = s->local_pool,
        .ship_pool = s->ship_pool,
        .run = &s->bench.run,
        .claim = &s->claim,
        .attempt_dir = s->attempt_dir,
        .save_dir = s->save_dir,
        .block_bytes = 4096,
        .lanes = 2,
        .adopted = adopted,
    };
    s->ship = hf_ship_new(&cfg, &callbacks, s, base);
}

void ship_close(struct ship_scene *s)
{
    hf_ship_free(s->ship);
    hf_pool_free(s->local_pool);
    hf_pool_free(s->ship_pool);
    hf_loop_run(&s->loop);
    hf_test_loop_close(&s->loop);
    hf_claim_release(&s->claim);
    bench_close(&s->bench);
    hf_free(s->attempt_dir);
    hf_free(s->save_dir);
    pthread_mutex_destroy(&s->lock);
}

void ship_new(struct ship_scene *s)
{
    struct hf_store *store = NULL;
    struct hf_err err;
    expect_rc(hf_store_open("mem:ship", NULL, &store, &err), HF_OK, &err);
    ship_open(s, hf_store_faulty(store));
    ship_begin(s, false, NULL);
}

/* save_dir/step-N with a file that differs from step to step in its last block only. */
char *ship_folder(const struct ship_scene *s, int64_t step)
{
    char *folder = hf_asprintf("%s/step-%lld", s->save_dir, (long long)step);
    HF_CLEANUP(hf_freep) char *path = hf_asprintf("%s/weights", folder);
    HF_CLEANUP(hf_freep) char *data = hf_calloc(SHIP_BYTES + 1, 1);
    memset(data, 'w', SHIP_BYTES);
    snprintf(data + SHIP_BYTES - 30, 30, "%lld", (long long)step);
    put_file(path, data, SHIP_BYTES);
    return folder;
}

struct hf_saved *ship_saved(const char *folder, int64_t step)
{
    struct hf_saved *v = HF_NEW(struct hf_saved);
    v->step = step;
    v->life = 1;
    v->world = 1;
    v->ranks = hf_calloc(1, sizeof(*v->ranks));
    v->n_ranks = 1;
    v->reason = hf_strdup("every");
    v->strategy = hf_strdup("hook");
    v->resume_path = hf_strdup(folder);
    hf_strv_add(&v->roots, folder);
    return v;
}

void ship_add(struct ship_scene *s, int64_t step)
{
    HF_CLEANUP(hf_freep) char *folder = ship_folder(s, step);
    hf_ship_add(s->ship, ship_saved(folder, step));
}

static bool is_idle(void *user)
{
    return hf_ship_idle(((struct ship_scene *)user)->ship);
}

void ship_until_idle(struct ship_scene *s)
{
    if (!hf_test_run_until(&s->loop, is_idle, s, SHIP_WAIT_MS)) {
        fail_msg("not idle: %s", s->story);
    }
}

void ship_story(struct ship_scene *s, const char *story)
{
    ship_until_idle(s);
    assert_string_equal(s->story, story);
    s->story[0] = '\0';
}

/* Fails every store call that comes, from the nth on; 0: none any more. */
void ship_break_store(struct ship_scene *s, enum hf_store_fault_kind kind, uint64_t nth)
{
    hf_store_fault_set(s->bench.store, kind, nth, nth != 0);
}

/* Tries are given up at once, as when a notice's deadline is here. */
void ship_no_patience(struct ship_scene *s)
{
    hf_ship_deadline(s->ship, hf_now_ns() + 5 * HF_MS);
}

static enum hf_rc hold(void *arg, const struct hf_op *op, struct hf_err *err)
{
    struct ship_scene *s = arg;
    (void)op;
    (void)err;
    for (bool open = false; !open;) {
        pthread_mutex_lock(&s->lock);
        s->held = true;
        open = s->open;
        pthread_mutex_unlock(&s->lock);
        (void)poll(NULL, 0, 1);
    }
    return HF_OK;
}

static bool is_held(void *user)
{
    struct ship_scene *s = user;
    pthread_mutex_lock(&s->lock);
    bool held = s->held;
    pthread_mutex_unlock(&s->lock);
    return held;
}

static void released(void *user, const struct hf_err *err)
{
    struct ship_scene *s = user;
    assert_null(err);
    s->passed++;
}

static bool has_passed(void *user)
{
    return ((struct ship_scene *)user)->passed > 0;
}

void ship_hold_pool(struct ship_scene *s)
{
    struct hf_err err;
    s->open = false;
    s->held = false;
    expect_rc(hf_pool_submit(s->ship_pool, NULL, hold, s, released, s, NULL, &err), HF_OK, &err);
    assert_true(hf_test_run_until(&s->loop, is_held, s, SHIP_WAIT_MS));
}

void ship_release_pool(struct ship_scene *s)
{
    pthread_mutex_lock(&s->lock);
    s->open = true;
    pthread_mutex_unlock(&s->lock);
}

/* Until everything that was given to the ship pool before has been reported. */
void ship_pass_pool(struct ship_scene *s)
{
    struct hf_err err;
    s->passed = 0;
    expect_rc(hf_pool_submit(s->ship_pool, NULL, hold, s, released, s, NULL, &err), HF_OK, &err);
    assert_true(hf_test_run_until(&s->loop, has_passed, s, SHIP_WAIT_MS));
}

static bool has_step(void *user)
{
    struct ship_scene *s = user;
    return hf_ship_has(s->ship, 1, 0, s->want_step);
}

/* Until that save is noted in the journal and waits, or is under way. */
void ship_until_has(struct ship_scene *s, int64_t step)
{
    s->want_step = step;
    assert_true(hf_test_run_until(&s->loop, has_step, s, SHIP_WAIT_MS));
}

/* The serial of the newest unshipped save in the journal; 0: none. */
uint64_t ship_unshipped(const struct ship_scene *s)
{
    struct hf_saved *left = NULL;
    uint64_t serial = 0;
    assert_int_equal(hf_journal_unshipped(s->attempt_dir, &left, &serial, NULL), HF_OK);
    uint64_t ret = left != NULL ? left->serial : 0;
    hf_saved_free(left);
    return ret;
}

int64_t ship_step_of(const struct ship_scene *s, uint32_t attempt, uint32_t number)
{
    struct hf_decision d = {0};
    struct hf_err err;
    expect_rc(hf_lineage_get_decision(&s->bench.run, NULL, attempt, number, &d, &err), HF_OK, &err);
    int64_t step = d.kind == HF_DECISION_MANIFEST ? d.manifest.step : -2;
    hf_decision_release(&d);
    return step;
}

bool ship_folder_there(const struct ship_scene *s, int64_t step)
{
    HF_CLEANUP(hf_freep)
    char *folder = hf_asprintf("%s/step-%lld", s->save_dir, (long long)step);
    return hf_fs_exists(folder);
}
