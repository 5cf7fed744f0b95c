/* SPDX-License-Identifier: Apache-2.0
 *
 * Whether a job hangs: no new step, no output, no new checkpoint and no processor time for a
 * given while, all of them. One sign of life is enough. Pure: the caller looks, again and again;
 * any thread, one at a time an object.
 */
#ifndef HF_SUPERVISOR_HANG_H
#define HF_SUPERVISOR_HANG_H

#include "base/prelude.h"

enum hf_hang_sign {
    HF_SIGN_STEP,   /* any change counts: a rank that restarts goes back */
    HF_SIGN_OUTPUT, /* anything that changes with it */
    HF_SIGN_SAVE,   /* how many were seen */
    HF_SIGN_CPU,    /* milliseconds; less than before (a process ended) is a sign as well */
    HF_SIGNS
};
const char *hf_hang_sign_name(enum hf_hang_sign s); /* "step", "output", "checkpoint", ... */

struct hf_hang_look {
    int64_t value[HF_SIGNS];
    bool held; /* the command was stopped on purpose (Ctrl-Z, a debugger): that is no hang */
};

/* Zero-initialised: nothing was looked at yet. */
struct hf_hang {
    uint64_t looked_ns;          /* the last look */
    uint64_t since_ns[HF_SIGNS]; /* the last sign of each kind, or the first look */
    int64_t last[HF_SIGNS];
};

/* True while every sign has been missing for limit_ns. now_ns: CLOCK_BOOTTIME. A look that comes
 * so late that this process, or the machine, must have slept begins anew. */
bool hf_hang_judge(struct hf_hang *h, const struct hf_hang_look *look, uint64_t now_ns,
                   uint64_t limit_ns);

#endif
