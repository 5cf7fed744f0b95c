/* SPDX-License-Identifier: Apache-2.0
 *
 * For the tests of supervisor/handoff: a run in a store, a state folder, and attempts of this
 * machine, of its last boot, and of another machine.
 */
#ifndef HF_TESTS_SUPPORT_HANDOFF_H
#define HF_TESTS_SUPPORT_HANDOFF_H

#include "base/prelude.h"

#include "supervisor/handoff.h"
#include "tests/unit/support_checkpoint.h"

#define HANDOFF_DEAD_MS 300

struct handoff_scene {
    struct bench bench;
    struct hf_rundir dir;
    char boot_id[40];
    const char *argv[4];
    struct hf_handoff_in in;
    struct hf_handoff_out out;
    struct hf_claim last; /* attempt 1, once it is claimed */
};

/* Where an attempt comes from. */
enum origin { HERE, REBOOTED, ELSEWHERE };

extern const struct hf_call handoff_no_limit;

void handoff_open(struct handoff_scene *s, struct hf_store *store_taken); /* NULL: file:// */
void handoff_close(struct handoff_scene *s);

/* Claims that attempt with the scene's command, as a process that is gone; it is s->last. */
void handoff_claim_as(struct handoff_scene *s, uint32_t attempt, enum origin origin);
/* Makes the folder of s->last with its claim, as this state folder has it; owned by the caller. */
char *handoff_journal(struct handoff_scene *s);
void handoff_end_as(struct handoff_scene *s, const char *outcome);

/* Claims into s->out; the verdict must be this one. */
void handoff_expect(struct handoff_scene *s, enum hf_handoff_verdict want);
uint32_t handoff_highest(const struct handoff_scene *s); /* claim in the store */
void handoff_expect_end(const struct handoff_scene *s, uint32_t attempt, const char *outcome,
                        int64_t exit);

#endif
