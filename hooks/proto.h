/* SPDX-License-Identifier: Apache-2.0
 *
 * The lines of hook protocol 1 (docs/protocols.md), pure: one JSON object a line. Any thread.
 */
#ifndef HF_HOOKS_PROTO_H
#define HF_HOOKS_PROTO_H

#include "base/prelude.h"

#include "base/err.h"
#include "base/mem.h"

#define HF_HOOK_PROTOCOL  1
#define HF_HOOK_PATHS_MAX 1024 /* named by one rank for one save */

enum hf_hook_kind {
    HF_HOOK_UNKNOWN, /* a message of a later version: `name` */
    HF_HOOK_HELLO,
    HF_HOOK_SAVED,
    HF_HOOK_RESUMED,
    HF_HOOK_DONE,
    HF_HOOK_BYE
};

struct hf_hook_msg {
    enum hf_hook_kind kind;
    char name[32]; /* the message's name, cut */
    /* hello */
    uint32_t protocol;
    uint32_t rank, world; /* rank < world */
    uint64_t token;       /* random, made once per process that trains */
    int64_t pid;          /* as the process sees it */
    int64_t last;         /* the last step that there will be, -1: unknown */
    char framework[32];
    /* saved; resumed has the step alone */
    uint32_t id; /* of the request, 0: the trainer's own save */
    int64_t step;
    int64_t turn;         /* tells saves of one step apart: 0 unless steps were repeated */
    struct hf_strv paths; /* absolute */
};

/* One line without its newline. HF_ECORRUPT: no JSON object, a field that must be there missing or
 * out of bounds, a path that is not absolute. Unknown fields are ignored. Release *ret only after
 * HF_OK. */
enum hf_rc hf_hook_parse(struct hf_span line, struct hf_hook_msg *ret,
                         struct hf_err *err) HF_MUST_USE;
void hf_hook_msg_release(struct hf_hook_msg *msg);

struct hf_hook_welcome {
    const char *run;
    uint32_t attempt, slot, life;
    const char *save_dir;
    const char *resume_path; /* NULL: nothing to resume from */
    int64_t resume_step;     /* -1: unknown */
};

/* Lines with their newline; owned by the caller (hf_free). */
char *hf_hook_print_welcome(const struct hf_hook_welcome *w);
char *hf_hook_print_refused(const char *why);
char *hf_hook_print_unsupported(const char *name);

#endif
