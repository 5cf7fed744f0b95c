/* SPDX-License-Identifier: Apache-2.0
 *
 * The key of an encrypted run as the user gives it: --key-file, or --key-passphrase-file with a
 * path or "fd:N". Read once, at the start of a command, on its main thread; blocks until the file
 * ends. What is read is never printed, logged or handed on.
 */
#ifndef HF_SUPERVISOR_KEYSOURCE_H
#define HF_SUPERVISOR_KEYSOURCE_H

#include "checkpoint/wrap.h"
#include "supervisor/settings.h"

/* *ret NULL: no key is given. Owned by the caller (hf_unlock_free). A descriptor above 2 is closed
 * when it was read. HF_EINVAL, HF_EDENIED, HF_ENOTFOUND: the setting is named, with the remedy. */
enum hf_rc hf_keysource_load(const struct hf_settings *set, struct hf_unlock **ret,
                             struct hf_err *err) HF_MUST_USE;

/* Loads the key and unlocks an opened run with it, for the commands that only look. */
struct hf_run;
enum hf_rc hf_keysource_unlock(const struct hf_settings *set, struct hf_run *run,
                               struct hf_err *err) HF_MUST_USE;

#endif
