/* SPDX-License-Identifier: Apache-2.0
 *
 * run.json: the run's format, hash and cipher, written once by whoever comes first, with the
 * wrapped key where the run is encrypted. Opening a run also tries out the store, each time anew,
 * and proves that its key can be had: what was just written is read back and unwrapped like any
 * other. Worker threads.
 */
#include "base/prelude.h"

#include <string.h>

#include "checkpoint/objects.h"
#include "checkpoint/record.h"
#include "checkpoint/save.h"
#include "checkpoint/sealed.h"
#include "checkpoint/wrap.h"

void hf_run_close(struct hf_run *run)
{
    hf_store_close(run->store);
    hf_crypt_free(run->crypt);
    run->store = NULL;
    run->crypt = NULL;
}

static char *print_run(const struct hf_run *run, const struct hf_unlock *key)
{
    cJSON *json = hf_record_new("run");
    hf_json_add_str(json, "run", run->name);
    hf_json_add_str(json, "hash", key != NULL ? "hmac-sha256" : "sha256");
    hf_json_add_str(json, "cipher", key != NULL ? "aes-256-gcm" : "none");
    if (key == NULL) {
        hf_json_add(json, "key_ids", hf_json_arr());
    }
    hf_json_add_int(json, "block_bytes", HF_BLOCK_BYTES);
    cJSON *store = hf_json_obj();
    hf_json_add_bool(store, "create_only", (run->store->caps & HF_STORE_CREATE_ONLY) != 0);
    hf_json_add_bool(store, "outlives", (run->store->caps & HF_STORE_OUTLIVES) != 0);
    hf_json_add(json, "store", store);
    hf_json_add_int(json, "at_ms", hf_wall_ms());
    return key != NULL ? hf_wrap_print(json, key) : hf_record_print(json);
}

static enum hf_rc check_plain(struct hf_span text, struct hf_err *err)
{
    HF_CLEANUP(hf_json_freep) cJSON *json = NULL;
    HF_TRY(hf_record_parse(text, HF_RECORD_MAX, "run", &json, err));
    const char *hash = NULL;
    const char *cipher = NULL;
    HF_TRY(hf_json_get_str(json, "hash", &hash, err));
    HF_TRY(hf_json_get_str(json, "cipher", &cipher, err));
    if (strcmp(hash, "sha256") != 0 || strcmp(cipher, "none") != 0) {
        enum hf_rc rc = hf_fail(err, HF_ENOTSUP, "hash '%s' and cipher '%s'", hash, cipher);
        return hf_hint(err, rc, "A newer Holdfast wrote this run; use one at least as new.");
    }
    return HF_OK;
}

/* Is it, damaged or not, the run.json of an encrypted run? Then it holds the key. */
static bool holds_key(struct hf_span text)
{
    static const char *const words[] = {"\"wraps\":", "[\"" HF_FEATURE_ENCRYPTED "\"]"};
    for (size_t i = 0; i < HF_COUNT(words); i++) {
        if (text.len > 0 && memmem(text.ptr, text.len, words[i], strlen(words[i])) != NULL) {
            return true;
        }
    }
    return false;
}

static enum hf_rc key_is_lost(struct hf_err *err, enum hf_rc rc)
{
    return hf_hint(err, rc,
                   "It holds the run's wrapped key: put a copy of it back. Without it nothing of "
                   "the run can be read; --run NAME begins another.");
}

/* What the run.json says, against what the user gives; run->crypt is filled. */
static enum hf_rc check_run(struct hf_run *run, const struct hf_unlock *key, struct hf_span text,
                            struct hf_err *err)
{
    enum hf_rc rc = HF_OK;
    if (holds_key(text)) {
        rc = hf_wrap_open(text, run->name, key, &run->crypt, err);
        return rc == HF_ECORRUPT ? key_is_lost(err, rc) : rc;
    }
    rc = check_plain(text, err);
    if (rc == HF_ECORRUPT && key != NULL) {
        return key_is_lost(err, rc);
    }
    if (rc == HF_ECORRUPT) {
        return hf_hint(
            err, rc,
            "Remove the run's 'run.json' from the store: it is written anew, and nothing "
            "else is lost.");
    }
    if (rc == HF_OK && key != NULL) {
        rc = hf_fail(err, HF_EINVAL, "it was begun without encryption, and a key is given");
        return hf_hint(err, rc,
                       "Leave out the key, or begin an encrypted run under another name (--run).");
    }
    return rc;
}

/* There is no run.json. Where there are attempts all the same, it was lost, and with it the key:
 * a new one would make a run of two halves, of which one cannot be read. */
