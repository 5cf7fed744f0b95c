/* SPDX-License-Identifier: Apache-2.0
 *
 * The drill's pure parts: event lines into what was told, the judgement with each of its honest
 * texts, and the table, where what cannot be known is "unknown".
 */
#include "base/prelude.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "supervisor/drill.h"

#define S HF_SEC

/* Lines of a story, told one after the other. */
static void tell(struct hf_told *t, const char *const *lines, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        size_t len = strlen(lines[i]);
        char *exact = malloc(len);
        assert_non_null(exact);
        memcpy(exact, lines[i], len); /* no NUL behind it */
        hf_told_line(t, exact, len);
        free(exact);
    }
}

#define EV(ns, name, rest) \
    "{\"ts\":\"x\",\"ns\":\"" ns "\",\"attempt\":2,\"event\":\"" name "\"" rest "}"

static void a_whole_attempt(void **state)
{
    (void)state;
    static const char *const lines[] = {
        EV("10", "claimed", ",\"nonce\":\"0123456789abcdef0123456789abcdef\""),
        EV("11", "restored", ",\"any\":true,\"step\":40"),
        EV("12", "command-started", ""),
        EV("13", "joined", ""),
        EV("14", "resumed", ",\"step\":41"),
        EV("15", "joined", ""),
        EV("16", "first-step", ",\"step\":41"),
        EV("17", "verdict", ",\"kind\":\"durable\",\"step\":50,\"bytes\":1000,\"took_ms\":7"),
        EV("20", "notice", ""),
        EV("21", "notice", ""),
        EV("22", "request", ""),
        EV("23", "saved", ",\"step\":61"),
        EV("24", "request-ended", ",\"how\":\"saved\""),
        EV("25", "verdict", ",\"kind\":\"local\",\"step\":61,\"bytes\":2000,\"took_ms\":9"),
        EV("26", "command-exited", ",\"exit_code\":75"),
        EV("27", "attempt-ended", ",\"outcome\":\"preempted\",\"last_step\":61"),
    };
    struct hf_told t;
    hf_told_init(&t);
    assert_int_equal(t.restored_step, -1);
    assert_int_equal(t.exit_code, -1);
    tell(&t, lines, HF_COUNT(lines));
    assert_int_equal(t.attempt, 2);
    assert_string_equal(t.nonce, "0123456789abcdef0123456789abcdef");
    assert_true(t.restored_any && t.committed && !t.done && !t.unprotected && !t.found);
    assert_int_equal(t.restored_step, 40);
    assert_int_equal(t.claimed_ns, 10);
    assert_int_equal(t.started_ns, 12);
    assert_int_equal(t.joined_ns, 13);
    assert_int_equal(t.resumed_step, 41);
    assert_int_equal(t.first_step_ns, 16);
    assert_int_equal(t.notice_ns, 20);
    assert_int_equal(t.request_ns, 22);
    assert_int_equal(t.saved_step, 61);
    assert_string_equal(t.request_how, "saved");
    assert_string_equal(t.request_why, "");
    assert_string_equal(t.verdict, "local");
    assert_int_equal(t.committed_ns, 25);
    assert_int_equal(t.committed_step, 61);
    assert_int_equal(t.verdict_bytes, 2000);
    assert_int_equal(t.exit_code, 75);
    assert_int_equal(t.exit_signal, 0);
    assert_string_equal(t.outcome, "preempted");
    assert_int_equal(t.last_step, 61);
    assert_int_equal(t.ended_ns, 27);
    /* The next claim starts a new tale. */
    static const char *const next[] = {
        "{\"ns\":\"30\",\"attempt\":3,\"event\":\"claimed\",\"nonce\":\"ff\"}",
        EV("31", "done", ""), /* a straggler of attempt 2 */
        "{\"ns\":\"32\",\"attempt\":3,\"event\":\"found\"}",
        "{\"ns\":\"33\",\"attempt\":3,\"event\":\"unprotected\"}",
    };
    tell(&t, next, HF_COUNT(next));
    assert_int_equal(t.attempt, 3);
    assert_true(!t.committed && !t.done && t.found && t.unprotected);
    assert_int_equal(t.last_step, -1);
}

