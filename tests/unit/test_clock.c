/* SPDX-License-Identifier: Apache-2.0
 *
 * base/clock: durations, RFC 3339 and HTTP dates as text, both ways, and what is refused.
 */
#include "base/prelude.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "base/clock.h"

#define DAY UINT64_C(86400000)

static void durations(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        uint64_t ms;
    } rows[] = {
        {"0", 0},         {"0s", 0},         {"90", 90000},
        {"90s", 90000},   {"5m", 300000},    {"1h30m", 5400000},
        {"250ms", 250},   {"2d", 2 * DAY},   {"1.5s", 1500},
        {"0.001", 1},     {"1.5h", 5400000}, {"1d2h3m4s5ms", 93784005},
        {"1m1ms", 60001}, {"0.5d", DAY / 2}, {"007s", 7000},
        {"1.999s", 1999}, {"0.0009s", 0},    {"3650d", 3650 * DAY},
        {"1s1s", 2000},
    };
    for (size_t i = 0; i < HF_COUNT(rows); i++) {
        uint64_t ms = 77;
        struct hf_err err;
        if (hf_duration_parse(rows[i].text, &ms, &err) != HF_OK || ms != rows[i].ms) {
            fail_msg("'%s' gave %llu", rows[i].text, (unsigned long long)ms);
        }
    }
}

static void bad_durations(void **state)
{
    (void)state;
    static const char *const rows[] = {
        "",
        " ",
        "s",
        "-1s",
        "+1s",
        "1x",
        "1 s",
        "1h 30m",
        "1.",
        "1.s",
        ".5s",
        "1,5s",
        "1S",
        "1h30",
        "5 ",
        "0x10",
        "1e3",
        "1..5s",
        "nan",
        "1sec",
        "4000d",
        "99999999999999999999",
        "1.12345678s",
        "9999999999999999999999999ms",
        "3660d1s",
        "315360000001",
        "2000d2000d",
    };
    for (size_t i = 0; i < HF_COUNT(rows); i++) {
        uint64_t ms = 77;
        struct hf_err err;
        if (hf_duration_parse(rows[i], &ms, &err) != HF_EINVAL || ms != 77) {
            fail_msg("'%s' was taken: %llu", rows[i], (unsigned long long)ms);
        }
        assert_non_null(strstr(err.msg, rows[i]));
        assert_true(strstr(err.hint, "90s") != NULL || strstr(err.msg, "ten years") != NULL);
    }
}

static void durations_as_text(void **state)
{
    (void)state;
    static const struct {
        uint64_t ms;
        const char *text;
    } rows[] = {
        {0, "0s"},
        {1, "1ms"},
        {250, "250ms"},
        {999, "999ms"},
        {1000, "1s"},
        {1500, "1.5s"},
        {90000, "90s"},
        {60000, "1m"},
        {119000, "119s"},
        {120000, "2m"},
        {121000, "2m1s"},
        {3600000, "1h"},
        {5400000, "1h30m"},
        {DAY, "1d"},
        {2 * DAY + 1, "2d0.001s"},
        {90250, "90.25s"},
        {3660 * DAY, "3660d"},
    };
    for (size_t i = 0; i < HF_COUNT(rows); i++) {
        char text[HF_DURATION_STRLEN];
        assert_string_equal(hf_duration_format(rows[i].ms, text), rows[i].text);
    }
    /* Exact to the millisecond, all the way up. */
    uint64_t x = 88172645463325252u;
    for (int i = 0; i < 20000; i++) {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        uint64_t ms = x % (i % 2 == 0 ? 3660 * DAY : 200000);
        char text[HF_DURATION_STRLEN];
        uint64_t back = 0;
        if (hf_duration_parse(hf_duration_format(ms, text), &back, NULL) != HF_OK || back != ms) {
            fail_msg("%llu became '%s'", (unsigned long long)ms, text);
        }
    }
}

static void times(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        int64_t ms;
    } rows[] = {
        {"1970-01-01T00:00:00Z", 0},
        {"2026-11-30T22:37:01.250Z", 1796078221250},
        {"2026-11-30t22:37:01.25z", 1796078221250},
        {"2026-11-30 22:37:01Z", 1796078221000},
        {"2026-12-01T04:07:01.25+05:30", 1796078221250},
        {"2026-11-30T14:37:01-0800", 1796078221000},
        {"2024-02-29T12:00:00Z", 1709208000000},
        {"2000-02-29T00:00:00Z", 951782400000},
        {"2026-11-30T22:37:01.2509999Z", 1796078221250},
        {"2016-12-31T23:59:60Z", 1483228800000},
        {"9999-12-31T23:59:59.999Z", 253402300799999},
        {"1970-01-01T00:00:00+01:00", -3600000},
    };
    for (size_t i = 0; i < HF_COUNT(rows); i++) {
        int64_t ms = 77;
        struct hf_err err;
        if (hf_utc_parse(rows[i].text, &ms, &err) != HF_OK || ms != rows[i].ms) {
            fail_msg("'%s' gave %lld", rows[i].text, (long long)ms);
        }
    }
    char text[HF_UTC_STRLEN];
    assert_string_equal(hf_utc_format(1796078221250, text), "2026-11-30T22:37:01.250Z");
    assert_string_equal(hf_utc_format(0, text), "1970-01-01T00:00:00.000Z");
    assert_string_equal(hf_utc_format(-1, text), "1969-12-31T23:59:59.999Z");
    assert_string_equal(hf_utc_format(-86400000, text), "1969-12-31T00:00:00.000Z");
}

