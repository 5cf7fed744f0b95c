/* SPDX-License-Identifier: Apache-2.0
 *
 * base/clock and base/retry against arithmetic of another kind: a counter that walks the calendar
 * day by day, durations whose value is known before they are written, and back-off bounds in 128
 * bits.
 */
#include "base/prelude.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/retry.h"
#include "support_seed.h"

#define DAY_MS    INT64_C(86400000)
#define TEN_YEARS (INT64_C(10) * 366 * DAY_MS)

__extension__ typedef unsigned __int128 wide;

/* The calendar */

struct day {
    int y, m, d;
    int64_t number; /* since 1970-01-01 */
};

static int days_in(int y, int m)
{
    if (m == 2) {
        return y % 400 == 0 || (y % 4 == 0 && y % 100 != 0) ? 29 : 28;
    }
    return m == 4 || m == 6 || m == 9 || m == 11 ? 30 : 31;
}

static void tomorrow(struct day *t)
{
    t->number++;
    if (++t->d > days_in(t->y, t->m)) {
        t->d = 1;
        t->m++;
    }
    if (t->m > 12) {
        t->m = 1;
        t->y++;
    }
}

static void yesterday(struct day *t)
{
    t->number--;
    if (--t->d == 0) {
        t->m = t->m == 1 ? 12 : t->m - 1;
        t->y -= t->m == 12;
        t->d = days_in(t->y, t->m);
    }
}

/* A time of that day, with the three digits that the number itself gives. */
static int64_t write_time(const struct day *t, uint64_t random, char out[HF_UTC_STRLEN])
{
    unsigned ms = (unsigned)(random % (uint64_t)DAY_MS);
    snprintf(out, HF_UTC_STRLEN, "%04u-%02u-%02uT%02u:%02u:%02u.%03uZ", (unsigned)t->y % 10000,
             (unsigned)t->m % 100, (unsigned)t->d % 100, ms / 3600000 % 100, ms / 60000 % 60,
             ms / 1000 % 60, ms % 1000);
    return t->number * DAY_MS + ms;
}

/* Every day of 1970 to 2400, whose next four centuries are the same again, and the last year. */
static void every_day(void **state)
{
    (void)state;
    uint64_t random = hf_test_seed();
    struct day t = {.y = 1970, .m = 1, .d = 1};
    for (; t.y < 10000; tomorrow(&t)) {
        char want[HF_UTC_STRLEN], got[HF_UTC_STRLEN];
        if (t.y >= 2400 && t.y < 9999 && t.number % 61 != 0) {
            continue;
        }
        int64_t back = -1;
        int64_t ms = write_time(&t, hf_test_random(&random), want);
        if (strcmp(hf_utc_format(ms, got), want) != 0 || hf_utc_parse(want, &back, NULL) != HF_OK ||
            back != ms) {
            fail_msg("%lld is '%s', not '%s', and back %lld", (long long)ms, got, want,
                     (long long)back);
        }
    }
    assert_int_equal(t.number, 2932897);
}

/* Before 1970 times are shown (a clock may be wrong) and never taken. */
static void days_before_the_epoch(void **state)
{
    (void)state;
    uint64_t random = hf_test_seed();
    struct day t = {.y = 1969, .m = 12, .d = 31, .number = -1};
    for (; t.y > 0; yesterday(&t)) {
        char want[HF_UTC_STRLEN], got[HF_UTC_STRLEN];
        if (t.number % 7 != 0 && t.number > -400) {
            continue;
        }
        int64_t ms = write_time(&t, t.number % 5 == 0 ? 0 : hf_test_random(&random), want);
        assert_string_equal(hf_utc_format(ms, got), want);
        int64_t back = 77;
        assert_int_equal(hf_utc_parse(want, &back, NULL), HF_EINVAL);
        assert_int_equal(back, 77);
    }
}

/* No number, however absurd, makes more than 32 bytes or an overflow. */
static void absurd_times(void **state)
{
    (void)state;
    static const int64_t rows[] = {INT64_MIN,     INT64_MIN + 1, INT64_MIN / 2,      INT64_MAX,
                                   INT64_MAX - 1, INT64_MAX / 2, -(INT64_C(1) << 53)};
    for (size_t i = 0; i < HF_COUNT(rows); i++) {
        char text[HF_UTC_STRLEN];
        assert_int_equal(strlen(hf_utc_format(rows[i], text)), 24);
        int64_t ms = rows[i] % 1000 + (rows[i] % 1000 < 0 ? 1000 : 0);
        assert_int_equal(strtol(text + 20, NULL, 10), ms);
    }
}

