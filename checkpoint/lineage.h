/* SPDX-License-Identifier: Apache-2.0
 *
 * One lineage: claim, seal, choose, decide, end, heartbeat (DESIGN: "Claim, seal, choose";
 * modelled in tests/model/store.pml). Blocking, worker threads only. Nothing here rests on a
 * listing being complete.
 */
#ifndef HF_CHECKPOINT_LINEAGE_H
#define HF_CHECKPOINT_LINEAGE_H

#include "checkpoint/manifest.h"
#include "cloud/store.h"

/* A run in an opened store. Immutable while in use; who opened it closes it. */
struct hf_crypt;
struct hf_unlock;
struct hf_run {
    struct hf_store *store;
    const char *name;
    struct hf_crypt *crypt; /* NULL: it is not encrypted */
};
/* Closes the store and forgets the keys; the name is borrowed. */
void hf_run_close(struct hf_run *run);

/* Opens or creates run.json (create-only) and probes the store's create-only put. HF_ENOTSUP:
 * the run was written by a newer format. *ret_created (may be NULL): it was not there before. */
enum hf_rc hf_run_open(const struct hf_run *run, const struct hf_call *c, bool *ret_created,
                       struct hf_err *err) HF_MUST_USE;
/* The same for a run that is encrypted, or is to be (`key` is what the user gives; NULL: it is
 * not): fills run->crypt. HF_EDENIED: the key is missing or wrong. HF_EINVAL: the run was begun
 * without encryption. HF_ECORRUPT: its run.json, which holds the key, is damaged or gone. */
enum hf_rc hf_run_begin(struct hf_run *run, const struct hf_unlock *key, const struct hf_call *c,
                        struct hf_err *err) HF_MUST_USE;
/* For who only looks: reads run.json and writes nothing. A run that has none is as if it were not
 * encrypted. */
enum hf_rc hf_run_unlock(struct hf_run *run, const struct hf_unlock *key, const struct hf_call *c,
                         struct hf_err *err) HF_MUST_USE;

/* Reads one claim; HF_ENOTFOUND: the number is free. */
enum hf_rc hf_lineage_get_claim(const struct hf_run *run, const struct hf_call *c, uint32_t attempt,
                                struct hf_claim *ret, struct hf_err *err) HF_MUST_USE;
/* The same for a lower attempt, whose claim must be there. One that is damaged stops nobody:
 * *ret_damaged, and *ret is what the attempt's base record still tells (kind run; nonce "" where
 * that is not known; fresh if it restored nothing). */
enum hf_rc hf_lineage_need_claim(const struct hf_run *run, const struct hf_call *c,
                                 uint32_t attempt, struct hf_claim *ret, bool *ret_damaged,
                                 struct hf_err *err) HF_MUST_USE;
/* The number of the highest claim, 0: none. */
enum hf_rc hf_lineage_top(const struct hf_run *run, const struct hf_call *c, uint32_t *ret_attempt,
                          struct hf_err *err) HF_MUST_USE;
/* The highest claim: walks up by GET from a listing's hint. *ret_attempt 0: none (then *ret is
 * zeroed). */
enum hf_rc hf_lineage_highest(const struct hf_run *run, const struct hf_call *c,
                              uint32_t *ret_attempt, struct hf_claim *ret,
                              struct hf_err *err) HF_MUST_USE;

/* Wins claim->attempt or says HF_EEXISTS. The number below must be claimed already (HF_EINVAL). */
enum hf_rc hf_lineage_claim(const struct hf_run *run, const struct hf_call *c,
                            const struct hf_claim *claim, struct hf_err *err) HF_MUST_USE;

/* Seals every lower attempt of kind run: walks its numbers, goes on over manifests and owner's
 * aborts, puts a seal at the first undecided one. Idempotent. Required before choose. */
enum hf_rc hf_lineage_seal(const struct hf_run *run, const struct hf_call *c,
                           const struct hf_claim *mine, struct hf_err *err) HF_MUST_USE;

/* After the seal: the newest manifest of the highest lower attempt that has one, `skip` of them
 * passed over (0 at first; +1 after each that proved damaged: back along parents, then older).
 * A lower attempt's manifest counts only if its nonce equals its claim's; a retired one never
 * does. Nothing older than the newest `fresh` claim, mine included, is looked at. A seal further
 * down that is lost or damaged is put again.
 * HF_ENOTFOUND: nothing (left) to restore. HF_ECORRUPT: the one to choose is there and cannot be
 * read, twice: it is damaged, so say so and skip it too. *ret is owned by the caller. */
enum hf_rc hf_lineage_choose(const struct hf_run *run, const struct hf_call *c,
                             const struct hf_claim *mine, uint32_t skip, struct hf_manifest *ret,
                             struct hf_err *err) HF_MUST_USE;

/* Records what was chosen (base.json): evidence, not rule. m == NULL: "none". A record that is
 * there already stands. */
