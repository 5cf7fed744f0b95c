/* SPDX-License-Identifier: Apache-2.0
 *
 * Encrypted runs in a store: they come back whole, send what is known already only once, keep what
 * they hold to themselves, refuse the wrong key and what lies in another's place, and never mix
 * with runs that are not encrypted. tests/unit/test_restore_damage.c harms every object of one.
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
#include "checkpoint/build.h"
#include "checkpoint/crypt.h"
#include "checkpoint/logs.h"
#include "checkpoint/objects.h"
#include "checkpoint/pin.h"
#include "checkpoint/prune.h"
#include "checkpoint/restore.h"
#include "checkpoint/sealed.h"
#include "checkpoint/wrap.h"
#include "tests/unit/support_checkpoint.h"
#include "tests/unit/support_conform_store.h"

#define SECRET "0123456789abcdef0123456789abcdef"

static struct hf_unlock *unlock(enum hf_unlock_kind kind, const char *secret)
{
    return hf_unlock_new(kind, (struct hf_span){.ptr = secret, .len = strlen(secret)});
}

struct scene {
    struct bench b;
    char *root;
    struct hf_claim one;
};

/* Small files, one of more than a segment, one of more than a block, zeros, and nothing at all. */
static void fill(const char *root)
{
    static const struct {
        const char *name;
        size_t len;
    } files[] = {{"small", 5},
                 {"deep/er/planted-name", 4096},
                 {"segment", HF_SEGMENT_BYTES + 1},
                 {"long", 5 * HF_SEGMENT_BYTES / 2},
                 {"twice", 4096},
                 {"empty", 0}};
    for (size_t i = 0; i < HF_COUNT(files); i++) {
        char *path = hf_asprintf("%s/%s", root, files[i].name);
        put_noise(path, files[i].len, i == 4 ? 1 : (unsigned)i);
        free(path);
    }
    char *zeros = hf_asprintf("%s/zeros", root);
    char *none = calloc(1, 3 * HF_SEGMENT_BYTES);
    put_file(zeros, none, 3 * HF_SEGMENT_BYTES);
    free(none);
    free(zeros);
    char *text = hf_asprintf("%s/planted.txt", root);
    put_text(text, "planted content planted content planted content");
    free(text);
}

static void scene_open(struct scene *s)
{
    bench_open(&s->b, NULL);
    bench_encrypt(&s->b);
    s->root = bench_path(&s->b, "home/ckpt");
    fill(s->root);
    s->one = must_claim(&s->b, 1);
}

static void scene_close(struct scene *s)
{
    hf_claim_release(&s->one);
    free(s->root);
    bench_close(&s->b);
}

static void save(const struct scene *s, uint32_t number, const struct hf_manifest *parent,
                 struct hf_manifest *ret)
{
    struct hf_save_in in = save_of(&s->b, &s->one, number, s->root);
    in.block_bytes = 2 * HF_SEGMENT_BYTES;
    in.parent = parent;
    must_save(&in, ret);
    save_in_release(&in);
}

static bool is_free_of_plants(void *user, const char *key, uint64_t bytes)
{
    struct scene *s = user;
    struct hf_buf data;
    struct hf_err err;
    hf_buf_init(&data, bytes + 1);
    expect_rc(hf_store_get(s->b.store, NULL, key, &data, &err), HF_OK, &err);
    static const char *const plants[] = {"planted", "train", "someone", "\"files\"", "ckpt"};
    for (size_t i = 0; i < HF_COUNT(plants); i++) {
        assert_null(memmem(data.data, data.len, plants[i], strlen(plants[i])));
        assert_null(strstr(key, plants[i]));
    }
    hf_buf_release(&data);
    return true;
}

