/* SPDX-License-Identifier: Apache-2.0
 *
 * holdfast status over a state folder that is made by hand: every line of the page for every word
 * that a supervisor may leave and for what is seen beside it, the documented fields in each, and a
 * status.json with every kind of damage.
 */
#include "base/prelude.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/fsx.h"
#include "supervisor/cmd.h"
#include "supervisor/rundir.h"
#include "supervisor/tree.h"
#include "tests/unit/support_checkpoint.h"
#include "tests/unit/support_cmd.h"
#include "tests/unit/support_conform_store.h"
#include "tests/unit/support_garble.h"
#include "tests/unit/support_status.h"

static char *folder; /* the state folder */
static struct hf_rundir dir;

static int setup(void **state)
{
    (void)state;
    struct hf_err err;
    folder = temp_folder();
    expect_rc(hf_rundir_open(&dir, folder, "job", NULL, &err), HF_OK, &err);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    struct hf_err err;
    hf_rundir_release(&dir);
    expect_rc(hf_fs_remove_tree(folder, &err), HF_OK, &err);
    hf_free(folder);
    return 0;
}

static void add_ago(cJSON *obj, const char *key, int64_t ago_ms)
{
    char utc[HF_UTC_STRLEN];
    hf_json_add_str(obj, key, hf_utc_format(hf_wall_ms() - ago_ms, utc));
}

/* What a supervisor that is well writes; the members of `patch` take the place of its own. */
static cJSON *word(const char *patch)
{
    cJSON *obj = hf_json_obj();
    cJSON *ranks = hf_json_obj();
    cJSON *save = hf_json_obj();
    cJSON *watch = hf_json_obj();
    char boot[40];
    struct hf_err err;
    expect_rc(hf_boot_id(boot, &err), HF_OK, &err);
    hf_json_add_str(obj, "run", "job");
    hf_json_add_str(obj, "store", dir.store);
    hf_json_add_str(obj, "state", "running");
    add_ago(obj, "since", 192000);
    hf_json_add_int(obj, "attempt", 2);
    hf_json_add_str(obj, "host", "box");
    hf_json_add_str(obj, "store_kind", "durable");
    hf_json_add_str(obj, "protected_by", "hook");
    hf_json_add_bool(obj, "unprotected", false);
    hf_json_add_int(ranks, "step", 1200);
    add_ago(ranks, "step_at", 400);
    hf_json_add(obj, "ranks", ranks);
    hf_json_add_str(save, "verdict", "durable");
    hf_json_add_int(save, "step", 1000);
    hf_json_add_int(save, "attempt", 2);
    hf_json_add_int(save, "bytes", 81788928);
    add_ago(save, "at", 41000);
    hf_json_add(obj, "save", save);
    hf_json_add_str(watch, "provider", "aws");
    hf_json_add_str(watch, "health", "seeing");
    add_ago(watch, "last_ok", 800);
    hf_json_add(obj, "watch", watch);
    add_ago(obj, "heartbeat", 3100);
    hf_json_add_str(obj, "boot_id", boot);
    hf_json_add_int(obj, "pid_ns", (int64_t)hf_pid_ns());
    hf_json_add_int(obj, "supervisor_pid", getpid());
    hf_json_add_int(obj, "supervisor_start", (int64_t)hf_proc_start(getpid()));
    add_ago(obj, "updated", 100);
    hf_json_add_int(obj, "updated_boot_ms", (int64_t)(hf_now_ns() / HF_MS) - 100);
    cJSON *over = cJSON_Parse(patch);
    assert_non_null(over);
    while (over->child != NULL) {
        cJSON *one = cJSON_DetachItemViaPointer(over, over->child);
        cJSON_DeleteItemFromObjectCaseSensitive(obj, one->string);
        cJSON_AddItemToObject(obj, one->string, one);
    }
    hf_json_free(over);
    return obj;
}

static void put_word(const char *patch)
{
    cJSON *obj = word(patch);
    HF_CLEANUP(hf_freep) char *text = hf_json_print(obj);
    HF_CLEANUP(hf_freep) char *path = hf_rundir_file(&dir, "status.json");
    put_text(path, text);
    hf_json_free(obj);
}

static void put_beside(const char *name, const char *text)
{
    HF_CLEANUP(hf_freep) char *path = hf_asprintf("%s/2/%s", dir.dir, name);
    put_text(path, text);
}

