/* SPDX-License-Identifier: Apache-2.0
 *
 * Damaged records: any wrong bit and any missing end of a manifest, a claim or an end record is
 * found; a newer format is told from damage; a damaged claim of a lower attempt costs nothing that
 * its other records still tell.
 */
#include "base/prelude.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "checkpoint/record.h"
#include "checkpoint/save.h"
#include "tests/unit/support_checkpoint.h"
#include "tests/unit/support_conform_store.h"

static char *get_text(const struct bench *b, const char *key)
{
    struct hf_buf text;
    struct hf_err err;
    hf_buf_init(&text, HF_DECISION_MAX);
    expect_rc(hf_store_get(b->store, NULL, key, &text, &err), HF_OK, &err);
    return text.data;
}

static void put_bytes(const struct bench *b, const char *key, const char *data, size_t len)
{
    struct hf_span span = {.ptr = data, .len = len};
    struct hf_err err;
    expect_rc(hf_store_put(b->store, NULL, key, span, HF_PUT_NO_SYNC, &err), HF_OK, &err);
}

static enum hf_rc read_decision(const struct bench *b)
{
    struct hf_decision d;
    enum hf_rc rc = hf_lineage_get_decision(&b->run, NULL, 1, 1, &d, NULL);
    if (rc == HF_OK) {
        hf_decision_release(&d);
    }
    return rc;
}

static enum hf_rc read_claim(const struct bench *b)
{
    struct hf_claim c;
    enum hf_rc rc = hf_lineage_get_claim(&b->run, NULL, 1, &c, NULL);
    if (rc == HF_OK) {
        hf_claim_release(&c);
    }
    return rc;
}

static enum hf_rc read_end(const struct bench *b)
{
    struct hf_end e;
    enum hf_rc rc = hf_lineage_get_end(&b->run, NULL, 1, &e, NULL);
    if (rc == HF_OK) {
        hf_end_release(&e);
    }
    return rc;
}

static enum hf_rc read_base(const struct bench *b)
{
    struct hf_base base;
    return hf_lineage_get_base(&b->run, NULL, 1, &base, NULL);
}

static void open_bench(struct bench *b, struct hf_claim *claim)
{
    static char outcome[] = "failed", replacement[] = "unknown";
    struct hf_end end = {.outcome = outcome, .replacement = replacement, .exit_code = 3};
    struct hf_err err;
    bench_open(b, "mem:damage");
    *claim = must_claim(b, 1);
    must_commit(b, claim, 1);
    memcpy(end.nonce, claim->nonce, sizeof(end.nonce));
    expect_rc(hf_lineage_end(&b->run, NULL, 1, &end, &err), HF_OK, &err);
    expect_rc(hf_lineage_put_base(&b->run, NULL, claim, NULL, &err), HF_OK, &err);
}

static void test_c10_any_wrong_bit_is_found(void **state)
{
    (void)state;
    static enum hf_rc (*const reads[])(const struct bench *b) = {read_decision, read_claim,
                                                                 read_end, read_base};
    struct bench b;
    struct hf_claim one;
    open_bench(&b, &one);
    for (size_t k = 0; k < HF_COUNT(reads); k++) {
        char key[HF_KEY_MAX];
        const char *(*const name)(char *, const char *, uint32_t) = k == 1   ? hf_key_claim
                                                                    : k == 2 ? hf_key_end
                                                                             : hf_key_base;
        if (k == 0) {
            hf_key_decision(key, "job", 1, 1);
        } else {
            name(key, "job", 1);
        }
        char *text = get_text(&b, key);
        size_t len = strlen(text);
        assert_int_equal(reads[k](&b), HF_OK);
        for (size_t i = 0; i < len; i++) {
            char was = text[i];
            text[i] = (char)(was ^ (1 << (i % 8)));
            put_bytes(&b, key, text, len);
            if (reads[k](&b) != HF_ECORRUPT) {
                fail_msg("record %zu: bit %zu of byte %zu", k, i % 8, i);
            }
            text[i] = was;
        }
        for (size_t cut = 0; cut < len; cut += cut < len - 100 ? 7 : 1) {
            put_bytes(&b, key, text, cut);
            assert_int_equal(reads[k](&b), HF_ECORRUPT);
        }
        put_bytes(&b, key, text, len);
        assert_int_equal(reads[k](&b), HF_OK);
        free(text);
    }
    hf_claim_release(&one);
    bench_close(&b);
}

