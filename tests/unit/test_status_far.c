/* SPDX-License-Identifier: Apache-2.0
 *
 * holdfast status --store: what a store alone tells of a run, for every record that may be there
 * or not, with every damage to each; and which word counts where this machine has one too.
 */
#include "base/prelude.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/fsx.h"
#include "supervisor/cmd.h"
#include "supervisor/rundir.h"
#include "tests/unit/support_checkpoint.h"
#include "tests/unit/support_cmd.h"
#include "tests/unit/support_conform_store.h"
#include "tests/unit/support_garble.h"
#include "tests/unit/support_status.h"

static struct bench b;
static char *uri, *nowhere; /* the store; a state folder that knows nothing */

static int setup(void **state)
{
    (void)state;
    bench_open(&b, NULL);
    uri = hf_asprintf("file://%s/store", b.folder);
    nowhere = bench_path(&b, "state");
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    bench_close(&b);
    hf_free(uri);
    hf_free(nowhere);
    return 0;
}

static void claim(uint32_t attempt, enum hf_claim_kind kind, struct hf_claim *ret)
{
    struct hf_err err;
    *ret = make_claim(attempt);
    ret->kind = kind;
    ret->at_wall_ms = hf_wall_ms() - 7200000;
    if (kind != HF_CLAIM_RUN) {
        hf_strv_clear(&ret->command);
    }
    expect_rc(hf_lineage_claim(&b.run, NULL, ret, &err), HF_OK, &err);
}

static void beat(const struct hf_claim *c, const char *word, int64_t ago_ms, uint64_t every_ms)
{
    struct hf_err err;
    bool superseded = false;
    struct hf_beat one = {.counter = 9, .every_ms = every_ms, .step = 1200};
    one.at_wall_ms = ago_ms != INT64_MAX ? hf_wall_ms() - ago_ms : 0;
    snprintf(one.state, sizeof(one.state), "%s", word);
    expect_rc(hf_lineage_beat(&b.run, NULL, c, &one, &superseded, &err), HF_OK, &err);
}

static void put_end(const struct hf_claim *c, const char *outcome, int64_t code)
{
    struct hf_err err;
    char replacement[] = "unknown";
    HF_CLEANUP(hf_freep) char *word = hf_strdup(outcome);
    struct hf_end end = {.outcome = word,
                         .exit_code = code,
                         .replacement = replacement,
                         .last_step = 1300,
                         .at_wall_ms = hf_wall_ms() - 60000};
    memcpy(end.nonce, c->nonce, sizeof(end.nonce));
    expect_rc(hf_lineage_end(&b.run, NULL, c->attempt, &end, &err), HF_OK, &err);
}

/* NULL: the page. */
static struct told ask(const char *flag)
{
    return TELL("status", "--state-dir", nowhere, "--store", uri, "job", flag);
}

/* Asks in both forms; returns the page, times made equal. */
static char *page_of(const char *what, const char *state)
{
    struct told t = ask("--json");
    told_status(&t, HF_EXIT_OK);
    cJSON *all = told_json(&t);
    must_be_documented(only_run(all), false, what);
    if (strcmp(hf_json_opt_str(only_run(all), "state", ""), state) != 0) {
        fail_msg("%s: not '%s': %s", what, state, t.out);
    }
    assert_true(cJSON_IsNull(hf_json_opt(only_run(all), "supervised")));
    hf_json_free(all);
    told_release(&t);
    t = ask(NULL);
    told_status(&t, HF_EXIT_OK);
    char *text = without_times(t.out);
    told_release(&t);
    return text;
}

#define WHO "  machine     box\n  attempt     1\n"

static void a_run_that_lives(void **state)
{
    (void)state;
    struct hf_claim c;
    claim(1, HF_CLAIM_RUN, &c);
    must_commit(&b, &c, 1);
    beat(&c, "running", 900, 10000);
    HF_CLEANUP(hf_freep) char *text = page_of("lives", "running");
    struct hf_manifest m;
    make_manifest(&m, 1, 1, c.nonce);
    HF_CLEANUP(hf_freep)
    char *want =
        hf_asprintf("job\n"
                    "  state       running since TIME, AGE\n" WHO "  step        1200, told AGE\n"
                    "  checkpoint  local, step 1200, %llu bytes, AGE\n"
                    "  saved by    unknown\n"
                    "  store       %s (local)\n"
                    "  evidence    heartbeat 9, timed by the clock of 'box', AGE\n",
                    (unsigned long long)m.bytes, uri);
    hf_manifest_release(&m);
    assert_string_equal(text, want);
    hf_claim_release(&c);
    /* With --store-survives the same store outlives the machine. */
    struct told t = ask("--store-survives");
    must_say(t.out, "checkpoint  durable, ");
    must_say(t.out, " (durable)\n");
    told_release(&t);
}

