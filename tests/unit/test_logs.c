/* SPDX-License-Identifier: Apache-2.0
 *
 * Log pieces and the way to them: packed and unpacked, damaged, put twice, found by number and by
 * time; then the shipper over a store that fails at each of its calls.
 */
#include "base/prelude.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/fsx.h"
#include "base/mem.h"
#include "checkpoint/logs.h"
#include "supervisor/logring.h"
#include "supervisor/logship.h"

#define NONCE "0123456789abcdef0123456789abcdef"
#define OTHER "fedcba9876543210fedcba9876543210"

static struct hf_log_piece piece_at(uint64_t offset, int64_t at_ms)
{
    struct hf_log_piece p = {.offset = offset, .at_wall_ms = at_ms};
    memcpy(p.nonce, NONCE, sizeof p.nonce);
    return p;
}

static void put_text(const struct hf_run *run, uint32_t number, uint64_t offset, const char *text)
{
    struct hf_log_piece p = piece_at(offset, (int64_t)number * 1000);
    struct hf_log_piece other;
    p.attempt = 1;
    p.number = number;
    assert_int_equal(hf_log_put(run, NULL, &p, (struct hf_span){text, strlen(text)}, &other, NULL),
                     HF_OK);
}

static void packs_and_unpacks(void **state)
{
    (void)state;
    static const size_t lens[] = {1, 2, 1000, 65536, HF_LOG_PIECE_MAX - 1, HF_LOG_PIECE_MAX};
    HF_CLEANUP(hf_freep) char *raw = hf_calloc(1, HF_LOG_PIECE_MAX);
    uint32_t x = 1;
    for (size_t i = 0; i < HF_LOG_PIECE_MAX; i++) {
        x = x * 1664525u + 1013904223u;
        raw[i] = (char)(x >> 24); /* does not compress: the object is at its longest */
    }
    for (size_t i = 0; i < HF_COUNT(lens); i++) {
        struct hf_log_piece p = piece_at(UINT64_C(1) << 45, 1700000000000);
        struct hf_log_piece got = {.attempt = 0};
        struct hf_buf object;
        struct hf_buf back;
        p.missing = 77;
        hf_buf_init(&object, HF_LOG_OBJECT_MAX);
        hf_buf_init(&back, HF_LOG_PIECE_MAX);
        assert_int_equal(hf_log_pack(&p, (struct hf_span){raw, lens[i]}, &object, NULL), HF_OK);
        assert_int_equal(hf_log_unpack(hf_buf_span(&object), &got, &back, NULL), HF_OK);
        assert_int_equal(back.len, lens[i]);
        assert_memory_equal(back.data, raw, lens[i]);
        assert_int_equal(got.offset, p.offset);
        assert_int_equal(got.missing, 77);
        assert_int_equal(got.at_wall_ms, p.at_wall_ms);
        assert_string_equal(got.nonce, NONCE);
        hf_buf_release(&object);
        hf_buf_release(&back);
    }
}

/* Cut at every length, and every byte changed: never anything but the bytes or a clear refusal. */
static void refuses_damage(void **state)
{
    (void)state;
    struct hf_log_piece p = piece_at(0, 1);
    struct hf_log_piece got = {.attempt = 0};
    struct hf_buf object;
    hf_buf_init(&object, HF_LOG_OBJECT_MAX);
    assert_int_equal(hf_log_pack(&p, (struct hf_span){"hello hello hello\n", 18}, &object, NULL),
                     HF_OK);
    for (size_t len = 0; len < object.len; len++) {
        struct hf_buf back;
        hf_buf_init(&back, HF_LOG_PIECE_MAX);
        HF_CLEANUP(hf_freep) char *cut = hf_strndup(object.data, len);
        memcpy(cut, object.data, len);
        assert_int_not_equal(hf_log_unpack((struct hf_span){cut, len}, &got, &back, NULL), HF_OK);
        assert_int_equal(back.len, 0);
        hf_buf_release(&back);
    }
    for (size_t i = 0; i < object.len; i++) {
        struct hf_buf back;
        hf_buf_init(&back, HF_LOG_PIECE_MAX);
        object.data[i] = (char)(object.data[i] ^ 0x55);
        enum hf_rc rc = hf_log_unpack(hf_buf_span(&object), &got, &back, NULL);
        bool same = back.len == 18 && memcmp(back.data, "hello hello hello\n", 18) == 0;
        assert_true(rc == HF_OK ? same : back.len == 0); /* only its line may be another */
        object.data[i] = (char)(object.data[i] ^ 0x55);
        hf_buf_release(&back);
    }
    hf_buf_release(&object);
}

