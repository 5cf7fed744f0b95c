/* SPDX-License-Identifier: Apache-2.0
 *
 * Hand-off: from whatever stands in the store to a claimed attempt with its files restored. Two
 * blocking steps for a worker: claim (recovering what a dead attempt of this machine had not
 * shipped), and restore (seal, choose, verify, exchange). The heartbeat starts between them.
 * Inputs are borrowed and do not change while a step runs; outputs are owned by the caller.
 */
#ifndef HF_SUPERVISOR_HANDOFF_H
#define HF_SUPERVISOR_HANDOFF_H

#include "base/prelude.h"

#include "checkpoint/restore.h"
#include "checkpoint/save.h"
#include "supervisor/rundir.h"

enum hf_handoff_verdict {
    HF_HANDOFF_CLAIMED = 1, /* out->claim is ours */
    HF_HANDOFF_ADOPT,    /* attempt out->last lives under its keeper here, without a supervisor */
    HF_HANDOFF_FINISHED, /* the run is finished: nothing to do */
    HF_HANDOFF_DIFFERS,  /* the unfinished run has another command: out->last shows it */
    HF_HANDOFF_BUSY      /* attempt out->last lives: out->why says where and since when */
};

struct hf_handoff_in {
    const struct hf_rundir *dir;
    const struct hf_run *run; /* opened */
    const char *const *argv;  /* NULL-terminated */
    const char *folder;       /* absolute working folder */
    const char *provider;
    const char *host;
    const char *boot_id;
    uint64_t pid_ns;
    bool resume, fresh; /* either: a last claim that is damaged is passed over */
    uint64_t dead_after_ms;
    uint32_t block_bytes, lanes;
};

struct hf_handoff_out {
    enum hf_handoff_verdict verdict;
    struct hf_claim claim; /* CLAIMED, ADOPT */
    struct hf_claim last;  /* the highest claim found; attempt 0: none */
    bool recovered;        /* a save that had not been shipped was committed */
    int64_t recovered_step;
    char why[256]; /* BUSY; or what kept an unshipped save from being recovered, "" */
};
void hf_handoff_out_release(struct hf_handoff_out *out);

/* Errors are of the store or the disk; nothing is claimed then, but what was recovered stays. */
enum hf_rc hf_handoff_claim(const struct hf_handoff_in *in, const struct hf_call *c,
                            struct hf_handoff_out *ret, struct hf_err *err) HF_MUST_USE;

/* Claims the next number to say that the run is finished or was stopped by a person.
 * HF_EEXISTS: another attempt was claimed meanwhile. */
enum hf_rc hf_handoff_close_run(const struct hf_run *run, const struct hf_call *c,
                                const struct hf_claim *mine, enum hf_claim_kind kind,
                                struct hf_err *err) HF_MUST_USE;

/* How the command of an attempt of this machine ended, if its keeper lived to write that down: the
 * raw wait status, and whether its keeper sent it SIGKILL. False: unknown, nothing is changed. */
bool hf_handoff_exit(const char *attempt_dir, int *ret_status, bool *ret_forced);

/* The newest checkpoint of an attempt's own. *ret is the caller's to release; untouched, and
 * *ret_any false, when there is none. */
enum hf_rc hf_handoff_newest(const struct hf_run *run, const struct hf_call *c, uint32_t attempt,
                             struct hf_manifest *ret, bool *ret_any,
                             struct hf_err *err) HF_MUST_USE;

struct hf_restored {
    bool any;                    /* false: nothing to restore, base "none" */
    struct hf_manifest manifest; /* any: what was restored */
    struct hf_restore_report report;
    struct hf_strv
        damaged; /* a sentence for each newer checkpoint that was passed over as damaged */
    struct hf_strv claims; /* a sentence for each damaged claim that was passed over */
};
void hf_restored_release(struct hf_restored *r);

/* Seals the lineage, chooses and restores. HF_EEXISTS: superseded meanwhile. Transient store
 * errors are retried for a while; then the error is returned and nothing was judged damaged
 * because of it. */
enum hf_rc hf_handoff_restore(const struct hf_run *run, const struct hf_call *c,
                              const struct hf_claim *mine, struct hf_restored *ret,
                              struct hf_err *err) HF_MUST_USE;

#endif
