/* SPDX-License-Identifier: Apache-2.0
 *
 * Wrapping and unwrapping the master key. What stands in a run.json is a stranger's word until its
 * proof holds: the cost of scrypt that it asks for is bounded. Any thread; no I/O.
 */
#include "base/prelude.h"

#include <openssl/evp.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/mem.h"
#include "base/secret.h"
#include "checkpoint/record.h"
#include "checkpoint/sealed.h"
#include "checkpoint/wrap.h"

#define SALT_BYTES    32
#define WRAPPED_BYTES (HF_MASTER_BYTES + HF_TAG_BYTES)
#define PROBE         "holdfast"
#define PROBE_NAME    "run.json"
#define PROBE_BYTES   (HF_SIV_BYTES + 8 + HF_TAG_BYTES)
#define RUN_MAX       (1u << 20)

/* 32 MiB and some tenths of a second, as OWASP's list for scrypt has it. */
#define SCRYPT_N 32768
#define SCRYPT_R 8
#define SCRYPT_P 3
/* More than this is asked for by nobody who means well: 1 GiB. */
#define SCRYPT_MEM_MAX (UINT64_C(1) << 30)
#define SCRYPT_P_MAX   16

#define MAC_HEAD       ",\"mac\":\""
#define MAC_HEAD_BYTES (sizeof(MAC_HEAD) - 1)
#define MAC_BYTES      (MAC_HEAD_BYTES + HF_CRYPT_ID_HEX - 1 + 2) /* and "} */

static const char *const kinds[] = {
    [HF_UNLOCK_KEY_FILE] = "key-file", [HF_UNLOCK_PASSPHRASE] = "passphrase"};
static const char *const labels[] = {[HF_UNLOCK_KEY_FILE] = "holdfast/1/wrap/key-file",
                                     [HF_UNLOCK_PASSPHRASE] = "holdfast/1/wrap/passphrase"};
static const char *const words[] = {
    [HF_UNLOCK_KEY_FILE] = "a key file", [HF_UNLOCK_PASSPHRASE] = "a passphrase"};
static const char *const flags[] = {
    [HF_UNLOCK_KEY_FILE] = "--key-file PATH (HOLDFAST_KEY_FILE)",
    [HF_UNLOCK_PASSPHRASE] = "--key-passphrase-file PATH (HOLDFAST_KEY_PASSPHRASE_FILE)"};

struct hf_unlock *hf_unlock_new(enum hf_unlock_kind kind, struct hf_span secret)
{
    struct hf_unlock *u = hf_secret_new(sizeof(*u));
    u->kind = kind;
    u->len = secret.len < sizeof(u->bytes) ? secret.len : sizeof(u->bytes);
    memcpy(u->bytes, secret.ptr, u->len);
    return u;
}

void hf_unlock_free(struct hf_unlock *u)
{
    hf_secret_free(u, sizeof(*u));
}

struct scrypt {
    uint64_t n, r, p;
};

static bool scrypt_ok(const struct scrypt *s)
{
    return s->n >= 2 && (s->n & (s->n - 1)) == 0 && s->r >= 1 && s->p >= 1 &&
           s->p <= SCRYPT_P_MAX && s->r <= SCRYPT_MEM_MAX / 128 &&
           s->n <= SCRYPT_MEM_MAX / 128 / s->r;
}

/* The key that the master key is wrapped with: under this salt alone, so once. */
static bool wrapping_key(const struct hf_unlock *u, const unsigned char salt[SALT_BYTES],
                         const struct scrypt *s, unsigned char ret[32])
{
    unsigned char base[32];
    if (u->kind == HF_UNLOCK_KEY_FILE) {
        struct hf_span ikm = {.ptr = u->bytes, .len = u->len};
        hf_hmac(salt, &ikm, 1, base); /* HKDF-Extract */
    } else if (EVP_PBE_scrypt((const char *)u->bytes, u->len, salt, SALT_BYTES, s->n, s->r, s->p,
                              2 * SCRYPT_MEM_MAX, base, sizeof(base)) != 1) {
        return false;
    }
    const char *label = labels[u->kind];
    hf_hkdf(base, (struct hf_span){.ptr = label, .len = strlen(label)}, ret);
    hf_wipe(base, sizeof(base));
    return true;
}

static void add_hex(cJSON *json, const char *name, const unsigned char *data, size_t len)
{
    char hex[2 * PROBE_BYTES + 1];
    hf_to_hex(data, len, hex);
    hf_json_add_str(json, name, hex);
}

static bool from_hex(const char *hex, unsigned char *out, size_t len)
{
    if (hex == NULL || strlen(hex) != 2 * len || strspn(hex, "0123456789abcdef") != 2 * len) {
        return false;
    }
    for (size_t i = 0; i < len; i++) {
        char two[3] = {hex[2 * i], hex[2 * i + 1], '\0'};
        out[i] = (unsigned char)strtoul(two, NULL, 16);
    }
    return true;
}

