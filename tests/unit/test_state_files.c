/* SPDX-License-Identifier: Apache-2.0
 *
 * The small files of the state folder with every kind of damage: run.json, claim.json,
 * keeper.json, exit, saves.jsonl and watched.json. None of it may hide a run, end a run that is
 * not finished, adopt what does not live, or cost a save.
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
#include "base/hash.h"
#include "supervisor/journal.h"
#include "supervisor/known.h"
#include "supervisor/tree.h"
#include "tests/unit/support_cmd.h"
#include "tests/unit/support_conform_store.h"
#include "tests/unit/support_garble.h"
#include "tests/unit/support_handoff.h"

static char *text_in(const char *path)
{
    struct hf_buf b;
    struct hf_err err;
    hf_buf_init(&b, 1u << 20);
    expect_rc(hf_fs_read(path, &b, &err), HF_OK, &err);
    char *text = hf_strdup(hf_buf_str(&b));
    hf_buf_release(&b);
    return text;
}

/* ---- run.json ---- */

struct registry {
    char *state, *path, *text;
    const char *store;
};

/* A damaged one hides its own run alone, and the next start of that run writes it anew. */
static void damaged_registry(void *user, const char *text, size_t len, const char *what)
{
    struct registry *g = user;
    struct hf_err err;
    put_file(g->path, text, len);
    struct hf_rundir r;
    struct hf_rundir *all = NULL;
    size_t n = 0;
    expect_rc(hf_rundir_all(g->state, &all, &n, &err), HF_OK, &err);
    bool other = false;
    for (size_t i = 0; i < n; i++) {
        other = other || strcmp(all[i].name, "other") == 0;
        hf_rundir_release(&all[i]);
    }
    hf_free(all);
    assert_true(other);
    expect_rc(hf_rundir_open(&r, g->state, "job", g->store, &err), HF_OK, &err);
    hf_rundir_release(&r);
    HF_CLEANUP(hf_freep) char *now = text_in(g->path);
    if (strcmp(now, g->text) != 0) {
        fail_msg("%s: it stays as it is: %s", what, now);
    }
    expect_rc(hf_rundir_find(&r, g->state, "job", NULL, &err), HF_OK, &err);
    assert_string_equal(r.store, g->store);
    hf_rundir_release(&r);
}

static void a_damaged_registry(void **state)
{
    (void)state;
    struct hf_err err;
    struct registry g = {.state = temp_folder(), .store = "file:///mnt/a"};
    struct hf_rundir r;
    expect_rc(hf_rundir_open(&r, g.state, "other", NULL, &err), HF_OK, &err);
    hf_rundir_release(&r);
    expect_rc(hf_rundir_open(&r, g.state, "job", g.store, &err), HF_OK, &err);
    g.path = hf_rundir_file(&r, "run.json");
    hf_rundir_release(&r);
    g.text = text_in(g.path);
    garble_cuts(g.text, damaged_registry, &g);
    /* Of the values the two that name the run matter; another's are put right as well. */
    static const char *const texts[] = {
        "{}",
        "[]",
        "null",
        "{\"name\":\"job\"}",
        "{\"store\":\"file:///mnt/a\"}",
        "{\"name\":\"job\",\"store\":7}",
        "{\"name\":7,\"store\":\"file:///mnt/a\"}",
        "{\"name\":\"job\",\"store\":\"file:///moved\"}",
        "{\"name\":\"jb\",\"store\":\"x\"}",
    };
    for (size_t i = 0; i < HF_COUNT(texts); i++) {
        damaged_registry(&g, texts[i], strlen(texts[i]), texts[i]);
    }
    expect_rc(hf_fs_remove_tree(g.state, &err), HF_OK, &err);
    hf_free(g.state);
    hf_free(g.path);
    hf_free(g.text);
}

/* ---- what a dead attempt leaves ---- */

struct left {
    const char *name; /* the damaged file */
    char *text;       /* as it was; NULL: take it */
    size_t adopted, finished, followed;
};

