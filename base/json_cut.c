/* SPDX-License-Identifier: Apache-2.0
 *
 * Finds where values begin and end by brackets and quotes alone; every byte is still parsed by
 * cJSON afterwards, in the rest or in an element, so nothing is accepted that it would refuse.
 * Pure; any thread.
 */
#include "base/prelude.h"

#include <string.h>

#include "base/json_cut.h"
#include "base/mem.h"

struct walk {
    const char *at, *end;
};

#define DEPTH_MAX 63 /* hf_json_parse's, less the outermost object */

static bool one_of(char c, const char *set)
{
    return c != '\0' && strchr(set, c) != NULL;
}

static void skip_blank(struct walk *w)
{
    while (w->at < w->end && one_of(*w->at, " \t\r\n")) {
        w->at++;
    }
}

static bool take(struct walk *w, char c)
{
    if (w->at < w->end && *w->at == c) {
        w->at++;
        return true;
    }
    return false;
}

static bool skip_string(struct walk *w)
{
    if (!take(w, '"')) {
        return false;
    }
    while (w->at < w->end && *w->at != '"') {
        w->at += *w->at == '\\' && w->end - w->at > 1 ? 2 : 1;
    }
    return take(w, '"');
}

static bool skip_brackets(struct walk *w)
{
    unsigned depth = 0;
    do {
        if (w->at >= w->end || depth > DEPTH_MAX) {
            return false;
        }
        char c = *w->at;
        if (c == '"') {
            if (!skip_string(w)) {
                return false;
            }
            continue;
        }
        depth += c == '{' || c == '[' ? 1 : 0;
        depth -= c == '}' || c == ']' ? 1 : 0;
        w->at++;
    } while (depth > 0);
    return true;
}

static bool skip_value(struct walk *w)
{
    if (w->at < w->end && *w->at == '"') {
        return skip_string(w);
    }
    if (w->at < w->end && (*w->at == '{' || *w->at == '[')) {
        return skip_brackets(w);
    }
    const char *from = w->at;
    while (w->at < w->end && !one_of(*w->at, ",]} \t\r\n")) {
        w->at++;
    }
    return w->at > from;
}

/* Which of the keys the string at `from` is, or n. A key written with escapes is none of them. */
static size_t key_of(const char *from, const char *to, const char *const *keys, size_t n)
{
    size_t len = (size_t)(to - from);
    size_t i = 0;
    while (i < n && !(len == strlen(keys[i]) + 2 && memcmp(from + 1, keys[i], len - 2) == 0)) {
        i++;
    }
    return i;
}

struct cutting {
    const char *const *keys;
    size_t n;
    struct hf_span *arrays;
    struct hf_buf rest;
    const char *copied; /* up to here the text is in `rest` */
};

static enum hf_rc copy_to(struct cutting *c, const char *to, struct hf_err *err)
{
    HF_TRY(hf_buf_add(&c->rest, c->copied, (size_t)(to - c->copied), err));
    c->copied = to;
    return HF_OK;
}

/* One member. *ret_ok: the text was as JSON has it, as far as this looked. */
static enum hf_rc cut_member(struct cutting *c, struct walk *w, bool *ret_ok, struct hf_err *err)
{
    *ret_ok = false;
    skip_blank(w);
    const char *key = w->at;
    if (!skip_string(w)) {
        return HF_OK;
    }
    size_t which = key_of(key, w->at, c->keys, c->n);
    skip_blank(w);
    if (!take(w, ':')) {
        return HF_OK;
    }
    skip_blank(w);
    const char *value = w->at;
    if (!skip_value(w)) {
        return HF_OK;
    }
    *ret_ok = true;
    if (which == c->n || *value != '[' || w->at[-1] != ']') {
        return HF_OK;
    }
    c->arrays[which] = (struct hf_span){.ptr = value, .len = (size_t)(w->at - value)};
    HF_TRY(copy_to(c, value + 1, err));
    c->copied = w->at - 1;
    return HF_OK;
}

/* Cuts what can be cut. Text that is not an object, or no JSON, is left as it is: the parser that
 * comes next has the words for it. */
static enum hf_rc cut_all(struct cutting *c, struct hf_span text, struct hf_err *err)
{
    struct walk w = {.at = text.ptr, .end = (const char *)text.ptr + text.len};
    skip_blank(&w);
    bool more = take(&w, '{');
    while (more) {
        bool ok = false;
        HF_TRY(cut_member(c, &w, &ok, err));
        skip_blank(&w);
        more = ok && take(&w, ',');
    }
    return copy_to(c, (const char *)text.ptr + text.len, err);
}

