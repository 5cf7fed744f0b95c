/* SPDX-License-Identifier: Apache-2.0
 *
 * Log lines, one write(2) each, so that lines of several threads and of the command do not mix
 * inside a line. Any thread. A line that cannot be written is dropped: a log never harms a run.
 */
#include "base/prelude.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/json.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/text.h"

#define LINE_MAX_BYTES 1400

static const char *const level_names[] = {"debug", "info", "warning", "error"};

static void write_line(const struct hf_log *log, const char *line, size_t len)
{
    ssize_t n;
    do {
        n = write(log->fd, line, len);
    } while (n < 0 && errno == EINTR);
}

static void emit_text(const struct hf_log *log, enum hf_log_level level, const char *msg)
{
    char line[LINE_MAX_BYTES + 64];
    const char *mark = level == HF_LOG_INFO ? "" : level_names[level];
    HF_CLEANUP(hf_freep) char *clean = hf_text_clean(msg);
    char utc[HF_UTC_STRLEN] = "";
    if (log->stamp) {
        (void)hf_utc_format(hf_wall_ms(), utc);
    }
    int n =
        snprintf(line, sizeof(line) - 3, "%s%s%s%s%s%s", utc, log->stamp ? " " : "",
                 log->prefix != NULL ? log->prefix : "", mark, mark[0] != '\0' ? ": " : "", clean);
    size_t len = n < 0 ? 0 : (size_t)n;
    if (len > sizeof(line) - 4) {
        len = sizeof(line) - 4;
    }
    if (log->crlf) {
        line[len++] = '\r';
    }
    line[len++] = '\n';
    write_line(log, line, len);
}

static void emit_json(const struct hf_log *log, enum hf_log_level level, const char *msg)
{
    char utc[HF_UTC_STRLEN];
    HF_CLEANUP(hf_json_freep) cJSON *obj = hf_json_obj();
    hf_json_add_str(obj, "ts", hf_utc_format(hf_wall_ms(), utc));
    hf_json_add_str(obj, "level", level_names[level]);
    hf_json_add_str(obj, "msg", msg);
    char *text = hf_json_print(obj);
    char *line = hf_asprintf("%s\n", text);
    write_line(log, line, strlen(line));
    hf_free(line);
    hf_free(text);
}

static void emit(const struct hf_log *log, enum hf_log_level level, const char *msg)
{
    if (log->format == HF_LOG_JSON) {
        emit_json(log, level, msg);
    } else {
        emit_text(log, level, msg);
    }
}

void hf_log(const struct hf_log *log, enum hf_log_level level, const char *fmt, ...)
{
    if (log == NULL || level < log->min) {
        return;
    }
    int saved = errno;
    char msg[LINE_MAX_BYTES];
    va_list args;
    va_start(args, fmt);
    vsnprintf(msg, sizeof(msg), fmt, args);
    va_end(args);
    emit(log, level, msg);
    errno = saved;
}

void hf_log_err(const struct hf_log *log, enum hf_log_level level, const struct hf_err *err,
                const char *fmt, ...)
{
    if (log == NULL || level < log->min) {
        return;
    }
    int saved = errno;
    char head[600];
    va_list args;
    va_start(args, fmt);
    vsnprintf(head, sizeof(head), fmt, args);
    va_end(args);
    char msg[LINE_MAX_BYTES];
    snprintf(msg, sizeof(msg), "%s%s%s", head, head[0] != '\0' ? ": " : "", err->msg);
    emit(log, level, msg);
    if (err->hint[0] != '\0') {
        emit(log, HF_LOG_INFO < log->min ? level : HF_LOG_INFO, err->hint);
    }
    errno = saved;
}