/* The attempt of a keeper that lives, or has ended, with a save that nobody has shipped. */
static char *attempt_with_a_save(struct handoff_scene *s, bool lives, const char *exit)
{
    struct hf_err err;
    handoff_claim_as(s, 1, HERE);
    char *dir = handoff_journal(s);
    HF_CLEANUP(hf_freep) char *root = bench_path(&s->bench, "ckpt/step-200");
    HF_CLEANUP(hf_freep) char *file = hf_asprintf("%s/w", root);
    put_noise(file, 900, 1);
    struct hf_saved *v = HF_NEW(struct hf_saved);
    v->serial = 3;
    v->step = 200;
    v->reason = hf_strdup("notice");
    v->strategy = hf_strdup("watch");
    v->resume_path = hf_strdup(root);
    hf_strv_add(&v->roots, root);
    expect_rc(hf_stamps_take(&v->roots, &v->stamps, &err), HF_OK, &err);
    expect_rc(hf_journal_put_save(dir, v, &err), HF_OK, &err);
    hf_saved_free(v);
    HF_CLEANUP(hf_freep) char *facts = hf_asprintf("%s/keeper.json", dir);
    HF_CLEANUP(hf_freep)
    char *text =
        hf_asprintf("{\"pid\":%d,\"start\":%llu,\"boot_id\":\"%s\",\"cgroup\":"
                    "\"/sys/fs/cgroup/holdfast-1-%.12s\"}",
                    getpid(), (unsigned long long)hf_proc_start(getpid()) + (lives ? 0 : 1),
                    s->boot_id, s->last.nonce);
    put_text(facts, text);
    if (exit != NULL) {
        HF_CLEANUP(hf_freep) char *end = hf_asprintf("%s/exit", dir);
        put_text(end, exit);
    }
    return dir;
}

static int64_t restored_step(struct handoff_scene *s)
{
    struct hf_err err;
    struct hf_restored r = {0};
    expect_rc(hf_handoff_restore(&s->bench.run, &handoff_no_limit, &s->out.claim, &r, &err), HF_OK,
              &err);
    int64_t step = r.any ? r.manifest.step : -1;
    hf_restored_release(&r);
    return step;
}

static void expect_vanished(struct handoff_scene *s)
{
    struct hf_err err;
    struct hf_end end = {0};
    expect_rc(hf_lineage_get_end(&s->bench.run, NULL, 1, &end, &err), HF_OK, &err);
    assert_string_equal(end.outcome, "vanished");
    hf_end_release(&end);
}

/* Takes the attempt over with one file damaged. Whatever is made of it, the save is kept. */
static void take_over(struct left *l, bool lives, const char *exit, const char *text, size_t len,
                      const char *what)
{
    struct handoff_scene s;
    struct hf_err err;
    handoff_open(&s, NULL);
    HF_CLEANUP(hf_freep) char *dir = attempt_with_a_save(&s, lives, exit);
    HF_CLEANUP(hf_freep) char *path = hf_asprintf("%s/%s", dir, l->name);
    if (text == NULL) {
        l->text = text_in(path);
    } else {
        put_file(path, text, len);
    }
    expect_rc(hf_handoff_claim(&s.in, &handoff_no_limit, &s.out, &err), HF_OK, &err);
    switch (s.out.verdict) {
    case HF_HANDOFF_ADOPT:
        l->adopted++;
        assert_int_equal(handoff_highest(&s), 1);
        break;
    case HF_HANDOFF_FINISHED:
        l->finished++;
        handoff_expect_end(&s, 1, "finished", 0);
        break;
    case HF_HANDOFF_CLAIMED:
        l->followed++;
        assert_int_equal(s.out.claim.attempt, 2);
        expect_vanished(&s);
        if (!s.out.recovered || restored_step(&s) != 200) {
            fail_msg("%s: %s: the save is lost: %s", l->name, what, s.out.why);
        }
        break;
    case HF_HANDOFF_DIFFERS:
    case HF_HANDOFF_BUSY:
        fail_msg("%s: %s: %s", l->name, what, s.out.why);
    }
    handoff_close(&s);
}