static void what_was_saved_comes_back(void **state)
{
    (void)state;
    struct scene s;
    struct hf_manifest m;
    struct hf_manifest again;
    struct hf_err err;
    struct hf_restore_report report;
    uint64_t bytes = 0;
    scene_open(&s);
    save(&s, 1, NULL, &m);
    char *before = tree_text(s.root);
    expect_rc(hf_verify(&s.b.run, NULL, &m, &bytes, &err), HF_OK, &err);
    /* It is there and equal: nothing is fetched. */
    expect_rc(hf_restore(&s.b.run, NULL, &m, &report, &err), HF_OK, &err);
    assert_int_equal(report.bytes_kept, m.bytes);
    hf_restore_report_release(&report);
    expect_rc(hf_remove_all(s.root, &err), HF_OK, &err);
    expect_rc(hf_restore(&s.b.run, NULL, &m, &report, &err), HF_OK, &err);
    assert_int_equal(report.bytes_kept, 0);
    hf_restore_report_release(&report);
    char *after = tree_text(s.root);
    assert_string_equal(after, before);
    /* The parent's blocks are not sent again, and equal content has one block. */
    size_t objects = store_count(s.b.store, "job/data/");
    assert_int_equal(objects, 6); /* the two of 4096 bytes are one, "long" is two, zeros none */
    save(&s, 2, &m, &again);
    assert_int_equal(again.bytes_sent, 0);
    assert_int_equal(store_count(s.b.store, "job/data/"), objects);
    expect_rc(hf_store_list(s.b.store, NULL, "job/", is_free_of_plants, &s, &err), HF_OK, &err);
    free(before);
    free(after);
    hf_manifest_release(&m);
    hf_manifest_release(&again);
    scene_close(&s);
}

static void copy_object(const struct bench *b, const char *from, const char *to)
{
    struct hf_buf data;
    struct hf_err err;
    hf_buf_init(&data, HF_DECISION_MAX);
    expect_rc(hf_store_get(b->store, NULL, from, &data, &err), HF_OK, &err);
    expect_rc(hf_store_put(b->store, NULL, to, hf_buf_span(&data), HF_PUT_REPLACE, &err), HF_OK,
              &err);
    hf_buf_release(&data);
}

/* A record of the same run in another's place, whole as it is, counts for nothing: so nobody who
 * can write into the store makes an older checkpoint out to be the newest, or another's parent. */
static void a_record_in_anothers_place_is_damaged(void **state)
{
    (void)state;
    struct scene s;
    struct hf_manifest m[2];
    struct hf_err err;
    scene_open(&s);
    save(&s, 1, NULL, &m[0]);
    char *path = hf_asprintf("%s/small", s.root);
    put_noise(path, 50, 99);
    free(path);
    save(&s, 2, &m[0], &m[1]);
    copy_object(&s.b, "job/checkpoints/000001-000001.json", "job/checkpoints/000001-000002.json");
    struct hf_decision d;
    expect_rc(hf_lineage_get_decision(&s.b.run, NULL, 1, 2, &d, &err), HF_ECORRUPT, &err);
    assert_non_null(strstr(err.msg, "'job/checkpoints/000001-000002.json'"));
    struct hf_claim two = must_claim(&s.b, 2);
    expect_rc(hf_lineage_seal(&s.b.run, NULL, &two, &err), HF_OK, &err);
    struct hf_manifest chosen;
    expect_rc(hf_lineage_choose(&s.b.run, NULL, &two, 0, &chosen, &err), HF_ECORRUPT, &err);
    expect_rc(hf_lineage_choose(&s.b.run, NULL, &two, 1, &chosen, &err), HF_OK, &err);
    assert_int_equal(chosen.number, 1);
    hf_manifest_release(&chosen);
    copy_object(&s.b, "job/attempts/000001.json", "job/attempts/000002.json");
    struct hf_claim got;
    expect_rc(hf_lineage_get_claim(&s.b.run, NULL, 2, &got, &err), HF_ECORRUPT, &err);
    /* A record that is not sealed at all, however right it is otherwise. */
    char *plain = hf_claim_print(&two);
    store_set(s.b.store, "job/attempts/000002.json", plain);
    expect_rc(hf_lineage_get_claim(&s.b.run, NULL, 2, &got, &err), HF_ECORRUPT, &err);
    assert_non_null(strstr(err.msg, "not encrypted"));
    free(plain);
    hf_claim_release(&two);
    hf_manifest_release(&m[0]);
    hf_manifest_release(&m[1]);
    scene_close(&s);
}

