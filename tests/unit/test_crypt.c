/* SPDX-License-Identifier: Apache-2.0
 *
 * Keys, sealing and wrapping, without a store: the vectors that an independent program has made
 * from docs/formats.md (tests/e2e/unseal.py), and every byte of what is sealed changed.
 */
#include "base/prelude.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/fsx.h"
#include "base/hash.h"
#include "base/json.h"
#include "checkpoint/record.h"
#include "checkpoint/sealed.h"
#include "checkpoint/wrap.h"
#include "tests/unit/support_conform_store.h"

#define VECTORS "tests/data/crypt-1.json"

struct vectors {
    cJSON *json;
    struct hf_crypt *keys;
};

static size_t from_hex(const char *hex, unsigned char *out, size_t room)
{
    size_t n = strlen(hex) / 2;
    assert_true(n <= room);
    for (size_t i = 0; i < n; i++) {
        char two[3] = {hex[2 * i], hex[2 * i + 1], '\0'};
        out[i] = (unsigned char)strtoul(two, NULL, 16);
    }
    return n;
}

static int setup(void **state)
{
    struct vectors *v = calloc(1, sizeof(*v));
    struct hf_buf text;
    struct hf_err err;
    unsigned char master[HF_MASTER_BYTES];
    hf_buf_init(&text, 1 << 20);
    expect_rc(hf_fs_read(VECTORS, &text, &err), HF_OK, &err);
    expect_rc(hf_json_parse(hf_buf_span(&text), 1 << 20, &v->json, &err), HF_OK, &err);
    hf_buf_release(&text);
    from_hex(hf_json_opt_str(v->json, "master", ""), master, sizeof(master));
    v->keys = hf_crypt_new(master);
    *state = v;
    return 0;
}

static int teardown(void **state)
{
    struct vectors *v = *state;
    hf_crypt_free(v->keys);
    hf_json_free(v->json);
    free(v);
    return 0;
}

/* The vectors' content of n bytes, in a buffer with `room`. */
static unsigned char *content(size_t n, size_t room)
{
    unsigned char *p = calloc(1, room > 0 ? room : 1);
    for (size_t i = 0; i < n; i++) {
        p[i] = (unsigned char)(i * 131 + (i >> 8) * 17);
    }
    return p;
}

static void is_hash(const void *data, size_t len, const char *want)
{
    char hex[HF_SHA256_HEX];
    hf_sha256_hex((struct hf_span){.ptr = data, .len = len}, hex);
    assert_string_equal(hex, want);
}

static void blocks_are_as_another_program_seals_them(void **state)
{
    const struct vectors *v = *state;
    assert_string_equal(hf_crypt_key_id(v->keys), hf_json_opt_str(v->json, "key_id", ""));
    const cJSON *row = NULL;
    unsigned seen = 0;
    cJSON_ArrayForEach(row, hf_json_opt(v->json, "blocks"))
    {
        size_t n = (size_t)hf_json_opt_int(row, "len", 0);
        size_t stored = (size_t)hf_stored_len(v->keys, n);
        assert_int_equal(stored, hf_json_opt_int(row, "stored", 0));
        unsigned char *data = content(n, stored);
        unsigned char *plain = content(n, n);
        char id[HF_CRYPT_ID_HEX];
        hf_block_id(v->keys, (struct hf_span){.ptr = data, .len = n}, id);
        assert_string_equal(id, hf_json_opt_str(row, "id", ""));
        struct hf_mspan room = {.ptr = data, .len = stored};
        assert_int_equal(hf_crypt_seal_block(v->keys, id, "raw", room, n), stored);
        is_hash(data, stored, hf_json_opt_str(row, "sealed_sha256", ""));
        size_t len = 0;
        assert_true(hf_crypt_open_block(v->keys, id, "raw", room, &len));
        assert_int_equal(len, n);
        assert_memory_equal(data, plain, n);
        hf_block_id_zeros(v->keys, n, id);
        assert_string_equal(id, hf_json_opt_str(row, "zeros", ""));
        free(data);
        free(plain);
        seen++;
    }
    assert_int_equal(seen, 9);
}