/* Each day that a month may be thought to have, in both notations. */
static void days_that_are_not(void **state)
{
    (void)state;
    static const char months[] = "JanFebMarAprMayJunJulAugSepOctNovDec";
    static const int years[] = {1970, 1999, 2000, 2024, 2026, 2100, 2400, 9999};
    for (size_t i = 0; i < HF_COUNT(years) * 14 * 33; i++) {
        int y = years[i / (14 * 33)], m = (int)(i / 33 % 14), d = (int)(i % 33);
        bool is = m >= 1 && m <= 12 && d >= 1 && d <= days_in(y, m);
        char text[40];
        int64_t ms = 0, same = 0;
        snprintf(text, sizeof(text), "%04d-%02d-%02dT01:02:03Z", y, m, d);
        if ((hf_utc_parse(text, &ms, NULL) == HF_OK) != is) {
            fail_msg("'%s'", text);
        }
        if (m == 0 || m == 13) {
            continue;
        }
        snprintf(text, sizeof(text), "Mon, %02d %.3s %04d 01:02:03 GMT", d,
                 months + 3 * (size_t)(m - 1), y);
        if ((hf_http_date_parse(text, &same, NULL) == HF_OK) != is || same != ms) {
            fail_msg("'%s'", text);
        }
    }
}

/* All offsets, with and without the colon: local time minus the offset. */
static void offsets(void **state)
{
    (void)state;
    int64_t noon = 0;
    assert_int_equal(hf_utc_parse("2026-03-01T12:00:00Z", &noon, NULL), HF_OK);
    for (int h = 0; h < 100; h++) {
        for (int k = 0; k < 400; k++) {
            int m = k % 100;
            char text[48];
            int64_t ms = 77;
            snprintf(text, sizeof(text), "2026-03-01T12:00:00%c%02d%s%02d", k < 200 ? '+' : '-', h,
                     k / 100 % 2 == 0 ? ":" : "", m);
            bool ok = h <= 14 && m <= 59;
            int64_t want = noon + (k < 200 ? -1 : 1) * (int64_t)(h * 60 + m) * 60000;
            if ((hf_utc_parse(text, &ms, NULL) == HF_OK) != ok || ms != (ok ? want : 77)) {
                fail_msg("'%s' gave %lld", text, (long long)ms);
            }
        }
    }
}

/* Every byte of a good time replaced by every other byte, and cut: taken only as what it says. */
static void spoilt_times(void **state)
{
    (void)state;
    static const char good[] = "2026-11-30T22:37:01.250+01:30";
    for (size_t at = 0; at < sizeof(good); at++) {
        for (int c = 0; c < 256; c++) {
            char text[sizeof(good)], shown[HF_UTC_STRLEN];
            int64_t ms = 0;
            memcpy(text, good, sizeof(good));
            text[at < sizeof(good) - 1 ? at : 0] = (char)c;
            if (hf_utc_parse(text, &ms, NULL) != HF_OK) {
                continue;
            }
            /* Shown in its own zone again it is the same text. */
            int64_t east = (strtol(text + 24, NULL, 10) * 60 + strtol(text + 27, NULL, 10)) * 60000;
            hf_utc_format(ms + (text[23] == '-' ? -east : east), shown);
            text[10] = strchr("Tt ", text[10]) != NULL ? 'T' : text[10];
            assert_memory_equal(shown, text, 23);
        }
        char cut[sizeof(good)] = "";
        int64_t ms = 0;
        memcpy(cut, good, at);
        assert_int_equal(hf_utc_parse(cut, &ms, NULL), at == sizeof(good) - 1 ? HF_OK : HF_EINVAL);
    }
}

/* Durations */

/* Appends one part; its exact value rounded down to the millisecond. */
static wide write_part(uint64_t *random, char *text, size_t size, bool alone, bool *ok)
{
    static const struct {
        const char *name;
        uint64_t ms;
    } units[] = {{"ms", 1}, {"s", 1000}, {"m", 60000}, {"h", 3600000}, {"d", 86400000}, {"", 1000}};
    size_t u = hf_test_below(random, alone ? 6 : 5);
    unsigned digits = 1 + (unsigned)hf_test_below(random, hf_test_below(random, 4) == 0 ? 19 : 4);
    uint64_t whole = 0, frac = 0, scale = 1;
    size_t at = strlen(text);
    for (unsigned i = 0; i < digits; i++) {
        whole = whole * 10 + hf_test_below(random, 10);
    }
    at += (size_t)snprintf(text + at, size - at, "%0*llu", (int)digits, (unsigned long long)whole);
    if (hf_test_below(random, 3) == 0) {
        unsigned n = (unsigned)hf_test_below(random, 8);
        at += (size_t)snprintf(text + at, size - at, ".");
        for (unsigned i = 0; i < n; i++) {
            unsigned digit = (unsigned)hf_test_below(random, 10);
            at += (size_t)snprintf(text + at, size - at, "%u", digit);
            frac = frac * 10 + digit;
            scale *= 10;
        }
        *ok = *ok && n >= 1 && n <= 6;
    }
    snprintf(text + at, size - at, "%s", units[u].name);
    return (wide)whole * units[u].ms + (wide)frac * units[u].ms / scale;
}