static void lock(bool on)
{
    struct hf_err err;
    hf_closep(&dir.lock_fd);
    if (on) {
        expect_rc(hf_rundir_lock(&dir, &err), HF_OK, &err);
    }
}

/* The page, times made equal. */
static char *page(void)
{
    struct told t = TELL("status", "--state-dir", folder, "job");
    told_status(&t, HF_EXIT_OK);
    assert_string_equal(t.err, "");
    char *text = without_times(t.out);
    told_release(&t);
    return text;
}

static void check_json(const char *what, const char *state)
{
    struct told t = TELL("status", "--state-dir", folder, "--json", "job");
    told_status(&t, HF_EXIT_OK);
    cJSON *all = told_json(&t);
    const cJSON *run = only_run(all);
    must_be_documented(run, state == NULL, what);
    assert_string_equal(hf_json_opt_str(run, "run", ""), "job");
    assert_string_equal(hf_json_opt_str(run, "store", ""), dir.store);
    if (state != NULL && strcmp(hf_json_opt_str(run, "state", ""), state) != 0) {
        fail_msg("%s: '%s' in place of '%s': %s", what, hf_json_opt_str(run, "state", ""), state,
                 t.out);
    }
    hf_json_free(all);
    told_release(&t);
}

static void the_whole_page(void **state)
{
    (void)state;
    put_word("{}");
    lock(true);
    HF_CLEANUP(hf_freep) char *text = page();
    HF_CLEANUP(hf_freep)
    char *want = hf_asprintf("job\n"
                             "  state       running since TIME, AGE\n"
                             "  machine     box\n"
                             "  attempt     2\n"
                             "  step        1200, told AGE\n"
                             "  checkpoint  durable, step 1000, 81788928 bytes, AGE\n"
                             "  saved by    hook\n"
                             "  notices     seeing from aws, last answered AGE\n"
                             "  store       %s (durable)\n"
                             "  evidence    a supervisor holds the run's lock (checked now)\n"
                             "              step 1200 told by the trainer, AGE\n"
                             "              status written by the supervisor, AGE\n"
                             "              heartbeat acknowledged by the store, AGE\n",
                             dir.store);
    assert_string_equal(text, want);
    check_json("the whole page", "running");
}

