/* SPDX-License-Identifier: Apache-2.0
 *
 * Shared by the two halves of the supervisor's side: making a keeper (keeper_spawn.c) and talking
 * to one (keeper_client.c). Loop thread only.
 */
#ifndef HF_SUPERVISOR_KEEPER_CLIENT_H
#define HF_SUPERVISOR_KEEPER_CLIENT_H

#include "base/prelude.h"

#include "base/sockname.h"
#include "supervisor/keeper.h"

/* What a start leaves in the caller's hands; -1: none. */
struct hf_keeper_parts {
    pid_t pid;
    int pidfd;
    int control; /* our end of the socket, non-blocking */
    int listen;  /* bound, to be given to the keeper */
    int log;     /* opened for appending, to be given to the keeper */
};

/* The keeper's socket, "<dir>/k". */
enum hf_rc hf_keeper_address(const char *dir, struct hf_sockname *ret,
                             struct hf_err *err) HF_MUST_USE;
/* Binds the socket, opens the log, forks and executes the keeper, which then waits for its spec.
 * On failure nothing is left, no process either. */
enum hf_rc hf_keeper_spawn(const struct hf_keeper_spec *spec, struct hf_keeper_parts *ret,
                           struct hf_err *err) HF_MUST_USE;
/* Undoes a spawn whose keeper has not had its spec yet. */
void hf_keeper_bury(const char *dir, pid_t pid);
void hf_keeper_parts_close(struct hf_keeper_parts *p); /* the descriptors alone */

#endif