static enum hf_rc open_object(const struct hf_crypt *k, const char *name, const char *object,
                              size_t len, struct hf_buf *ret)
{
    char *copy = malloc(len > 0 ? len : 1);
    memcpy(copy, object, len);
    struct hf_span plain;
    struct hf_mspan span = {.ptr = copy, .len = len};
    enum hf_rc rc = hf_sealed_open(k, name, span, &plain, NULL);
    rc = rc == HF_OK ? hf_buf_add(ret, plain.ptr, plain.len, NULL) : rc;
    free(copy);
    return rc;
}

static void records_are_as_another_program_seals_them(void **state)
{
    const struct vectors *v = *state;
    const cJSON *row = NULL;
    unsigned seen = 0;
    cJSON_ArrayForEach(row, hf_json_opt(v->json, "records"))
    {
        const char *name = hf_json_opt_str(row, "name", "");
        size_t n = (size_t)hf_json_opt_int(row, "len", 0);
        unsigned char *plain = content(n, n);
        size_t len = 0;
        char *made = hf_sealed_make(v->keys, name, (struct hf_span){.ptr = plain, .len = n}, &len);
        is_hash(made, len, hf_json_opt_str(row, "stored_sha256", ""));
        char letters[] = "a text without a NUL";
        size_t lengths[2];
        struct hf_span words = {.ptr = letters, .len = sizeof(letters) - 1};
        char *copied = hf_sealed_make(v->keys, name, words, &lengths[0]);
        char *taken = hf_sealed_take(v->keys, name, strdup(letters), &lengths[1]);
        assert_int_equal(lengths[0], lengths[1]);
        assert_memory_equal(copied, taken, lengths[0]);
        free(copied);
        free(taken);
        assert_true(len <= hf_sealed_max(n));
        struct hf_buf text;
        hf_buf_init(&text, n);
        assert_int_equal(open_object(v->keys, name, made, len, &text), HF_OK);
        assert_int_equal(text.len, n);
        assert_memory_equal(text.data, plain, n);
        /* One byte less than it needs. */
        struct hf_buf tight;
        hf_buf_init(&tight, n - 1);
        assert_int_equal(open_object(v->keys, name, made, len, &tight), HF_EFULL);
        hf_buf_release(&tight);
        hf_buf_release(&text);
        free(made);
        free(plain);
        seen++;
    }
    assert_int_equal(seen, 5);
}

/* A block of some segments: every byte changed (of long ones every 4099th, and those around each
 * border), every border cut at. */
