/* SPDX-License-Identifier: Apache-2.0
 *
 * checkpoint/manifest: what is printed is read back the same; golden texts of format 1; everything
 * that a hostile or broken text may hold is refused by name; keys.
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
#include "checkpoint/manifest.h"
#include "tests/unit/support_checkpoint.h"
#include "tests/unit/support_conform_store.h"

#define NONCE "0123456789abcdef0123456789abcdef"

static char *golden(const char *name)
{
    char *path = hf_asprintf("tests/data/%s", name);
    struct hf_buf b;
    struct hf_err err;
    hf_buf_init(&b, 1 << 20);
    expect_rc(hf_fs_read(path, &b, &err), HF_OK, &err);
    while (b.len > 0 && b.data[b.len - 1] == '\n') {
        b.data[--b.len] = '\0';
    }
    free(path);
    return b.data;
}

static char *print_sample(void)
{
    struct hf_decision d = {.kind = HF_DECISION_MANIFEST};
    make_manifest(&d.manifest, 3, 12, NONCE);
    d.manifest.parent_attempt = 3;
    d.manifest.parent_number = 11;
    char *text = hf_decision_print(&d);
    hf_decision_release(&d);
    return text;
}

static void manifests_come_back(void **state)
{
    (void)state;
    char *text = print_sample();
    struct hf_decision d;
    struct hf_err err;
    expect_rc(hf_decision_parse(text_of(text), &d, &err), HF_OK, &err);
    const struct hf_manifest *m = &d.manifest;
    assert_int_equal(d.kind, HF_DECISION_MANIFEST);
    assert_string_equal(d.nonce, NONCE);
    assert_int_equal(m->attempt, 3);
    assert_int_equal(m->number, 12);
    assert_int_equal(m->parent_number, 11);
    assert_int_equal(m->request, 9);
    assert_int_equal(m->step, 1200);
    assert_int_equal(m->n_files, 7);
    assert_string_equal(m->files[2].target, "../else\xff");
    assert_string_equal(m->files[5].path, "caf\xe9");
    assert_int_equal(m->files[3].size, 4173);
    assert_int_equal(m->files[3].extents[1].off, 4096);
    assert_string_equal(m->blocks[1].where, "000003-000012-01234567");
    char *again = hf_decision_print(&d);
    assert_string_equal(again, text);
    free(again);
    free(text);
    hf_decision_release(&d);
    hf_decision_release(&d);
}

static void unknowns_come_back(void **state)
{
    (void)state;
    struct hf_decision d = {.kind = HF_DECISION_MANIFEST};
    make_manifest(&d.manifest, 1, 1, NONCE);
    d.manifest.step = -1;
    d.manifest.world = 0;
    d.manifest.n_ranks = 0;
    char *text = hf_decision_print(&d);
    hf_decision_release(&d);
    assert_true(strstr(text, "\"step\":null") != NULL);
    assert_true(strstr(text, "\"parent\":null") != NULL);
    struct hf_err err;
    expect_rc(hf_decision_parse(text_of(text), &d, &err), HF_OK, &err);
    assert_int_equal(d.manifest.step, -1);
    assert_int_equal(d.manifest.parent_attempt, 0);
    hf_decision_release(&d);
    free(text);

    struct hf_end e = {.exit_code = -1,
                       .last_step = -1,
                       .outcome = "vanished",
                       .replacement = "unknown",
                       .nonce = NONCE};
    text = hf_end_print(&e);
    struct hf_end back;
    expect_rc(hf_end_parse(text_of(text), &back, &err), HF_OK, &err);
    assert_int_equal(back.exit_code, -1);
    assert_int_equal(back.signal, 0);
    assert_int_equal(back.last_step, -1);
    assert_string_equal(back.outcome, "vanished");
    assert_false(back.forced);
    assert_null(back.left);
    hf_end_release(&back);
    free(text);
    char left[] = "pid 7 'x' (rank 0)";
    e.forced = true;
    e.left = left;
    text = hf_end_print(&e);
    expect_rc(hf_end_parse(text_of(text), &back, &err), HF_OK, &err);
    assert_true(back.forced);
    assert_string_equal(back.left, left);
    hf_end_release(&back);
    free(text);
}

static void golden_texts(void **state)
{
    (void)state;
    struct hf_err err;
    static const char *const decisions[] = {"manifest-1.json", "seal-1.json", "abort-1.json"};
    for (size_t i = 0; i < HF_COUNT(decisions); i++) {
        char *text = golden(decisions[i]);
        struct hf_decision d;
        expect_rc(hf_decision_parse(text_of(text), &d, &err), HF_OK, &err);
        assert_int_equal(d.kind, i == 0   ? HF_DECISION_MANIFEST
                                 : i == 1 ? HF_DECISION_SEAL
                                          : HF_DECISION_ABORT);
        assert_int_equal(d.by_attempt, i == 1 ? 4 : 0);
        char *again = hf_decision_print(&d);
        assert_string_equal(again, text);
        free(again);
        free(text);
        hf_decision_release(&d);
    }
    char *text = golden("claim-1.json");
    struct hf_claim c;
    expect_rc(hf_claim_parse(text_of(text), &c, &err), HF_OK, &err);
    assert_int_equal(c.attempt, 3);
    assert_int_equal(c.command.len, 3);
    assert_string_equal(c.command.items[2], "--lr=\xff");
    char *again = hf_claim_print(&c);
    assert_string_equal(again, text);
    free(again);
    free(text);
    hf_claim_release(&c);
    text = golden("end-1.json");
    struct hf_end e;
    expect_rc(hf_end_parse(text_of(text), &e, &err), HF_OK, &err);
    assert_string_equal(e.outcome, "preempted");
    assert_int_equal(e.exit_code, 75);
    again = hf_end_print(&e);
    assert_string_equal(again, text);
    free(again);
    free(text);
    hf_end_release(&e);
}

/* Every row replaces one piece of a good manifest. */
static const struct {
    const char *from, *to;
    enum hf_rc want;
} edits[] = {
    {"\"format\":1", "\"format\":2", HF_ENOTSUP},
    {"\"format\":1", "\"format\":\"1\"", HF_ECORRUPT},
    {"\"format\":1,", "", HF_ECORRUPT},
    {"\"features\":[]", "\"features\":[\"pack\"]", HF_ENOTSUP},
    {"\"features\":[]", "\"features\":{}", HF_ECORRUPT},
    {"\"type\":\"manifest\"", "\"type\":\"other\"", HF_ECORRUPT},
    {"\"attempt\":3", "\"attempt\":0", HF_ECORRUPT},
    {"\"attempt\":3", "\"attempt\":1000000000", HF_ECORRUPT},
    {"\"number\":12", "\"number\":12.5", HF_ECORRUPT},
    {"\"nonce\":\"0123", "\"nonce\":\"0123ff", HF_ECORRUPT},
    {"\"nonce\":\"0123", "\"nonce\":\"012X", HF_ECORRUPT},
    {"\"step\":1200", "\"step\":-5", HF_ECORRUPT},
    {"\"step\":1200", "\"step\":\"1200\"", HF_ECORRUPT},
    {"\"world\":2", "\"world\":3", HF_ECORRUPT},
    {"\"ranks\":[0,1]", "\"ranks\":[0,2]", HF_ECORRUPT},
    {"\"ranks\":[0,1]", "\"ranks\":[1,0]", HF_ECORRUPT},
    {"\"ranks\":[0,1]", "\"ranks\":[0]", HF_ECORRUPT},
    {"\"ranks\":[0,1]", "\"ranks\":[0,-1]", HF_ECORRUPT},
    {"\"resume_path\":\"/home", "\"resume_path\":\"home", HF_ECORRUPT},
    {"\"resume_path\":\"/home", "\"resume_path\":\"/../home", HF_ECORRUPT},
    {"\"parent\":{\"attempt\":3,\"number\":11}", "\"parent\":{\"attempt\":3,\"number\":12}",
     HF_ECORRUPT},
    {"\"parent\":{\"attempt\":3,\"number\":11}", "\"parent\":{\"attempt\":4,\"number\":1}",
     HF_ECORRUPT},
    {"\"parent\":{\"attempt\":3,\"number\":11}", "\"parent\":7", HF_ECORRUPT},
    {"{\"path\":\"/home/someone/ckpt/latest\"", "{\"path\":\"/home/someone/ckpt/../latest\"",
     HF_ECORRUPT},
    {"{\"path\":\"/home/someone/ckpt/latest\"", "{\"path\":\"latest\"", HF_ECORRUPT},
    {"{\"path\":\"/home/someone/ckpt/latest\"", "{\"path\":\"/\"", HF_ECORRUPT},
    {"{\"path\":\"/home/someone/ckpt/latest\"", "{\"path\":\"/home/someone/ckpt/step-1200/x\"",
     HF_ECORRUPT},
    {"{\"path\":\"/home/someone/ckpt/latest\"", "{\"path\":\"/home/someone/ckpt/step-1200\"",
     HF_ECORRUPT},
    {"{\"path\":\"/home/someone/ckpt/latest\",\"kind\":\"file\"",
     "{\"path\":\"/home/someone/ckpt/latest\",\"kind\":\"dir\"", HF_ECORRUPT},
    {"{\"path\":\"/home/someone/ckpt/latest\",\"kind\":\"file\"",
     "{\"path\":\"/home/someone/ckpt/latest\",\"kind\":\"link\"", HF_ECORRUPT},
    {"\"path\":\"a/w.bin\"", "\"path\":\"a/../w.bin\"", HF_ECORRUPT},
    {"\"path\":\"a/w.bin\"", "\"path\":\"/a/w.bin\"", HF_ECORRUPT},
    {"\"path\":\"a/w.bin\"", "\"path\":\"a//w.bin\"", HF_ECORRUPT},
    {"\"path\":\"a/w.bin\"", "\"path\":\"a/w.bin/\"", HF_ECORRUPT},
    {"\"path\":\"a/w.bin\"", "\"path\":\"a/./w.bin\"", HF_ECORRUPT},
    {"\"path\":\"a/w.bin\"", "\"path\":\"..\"", HF_ECORRUPT},
    {"\"path\":\"a/w.bin\"", "\"path\":\"\"", HF_ECORRUPT},
    {"\"path\":\"a/w.bin\"", "\"path\":\"a/link\"", HF_ECORRUPT},
    {"\"path\":\"a/w.bin\"", "\"path\":\"a/link/w.bin\"", HF_ECORRUPT},
    {"\"path\":\"a/w.bin\"", "\"path\":\"a/no/w.bin\"", HF_ECORRUPT},
    {"\"path\":\"a/w.bin\"", "\"path\":\"0/w.bin\"", HF_ECORRUPT},
    {"\"path\":\"a/w.bin\"", "\"path\":\"a/w\\u0000.bin/x\"", HF_ECORRUPT},
    {"\"path\":\"a/w.bin\"", "\"path\":{\"hex\":\"612f00\"}", HF_ECORRUPT},
    {"\"path\":\"a/w.bin\"", "\"path\":null", HF_ECORRUPT},
    {"\"kind\":\"link\"", "\"kind\":\"fifo\"", HF_ECORRUPT},
    {"\"kind\":\"link\"", "\"kind\":\"dir\"", HF_OK},
    {"\"mode\":420", "\"mode\":4096", HF_ECORRUPT},
    {"\"mode\":420", "\"mode\":-1", HF_ECORRUPT},
    {"\"size\":4173", "\"size\":4172", HF_ECORRUPT},
    {"\"size\":4173", "\"size\":9007199254740993", HF_ECORRUPT},
    {"\"off\":4096", "\"off\":4095", HF_ECORRUPT},
    {"\"len\":77,\"block\":1", "\"len\":78,\"block\":1", HF_ECORRUPT},
    {"\"len\":77,\"block\":1", "\"len\":77,\"block\":2", HF_ECORRUPT},
    {"\"len\":77,\"block\":1", "\"len\":77,\"block\":0", HF_ECORRUPT},
    {"\"len\":77,\"block\":1", "\"len\":77,\"block\":4294967295", HF_ECORRUPT},
    {"\"len\":77,\"block\":1", "\"len\":77,\"block\":1,\"block_off\":1", HF_ECORRUPT},
    {"\"len\":77,\"where\"", "\"len\":0,\"where\"", HF_ECORRUPT},
    {"\"len\":77,\"where\"", "\"len\":1073741825,\"where\"", HF_ECORRUPT},
    {"\"where\":\"000003-000012-01234567\"", "\"where\":\"../../../../../etc\"", HF_ECORRUPT},
    {"\"where\":\"000003-000012-01234567\"", "\"where\":\"000003-000012-0123456\"", HF_ECORRUPT},
    {"\"where\":\"000003-000012-01234567\"", "\"where\":\"3-000012-01234567\"", HF_ECORRUPT},
    {"\"codec\":\"raw\"", "\"codec\":\"zstd\"", HF_ENOTSUP},
    {"\"codec\":\"raw\"", "\"codec\":\"something\"", HF_ECORRUPT},
    {"\"id\":\"aaaa", "\"id\":\"aaab", HF_ECORRUPT},
    {"\"id\":\"aaaa", "\"id\":\"AAAA", HF_ECORRUPT},
    {"\"root\":1", "\"root\":0", HF_ECORRUPT},
    {"\"root\":1", "\"root\":2", HF_ECORRUPT},
    {"\"bytes\":8269", "\"bytes\":8268", HF_ECORRUPT},
    {"\"blocks\":[", "\"blocks\":[1,", HF_ECORRUPT},
    {"\"files\":[", "\"files\":[null,", HF_ECORRUPT},
    {"\"roots\":[", "\"roots\":[[],", HF_ECORRUPT},
    {"\"request\":9", "\"request\":-9", HF_ECORRUPT},
    {"\"life\":1", "\"life\":1,\"of the future\":{\"x\":[1]}", HF_OK},
};

