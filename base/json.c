/* SPDX-License-Identifier: Apache-2.0
 *
 * Checked JSON over cJSON. cJSON keeps numbers as doubles and prints large integers with an
 * exponent: integers are bounded when read and printed by hand when written.
 */
#include "base/prelude.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/json.h"
#include "base/mem.h"
#include "base/text.h"

#define DEPTH_MAX 64

/* Looks at the text before cJSON does, which goes 1000 levels deep, skips any control character as
 * white space, and ends a string at an escaped NUL. Why it is refused, or NULL; *ret_at: where. */
static const char *refused(const char *s, size_t len, size_t *ret_at)
{
    static const char nul[] = "\\u0000";
    unsigned depth = 0;
    bool in_string = false;
    for (size_t i = 0; i < len; i++) {
        unsigned char c = (unsigned char)s[i];
        *ret_at = i;
        if (c == '\0' ||
            (in_string && len - i >= sizeof(nul) - 1 && memcmp(s + i, nul, sizeof(nul) - 1) == 0)) {
            return "a NUL byte";
        }
        if (in_string) {
            in_string = c != '"';
            i += c == '\\' ? 1 : 0;
        } else if (c >= 0x7f || (c < ' ' && c != '\t' && c != '\r' && c != '\n')) {
            return "an odd byte between values";
        } else if (c == '"') {
            in_string = true;
        } else if (c == '{' || c == '[') {
            if (++depth > DEPTH_MAX) {
                return "too deep";
            }
        } else if ((c == '}' || c == ']') && depth > 0) {
            depth--;
        }
    }
    return NULL;
}

static const char *skip_blank(const char *s, const char *end)
{
    while (s < end && (*s == ' ' || *s == '\t' || *s == '\r' || *s == '\n')) {
        s++;
    }
    return s;
}

enum hf_rc hf_json_parse(struct hf_span text, size_t max_bytes, cJSON **ret, struct hf_err *err)
{
    if (text.len > max_bytes) {
        return hf_fail(err, HF_EFULL, "JSON of %zu bytes, more than %zu", text.len, max_bytes);
    }
    const char *s = text.ptr;
    size_t bad = 0;
    const char *why = text.len == 0 ? "empty" : refused(s, text.len, &bad);
    if (why != NULL) {
        return hf_fail_at(err, HF_ECORRUPT, HF_DOM_NONE, (int64_t)bad, __FILE__, __LINE__,
                          "not JSON: %s", why);
    }
    const char *end = NULL;
    cJSON *json = cJSON_ParseWithLengthOpts(s, text.len, &end, false);
    if (json == NULL) {
        size_t at = end != NULL && end >= s ? (size_t)(end - s) : 0;
        return hf_fail_at(err, HF_ECORRUPT, HF_DOM_NONE, (int64_t)at, __FILE__, __LINE__,
                          "not JSON at byte %zu", at);
    }
    end = skip_blank(end, s + text.len);
    if (end < s + text.len) {
        cJSON_Delete(json);
        return hf_fail_at(err, HF_ECORRUPT, HF_DOM_NONE, end - s, __FILE__, __LINE__,
                          "text after the JSON value");
    }
    *ret = json;
    return HF_OK;
}

void hf_json_free(cJSON *json)
{
    cJSON_Delete(json);
}

void hf_json_freep(cJSON **json)
{
    cJSON_Delete(*json);
    *json = NULL;
}

const cJSON *hf_json_opt(const cJSON *obj, const char *key)
{
    return cJSON_GetObjectItemCaseSensitive(obj, key);
}

static enum hf_rc wrong(struct hf_err *err, const cJSON *item, const char *key, const char *type)
{
    return hf_fail(err, HF_ECORRUPT, item == NULL ? "'%s' is missing (%s)" : "'%s' is not %s", key,
                   type);
}

enum hf_rc hf_json_get_str(const cJSON *obj, const char *key, const char **ret, struct hf_err *err)
{
    const cJSON *item = hf_json_opt(obj, key);
    if (!cJSON_IsString(item)) {
        return wrong(err, item, key, "a string");
    }
    *ret = item->valuestring;
    return HF_OK;
}