static void requests_that_fail(void **state)
{
    (void)state;
    static const struct {
        const char *rest, *how, *why;
    } rows[] = {
        {",\"how\":\"expired\",\"why\":\"2 of 4 ranks\"", "expired", "2 of 4 ranks"},
        {",\"how\":\"canceled\"", "canceled", "no answer"},
        {",\"how\":\"canceled\",\"why\":null", "canceled", "no answer"},
        {"", "", "no answer"},
        {",\"how\":\"saved\",\"why\":\"x\"", "saved", ""},
    };
    for (size_t i = 0; i < HF_COUNT(rows); i++) {
        struct hf_told t;
        hf_told_init(&t);
        t.attempt = 2;
        HF_CLEANUP(hf_freep)
        char *line = hf_asprintf("%.*s%s}", (int)strlen(EV("9", "request-ended", "")) - 1,
                                 EV("9", "request-ended", ""), rows[i].rest);
        const char *const lines[] = {EV("8", "request", ""), line};
        tell(&t, lines, 2);
        assert_string_equal(t.request_how, rows[i].how);
        assert_string_equal(t.request_why, rows[i].why);
        /* A new request forgets it. */
        tell(&t, lines, 1);
        assert_string_equal(t.request_how, "");
        assert_string_equal(t.request_why, "");
    }
}

static void a_failed_save_keeps_the_last_commit(void **state)
{
    (void)state;
    static const char *const lines[] = {
        EV("1", "claimed", ""),
        EV("2", "verdict", ",\"kind\":\"durable\",\"step\":5,\"bytes\":10"),
        EV("3", "verdict", ",\"kind\":\"stale\",\"step\":5,\"bytes\":10,\"why\":\"disk full\""),
        EV("4", "command-exited", ",\"exit_code\":null,\"signal\":9"),
    };
    struct hf_told t;
    hf_told_init(&t);
    tell(&t, lines, HF_COUNT(lines));
    assert_string_equal(t.verdict, "stale");
    assert_string_equal(t.verdict_why, "disk full");
    assert_int_equal(t.committed_ns, 2);
    assert_int_equal(t.committed_step, 5);
    assert_int_equal(t.exit_code, -1);
    assert_int_equal(t.exit_signal, 9);
}

/* Nothing of these changes anything, or overruns anything. */
static void hostile_lines(void **state)
{
    (void)state;
    static const char *const lines[] = {
        " ",
        "{",
        "null",
        "7",
        "[]",
        "\"claimed\"",
        "{}",
        "{\"event\":7,\"attempt\":2}",
        "{\"event\":\"saved\"}",
        "{\"event\":\"saved\",\"attempt\":\"2\",\"step\":5}",
        "{\"event\":\"saved\",\"attempt\":2.5,\"step\":5}",
        "{\"event\":\"saved\",\"attempt\":4294967298,\"step\":5}",
        EV("5", "unheard-of", ",\"step\":5"),
        EV("5", "saved", ",\"step\":5") "x",
    };
    struct hf_told t;
    struct hf_told before;
    hf_told_init(&t);
    t.attempt = 2;
    memcpy(&before, &t, sizeof(t));
    tell(&t, lines, HF_COUNT(lines));
    assert_memory_equal(&before, &t, sizeof(t));
    hf_told_line(&t, "", 0);
    assert_memory_equal(&before, &t, sizeof(t));
    /* Long texts are cut. */
    char text[1000];
    memset(text, 'w', sizeof(text) - 1);
    text[sizeof(text) - 1] = '\0';
    HF_CLEANUP(hf_freep)
    char *line = hf_asprintf("{\"attempt\":2,\"event\":\"verdict\",\"kind\":\"%s\",\"why\":\"%s\"}",
                             text, text);
    hf_told_line(&t, line, strlen(line));
    assert_int_equal(strlen(t.verdict), sizeof(t.verdict) - 1);
    assert_int_equal(strlen(t.verdict_why), sizeof(t.verdict_why) - 1);
    assert_false(t.committed);
}