/* Three heartbeats may be missing, five seconds at least, thirty where it is not told; the other
 * clock may be ahead as well. */
static void heartbeats(void **state)
{
    (void)state;
    static const struct {
        const char *word;
        int64_t ago_ms;
        uint64_t every_ms;
        const char *state, *says;
    } rows[] = {
        {"running", 29000, 10000, "running", "running since"},
        {"running", 30100, 10000, "unknown", "none came for longer than 3 of them may take"},
        {"running", 4000, 100, "running", "heartbeat 9"},
        {"running", 5100, 100, "unknown", "it was last 'running'"},
        {"running", 28000, 0, "running", "heartbeat 9"},
        {"leaving", 30100, 0, "unknown", "it was last 'leaving'"},
        {"leaving", 100, 0, "leaving", "state       leaving since"},
        {"", 100, 0, "unknown", "it was last 'unknown'"},
        {"running", -4000, 100, "running", "in the future"},
        {"running", -6000, 100, "unknown", "heartbeat 9"},
        {"running", -86400000, 10000, "unknown", "none came"},
        {"running", INT64_MAX, 10000, "unknown", "attempt 1 was claimed, and no heartbeat"},
        {"running", 86400000, 100000000, "running", "heartbeat 9"},
    };
    struct hf_claim c;
    claim(1, HF_CLAIM_RUN, &c);
    HF_CLEANUP(hf_freep) char *none = page_of("no heartbeat", "unknown");
    must_say(none, "state       unknown since TIME, AGE\n              it was last 'unknown'\n");
    must_say(none, "evidence    attempt 1 was claimed, and no heartbeat of it is in the store");
    for (size_t i = 0; i < HF_COUNT(rows); i++) {
        beat(&c, rows[i].word, rows[i].ago_ms, rows[i].every_ms);
        HF_CLEANUP(hf_freep) char *text = page_of(rows[i].says, rows[i].state);
        if (strcmp(rows[i].says, "in the future") != 0) {
            must_say(text, rows[i].says);
        }
    }
    /* One that another claim put is not this attempt's. */
    struct hf_claim other = make_claim(1);
    beat(&other, "running", 100, 10000);
    HF_CLEANUP(hf_freep) char *text = page_of("another's", "unknown");
    must_say(text, "no heartbeat");
    hf_claim_release(&other);
    hf_claim_release(&c);
}

/* Rows: the last claim's kind, the end that is recorded for the one that ran. */
static void ends(void **state)
{
    (void)state;
    static const struct {
        enum hf_claim_kind top;
        const char *outcome; /* NULL: no end */
        int64_t code;
        const char *says[3];
    } rows[] = {
        {HF_CLAIM_RUN,
         "preempted",
         75,
         {"state       ended (preempted) since TIME, AGE\n" WHO, "step        1300, told AGE",
          "evidence    the end of attempt 1 is recorded in the store, AGE\n"}},
        {HF_CLAIM_RUN, "failed", 1, {"ended (failed)"}},
        {HF_CLAIM_RUN, "vanished", -1, {"ended (vanished)"}},
        {HF_CLAIM_FINISHED, "finished", 0, {"ended (finished)", "attempt     1\n"}},
        {HF_CLAIM_FINISHED,
         NULL,
         0,
         {"ended (finished)", "step        unknown\n",
          "evidence    that the run is finished is recorded in the store, AGE\n"}},
        {HF_CLAIM_STOPPED, "stopped", 130, {"ended (stopped)", "the end of attempt 1"}},
        {HF_CLAIM_STOPPED, NULL, 0, {"ended (stopped)", "that the run is stopped is recorded"}},
    };
    for (size_t i = 0; i < HF_COUNT(rows); i++) {
        struct hf_claim c;
        claim(1, HF_CLAIM_RUN, &c);
        must_commit(&b, &c, 1);
        if (rows[i].outcome != NULL) {
            put_end(&c, rows[i].outcome, rows[i].code);
        }
        if (rows[i].top != HF_CLAIM_RUN) {
            struct hf_claim top;
            claim(2, rows[i].top, &top);
            hf_claim_release(&top);
        }
        HF_CLEANUP(hf_freep) char *text = page_of(rows[i].says[0], "ended");
        for (size_t k = 0; k < HF_COUNT(rows[i].says) && rows[i].says[k] != NULL; k++) {
            must_say(text, rows[i].says[k]);
        }
        must_say(text, "checkpoint  local, step 1200");
        struct told t = ask("--json");
        cJSON *all = told_json(&t);
        bool known = rows[i].outcome != NULL && rows[i].code >= 0;
        assert_int_equal(hf_json_opt_int(only_run(all), "exit_status", -1),
                         known ? rows[i].code : -1);
        hf_json_free(all);
        told_release(&t);
        hf_claim_release(&c);
        teardown(NULL);
        setup(NULL);
    }
}