static char *edited(const char *text, const char *from, const char *to)
{
    const char *at = strstr(text, from);
    if (at == NULL) {
        fail_msg("the sample does not hold %s", from);
        return NULL;
    }
    return hf_asprintf("%.*s%s%s", (int)(at - text), text, to, at + strlen(from));
}

static void broken_manifests(void **state)
{
    (void)state;
    char *good = print_sample();
    for (size_t i = 0; i < HF_COUNT(edits); i++) {
        char *text = edited(good, edits[i].from, edits[i].to);
        struct hf_decision d;
        struct hf_err err = {.code = HF_OK};
        enum hf_rc rc = hf_decision_parse(text_of(text), &d, &err);
        if (rc != edits[i].want) {
            fail_msg("%s with %s: %s (%s)", edits[i].from, edits[i].to, hf_rc_name(rc), err.msg);
        }
        if (rc == HF_OK) {
            hf_decision_release(&d);
        } else {
            assert_null(d.manifest.files);
            assert_int_equal(d.manifest.n_files, 0);
            assert_true(strlen(err.msg) > 10);
        }
        free(text);
    }
    free(good);
}

/* No prefix of a text, and no text with one byte changed, is read as something else in silence:
 * it is refused, or it is a decision that can be printed and read again. */
static void mangled_manifests(void **state)
{
    (void)state;
    char *good = print_sample();
    size_t len = strlen(good);
    struct hf_decision d;
    for (size_t i = 0; i < len; i++) {
        assert_int_not_equal(hf_decision_parse((struct hf_span){.ptr = good, .len = i}, &d, NULL),
                             HF_OK);
    }
    for (size_t i = 0; i < len; i++) {
        char was = good[i];
        good[i] = (char)(was ^ (1 << (i % 7)));
        if (good[i] != '\0' && hf_decision_parse(text_of(good), &d, NULL) == HF_OK) {
            char *text = hf_decision_print(&d);
            hf_decision_release(&d);
            struct hf_err err;
            expect_rc(hf_decision_parse(text_of(text), &d, &err), HF_OK, &err);
            hf_decision_release(&d);
            free(text);
        }
        good[i] = was;
    }
    free(good);
}

