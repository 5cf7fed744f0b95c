/* SPDX-License-Identifier: Apache-2.0
 *
 * run.json: the run's format, hash and cipher, written once by whoever comes first. Opening a run
 * also tries out the store, each time anew. Worker threads.
 */
#include "base/prelude.h"

#include <string.h>

#include "checkpoint/objects.h"
#include "checkpoint/record.h"
#include "checkpoint/save.h"

static char *print_run(const struct hf_run *run)
{
    cJSON *json = hf_record_new("run");
    hf_json_add_str(json, "run", run->name);
    hf_json_add_str(json, "hash", "sha256");
    hf_json_add_str(json, "cipher", "none");
    hf_json_add(json, "key_ids", hf_json_arr());
    hf_json_add_int(json, "block_bytes", HF_BLOCK_BYTES);
    cJSON *store = hf_json_obj();
    hf_json_add_bool(store, "create_only", (run->store->caps & HF_STORE_CREATE_ONLY) != 0);
    hf_json_add_bool(store, "outlives", (run->store->caps & HF_STORE_OUTLIVES) != 0);
    hf_json_add(json, "store", store);
    hf_json_add_int(json, "at_ms", hf_wall_ms());
    return hf_record_print(json);
}

static enum hf_rc check_run(struct hf_span text, struct hf_err *err)
{
    HF_CLEANUP(hf_json_freep) cJSON *json = NULL;
    enum hf_rc rc = hf_record_parse(text, HF_RECORD_MAX, "run", &json, err);
    if (rc == HF_ECORRUPT) {
        return hf_hint(
            err, rc,
            "Remove the run's 'run.json' from the store: it is written anew, and nothing "
            "else is lost.");
    }
    HF_TRY(rc);
    const char *hash = NULL;
    const char *cipher = NULL;
    HF_TRY(hf_json_get_str(json, "hash", &hash, err));
    HF_TRY(hf_json_get_str(json, "cipher", &cipher, err));
    if (strcmp(hash, "sha256") != 0 || strcmp(cipher, "none") != 0) {
        rc = hf_fail(err, HF_ENOTSUP, "hash '%s' and cipher '%s'", hash, cipher);
        return hf_hint(err, rc, "A newer Holdfast wrote this run; use one at least as new.");
    }
    return HF_OK;
}

static enum hf_rc open_or_create(const struct hf_run *run, const struct hf_call *c,
                                 struct hf_buf *text, bool *ret_created, struct hf_err *err)
{
    char key[HF_KEY_MAX];
    hf_key_run(key, run->name);
    struct hf_err missing;
    enum hf_rc rc = hf_obj_get(run, c, key, text, &missing);
    if (rc == HF_ENOTFOUND) {
        HF_CLEANUP(hf_freep) char *mine = print_run(run);
        struct hf_span data = {.ptr = mine, .len = strlen(mine)};
        rc = hf_store_create(run->store, c, key, data, text, err);
        *ret_created = rc == HF_OK;
        return rc == HF_EEXISTS ? check_run(hf_buf_span(text), err) : rc;
    }
    if (rc != HF_OK) {
        return hf_err_give(err, &missing);
    }
    return check_run(hf_buf_span(text), err);
}

enum hf_rc hf_run_open(const struct hf_run *run, const struct hf_call *c, bool *ret_created,
                       struct hf_err *err)
{
    enum hf_rc rc = hf_store_probe(run->store, c, run->name, err);
    bool created = false;
    if (rc == HF_OK) {
        struct hf_buf text;
        hf_buf_init(&text, HF_RECORD_MAX);
        rc = open_or_create(run, c, &text, &created, err);
        hf_buf_release(&text);
    }
    if (rc != HF_OK) {
        return hf_wrap(err, rc, "run '%s'", run->name);
    }
    if (ret_created != NULL) {
        *ret_created = created;
    }
    return HF_OK;
}
