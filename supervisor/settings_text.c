/* SPDX-License-Identifier: Apache-2.0
 *
 * Text forms of setting values. Pure functions of their arguments; no locale is consulted, and
 * nothing here knows which setting a text belongs to.
 */
#include "base/prelude.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/text.h"
#include "supervisor/settings_text.h"

#define SHOWN_MAX 48 /* columns */

static bool is_alnum(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
}

static const char *const run_name_hint =
    "A run's name has 1 to 64 letters, digits, '.', '_' or '-', and starts with a letter or digit.";

/* For a message. */
static char *shortened(const char *name)
{
    HF_CLEANUP(hf_freep) char *clean = hf_text_clean(name);
    size_t width = hf_text_width(clean);
    return hf_text_fit(clean, width < SHOWN_MAX ? width : SHOWN_MAX, false);
}

enum hf_rc hf_run_name_check(const char *name, struct hf_err *err)
{
    size_t len = strlen(name);
    if (len == 0) {
        return hf_hint(err, hf_fail(err, HF_EINVAL, "the run's name is empty"), "%s",
                       run_name_hint);
    }
    HF_CLEANUP(hf_freep) char *shown = shortened(name);
    if (len > HF_RUN_NAME_MAX) {
        return hf_hint(err,
                       hf_fail(err, HF_EINVAL, "run name '%s' is too long: %zu bytes", shown, len),
                       "%s", run_name_hint);
    }
    for (size_t i = 0; i < len; i++) {
        bool ok = is_alnum(name[i]) || (i > 0 && strchr("._-", name[i]) != NULL);
        if (!ok) {
            size_t n = hf_utf8_next(name + i, len - i, NULL);
            HF_CLEANUP(hf_freep) char *letter = hf_strndup(name + i, n > 0 ? n : 1);
            HF_CLEANUP(hf_freep) char *clean = hf_text_clean(letter);
            return hf_hint(err,
                           hf_fail(err, HF_EINVAL, "run name '%s' may not %s '%s'", shown,
                                   i == 0 ? "start with" : "have", clean),
                           "%s", run_name_hint);
        }
    }
    return HF_OK;
}

/* Reads one word from *at on; *ret_got is false at the end of the text. */
static enum hf_rc next_word(const char **at, struct hf_buf *word, bool *ret_got, struct hf_err *err)
{
    const char *p = *at + strspn(*at, " \t\r\n");
    bool got = *p != '\0';
    char quote = '\0';
    for (; *p != '\0'; p++) {
        if (quote == '\0' && strchr(" \t\r\n", *p) != NULL) {
            break;
        }
        if (quote == '\0' && (*p == '\'' || *p == '"')) {
            quote = *p;
            continue;
        }
        if (quote != '\0' && *p == quote) {
            quote = '\0';
            continue;
        }
        /* Inside double quotes a shell keeps the backslash before all but these. */
        if (*p == '\\' && quote != '\'' && p[1] != '\0' &&
            (quote == '\0' || strchr("$`\"\\", p[1]) != NULL)) {
            p++;
        }
        HF_TRY(hf_buf_add(word, p, 1, err));
    }
    if (quote != '\0') {
        return hf_fail(err, HF_EINVAL, "a quote (%c) is not closed", quote);
    }
    *at = p;
    *ret_got = got;
    return HF_OK;
}

enum hf_rc hf_words_split(const char *text, struct hf_strv *ret, struct hf_err *err)
{
    struct hf_strv words = {0};
    struct hf_buf word;
    hf_buf_init(&word, 1u << 20);
    enum hf_rc rc = HF_OK;
    for (bool got = true; got;) {
        hf_buf_reset(&word);
        rc = next_word(&text, &word, &got, err);
        if (rc != HF_OK) {
            break;
        }
        if (got) {
            hf_strv_add(&words, hf_buf_str(&word));
        }
    }
    for (size_t i = 0; rc == HF_OK && i < words.len; i++) {
        hf_strv_add(ret, words.items[i]);
    }
    hf_buf_release(&word);
    hf_strv_clear(&words);
    return rc;
}

enum hf_rc hf_int_parse(const char *text, int64_t *ret, struct hf_err *err)
{
    const char *digits = text[0] == '-' ? text + 1 : text;
    char *end = NULL;
    errno = 0;
    long long value = strtoll(text, &end, 10);
    if (digits[0] < '0' || digits[0] > '9' || *end != '\0' || errno != 0) {
        return hf_fail(err, HF_EINVAL, "'%s' is not a whole number", text);
    }
    *ret = value;
    return HF_OK;
}