/* The newest checkpoint of the run, whichever attempt made it. */
static void checkpoints_of_older_attempts(void **state)
{
    (void)state;
    struct hf_claim c;
    for (uint32_t n = 1; n <= 3; n++) {
        claim(n, HF_CLAIM_RUN, &c);
        if (n < 3) {
            must_commit(&b, &c, 1);
            put_end(&c, "preempted", 75);
        }
        hf_claim_release(&c);
    }
    struct told t = ask("--json");
    cJSON *all = told_json(&t);
    const cJSON *save = hf_json_opt(only_run(all), "save");
    assert_int_equal(hf_json_opt_int(only_run(all), "attempt", 0), 3);
    assert_int_equal(hf_json_opt_int(save, "attempt", 0), 2);
    assert_int_equal(hf_json_opt_int(save, "number", 0), 1);
    assert_string_equal(hf_json_opt_str(save, "reason", ""), "every");
    assert_non_null(hf_json_opt(save, "at_age_s"));
    hf_json_free(all);
    told_release(&t);
}

/* ---- damage ---- */

struct damage {
    const char *path, *name;
    size_t n, unknown, ended, lives;
};

static void one_damage(void *user, const char *text, size_t len, const char *what)
{
    struct damage *d = user;
    put_file(d->path, text, len);
    struct told t = ask("--json");
    if (t.status != HF_EXIT_OK) { /* written by a newer version: that is said, and nothing else */
        told_status(&t, HF_EXIT_FAIL);
        must_say(t.err, "error: store 'file://");
        must_be_plain(t.err, what);
        assert_string_equal(t.out, "");
        if (strstr(t.err, "format") == NULL && strstr(t.err, "feature") == NULL) {
            fail_msg("%s: %s: %s", d->name, what, t.err);
        }
        told_release(&t);
        return;
    }
    cJSON *all = told_json(&t);
    const cJSON *run = only_run(all);
    must_be_documented(run, false, what);
    const char *state = hf_json_opt_str(run, "state", "");
    d->n++;
    d->unknown += strcmp(state, "unknown") == 0;
    d->ended += strcmp(state, "ended") == 0;
    d->lives += strcmp(state, "running") == 0;
    hf_json_free(all);
    told_release(&t);
    t = ask(NULL);
    told_status(&t, HF_EXIT_OK);
    must_be_plain(t.out, what);
    told_release(&t);
}

static struct damage garble(const char *name)
{
    struct hf_buf was;
    struct hf_err err;
    HF_CLEANUP(hf_freep) char *path = hf_asprintf("%s/store/job/%s", b.folder, name);
    hf_buf_init(&was, 1u << 20);
    expect_rc(hf_fs_read(path, &was, &err), HF_OK, &err);
    struct damage d = {.path = path, .name = name};
    garble_cuts(hf_buf_str(&was), one_damage, &d);
    garble_bytes(hf_buf_str(&was), one_damage, &d);
    garble_values(hf_buf_str(&was), one_damage, &d);
    put_file(path, hf_buf_str(&was), was.len);
    hf_buf_release(&was);
    d.path = NULL;
    assert_true(d.n > 100);
    return d;
}

/* C10: a damaged record never makes a run look better than it is, and never hides it. */
static void test_c10_damaged_records(void **state)
{
    (void)state;
    struct hf_claim c;
    claim(1, HF_CLAIM_RUN, &c);
    must_commit(&b, &c, 1);
    beat(&c, "running", 900, 10000);
    /* The claim bears a sum: nothing passes; its heartbeat is then nobody's. */
    struct damage d = garble("attempts/000001.json");
    assert_int_equal(d.unknown, d.n);
    /* The heartbeat bears none: what can be read of it counts. */
    d = garble("attempts/000001.alive");
    assert_true(d.unknown > 0 && d.lives > 0 && d.ended == 0);
    put_end(&c, "preempted", 75);
    d = garble("attempts/000001.end.json");
    assert_int_equal(d.ended, d.n);
    hf_claim_release(&c);
    struct told t = ask(NULL);
    must_say(t.out, "ended (preempted)");
    told_release(&t);
}