static void damaged_exit(void *user, const char *text, size_t len, const char *what)
{
    struct left *l = user;
    cJSON *now = cJSON_ParseWithLength(text, len);
    const cJSON *status = cJSON_GetObjectItemCaseSensitive(now, "status");
    bool zero = cJSON_IsNumber(status) && status->valuedouble == 0.0;
    size_t finished = l->finished;
    cJSON_Delete(now);
    take_over(l, false, "{}", text, len, what);
    if (l->finished > finished && !zero) {
        fail_msg("exit: %s: a run is finished that is not", what);
    }
}

/* An end counts as success only where it is whole and says 0. */
static void a_damaged_exit(void **state)
{
    (void)state;
    static const char good[] = "{\"status\":0,\"at_wall_ms\":1796078221250}\n";
    struct left l = {.name = "exit"};
    damaged_exit(&l, good, strlen(good), "nothing");
    assert_int_equal(l.finished, 1);
    garble_cuts(good, damaged_exit, &l);
    garble_values(good, damaged_exit, &l);
    static const char *const others[] = {
        "{\"status\":4294967296}", "{\"status\":-4294967296}",
        "{\"status\":65536}",      "{\"status\":256}",
        "{\"status\":9}",          "{\"status\":127}",
        "{\"status\":0.5}",        "{\"status\":9007199254740992}",
    };
    size_t finished = l.finished;
    for (size_t i = 0; i < HF_COUNT(others); i++) {
        damaged_exit(&l, others[i], strlen(others[i]), others[i]);
    }
    assert_int_equal(l.finished, finished);
    assert_true(l.followed > 60 && l.adopted == 0);
}

/* A command that somebody had asked to leave has not finished, whatever its status. */
static void asked_to_leave(void **state)
{
    (void)state;
    struct handoff_scene s;
    struct hf_err err;
    handoff_open(&s, NULL);
    HF_CLEANUP(hf_freep) char *dir = attempt_with_a_save(&s, false, "{\"status\":0}");
    HF_CLEANUP(hf_freep) char *leaving = hf_asprintf("%s/leaving", dir);
    put_text(leaving, "");
    expect_rc(hf_handoff_claim(&s.in, &handoff_no_limit, &s.out, &err), HF_OK, &err);
    assert_int_equal(s.out.verdict, HF_HANDOFF_CLAIMED);
    assert_int_equal(restored_step(&s), 200);
    handoff_close(&s);
}

static void damaged_facts(void *user, const char *text, size_t len, const char *what)
{
    struct left *l = user;
    cJSON *now = cJSON_ParseWithLength(text, len);
    const cJSON *pid = cJSON_GetObjectItemCaseSensitive(now, "pid");
    const cJSON *start = cJSON_GetObjectItemCaseSensitive(now, "start");
    bool same = cJSON_IsNumber(pid) && pid->valuedouble == (double)getpid() &&
                cJSON_IsNumber(start) && start->valuedouble == (double)hf_proc_start(getpid());
    size_t adopted = l->adopted;
    cJSON_Delete(now);
    take_over(l, true, NULL, text, len, what);
    if (!same && l->adopted > adopted) {
        fail_msg("keeper.json: %s: adopted what is not known to live", what);
    }
}

static void damaged_keeper(void **state)
{
    (void)state;
    struct left l = {.name = "keeper.json"};
    take_over(&l, true, NULL, NULL, 0, "nothing");
    assert_int_equal(l.adopted, 1);
    for (size_t cut = 0; cut < strlen(l.text); cut += 9) {
        damaged_facts(&l, l.text, cut, "cut");
    }
    garble_values(l.text, damaged_facts, &l);
    assert_true(l.followed > 30 && l.finished == 0 && l.adopted > 1);
    hf_free(l.text);
}

