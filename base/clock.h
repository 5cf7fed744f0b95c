/* SPDX-License-Identifier: Apache-2.0
 *
 * Time. Deadlines are in nanoseconds of CLOCK_BOOTTIME (it counts through suspend and no step
 * of the wall clock moves it); wall time is for people and records only. Durations as text:
 * "90s", "5m", "1h30m", "250ms", "2d"; a bare number is seconds; fractions are allowed
 * ("1.5s"). Any thread.
 */
#ifndef HF_BASE_CLOCK_H
#define HF_BASE_CLOCK_H

#include "base/err.h"

#define HF_MS  UINT64_C(1000000)    /* nanoseconds in a millisecond */
#define HF_SEC UINT64_C(1000000000) /* nanoseconds in a second */

uint64_t hf_now_ns(void); /* CLOCK_BOOTTIME */
int64_t hf_wall_ms(void); /* milliseconds since 1970 UTC */

/* Milliseconds. HF_EINVAL names the text and shows the forms. Negative values and more than 10
 * years are refused. */
enum hf_rc hf_duration_parse(const char *text, uint64_t *ret_ms, struct hf_err *err) HF_MUST_USE;

#define HF_DURATION_STRLEN 40
/* "1h30m", "90s", "250ms", "1.5s": short, exact to the millisecond, parses back. Returns out. */
const char *hf_duration_format(uint64_t ms, char out[HF_DURATION_STRLEN]);

#define HF_UTC_STRLEN 32
/* "2026-11-30T22:37:01.250Z" (RFC 3339). Returns out. */
const char *hf_utc_format(int64_t wall_ms, char out[HF_UTC_STRLEN]);
/* RFC 3339 with 'Z' or an offset, fraction optional. */
enum hf_rc hf_utc_parse(const char *text, int64_t *ret_wall_ms, struct hf_err *err) HF_MUST_USE;
/* An HTTP Date header (RFC 9110 IMF-fixdate); the weekday is not checked, no locale is used. */
enum hf_rc hf_http_date_parse(const char *text, int64_t *ret_wall_ms,
                              struct hf_err *err) HF_MUST_USE;

#endif