static void broken_small_records(void **state)
{
    (void)state;
    char *claim = golden("claim-1.json");
    static const struct {
        const char *from, *to;
        enum hf_rc want;
    } rows[] = {
        {"\"kind\":\"run\"", "\"kind\":\"walk\"", HF_ECORRUPT},
        {"\"type\":\"claim\"", "\"type\":\"seal\"", HF_ECORRUPT},
        {"\"attempt\":3", "\"attempt\":-3", HF_ECORRUPT},
        {"\"command\":[", "\"command\":[7,", HF_ECORRUPT},
        {"\"pid\":", "\"pid\":-", HF_ECORRUPT},
        {"\"format\":1", "\"format\":3", HF_ENOTSUP},
        {"\"fresh\":false", "\"fresh\":true", HF_OK},
        {"\"folder\":\"/home/someone\"", "\"folder\":null", HF_OK},
        {"\"host\":\"box\"", "\"host\":null", HF_OK},
    };
    for (size_t i = 0; i < HF_COUNT(rows); i++) {
        char *text = edited(claim, rows[i].from, rows[i].to);
        struct hf_claim c;
        struct hf_err err;
        expect_rc(hf_claim_parse(text_of(text), &c, &err), rows[i].want, &err);
        assert_int_equal(c.attempt, rows[i].want == HF_OK ? 3 : 0);
        hf_claim_release(&c);
        free(text);
    }
    free(claim);
    static const char *const junk[] = {"", "[]", "null", "{", "{}", "{\"format\":1}"};
    for (size_t i = 0; i < HF_COUNT(junk); i++) {
        struct hf_claim c;
        struct hf_end e;
        struct hf_decision d;
        assert_int_not_equal(hf_claim_parse(text_of(junk[i]), &c, NULL), HF_OK);
        assert_int_not_equal(hf_end_parse(text_of(junk[i]), &e, NULL), HF_OK);
        assert_int_not_equal(hf_decision_parse(text_of(junk[i]), &d, NULL), HF_OK);
    }
}