static void damaged_claim(void *user, const char *text, size_t len, const char *what)
{
    take_over(user, false, NULL, text, len, what);
}

/* The copy of the claim may be damaged or gone: its folder is this machine's all the same. */
static void a_damaged_claim(void **state)
{
    (void)state;
    struct left l = {.name = "claim.json"};
    take_over(&l, false, NULL, NULL, 0, "nothing");
    for (size_t cut = 0; cut < strlen(l.text); cut += 31) {
        char what[32];
        snprintf(what, sizeof(what), "cut at %zu", cut);
        damaged_claim(&l, l.text, cut, what);
    }
    assert_true(l.followed > 10 && l.finished == 0 && l.adopted == 0);
    size_t before = l.adopted;
    take_over(&l, true, NULL, "", 0, "empty, and its keeper lives");
    assert_int_equal(l.adopted, before + 1);
    hf_free(l.text);
}

/* The folder of another lineage's attempt, or of another machine's, is nobody's proof. */
static void whose_folder(void **state)
{
    (void)state;
    static const struct {
        enum origin origin;
        const char *claim; /* NULL: none; "": another nonce */
        bool recovered;
    } rows[] = {
        {HERE, NULL, true},      {REBOOTED, NULL, true},   {REBOOTED, "{", true},
        {ELSEWHERE, "{", false}, {ELSEWHERE, NULL, false}, {HERE, "", false},
        {REBOOTED, "", false},
    };
    for (size_t i = 0; i < HF_COUNT(rows); i++) {
        struct handoff_scene s;
        struct hf_err err;
        handoff_open(&s, NULL);
        HF_CLEANUP(hf_freep) char *dir = attempt_with_a_save(&s, false, NULL);
        HF_CLEANUP(hf_freep) char *path = hf_asprintf("%s/claim.json", dir);
        HF_CLEANUP(hf_freep) char *stored = bench_path(&s.bench, "store/job/attempts/000001.json");
        expect_rc(hf_fs_remove_tree(stored, &err), HF_OK, &err);
        handoff_claim_as(&s, 1, rows[i].origin);
        expect_rc(hf_fs_remove_tree(path, &err), HF_OK, &err);
        if (rows[i].claim != NULL && rows[i].claim[0] != '\0') {
            put_text(path, rows[i].claim);
        } else if (rows[i].claim != NULL) {
            struct hf_claim other = make_claim(1);
            expect_rc(hf_journal_put_claim(dir, &other, &err), HF_OK, &err);
            hf_claim_release(&other);
        }
        expect_rc(hf_handoff_claim(&s.in, &handoff_no_limit, &s.out, &err), HF_OK, &err);
        if (s.out.verdict != HF_HANDOFF_CLAIMED || s.out.recovered != rows[i].recovered) {
            fail_msg("row %zu: verdict %d, recovered %d: %s", i, s.out.verdict, s.out.recovered,
                     s.out.why);
        }
        handoff_close(&s);
    }
}

/* ---- saves.jsonl ---- */

struct journal {
    char *dir, *path, *head;
    size_t taken;
};

/* A damaged last line is a whole save or none; the save before it stands. */
static void damaged_line(void *user, const char *text, size_t len, const char *what)
{
    struct journal *j = user;
    struct hf_err err;
    struct hf_saved *s = NULL;
    uint64_t max = 0;
    put_text(j->path, j->head);
    expect_rc(hf_fs_append(j->path, (struct hf_span){text, len}, &err), HF_OK, &err);
    expect_rc(hf_fs_append(j->path, text_of("\n"), &err), HF_OK, &err);
    expect_rc(hf_journal_unshipped(j->dir, &s, &max, &err), HF_OK, &err);
    if (s == NULL) {
        fail_msg("%s: no save is left", what);
        return;
    }
    bool whole = s->roots.len > 0 && s->resume_path != NULL && s->reason != NULL &&
                 s->strategy != NULL && s->serial > 0 && max >= s->serial;
    if (!whole) {
        fail_msg("%s: half a save", what);
    }
    j->taken += s->step == 200;
    hf_saved_free(s);
}