/* A round in which all went well: a notice at 100 s, a save at 105 s, a resume behind it. */
static void good_round(struct hf_round *r)
{
    *r = (struct hf_round){
        .had_notice = true,
        .notice_set_ns = 99 * S,
        .deadline_ns = 130 * S,
        .killed_ns = 112 * S,
        .last_step = 63,
        .after_spawned_ns = 120 * S,
    };
    hf_told_init(&r->before);
    hf_told_init(&r->after);
    struct hf_told *b = &r->before;
    b->attempt = 1;
    b->notice_ns = 100 * S;
    b->request_ns = 100 * S;
    b->saved_ns = 103 * S;
    b->committed = true;
    b->committed_ns = 105 * S;
    b->committed_step = 60;
    b->verdict_bytes = 4096;
    snprintf(b->verdict, sizeof(b->verdict), "durable");
    snprintf(b->request_how, sizeof(b->request_how), "saved");
    b->exited_ns = 110 * S;
    b->exit_code = 75;
    struct hf_told *a = &r->after;
    a->attempt = 2;
    a->restored_any = true;
    a->restored_step = 60;
    a->resumed_ns = 122 * S;
    a->resumed_step = 61;
    a->first_step = 61;
    a->first_step_ns = 123 * S;
}

static void no_commit(struct hf_round *r)
{
    r->before.committed = false;
    r->before.committed_ns = 0;
    r->before.committed_step = -1;
    r->before.verdict[0] = '\0';
}

/* The newest commit is one from before the notice. */
static void old_commit(struct hf_round *r)
{
    r->before.committed_ns = 50 * S;
    r->before.committed_step = 30;
    r->after.restored_step = 30;
    r->after.resumed_step = 31;
    r->after.first_step = 31;
}

/* It died between its commit and the line that tells of it. */
static void untold_commit(struct hf_round *r)
{
    r->before.committed_step = 50;
}

static void spoil_unseen(struct hf_round *r)
{
    r->before.notice_ns = 0;
}

static void spoil_exit0(struct hf_round *r)
{
    old_commit(r);
    r->before.exit_code = 0;
    r->before.saved_ns = 0;
}

static void spoil_expired(struct hf_round *r)
{
    old_commit(r);
    snprintf(r->before.request_how, sizeof(r->before.request_how), "expired");
    snprintf(r->before.request_why, sizeof(r->before.request_why), "1 of 8 ranks answered");
}

static void spoil_canceled(struct hf_round *r)
{
    old_commit(r);
    snprintf(r->before.request_how, sizeof(r->before.request_how), "canceled");
    snprintf(r->before.request_why, sizeof(r->before.request_why), "a rank has not joined");
}

static void spoil_unshipped(struct hf_round *r)
{
    old_commit(r);
}

static void spoil_unanswered(struct hf_round *r)
{
    old_commit(r);
    r->before.saved_ns = 40 * S;
    r->before.request_how[0] = '\0';
}

static void spoil_last_save(struct hf_round *r)
{
    snprintf(r->before.verdict, sizeof(r->before.verdict), "stale");
    snprintf(r->before.verdict_why, sizeof(r->before.verdict_why), "the store is full");
}

static void spoil_late(struct hf_round *r)
{
    r->before.committed_ns = 131 * S;
}

static void spoil_nothing_saved(struct hf_round *r)
{
    no_commit(r);
    r->before.saved_ns = 0;
    r->before.request_ns = 0;
    r->after.restored_any = false;
    r->after.restored_step = -1;
}

static void spoil_no_next(struct hf_round *r)
{
    r->after.attempt = 0;
}

static void spoil_not_restored(struct hf_round *r)
{
    r->had_notice = false;
    no_commit(r);
    r->after.restored_any = false;
}

static void spoil_older(struct hf_round *r)
{
    r->after.restored_step = 30;
}

static void spoil_no_step(struct hf_round *r)
{
    r->after.resumed_ns = 0;
    r->after.first_step = -1;
}

static void spoil_resume(struct hf_round *r)
{
    r->after.resumed_step = 0;
}

static void spoil_resume_same(struct hf_round *r)
{
    r->after.resumed_step = 60;
}

static void spoil_first_step(struct hf_round *r)
{
    r->after.resumed_ns = 0;
    r->after.first_step = 0;
}

