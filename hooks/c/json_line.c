/* SPDX-License-Identifier: Apache-2.0
 *
 * JSON for the C client. Pure, but for the memory of the strings that are read; any thread. Must
 * not read past the NUL of a text, whatever is in it.
 */
#ifndef _GNU_SOURCE
#    define _GNU_SOURCE
#endif

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "json_line.h"

static void raw(struct hfj_out *o, const char *text, size_t len)
{
    if (o->full || len >= o->cap - o->len) {
        o->full = true;
        return;
    }
    memcpy(o->data + o->len, text, len);
    o->len += len;
    o->data[o->len] = '\0';
}

void hfj_text(struct hfj_out *o, const char *text)
{
    raw(o, text, strlen(text));
}

void hfj_int(struct hfj_out *o, int64_t value)
{
    char digits[24];
    snprintf(digits, sizeof digits, "%lld", (long long)value);
    hfj_text(o, digits);
}

/* Length of the UTF-8 sequence at s, 0 if it is none (overlong, surrogate, cut off). */
static size_t utf8_len(const unsigned char *s)
{
    static const struct {
        unsigned char first_low, first_high, second_low, second_high, len;
    } rows[] = {
        {0x01, 0x7f, 0x00, 0xff, 1}, {0xc2, 0xdf, 0x80, 0xbf, 2}, {0xe0, 0xe0, 0xa0, 0xbf, 3},
        {0xe1, 0xec, 0x80, 0xbf, 3}, {0xed, 0xed, 0x80, 0x9f, 3}, {0xee, 0xef, 0x80, 0xbf, 3},
        {0xf0, 0xf0, 0x90, 0xbf, 4}, {0xf1, 0xf3, 0x80, 0xbf, 4}, {0xf4, 0xf4, 0x80, 0x8f, 4},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        if (s[0] < rows[i].first_low || s[0] > rows[i].first_high) {
            continue;
        }
        size_t n = 1;
        while (n < rows[i].len && s[n] >= (n == 1 ? rows[i].second_low : 0x80) &&
               s[n] <= (n == 1 ? rows[i].second_high : 0xbf)) {
            n++;
        }
        return n == rows[i].len ? n : 0;
    }
    return 0;
}

static bool is_utf8(const char *text)
{
    const unsigned char *s = (const unsigned char *)text;
    while (*s) {
        size_t n = utf8_len(s);
        if (n == 0) {
            return false;
        }
        s += n;
    }
    return true;
}

void hfj_bytes(struct hfj_out *o, const char *text)
{
    char piece[8];
    if (!is_utf8(text)) {
        hfj_text(o, "{\"hex\":\"");
        for (const char *p = text; *p; p++) {
            snprintf(piece, sizeof piece, "%02x", (unsigned)(unsigned char)*p);
            hfj_text(o, piece);
        }
        hfj_text(o, "\"}");
        return;
    }
    hfj_text(o, "\"");
    for (const char *p = text; *p; p++) {
        if (*p == '"' || *p == '\\') {
            hfj_text(o, "\\");
            raw(o, p, 1);
        } else if ((unsigned char)*p < 0x20) {
            snprintf(piece, sizeof piece, "\\u%04x", (unsigned)(unsigned char)*p);
            hfj_text(o, piece);
        } else {
            raw(o, p, 1);
        }
    }
    hfj_text(o, "\"");
}

static const char *blank(const char *p)
{
    return p + strspn(p, " \t\r\n");
}

/* Past the string that begins at p, or NULL. */
static const char *skip_string(const char *p)
{
    for (p++; *p && *p != '"'; p++) {
        if (*p == '\\' && p[1]) {
            p++;
        }
    }
    return *p == '"' ? p + 1 : NULL;
}

/* Past the value that begins at p, or NULL. Brackets are only counted. */
static const char *skip(const char *p)
{
    size_t depth = 0;
    do {
        p = blank(p);
        if (*p == '"') {
            p = skip_string(p);
        } else if (*p == '{' || *p == '[') {
            depth++;
            p++;
            continue;
        } else if (*p == '}' || *p == ']') {
            if (depth == 0) {
                return NULL;
            }
            depth--;
            p++;
        } else {
            size_t n = strcspn(p, " \t\r\n,:{}[]\"");
            p = n || (depth && (*p == ',' || *p == ':')) ? p + (n ? n : 1) : NULL;
        }
    } while (p && depth > 0);
    return p;
}