static void swapped_and_cut_blocks_are_damaged(void **state)
{
    (void)state;
    struct scene s;
    struct hf_manifest m;
    struct hf_err err;
    uint64_t bytes = 0;
    scene_open(&s);
    save(&s, 1, NULL, &m);
    char a[HF_KEY_MAX] = "";
    char b[HF_KEY_MAX] = "";
    char aside[] = "job/data/aside";
    for (uint32_t i = 0; i < m.n_blocks; i++) {
        if (hf_block_is_zero(&m.blocks[i])) {
            continue;
        }
        memcpy(b, a, sizeof(b));
        hf_key_block(a, "job", &m.blocks[i]);
        struct hf_buf data;
        hf_buf_init(&data, HF_BLOCK_MAX);
        expect_rc(hf_store_get(s.b.store, NULL, a, &data, &err), HF_OK, &err);
        assert_int_equal(data.len, hf_stored_len(s.b.run.crypt, m.blocks[i].len));
        for (size_t cut = HF_SEGMENT_BYTES + HF_TAG_BYTES; cut < data.len;
             cut += HF_SEGMENT_BYTES + HF_TAG_BYTES) {
            struct hf_span part = {.ptr = data.data, .len = cut};
            expect_rc(hf_store_put(s.b.store, NULL, a, part, HF_PUT_REPLACE, &err), HF_OK, &err);
            expect_rc(hf_verify(&s.b.run, NULL, &m, &bytes, &err), HF_ECORRUPT, &err);
        }
        expect_rc(hf_store_put(s.b.store, NULL, a, hf_buf_span(&data), HF_PUT_REPLACE, &err), HF_OK,
                  &err);
        hf_buf_release(&data);
    }
    expect_rc(hf_verify(&s.b.run, NULL, &m, &bytes, &err), HF_OK, &err);
    copy_object(&s.b, a, aside);
    copy_object(&s.b, b, a);
    copy_object(&s.b, aside, b);
    expect_rc(hf_verify(&s.b.run, NULL, &m, &bytes, &err), HF_ECORRUPT, &err);
    hf_manifest_release(&m);
    scene_close(&s);
}

static void retention_counts_sealed_lengths(void **state)
{
    (void)state;
    struct scene s;
    struct hf_manifest m;
    struct hf_err err;
    scene_open(&s);
    save(&s, 1, NULL, &m);
    struct hf_ckpt_id ids[] = {{.attempt = 1, .number = 1}};
    struct hf_prune_in in = {.run = &s.b.run, .ids = ids, .n_ids = 1};
    struct hf_prune_report report;
    struct hf_call call = {0};
    static char word[] = "failed";
    struct hf_end end = {.outcome = word, .replacement = word, .exit_code = 3, .last_step = -1};
    memcpy(end.nonce, s.one.nonce, sizeof(end.nonce));
    expect_rc(hf_lineage_end(&s.b.run, NULL, 1, &end, &err), HF_OK, &err);
    expect_rc(hf_lineage_end(&s.b.run, NULL, 1, &end, &err), HF_OK, &err);
    expect_rc(hf_prune(&in, &call, &report, &err), HF_EDENIED, &err); /* whole, and the last */
    assert_non_null(strstr(err.msg, "last good"));
    expect_rc(hf_pin_set(&s.b.run, NULL, 1, 1, true, &err), HF_OK, &err);
    /* A pin that cannot be read may be one. */
    store_set(s.b.store, "job/checkpoints/000001-000001.pin.000001.json", "x");
    enum hf_pin_state state_of = HF_PIN_NONE;
    uint32_t n = 0;
    expect_rc(hf_pin_get(&s.b.run, NULL, 1, 1, &state_of, &n, &err), HF_OK, &err);
    assert_int_equal(state_of, HF_PIN_PINNED);
    expect_rc(hf_pin_set(&s.b.run, NULL, 1, 1, false, &err), HF_OK, &err);
    in.even_last = true;
    expect_rc(hf_prune(&in, &call, &report, &err), HF_OK, &err);
    assert_int_equal(report.blocks, 6);
    hf_prune_report_release(&report);
    assert_int_equal(store_count(s.b.store, "job/data/"), 0);
    hf_manifest_release(&m);
    scene_close(&s);
}