enum hf_rc hf_lineage_put_base(const struct hf_run *run, const struct hf_call *c,
                               const struct hf_claim *mine, const struct hf_manifest *m,
                               struct hf_err *err) HF_MUST_USE;

/* What an attempt has restored, by its own record; attempt 0: nothing. HF_ENOTFOUND, HF_ECORRUPT:
 * nobody knows. */
struct hf_base {
    char nonce[HF_NONCE_STRLEN]; /* the claim's */
    uint32_t attempt, number;
};
enum hf_rc hf_lineage_get_base(const struct hf_run *run, const struct hf_call *c, uint32_t attempt,
                               struct hf_base *ret, struct hf_err *err) HF_MUST_USE;

/* Puts the decision about (mine->attempt, number): commit or abort. HF_EEXISTS: sealed or
 * decided otherwise: the owner stops for ever. Re-reads whether a higher claim exists first
 * (HF_EEXISTS as well). HF_EAGAIN: an earlier try of ours, of unknown outcome and with other
 * bytes, has been stored after all: the number is used up, by us. */
enum hf_rc hf_lineage_decide(const struct hf_run *run, const struct hf_call *c,
                             const struct hf_claim *mine, uint32_t number,
                             const struct hf_decision *d, struct hf_err *err) HF_MUST_USE;
/* The first undecided number of an attempt, from 1, by GET. *ret_sealed: it holds a seal
 * (number then is the seal's). */
enum hf_rc hf_lineage_next_number(const struct hf_run *run, const struct hf_call *c,
                                  uint32_t attempt, uint32_t *ret_number, bool *ret_sealed,
                                  struct hf_err *err) HF_MUST_USE;
enum hf_rc hf_lineage_get_decision(const struct hf_run *run, const struct hf_call *c,
                                   uint32_t attempt, uint32_t number, struct hf_decision *ret,
                                   struct hf_err *err) HF_MUST_USE;
bool hf_lineage_is_retired(const struct hf_run *run, const struct hf_call *c, uint32_t attempt,
                           uint32_t number);

/* What a heartbeat tells. The counter alone is evidence of life; the rest is the writer's word, for
 * people who look from another machine. */
struct hf_beat {
    uint64_t counter;
    uint64_t every_ms;  /* how often one is due; 0: not told */
    int64_t at_wall_ms; /* by the writer's clock; 0: not told */
    char state[16];     /* of its job machine; "": not told */
    int64_t step;       /* -1: unknown */
};

/* The heartbeat: overwrites attempts/N.alive, then looks whether N+1 is claimed.
 * *ret_superseded true: stop. */
enum hf_rc hf_lineage_beat(const struct hf_run *run, const struct hf_call *c,
                           const struct hf_claim *mine, const struct hf_beat *beat,
                           bool *ret_superseded, struct hf_err *err) HF_MUST_USE;
/* The newest heartbeat that claim `of` put; HF_ENOTFOUND: none. */
enum hf_rc hf_lineage_get_beat(const struct hf_run *run, const struct hf_call *c,
                               const struct hf_claim *of, struct hf_beat *ret,
                               struct hf_err *err) HF_MUST_USE;
enum hf_rc hf_lineage_superseded(const struct hf_run *run, const struct hf_call *c,
                                 uint32_t attempt, bool *ret, struct hf_err *err) HF_MUST_USE;

/* Records the end, create-only, owner alone. An equal-nonce record that is there already is
 * success. */
enum hf_rc hf_lineage_end(const struct hf_run *run, const struct hf_call *c, uint32_t attempt,
                          const struct hf_end *end, struct hf_err *err) HF_MUST_USE;
enum hf_rc hf_lineage_get_end(const struct hf_run *run, const struct hf_call *c, uint32_t attempt,
                              struct hf_end *ret,
                              struct hf_err *err) HF_MUST_USE; /* HF_ENOTFOUND: none */

/* Judges an attempt by its heartbeat on our own clock: at least three successful equal reads
 * over limit_ms and one successful write of our own. Blocks that long at most. *ret_dead false:
 * it moved (or an end appeared: look again). Failed reads prove nothing and lengthen the wait
 * up to 2 * limit_ms, then HF_ETIMEOUT. */
enum hf_rc hf_lineage_judge(const struct hf_run *run, const struct hf_call *c, uint32_t attempt,
                            uint64_t limit_ms, bool *ret_dead, struct hf_err *err) HF_MUST_USE;

/* Every decision, ascending, for listings. Stops when `each` says false. A decision that cannot
 * be parsed is shown as damaged, with an empty abort in its place. */
struct hf_lineage_row {
    uint32_t attempt, number;
    const struct hf_decision *decision; /* never NULL; valid during the call */
    bool retired;
    bool damaged;
    uint64_t stored_bytes; /* of the decision object */
};
typedef bool hf_lineage_row_fn(void *user, const struct hf_lineage_row *row);
enum hf_rc hf_lineage_walk(const struct hf_run *run, const struct hf_call *c,
                           hf_lineage_row_fn *each, void *user, struct hf_err *err) HF_MUST_USE;

#endif