static bool exact_int(const cJSON *item, int64_t *ret)
{
    if (cJSON_IsRaw(item)) { /* one of our own, not printed yet */
        char *end = NULL;
        *ret = strtoll(item->valuestring, &end, 10);
        return end != item->valuestring && *end == '\0';
    }
    if (!cJSON_IsNumber(item)) {
        return false;
    }
    double v = item->valuedouble;
    if (!(v >= -(double)HF_JSON_INT_MAX && v <= (double)HF_JSON_INT_MAX) || v != floor(v)) {
        return false;
    }
    *ret = (int64_t)v;
    return true;
}

enum hf_rc hf_json_get_int(const cJSON *obj, const char *key, int64_t min, int64_t max,
                           int64_t *ret, struct hf_err *err)
{
    const cJSON *item = hf_json_opt(obj, key);
    int64_t v = 0;
    if (!exact_int(item, &v)) {
        return wrong(err, item, key, "an integer");
    }
    if (v < min || v > max) {
        return hf_fail(err, HF_ECORRUPT, "'%s' is %lld, outside %lld to %lld", key, (long long)v,
                       (long long)min, (long long)max);
    }
    *ret = v;
    return HF_OK;
}

enum hf_rc hf_json_get_arr(const cJSON *obj, const char *key, const cJSON **ret, struct hf_err *err)
{
    const cJSON *item = hf_json_opt(obj, key);
    if (!cJSON_IsArray(item)) {
        return wrong(err, item, key, "an array");
    }
    *ret = item;
    return HF_OK;
}

enum hf_rc hf_json_get_obj(const cJSON *obj, const char *key, const cJSON **ret, struct hf_err *err)
{
    const cJSON *item = hf_json_opt(obj, key);
    if (!cJSON_IsObject(item)) {
        return wrong(err, item, key, "an object");
    }
    *ret = item;
    return HF_OK;
}

const char *hf_json_opt_str(const cJSON *obj, const char *key, const char *fallback)
{
    const cJSON *item = hf_json_opt(obj, key);
    return cJSON_IsString(item) ? item->valuestring : fallback;
}

int64_t hf_json_opt_int(const cJSON *obj, const char *key, int64_t fallback)
{
    int64_t v = 0;
    return exact_int(hf_json_opt(obj, key), &v) ? v : fallback;
}

bool hf_json_opt_bool(const cJSON *obj, const char *key, bool fallback)
{
    const cJSON *item = hf_json_opt(obj, key);
    return cJSON_IsBool(item) ? cJSON_IsTrue(item) : fallback;
}

static cJSON *made(cJSON *item)
{
    if (item == NULL) {
        hf_out_of_memory(); /* cJSON has no other reason to fail */
    }
    return item;
}

cJSON *hf_json_obj(void)
{
    return made(cJSON_CreateObject());
}

cJSON *hf_json_arr(void)
{
    return made(cJSON_CreateArray());
}

static size_t utf8_len(const unsigned char *s)
{
    const char *text = (const char *)s;
    return hf_utf8_next(text, strnlen(text, 4), NULL);
}

static bool is_utf8(const char *s)
{
    const unsigned char *p = (const unsigned char *)s;
    while (*p != '\0') {
        size_t n = utf8_len(p);
        if (n == 0) {
            return false;
        }
        p += n;
    }
    return true;
}

static cJSON *text_item(const char *value)
{
    if (value == NULL) {
        return made(cJSON_CreateNull());
    }
    if (is_utf8(value)) {
        return made(cJSON_CreateString(value));
    }
    char *clean = hf_calloc(3 * strlen(value) + 1, 1);
    size_t at = 0;
    for (const unsigned char *p = (const unsigned char *)value; *p != '\0';) {
        size_t n = utf8_len(p);
        memcpy(clean + at, n > 0 ? (const char *)p : "\xef\xbf\xbd", n > 0 ? n : 3);
        at += n > 0 ? n : 3;
        p += n > 0 ? n : 1;
    }
    cJSON *item = made(cJSON_CreateString(clean));
    hf_free(clean);
    return item;
}

