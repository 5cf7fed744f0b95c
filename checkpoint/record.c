/* SPDX-License-Identifier: Apache-2.0
 *
 * The frame of records, and the small records: claims and ends. Pure functions over text; any
 * thread. Nothing here reads or writes a store.
 */
#include "base/prelude.h"

#include <stdio.h>
#include <string.h>

#include "base/hash.h"
#include "checkpoint/record.h"
#include "checkpoint/sealed.h"

#define FORMAT 1

static const char remedy[] = "A newer Holdfast wrote this; use one at least as new.";

#define SUM_HEAD       ",\"sum\":\""
#define SUM_HEAD_BYTES (sizeof(SUM_HEAD) - 1)
#define SUM_BYTES      (SUM_HEAD_BYTES + HF_ID_STRLEN - 1 + 2) /* and "} */

cJSON *hf_record_new(const char *type)
{
    cJSON *json = hf_json_obj();
    hf_json_add_int(json, "format", FORMAT);
    hf_json_add(json, "features", hf_json_arr());
    hf_json_add_str(json, "type", type);
    return json;
}

char *hf_record_print(cJSON *json_taken)
{
    char *text = hf_json_print(json_taken);
    hf_json_free(json_taken);
    return text;
}

char *hf_record_add_sum(char *text_taken)
{
    size_t len = strlen(text_taken) - 1; /* without the closing brace */
    char sum[HF_ID_STRLEN];
    hf_sha256_hex((struct hf_span){.ptr = text_taken, .len = len}, sum);
    /* In place: a manifest may be large, and memory is scarce when it is written. */
    char *text = hf_realloc(text_taken, len + SUM_BYTES + 1);
    (void)snprintf(text + len, SUM_BYTES + 1, SUM_HEAD "%s\"}", sum);
    return text;
}

enum hf_rc hf_record_check_sum(struct hf_span text, struct hf_err *err)
{
    const char *s = text.ptr;
    size_t len = text.len > SUM_BYTES ? text.len - SUM_BYTES : 0;
    if (len == 0 || memcmp(s + len, SUM_HEAD, SUM_HEAD_BYTES) != 0 ||
        memcmp(s + text.len - 2, "\"}", 2) != 0) {
        return hf_fail(err, HF_ECORRUPT, "it does not end in its checksum");
    }
    char sum[HF_ID_STRLEN];
    hf_sha256_hex((struct hf_span){.ptr = s, .len = len}, sum);
    return memcmp(s + len + SUM_HEAD_BYTES, sum, HF_ID_STRLEN - 1) == 0
               ? HF_OK
               : hf_fail(err, HF_ECORRUPT, "it is not what its checksum says");
}

static enum hf_rc unknown_feature(const char *name, struct hf_err *err)
{
    if (strcmp(name, HF_FEATURE_ENCRYPTED) == 0) {
        enum hf_rc rc = hf_fail(err, HF_ENOTSUP, "it is encrypted, and no key is given");
        return hf_hint(err, rc, "Give the run's key: --key-file or --key-passphrase-file.");
    }
    enum hf_rc rc = hf_fail(err, HF_ENOTSUP, "the feature '%s' is not known here", name);
    return hf_hint(err, rc, "%s", remedy);
}

static enum hf_rc check_frame(const cJSON *json, const char *type, const char *feature,
                              struct hf_err *err)
{
    if (!cJSON_IsObject(json)) {
        return hf_fail(err, HF_ECORRUPT, "not a JSON object");
    }
    int64_t format = 0;
    HF_TRY(hf_json_get_int(json, "format", 1, HF_JSON_INT_MAX, &format, err));
    if (format != FORMAT) {
        enum hf_rc rc = hf_fail(err, HF_ENOTSUP, "store format %lld, and not 1", (long long)format);
        return hf_hint(err, rc, "%s", remedy);
    }
    const cJSON *features = NULL;
    HF_TRY(hf_json_get_arr(json, "features", &features, err));
    const cJSON *one = NULL;
    cJSON_ArrayForEach(one, features)
    {
        const char *name = cJSON_IsString(one) ? one->valuestring : "?";
        if (feature == NULL || strcmp(name, feature) != 0) {
            return unknown_feature(name, err);
        }
    }
    const char *is = NULL;
    HF_TRY(hf_json_get_str(json, "type", &is, err));
    if (type != NULL && strcmp(is, type) != 0) {
        return hf_fail(err, HF_ECORRUPT, "a record of type '%s', and not '%s'", is, type);
    }
    return HF_OK;
}