static void a_damaged_journal(void **state)
{
    (void)state;
    struct handoff_scene s;
    handoff_open(&s, NULL);
    HF_CLEANUP(hf_freep) char *dir = attempt_with_a_save(&s, false, NULL);
    struct journal j = {.dir = dir, .path = hf_asprintf("%s/saves.jsonl", dir)};
    HF_CLEANUP(hf_freep) char *text = text_in(j.path);
    char *line = text + strspn(text, "\n");
    line[strcspn(line, "\n")] = '\0';
    /* The one before: the same save under a lower serial and step. */
    cJSON *before = cJSON_Parse(line);
    cJSON_ReplaceItemInObject(before, "serial", cJSON_CreateNumber(1));
    cJSON_ReplaceItemInObject(before, "step", cJSON_CreateNumber(100));
    HF_CLEANUP(hf_freep) char *print = hf_json_print(before);
    cJSON_Delete(before);
    j.head = hf_asprintf("\n%s\n\n", print);
    damaged_line(&j, line, strlen(line), "nothing");
    assert_int_equal(j.taken, 1);
    garble_cuts(line, damaged_line, &j);
    assert_int_equal(j.taken, 1);
    garble_bytes(line, damaged_line, &j);
    garble_values(line, damaged_line, &j);
    assert_true(j.taken > 100); /* where the damage is in a value that may be anything */
    hf_free(j.path);
    hf_free(j.head);
    handoff_close(&s);
}

/* A save that cannot be what was noted stops nobody from going on. */
static void followed_all_the_same(void *user, const char *text, size_t len, const char *what)
{
    struct handoff_scene s;
    struct hf_err err;
    size_t *n = user;
    handoff_open(&s, NULL);
    HF_CLEANUP(hf_freep) char *dir = attempt_with_a_save(&s, false, NULL);
    HF_CLEANUP(hf_freep) char *path = hf_asprintf("%s/saves.jsonl", dir);
    put_file(path, text, len);
    expect_rc(hf_fs_append(path, text_of("\n"), &err), HF_OK, &err);
    enum hf_rc rc = hf_handoff_claim(&s.in, &handoff_no_limit, &s.out, &err);
    if (rc != HF_OK || s.out.verdict != HF_HANDOFF_CLAIMED) {
        fail_msg("%s: verdict %d: %s", what, s.out.verdict, rc != HF_OK ? err.msg : s.out.why);
    }
    expect_vanished(&s);
    int64_t step = restored_step(&s);
    if (s.out.recovered ? step != s.out.recovered_step : step != -1) {
        fail_msg("%s: recovered %d, restored %jd", what, s.out.recovered, (intmax_t)step);
    }
    *n += s.out.recovered;
    handoff_close(&s);
}

static void saves_that_cannot_be(void **state)
{
    (void)state;
    struct handoff_scene s;
    handoff_open(&s, NULL);
    HF_CLEANUP(hf_freep) char *dir = attempt_with_a_save(&s, false, NULL);
    HF_CLEANUP(hf_freep) char *path = hf_asprintf("%s/saves.jsonl", dir);
    HF_CLEANUP(hf_freep) char *text = text_in(path);
    handoff_close(&s);
    char *line = text + strspn(text, "\n");
    line[strcspn(line, "\n")] = '\0';
    size_t recovered = 0;
    garble_values(line, followed_all_the_same, &recovered);
    assert_int_equal(recovered, 0); /* the folder that it names went with its scene */
    static const char *const odd[] = {"/", "relative", "/a/../b", "/a//b", "/proc/self/mem", ""};
    for (size_t i = 0; i < HF_COUNT(odd); i++) {
        HF_CLEANUP(hf_freep)
        char *one = hf_asprintf("{\"type\":\"saved\",\"serial\":5,\"request\":0,\"life\":0,"
                                "\"step\":1,\"world\":0,\"ranks\":[],\"reason\":\"r\","
                                "\"strategy\":\"s\",\"resume_path\":\"%s\",\"roots\":[\"%s\"],"
                                "\"held\":[\"%s\"],\"stamps\":[]}",
                                odd[i], odd[i], odd[i]);
        followed_all_the_same(&recovered, one, strlen(one), odd[i]);
    }
    assert_int_equal(recovered, 0);
}

