/* SPDX-License-Identifier: Apache-2.0
 *
 * Clocks, durations and dates. No locale, no time zone of the machine: calendar arithmetic is
 * done on days since 1970 (proleptic Gregorian).
 */
#include "base/prelude.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"

#define DURATION_MAX_MS (UINT64_C(10) * 366 * 24 * 3600 * 1000)

uint64_t hf_now_ns(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_BOOTTIME, &ts);
    return (uint64_t)ts.tv_sec * HF_SEC + (uint64_t)ts.tv_nsec;
}

int64_t hf_wall_ms(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_REALTIME, &ts);
    return (int64_t)ts.tv_sec * 1000 + ts.tv_nsec / 1000000;
}

struct unit {
    const char *name;
    uint64_t ms;
};

/* "ms" stands before "m" and "s": the longest name that fits wins. */
static const struct unit units[] = {
    {"ms", 1}, {"d", 86400000}, {"h", 3600000}, {"m", 60000}, {"s", 1000},
};

static const struct unit *unit_at(const char *s)
{
    for (size_t i = 0; i < HF_COUNT(units); i++) {
        if (strncmp(s, units[i].name, strlen(units[i].name)) == 0) {
            return &units[i];
        }
    }
    return NULL;
}

/* One "1.5h": advances *s; false when there is none. A number without a unit is seconds, and
 * the last. What is too long is DURATION_MAX_MS + 1, however long. */
static bool parse_part(const char **s, bool first, uint64_t *ret_ms)
{
    const char *p = *s;
    if (!isdigit((unsigned char)*p)) {
        return false;
    }
    uint64_t whole = 0;
    uint64_t frac = 0;
    uint64_t scale = 1;
    for (; isdigit((unsigned char)*p); p++) {
        whole = whole > DURATION_MAX_MS ? whole : whole * 10 + (uint64_t)(*p - '0');
    }
    if (*p == '.') {
        const char *dot = p++;
        for (; isdigit((unsigned char)*p) && scale < 1000000; p++) {
            frac = frac * 10 + (uint64_t)(*p - '0');
            scale *= 10;
        }
        if (p == dot + 1 || isdigit((unsigned char)*p)) {
            return false;
        }
    }
    const struct unit *u = unit_at(p);
    if (u == NULL && !(first && *p == '\0')) {
        return false;
    }
    uint64_t ms = u != NULL ? u->ms : 1000;
    bool fits = whole <= DURATION_MAX_MS / ms;
    *ret_ms = fits ? whole * ms + frac * ms / scale : DURATION_MAX_MS + 1;
    *s = p + (u != NULL ? strlen(u->name) : 0);
    return true;
}

enum hf_rc hf_duration_parse(const char *text, uint64_t *ret_ms, struct hf_err *err)
{
    uint64_t total = 0;
    const char *p = text;
    do {
        uint64_t part = 0;
        if (!parse_part(&p, p == text, &part)) {
            enum hf_rc rc = hf_fail(err, HF_EINVAL, "'%s' is not a duration", text);
            return hf_hint(err, rc, "Write it like 90s, 5m, 1h30m or 250ms.");
        }
        total += part;
    } while (*p != '\0' && total <= DURATION_MAX_MS);
    if (total > DURATION_MAX_MS) {
        return hf_fail(err, HF_EINVAL, "'%s' is longer than ten years", text);
    }
    *ret_ms = total;
    return HF_OK;
}