static const struct {
    const char *patch;
    bool locked;
    const char *state;
    const char *says[4];
    const char *silent[3]; /* must not be said */
} pages[] = {
    /* The state, and who can vouch for it. */
    {"{}",
     false,
     "unknown",
     {"state       unknown since TIME, AGE\n              it was last 'running'\n",
      "evidence    no supervisor lives here: nobody holds the run's lock (checked now)\n"},
     {"(checked now), "}},
    {"{\"updated_boot_ms\":1}",
     true,
     "unknown",
     {"it was last 'running'", "holds the run's lock"},
     {0}},
    {"{\"updated_boot_ms\":-1}", true, "running", {"state       running since"}, {"last '"}},
    {"{\"boot_id\":\"another\"}",
     false,
     "unknown",
     {"this machine was started anew since", "no supervisor lives here"},
     {0}},
    {"{\"boot_id\":\"another\",\"updated\":null}",
     false,
     "unknown",
     {"state       unknown\n"},
     {"started anew", "status written", "since"}},
    {"{\"state\":\"ended\",\"outcome\":\"finished\",\"exit_status\":0}",
     false,
     "ended",
     {"state       ended (finished) since TIME, AGE\n"},
     {"lives here", "last '"}},
    {"{\"state\":\"ended\",\"outcome\":\"failed\",\"exit_status\":3}",
     true,
     "ended",
     {"state       ended (failed) since TIME", "holds the run's lock"},
     {0}},
    {"{\"state\":\"ended\",\"outcome\":\"failed\",\"supervisor_start\":1}",
     true,
     "preparing",
     {"state       preparing\n"},
     {"failed", "since TIME"}},
    {"{\"state\":\"ended\",\"outcome\":null,\"pid_ns\":1}",
     true,
     "preparing",
     {"state       preparing\n"},
     {0}},
    {"{\"state\":\"settling\",\"since\":null}", true, "settling", {"state       settling\n"}, {0}},
    {"{\"state\":null}", false, "none", {"state       none since"}, {"lives here"}},
    {"{\"host\":null}", true, "running", {"running"}, {"machine"}},
    /* The checkpoint. */
    {"{\"save\":null}", true, "running", {"checkpoint  none\n"}, {0}},
    {"{\"save\":{\"verdict\":\"none\",\"attempt\":null}}",
     true,
     "running",
     {"checkpoint  none\n"},
     {0}},
    {"{\"save\":{\"verdict\":\"none\",\"attempt\":1,\"step\":7,\"bytes\":5}}",
     true,
     "running",
     {"checkpoint  durable, step 7, 5 bytes, from an earlier attempt\n"},
     {0}},
    {"{\"store_kind\":null,\"save\":{\"verdict\":\"none\",\"attempt\":1}}",
     true,
     "running",
     {"checkpoint  unknown, step unknown, 0 bytes, from an earlier attempt\n", "(unknown)\n"},
     {0}},
    {"{\"save\":{\"verdict\":\"stale\",\"attempt\":2,\"step\":9,\"bytes\":1,\"at\":\"never\","
     "\"why\":\"disk full\"}}",
     true,
     "running",
     {"checkpoint  stale, step 9, 1 bytes, unknown\n              the last save failed: disk "
      "full\n"},
     {0}},
    /* Who saves. */
    {"{\"protected_by\":null}", true, "running", {"saved by    unknown\n"}, {0}},
    {"{\"protected_by\":null,\"unprotected\":true}",
     true,
     "running",
     {"saved by    nothing: unprotected\n"},
     {0}},
    {"{\"protected_by\":\"watch\",\"unprotected\":true}",
     true,
     "running",
     {"saved by    watch\n"},
     {0}},
    {"{\"ranks\":null}", true, "running", {"step        unknown\n"}, {"told"}},
    {"{\"ranks\":{\"step\":null,\"step_at\":null}}",
     true,
     "running",
     {"step        unknown\n"},
     {"told"}},
    /* Notices. */
    {"{\"watch\":null}", true, "running", {"saved by"}, {"notices"}},
    {"{\"watch\":{\"provider\":null,\"health\":\"not-watching\"}}",
     true,
     "running",
     {"notices     not-watching\n"},
     {0}},
    {"{\"watch\":{\"provider\":\"gcp\",\"health\":\"blind\",\"why\":\"refused\"}}",
     true,
     "running",
     {"notices     blind from gcp: refused\n"},
     {"answered"}},
    {"{\"watch\":{\"health\":\"seeing\",\"last_ok\":\"soon\"}}",
     true,
     "running",
     {"notices     seeing, last answered unknown\n"},
     {0}},
    {"{\"notice\":{\"sources\":[\"SIGTERM\"],\"deadline\":\"2100-01-02T03:04:05.000Z\"}}",
     true,
     "running",
     {"NOTICE      the machine goes at TIME, AGE\n"},
     {0}},
    {"{\"notice\":{}}",
     true,
     "running",
     {"NOTICE      the machine goes at unknown, unknown\n"},
     {0}},
    /* The log and the store. */
    {"{\"log\":{\"dropped_bytes\":0,\"store_failing\":false}}",
     true,
     "running",
     {"job"},
     {"  log "}},
    {"{\"log\":{\"dropped_bytes\":77,\"why\":\"No space left on device\"}}",
     true,
     "running",
     {"log         77 bytes are missing: No space left on device\n"},
     {0}},
    {"{\"log\":{\"dropped_bytes\":77,\"why\":null,\"store_failing\":true}}",
     true,
     "running",
     {"log         77 bytes are missing\n", "log         does not reach the store since the start"},
     {0}},
    {"{\"log\":{\"store_failing\":true,\"stored_at\":\"2026-01-02T03:04:05.000Z\"}}",
     true,
     "running",
     {"log         does not reach the store since TIME\n"},
     {"missing"}},
    {"{\"store_silent_since\":\"2026-01-02T03:04:05.000Z\"}",
     true,
     "running",
     {" (durable)\n              silent since AGE\n"},
     {0}},
    {"{\"heartbeat\":null}", true, "running", {"status written"}, {"heartbeat"}},
    /* Another's bytes in a terminal. */
    {"{\"host\":\"a\\nb\\u001b[31m\\u007f\",\"outcome\":\"\\u0007\",\"state\":\"run\\tning\"}",
     true,
     "run\tning",
     {"machine     a"},
     {"\nb"}},
};