static void bad_times(void **state)
{
    (void)state;
    static const char *const rows[] = {
        "",
        "2026",
        "2026-11-30",
        "2026-11-30T22:37:01",
        "2026-11-30T22:37Z",
        "2026-11-30T22:37:01.Z",
        "2026-11-30T22:37:01ZZ",
        "2026-11-30T22:37:01 Z",
        "2026-13-01T00:00:00Z",
        "2026-00-01T00:00:00Z",
        "2026-02-29T00:00:00Z",
        "2100-02-29T00:00:00Z",
        "2026-04-31T00:00:00Z",
        "2026-04-00T00:00:00Z",
        "2026-04-01T24:00:00Z",
        "2026-04-01T00:60:00Z",
        "2026-04-01T00:00:61Z",
        "1969-12-31T23:59:59Z",
        "26-04-01T00:00:00Z",
        "2026-4-1T00:00:00Z",
        "2026-11-30T22:37:01+5:30",
        "2026-11-30T22:37:01+15:00",
        "2026-11-30T22:37:01+05:60",
        "+2026-11-30T22:37:01Z",
    };
    for (size_t i = 0; i < HF_COUNT(rows); i++) {
        int64_t ms = 77;
        if (hf_utc_parse(rows[i], &ms, NULL) != HF_EINVAL || ms != 77) {
            fail_msg("'%s' was taken: %lld", rows[i], (long long)ms);
        }
    }
}

static void http_dates(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        int64_t ms; /* -1: refused */
    } rows[] = {
        {"Tue, 09 Aug 2022 17:07:32 GMT", 1660064852000},
        {"Sun, 06 Nov 1994 08:49:37 GMT", 784111777000},
        {"Xxx, 06 Nov 1994 08:49:37 GMT", 784111777000},
        {"Thu, 1 Jan 1970 00:00:00 GMT", 0},
        {"Thu, 29 Feb 2024 00:00:00 GMT", 1709164800000},
        {"", -1},
        {"Sun, 06 Nov 1994 08:49:37", -1},
        {"Sun, 06 Nov 1994 08:49:37 UTC", -1},
        {"Sun, 06 Nov 1994 08:49:37 GMT ", -1},
        {"Sun, 06 nov 1994 08:49:37 GMT", -1},
        {"Sun, 06 Nox 1994 08:49:37 GMT", -1},
        {"Sun, 06 No", -1},
        {"Wed, 29 Feb 2023 00:00:00 GMT", -1},
        {"Sunday, 06-Nov-94 08:49:37 GMT", -1},
        {"Sun Nov  6 08:49:37 1994", -1},
        {"Sun, 06 Nov 1994 8:49:37 GMT", -1},
    };
    for (size_t i = 0; i < HF_COUNT(rows); i++) {
        int64_t ms = -1;
        enum hf_rc want = rows[i].ms < 0 ? HF_EINVAL : HF_OK;
        if (hf_http_date_parse(rows[i].text, &ms, NULL) != want || ms != rows[i].ms) {
            fail_msg("'%s' gave %lld", rows[i].text, (long long)ms);
        }
    }
}

/* The C library's calendar agrees, in whatever time zone. */
static void calendar(void **state)
{
    (void)state;
    assert_int_equal(setenv("TZ", "Pacific/Chatham", 1), 0);
    tzset();
    uint64_t x = 4101842887655102017u;
    for (int i = 0; i < 20000; i++) {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        int64_t seconds = (int64_t)(x % 253402300800u);
        time_t t = (time_t)seconds;
        struct tm tm;
        char want[64];
        assert_non_null(gmtime_r(&t, &tm));
        assert_int_not_equal(strftime(want, sizeof(want), "%Y-%m-%dT%H:%M:%S.123Z", &tm), 0);
        char text[HF_UTC_STRLEN];
        int64_t back = 0;
        assert_string_equal(hf_utc_format(seconds * 1000 + 123, text), want);
        assert_int_equal(hf_utc_parse(text, &back, NULL), HF_OK);
        assert_int_equal(back, seconds * 1000 + 123);
        assert_int_not_equal(strftime(want, sizeof(want), "%a, %d %b %Y %H:%M:%S GMT", &tm), 0);
        assert_int_equal(hf_http_date_parse(want, &back, NULL), HF_OK);
        assert_int_equal(back, seconds * 1000);
    }
}

static void clocks_run(void **state)
{
    (void)state;
    uint64_t a = hf_now_ns();
    uint64_t b = hf_now_ns();
    assert_true(a > 0 && b >= a);
    int64_t wall = hf_wall_ms();
    time_t t = time(NULL);
    assert_true(wall / 1000 >= t - 2 && wall / 1000 <= t + 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(durations), cmocka_unit_test(bad_durations),
        cmocka_unit_test(times),     cmocka_unit_test(durations_as_text),
        cmocka_unit_test(bad_times), cmocka_unit_test(http_dates),
        cmocka_unit_test(calendar),  cmocka_unit_test(clocks_run),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