const char *hfj_find(const char *p, const char *key)
{
    size_t len = strlen(key);
    p = p ? blank(p) : "";
    if (*p != '{') {
        return NULL;
    }
    p = blank(p + 1);
    while (*p == '"') {
        const char *name = p + 1;
        p = skip_string(p);
        if (!p) {
            return NULL;
        }
        bool match = (size_t)(p - 1 - name) == len && memcmp(name, key, len) == 0;
        p = blank(p);
        if (*p != ':') {
            return NULL;
        }
        p = blank(p + 1);
        if (match) {
            return p;
        }
        p = skip(p);
        p = p ? blank(p) : "";
        if (*p != ',') {
            return NULL;
        }
        p = blank(p + 1);
    }
    return NULL;
}

bool hfj_get_int(const char *obj, const char *key, int64_t *ret)
{
    const char *p = hfj_find(obj, key);
    if (!p || (*p != '-' && (*p < '0' || *p > '9'))) {
        return false;
    }
    char *end;
    long long value = strtoll(p, &end, 10);
    if (*end == '.' || *end == 'e' || *end == 'E') {
        return false;
    }
    *ret = value;
    return true;
}

static int hex(const char *p, size_t digits)
{
    int value = 0;
    for (size_t i = 0; i < digits; i++) {
        char c = p[i];
        int d = c >= '0' && c <= '9'   ? c - '0'
                : c >= 'a' && c <= 'f' ? c - 'a' + 10
                : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                       : -1;
        if (d < 0) {
            return -1;
        }
        value = value * 16 + d;
    }
    return value;
}

static size_t put_utf8(char *out, uint32_t c)
{
    if (c < 0x80) {
        out[0] = (char)c;
        return 1;
    }
    size_t n = c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
    for (size_t i = n - 1; i > 0; i--) {
        out[i] = (char)(0x80 | (c & 0x3f));
        c >>= 6;
    }
    out[0] = (char)((0xf0u << (4 - n)) | c);
    return n;
}

/* One escape at p (after the backslash) to out; returns past it, or NULL. */
static const char *unescape(const char *p, char *out, size_t *ret_len)
{
    static const char from[] = "\"\\/bfnrt";
    static const char to[] = "\"\\/\b\f\n\r\t";
    const char *known = *p ? strchr(from, *p) : NULL;
    if (known) {
        out[0] = to[known - from];
        *ret_len = 1;
        return p + 1;
    }
    int unit = *p == 'u' ? hex(p + 1, 4) : -1;
    if (unit <= 0) {
        return NULL;
    }
    uint32_t c = (uint32_t)unit;
    p += 5;
    if (c >= 0xd800 && c < 0xdc00) {
        int low = p[0] == '\\' && p[1] == 'u' ? hex(p + 2, 4) : -1;
        if (low < 0xdc00 || low > 0xdfff) {
            return NULL;
        }
        c = 0x10000 + ((c - 0xd800) << 10) + ((uint32_t)low - 0xdc00);
        p += 6;
    }
    *ret_len = put_utf8(out, c);
    return p;
}

static char *read_hex(const char *p)
{
    size_t n = strcspn(p, "\"");
    char *out = n % 2 == 0 ? malloc(n / 2 + 1) : NULL;
    for (size_t i = 0; out && i < n / 2; i++) {
        int byte = hex(p + 2 * i, 2);
        if (byte <= 0) {
            free(out);
            return NULL;
        }
        out[i] = (char)byte;
    }
    if (out) {
        out[n / 2] = '\0';
    }
    return out;
}

char *hfj_read_bytes(const char *p)
{
    if (p && *p == '{') {
        p = hfj_find(p, "hex");
        return p && *p == '"' && skip_string(p) ? read_hex(p + 1) : NULL;
    }
    const char *end = p && *p == '"' ? skip_string(p) : NULL;
    char *out = end ? malloc((size_t)(end - p)) : NULL;
    if (!out) {
        return NULL;
    }
    size_t len = 0;
    for (p++; *p != '"';) {
        size_t n = 1;
        if (*p != '\\') {
            out[len++] = *p++;
            continue;
        }
        p = unescape(p + 1, out + len, &n);
        if (!p) {
            free(out);
            return NULL;
        }
        len += n;
    }
    out[len] = '\0';
    return out;
}