static void logs_and_heartbeats(void **state)
{
    (void)state;
    struct scene s;
    struct hf_err err;
    scene_open(&s);
    struct hf_log_piece piece = {.attempt = 1, .number = 1, .at_wall_ms = 5};
    struct hf_log_piece other = {.attempt = 9};
    struct hf_span out = {.ptr = "planted output\n", .len = 15};
    memcpy(piece.nonce, s.one.nonce, sizeof(piece.nonce));
    expect_rc(hf_log_put(&s.b.run, NULL, &piece, out, &other, &err), HF_OK, &err);
    expect_rc(hf_log_put(&s.b.run, NULL, &piece, out, &other, &err), HF_OK, &err); /* the same */
    piece.at_wall_ms = 6;
    expect_rc(hf_log_put(&s.b.run, NULL, &piece, out, &other, &err), HF_EEXISTS, &err);
    assert_int_equal(other.at_wall_ms, 5);
    struct hf_buf raw;
    hf_buf_init(&raw, 100);
    expect_rc(hf_log_get(&s.b.run, NULL, &piece, &raw, &err), HF_OK, &err);
    assert_string_equal(hf_buf_str(&raw), "planted output\n");
    uint32_t number = 0;
    expect_rc(hf_log_last(&s.b.run, NULL, 1, &number, &err), HF_OK, &err);
    assert_int_equal(number, 1);
    expect_rc(hf_log_since(&s.b.run, NULL, 1, 6, &number, &err), HF_OK, &err);
    assert_int_equal(number, 2);
    /* To a reader that has no key, a piece of a newer format. */
    struct hf_run bare = {.store = s.b.store, .name = "job"};
    expect_rc(hf_log_get(&bare, NULL, &piece, &raw, &err), HF_ENOTSUP, &err);
    hf_buf_release(&raw);
    struct hf_beat beat = {.counter = 1, .every_ms = 10, .step = 7};
    struct hf_beat got;
    bool over = true;
    bool dead = false;
    expect_rc(hf_lineage_beat(&s.b.run, NULL, &s.one, &beat, &over, &err), HF_OK, &err);
    assert_false(over);
    expect_rc(hf_lineage_get_beat(&s.b.run, NULL, &s.one, &got, &err), HF_OK, &err);
    assert_int_equal(got.step, 7);
    expect_rc(hf_lineage_judge(&s.b.run, NULL, 1, 60, &dead, &err), HF_OK, &err);
    assert_true(dead);
    expect_rc(hf_store_list(s.b.store, NULL, "job/", is_free_of_plants, &s, &err), HF_OK, &err);
    scene_close(&s);
}

/* Each row: a run begun with the first key and gone on with the second. */
static void keys_are_proved_at_the_start(void **state)
{
    (void)state;
    static const struct {
        enum hf_unlock_kind kind;
        const char *first, *second; /* NULL: without a key */
        bool other_kind;
        enum hf_rc want;
        const char *hint;
    } rows[] = {
        {HF_UNLOCK_KEY_FILE, SECRET, SECRET, false, HF_OK, ""},
        {HF_UNLOCK_PASSPHRASE, "open sesame", "open sesame", false, HF_OK, ""},
        {HF_UNLOCK_KEY_FILE, SECRET, "1123456789abcdef0123456789abcdef", false, HF_EDENIED,
         "begun with"},
        {HF_UNLOCK_PASSPHRASE, "open sesame", "open sesam", false, HF_EDENIED, "begun with"},
        {HF_UNLOCK_KEY_FILE, SECRET, NULL, false, HF_EDENIED, "--key-file"},
        {HF_UNLOCK_PASSPHRASE, "open sesame", NULL, false, HF_EDENIED, "--key-passphrase-file"},
        {HF_UNLOCK_KEY_FILE, SECRET, SECRET, true, HF_EDENIED, "--key-file"},
        {HF_UNLOCK_KEY_FILE, NULL, SECRET, false, HF_EINVAL, "--run"},
        {HF_UNLOCK_KEY_FILE, NULL, NULL, false, HF_OK, ""},
    };
    for (size_t i = 0; i < HF_COUNT(rows); i++) {
        struct bench b;
        struct hf_err err = {0};
        bench_open(&b, "mem:x");
        enum hf_unlock_kind kind = rows[i].kind;
        enum hf_unlock_kind later = rows[i].other_kind ? HF_UNLOCK_PASSPHRASE : kind;
        struct hf_unlock *first = rows[i].first != NULL ? unlock(kind, rows[i].first) : NULL;
        struct hf_unlock *second = rows[i].second != NULL ? unlock(later, rows[i].second) : NULL;
        expect_rc(hf_run_begin(&b.run, first, NULL, &err), HF_OK, &err);
        assert_int_equal(b.run.crypt != NULL, first != NULL);
        for (int look = 0; look < 2; look++) {
            struct hf_run again = {.store = b.store, .name = "job"};
            enum hf_rc rc = look == 0 ? hf_run_begin(&again, second, NULL, &err)
                                      : hf_run_unlock(&again, second, NULL, &err);
            expect_rc(rc, rows[i].want, &err);
            assert_int_equal(again.crypt != NULL, rc == HF_OK && second != NULL);
            assert_true(rc == HF_OK || strstr(err.msg, "run 'job'") != NULL);
            assert_true(rc == HF_OK || strstr(err.hint, rows[i].hint) != NULL);
            hf_crypt_free(again.crypt);
        }
        hf_unlock_free(first);
        hf_unlock_free(second);
        bench_close(&b);
    }
}

