/* SPDX-License-Identifier: Apache-2.0
 *
 * The forms that setting values have as text: run names, shell words, sizes, signals; and the
 * nearest match for misspelt words. Pure; any thread.
 */
#ifndef HF_SUPERVISOR_SETTINGS_TEXT_H
#define HF_SUPERVISOR_SETTINGS_TEXT_H

#include "base/err.h"
#include "base/mem.h"

#define HF_RUN_NAME_MAX 64

/* [A-Za-z0-9][A-Za-z0-9._-]{0,63}; HF_EINVAL says which character or length is wrong. */
enum hf_rc hf_run_name_check(const char *name, struct hf_err *err) HF_MUST_USE;

/* Splits like a POSIX shell does (quotes and backslash; nothing is expanded), appending to
 * *ret. HF_EINVAL for an open quote; *ret is then as before. */
enum hf_rc hf_words_split(const char *text, struct hf_strv *ret, struct hf_err *err) HF_MUST_USE;

/* A whole number, decimal, the text to its end; HF_EINVAL otherwise. */
enum hf_rc hf_int_parse(const char *text, int64_t *ret, struct hf_err *err) HF_MUST_USE;

/* "4096", "64KiB", "16MiB", "1GiB" ("B" is allowed). HF_EINVAL shows the forms. */
enum hf_rc hf_bytes_parse(const char *text, int64_t *ret, struct hf_err *err) HF_MUST_USE;

/* "USR1", "SIGUSR1", "usr1", "10", "RTMIN+3"; those that cannot be caught are refused. */
enum hf_rc hf_signal_parse(const char *text, int *ret, struct hf_err *err) HF_MUST_USE;

/* The candidate nearest to `word` (edit distance with swaps; at most a third of its length, one
 * at least), or NULL. names: NULL-terminated. */
const char *hf_nearest(const char *word, const char *const *names);

#endif