static void every_page(void **state)
{
    (void)state;
    for (size_t i = 0; i < HF_COUNT(pages); i++) {
        put_word(pages[i].patch);
        lock(pages[i].locked);
        HF_CLEANUP(hf_freep) char *text = page();
        for (size_t k = 0; k < HF_COUNT(pages[i].says) && pages[i].says[k] != NULL; k++) {
            must_say(text, pages[i].says[k]);
        }
        for (size_t k = 0; k < HF_COUNT(pages[i].silent) && pages[i].silent[k] != NULL; k++) {
            must_not_say(text, pages[i].silent[k]);
        }
        must_be_plain(text, pages[i].patch);
        check_json(pages[i].patch, pages[i].state);
    }
}

/* keeper.json and exit beside the word. */
static void what_the_keeper_left(void **state)
{
    (void)state;
    static const struct {
        bool alive, exit, locked;
        const char *facts[3]; /* around its pid and its start */
        const char *says, *silent;
    } rows[] = {
        {true, false, true, {"{\"pid\":", ",\"start\":", "}"}, " is alive (checked now)\n", "gone"},
        {true,
         false,
         false,
         {"{\"pid\":", ",\"start\":", "}"},
         " is alive (checked now): what it keeps goes on without a supervisor\n",
         "gone"},
        {false,
         false,
         false,
         {"{\"pid\":", ",\"start\":", "}"},
         " is gone (checked now)\n",
         "alive"},
        {false, false, true, {"{\"pid\":", ",\"start\":", "}"}, "job", "keeper"},
        {false,
         true,
         false,
         {"{\"pid\":", ",\"start\":", "}"},
         "the command has ended; its exit status is kept, AGE\n",
         "alive"},
        {true, true, true, {NULL}, "its exit status is kept", "keeper pid"},
        {true, false, false, {"[", ",", "]"}, "no supervisor", "keeper"},
        {true, false, false, {"{\"pid\":\"", "\",\"start\":", "}"}, "no supervisor", "keeper"},
        {true, false, false, {"{\"pid\":-", ",\"start\":", "}"}, "no supervisor", "keeper"},
        {true, false, false, {"{\"pid\":", ",\"begin\":", "}"}, "no supervisor", "keeper"},
        {true, false, false, {"{\"pid\":", ",\"start\":", ""}, "no supervisor", "keeper"},
    };
    HF_CLEANUP(hf_freep) char *two = hf_rundir_attempt(&dir, 2);
    long long start = (long long)hf_proc_start(getpid());
    for (size_t i = 0; i < HF_COUNT(rows); i++) {
        struct hf_err err;
        expect_rc(hf_fs_remove_tree(two, &err), HF_OK, &err);
        put_word("{}");
        lock(rows[i].locked);
        if (rows[i].facts[0] != NULL) {
            HF_CLEANUP(hf_freep)
            char *facts = hf_asprintf("%s%d%s%lld%s", rows[i].facts[0], getpid(), rows[i].facts[1],
                                      rows[i].alive ? start : start - 1, rows[i].facts[2]);
            put_beside("keeper.json", facts);
        }
        if (rows[i].exit) {
            put_beside("exit", "{\"status\":0}");
        }
        HF_CLEANUP(hf_freep) char *text = page();
        must_say(text, rows[i].says);
        must_not_say(text, rows[i].silent);
        check_json("keeper", rows[i].locked ? "running" : "unknown");
    }
}

/* Pids of another process namespace, or of the last boot, say nothing about ours. */
static void another_machines_pids(void **state)
{
    (void)state;
    static const char *const words[] = {"{}", "{\"pid_ns\":1}", "{\"boot_id\":\"b\"}",
                                        "{\"attempt\":null}", "{\"attempt\":0}"};
    HF_CLEANUP(hf_freep)
    char *facts =
        hf_asprintf("{\"pid\":%d,\"start\":%lld}", getpid(), (long long)hf_proc_start(getpid()));
    put_beside("keeper.json", facts);
    for (size_t i = 0; i < HF_COUNT(words); i++) {
        put_word(words[i]);
        HF_CLEANUP(hf_freep) char *text = page();
        (i == 0 ? must_say : must_not_say)(text, "keeper pid");
    }
}

/* ---- damage ---- */

static void one_damage(void *user, const char *text, size_t len, const char *what)
{
    size_t *n = user;
    HF_CLEANUP(hf_freep) char *path = hf_rundir_file(&dir, "status.json");
    put_file(path, text, len);
    struct told t = TELL("status", "--state-dir", folder, "job");
    told_status(&t, HF_EXIT_OK);
    must_be_plain(t.out, what);
    must_say(t.out, "job\n  state ");
    must_say(t.out, "holds the run's lock");
    told_release(&t);
    check_json(what, NULL);
    ++*n;
}