static void order_of_paths(void **state)
{
    (void)state;
    static const char *const sorted[] = {"",    "a",  "a/",   "a/b", "a/b/c", "a/b-",  "a\x01",
                                         "a b", "a-", "a-/x", "a.",  "ab",    "a\xff", "b"};
    for (size_t i = 0; i < HF_COUNT(sorted); i++) {
        for (size_t k = 0; k < HF_COUNT(sorted); k++) {
            int order = hf_path_order(sorted[i], sorted[k]);
            assert_true(i < k ? order < 0 : i > k ? order > 0 : order == 0);
        }
    }
}

static void keys(void **state)
{
    (void)state;
    char key[HF_KEY_MAX];
    assert_string_equal(hf_key_run(key, "r"), "r/run.json");
    assert_string_equal(hf_key_claim(key, "r", 3), "r/attempts/000003.json");
    assert_string_equal(hf_key_claim(key, "r", 12345678), "r/attempts/12345678.json");
    assert_string_equal(hf_key_base(key, "r", 3), "r/attempts/000003.base.json");
    assert_string_equal(hf_key_alive(key, "r", 3), "r/attempts/000003.alive");
    assert_string_equal(hf_key_end(key, "r", 3), "r/attempts/000003.end.json");
    assert_string_equal(hf_key_decision(key, "r", 3, 12), "r/checkpoints/000003-000012.json");
    assert_string_equal(hf_key_retired(key, "r", 3, 12),
                        "r/checkpoints/000003-000012.retired.json");
    struct hf_block b = {.codec = "raw"};
    memset(b.id, 'c', HF_ID_STRLEN - 1);
    hf_prefix_of(b.where, 3, 12, NONCE);
    hf_key_block(key, "r", &b);
    assert_true(strncmp(key, "r/data/000003-000012-01234567/cc/cccc", 37) == 0);
    assert_string_equal(key + strlen(key) - 4, ".raw");
    struct hf_block back;
    uint32_t whose[2] = {0, 0};
    assert_true(hf_key_read_block(key, "r", &whose[0], &whose[1], &back));
    assert_int_equal(whose[0], 3);
    assert_int_equal(whose[1], 12);
    assert_string_equal(back.where, b.where);
    assert_string_equal(back.id, b.id);
    assert_string_equal(back.codec, "raw");
    assert_false(hf_key_read_block(key, "q", &whose[0], &whose[1], &back));
    static const char *const stray[] = {"r/data/000003-000012-01234567/cc/cc.raw",
                                        "r/data/000003-000012-01234567/cc/x",
                                        "r/data/x-000012-01234567/cc/cc.raw",
                                        "r/data/000003/cc/cc.raw",
                                        "r/data/",
                                        "r/data"};
    for (size_t i = 0; i < HF_COUNT(stray); i++) {
        assert_false(hf_key_read_block(stray[i], "r", &whose[0], &whose[1], &back));
    }
    hf_prefix_of(b.where, HF_NUMBER_MAX, HF_NUMBER_MAX, NONCE);
    assert_string_equal(b.where, "999999999-999999999-01234567");

    assert_int_equal(hf_key_read_claim("r/attempts/000003.json", "r"), 3);
    assert_int_equal(hf_key_read_claim("r/attempts/1234567.json", "r"), 1234567);
    static const char *const others[] = {"r/attempts/000003.end.json",
                                         "r/attempts/x.json",
                                         "r/attempts/.json",
                                         "q/attempts/000003.json",
                                         "r/attempts/9999999999.json",
                                         "r/attempts/000000.json",
                                         "r/run.json",
                                         "r"};
    for (size_t i = 0; i < HF_COUNT(others); i++) {
        assert_int_equal(hf_key_read_claim(others[i], "r"), 0);
    }
    uint32_t attempt = 0;
    uint32_t number = 0;
    assert_true(hf_key_read_decision("r/checkpoints/000003-1000012.json", "r", &attempt, &number));
    assert_int_equal(attempt, 3);
    assert_int_equal(number, 1000012);
    static const char *const no[] = {"r/checkpoints/000003-000012.retired.json",
                                     "r/checkpoints/000003.json", "r/checkpoints/-1.json",
                                     "r/checkpoints/000003-000000.json", "r/attempts/000003.json"};
    for (size_t i = 0; i < HF_COUNT(no); i++) {
        assert_false(hf_key_read_decision(no[i], "r", &attempt, &number));
    }
}

static void hashes_of_files(void **state)
{
    (void)state;
    struct hf_manifest m;
    make_manifest(&m, 1, 1, NONCE);
    char want[HF_ID_STRLEN];
    hf_sha256_hex(text_of(""), want);
    assert_string_equal(m.files[4].hash, want);
    char *ids = hf_asprintf("%s%s", m.blocks[0].id, m.blocks[1].id);
    hf_sha256_hex(text_of(ids), want);
    assert_string_equal(m.files[3].hash, want);
    free(ids);
    struct hf_err err;
    expect_rc(hf_manifest_check(&m, &err), HF_OK, &err);
    hf_manifest_release(&m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(manifests_come_back), cmocka_unit_test(unknowns_come_back),
        cmocka_unit_test(golden_texts),        cmocka_unit_test(broken_manifests),
        cmocka_unit_test(mangled_manifests),   cmocka_unit_test(broken_small_records),
        cmocka_unit_test(order_of_paths),      cmocka_unit_test(keys),
        cmocka_unit_test(hashes_of_files),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