/* These are as good. */
static void fine(struct hf_round *r)
{
    (void)r;
}

static void fine_without_notice(struct hf_round *r)
{
    r->had_notice = false;
    old_commit(r);
    r->before.notice_ns = 0;
}

static void fine_done(struct hf_round *r)
{
    r->before.exit_code = 0;
    r->before.done = true;
}

static void fine_from_the_base(struct hf_round *r)
{
    r->had_notice = false;
    no_commit(r);
    r->before.restored_any = true;
    r->before.restored_step = 60;
}

static void fine_first_step_only(struct hf_round *r)
{
    r->after.resumed_ns = 0;
}

static void fine_exit0_after_saving(struct hf_round *r)
{
    r->before.exit_code = 0;
}

static const struct {
    const char *what;
    void (*spoil)(struct hf_round *r);
    const char *why;  /* "": PASS */
    bool any_program; /* judged so without a hook, too */
} verdicts[] = {
    {"all well", fine, "", true},
    {"no notice, the interval's checkpoint", fine_without_notice, "", true},
    {"said done on the notice", fine_done, "", true},
    {"nothing new, the base stands", fine_from_the_base, "", true},
    {"no run.resume(), but right", fine_first_step_only, "", true},
    {"saved, then exit 0", fine_exit0_after_saving, "", true},
    {"unseen", spoil_unseen, "the notice was not seen: look at the metadata endpoint", true},
    {"exit 0", spoil_exit0, "the command exited 0 on the notice without saving", true},
    {"expired", spoil_expired,
     "it saves too slowly for the notice: 1 of 8 ranks answered; save less", true},
    {"canceled", spoil_canceled, "the save was not made: a rank has not joined", true},
    {"unshipped", spoil_unshipped, "the save was made but not shipped before the machine died",
     true},
    {"unanswered", spoil_unanswered, "it saves too slowly for the notice: no save", true},
    {"a failed last save", spoil_last_save, "the last save failed: the store is full", true},
    {"late", spoil_late, "the save was committed after the deadline", true},
    {"nothing saved", spoil_nothing_saved,
     "nothing was saved: call holdfast's library in the training loop, or name the folder", true},
    {"no next attempt", spoil_no_next, "no next attempt was started", true},
    {"nothing restored", spoil_not_restored, "nothing was restored: no checkpoint had been", true},
    {"an older one", spoil_older,
     "the checkpoint of step 30 was restored, not the newest one of step 60", true},
    {"never a step", spoil_no_step, "the next attempt never reached a step", false},
    {"from the start", spoil_resume,
     "it saves but does not resume: it went on at step 0 with a checkpoint of step 60; load it",
     false},
    {"the saved step again", spoil_resume_same,
     "it saves but does not resume: it went on at step 60 with a checkpoint of step 60", false},
    {"first step too low", spoil_first_step,
     "it saves but does not resume: its first step was 0 with a checkpoint of step 60; call",
     false},
};

static void judgements(void **state)
{
    (void)state;
    for (size_t i = 0; i < HF_COUNT(verdicts); i++) {
        for (int hooked = 0; hooked < 2; hooked++) {
            struct hf_round r;
            good_round(&r);
            verdicts[i].spoil(&r);
            hf_round_judge_save(&r);
            hf_round_judge_resume(&r, hooked == 1);
            bool judged = hooked == 1 || verdicts[i].any_program;
            const char *want = judged ? verdicts[i].why : "";
            bool right =
                want[0] == '\0' ? r.fail[0] == '\0' : strncmp(r.fail, want, strlen(want)) == 0;
            if (!right) {
                fail_msg("%s, hooked %d: '%s'", verdicts[i].what, hooked, r.fail);
            }
        }
    }
}

/* Two things went wrong: the first is told, and a reason that was there stands. */
static void the_first_reason_is_kept(void **state)
{
    (void)state;
    struct hf_round r;
    good_round(&r);
    spoil_unseen(&r);
    spoil_no_next(&r);
    hf_round_judge_save(&r);
    hf_round_judge_resume(&r, true);
    assert_non_null(strstr(r.fail, "not seen"));
    snprintf(r.fail, sizeof(r.fail), "earlier");
    hf_round_judge_save(&r);
    hf_round_judge_resume(&r, true);
    assert_string_equal(r.fail, "earlier");
}

