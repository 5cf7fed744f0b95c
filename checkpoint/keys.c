/* SPDX-License-Identifier: Apache-2.0
 *
 * The keys of store format 1, written and read. Numbers are padded for the eye and compared as
 * numbers. Pure, any thread.
 */
#include "base/prelude.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "checkpoint/manifest.h"

static const char *attempt_key(char *out, const char *run, uint32_t attempt, const char *tail)
{
    snprintf(out, HF_KEY_MAX, "%s/attempts/%06" PRIu32 "%s", run, attempt, tail);
    return out;
}

static const char *checkpoint_key(char *out, const char *run, uint32_t attempt, uint32_t number,
                                  const char *tail)
{
    snprintf(out, HF_KEY_MAX, "%s/checkpoints/%06" PRIu32 "-%06" PRIu32 "%s", run, attempt, number,
             tail);
    return out;
}

const char *hf_key_run(char *out, const char *run)
{
    snprintf(out, HF_KEY_MAX, "%s/run.json", run);
    return out;
}

const char *hf_key_claim(char *out, const char *run, uint32_t attempt)
{
    return attempt_key(out, run, attempt, ".json");
}

const char *hf_key_base(char *out, const char *run, uint32_t attempt)
{
    return attempt_key(out, run, attempt, ".base.json");
}

const char *hf_key_alive(char *out, const char *run, uint32_t attempt)
{
    return attempt_key(out, run, attempt, ".alive");
}

const char *hf_key_end(char *out, const char *run, uint32_t attempt)
{
    return attempt_key(out, run, attempt, ".end.json");
}

const char *hf_key_decision(char *out, const char *run, uint32_t attempt, uint32_t number)
{
    return checkpoint_key(out, run, attempt, number, ".json");
}

const char *hf_key_retired(char *out, const char *run, uint32_t attempt, uint32_t number)
{
    return checkpoint_key(out, run, attempt, number, ".retired.json");
}

const char *hf_key_pin(char *out, const char *run, uint32_t attempt, uint32_t number, uint32_t n)
{
    char tail[32];
    snprintf(tail, sizeof(tail), ".pin.%06" PRIu32 ".json", n);
    return checkpoint_key(out, run, attempt, number, tail);
}

const char *hf_key_block(char *out, const char *run, const struct hf_block *b)
{
    snprintf(out, HF_KEY_MAX, "%s/data/%s/%.2s/%s.%s", run, b->where, b->id, b->id, b->codec);
    return out;
}

const char *hf_key_log(char *out, const char *run, uint32_t attempt, uint32_t number)
{
    snprintf(out, HF_KEY_MAX, "%s/logs/%06" PRIu32 "/%06" PRIu32 ".log.zst", run, attempt, number);
    return out;
}

void hf_prefix_of(char out[HF_PREFIX_STRLEN], uint32_t attempt, uint32_t number, const char *nonce)
{
    snprintf(out, HF_PREFIX_STRLEN, "%06" PRIu32 "-%06" PRIu32 "-%.8s", attempt % 1000000000u,
             number % 1000000000u, nonce);
}

/* Reads digits at *p; 0: no number of ours. */
static uint32_t digits(const char **p)
{
    uint32_t v = 0;
    const char *s = *p;
    while (*s >= '0' && *s <= '9' && v <= HF_NUMBER_MAX / 10) {
        v = v * 10 + (uint32_t)(*s - '0');
        s++;
    }
    *p = s;
    return v <= HF_NUMBER_MAX ? v : 0;
}

/* What follows "<run>/<folder>/", or NULL. */
static const char *below(const char *key, const char *run, const char *folder)
{
    size_t r = strlen(run), f = strlen(folder);
    if (strncmp(key, run, r) != 0 || key[r] != '/' || strncmp(key + r + 1, folder, f) != 0 ||
        key[r + 1 + f] != '/') {
        return NULL;
    }
    return key + r + f + 2;
}

uint32_t hf_key_read_claim(const char *key, const char *run)
{
    const char *p = below(key, run, "attempts");
    if (p == NULL) {
        return 0;
    }
    uint32_t v = digits(&p);
    return strcmp(p, ".json") == 0 ? v : 0;
}

bool hf_key_read_decision(const char *key, const char *run, uint32_t *ret_attempt,
                          uint32_t *ret_number)
{
    const char *p = below(key, run, "checkpoints");
    if (p == NULL) {
        return false;
    }
    uint32_t attempt = digits(&p);
    if (*p++ != '-') {
        return false;
    }
    uint32_t number = digits(&p);
    if (attempt == 0 || number == 0 || strcmp(p, ".json") != 0) {
        return false;
    }
    *ret_attempt = attempt;
    *ret_number = number;
    return true;
}

/* Copies a part that ends at `end` and fits; false: it does not. */
static bool take_part(const char **p, char end, char *out, size_t room)
{
    const char *stop = strchr(*p, end);
    size_t len = stop == NULL ? room : (size_t)(stop - *p);
    if (len >= room) {
        return false;
    }
    memcpy(out, *p, len);
    out[len] = '\0';
    *p = stop + 1;
    return true;
}

bool hf_key_read_block(const char *key, const char *run, uint32_t *ret_attempt,
                       uint32_t *ret_number, struct hf_block *ret)
{
    struct hf_block b = {.len = 0};
    char shard[3];
    const char *p = below(key, run, "data");
    if (p == NULL || !take_part(&p, '/', b.where, sizeof(b.where)) ||
        !take_part(&p, '/', shard, sizeof(shard)) || !take_part(&p, '.', b.id, sizeof(b.id)) ||
        !take_part(&p, '\0', b.codec, sizeof(b.codec))) {
        return false;
    }
    const char *where = b.where;
    uint32_t attempt = digits(&where);
    uint32_t number = 0;
    if (*where == '-') {
        where++;
        number = digits(&where);
    }
    if (attempt == 0 || number == 0 || *where != '-' || strlen(b.id) != HF_ID_STRLEN - 1) {
        return false;
    }
    *ret_attempt = attempt;
    *ret_number = number;
    *ret = b;
    return true;
}