static void durations_of_all_sizes(void **state)
{
    (void)state;
    uint64_t random = hf_test_seed();
    unsigned taken = 0;
    for (int round = 0; round < 200000; round++) {
        char text[160] = "";
        bool ok = true;
        wide want = 0;
        size_t parts = 1 + hf_test_below(&random, 3);
        for (size_t i = 0; i < parts; i++) {
            want += write_part(&random, text, sizeof(text), parts == 1, &ok);
        }
        ok = ok && want <= TEN_YEARS;
        uint64_t ms = 77;
        enum hf_rc rc = hf_duration_parse(text, &ms, NULL);
        if (rc != (ok ? HF_OK : HF_EINVAL) || ms != (ok ? (uint64_t)want : 77)) {
            fail_msg("'%s': %s, %llu", text, hf_rc_name(rc), (unsigned long long)ms);
        }
        taken += ok;
    }
    assert_true(taken > 20000);
}

/* Products that come out small once they have gone round 64 bits. */
static void durations_do_not_wrap(void **state)
{
    (void)state;
    static const uint64_t units[] = {1000, 60000, 3600000, 86400000};
    for (size_t u = 0; u < HF_COUNT(units); u++) {
        for (unsigned turn = 1; turn < 2000; turn++) {
            char text[64];
            uint64_t ms = 77;
            wide n = (((wide)turn << 64) + units[u] - 1) / units[u];
            if (n > UINT64_MAX) {
                break;
            }
            snprintf(text, sizeof(text), "%llu%c", (unsigned long long)n, "smhd"[u]);
            if (hf_duration_parse(text, &ms, NULL) != HF_EINVAL || ms != 77) {
                fail_msg("'%s' gave %llu ms", text, (unsigned long long)ms);
            }
        }
    }
}

/* What is written is read back, to the millisecond, at every size. */
static void durations_come_back(void **state)
{
    (void)state;
    uint64_t random = hf_test_seed();
    for (int round = 0; round < 200000; round++) {
        uint64_t ms = hf_test_random(&random) >> (22 + hf_test_below(&random, 42));
        ms = round < 130000 ? (uint64_t)round : ms % (uint64_t)(TEN_YEARS + 1);
        char text[HF_DURATION_STRLEN];
        uint64_t back = 0;
        hf_duration_format(ms, text);
        if (hf_duration_parse(text, &back, NULL) != HF_OK || back != ms) {
            fail_msg("%llu ms is '%s', and back %llu", (unsigned long long)ms, text,
                     (unsigned long long)back);
        }
    }
    char text[HF_DURATION_STRLEN];
    assert_true(strlen(hf_duration_format(UINT64_MAX, text)) < HF_DURATION_STRLEN - 1);
}

/* Back-off */

static wide bound_of(const struct hf_retry *r)
{
    wide bound = r->base_ms;
    for (uint32_t i = 0; i < r->done && i < 64; i++) {
        bound *= 2;
    }
    return bound < r->cap_ms ? bound : r->cap_ms;
}

static void delays_stay_in_bounds(void **state)
{
    (void)state;
    static const uint32_t edges[] = {0,         1, 2, 99, 5000, 600000, INT32_MAX, UINT32_MAX - 1,
                                     UINT32_MAX};
    uint64_t random = hf_test_seed();
    unsigned again = 0;
    for (int round = 0; round < 200000; round++) {
        struct hf_retry r = {.base_ms = edges[hf_test_below(&random, HF_COUNT(edges))],
                             .cap_ms = edges[hf_test_below(&random, HF_COUNT(edges))],
                             .tries = (uint32_t)hf_test_below(&random, 4) * 3,
                             .done = (uint32_t)hf_test_below(&random, 70)};
        r.done = round % 100 == 0 ? UINT32_MAX : r.done;
        const struct hf_retry before = r;
        struct hf_err err = {.code = HF_EAGAIN,
                             .retry_after_ms = edges[hf_test_below(&random, HF_COUNT(edges))]};
        uint64_t now_ns = hf_test_random(&random) >> 12;
        uint64_t end_ns = round % 3 == 0 ? 0 : now_ns + (hf_test_random(&random) >> 24);
        uint64_t drawn = hf_test_random(&random);
        uint32_t ms = 77;
        bool got = hf_retry_next(&r, &err, drawn, now_ns, end_ns, &ms);
        assert_int_equal(r.done, before.done < UINT32_MAX ? before.done + 1 : UINT32_MAX);
        wide wish = (wide)before.cap_ms * 10;
        wish = err.retry_after_ms < wish ? err.retry_after_ms : wish;
        wide want = drawn % ((uint64_t)bound_of(&before) + 1);
        want = want < wish ? wish : want;
        bool left = before.tries == 0 || r.done < before.tries;
        bool in_time = end_ns == 0 || (wide)now_ns + want * HF_MS < end_ns;
        assert_int_equal(got, left && in_time);
        assert_int_equal(ms, got ? (uint32_t)want : 77);
        again += got;
    }
    assert_true(again > 20000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_day),
        cmocka_unit_test(days_before_the_epoch),
        cmocka_unit_test(absurd_times),
        cmocka_unit_test(days_that_are_not),
        cmocka_unit_test(offsets),
        cmocka_unit_test(spoilt_times),
        cmocka_unit_test(durations_of_all_sizes),
        cmocka_unit_test(durations_do_not_wrap),
        cmocka_unit_test(durations_come_back),
        cmocka_unit_test(delays_stay_in_bounds),
    };
    return cmocka_run_group_tests_name("clock_model", tests, NULL, NULL);
}