/* Row and column of the printed table, without the blanks before it; "" when there is none. */
static void cell(const char *table, const char *row, size_t column, char out[32])
{
    const char *line = strstr(table, row);
    assert_non_null(line);
    out[0] = '\0';
    const char *at = line + 20 + column * 15;
    const char *end = strchr(line, '\n');
    if (end == NULL || at + 15 > end) {
        return;
    }
    while (*at == ' ') {
        at++;
    }
    snprintf(out, 32, "%.*s", (int)(line + 20 + (column + 1) * 15 - at), at);
}

static void table(void **state)
{
    (void)state;
    struct hf_round rounds[3];
    good_round(&rounds[0]);
    rounds[1] = (struct hf_round){.had_notice = true, .last_step = -1};
    hf_told_init(&rounds[1].before);
    hf_told_init(&rounds[1].after);
    good_round(&rounds[2]);
    fine_without_notice(&rounds[2]);
    static const struct {
        const char *row, *cells[3];
    } rows[] = {
        {"preemption", {"1", "2", "3"}},
        {"notice seen after", {"1000 ms", "unknown", "no notice"}},
        {"request answered", {"3000 ms", "unknown", "not asked"}},
        {"bytes durable", {"4096", "unknown", "4096"}},
        {"seconds to spare", {"25.0", "unknown", "no notice"}},
        {"second save", {"none", "none", "none"}},
        {"step saved", {"60", "unknown", "30"}},
        {"step resumed at", {"61", "unknown", "31"}},
        {"steps lost", {"3", "unknown", "33"}},
        {"time to first step", {"3000 ms", "unknown", "3000 ms"}},
    };
    char *text = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);
    assert_non_null(out);
    hf_drill_table(out, rounds, 3);
    assert_int_equal(fclose(out), 0);
    for (size_t i = 0; i < HF_COUNT(rows); i++) {
        for (size_t c = 0; c < 3; c++) {
            char found[32];
            cell(text, rows[i].row, c, found);
            if (strcmp(found, rows[i].cells[c]) != 0) {
                fail_msg("%s, column %zu: '%s'\n%s", rows[i].row, c, found, text);
            }
        }
    }
    free(text);
}

/* Where numbers would come out wrong, they do not come out. */
static void table_edges(void **state)
{
    (void)state;
    static const struct {
        void (*spoil)(struct hf_round *r);
        const char *row, *cell;
    } rows[] = {
        {spoil_late, "seconds to spare", "-1.0"},
        {old_commit, "seconds to spare", "unknown"},
        {spoil_unanswered, "request answered", "unknown"},
        {spoil_nothing_saved, "bytes durable", "unknown"},
        {spoil_nothing_saved, "step saved", "unknown"},
        {fine_from_the_base, "step saved", "60"},
        {untold_commit, "step saved", "60"},
        {spoil_no_step, "step resumed at", "unknown"},
        {spoil_no_step, "steps lost", "unknown"},
        {fine_first_step_only, "step resumed at", "61"},
    };
    for (size_t i = 0; i < HF_COUNT(rows); i++) {
        struct hf_round r;
        good_round(&r);
        rows[i].spoil(&r);
        char *text = NULL;
        size_t size = 0;
        FILE *out = open_memstream(&text, &size);
        assert_non_null(out);
        hf_drill_table(out, &r, 1);
        assert_int_equal(fclose(out), 0);
        char found[32];
        cell(text, rows[i].row, 0, found);
        if (strcmp(found, rows[i].cell) != 0) {
            fail_msg("row %zu, %s: '%s'", i, rows[i].row, found);
        }
        free(text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_whole_attempt),
        cmocka_unit_test(requests_that_fail),
        cmocka_unit_test(a_failed_save_keeps_the_last_commit),
        cmocka_unit_test(hostile_lines),
        cmocka_unit_test(judgements),
        cmocka_unit_test(the_first_reason_is_kept),
        cmocka_unit_test(table),
        cmocka_unit_test(table_edges),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