static void a_block_that_was_changed_does_not_open(void **state)
{
    const struct vectors *v = *state;
    static const size_t lengths[] = {1, 100, HF_SEGMENT_BYTES, HF_SEGMENT_BYTES + 1,
                                     2 * HF_SEGMENT_BYTES + 30};
    for (size_t l = 0; l < HF_COUNT(lengths); l++) {
        size_t n = lengths[l];
        size_t stored = (size_t)hf_stored_len(v->keys, n);
        unsigned char *sealed = content(n, stored);
        unsigned char *tried = malloc(stored + 1);
        char id[HF_CRYPT_ID_HEX];
        size_t len = 0;
        hf_block_id(v->keys, (struct hf_span){.ptr = sealed, .len = n}, id);
        hf_crypt_seal_block(v->keys, id, "raw", (struct hf_mspan){.ptr = sealed, .len = stored}, n);
        for (size_t i = 0; i<stored; i += stored> 1000 ? 65537 : 1) {
            memcpy(tried, sealed, stored);
            tried[i] ^= (unsigned char)(1u << (i % 8));
            struct hf_mspan all = {.ptr = tried, .len = stored};
            assert_false(hf_crypt_open_block(v->keys, id, "raw", all, &len));
        }
        const size_t whole = HF_SEGMENT_BYTES + HF_TAG_BYTES;
        const size_t cuts[] = {0,          1,           15,         16,        17,
                               stored - 1, whole,       whole - 1,  whole + 1, 2 * whole,
                               whole + 16, stored - 16, stored - 17};
        for (size_t i = 0; i < HF_COUNT(cuts); i++) {
            memcpy(tried, sealed, stored);
            struct hf_mspan part = {.ptr = tried, .len = cuts[i]};
            bool cut = cuts[i] < stored;
            assert_true(!cut || !hf_crypt_open_block(v->keys, id, "raw", part, &len));
        }
        memcpy(tried, sealed, stored);
        tried[stored] = 0;
        struct hf_mspan longer = {.ptr = tried, .len = stored + 1};
        assert_false(hf_crypt_open_block(v->keys, id, "raw", longer, &len));
        /* Another name, another codec. */
        struct hf_mspan all = {.ptr = tried, .len = stored};
        memcpy(tried, sealed, stored);
        assert_false(hf_crypt_open_block(v->keys, id, "zstd", all, &len));
        memcpy(tried, sealed, stored);
        id[5] = id[5] == '0' ? '1' : '0';
        assert_false(hf_crypt_open_block(v->keys, id, "raw", all, &len));
        free(sealed);
        free(tried);
    }
}

static void segments_keep_their_places(void **state)
{
    const struct vectors *v = *state;
    const size_t n = 3 * HF_SEGMENT_BYTES;
    const size_t whole = HF_SEGMENT_BYTES + HF_TAG_BYTES;
    size_t stored = (size_t)hf_stored_len(v->keys, n);
    unsigned char *sealed = content(n, stored);
    unsigned char *tried = malloc(stored);
    char id[HF_CRYPT_ID_HEX];
    size_t len = 0;
    hf_block_id(v->keys, (struct hf_span){.ptr = sealed, .len = n}, id);
    hf_crypt_seal_block(v->keys, id, "raw", (struct hf_mspan){.ptr = sealed, .len = stored}, n);
    for (size_t a = 0; a < 3; a++) {
        for (size_t b = 0; b < 3; b++) {
            memcpy(tried, sealed, stored);
            memcpy(tried + a * whole, sealed + b * whole, whole);
            struct hf_mspan all = {.ptr = tried, .len = stored};
            assert_int_equal(hf_crypt_open_block(v->keys, id, "raw", all, &len), a == b);
        }
    }
    free(sealed);
    free(tried);
}

static void a_record_that_was_changed_does_not_open(void **state)
{
    const struct vectors *v = *state;
    static const char *const names[] = {"attempts/000001.json", "logs/000001/000001.log.zst",
                                        "checkpoints/000001-000001.json"};
    unsigned char other_master[HF_MASTER_BYTES] = {1};
    struct hf_crypt *other = hf_crypt_new(other_master);
    for (size_t k = 0; k < HF_COUNT(names); k++) {
        static const char plain[] = "{\"format\":1,\"features\":[],\"type\":\"claim\"}";
        struct hf_span span = {.ptr = plain, .len = sizeof(plain) - 1};
        size_t len = 0;
        char *made = hf_sealed_make(v->keys, names[k], span, &len);
        struct hf_buf text;
        hf_buf_init(&text, 4096);
        assert_int_equal(open_object(v->keys, names[k], made, len, &text), HF_OK);
        assert_string_equal(hf_buf_str(&text), plain);
        hf_buf_reset(&text);
        for (size_t i = 0; i < len; i++) {
            for (unsigned bit = 0; bit < 8; bit++) {
                made[i] = (char)(made[i] ^ (1 << bit));
                assert_int_not_equal(open_object(v->keys, names[k], made, len, &text), HF_OK);
                made[i] = (char)(made[i] ^ (1 << bit));
            }
            assert_int_not_equal(open_object(v->keys, names[k], made, i, &text), HF_OK);
        }
        assert_int_equal(open_object(other, names[k], made, len, &text), HF_ECORRUPT);
        for (size_t j = 0; j < HF_COUNT(names); j++) {
            enum hf_rc rc = open_object(v->keys, names[j], made, len, &text);
            assert_int_equal(rc, j == k ? HF_OK : HF_ECORRUPT);
        }
        hf_buf_release(&text);
        free(made);
    }
    hf_crypt_free(other);
}

