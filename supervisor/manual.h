/* SPDX-License-Identifier: Apache-2.0
 *
 * What is made from the tables of commands and settings beside --help: manual pages (`holdfast help
 * man [COMMAND]`) and shell completion (`holdfast help completion SHELL`). Pure printing; any
 * thread.
 */
#ifndef HF_SUPERVISOR_MANUAL_H
#define HF_SUPERVISOR_MANUAL_H

#include "supervisor/cmd.h"

/* The page of a command, holdfast-NAME(1); cmd NULL: holdfast(1). roff with the man macros. */
void hf_manual_print(FILE *out, const struct hf_cmd *const *cmds, const struct hf_cmd *cmd);

/* For "bash", "zsh" or "fish"; false, and nothing printed, for any other. */
bool hf_completion_print(FILE *out, const struct hf_cmd *const *cmds, const char *shell);

/* HOLDFAST_STATE_DIR for "state-dir". The caller frees. */
char *hf_derived_env(const char *name);

#endif
