/* SPDX-License-Identifier: Apache-2.0
 *
 * Errors as values. No heap but for a moment, any thread. Texts are kept to one printable line
 * here, so that no caller has to think of a server that answers with control characters.
 */
#include "base/prelude.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/err.h"
#include "base/mem.h"

static bool is_inside(char c) /* a UTF-8 character */
{
    return ((unsigned char)c & 0xc0) == 0x80;
}

/* The start names the thing and the end says why: what goes is in the middle. */
static void cut(char *out, size_t size, const char *all, size_t len)
{
    size_t head = (size - 4) / 2;
    size_t tail = len - (size - 4 - head);
    while (head > 0 && is_inside(all[head])) {
        head--;
    }
    while (tail < len && is_inside(all[tail])) {
        tail++;
    }
    (void)snprintf(out, size, "%.*s...%s", (int)head, all, all + tail);
}

static void set_text(char *out, size_t size, const char *fmt, va_list args)
{
    va_list again;
    va_copy(again, args);
    int n = vsnprintf(out, size, fmt, args);
    if (n >= (int)size) {
        char *all = hf_calloc((size_t)n + 1, 1);
        (void)vsnprintf(all, (size_t)n + 1, fmt, again);
        cut(out, size, all, (size_t)n);
        hf_free(all);
    }
    va_end(again);
    for (char *p = out; *p != '\0'; p++) {
        unsigned char c = (unsigned char)*p;
        if (c < 0x20 || c == 0x7f) {
            *p = '?';
        }
    }
}

HF_PRINTF(3, 4)
static void join(char *out, size_t size, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    set_text(out, size, fmt, args);
    va_end(args);
}

static void start(struct hf_err *err, enum hf_rc code, enum hf_domain domain, int64_t native)
{
    err->code = code;
    err->domain = domain;
    err->native = native;
    err->retry_after_ms = 0;
    err->hint[0] = '\0';
}

enum hf_rc hf_fail_at(struct hf_err *err, enum hf_rc code, enum hf_domain domain, int64_t native,
                      const char *file, int line, const char *fmt, ...)
{
    if (err != NULL) {
        start(err, code, domain, native);
        err->file = file;
        err->line = line;
        va_list args;
        va_start(args, fmt);
        set_text(err->msg, sizeof(err->msg), fmt, args);
        va_end(args);
    }
    return code;
}

enum hf_rc hf_fail_errno_at(struct hf_err *err, int num, const char *file, int line,
                            const char *fmt, ...)
{
    enum hf_rc code = hf_rc_of_errno(num);
    if (err == NULL) {
        return code;
    }
    start(err, code, HF_DOM_ERRNO, num);
    err->file = file;
    err->line = line;
    char text[sizeof(err->msg)];
    va_list args;
    va_start(args, fmt);
    set_text(text, sizeof(text), fmt, args);
    va_end(args);
    char desc_buf[96];
    const char *desc = strerror_r(num, desc_buf, sizeof(desc_buf));
    join(err->msg, sizeof(err->msg), "%s: %s", text, desc);
    return code;
}

enum hf_rc hf_wrap(struct hf_err *err, enum hf_rc rc, const char *fmt, ...)
{
    if (err == NULL || rc == HF_OK) {
        return rc;
    }
    char outer[sizeof(err->msg)];
    va_list args;
    va_start(args, fmt);
    set_text(outer, sizeof(outer), fmt, args);
    va_end(args);
    char inner[sizeof(err->msg)];
    memcpy(inner, err->msg, sizeof(inner));
    join(err->msg, sizeof(err->msg), "%s: %s", outer, inner);
    return rc;
}

enum hf_rc hf_hint(struct hf_err *err, enum hf_rc rc, const char *fmt, ...)
{
    if (err == NULL || rc == HF_OK) {
        return rc;
    }
    va_list args;
    va_start(args, fmt);
    set_text(err->hint, sizeof(err->hint), fmt, args);
    va_end(args);
    return rc;
}

const char *hf_rc_name(enum hf_rc rc)
{
    static const char *const names[] = {
        [HF_OK] = "ok",
        [HF_EAGAIN] = "again",
        [HF_ETIMEOUT] = "timeout",
        [HF_ECANCELED] = "canceled",
        [HF_ENOTFOUND] = "not-found",
        [HF_EEXISTS] = "exists",
        [HF_EDENIED] = "denied",
        [HF_EINVAL] = "invalid",
        [HF_ENOTSUP] = "not-supported",
        [HF_ECORRUPT] = "corrupt",
        [HF_EFULL] = "full",
        [HF_EIO] = "io",
        [HF_EINTERNAL] = "internal",
    };
    if ((size_t)rc >= HF_COUNT(names) || names[rc] == NULL) {
        return "unknown";
    }
    return names[rc];
}

enum hf_rc hf_rc_of_errno(int num)
{
    switch (num) {
    case 0:
        return HF_OK;
    case EAGAIN:
    case EINTR:
    case EBUSY:
    case ENOMEM:
    case EMFILE:
    case ENFILE:
        return HF_EAGAIN;
    case ETIMEDOUT:
        return HF_ETIMEOUT;
    case ECANCELED:
        return HF_ECANCELED;
    case ENOENT:
    case ESRCH:
        return HF_ENOTFOUND;
    case EEXIST:
        return HF_EEXISTS;
    case EACCES:
    case EPERM:
    case EROFS:
        return HF_EDENIED;
    case EINVAL:
    case ENAMETOOLONG:
    case ENOTDIR:
    case EISDIR:
    case ELOOP:
        return HF_EINVAL;
    case ENOSYS:
    case EOPNOTSUPP:
        return HF_ENOTSUP;
    case ENOSPC:
    case EDQUOT:
    case EFBIG:
        return HF_EFULL;
    default:
        return HF_EIO;
    }
}
