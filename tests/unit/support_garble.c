/* SPDX-License-Identifier: Apache-2.0
 *
 * Damage to JSON texts, see the header. The tree is parsed anew for each damage, so that one is
 * never mixed with another.
 */
#include "base/prelude.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/json.h"
#include "base/mem.h"
#include "tests/unit/support_garble.h"

static const char *const others[] = {"null", "true",  "-1", "0.5", "1e300", "9007199254740991",
                                     "\"\"", "\"x\"", "[]", "{}"};

void garble_cuts(const char *text, garble_fn *each, void *user)
{
    size_t len = strlen(text);
    for (size_t cut = 0; cut < len; cut++) {
        char what[64];
        snprintf(what, sizeof(what), "cut at byte %zu", cut);
        each(user, text, cut, what);
    }
}

void garble_bytes(const char *text, garble_fn *each, void *user)
{
    static const unsigned char masks[] = {0x01, 0x20, 0x80, 0x04};
    HF_CLEANUP(hf_freep) char *copy = hf_strdup(text);
    for (size_t i = 0; copy[i] != '\0'; i++) {
        char what[64];
        char was = copy[i];
        unsigned mask = masks[i % HF_COUNT(masks)];
        copy[i] = (char)((unsigned char)was ^ mask);
        snprintf(what, sizeof(what), "byte %zu ^ 0x%02x", i, mask);
        each(user, copy, strlen(text), what);
        copy[i] = was;
    }
}

/* The value number *n of the tree, in the order of the text; NULL: there are not so many. */
static cJSON *value_at(cJSON *tree, size_t *n)
{
    if (*n == 0) {
        return tree;
    }
    for (cJSON *child = tree->child; child != NULL; child = child->next) {
        --*n;
        cJSON *found = value_at(child, n);
        if (found != NULL) {
            return found;
        }
    }
    return NULL;
}

static cJSON *parent_of(cJSON *tree, const cJSON *value)
{
    for (cJSON *child = tree->child; child != NULL; child = child->next) {
        cJSON *found = child == value ? tree : parent_of(child, value);
        if (found != NULL) {
            return found;
        }
    }
    return NULL;
}

static cJSON *parse(const char *text)
{
    cJSON *tree = cJSON_Parse(text);
    assert_non_null(tree);
    return tree;
}

/* other NULL: taken away. False: there is no such value. */
static bool damage_one(const char *text, size_t nth, const char *other, garble_fn *each, void *user)
{
    cJSON *tree = parse(text);
    size_t n = nth;
    cJSON *value = value_at(tree, &n);
    if (value == NULL) {
        hf_json_free(tree);
        return false;
    }
    char what[128];
    snprintf(what, sizeof(what), "value %zu ('%.40s'): %s", nth,
             value->string != NULL ? value->string : "", other != NULL ? other : "taken away");
    cJSON *parent = parent_of(tree, value);
    if (parent == NULL) { /* the root */
        hf_json_free(tree);
        tree = other != NULL ? parse(other) : NULL;
    } else if (other == NULL) {
        cJSON_Delete(cJSON_DetachItemViaPointer(parent, value));
    } else {
        cJSON *put = parse(other);
        if (cJSON_IsObject(parent)) {
            put->string = cJSON_malloc(strlen(value->string) + 1);
            assert_non_null(put->string);
            memcpy(put->string, value->string, strlen(value->string) + 1);
        }
        assert_true(cJSON_ReplaceItemViaPointer(parent, value, put));
    }
    HF_CLEANUP(hf_freep) char *now = tree != NULL ? hf_json_print(tree) : hf_strdup("");
    cJSON *was = parse(text);
    HF_CLEANUP(hf_freep) char *before = hf_json_print(was);
    if (strcmp(now, before) != 0) {
        each(user, now, strlen(now), what);
    }
    hf_json_free(was);
    hf_json_free(tree);
    return true;
}

void garble_values(const char *text, garble_fn *each, void *user)
{
    for (size_t nth = 0; damage_one(text, nth, NULL, each, user); nth++) {
        for (size_t i = 0; i < HF_COUNT(others); i++) {
            damage_one(text, nth, others[i], each, user);
        }
    }
}