/* Who can write into the store can make a right sum, and not a right body. */
static void a_record_with_a_new_sum_does_not_open(void **state)
{
    const struct vectors *v = *state;
    static const char name[] = "attempts/000001.json";
    static const struct {
        const char *text;
        enum hf_rc want;
    } rows[] = {
        {"{\"format\":1,\"features\":[],\"type\":\"claim\"}", HF_ECORRUPT}, /* not sealed */
        {"{\"format\":2,\"features\":[\"encrypted\"],\"type\":\"sealed\"}", HF_ENOTSUP},
        {"{\"format\":1,\"features\":[\"more\"],\"type\":\"sealed\"}", HF_ENOTSUP},
        {"{\"format\":1,\"features\":[\"encrypted\"],\"type\":\"sealed\",\"body\":\"\"}",
         HF_ECORRUPT},
        {"{\"format\":1,\"features\":[\"encrypted\"],\"type\":\"sealed\",\"body\":\"====\"}",
         HF_ECORRUPT},
        {"{\"format\":1,\"features\":[\"encrypted\"],\"type\":\"sealed\",\"body\":\"AAAAA\"}",
         HF_ECORRUPT},
        {"{\"format\":1,\"features\":[\"encrypted\"],\"type\":\"sealed\",\"body\":\"%%%%\"}",
         HF_ECORRUPT},
        {"{\"format\":1,\"features\":[\"encrypted\"],\"type\":\"sealed\",\"body\":1}", HF_ECORRUPT},
    };
    for (size_t i = 0; i < HF_COUNT(rows); i++) {
        struct hf_buf text;
        hf_buf_init(&text, 4096);
        char *made = hf_record_add_sum(strdup(rows[i].text));
        assert_int_equal(open_object(v->keys, name, made, strlen(made), &text), rows[i].want);
        assert_int_equal(text.len, 0);
        free(made);
        hf_buf_release(&text);
    }
    const cJSON *odd = hf_json_opt(v->json, "refused");
    const char *text_of = hf_json_opt_str(odd, "text", "");
    struct hf_buf none;
    hf_buf_init(&none, 4096);
    const char *odd_name = hf_json_opt_str(odd, "name", "");
    enum hf_rc rc = open_object(v->keys, odd_name, text_of, strlen(text_of), &none);
    assert_int_equal(rc, HF_ECORRUPT);
    hf_buf_release(&none);
    /* The body of an equally long text under another's v. */
    char *made[2];
    size_t len = 0;
    made[0] = hf_sealed_make(v->keys, name, (struct hf_span){.ptr = "one", .len = 3}, &len);
    made[1] = hf_sealed_make(v->keys, name, (struct hf_span){.ptr = "two", .len = 3}, &len);
    char *quote = strstr(made[0], "\"body\":\"") + 8;
    memcpy(quote, strstr(made[1], "\"body\":\"") + 8, 40); /* 30 of its 32 bytes */
    char *end = strstr(made[0], ",\"sum\"");
    char *head = hf_asprintf("%.*s}", (int)(end - made[0]), made[0]);
    char *again = hf_record_add_sum(head);
    struct hf_buf text;
    hf_buf_init(&text, 4096);
    assert_int_equal(open_object(v->keys, name, again, strlen(again), &text), HF_ECORRUPT);
    hf_buf_release(&text);
    free(again);
    free(made[0]);
    free(made[1]);
}