/* Its run.json holds the key: nothing that would lose it is done or advised. */
static void a_lost_run_json(void **state)
{
    (void)state;
    struct bench b;
    struct hf_err err;
    bench_open(&b, "mem:x");
    struct hf_unlock *key = unlock(HF_UNLOCK_KEY_FILE, SECRET);
    expect_rc(hf_run_begin(&b.run, key, NULL, &err), HF_OK, &err);
    struct hf_claim one = must_claim(&b, 1);
    struct hf_buf text;
    hf_buf_init(&text, HF_RECORD_MAX);
    expect_rc(hf_store_get(b.store, NULL, "job/run.json", &text, &err), HF_OK, &err);
    char *damaged = hf_asprintf("%.*s", (int)text.len - 9, text.data);
    static const char *const other = "{\"format\":1,\"features\":[],\"type\":\"run\",\"ha";
    const char *texts[] = {NULL, damaged, other, ""};
    for (size_t i = 0; i < HF_COUNT(texts); i++) {
        expect_rc(hf_store_remove(b.store, NULL, "job/run.json", &err), HF_OK, &err);
        if (texts[i] != NULL) {
            store_set(b.store, "job/run.json", texts[i]);
        }
        for (int with = 0; with < 2; with++) {
            struct hf_run again = {.store = b.store, .name = "job"};
            enum hf_rc rc = hf_run_begin(&again, with ? key : NULL, NULL, &err);
            assert_null(again.crypt);
            expect_rc(rc, HF_ECORRUPT, &err);
            if (with || i < 2) {
                assert_non_null(strstr(err.hint, "put a copy of it back"));
            }
            rc = hf_run_unlock(&again, with ? key : NULL, NULL, &err);
            assert_null(again.crypt);
            assert_true(rc != HF_OK || (i > 1 && !with));
        }
    }
    /* Another run's, though it opens with the same key file, is not taken for it. */
    struct hf_run another = {.store = b.store, .name = "other"};
    expect_rc(hf_run_begin(&another, key, NULL, &err), HF_OK, &err);
    copy_object(&b, "other/run.json", "job/run.json");
    struct hf_run again = {.store = b.store, .name = "job"};
    expect_rc(hf_run_begin(&again, key, NULL, &err), HF_ECORRUPT, &err);
    hf_crypt_free(another.crypt);
    /* The copy put back, all is as it was. */
    store_set(b.store, "job/run.json", text.data);
    expect_rc(hf_run_begin(&again, key, NULL, &err), HF_OK, &err);
    struct hf_claim got;
    expect_rc(hf_lineage_get_claim(&again, NULL, 1, &got, &err), HF_OK, &err);
    hf_claim_release(&got);
    hf_crypt_free(again.crypt);
    hf_buf_release(&text);
    free(damaged);
    hf_claim_release(&one);
    hf_unlock_free(key);
    bench_close(&b);
}

/* A run that is not encrypted, of which the run.json is gone, does not become so halfway. */
static void no_key_halfway(void **state)
{
    (void)state;
    struct bench b;
    struct hf_err err;
    bench_open(&b, "mem:x");
    struct hf_unlock *key = unlock(HF_UNLOCK_KEY_FILE, SECRET);
    struct hf_claim one = must_claim(&b, 1);
    expect_rc(hf_run_begin(&b.run, key, NULL, &err), HF_EINVAL, &err);
    assert_null(b.run.crypt);
    assert_int_equal(store_count(b.store, "job/run.json"), 0);
    expect_rc(hf_run_begin(&b.run, NULL, NULL, &err), HF_OK, &err);
    hf_claim_release(&one);
    hf_unlock_free(key);
    bench_close(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_was_saved_comes_back),
        cmocka_unit_test(a_record_in_anothers_place_is_damaged),
        cmocka_unit_test(swapped_and_cut_blocks_are_damaged),
        cmocka_unit_test(retention_counts_sealed_lengths),
        cmocka_unit_test(logs_and_heartbeats),
        cmocka_unit_test(keys_are_proved_at_the_start),
        cmocka_unit_test(a_lost_run_json),
        cmocka_unit_test(no_key_halfway),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
