/* SPDX-License-Identifier: Apache-2.0
 *
 * The text of a settings file as people type it. Looked at as a whole before it is parsed, and
 * line by line after the parser gave up, so that nothing a parser accepts is ever refused for its
 * looks. Pure functions of their arguments.
 */
#include "base/prelude.h"

#include <stdio.h>
#include <string.h>

#include "base/text.h"
#include "supervisor/settings_lines.h"

/* One character at *at, which is moved on; 0 at the end. The text is UTF-8. */
static uint32_t take(struct hf_span text, size_t *at)
{
    uint32_t c = 0;
    size_t n = *at < text.len ? hf_utf8_next((const char *)text.ptr + *at, text.len - *at, &c) : 0;
    *at += n;
    return n > 0 ? c : 0;
}

void hf_settings_place(struct hf_span text, size_t at, size_t *ret_line, size_t *ret_column)
{
    const char *s = text.ptr;
    *ret_line = 1;
    *ret_column = 1;
    for (size_t i = 0; i < at && i < text.len; i++) {
        bool crlf = s[i] == '\r' && i + 1 < text.len && s[i + 1] == '\n';
        if (s[i] == '\n' || (s[i] == '\r' && !crlf)) {
            (*ret_line)++;
            *ret_column = 1;
        } else if (((unsigned char)s[i] & 0xc0) != 0x80) {
            (*ret_column)++;
        }
    }
}

/* UTF-16 and UTF-32 by their byte order marks; without one, by a zero beside an ASCII letter. */
static const char *wide_encoding(struct hf_span text)
{
    const unsigned char *s = text.ptr;
    if (text.len < 2) {
        return NULL;
    }
    if (text.len >= 4 && ((s[0] == 0xff && s[1] == 0xfe && s[2] == 0 && s[3] == 0) ||
                          (s[0] == 0 && s[1] == 0 && s[2] == 0xfe && s[3] == 0xff))) {
        return "UTF-32";
    }
    bool marked = (s[0] == 0xff && s[1] == 0xfe) || (s[0] == 0xfe && s[1] == 0xff);
    bool bare = (s[0] == 0) != (s[1] == 0) && text.len >= 4 && (s[2] == 0) == (s[0] == 0) &&
                (s[3] == 0) == (s[1] == 0);
    return marked || bare ? "UTF-16" : NULL;
}

/* What YAML lets no file hold. */
static bool unprintable(uint32_t c)
{
    return (c < 0x20 && c != '\t' && c != '\n' && c != '\r') ||
           (c >= 0x7f && c < 0xa0 && c != 0x85) || c == 0xfeff || c == 0xfffe || c == 0xffff;
}

enum hf_rc hf_settings_text_check(const char *path, struct hf_span *text, struct hf_err *err)
{
    const char *wide = wide_encoding(*text);
    if (wide != NULL) {
        return hf_hint(err,
                       hf_fail(err, HF_EINVAL, "%s:1:1: the file is %s, not UTF-8", path, wide),
                       "Save it as UTF-8: 'iconv -f %s -t UTF-8'.", wide);
    }
    if (text->len >= 3 && memcmp(text->ptr, "\xef\xbb\xbf", 3) == 0) {
        *text = (struct hf_span){(const char *)text->ptr + 3, text->len - 3};
    }
    const char *s = text->ptr;
    size_t line = 0;
    size_t column = 0;
    for (size_t at = 0, n = 0; at < text->len; at += n) {
        uint32_t c = 0;
        n = hf_utf8_next(s + at, text->len - at, &c);
        if (n > 0 && !unprintable(c)) {
            continue;
        }
        hf_settings_place(*text, at, &line, &column);
        if (n > 0) {
            return hf_hint(err,
                           hf_fail(err, HF_EINVAL, "%s:%zu:%zu: a control character (U+%04X)", path,
                                   line, column, c),
                           "Remove it; a settings file is plain text.");
        }
        return hf_hint(err,
                       hf_fail(err, HF_EINVAL, "%s:%zu:%zu: byte 0x%02x is not UTF-8", path, line,
                               column, (unsigned char)s[at]),
                       "Save the file as UTF-8; from GBK: 'iconv -f GB18030 -t UTF-8'.");
    }
    return HF_OK;
}