const char *hf_duration_format(uint64_t ms, char out[HF_DURATION_STRLEN])
{
    size_t at = 0;
    static const struct unit big[] = {{"d", 86400000}, {"h", 3600000}, {"m", 60000}};
    bool exact = ms % 1000 == 0;
    if (ms < 1000 && ms > 0) {
        snprintf(out, HF_DURATION_STRLEN, "%llums", (unsigned long long)ms);
        return out;
    }
    out[0] = '\0';
    uint64_t left = ms;
    for (size_t i = 0; i < HF_COUNT(big) && (ms % 60000 == 0 || ms >= 120000); i++) {
        uint64_t n = left / big[i].ms;
        left %= big[i].ms;
        if (n > 0) {
            at += (size_t)snprintf(out + at, HF_DURATION_STRLEN - at, "%llu%s",
                                   (unsigned long long)n, big[i].name);
        }
    }
    if (left == 0 && at > 0) {
        return out;
    }
    if (exact) {
        snprintf(out + at, HF_DURATION_STRLEN - at, "%llus", (unsigned long long)(left / 1000));
    } else {
        int n = snprintf(out + at, HF_DURATION_STRLEN - at, "%llu.%03llu",
                         (unsigned long long)(left / 1000), (unsigned long long)(left % 1000));
        char *end = out + at + n;
        while (end[-1] == '0') {
            end--;
        }
        end[0] = 's';
        end[1] = '\0';
    }
    return out;
}

static int64_t days_from_civil(int64_t y, int m, int d)
{
    y -= m <= 2;
    int64_t era = (y >= 0 ? y : y - 399) / 400;
    int64_t yoe = y - era * 400;
    int64_t doy = (153 * (m + (m > 2 ? -3 : 9)) + 2) / 5 + d - 1;
    int64_t doe = yoe * 365 + yoe / 4 - yoe / 100 + doy;
    return era * 146097 + doe - 719468;
}

static void civil_from_days(int64_t z, int *ret_y, int *ret_m, int *ret_d)
{
    z += 719468;
    int64_t era = (z >= 0 ? z : z - 146096) / 146097;
    int64_t doe = z - era * 146097;
    int64_t yoe = (doe - doe / 1460 + doe / 36524 - doe / 146096) / 365;
    int64_t doy = doe - (365 * yoe + yoe / 4 - yoe / 100);
    int64_t mp = (5 * doy + 2) / 153;
    *ret_d = (int)(doy - (153 * mp + 2) / 5 + 1);
    *ret_m = (int)(mp < 10 ? mp + 3 : mp - 9);
    *ret_y = (int)(yoe + era * 400 + (*ret_m <= 2));
}

const char *hf_utc_format(int64_t wall_ms, char out[HF_UTC_STRLEN])
{
    int64_t days = wall_ms / 86400000;
    int64_t ms = wall_ms % 86400000;
    if (ms < 0) {
        ms += 86400000;
        days--;
    }
    int y = 0;
    int m = 0;
    int d = 0;
    civil_from_days(days, &y, &m, &d);
    snprintf(out, HF_UTC_STRLEN, "%04u-%02u-%02uT%02u:%02u:%02u.%03uZ", (unsigned)y % 10000,
             (unsigned)m % 100, (unsigned)d % 100, (unsigned)(ms / 3600000) % 100,
             (unsigned)(ms / 60000 % 60), (unsigned)(ms / 1000 % 60), (unsigned)(ms % 1000));
    return out;
}

struct civil {
    int y, mo, d, h, mi, s;
};