enum hf_rc hf_bytes_parse(const char *text, int64_t *ret, struct hf_err *err)
{
    static const struct {
        const char *unit;
        int64_t factor;
    } units[] = {{"", 1}, {"B", 1}, {"KiB", 1 << 10}, {"MiB", 1 << 20}, {"GiB", 1 << 30}};
    char *end = NULL;
    errno = 0;
    long long value = strtoll(text, &end, 10);
    bool number = text[0] >= '0' && text[0] <= '9' && errno == 0;
    for (size_t i = 0; number && i < HF_COUNT(units); i++) {
        if (strcmp(end, units[i].unit) == 0 && value <= INT64_MAX / units[i].factor) {
            *ret = value * units[i].factor;
            return HF_OK;
        }
    }
    return hf_hint(err, hf_fail(err, HF_EINVAL, "'%s' is not a size", text),
                   "Sizes look like 4096, 64KiB, 16MiB or 1GiB.");
}

/* 0: no such name. */
static int signal_by_name(const char *name)
{
    if (strncasecmp(name, "SIG", 3) == 0) {
        name += 3;
    }
    int64_t above = 0;
    if (strncasecmp(name, "RTMIN", 5) == 0) {
        bool plain = name[5] == '\0';
        if (!plain && (name[5] != '+' || hf_int_parse(name + 6, &above, NULL) != HF_OK)) {
            return 0;
        }
        return above >= 0 && SIGRTMIN + above <= SIGRTMAX ? SIGRTMIN + (int)above : 0;
    }
    for (int sig = 1; sig < SIGRTMIN; sig++) {
        const char *abbrev = sigabbrev_np(sig);
        if (abbrev != NULL && strcasecmp(name, abbrev) == 0) {
            return sig;
        }
    }
    return 0;
}

enum hf_rc hf_signal_parse(const char *text, int *ret, struct hf_err *err)
{
    int64_t number = 0;
    int sig = signal_by_name(text);
    if (sig == 0 && hf_int_parse(text, &number, NULL) == HF_OK && number >= 1 &&
        number <= SIGRTMAX) {
        sig = (int)number;
    }
    if (sig == 0) {
        return hf_hint(err, hf_fail(err, HF_EINVAL, "'%s' is not a signal", text),
                       "Signals look like USR1, SIGUSR1 or 10.");
    }
    if (sig == SIGKILL || sig == SIGSTOP || sig == SIGCHLD) {
        return hf_hint(err, hf_fail(err, HF_EINVAL, "signal '%s' cannot be used here", text),
                       "USR1 and USR2 are free for such uses.");
    }
    *ret = sig;
    return HF_OK;
}

#define NEAREST_MAX 40

static size_t min3(size_t a, size_t b, size_t c)
{
    size_t ab = a < b ? a : b;
    return ab < c ? ab : c;
}

/* Insertions, deletions, replacements and swaps of neighbours. Both at most NEAREST_MAX. */
static size_t edit_distance(const char *a, size_t a_len, const char *b, size_t b_len)
{
    size_t d[3][NEAREST_MAX + 1];
    for (size_t j = 0; j <= b_len; j++) {
        d[0][j] = j;
    }
    for (size_t i = 1; i <= a_len; i++) {
        size_t *row = d[i % 3];
        const size_t *above = d[(i + 2) % 3];
        const size_t *above2 = d[(i + 1) % 3];
        row[0] = i;
        for (size_t j = 1; j <= b_len; j++) {
            size_t replace = above[j - 1] + (a[i - 1] != b[j - 1]);
            row[j] = min3(row[j - 1] + 1, above[j] + 1, replace);
            bool swapped = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
            if (swapped && above2[j - 2] + 1 < row[j]) {
                row[j] = above2[j - 2] + 1;
            }
        }
    }
    return d[a_len % 3][b_len];
}

const char *hf_nearest(const char *word, const char *const *names)
{
    size_t len = strlen(word);
    if (len == 0 || len > NEAREST_MAX) {
        return NULL;
    }
    size_t limit = len / 3 > 1 ? len / 3 : 1;
    const char *best = NULL;
    for (; *names != NULL; names++) {
        size_t name_len = strlen(*names);
        if (name_len > NEAREST_MAX) {
            continue;
        }
        size_t distance = edit_distance(word, len, *names, name_len);
        if (distance <= limit) {
            best = *names;
            limit = distance > 0 ? distance - 1 : 0;
        }
        if (best != NULL && distance == 0) {
            break;
        }
    }
    return best;
}
