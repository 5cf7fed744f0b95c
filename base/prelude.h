/* SPDX-License-Identifier: Apache-2.0
 *
 * First include of every file: feature macros, attributes and the pointer-and-length
 * pairs. Names that the project does not use are listed in tests/lint/check_src.py.
 */
#ifndef HF_BASE_PRELUDE_H
#define HF_BASE_PRELUDE_H

#ifndef _GNU_SOURCE
#    define _GNU_SOURCE
#endif

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define HF_VERSION "0.1.0"

#define HF_MUST_USE          __attribute__((warn_unused_result))
#define HF_PRINTF(fmt, args) __attribute__((format(printf, fmt, args)))
#define HF_NORETURN          __attribute__((noreturn))
#define HF_CLEANUP(fn)       __attribute__((unused, cleanup(fn)))

#define HF_COUNT(array) (sizeof(array) / sizeof((array)[0]))

/* Bytes that somebody else owns. */
struct hf_span {
    const void *ptr;
    size_t len;
};

/* Room for bytes that somebody else owns. */
struct hf_mspan {
    void *ptr;
    size_t len;
};

#endif