static cJSON *print_wrap(const struct hf_unlock *u, const char *key_id,
                         const unsigned char master[HF_MASTER_BYTES])
{
    static const struct scrypt cost = {.n = SCRYPT_N, .r = SCRYPT_R, .p = SCRYPT_P};
    unsigned char salt[SALT_BYTES];
    unsigned char key[32];
    unsigned char wrapped[WRAPPED_BYTES];
    hf_random(salt, sizeof(salt));
    if (!wrapping_key(u, salt, &cost, key)) {
        hf_out_of_memory(); /* with our own parameters nothing else can be wrong */
    }
    hf_crypt_wrap(key, master, wrapped);
    hf_wipe(key, sizeof(key));
    cJSON *json = hf_json_obj();
    hf_json_add_str(json, "kind", kinds[u->kind]);
    hf_json_add_str(json, "key_id", key_id);
    if (u->kind == HF_UNLOCK_PASSPHRASE) {
        hf_json_add_str(json, "kdf", "scrypt");
        hf_json_add_int(json, "n", SCRYPT_N);
        hf_json_add_int(json, "r", SCRYPT_R);
        hf_json_add_int(json, "p", SCRYPT_P);
    }
    add_hex(json, "salt", salt, sizeof(salt));
    add_hex(json, "wrapped", wrapped, sizeof(wrapped));
    return json;
}

char *hf_wrap_print(cJSON *json_taken, const struct hf_unlock *u)
{
    unsigned char *master = hf_secret_new(HF_MASTER_BYTES);
    hf_random(master, HF_MASTER_BYTES);
    struct hf_crypt *k = hf_crypt_new(master);
    const char *id = hf_crypt_key_id(k);
    cJSON *features = cJSON_GetObjectItemCaseSensitive(json_taken, "features");
    hf_json_push(features, cJSON_CreateString(HF_FEATURE_ENCRYPTED));
    cJSON *ids = hf_json_arr();
    hf_json_push(ids, cJSON_CreateString(id));
    hf_json_add(json_taken, "key_ids", ids);
    hf_json_add_int(json_taken, "segment_bytes", HF_SEGMENT_BYTES);
    cJSON *wraps = hf_json_arr();
    hf_json_push(wraps, print_wrap(u, id, master));
    hf_json_add(json_taken, "wraps", wraps);
    hf_secret_free(master, HF_MASTER_BYTES);
    unsigned char probe[PROBE_BYTES];
    hf_crypt_seal_record(k, PROBE_NAME, (struct hf_span){.ptr = PROBE, .len = sizeof(PROBE) - 1},
                         probe);
    add_hex(json_taken, "probe", probe, sizeof(probe));
    HF_CLEANUP(hf_freep) char *text = hf_record_print(json_taken);
    size_t len = strlen(text) - 1; /* without the closing brace */
    char mac[HF_CRYPT_ID_HEX];
    hf_crypt_mac(k, (struct hf_span){.ptr = text, .len = len}, mac);
    hf_crypt_free(k);
    return hf_asprintf("%.*s" MAC_HEAD "%s\"}", (int)len, text, mac);
}

static enum hf_rc read_cost(const cJSON *wrap, struct scrypt *ret, struct hf_err *err)
{
    int64_t n = 0;
    int64_t r = 0;
    int64_t p = 0;
    if (strcmp(hf_json_opt_str(wrap, "kdf", ""), "scrypt") != 0) {
        return hf_fail(err, HF_ENOTSUP, "a passphrase's kdf '%s'",
                       hf_json_opt_str(wrap, "kdf", ""));
    }
    HF_TRY(hf_json_get_int(wrap, "n", 1, HF_JSON_INT_MAX, &n, err));
    HF_TRY(hf_json_get_int(wrap, "r", 1, HF_JSON_INT_MAX, &r, err));
    HF_TRY(hf_json_get_int(wrap, "p", 1, HF_JSON_INT_MAX, &p, err));
    *ret = (struct scrypt){.n = (uint64_t)n, .r = (uint64_t)r, .p = (uint64_t)p};
    return scrypt_ok(ret) ? HF_OK : hf_fail(err, HF_ECORRUPT, "it asks for too costly an scrypt");
}

static enum hf_rc open_wrap(const cJSON *wrap, const struct hf_unlock *u,
                            unsigned char master[HF_MASTER_BYTES], struct hf_err *err)
{
    unsigned char salt[SALT_BYTES];
    unsigned char wrapped[WRAPPED_BYTES];
    unsigned char key[32];
    struct scrypt cost = {.n = 0};
    if (u->kind == HF_UNLOCK_PASSPHRASE) {
        HF_TRY(read_cost(wrap, &cost, err));
    }
    if (!from_hex(hf_json_opt_str(wrap, "salt", NULL), salt, sizeof(salt)) ||
        !from_hex(hf_json_opt_str(wrap, "wrapped", NULL), wrapped, sizeof(wrapped))) {
        return hf_fail(err, HF_ECORRUPT, "its wrapped key is damaged");
    }
    if (!wrapping_key(u, salt, &cost, key)) {
        return hf_fail(err, HF_EFULL, "no memory for scrypt");
    }
    bool fits = hf_crypt_unwrap(key, wrapped, master);
    hf_wipe(key, sizeof(key));
    if (fits) {
        return HF_OK;
    }
    enum hf_rc rc = hf_fail(err, HF_EDENIED, "%s does not fit: it is wrong, or run.json is damaged",
                            u->kind == HF_UNLOCK_KEY_FILE ? "the key file" : "the passphrase");
    return hf_hint(err, rc,
                   "Give the one that the run was begun with; without it nothing of the "
                   "run can be read.");
}