static bool civil_ok(const struct civil *c)
{
    static const int days[] = {31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
    if (c->y < 1970 || c->y > 9999 || c->mo < 1 || c->mo > 12 || c->d < 1) {
        return false;
    }
    bool leap = (c->y % 4 == 0 && c->y % 100 != 0) || c->y % 400 == 0;
    int max = days[c->mo - 1] + (c->mo == 2 && leap ? 1 : 0);
    return c->d <= max && c->h >= 0 && c->h <= 23 && c->mi >= 0 && c->mi <= 59 && c->s >= 0 &&
           c->s <= 60;
}

static int64_t civil_ms(const struct civil *c)
{
    return ((days_from_civil(c->y, c->mo, c->d) * 24 + c->h) * 60 + c->mi) * 60000 +
           (int64_t)c->s * 1000;
}

/* Exactly n digits. */
static bool digits(const char **p, int n, int *ret)
{
    int v = 0;
    for (int i = 0; i < n; i++) {
        if (!isdigit((unsigned char)(*p)[i])) {
            return false;
        }
        v = v * 10 + ((*p)[i] - '0');
    }
    *p += n;
    *ret = v;
    return true;
}

static bool literal(const char **p, char c)
{
    if (**p != c) {
        return false;
    }
    (*p)++;
    return true;
}

/* "Z", "+05:30", "-0800": minutes east of UTC. */
static bool zone(const char **p, int *ret_minutes)
{
    if (literal(p, 'Z') || literal(p, 'z')) {
        *ret_minutes = 0;
        return true;
    }
    int sign = **p == '+' ? 1 : -1;
    int h = 0;
    int m = 0;
    if (!literal(p, '+') && !literal(p, '-')) {
        return false;
    }
    if (!digits(p, 2, &h)) {
        return false;
    }
    literal(p, ':');
    if (!digits(p, 2, &m) || h > 14 || m > 59) {
        return false;
    }
    *ret_minutes = sign * (h * 60 + m);
    return true;
}

enum hf_rc hf_utc_parse(const char *text, int64_t *ret_wall_ms, struct hf_err *err)
{
    struct civil c = {0};
    const char *p = text;
    bool ok = digits(&p, 4, &c.y) && literal(&p, '-') && digits(&p, 2, &c.mo) && literal(&p, '-') &&
              digits(&p, 2, &c.d) && (literal(&p, 'T') || literal(&p, 't') || literal(&p, ' ')) &&
              digits(&p, 2, &c.h) && literal(&p, ':') && digits(&p, 2, &c.mi) && literal(&p, ':') &&
              digits(&p, 2, &c.s);
    int frac = 0;
    if (ok && literal(&p, '.')) {
        int scale = 100;
        ok = isdigit((unsigned char)*p);
        for (; isdigit((unsigned char)*p); p++) {
            frac += (*p - '0') * scale;
            scale /= 10;
        }
    }
    int minutes = 0;
    if (!ok || !zone(&p, &minutes) || *p != '\0' || !civil_ok(&c)) {
        return hf_fail(err, HF_EINVAL, "'%s' is not a time like 2026-11-30T22:37:01Z", text);
    }
    *ret_wall_ms = civil_ms(&c) + frac - (int64_t)minutes * 60000;
    return HF_OK;
}

/* "Tue, 09 Aug 2022 17:07:32 GMT"; the day may have one digit, the weekday is skipped. */
enum hf_rc hf_http_date_parse(const char *text, int64_t *ret_wall_ms, struct hf_err *err)
{
    static const char months[] = "JanFebMarAprMayJunJulAugSepOctNovDec";
    struct civil c = {0};
    const char *p = strchr(text, ',');
    p = p != NULL ? p + 1 : text;
    while (*p == ' ') {
        p++;
    }
    bool ok =
        digits(&p, isdigit((unsigned char)p[0]) && isdigit((unsigned char)p[1]) ? 2 : 1, &c.d) &&
        literal(&p, ' ');
    if (ok && strlen(p) > 3) {
        for (int i = 0; i < 12; i++) {
            if (strncmp(p, months + 3 * (size_t)i, 3) == 0) {
                c.mo = i + 1;
            }
        }
        p += 3;
    }
    ok = ok && literal(&p, ' ') && digits(&p, 4, &c.y) && literal(&p, ' ') && digits(&p, 2, &c.h) &&
         literal(&p, ':') && digits(&p, 2, &c.mi) && literal(&p, ':') && digits(&p, 2, &c.s) &&
         strcmp(p, " GMT") == 0;
    if (!ok || !civil_ok(&c)) {
        return hf_fail(err, HF_EINVAL, "'%s' is not an HTTP date", text);
    }
    *ret_wall_ms = civil_ms(&c);
    return HF_OK;
}