static struct hf_unlock *unlock_of(const char *kind, const char *secret_hex)
{
    unsigned char secret[64];
    size_t n = from_hex(secret_hex, secret, sizeof(secret));
    return hf_unlock_new(strcmp(kind, "passphrase") == 0 ? HF_UNLOCK_PASSPHRASE
                                                         : HF_UNLOCK_KEY_FILE,
                         (struct hf_span){.ptr = secret, .len = n});
}

static enum hf_rc open_run(const char *text, size_t len, const char *run, struct hf_unlock *u,
                           struct hf_err *err)
{
    struct hf_crypt *k = NULL;
    enum hf_rc rc = hf_wrap_open((struct hf_span){.ptr = text, .len = len}, run, u, &k, err);
    assert_int_equal(k != NULL, rc == HF_OK);
    hf_crypt_free(k);
    return rc;
}

static void a_run_that_another_program_began_opens(void **state)
{
    const struct vectors *v = *state;
    const cJSON *row = NULL;
    unsigned seen = 0;
    cJSON_ArrayForEach(row, hf_json_opt(v->json, "runs"))
    {
        const char *text = hf_json_opt_str(row, "text", "");
        size_t len = strlen(text);
        struct hf_err err;
        struct hf_unlock *u =
            unlock_of(hf_json_opt_str(row, "kind", ""), hf_json_opt_str(row, "secret", ""));
        struct hf_crypt *k = NULL;
        struct hf_span span = {.ptr = text, .len = len};
        expect_rc(hf_wrap_open(span, "job", u, &k, &err), HF_OK, &err);
        assert_string_equal(hf_crypt_key_id(k), hf_crypt_key_id(v->keys));
        char a[HF_CRYPT_ID_HEX];
        char b[HF_CRYPT_ID_HEX];
        hf_block_id(k, span, a);
        hf_block_id(v->keys, span, b);
        assert_string_equal(a, b);
        hf_crypt_free(k);
        assert_int_equal(open_run(text, len, "jobs", u, &err), HF_ECORRUPT);
        /* Every byte changed. */
        char *tried = strdup(text);
        for (size_t i = 0; i < len; i++) {
            tried[i] = (char)(tried[i] ^ 1);
            assert_int_not_equal(open_run(tried, len, "job", u, &err), HF_OK);
            tried[i] = (char)(tried[i] ^ 1);
            assert_int_not_equal(i % 16 != 0 ? HF_EIO : open_run(tried, i, "job", u, &err), HF_OK);
        }
        free(tried);
        /* Another secret, and of the other kind. */
        u->bytes[3] ^= 1;
        assert_int_equal(open_run(text, len, "job", u, &err), HF_EDENIED);
        assert_non_null(strstr(err.msg, "does not fit"));
        u->kind = u->kind == HF_UNLOCK_PASSPHRASE ? HF_UNLOCK_KEY_FILE : HF_UNLOCK_PASSPHRASE;
        assert_int_equal(open_run(text, len, "job", u, &err), HF_EDENIED);
        const char *flag = u->kind == HF_UNLOCK_PASSPHRASE ? "--key-file" : "--key-passphrase-file";
        assert_non_null(strstr(err.hint, flag));
        assert_int_equal(open_run(text, len, "job", NULL, &err), HF_EDENIED);
        assert_non_null(strstr(err.hint, flag));
        hf_unlock_free(u);
        seen++;
    }
    assert_int_equal(seen, 2);
}

static char *replaced(const char *text, const char *what, const char *by)
{
    const char *at = strstr(text, what);
    assert_non_null(at);
    return hf_asprintf("%.*s%s%s", (int)(at - text), text, by, at + strlen(what));
}

