/* SPDX-License-Identifier: Apache-2.0
 *
 * Rows of pins. Whoever puts the next record of a row has read the one before it; that two cannot
 * put the same one makes it an order. Worker threads; nothing is deleted.
 */
#include "base/prelude.h"

#include <string.h>

#include "checkpoint/objects.h"
#include "checkpoint/pin.h"
#include "checkpoint/record.h"

static const char *const names[] = {[HF_PIN_NONE] = "",
                                    [HF_PIN_PINNED] = "pinned",
                                    [HF_PIN_UNPINNED] = "unpinned",
                                    [HF_PIN_CLOSED] = "closed"};

/* What cannot be read may have been a pin. */
static enum hf_pin_state read_state(struct hf_span text)
{
    HF_CLEANUP(hf_json_freep) cJSON *json = NULL;
    if (hf_record_check_sum(text, NULL) != HF_OK ||
        hf_record_parse(text, HF_RECORD_MAX, "pin", &json, NULL) != HF_OK) {
        return HF_PIN_PINNED;
    }
    const char *state = hf_json_opt_str(json, "state", "");
    for (size_t i = HF_PIN_UNPINNED; i < HF_COUNT(names); i++) {
        if (strcmp(state, names[i]) == 0) {
            return (enum hf_pin_state)i;
        }
    }
    return HF_PIN_PINNED;
}

enum hf_rc hf_pin_get(const struct hf_run *run, const struct hf_call *c, uint32_t attempt,
                      uint32_t number, enum hf_pin_state *ret, uint32_t *ret_n, struct hf_err *err)
{
    enum hf_pin_state state = HF_PIN_NONE;
    for (uint32_t n = 0; n < HF_NUMBER_MAX; n++) {
        char key[HF_KEY_MAX];
        struct hf_buf text;
        struct hf_err why;
        hf_buf_init(&text, HF_RECORD_MAX);
        enum hf_rc rc =
            hf_obj_get(run, c, hf_key_pin(key, run->name, attempt, number, n + 1), &text, &why);
        bool there = rc == HF_OK || rc == HF_EFULL || rc == HF_ECORRUPT;
        if (there) {
            state = read_state(hf_buf_span(&text));
        }
        hf_buf_release(&text);
        if (rc == HF_ENOTFOUND) {
            *ret = state;
            *ret_n = n;
            return HF_OK;
        }
        if (!there) {
            return hf_err_give(err, &why);
        }
    }
    return hf_fail(err, HF_EFULL, "checkpoint %u-%u was pinned too often", attempt, number);
}

/* HF_EEXISTS: somebody was first: read the row again. */
static enum hf_rc put(const struct hf_run *run, const struct hf_call *c, uint32_t attempt,
                      uint32_t number, uint32_t n, enum hf_pin_state state, struct hf_err *err)
{
    cJSON *json = hf_record_new("pin");
    hf_json_add_int(json, "attempt", attempt);
    hf_json_add_int(json, "number", number);
    hf_json_add_str(json, "state", names[state]);
    hf_json_add_int(json, "at_ms", hf_wall_ms());
    HF_CLEANUP(hf_freep) char *text = hf_record_add_sum(hf_record_print(json));
    char key[HF_KEY_MAX];
    struct hf_span data = {.ptr = text, .len = strlen(text)};
    return hf_obj_create(run, c, hf_key_pin(key, run->name, attempt, number, n), data, NULL, err);
}

static enum hf_rc check_there(const struct hf_run *run, const struct hf_call *c, uint32_t attempt,
                              uint32_t number, struct hf_err *err)
{
    struct hf_decision d;
    struct hf_err why;
    enum hf_rc rc = hf_lineage_get_decision(run, c, attempt, number, &d, &why);
    bool there = rc == HF_ECORRUPT || (rc == HF_OK && d.kind == HF_DECISION_MANIFEST);
    if (rc == HF_OK) {
        hf_decision_release(&d);
    }
    if (rc != HF_OK && rc != HF_ECORRUPT && rc != HF_ENOTFOUND) {
        return hf_err_give(err, &why);
    }
    return there ? HF_OK
                 : hf_fail(err, HF_ENOTFOUND, "there is no checkpoint %u-%u", attempt, number);
}

enum hf_rc hf_pin_set(const struct hf_run *run, const struct hf_call *c, uint32_t attempt,
                      uint32_t number, bool pinned, struct hf_err *err)
{
    HF_TRY(check_there(run, c, attempt, number, err));
    enum hf_pin_state want = pinned ? HF_PIN_PINNED : HF_PIN_UNPINNED;
    for (;;) {
        enum hf_pin_state state = HF_PIN_NONE;
        uint32_t n = 0;
        HF_TRY(hf_pin_get(run, c, attempt, number, &state, &n, err));
        if (state == HF_PIN_CLOSED || hf_lineage_is_retired(run, c, attempt, number)) {
            return hf_fail(err, HF_EEXISTS, "checkpoint %u-%u is removed, or about to be", attempt,
                           number);
        }
        if (state == want || (state == HF_PIN_NONE && !pinned)) {
            return HF_OK;
        }
        enum hf_rc rc = put(run, c, attempt, number, n + 1, want, err);
        if (rc != HF_EEXISTS) {
            return rc;
        }
    }
}

enum hf_rc hf_pin_close(const struct hf_run *run, const struct hf_call *c, uint32_t attempt,
                        uint32_t number, bool *ret_closed, struct hf_err *err)
{
    for (;;) {
        enum hf_pin_state state = HF_PIN_NONE;
        uint32_t n = 0;
        HF_TRY(hf_pin_get(run, c, attempt, number, &state, &n, err));
        *ret_closed = state != HF_PIN_PINNED;
        if (state == HF_PIN_PINNED || state == HF_PIN_CLOSED) {
            return HF_OK;
        }
        enum hf_rc rc = put(run, c, attempt, number, n + 1, HF_PIN_CLOSED, err);
        if (rc != HF_EEXISTS) {
            return rc;
        }
    }
}