/* The first way of the kind that the user has, or an error that names those that there are. */
static enum hf_rc find_wrap(const cJSON *json, const struct hf_unlock *u, const cJSON **ret,
                            struct hf_err *err)
{
    const cJSON *wraps = NULL;
    const cJSON *one = NULL;
    size_t other = HF_COUNT(kinds);
    HF_TRY(hf_json_get_arr(json, "wraps", &wraps, err));
    cJSON_ArrayForEach(one, wraps)
    {
        const char *kind = hf_json_opt_str(one, "kind", "");
        if (u != NULL && strcmp(kind, kinds[u->kind]) == 0) {
            *ret = one;
            return HF_OK;
        }
        for (size_t i = 0; i < HF_COUNT(kinds); i++) {
            other = strcmp(kind, kinds[i]) == 0 ? i : other;
        }
    }
    enum hf_rc rc = u == NULL
                        ? hf_fail(err, HF_EDENIED, "it is encrypted, and no key is given")
                        : hf_fail(err, HF_EDENIED, "it is not encrypted under %s", words[u->kind]);
    if (other == HF_COUNT(kinds)) {
        return hf_hint(err, rc, "It needs a way to its key that only a newer Holdfast knows.");
    }
    return hf_hint(err, rc, "Give %s: it is encrypted under %s.", flags[other], words[other]);
}

/* The proof of all that stands there, and that this build can seal and open. */
static enum hf_rc prove(struct hf_span text, const cJSON *json, const struct hf_crypt *k,
                        struct hf_err *err)
{
    char mac[HF_CRYPT_ID_HEX];
    const char *s = text.ptr;
    size_t len = text.len > MAC_BYTES ? text.len - MAC_BYTES : 0;
    hf_crypt_mac(k, (struct hf_span){.ptr = s, .len = len}, mac);
    if (len == 0 || memcmp(s + len, MAC_HEAD, MAC_HEAD_BYTES) != 0 ||
        memcmp(s + text.len - 2, "\"}", 2) != 0 ||
        !hf_same_secret(s + len + MAC_HEAD_BYTES, mac, sizeof(mac) - 1)) {
        return hf_fail(err, HF_ECORRUPT, "it was changed after it was written");
    }
    unsigned char probe[PROBE_BYTES];
    struct hf_span plain = {.len = 0};
    if (!from_hex(hf_json_opt_str(json, "probe", NULL), probe, sizeof(probe)) ||
        !hf_crypt_open_record(k, PROBE_NAME, (struct hf_mspan){.ptr = probe, .len = sizeof(probe)},
                              &plain) ||
        plain.len != sizeof(PROBE) - 1 || memcmp(plain.ptr, PROBE, plain.len) != 0) {
        return hf_fail(err, HF_ECORRUPT, "its probe does not open");
    }
    int64_t segment = 0;
    HF_TRY(hf_json_get_int(json, "segment_bytes", 1, HF_JSON_INT_MAX, &segment, err));
    const char *hash = hf_json_opt_str(json, "hash", "");
    const char *cipher = hf_json_opt_str(json, "cipher", "");
    bool known = strcmp(hash, "hmac-sha256") == 0 && strcmp(cipher, "aes-256-gcm") == 0 &&
                 segment == HF_SEGMENT_BYTES;
    return known ? HF_OK
                 : hf_fail(err, HF_ENOTSUP, "hash '%s' and cipher '%s' in segments of %lld bytes",
                           hash, cipher, (long long)segment);
}

enum hf_rc hf_wrap_open(struct hf_span text, const char *run, const struct hf_unlock *u,
                        struct hf_crypt **ret, struct hf_err *err)
{
    HF_CLEANUP(hf_json_freep) cJSON *json = NULL;
    const cJSON *wrap = NULL;
    HF_TRY(hf_record_parse_with(text, RUN_MAX, "run", HF_FEATURE_ENCRYPTED, &json, err));
    HF_TRY(find_wrap(json, u, &wrap, err));
    unsigned char *master = hf_secret_new(HF_MASTER_BYTES);
    enum hf_rc rc = open_wrap(wrap, u, master, err);
    struct hf_crypt *k = rc == HF_OK ? hf_crypt_new(master) : NULL;
    hf_secret_free(master, HF_MASTER_BYTES);
    if (rc == HF_OK) {
        rc = prove(text, json, k, err);
    }
    if (rc == HF_OK && strcmp(hf_json_opt_str(json, "run", ""), run) != 0) {
        rc = hf_fail(err, HF_ECORRUPT, "it is of the run '%s'", hf_json_opt_str(json, "run", ""));
    }
    if (rc != HF_OK) {
        hf_crypt_free(k);
        return rc;
    }
    *ret = k;
    return HF_OK;
}
