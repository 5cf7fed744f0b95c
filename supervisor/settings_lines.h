/* SPDX-License-Identifier: Apache-2.0
 *
 * The text of a settings file, before and beside its parser: what no parser should be given, and
 * what people type where a colon, a quote or a space was meant. Pure; any thread.
 */
#ifndef HF_SUPERVISOR_SETTINGS_LINES_H
#define HF_SUPERVISOR_SETTINGS_LINES_H

#include "base/err.h"
#include "base/mem.h"

/* Refuses (HF_EINVAL, "PATH:line:column: ...") UTF-16 and UTF-32, bytes that are not UTF-8 and
 * control characters. A byte order mark of UTF-8 is taken off. */
enum hf_rc hf_settings_text_check(const char *path, struct hf_span *text,
                                  struct hf_err *err) HF_MUST_USE;

/* Looks at one line (counted from 1) that the parser did not understand: a tab in the indentation,
 * full-width punctuation, no space after the colon, '=' for ':'. HF_EINVAL names the place and the
 * remedy; HF_OK: nothing of the kind is seen. */
enum hf_rc hf_settings_line_explain(const char *path, struct hf_span text, size_t line,
                                    struct hf_err *err) HF_MUST_USE;

/* Whether a value starts with a quotation mark that no parser takes for one; then HF_EINVAL as
 * "WHERE: ...". */
enum hf_rc hf_settings_quote_check(const char *where, const char *value,
                                   struct hf_err *err) HF_MUST_USE;

/* Line and column, from 1, of a byte; columns count characters. */
void hf_settings_place(struct hf_span text, size_t at, size_t *ret_line, size_t *ret_column);

#endif