/* Whoever writes it ends it in its checksum too: it is refused, and nothing is stepped over. */
static void a_newer_format_is_no_damage(void **state)
{
    (void)state;
    static const char *const texts[] = {
        "{\"format\":2,\"features\":[],\"type\":\"manifest\"}",
        "{\"format\":1,\"features\":[\"packing\"],\"type\":\"manifest\"}"};
    for (size_t i = 0; i < HF_COUNT(texts); i++) {
        struct bench b;
        struct hf_claim one;
        open_bench(&b, &one);
        must_commit(&b, &one, 2);
        char key[HF_KEY_MAX];
        char *text = hf_record_add_sum(strdup(texts[i]));
        store_set(b.store, hf_key_decision(key, "job", 1, 2), text);
        struct hf_claim two = must_claim(&b, 2);
        struct hf_err err;
        enum hf_rc rc = hf_lineage_seal(&b.run, NULL, &two, &err);
        struct hf_manifest m;
        rc = rc == HF_OK ? hf_lineage_choose(&b.run, NULL, &two, 0, &m, &err) : rc;
        expect_rc(rc, HF_ENOTSUP, &err);
        assert_non_null(strstr(err.hint, "newer Holdfast"));
        hf_claim_release(&one);
        hf_claim_release(&two);
        free(text);
        bench_close(&b);
    }
}

/* Attempts 1 to 3, each with checkpoints as wanted; 4 takes over. */
struct row {
    struct hf_claim claims[5];
    struct bench b;
};

static void row_open(struct row *r, unsigned fresh, const unsigned commits[4], bool bases)
{
    struct hf_err err;
    bench_open(&r->b, "mem:row");
    for (uint32_t a = 1; a <= 4; a++) {
        r->claims[a] = make_claim(a);
        r->claims[a].fresh = a == fresh;
        expect_rc(hf_lineage_claim(&r->b.run, NULL, &r->claims[a], &err), HF_OK, &err);
        struct hf_manifest m;
        bool any = false;
        if (a > 1 && a < 4) {
            expect_rc(hf_lineage_seal(&r->b.run, NULL, &r->claims[a], &err), HF_OK, &err);
            any = hf_lineage_choose(&r->b.run, NULL, &r->claims[a], 0, &m, &err) == HF_OK;
        }
        if (bases && a < 4) {
            expect_rc(hf_lineage_put_base(&r->b.run, NULL, &r->claims[a], any ? &m : NULL, &err),
                      HF_OK, &err);
        }
        if (any) {
            hf_manifest_release(&m);
        }
        for (uint32_t n = 1; a < 4 && n <= commits[a]; n++) {
            must_commit(&r->b, &r->claims[a], n);
        }
    }
}

static void damaged_claims_cost_nothing(void **state)
{
    (void)state;
    static const struct {
        unsigned fresh, commits[4];
        bool bases;
        unsigned damaged[3]; /* whose claims */
        uint32_t attempt, number;
    } rows[] = {
        {0, {0, 2, 2, 2}, true, {3}, 3, 2},     {0, {0, 2, 2, 0}, true, {3}, 2, 2},
        {0, {0, 2, 0, 0}, true, {3, 2}, 1, 2},  {0, {0, 2, 2, 2}, true, {1, 2, 3}, 3, 2},
        {3, {0, 2, 2, 0}, true, {3}, 0, 0}, /* that it began from nothing is known from its base */
        {3, {0, 2, 2, 1}, true, {2, 3}, 3, 1},  {0, {0, 2, 2, 1}, false, {3}, 3, 1},
        {0, {0, 2, 2, 0}, false, {2, 3}, 2, 2},
    };
    for (size_t i = 0; i < HF_COUNT(rows); i++) {
        struct row r;
        row_open(&r, rows[i].fresh, rows[i].commits, rows[i].bases);
        for (size_t k = 0; k < 3 && rows[i].damaged[k] > 0; k++) {
            char key[HF_KEY_MAX];
            hf_key_claim(key, "job", rows[i].damaged[k]);
            char *text = get_text(&r.b, key);
            *strstr(text, "nonce") ^= 1;
            store_set(r.b.store, key, text);
            free(text);
        }
        struct hf_err err;
        struct hf_manifest m = {.attempt = 0};
        expect_rc(hf_lineage_seal(&r.b.run, NULL, &r.claims[4], &err), HF_OK, &err);
        enum hf_rc rc = hf_lineage_choose(&r.b.run, NULL, &r.claims[4], 0, &m, &err);
        expect_rc(rc, rows[i].attempt > 0 ? HF_OK : HF_ENOTFOUND, &err);
        if (m.attempt != rows[i].attempt || m.number != rows[i].number) {
            fail_msg("row %zu: %u-%u", i, m.attempt, m.number);
        }
        for (uint32_t a = 1; a <= 3; a++) { /* and all are sealed */
            uint32_t n = 0;
            bool sealed = false;
            expect_rc(hf_lineage_next_number(&r.b.run, NULL, a, &n, &sealed, &err), HF_OK, &err);
            assert_true(sealed);
        }
        if (rc == HF_OK) {
            hf_manifest_release(&m);
        }
        for (uint32_t a = 1; a <= 4; a++) {
            hf_claim_release(&r.claims[a]);
        }
        bench_close(&r.b);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_c10_any_wrong_bit_is_found),
        cmocka_unit_test(a_newer_format_is_no_damage),
        cmocka_unit_test(damaged_claims_cost_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