/* What the parser found under the keys is what was cut: a key that is there twice, or that is
 * written with escapes, would else be read in one way here and in another there. */
static enum hf_rc check_keys(const struct cutting *c, const cJSON *rest, struct hf_err *err)
{
    for (size_t i = 0; i < c->n; i++) {
        const cJSON *found = NULL;
        for (const cJSON *m = rest->child; m != NULL; m = m->next) {
            if (m->string == NULL || strcmp(m->string, c->keys[i]) != 0) {
                continue;
            }
            if (found != NULL) {
                return hf_fail(err, HF_ECORRUPT, "'%s' is there twice", c->keys[i]);
            }
            found = m;
        }
        if (cJSON_IsArray(found) != (c->arrays[i].len > 0)) {
            return hf_fail(err, HF_ECORRUPT, "the name '%s' is written with escapes", c->keys[i]);
        }
    }
    return HF_OK;
}

enum hf_rc hf_json_cut(struct hf_span text, size_t max_bytes, const char *const *keys, size_t n,
                       struct hf_span *ret_arrays, cJSON **ret_rest, struct hf_err *err)
{
    if (text.len > max_bytes) {
        return hf_fail(err, HF_EFULL, "JSON of %zu bytes, more than %zu", text.len, max_bytes);
    }
    memset(ret_arrays, 0, n * sizeof(ret_arrays[0]));
    struct cutting c = {.keys = keys, .n = n, .arrays = ret_arrays, .copied = text.ptr};
    hf_buf_init(&c.rest, text.len);
    enum hf_rc rc = text.len == 0 ? HF_OK : cut_all(&c, text, err);
    HF_CLEANUP(hf_json_freep) cJSON *rest = NULL;
    if (rc == HF_OK) {
        rc = hf_json_parse(hf_buf_span(&c.rest), max_bytes, &rest, err);
    }
    hf_buf_release(&c.rest);
    HF_TRY(rc);
    HF_TRY(check_keys(&c, rest, err));
    *ret_rest = rest;
    rest = NULL;
    return HF_OK;
}

static enum hf_rc broken(struct hf_span array, const struct walk *w, struct hf_err *err)
{
    return hf_fail(err, HF_ECORRUPT, "not JSON: an array that is broken at its byte %zu",
                   (size_t)(w->at - (const char *)array.ptr));
}

/* One of length 0 may have no pointer, and nothing may be added to that. */
static struct walk walk_of(struct hf_span array)
{
    const char *at = array.ptr;
    return (struct walk){.at = at, .end = array.len > 0 ? at + array.len : at};
}

static enum hf_rc one(struct hf_span text, hf_json_each_fn *fn, void *user, struct hf_err *err)
{
    HF_CLEANUP(hf_json_freep) cJSON *element = NULL;
    HF_TRY(hf_json_parse(text, text.len, &element, err));
    return fn == NULL ? HF_OK : fn(user, element, err);
}

enum hf_rc hf_json_each(struct hf_span array, hf_json_each_fn *fn, void *user, size_t *ret_n,
                        struct hf_err *err)
{
    size_t n = 0;
    struct walk w = walk_of(array);
    if (array.len > 0) {
        if (!take(&w, '[')) {
            return broken(array, &w, err);
        }
        skip_blank(&w);
        bool more = !(w.at + 1 == w.end && *w.at == ']');
        while (more) {
            skip_blank(&w);
            const char *from = w.at;
            if (!skip_value(&w)) {
                return broken(array, &w, err);
            }
            HF_TRY(one((struct hf_span){from, (size_t)(w.at - from)}, fn, user, err));
            n++;
            skip_blank(&w);
            more = take(&w, ',');
        }
        if (!take(&w, ']') || w.at != w.end) {
            return broken(array, &w, err);
        }
    }
    if (ret_n != NULL) {
        *ret_n = n;
    }
    return HF_OK;
}

size_t hf_json_count(struct hf_span array)
{
    struct walk w = walk_of(array);
    size_t n = 0;
    if (array.len == 0 || !take(&w, '[')) {
        return 0;
    }
    do {
        skip_blank(&w);
        if (!skip_value(&w)) {
            return n;
        }
        n++;
        skip_blank(&w);
    } while (take(&w, ','));
    return n;
}