/* Punctuation that input methods and word processors put in the place of ASCII's. */
static const struct {
    uint32_t c;
    const char *shown, *what, *remedy;
} odd[] = {
    {0xff1a, "：", "a full-width colon", "Write ':' and a space, as in 'every: 10m'."},
    {0x201c, "“", "a curly quote", "Write \" or ', or leave the quotes out."},
    {0x201d, "”", "a curly quote", "Write \" or ', or leave the quotes out."},
    {0x2018, "‘", "a curly quote", "Write \" or ', or leave the quotes out."},
    {0x2019, "’", "a curly quote", "Write \" or ', or leave the quotes out."},
    {0xff02, "＂", "a full-width quote", "Write \" or ', or leave the quotes out."},
    {0xff07, "＇", "a full-width quote", "Write \" or ', or leave the quotes out."},
    {0xff0c, "，", "a full-width comma", "Write ',' and a space."},
    {0xff1d, "＝", "a full-width equals sign", "Write ':' and a space, as in 'every: 10m'."},
    {0xff3b, "［", "a full-width bracket", "Write '['."},
    {0xff3d, "］", "a full-width bracket", "Write ']'."},
    {0xff5b, "｛", "a full-width brace", "Write '{'."},
    {0xff5d, "｝", "a full-width brace", "Write '}'."},
    {0xff03, "＃", "a full-width hash", "Write '#'."},
    {0xff0d, "－", "a full-width hyphen", "Write '-'."},
    {0x3000, "U+3000", "a full-width space", "Write a plain space."},
    {0x00a0, "U+00A0", "a no-break space", "Write a plain space."},
};

static size_t odd_index(uint32_t c)
{
    size_t i = 0;
    while (i < HF_COUNT(odd) && odd[i].c != c) {
        i++;
    }
    return i;
}

/* The line without its end; empty beyond the last. */
static struct hf_span line_of(struct hf_span text, size_t line)
{
    const char *s = text.ptr;
    size_t at = 0;
    for (size_t n = 1; n < line && at < text.len; at++) {
        n += s[at] == '\n' || (s[at] == '\r' && (at + 1 >= text.len || s[at + 1] != '\n'));
    }
    size_t end = at;
    while (end < text.len && s[end] != '\n' && s[end] != '\r') {
        end++;
    }
    return (struct hf_span){s + at, end - at};
}

static bool word_char(uint32_t c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
           c == '_';
}

/* "keep:3" and "keep = 3" for "keep: 3". */
static enum hf_rc explain_separator(const char *path, struct hf_span text, size_t line,
                                    struct hf_err *err)
{
    const char *s = text.ptr;
    size_t at = 0;
    while (at < text.len && (s[at] == ' ' || s[at] == '{' || s[at] == '"')) {
        at++;
    }
    size_t start = at;
    while (at < text.len && word_char((unsigned char)s[at])) {
        at++;
    }
    size_t end = at;
    while (at < text.len && s[at] == ' ') {
        at++;
    }
    if (end == start || at == text.len) {
        return HF_OK;
    }
    const char *what = s[at] == '=' ? "'=' where a colon is needed" : "no space after the colon";
    bool tight = s[at] == ':' && at == end && at + 1 < text.len && s[at + 1] != ' ';
    if (s[at] != '=' && !tight) {
        return HF_OK;
    }
    return hf_hint(err, hf_fail(err, HF_EINVAL, "%s:%zu:%zu: %s", path, line, at + 1, what),
                   "Write '%.*s: ' and the value.", (int)(end - start), s + start);
}

enum hf_rc hf_settings_line_explain(const char *path, struct hf_span text, size_t line,
                                    struct hf_err *err)
{
    struct hf_span l = line_of(text, line);
    bool indent = true;
    uint32_t before = ' ';
    size_t column = 1;
    for (size_t at = 0; at < l.len; column++) {
        uint32_t c = take(l, &at);
        if (c == '#' && (before == ' ' || before == '\t')) {
            break;
        }
        if (c == '\t' && indent) {
            return hf_hint(
                err,
                hf_fail(err, HF_EINVAL, "%s:%zu:%zu: a tab in the indentation", path, line, column),
                "Start the line with the setting's name, or indent with spaces.");
        }
        size_t i = odd_index(c);
        if (i < HF_COUNT(odd)) {
            return hf_hint(err,
                           hf_fail(err, HF_EINVAL, "%s:%zu:%zu: %s (%s)", path, line, column,
                                   odd[i].what, odd[i].shown),
                           "%s", odd[i].remedy);
        }
        indent = indent && c == ' ';
        before = c;
    }
    return explain_separator(path, l, line, err);
}

enum hf_rc hf_settings_quote_check(const char *where, const char *value, struct hf_err *err)
{
    size_t at = 0;
    size_t i = odd_index(take((struct hf_span){value, strlen(value)}, &at));
    if (i == HF_COUNT(odd) || strstr(odd[i].what, "quote") == NULL) {
        return HF_OK;
    }
    return hf_hint(err,
                   hf_fail(err, HF_EINVAL, "%s: the value starts with %s (%s)", where, odd[i].what,
                           odd[i].shown),
                   "%s", odd[i].remedy);
}
