/* SPDX-License-Identifier: Apache-2.0
 *
 * Lines for people, or JSON lines. Written to one descriptor with one write(2) a line. Library
 * floors log at debug only; supervisor/ speaks. Any thread. The log is one object made by main
 * and handed down; NULL is silent.
 */
#ifndef HF_BASE_LOG_H
#define HF_BASE_LOG_H

#include "base/err.h"

enum hf_log_level { HF_LOG_DEBUG, HF_LOG_INFO, HF_LOG_WARN, HF_LOG_ERROR };
enum hf_log_format { HF_LOG_TEXT, HF_LOG_JSON };

struct hf_log {
    int fd; /* borrowed */
    enum hf_log_level min;
    enum hf_log_format format;
    const char *prefix; /* "holdfast: " before each text line; borrowed */
    bool stamp;         /* begin text lines with the time */
    bool crlf;          /* end text lines with \r\n: the terminal is in raw mode */
};

/* Text: "PREFIX[warning: |error: ]message". JSON: {"ts":..,"level":..,"msg":..}. A failed write
 * is dropped. errno is kept. */
void hf_log(const struct hf_log *log, enum hf_log_level level, const char *fmt, ...)
    HF_PRINTF(3, 4);
/* "message: err->msg", and the hint on a line of its own. */
void hf_log_err(const struct hf_log *log, enum hf_log_level level, const struct hf_err *err,
                const char *fmt, ...) HF_PRINTF(4, 5);

#endif