/* ---- watched.json ---- */

struct watched {
    char *path;
    struct hf_stamps stamps;
    size_t loaded, refused;
};

static void damaged_memory(void *user, const char *text, size_t len, const char *what)
{
    struct watched *w = user;
    struct hf_err err;
    struct hf_knowns k = {0};
    put_file(w->path, text, len);
    enum hf_rc rc = hf_knowns_load(&k, w->path, &err);
    if (rc == HF_OK) {
        w->loaded++;
        if (k.len > 2) {
            fail_msg("%s: %zu entries", what, k.len);
        }
        /* What is not exactly as it was noted is new, and would be shipped. */
        struct hf_known *e = hf_known_find(&k, "/c/a");
        bool as_noted = e != NULL && e->n_prints == 2;
        hf_known_note(&k, "/c/a", 1, &w->stamps, 5);
        e = hf_known_find(&k, "/c/a");
        if (e->done && !as_noted) {
            fail_msg("%s: taken for old", what);
        }
    } else {
        w->refused++;
        must_say(err.msg, w->path);
    }
    hf_knowns_release(&k);
}

static void a_damaged_memory(void **state)
{
    (void)state;
    struct hf_err err;
    char *folder = temp_folder();
    struct watched w = {.path = hf_asprintf("%s/watched.json", folder)};
    struct hf_stamp two[] = {{"/c/a/x", 5, 7, 9}, {"/c/a/y", 6, 8, 10}};
    w.stamps = (struct hf_stamps){.items = two, .len = 2};
    struct hf_knowns k = {0};
    hf_known_note(&k, "/c/a", 1, &w.stamps, 3)->done = true;
    hf_known_note(&k, "/c/caf\xe9", 2, &w.stamps, 3)->done = true;
    hf_known_note(&k, "/c/undone", 2, &w.stamps, 3)->done = false;
    expect_rc(hf_knowns_save(&k, NULL, w.path, &err), HF_OK, &err);
    hf_knowns_release(&k);
    expect_rc(hf_knowns_load(&k, w.path, &err), HF_OK, &err);
    assert_int_equal(k.len, 2);
    assert_non_null(hf_known_find(&k, "/c/caf\xe9"));
    assert_true(hf_known_note(&k, "/c/a", 1, &w.stamps, 5)->done);
    two[1].size = 7;
    assert_false(hf_known_note(&k, "/c/a", 1, &w.stamps, 5)->done);
    two[1].size = 6;
    hf_knowns_release(&k);
    HF_CLEANUP(hf_freep) char *text = text_in(w.path);
    garble_cuts(text, damaged_memory, &w);
    assert_int_equal(w.loaded, 0);
    garble_bytes(text, damaged_memory, &w);
    garble_values(text, damaged_memory, &w);
    assert_true(w.loaded > 20 && w.refused > 200);
    expect_rc(hf_fs_remove_tree(w.path, &err), HF_OK, &err);
    expect_rc(hf_knowns_load(&k, w.path, &err), HF_ENOTFOUND, &err);
    expect_rc(hf_fs_remove_tree(folder, &err), HF_OK, &err);
    hf_free(w.path);
    hf_free(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_damaged_registry),   cmocka_unit_test(a_damaged_exit),
        cmocka_unit_test(asked_to_leave),       cmocka_unit_test(damaged_keeper),
        cmocka_unit_test(a_damaged_claim),      cmocka_unit_test(whose_folder),
        cmocka_unit_test(a_damaged_journal),    cmocka_unit_test(a_damaged_memory),
        cmocka_unit_test(saves_that_cannot_be),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
