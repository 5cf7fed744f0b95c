/* SPDX-License-Identifier: Apache-2.0
 *
 * Text for people: UTF-8, the columns it takes on a terminal, and what must not reach one. Pure;
 * no locale is consulted, so a table looks the same under every LC_ALL. Any thread.
 */
#ifndef HF_BASE_TEXT_H
#define HF_BASE_TEXT_H

#include "base/prelude.h"

/* Bytes of the UTF-8 character (RFC 3629) that starts at s, of which len bytes may be read; 0 when
 * there is none: cut, overlong, a surrogate, beyond U+10FFFF. *ret may be NULL. */
size_t hf_utf8_next(const char *s, size_t len, uint32_t *ret);

/* Columns of one character: 2 for East Asian wide and full-width ones and for emoji, 0 for
 * combining marks, joiners and variation selectors, else 1 (Unicode 14). */
unsigned hf_char_width(uint32_t c);

/* Columns of a text that hf_text_clean has made, or that is known to be as clean. What follows a
 * zero-width joiner, and a skin tone after an emoji, take none. */
size_t hf_text_width(const char *text);

/* A copy in which control characters, line separators, bidirectional controls and bytes that are
 * not UTF-8 are spelt out ("\n", "\x1b", "\u202e"). Owned by the caller. */
char *hf_text_clean(const char *text);

/* A clean copy of exactly `columns` columns: cut with "…" or filled up with spaces on the right
 * (on the left with `right`). Owned by the caller. */
char *hf_text_fit(const char *text, size_t columns, bool right);

#endif
