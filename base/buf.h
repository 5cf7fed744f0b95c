/* SPDX-License-Identifier: Apache-2.0
 *
 * A growable byte string with a mandatory maximum. The content is always followed by a NUL that
 * is not counted. One thread at a time.
 */
#ifndef HF_BASE_BUF_H
#define HF_BASE_BUF_H

#include "base/err.h"

struct hf_buf {
    char *data; /* NULL until something was added; use hf_buf_str for text */
    size_t len;
    size_t cap;
    size_t max;
};

void hf_buf_init(struct hf_buf *b, size_t max_bytes);
void hf_buf_release(struct hf_buf *b); /* frees the content; b needs init before the next use */
void hf_buf_reset(struct hf_buf *b);   /* empty again, memory kept */

/* HF_EFULL past the maximum; the content is then as before. */
enum hf_rc hf_buf_add(struct hf_buf *b, const void *data, size_t len,
                      struct hf_err *err) HF_MUST_USE;
enum hf_rc hf_buf_addf(struct hf_buf *b, struct hf_err *err, const char *fmt, ...)
    HF_PRINTF(3, 4) HF_MUST_USE;
void hf_buf_drop_front(struct hf_buf *b,
                       size_t len); /* forgets the first len bytes (all if more) */

const char *hf_buf_str(const struct hf_buf *b); /* "" when empty; owned by b */
struct hf_span hf_buf_span(const struct hf_buf *b);

/* Takes the next line (without '\n', NUL-terminated in place) out of what was read so far:
 * returns NULL when no whole line is there. *pos is the caller's read position, 0 at first;
 * after the last line call hf_buf_drop_front(b, *pos). The pointer is valid until b changes. */
char *hf_buf_next_line(struct hf_buf *b, size_t *pos, size_t *ret_len);

#endif