static void finds_the_last_and_a_moment(void **state)
{
    (void)state;
    struct hf_run run = {.name = "r"};
    assert_int_equal(hf_store_open("mem:logs", NULL, &run.store, NULL), HF_OK);
    for (uint32_t n = 0; n <= 40; n++) {
        uint32_t last = 99;
        uint32_t since = 99;
        if (n > 0) {
            put_text(&run, n, n - 1, "x");
        }
        assert_int_equal(hf_log_last(&run, NULL, 1, &last, NULL), HF_OK);
        assert_int_equal(last, n);
        assert_int_equal(hf_log_since(&run, NULL, 1, 20000, &since, NULL), HF_OK);
        assert_int_equal(since, n >= 20 ? 20 : n + 1);
        assert_int_equal(hf_log_since(&run, NULL, 1, 0, &since, NULL), HF_OK);
        assert_int_equal(since, 1);
    }
    struct hf_log_piece mine = piece_at(5, 9);
    struct hf_log_piece other = {.offset = 0};
    mine.attempt = 1;
    mine.number = 3;
    assert_int_equal(hf_log_put(&run, NULL, &mine, (struct hf_span){"yy", 2}, &other, NULL),
                     HF_EEXISTS);
    assert_int_equal(other.offset, 2);
    assert_int_equal(other.len, 1);
    hf_store_close(run.store);
}

/* ---- the shipper ---- */

struct ship {
    struct hf_loop loop;
    struct hf_scope scope;
    struct hf_pool *pool;
    struct hf_run run;
    char dir[64];
    struct hf_logring ring;
    struct hf_logship *s;
    int finished, troubles;
};

static void on_finished(void *user)
{
    struct ship *t = user;
    t->finished++;
    hf_loop_stop(&t->loop);
}

static void on_trouble(void *user, const struct hf_err *err)
{
    struct ship *t = user;
    t->troubles += err != NULL;
}

static const struct hf_logship_cb callbacks = {.finished = on_finished, .trouble = on_trouble};

static void ship_start(struct ship *t, const char *nonce)
{
    struct hf_logship_cfg cfg = {.loop = &t->loop,
                                 .scope = &t->scope,
                                 .pool = t->pool,
                                 .run = &t->run,
                                 .dir = t->dir,
                                 .attempt = 1,
                                 .nonce = nonce};
    t->s = hf_logship_new(&cfg, &callbacks, t);
}

static void ship_open(struct ship *t, bool faulty)
{
    *t = (struct ship){.run = {.name = "r"}};
    assert_int_equal(hf_loop_init(&t->loop, NULL), HF_OK);
    t->pool = hf_pool_new(&t->loop, "hf-logs", 1, 4);
    assert_int_equal(hf_store_open("mem:logs", NULL, &t->run.store, NULL), HF_OK);
    t->run.store->caps |= HF_STORE_CREATE_ONLY;
    if (faulty) {
        t->run.store = hf_store_faulty(t->run.store);
    }
    snprintf(t->dir, sizeof t->dir, "/tmp/hf-ship-XXXXXX");
    assert_non_null(mkdtemp(t->dir));
    HF_CLEANUP(hf_freep) char *path = hf_asprintf("%s/" HF_LOGRING_FIRST, t->dir);
    hf_logring_init(&t->ring, t->dir, open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600),
                    64 << 20);
    ship_start(t, NONCE);
}

static void ship_text(struct ship *t, size_t bytes, char c)
{
    HF_CLEANUP(hf_freep) char *text = hf_calloc(1, bytes + 1);
    memset(text, c, bytes);
    hf_logring_add(&t->ring, (struct hf_span){text, bytes}, hf_now_ns(), hf_wall_ms());
}

static void ship_finish(struct ship *t, uint64_t limit_ms)
{
    t->finished = 0;
    hf_logship_finish(t->s, limit_ms);
    hf_loop_run(&t->loop);
    assert_int_equal(t->finished, 1);
    assert_true(hf_logship_finished(t->s));
    hf_logship_free(t->s);
    hf_loop_drain(&t->loop);
}

static void ship_close(struct ship *t)
{
    hf_scope_cancel(&t->scope);
    hf_pool_free(t->pool);
    hf_loop_drain(&t->loop);
    assert_int_equal(hf_loop_close(&t->loop, NULL), HF_OK);
    hf_store_close(t->run.store);
    hf_logring_release(&t->ring);
    assert_int_equal(hf_fs_remove_tree(t->dir, NULL), HF_OK);
}

/* What the pieces hold: every byte once, in order, from 0 on but for what is said to be missing. */
static uint64_t check_pieces(struct ship *t, uint32_t *ret_pieces)
{
    uint64_t at = 0;
    uint64_t missing = 0;
    uint32_t n = 1;
    for (;; n++) {
        struct hf_log_piece p = {.attempt = 1, .number = n};
        struct hf_buf raw;
        hf_buf_init(&raw, HF_LOG_PIECE_MAX);
        enum hf_rc rc = hf_log_get(&t->run, NULL, &p, &raw, NULL);
        size_t len = raw.len;
        hf_buf_release(&raw);
        if (rc == HF_ENOTFOUND) {
            break;
        }
        assert_int_equal(rc, HF_OK);
        assert_int_equal(p.offset, at + p.missing);
        missing += p.missing;
        at = p.offset + len;
    }
    *ret_pieces = n - 1;
    assert_int_equal(at, t->ring.end);
    return missing;
}