static void a_damaged_word(void **state)
{
    (void)state;
    cJSON *obj = word("{\"notice\":{\"deadline\":\"2100-01-02T03:04:05.000Z\"},"
                      "\"log\":{\"dropped_bytes\":7,\"why\":\"x\",\"store_failing\":true}}");
    HF_CLEANUP(hf_freep) char *text = hf_json_print(obj);
    hf_json_free(obj);
    size_t n = 0;
    lock(true);
    garble_cuts(text, one_damage, &n);
    garble_bytes(text, one_damage, &n);
    garble_values(text, one_damage, &n);
    assert_true(n > 2 * strlen(text) + 200);
    /* Not a file at all. */
    HF_CLEANUP(hf_freep) char *path = hf_rundir_file(&dir, "status.json");
    struct hf_err err;
    expect_rc(hf_fs_remove_tree(path, &err), HF_OK, &err);
    expect_rc(hf_fs_mkdirs(path, 0700, &err), HF_OK, &err);
    check_json("a folder", "preparing");
}

/* ---- several runs, wrong usage ---- */

static void all_runs(void **state)
{
    (void)state;
    static const char *const names[] = {"alpha", "job", "zeta"};
    struct hf_err err;
    put_word("{}");
    for (size_t i = 0; i < HF_COUNT(names); i++) {
        struct hf_rundir other;
        expect_rc(hf_rundir_open(&other, folder, names[i], NULL, &err), HF_OK, &err);
        hf_rundir_release(&other);
    }
    struct told t = TELL("status", "--state-dir", folder, "--json");
    told_status(&t, HF_EXIT_OK);
    cJSON *all = told_json(&t);
    const cJSON *run = hf_json_opt(all, "runs")->child;
    for (size_t i = 0; i < HF_COUNT(names); i++, run = run->next) {
        assert_non_null(run);
        assert_string_equal(hf_json_opt_str(run, "run", ""), names[i]);
        assert_string_equal(hf_json_opt_str(run, "state", ""), i == 1 ? "unknown" : "none");
        must_be_documented(run, false, names[i]);
    }
    assert_null(run);
    hf_json_free(all);
    told_release(&t);
    t = TELL("status", "--state-dir", folder);
    must_say(t.out, "alpha\n  state       none\n  attempt     unknown\n  step        unknown\n"
                    "  checkpoint  none\n  saved by    unknown\n  store ");
    must_say(t.out, "\nzeta\n");
    told_release(&t);
}

static void wrong_usage(void **state)
{
    (void)state;
    HF_CLEANUP(hf_freep) char *empty = hf_asprintf("%s/empty", folder);
    struct told t = TELL("status", "--state-dir", empty);
    told_status(&t, HF_EXIT_OK);
    assert_string_equal(t.out, "no runs are registered here\n");
    told_release(&t);
    t = TELL("status", "--state-dir", empty, "--json");
    told_status(&t, HF_EXIT_OK);
    assert_string_equal(t.out, "{\"format\":1,\"runs\":[]}\n");
    told_release(&t);
    t = TELL("status", "--state-dir", folder, "job", "other");
    told_status(&t, HF_EXIT_USAGE);
    must_say(t.err, "'other' is one too many");
    told_release(&t);
    t = TELL("status", "--state-dir", folder, "jb");
    told_status(&t, HF_EXIT_FAIL);
    must_say(t.err, "no run 'jb' is registered here");
    must_say(t.err, "job");
    assert_string_equal(t.out, "");
    told_release(&t);
    t = TELL("status", "--state-dir", folder, "a/b");
    told_status(&t, HF_EXIT_FAIL);
    must_say(t.err, "'a/b'");
    told_release(&t);
    put_beside("x", "x");
    HF_CLEANUP(hf_freep) char *file = hf_asprintf("%s/2/x", dir.dir);
    t = TELL("status", "--state-dir", file);
    told_status(&t, HF_EXIT_FAIL);
    must_say(t.err, "/2/x/runs'");
    told_release(&t);
}

int main(void)
{
#define CASE(fn) cmocka_unit_test_setup_teardown(fn, setup, teardown)
    const struct CMUnitTest tests[] = {
        CASE(the_whole_page),        CASE(every_page),     CASE(what_the_keeper_left),
        CASE(another_machines_pids), CASE(a_damaged_word), CASE(all_runs),
        CASE(wrong_usage),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