static void damage_is_said(void **state)
{
    (void)state;
    struct hf_claim c;
    claim(1, HF_CLAIM_RUN, &c);
    HF_CLEANUP(hf_freep) char *alive = bench_path(&b, "store/job/attempts/000001.alive");
    HF_CLEANUP(hf_freep) char *first = bench_path(&b, "store/job/attempts/000001.json");
    HF_CLEANUP(hf_freep) char *end = bench_path(&b, "store/job/attempts/000001.end.json");
    put_text(alive, "{");
    HF_CLEANUP(hf_freep) char *one = page_of("heartbeat", "unknown");
    must_say(one, "attempt 1 was claimed, and a damaged heartbeat of it is in the store, AGE");
    put_text(end, "{\"");
    HF_CLEANUP(hf_freep) char *two = page_of("end", "ended");
    must_say(two, "state       ended\n" WHO);
    must_say(two, "the end of attempt 1 is recorded in the store; the record is damaged, AGE");
    put_text(first, "");
    HF_CLEANUP(hf_freep) char *three = page_of("claim", "ended");
    must_say(three, "evidence    the claim of attempt 1 is damaged, AGE");
    must_not_say(three, "machine");
    hf_claim_release(&c);
}

/* ---- here and there ---- */

/* The store's word counts where it knows of a later attempt, and no supervisor lives here. */
static void which_word_counts(void **state)
{
    (void)state;
    for (int here = -1; here <= 3; here++) { /* -1: not registered; 0: no attempt */
        for (uint32_t there = 0; there <= 3; there++) {
            for (int locked = 0; locked <= 1; locked++) {
                struct hf_err err;
                struct hf_rundir r = {.lock_fd = -1};
                struct hf_claim c;
                for (uint32_t n = 1; n <= there; n++) {
                    claim(n, HF_CLAIM_RUN, &c);
                    put_end(&c, "preempted", 75);
                    hf_claim_release(&c);
                }
                if (here >= 0) {
                    expect_rc(hf_rundir_open(&r, nowhere, "job", uri, &err), HF_OK, &err);
                    HF_CLEANUP(hf_freep) char *path = hf_rundir_file(&r, "status.json");
                    HF_CLEANUP(hf_freep)
                    char *word = hf_asprintf("{\"state\":\"ended\",\"outcome\":\"failed\","
                                             "\"host\":\"mine\",\"attempt\":%d}",
                                             here);
                    if (here > 0) {
                        put_text(path, word);
                    }
                    if (locked) {
                        expect_rc(hf_rundir_lock(&r, &err), HF_OK, &err);
                    }
                }
                bool store = (here < 0 || !locked) && (int)there > (here < 0 ? 0 : here);
                struct told t = ask(NULL);
                told_status(&t, here < 0 && there == 0 ? HF_EXIT_FAIL : HF_EXIT_OK);
                if (here < 0 && there == 0) {
                    must_say(t.err, "no run 'job' is in store '");
                } else {
                    (store ? must_say : must_not_say)(t.out, "machine     box\n");
                    (!store && here > 0 ? must_say : must_not_say)(t.out, "machine     mine\n");
                }
                told_release(&t);
                hf_rundir_release(&r);
                teardown(NULL);
                setup(NULL);
            }
        }
    }
}

static void no_such_store(void **state)
{
    (void)state;
    struct told t = TELL("status", "--state-dir", nowhere, "--store", "file:///no/such", "job");
    told_status(&t, HF_EXIT_FAIL);
    must_say(t.err, "the store 'file:///no/such' is not there");
    must_say(t.err, "Is its file system mounted here?");
    told_release(&t);
    /* What is known here is told though the store has gone. */
    struct hf_err err;
    struct hf_rundir r;
    expect_rc(hf_rundir_open(&r, nowhere, "job", "file:///no/such", &err), HF_OK, &err);
    hf_rundir_release(&r);
    t = TELL("status", "--state-dir", nowhere, "--store", "file:///no/such", "job");
    told_status(&t, HF_EXIT_OK);
    must_say(t.out, "state       none\n");
    told_release(&t);
    /* A folder in the place of a record is no absence of it. */
    HF_CLEANUP(hf_freep) char *first = bench_path(&b, "store/job/attempts/000001.json");
    expect_rc(hf_fs_mkdirs(first, 0700, &err), HF_OK, &err);
    t = ask(NULL);
    told_status(&t, HF_EXIT_FAIL);
    must_say(t.err, "error: store 'file://");
    told_release(&t);
}

int main(void)
{
#define CASE(fn) cmocka_unit_test_setup_teardown(fn, setup, teardown)
    const struct CMUnitTest tests[] = {
        CASE(a_run_that_lives),
        CASE(heartbeats),
        CASE(ends),
        CASE(checkpoints_of_older_attempts),
        CASE(test_c10_damaged_records),
        CASE(damage_is_said),
        CASE(which_word_counts),
        CASE(no_such_store),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
