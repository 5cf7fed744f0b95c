/* SPDX-License-Identifier: Apache-2.0
 *
 * A run in a store with attempts that came before, for the tests of supervisor/handoff.
 */
#include "base/prelude.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/fsx.h"
#include "base/hash.h"
#include "supervisor/journal.h"
#include "supervisor/tree.h"
#include "tests/unit/support_conform_store.h"
#include "tests/unit/support_handoff.h"

const struct hf_call handoff_no_limit = {.op = NULL};

void handoff_open(struct handoff_scene *s, struct hf_store *store_taken)
{
    struct hf_err err;
    *s = (struct handoff_scene){.argv = {"train", "--lr=1", NULL}};
    if (store_taken != NULL) {
        bench_take(&s->bench, store_taken);
    } else {
        bench_open(&s->bench, NULL);
    }
    HF_CLEANUP(hf_freep) char *state = bench_path(&s->bench, "state");
    expect_rc(hf_rundir_open(&s->dir, state, "job", NULL, &err), HF_OK, &err);
    expect_rc(hf_boot_id(s->boot_id, &err), HF_OK, &err);
    s->in = (struct hf_handoff_in){
        .dir = &s->dir,
        .run = &s->bench.run,
        .argv = s->argv,
        .folder = "/home/someone",
        .provider = "local",
        .host = "here",
        .boot_id = s->boot_id,
        .pid_ns = hf_pid_ns(),
        .dead_after_ms = HANDOFF_DEAD_MS,
        .block_bytes = 4096,
        .lanes = 2,
    };
}

void handoff_close(struct handoff_scene *s)
{
    hf_handoff_out_release(&s->out);
    hf_claim_release(&s->last);
    hf_rundir_release(&s->dir);
    bench_close(&s->bench);
}

void handoff_claim_as(struct handoff_scene *s, uint32_t attempt, enum origin origin)
{
    struct hf_err err;
    hf_claim_release(&s->last);
    struct hf_claim c = {.attempt = attempt, .kind = HF_CLAIM_RUN, .pid = 1, .pid_start = 12345};
    hf_random_hex(16, c.nonce);
    for (size_t i = 0; s->argv[i] != NULL; i++) {
        hf_strv_add(&c.command, s->argv[i]);
    }
    c.folder = hf_strdup("/home/someone");
    c.host = hf_strdup(origin == ELSEWHERE ? "there" : "here");
    c.boot_id = hf_strdup(origin == HERE ? s->boot_id : "another-boot");
    c.pid_ns = hf_pid_ns();
    c.provider = hf_strdup("local");
    expect_rc(hf_lineage_claim(&s->bench.run, NULL, &c, &err), HF_OK, &err);
    s->last = c;
}

char *handoff_journal(struct handoff_scene *s)
{
    struct hf_err err;
    char *dir = hf_rundir_attempt(&s->dir, s->last.attempt);
    expect_rc(hf_fs_mkdirs(dir, 0700, &err), HF_OK, &err);
    expect_rc(hf_journal_put_claim(dir, &s->last, &err), HF_OK, &err);
    return dir;
}

void handoff_end_as(struct handoff_scene *s, const char *outcome)
{
    struct hf_err err;
    HF_CLEANUP(hf_freep) char *text = hf_strdup(outcome);
    char replacement[] = "unknown";
    struct hf_end end = {
        .outcome = text, .exit_code = 1, .replacement = replacement, .last_step = -1};
    memcpy(end.nonce, s->last.nonce, sizeof(end.nonce));
    expect_rc(hf_lineage_end(&s->bench.run, NULL, s->last.attempt, &end, &err), HF_OK, &err);
}

static const char *const verdict_names[] = {"error",    "claimed", "adopt",
                                            "finished", "differs", "busy"};

void handoff_expect(struct handoff_scene *s, enum hf_handoff_verdict want)
{
    struct hf_err err;
    hf_handoff_out_release(&s->out);
    expect_rc(hf_handoff_claim(&s->in, &handoff_no_limit, &s->out, &err), HF_OK, &err);
    if (s->out.verdict != want) {
        fail_msg("%s in place of %s: %s", verdict_names[s->out.verdict], verdict_names[want],
                 s->out.why);
    }
}

uint32_t handoff_highest(const struct handoff_scene *s)
{
    struct hf_err err;
    uint32_t n = 0;
    struct hf_claim c = {.attempt = 0};
    expect_rc(hf_lineage_highest(&s->bench.run, NULL, &n, &c, &err), HF_OK, &err);
    hf_claim_release(&c);
    return n;
}

void handoff_expect_end(const struct handoff_scene *s, uint32_t attempt, const char *outcome,
                        int64_t exit)
{
    struct hf_err err;
    struct hf_end end = {0};
    expect_rc(hf_lineage_get_end(&s->bench.run, NULL, attempt, &end, &err), HF_OK, &err);
    assert_string_equal(end.outcome, outcome);
    assert_int_equal(end.exit_code, exit);
    hf_end_release(&end);
}
