/* SPDX-License-Identifier: Apache-2.0
 *
 * Errors are values: a code to branch on, the native number, a sentence that names what was
 * tried, and a hint of what the operator can do. The caller owns the struct; there is no heap
 * in it.
 *
 * Every fallible function returns enum hf_rc and takes a `struct hf_err *` last. It leaves the
 * struct untouched on success. Passing NULL is allowed and drops the text. All functions here
 * may be called from any thread; a struct hf_err belongs to one thread at a time.
 */
#ifndef HF_BASE_ERR_H
#define HF_BASE_ERR_H

#include "base/prelude.h"

#include <stdarg.h>

enum hf_rc {
    HF_OK,
    HF_EAGAIN,    /* transient: the same call may succeed later */
    HF_ETIMEOUT,  /* a deadline or a time-out passed */
    HF_ECANCELED, /* the caller asked to stop */
    HF_ENOTFOUND,
    HF_EEXISTS, /* create-only: somebody was first */
    HF_EDENIED,
    HF_EINVAL,   /* bad input of the caller or the user */
    HF_ENOTSUP,  /* this machine or store cannot do it */
    HF_ECORRUPT, /* data failed its check */
    HF_EFULL,    /* a bound was reached: disk, queue, maximum size */
    HF_EIO,      /* anything else that the outside world did */
    HF_EINTERNAL /* a bug of ours */
};

enum hf_domain { HF_DOM_NONE, HF_DOM_ERRNO, HF_DOM_UV, HF_DOM_CURL, HF_DOM_HTTP, HF_DOM_EXIT };

struct hf_err {
    enum hf_rc code;
    enum hf_domain domain;
    int64_t native;          /* the number in that domain, 0: none */
    uint32_t retry_after_ms; /* the server's wish, 0: none */
    const char *file;        /* where it was first set */
    int line;
    char msg[384];  /* "outer: inner: primary", one line, never a newline */
    char hint[200]; /* a sentence, or "" */
};

/* Fills *err (if not NULL) with a formatted sentence and returns `code`. Control characters in the
 * text are replaced by '?'. Too long a text is cut in its middle, where "..." stands. */
#define hf_fail(err, code, ...) \
    hf_fail_at((err), (code), HF_DOM_NONE, 0, __FILE__, __LINE__, __VA_ARGS__)
/* The same for a failed system call: the code comes from the errno number `num`, and ": " plus its
 * description is added to the text. */
#define hf_fail_errno(err, num, ...) hf_fail_errno_at((err), (num), __FILE__, __LINE__, __VA_ARGS__)

enum hf_rc hf_fail_at(struct hf_err *err, enum hf_rc code, enum hf_domain domain, int64_t native,
                      const char *file, int line, const char *fmt, ...) HF_PRINTF(7, 8);
enum hf_rc hf_fail_errno_at(struct hf_err *err, int num, const char *file, int line,
                            const char *fmt, ...) HF_PRINTF(5, 6);

/* Puts "text: " before err->msg and returns err->code. Call it where a name is known that the layer
 * below did not have. With err == NULL it returns `rc`. */
enum hf_rc hf_wrap(struct hf_err *err, enum hf_rc rc, const char *fmt, ...) HF_PRINTF(3, 4);

/* Sets the hint, replacing an earlier one, and returns err->code. */
enum hf_rc hf_hint(struct hf_err *err, enum hf_rc rc, const char *fmt, ...) HF_PRINTF(3, 4);

/* Static lower-case name of a code ("not-found"); never NULL. */
const char *hf_rc_name(enum hf_rc rc);

/* The code that an errno number stands for; EEXIST -> HF_EEXISTS, ENOSPC and EDQUOT ->
 * HF_EFULL... */
enum hf_rc hf_rc_of_errno(int num);

/* Returns from the calling function when `expr` fails. The only control-flow macro of the
 * project. */
#define HF_TRY(expr)                    \
    do {                                \
        enum hf_rc hf_try_rc_ = (expr); \
        if (hf_try_rc_ != HF_OK) {      \
            return hf_try_rc_;          \
        }                               \
    } while (0)

#endif