static enum hf_rc check_new(const struct hf_run *run, const struct hf_unlock *key,
                            const struct hf_call *c, struct hf_err *err)
{
    char name[HF_KEY_MAX];
    struct hf_buf text;
    struct hf_err why;
    struct hf_run bare = {.store = run->store, .name = run->name};
    hf_buf_init(&text, hf_sealed_max(HF_RECORD_MAX));
    enum hf_rc rc = hf_obj_get(&bare, c, hf_key_claim(name, run->name, 1), &text, &why);
    bool sealed = rc == HF_OK && hf_sealed_is(hf_buf_span(&text));
    hf_buf_release(&text);
    if (rc != HF_OK) {
        return rc == HF_ENOTFOUND ? HF_OK : hf_err_give(err, &why);
    }
    if (sealed) {
        return key_is_lost(err, hf_fail(err, HF_ECORRUPT, "its 'run.json' is gone"));
    }
    if (key != NULL) {
        rc = hf_fail(err, HF_EINVAL, "its 'run.json' is gone, and what it has is not encrypted");
        return hf_hint(err, rc,
                       "Leave out the key, or begin an encrypted run under another name (--run).");
    }
    return HF_OK;
}

static enum hf_rc open_or_create(struct hf_run *run, const struct hf_unlock *key,
                                 const struct hf_call *c, bool *ret_created, struct hf_err *err)
{
    char name[HF_KEY_MAX];
    struct hf_buf text;
    struct hf_err why;
    struct hf_run bare = {.store = run->store, .name = run->name};
    hf_buf_init(&text, HF_RECORD_MAX);
    hf_key_run(name, run->name);
    enum hf_rc rc = hf_obj_get(&bare, c, name, &text, &why);
    if (rc == HF_ENOTFOUND) {
        rc = check_new(run, key, c, &why);
        if (rc == HF_OK) {
            HF_CLEANUP(hf_freep) char *mine = print_run(run, key);
            struct hf_span data = {.ptr = mine, .len = strlen(mine)};
            rc = hf_store_create(run->store, c, name, data, &text, &why);
            *ret_created = rc == HF_OK;
            rc = rc == HF_EEXISTS ? HF_OK : rc;
        }
        if (rc == HF_OK && *ret_created && key != NULL) {
            rc = hf_obj_get(&bare, c, name, &text, &why);
        }
    }
    bool look = rc == HF_OK && (key != NULL || !*ret_created);
    rc = look ? check_run(run, key, hf_buf_span(&text), err) : rc;
    hf_buf_release(&text);
    return rc == HF_OK || look ? rc : hf_err_give(err, &why);
}

static enum hf_rc begin(struct hf_run *run, const struct hf_unlock *key, const struct hf_call *c,
                        bool *ret_created, struct hf_err *err)
{
    enum hf_rc rc = hf_store_probe(run->store, c, run->name, err);
    if (rc == HF_OK) {
        rc = open_or_create(run, key, c, ret_created, err);
    }
    return rc == HF_OK ? rc : hf_wrap(err, rc, "run '%s'", run->name);
}

enum hf_rc hf_run_open(const struct hf_run *run, const struct hf_call *c, bool *ret_created,
                       struct hf_err *err)
{
    struct hf_run copy = *run;
    bool created = false;
    HF_TRY(begin(&copy, NULL, c, &created, err));
    if (ret_created != NULL) {
        *ret_created = created;
    }
    return HF_OK;
}

enum hf_rc hf_run_begin(struct hf_run *run, const struct hf_unlock *key, const struct hf_call *c,
                        struct hf_err *err)
{
    bool created = false;
    return begin(run, key, c, &created, err);
}

enum hf_rc hf_run_unlock(struct hf_run *run, const struct hf_unlock *key, const struct hf_call *c,
                         struct hf_err *err)
{
    char name[HF_KEY_MAX];
    struct hf_buf text;
    struct hf_err why;
    struct hf_run bare = {.store = run->store, .name = run->name};
    hf_buf_init(&text, HF_RECORD_MAX);
    enum hf_rc rc = hf_obj_get(&bare, c, hf_key_run(name, run->name), &text, &why);
    if (rc == HF_OK) {
        rc = check_run(run, key, hf_buf_span(&text), &why);
        /* Who only looks has never needed it, as long as nothing is encrypted. */
        rc = rc == HF_ECORRUPT && key == NULL && !holds_key(hf_buf_span(&text)) ? HF_OK : rc;
    } else if (rc == HF_ENOTFOUND) {
        rc = check_new(run, key, c, &why);
    }
    hf_buf_release(&text);
    if (rc != HF_OK) {
        hf_err_give(err, &why);
        return hf_wrap(err, rc, "run '%s'", run->name);
    }
    return HF_OK;
}