enum hf_rc hf_record_check_frame(const cJSON *json, const char *type, struct hf_err *err)
{
    return check_frame(json, type, NULL, err);
}

enum hf_rc hf_record_check_text(struct hf_span text, struct hf_err *err)
{
    const char *s = text.ptr;
    for (size_t i = 0; i + 5 < text.len; i++) {
        if (s[i] != '\\') {
            continue;
        }
        if (memcmp(s + i + 1, "u0000", 5) == 0) {
            return hf_fail(err, HF_ECORRUPT, "a string with a NUL in it");
        }
        i++;
    }
    return HF_OK;
}

enum hf_rc hf_record_parse_with(struct hf_span text, size_t max_bytes, const char *type,
                                const char *feature, cJSON **ret, struct hf_err *err)
{
    HF_TRY(hf_record_check_text(text, err));
    cJSON *json = NULL;
    HF_TRY(hf_json_parse(text, max_bytes, &json, err));
    enum hf_rc rc = check_frame(json, type, feature, err);
    if (rc != HF_OK) {
        hf_json_free(json);
        return rc;
    }
    *ret = json;
    return HF_OK;
}

enum hf_rc hf_record_parse(struct hf_span text, size_t max_bytes, const char *type, cJSON **ret,
                           struct hf_err *err)
{
    return hf_record_parse_with(text, max_bytes, type, NULL, ret, err);
}

enum hf_rc hf_record_hex(const cJSON *obj, const char *key, char *out, size_t len,
                         struct hf_err *err)
{
    const char *text = NULL;
    HF_TRY(hf_json_get_str(obj, key, &text, err));
    if (strlen(text) != len - 1 || strspn(text, "0123456789abcdef") != len - 1) {
        return hf_fail(err, HF_ECORRUPT, "'%s' is not %zu lower-case hex digits", key, len - 1);
    }
    memcpy(out, text, len);
    return HF_OK;
}

enum hf_rc hf_record_bytes(const cJSON *obj, const char *key, char **ret, struct hf_err *err)
{
    enum hf_rc rc = hf_json_bytes_read(hf_json_opt(obj, key), ret, err);
    return rc == HF_OK ? rc : hf_wrap(err, rc, "'%s'", key);
}

enum hf_rc hf_record_number(const cJSON *obj, const char *key, uint32_t min, uint32_t *ret,
                            struct hf_err *err)
{
    int64_t v = 0;
    HF_TRY(hf_json_get_int(obj, key, min, HF_NUMBER_MAX, &v, err));
    *ret = (uint32_t)v;
    return HF_OK;
}

void hf_record_add_bytes(cJSON *obj, const char *key, const char *value)
{
    if (value == NULL) {
        hf_json_add_null(obj, key);
    } else {
        hf_json_add(obj, key, hf_json_bytes(value));
    }
}

static bool parts_ok(const char *path)
{
    for (const char *part = path;; part++) {
        size_t len = strcspn(part, "/");
        if (len == 0 || (len == 1 && part[0] == '.') || (len == 2 && memcmp(part, "..", 2) == 0)) {
            return false;
        }
        part += len;
        if (*part == '\0') {
            return true;
        }
    }
}

bool hf_path_is_root(const char *path)
{
    return path[0] == '/' && parts_ok(path + 1);
}

