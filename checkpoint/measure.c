/* SPDX-License-Identifier: Apache-2.0
 *
 * Measuring a store. The blocks are random, and each differs from the others, so that no store can
 * save itself the work; each is copied first, as a save reads it from the page cache. Worker
 * threads. Nothing is left behind that can be removed.
 */
#include "base/prelude.h"

#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/hash.h"
#include "base/mem.h"
#include "checkpoint/lanes.h"
#include "checkpoint/measure.h"
#include "checkpoint/objects.h"

#define HASH_MS     200
#define SMALL_BYTES 4096
#define SMALL_PUTS  5
#define CLEAN_MS    60000
#define FOLDER_ROOM 40
#define KEY_ROOM    80

struct rush {
    const struct hf_measure_in *in;
    char folder[FOLDER_ROOM];
    uint8_t *pattern;            /* block_bytes of it, random */
    size_t blocks;               /* at most */
    char (*sums)[HF_SHA256_HEX]; /* of each block that was put; "" before */
    uint64_t start_ns;
    atomic_uint_least64_t end_ns; /* of the last one that was done */
    atomic_size_t done;
};

static const char *block_key(const struct rush *r, size_t index, char key[KEY_ROOM])
{
    (void)snprintf(key, KEY_ROOM, "%s/data/%06zu", r->folder, index);
    return key;
}

static uint64_t rate(uint64_t bytes, uint64_t ns)
{
    return ns == 0 ? 0 : (uint64_t)((double)bytes * (double)HF_SEC / (double)ns);
}

static bool is_late(const struct rush *r)
{
    return hf_now_ns() >= r->start_ns + r->in->stage_ms * HF_MS;
}

static void note_done(struct rush *r)
{
    atomic_fetch_add(&r->done, 1);
    uint64_t now = hf_now_ns();
    uint64_t before = atomic_load(&r->end_ns);
    while (now > before && !atomic_compare_exchange_weak(&r->end_ns, &before, now)) {
    }
}

static uint64_t measure_hash(const struct rush *r)
{
    uint64_t start = hf_now_ns();
    uint64_t bytes = 0;
    char sum[HF_SHA256_HEX];
    while (hf_now_ns() < start + HASH_MS * HF_MS) {
        hf_sha256_hex((struct hf_span){r->pattern, r->in->block_bytes}, sum);
        bytes += r->in->block_bytes;
    }
    return rate(bytes, hf_now_ns() - start);
}

static enum hf_rc small_puts(const struct rush *r, double *ret_ms, struct hf_err *err)
{
    double ms[SMALL_PUTS] = {0};
    struct hf_span data = {r->pattern, SMALL_BYTES};
    for (size_t i = 0; i < SMALL_PUTS; i++) {
        char key[KEY_ROOM];
        (void)snprintf(key, sizeof(key), "%s/small-%zu", r->folder, i);
        uint64_t start = hf_now_ns();
        HF_TRY(hf_store_create(r->in->store, r->in->call, key, data, NULL, err));
        double took = (double)(hf_now_ns() - start) / (double)HF_MS;
        size_t at = i;
        for (; at > 0 && ms[at - 1] > took; at--) {
            ms[at] = ms[at - 1];
        }
        ms[at] = took;
    }
    *ret_ms = ms[SMALL_PUTS / 2];
    return HF_OK;
}

static enum hf_rc put_block(void *user, struct hf_lane *lane, size_t index, struct hf_err *err)
{
    struct rush *r = user;
    if (index > 0 && is_late(r)) {
        return HF_OK;
    }
    char key[KEY_ROOM];
    char sum[HF_SHA256_HEX];
    uint64_t mark = index + 1;
    memcpy(lane->room.ptr, r->pattern, r->in->block_bytes);
    memcpy(lane->room.ptr, &mark, sizeof(mark));
    struct hf_span data = {lane->room.ptr, r->in->block_bytes};
    hf_sha256_hex(data, sum);
    memcpy(r->sums[index], sum, sizeof(sum)); /* before: what failed may be there all the same */
    HF_TRY(hf_store_put(r->in->store, r->in->call, block_key(r, index, key), data, HF_PUT_REPLACE,
                        err));
    note_done(r);
    return HF_OK;
}

static enum hf_rc get_block(void *user, struct hf_lane *lane, size_t index, struct hf_err *err)
{
    struct rush *r = user;
    if (r->sums[index][0] == '\0' || (index > 0 && is_late(r))) {
        return HF_OK;
    }
    char key[KEY_ROOM];
    char sum[HF_SHA256_HEX];
    HF_TRY(hf_store_get(r->in->store, r->in->call, block_key(r, index, key), &lane->buf, err));
    hf_sha256_hex(hf_buf_span(&lane->buf), sum);
    if (strcmp(sum, r->sums[index]) != 0) {
        return hf_fail(err, HF_ECORRUPT, "'%s' came back with other bytes than were put", key);
    }
    note_done(r);
    return HF_OK;
}

typedef enum hf_rc stage_fn(void *user, struct hf_lane *lane, size_t index, struct hf_err *err);