void hf_json_add(cJSON *obj, const char *key, cJSON *child_taken)
{
    cJSON_AddItemToObject(obj, key, child_taken);
}

void hf_json_add_str(cJSON *obj, const char *key, const char *value)
{
    hf_json_add(obj, key, text_item(value));
}

void hf_json_add_int(cJSON *obj, const char *key, int64_t value)
{
    char text[24];
    snprintf(text, sizeof(text), "%lld", (long long)value);
    hf_json_add(obj, key, made(cJSON_CreateRaw(text)));
}

void hf_json_add_known(cJSON *obj, const char *key, int64_t value)
{
    if (value >= 0) {
        hf_json_add_int(obj, key, value);
    } else {
        hf_json_add_null(obj, key);
    }
}

void hf_json_add_time(cJSON *obj, const char *key, int64_t wall_ms)
{
    char utc[HF_UTC_STRLEN];
    hf_json_add_str(obj, key, wall_ms > 0 ? hf_utc_format(wall_ms, utc) : NULL);
}

void hf_json_add_num(cJSON *obj, const char *key, double value)
{
    hf_json_add(obj, key, made(isfinite(value) ? cJSON_CreateNumber(value) : cJSON_CreateNull()));
}

void hf_json_add_bool(cJSON *obj, const char *key, bool value)
{
    hf_json_add(obj, key, made(cJSON_CreateBool(value)));
}

void hf_json_add_null(cJSON *obj, const char *key)
{
    hf_json_add(obj, key, made(cJSON_CreateNull()));
}

void hf_json_push(cJSON *arr, cJSON *child_taken)
{
    cJSON_AddItemToArray(arr, child_taken);
}

void hf_json_push_str(cJSON *arr, const char *value)
{
    hf_json_push(arr, text_item(value));
}

cJSON *hf_json_bytes(const char *value)
{
    if (is_utf8(value)) {
        return text_item(value);
    }
    static const char digits[] = "0123456789abcdef";
    size_t len = strlen(value);
    char *hex = hf_calloc(2 * len + 1, 1);
    for (size_t i = 0; i < len; i++) {
        hex[2 * i] = digits[(unsigned char)value[i] >> 4];
        hex[2 * i + 1] = digits[(unsigned char)value[i] & 15];
    }
    cJSON *obj = hf_json_obj();
    hf_json_add_str(obj, "hex", hex);
    hf_free(hex);
    return obj;
}

static int hex_digit(char c)
{
    if (c >= '0' && c <= '9') {
        return c - '0';
    }
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

enum hf_rc hf_json_bytes_read(const cJSON *value, char **ret_owned, struct hf_err *err)
{
    if (cJSON_IsString(value)) {
        *ret_owned = hf_strdup(value->valuestring);
        return HF_OK;
    }
    const char *hex = cJSON_IsObject(value) ? hf_json_opt_str(value, "hex", NULL) : NULL;
    size_t len = hex != NULL ? strlen(hex) : 1;
    if (len % 2 != 0) {
        return hf_fail(err, HF_ECORRUPT, "neither a string nor hex bytes");
    }
    char *out = hf_calloc(len / 2 + 1, 1);
    for (size_t i = 0; i < len; i += 2) {
        int hi = hex_digit(hex[i]);
        int lo = hex_digit(hex[i + 1]);
        if (hi < 0 || lo < 0 || (hi == 0 && lo == 0)) {
            hf_free(out);
            return hf_fail(err, HF_ECORRUPT, "hex bytes with another digit, or a NUL");
        }
        out[i / 2] = (char)(hi * 16 + lo);
    }
    *ret_owned = out;
    return HF_OK;
}

char *hf_json_print(const cJSON *json)
{
    char *text = cJSON_PrintUnformatted(json);
    if (text == NULL) {
        hf_out_of_memory();
    }
    return text;
}