bool hf_path_is_inside(const char *path)
{
    return parts_ok(path);
}

/* Optional text: NULL when it is null or missing. */
static char *opt_text(const cJSON *json, const char *key)
{
    return hf_strdup(hf_json_opt_str(json, key, NULL));
}

static const char *const claim_kinds[] = {
    [HF_CLAIM_RUN] = "run", [HF_CLAIM_FINISHED] = "finished", [HF_CLAIM_STOPPED] = "stopped"};

void hf_claim_release(struct hf_claim *c)
{
    hf_strv_clear(&c->command);
    hf_free(c->folder);
    hf_free(c->host);
    hf_free(c->boot_id);
    hf_free(c->provider);
    *c = (struct hf_claim){.attempt = 0};
}

char *hf_claim_print(const struct hf_claim *c)
{
    cJSON *json = hf_record_new("claim");
    hf_json_add_int(json, "attempt", c->attempt);
    hf_json_add_str(json, "kind", claim_kinds[c->kind]);
    hf_json_add_str(json, "nonce", c->nonce);
    cJSON *command = hf_json_arr();
    for (size_t i = 0; i < c->command.len; i++) {
        hf_json_push(command, hf_json_bytes(c->command.items[i]));
    }
    hf_json_add(json, "command", command);
    hf_record_add_bytes(json, "folder", c->folder);
    hf_json_add_bool(json, "fresh", c->fresh);
    hf_json_add_str(json, "host", c->host);
    hf_json_add_str(json, "boot_id", c->boot_id);
    hf_json_add_int(json, "pid_ns", (int64_t)c->pid_ns);
    hf_json_add_int(json, "pid", c->pid);
    hf_json_add_int(json, "pid_start", (int64_t)c->pid_start);
    hf_json_add_str(json, "provider", c->provider);
    hf_json_add_int(json, "at_ms", c->at_wall_ms);
    return hf_record_add_sum(hf_record_print(json));
}

static enum hf_rc read_command(const cJSON *json, struct hf_strv *ret, struct hf_err *err)
{
    const cJSON *items = NULL;
    HF_TRY(hf_json_get_arr(json, "command", &items, err));
    const cJSON *item = NULL;
    cJSON_ArrayForEach(item, items)
    {
        char *arg = NULL;
        enum hf_rc rc = hf_json_bytes_read(item, &arg, err);
        if (rc != HF_OK) {
            return hf_wrap(err, rc, "'command'");
        }
        hf_strv_take(ret, arg);
    }
    return HF_OK;
}

static enum hf_rc read_claim(const cJSON *json, struct hf_claim *c, struct hf_err *err)
{
    HF_TRY(hf_record_number(json, "attempt", 1, &c->attempt, err));
    const char *kind = NULL;
    HF_TRY(hf_json_get_str(json, "kind", &kind, err));
    size_t k = 0;
    while (k < HF_COUNT(claim_kinds) && strcmp(kind, claim_kinds[k]) != 0) {
        k++;
    }
    if (k == HF_COUNT(claim_kinds)) {
        return hf_fail(err, HF_ECORRUPT, "a claim of kind '%s'", kind);
    }
    c->kind = (enum hf_claim_kind)k;
    HF_TRY(hf_record_hex(json, "nonce", c->nonce, sizeof(c->nonce), err));
    HF_TRY(read_command(json, &c->command, err));
    if (hf_json_opt(json, "folder") != NULL && !cJSON_IsNull(hf_json_opt(json, "folder"))) {
        HF_TRY(hf_record_bytes(json, "folder", &c->folder, err));
    }
    c->fresh = hf_json_opt_bool(json, "fresh", false);
    c->host = opt_text(json, "host");
    c->boot_id = opt_text(json, "boot_id");
    int64_t v = 0;
    HF_TRY(hf_json_get_int(json, "pid_ns", 0, HF_JSON_INT_MAX, &v, err));
    c->pid_ns = (uint64_t)v;
    HF_TRY(hf_json_get_int(json, "pid", 0, HF_JSON_INT_MAX, &c->pid, err));
    HF_TRY(hf_json_get_int(json, "pid_start", 0, HF_JSON_INT_MAX, &v, err));
    c->pid_start = (uint64_t)v;
    c->provider = opt_text(json, "provider");
    return hf_json_get_int(json, "at_ms", -HF_JSON_INT_MAX, HF_JSON_INT_MAX, &c->at_wall_ms, err);
}