static enum hf_rc run_stage(struct rush *r, const char *name, size_t room, stage_fn *item,
                            struct hf_err *err)
{
    r->start_ns = hf_now_ns();
    atomic_store(&r->end_ns, 0);
    atomic_store(&r->done, 0);
    struct hf_lanes lanes = {.name = name,
                             .call = r->in->call,
                             .items = r->blocks,
                             .lanes = r->in->lanes,
                             .room_bytes = room,
                             .buf_bytes = r->in->block_bytes,
                             .item = item,
                             .user = r};
    return hf_lanes_run(&lanes, err);
}

static void stage_result(struct rush *r, uint64_t *ret_bps, uint64_t *ret_bytes)
{
    *ret_bytes = atomic_load(&r->done) * r->in->block_bytes;
    *ret_bps = *ret_bytes == 0 ? 0 : rate(*ret_bytes, atomic_load(&r->end_ns) - r->start_ns);
}

static bool note_key(void *user, const char *key, uint64_t bytes)
{
    (void)bytes;
    hf_strv_add(user, key);
    return true;
}

static enum hf_rc remove_each(const struct rush *r, const struct hf_call *c,
                              const struct hf_strv *keys, struct hf_err *err)
{
    for (size_t i = 0; i < keys->len; i++) {
        HF_TRY(hf_store_remove(r->in->store, c, keys->items[i], err));
    }
    return HF_OK;
}

/* What is known to be there, since a listing may lack it, and what a listing shows beside. */
static enum hf_rc remove_all(const struct rush *r, const struct hf_call *c, struct hf_err *err)
{
    char key[KEY_ROOM];
    struct hf_strv keys = {0};
    for (size_t i = 0; i < r->blocks; i++) {
        if (r->sums[i][0] != '\0') {
            hf_strv_add(&keys, block_key(r, i, key));
        }
    }
    enum hf_rc rc = remove_each(r, c, &keys, err);
    hf_strv_clear(&keys);
    (void)snprintf(key, sizeof(key), "%s/", r->folder);
    rc = rc != HF_OK ? rc : hf_store_list(r->in->store, c, key, note_key, &keys, err);
    rc = rc != HF_OK ? rc : remove_each(r, c, &keys, err);
    hf_strv_clear(&keys);
    return rc;
}

/* Of its own circumstances: also after an interruption. */
static enum hf_rc clean_up(const struct rush *r, struct hf_err *err)
{
    struct hf_call c = {.deadline_ns = hf_now_ns() + CLEAN_MS * HF_MS};
    enum hf_rc rc = remove_all(r, &c, err);
    return rc == HF_OK ? HF_OK
                       : hf_wrap(err, rc, "'%s/' could not be removed from the store", r->folder);
}

static enum hf_rc measure(struct rush *r, struct hf_measure *ret, struct hf_err *err)
{
    ret->hash_bps = measure_hash(r);
    HF_TRY(hf_call_check(r->in->call, err));
    HF_TRY(hf_store_probe(r->in->store, r->in->call, r->folder, err));
    ret->create_only = (r->in->store->caps & HF_STORE_CREATE_ONLY) != 0;
    HF_TRY(small_puts(r, &ret->small_put_ms, err));
    enum hf_rc rc = run_stage(r, "hf-put", r->in->block_bytes, put_block, err);
    stage_result(r, &ret->put_bps, &ret->put_bytes);
    HF_TRY(rc);
    rc = run_stage(r, "hf-get", 0, get_block, err);
    stage_result(r, &ret->get_bps, &ret->get_bytes);
    return rc;
}

enum hf_rc hf_measure(const struct hf_measure_in *in, struct hf_measure *ret, struct hf_err *err)
{
    struct rush r = {.in = in};
    char random[17];
    hf_random_hex(8, random);
    (void)snprintf(r.folder, sizeof(r.folder), "doctor-%s", random);
    *ret = (struct hf_measure){.lanes = in->lanes > 0 ? in->lanes : hf_lanes_default()};
    r.blocks = (size_t)(HF_MEASURE_BYTES_MAX / in->block_bytes);
    r.blocks = r.blocks > 0 ? r.blocks : 1;
    r.pattern = hf_big_new(in->block_bytes);
    if (r.pattern == NULL) {
        return hf_fail(err, HF_EFULL, "no memory for a block of %" PRIu64 " bytes",
                       in->block_bytes);
    }
    uint64_t value = hf_random_u64();
    for (size_t i = 0; i + sizeof(value) <= in->block_bytes; i += sizeof(value)) {
        value = value * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        memcpy(r.pattern + i, &value, sizeof(value));
    }
    r.sums = hf_calloc(r.blocks, sizeof(*r.sums));
    struct hf_err left = {.code = HF_OK};
    enum hf_rc rc = measure(&r, ret, err);
    enum hf_rc cleaned = clean_up(&r, &left);
    hf_free(r.sums);
    hf_big_free(r.pattern, in->block_bytes);
    return rc == HF_OK && cleaned != HF_OK ? hf_err_give(err, &left) : rc;
}

uint64_t hf_measure_fits(const struct hf_measure *m, uint32_t seconds)
{
    double left = (double)seconds - 4 * m->small_put_ms / 1000;
    return left > 0 ? (uint64_t)(left * (double)m->put_bps) : 0;
}