static void ships_all_of_it(void **state)
{
    (void)state;
    static const size_t sizes[] = {0, 1, HF_LOG_PIECE_MAX, HF_LOG_PIECE_MAX + 1,
                                   20 * HF_LOG_PIECE_MAX + 5};
    static const uint32_t pieces[] = {0, 1, 1, 2, 21};
    for (size_t i = 0; i < HF_COUNT(sizes); i++) {
        struct ship t;
        uint32_t n = 0;
        ship_open(&t, false);
        ship_text(&t, sizes[i], 'a');
        ship_finish(&t, 10000);
        assert_int_equal(check_pieces(&t, &n), 0);
        assert_int_equal(n, pieces[i]);
        ship_close(&t);
    }
}

/* Another supervisor of the same attempt goes on with the next number and the next byte; one of
 * another claim puts nothing. */
static void goes_on_where_another_stopped(void **state)
{
    (void)state;
    struct ship t;
    uint32_t n = 0;
    ship_open(&t, false);
    ship_text(&t, 100, 'a');
    ship_finish(&t, 10000);
    ship_text(&t, 50, 'b');
    ship_start(&t, NONCE);
    ship_finish(&t, 10000);
    assert_int_equal(check_pieces(&t, &n), 0);
    assert_int_equal(n, 2);
    ship_close(&t);
}

/* Its number was taken meanwhile by another claim: it stops for good and says so. */
static void a_stranger_puts_nothing(void **state)
{
    (void)state;
    struct ship t;
    ship_open(&t, false);
    put_text(&t.run, 1, 0, "x");
    ship_text(&t, 100, 'a');
    hf_logship_free(t.s);
    hf_loop_drain(&t.loop);
    ship_start(&t, OTHER);
    ship_finish(&t, 10000);
    uint32_t last = 0;
    assert_int_equal(hf_log_last(&t.run, NULL, 1, &last, NULL), HF_OK);
    assert_int_equal(last, 1);
    assert_int_equal(t.troubles, 1);
    ship_close(&t);
}

/* More than it can catch up with, and what the ring has dropped, is told of. */
static void says_what_is_missing(void **state)
{
    (void)state;
    struct ship t;
    uint32_t n = 0;
    ship_open(&t, false);
    hf_logship_free(t.s);
    ship_text(&t, 1000, 'a');
    ship_start(&t, NONCE);
    ship_finish(&t, 10000);
    for (int i = 0; i < 70; i++) {
        ship_text(&t, 1 << 20, 'b'); /* of which the ring keeps 64 MiB */
    }
    ship_start(&t, NONCE);
    ship_finish(&t, 20000);
    assert_true(check_pieces(&t, &n) > 0);
    ship_close(&t);
}

/* Each call of the store in turn fails, or is done and not answered: nothing is lost or doubled. */
static void survives_each_failing_call(void **state)
{
    (void)state;
    static const enum hf_store_fault_kind kinds[] = {HF_SFAULT_FAIL, HF_SFAULT_LOST_REPLY};
    for (size_t k = 0; k < HF_COUNT(kinds); k++) {
        uint64_t nth = 1;
        for (bool reached = true; reached; nth++) {
            struct ship t;
            uint32_t n = 0;
            ship_open(&t, true);
            ship_text(&t, 3 * HF_LOG_PIECE_MAX + 7, 'a');
            hf_store_fault_set(t.run.store, kinds[k], nth, false);
            ship_finish(&t, 20000);
            reached = hf_store_fault_calls(t.run.store) >= nth;
            hf_store_fault_set(t.run.store, kinds[k], 0, false);
            assert_int_equal(check_pieces(&t, &n), 0);
            assert_int_equal(n, 4);
            ship_close(&t);
        }
        assert_true(nth > 4);
    }
}

/* A store that never answers: the end does not wait for it. */
static void gives_up_in_time(void **state)
{
    (void)state;
    struct ship t;
    ship_open(&t, true);
    ship_text(&t, 100, 'a');
    hf_store_fault_set(t.run.store, HF_SFAULT_HANG, 1, true);
    uint64_t before = hf_now_ns();
    ship_finish(&t, 100);
    assert_true(hf_now_ns() - before < 5 * HF_SEC);
    hf_store_fault_set(t.run.store, HF_SFAULT_HANG, 0, false);
    ship_close(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(packs_and_unpacks),
        cmocka_unit_test(refuses_damage),
        cmocka_unit_test(finds_the_last_and_a_moment),
        cmocka_unit_test(ships_all_of_it),
        cmocka_unit_test(goes_on_where_another_stopped),
        cmocka_unit_test(a_stranger_puts_nothing),
        cmocka_unit_test(says_what_is_missing),
        cmocka_unit_test(survives_each_failing_call),
        cmocka_unit_test(gives_up_in_time),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