enum hf_rc hf_claim_parse(struct hf_span text, struct hf_claim *ret, struct hf_err *err)
{
    *ret = (struct hf_claim){.attempt = 0};
    HF_CLEANUP(hf_json_freep) cJSON *json = NULL;
    enum hf_rc rc = hf_record_parse(text, HF_RECORD_MAX, "claim", &json, err);
    if (rc == HF_OK) {
        rc = read_claim(json, ret, err);
    }
    if (rc != HF_OK) {
        hf_claim_release(ret);
        return hf_wrap(err, rc, "claim");
    }
    return HF_OK;
}

void hf_end_release(struct hf_end *e)
{
    hf_free(e->outcome);
    hf_free(e->replacement);
    hf_free(e->left);
    *e = (struct hf_end){.exit_code = -1, .last_step = -1};
}

static void add_known(cJSON *json, const char *key, int64_t value, int64_t unknown)
{
    if (value == unknown) {
        hf_json_add_null(json, key);
    } else {
        hf_json_add_int(json, key, value);
    }
}

char *hf_end_print(const struct hf_end *e)
{
    cJSON *json = hf_record_new("end");
    hf_json_add_str(json, "nonce", e->nonce);
    hf_json_add_str(json, "outcome", e->outcome);
    add_known(json, "exit_code", e->exit_code, -1);
    add_known(json, "signal", e->signal, 0);
    hf_json_add_str(json, "replacement", e->replacement);
    add_known(json, "last_step", e->last_step, -1);
    if (e->forced) {
        hf_json_add_bool(json, "forced", true);
    }
    if (e->left != NULL) {
        hf_json_add_str(json, "left", e->left);
    }
    hf_json_add_int(json, "at_ms", e->at_wall_ms);
    return hf_record_add_sum(hf_record_print(json));
}

static enum hf_rc read_end(const cJSON *json, struct hf_end *e, struct hf_err *err)
{
    HF_TRY(hf_record_hex(json, "nonce", e->nonce, sizeof(e->nonce), err));
    const char *text = NULL;
    HF_TRY(hf_json_get_str(json, "outcome", &text, err));
    e->outcome = hf_strdup(text);
    e->exit_code = hf_json_opt_int(json, "exit_code", -1);
    e->signal = hf_json_opt_int(json, "signal", 0);
    e->replacement = hf_strdup(hf_json_opt_str(json, "replacement", "unknown"));
    e->last_step = hf_json_opt_int(json, "last_step", -1);
    e->forced = hf_json_opt_bool(json, "forced", false);
    e->left = opt_text(json, "left");
    return hf_json_get_int(json, "at_ms", -HF_JSON_INT_MAX, HF_JSON_INT_MAX, &e->at_wall_ms, err);
}

enum hf_rc hf_end_parse(struct hf_span text, struct hf_end *ret, struct hf_err *err)
{
    *ret = (struct hf_end){.exit_code = -1, .last_step = -1};
    HF_CLEANUP(hf_json_freep) cJSON *json = NULL;
    enum hf_rc rc = hf_record_parse(text, HF_RECORD_MAX, "end", &json, err);
    if (rc == HF_OK) {
        rc = read_end(json, ret, err);
    }
    if (rc != HF_OK) {
        hf_end_release(ret);
        return hf_wrap(err, rc, "end record");
    }
    return HF_OK;
}
