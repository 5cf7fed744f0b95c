/* SPDX-License-Identifier: Apache-2.0
 *
 * Growable byte strings. Every one has a maximum, so that nothing a server, a file or a trainer
 * sends can grow without end.
 */
#include "base/prelude.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "base/mem.h"

void hf_buf_init(struct hf_buf *b, size_t max_bytes)
{
    *b = (struct hf_buf){.max = max_bytes};
}

void hf_buf_release(struct hf_buf *b)
{
    hf_free(b->data);
    *b = (struct hf_buf){.max = b->max};
}

void hf_buf_reset(struct hf_buf *b)
{
    b->len = 0;
    if (b->data != NULL) {
        b->data[0] = '\0';
    }
}

static enum hf_rc reserve(struct hf_buf *b, size_t more, struct hf_err *err)
{
    if (more > b->max || b->len > b->max - more) {
        return hf_fail(err, HF_EFULL, "more than %zu bytes", b->max);
    }
    size_t need = b->len + more + 1;
    if (need <= b->cap) {
        return HF_OK;
    }
    size_t cap = b->cap > 0 ? b->cap : 64;
    while (cap < need) {
        cap *= 2;
    }
    if (cap - 1 > b->max) {
        cap = b->max + 1;
    }
    b->data = hf_realloc(b->data, cap);
    b->cap = cap;
    return HF_OK;
}

enum hf_rc hf_buf_add(struct hf_buf *b, const void *data, size_t len, struct hf_err *err)
{
    HF_TRY(reserve(b, len, err));
    if (len > 0) {
        memcpy(b->data + b->len, data, len);
    }
    b->len += len;
    b->data[b->len] = '\0';
    return HF_OK;
}

enum hf_rc hf_buf_addf(struct hf_buf *b, struct hf_err *err, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    va_list again;
    va_copy(again, args);
    int n = vsnprintf(NULL, 0, fmt, args);
    va_end(args);
    enum hf_rc rc = n < 0 ? hf_fail(err, HF_EINTERNAL, "a text could not be formatted")
                          : reserve(b, (size_t)n, err);
    if (rc == HF_OK) {
        vsnprintf(b->data + b->len, (size_t)n + 1, fmt, again);
        b->len += (size_t)n;
    }
    va_end(again);
    return rc;
}

void hf_buf_drop_front(struct hf_buf *b, size_t len)
{
    if (len >= b->len) {
        hf_buf_reset(b);
    } else if (len > 0) {
        memmove(b->data, b->data + len, b->len - len + 1);
        b->len -= len;
    }
}

const char *hf_buf_str(const struct hf_buf *b)
{
    return b->data != NULL ? b->data : "";
}

struct hf_span hf_buf_span(const struct hf_buf *b)
{
    return (struct hf_span){.ptr = b->data, .len = b->len};
}

char *hf_buf_next_line(struct hf_buf *b, size_t *pos, size_t *ret_len)
{
    if (*pos >= b->len) {
        return NULL;
    }
    char *line = b->data + *pos;
    char *nl = memchr(line, '\n', b->len - *pos);
    if (nl == NULL) {
        return NULL;
    }
    *nl = '\0';
    *ret_len = (size_t)(nl - line);
    *pos += *ret_len + 1;
    return line;
}
