/* SPDX-License-Identifier: Apache-2.0
 *
 * What can be seen to be wrong before a run is registered, a number claimed or anything started.
 * Blocking (a few stat calls on local paths); main thread, before the loop runs. Asks no store.
 */
#ifndef HF_SUPERVISOR_PRECHECK_H
#define HF_SUPERVISOR_PRECHECK_H

#include "supervisor/settings.h"

/* HF_EINVAL names the flag, variable or file line and the remedy. argv: the command to wrap. */
enum hf_rc hf_precheck(const struct hf_settings *s, char *const *argv,
                       struct hf_err *err) HF_MUST_USE;

#endif