/* What a stranger may ask scrypt for. */
static void a_costly_scrypt_is_refused(void **state)
{
    const struct vectors *v = *state;
    const cJSON *row = cJSON_GetArrayItem(hf_json_opt(v->json, "runs"), 1);
    struct hf_unlock *u = unlock_of("passphrase", hf_json_opt_str(row, "secret", ""));
    static const struct {
        const char *what, *by;
        enum hf_rc want;
    } rows[] = {
        {"\"n\":1024", "\"n\":9007199254740992", HF_ECORRUPT},
        {"\"n\":1024", "\"n\":1048577", HF_ECORRUPT},
        {"\"n\":1024", "\"n\":2097152", HF_ECORRUPT},
        {"\"n\":1024", "\"n\":1000", HF_ECORRUPT},
        {"\"n\":1024", "\"n\":1", HF_ECORRUPT},
        {"\"r\":8", "\"r\":9007199254740992", HF_ECORRUPT},
        {"\"p\":2", "\"p\":1000", HF_ECORRUPT},
        {"\"p\":2", "\"p\":-1", HF_ECORRUPT},
        {"\"kdf\":\"scrypt\"", "\"kdf\":\"argon2\"", HF_ENOTSUP},
        {"\"kind\":\"passphrase\"", "\"kind\":\"aws-kms\"", HF_EDENIED},
        {"\"n\":1024", "\"n\":2048", HF_EDENIED},
    };
    for (size_t i = 0; i < HF_COUNT(rows); i++) {
        struct hf_err err = {0};
        char *text = replaced(hf_json_opt_str(row, "text", ""), rows[i].what, rows[i].by);
        assert_int_equal(open_run(text, strlen(text), "job", u, &err), rows[i].want);
        free(text);
    }
    hf_unlock_free(u);
}

/* What this program writes itself, it opens; each time under another key. */
static void a_new_run_has_a_key_of_its_own(void **state)
{
    (void)state;
    char ids[4][HF_KEY_ID_STRLEN] = {""};
    for (unsigned i = 0; i < 4; i++) {
        struct hf_unlock *u =
            hf_unlock_new(i % 2 == 0 ? HF_UNLOCK_KEY_FILE : HF_UNLOCK_PASSPHRASE,
                          (struct hf_span){.ptr = "0123456789abcdef0123456789abcdef", .len = 32});
        cJSON *json = hf_record_new("run");
        hf_json_add_str(json, "run", "job");
        hf_json_add_str(json, "hash", "hmac-sha256");
        hf_json_add_str(json, "cipher", "aes-256-gcm");
        char *text = hf_wrap_print(json, u);
        struct hf_crypt *k = NULL;
        struct hf_err err;
        struct hf_span span = {.ptr = text, .len = strlen(text)};
        expect_rc(hf_wrap_open(span, "job", u, &k, &err), HF_OK, &err);
        memcpy(ids[i], hf_crypt_key_id(k), sizeof(ids[i]));
        for (unsigned j = 0; j < i; j++) {
            assert_string_not_equal(ids[i], ids[j]);
        }
        /* To a reader without this feature it is a newer format, and not damage. */
        struct hf_err old = {0};
        cJSON *none = NULL;
        assert_int_equal(hf_record_parse(span, 1 << 20, "run", &none, &old), HF_ENOTSUP);
        hf_crypt_free(k);
        free(text);
        hf_unlock_free(u);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(blocks_are_as_another_program_seals_them),
        cmocka_unit_test(records_are_as_another_program_seals_them),
        cmocka_unit_test(a_block_that_was_changed_does_not_open),
        cmocka_unit_test(segments_keep_their_places),
        cmocka_unit_test(a_record_that_was_changed_does_not_open),
        cmocka_unit_test(a_record_with_a_new_sum_does_not_open),
        cmocka_unit_test(a_run_that_another_program_began_opens),
        cmocka_unit_test(a_costly_scrypt_is_refused),
        cmocka_unit_test(a_new_run_has_a_key_of_its_own),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
