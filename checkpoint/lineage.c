/* SPDX-License-Identifier: Apache-2.0
 *
 * Claim, seal, choose, decide. The order of the calls is the proof (tests/model/store.pml): win the
 * claim, seal every lower attempt, only then choose. Listings only say where to begin a walk;
 * what is decided is known by GET. Worker threads; nothing is cached.
 */
#include "base/prelude.h"

#include <string.h>

#include "checkpoint/lineage.h"
#include "checkpoint/objects.h"
#include "checkpoint/record.h"

#define SEAL_BYTES_MAX 4096 /* a longer decision is a manifest */

static struct hf_span text_span(const char *text)
{
    return (struct hf_span){.ptr = text, .len = strlen(text)};
}

enum hf_rc hf_lineage_get_claim(const struct hf_run *run, const struct hf_call *c, uint32_t attempt,
                                struct hf_claim *ret, struct hf_err *err)
{
    char key[HF_KEY_MAX];
    struct hf_buf text;
    hf_buf_init(&text, HF_RECORD_MAX);
    enum hf_rc rc = hf_obj_get(run, c, hf_key_claim(key, run->name, attempt), &text, err);
    struct hf_claim claim = {.attempt = 0};
    if (rc == HF_OK) {
        rc = hf_record_check_sum(hf_buf_span(&text), err);
        rc = rc == HF_OK ? hf_claim_parse(hf_buf_span(&text), &claim, err) : rc;
        if (rc == HF_OK && claim.attempt != attempt) {
            hf_claim_release(&claim);
            rc = hf_fail(err, HF_ECORRUPT, "the claim of another attempt");
        }
        rc = rc == HF_OK ? rc : hf_wrap(err, rc, "'%s'", key);
    }
    hf_buf_release(&text);
    if (rc == HF_OK) {
        *ret = claim;
    }
    return rc;
}

static enum hf_rc claimed(const struct hf_run *run, const struct hf_call *c, uint32_t attempt,
                          bool *ret, struct hf_err *err)
{
    char key[HF_KEY_MAX];
    return hf_obj_exists(run, c, hf_key_claim(key, run->name, attempt), ret, err);
}

enum hf_rc hf_lineage_top(const struct hf_run *run, const struct hf_call *c, uint32_t *ret_attempt,
                          struct hf_err *err)
{
    uint32_t at = hf_hint_attempt(run, c);
    bool there = false;
    if (at > 0) {
        HF_TRY(claimed(run, c, at, &there, err));
        at = there ? at : 0;
    }
    for (there = true; there && at < HF_NUMBER_MAX;) {
        HF_TRY(claimed(run, c, at + 1, &there, err));
        at += there ? 1 : 0;
    }
    *ret_attempt = at;
    return HF_OK;
}

enum hf_rc hf_lineage_highest(const struct hf_run *run, const struct hf_call *c,
                              uint32_t *ret_attempt, struct hf_claim *ret, struct hf_err *err)
{
    uint32_t at = 0;
    HF_TRY(hf_lineage_top(run, c, &at, err));
    struct hf_claim claim = {.attempt = 0};
    if (at > 0) {
        HF_TRY(hf_lineage_get_claim(run, c, at, &claim, err));
    }
    *ret_attempt = at;
    *ret = claim;
    return HF_OK;
}

enum hf_rc hf_lineage_claim(const struct hf_run *run, const struct hf_call *c,
                            const struct hf_claim *claim, struct hf_err *err)
{
    uint32_t n = claim->attempt;
    if (n == 0 || n > HF_NUMBER_MAX) {
        return hf_fail(err, HF_EINVAL, "there is no attempt %u", n);
    }
    bool below = n == 1;
    if (!below) {
        HF_TRY(claimed(run, c, n - 1, &below, err));
    }
    if (!below) {
        return hf_fail(err, HF_EINVAL, "attempt %u cannot be claimed before %u", n, n - 1);
    }
    char key[HF_KEY_MAX];
    HF_CLEANUP(hf_freep) char *text = hf_claim_print(claim);
    enum hf_rc rc =
        hf_obj_create(run, c, hf_key_claim(key, run->name, n), text_span(text), NULL, err);
    return rc == HF_OK ? rc : hf_wrap(err, rc, "claiming attempt %u", n);
}

enum seen { SEEN_NOTHING, SEEN_SEAL, SEEN_OTHER };

/* What is decided about a number. Damage counts as decided: whatever it was, the number is used. */
static enum hf_rc peek(const struct hf_run *run, const struct hf_call *c, uint32_t attempt,
                       uint32_t number, enum seen *ret, struct hf_err *err)
{
    char key[HF_KEY_MAX];
    struct hf_buf text;
    struct hf_err why;
    hf_buf_init(&text, SEAL_BYTES_MAX);
    enum hf_rc rc =
        hf_obj_get(run, c, hf_key_decision(key, run->name, attempt, number), &text, &why);
    *ret = rc == HF_ENOTFOUND ? SEEN_NOTHING : SEEN_OTHER;
    if (rc == HF_OK) {
        struct hf_decision d;
        rc = hf_record_check_sum(hf_buf_span(&text), &why);
        rc = rc == HF_OK ? hf_decision_parse(hf_buf_span(&text), &d, &why) : rc;
        if (rc == HF_OK) {
            *ret = d.kind == HF_DECISION_SEAL ? SEEN_SEAL : SEEN_OTHER;
            hf_decision_release(&d);
        }
    }
    hf_buf_release(&text);
    bool known = rc == HF_OK || rc == HF_ENOTFOUND || rc == HF_EFULL || rc == HF_ECORRUPT;
    return known ? HF_OK : hf_err_give(err, &why);
}

enum hf_rc hf_lineage_next_number(const struct hf_run *run, const struct hf_call *c,
                                  uint32_t attempt, uint32_t *ret_number, bool *ret_sealed,
                                  struct hf_err *err)
{
    /* Decisions are dense: where a listing shows one, all below are there. */
    uint32_t n = hf_hint_number(run, c, attempt);
    n = n > 0 ? n : 1;
    for (;; n++) {
        enum seen seen = SEEN_NOTHING;
        HF_TRY(peek(run, c, attempt, n, &seen, err));
        if (seen != SEEN_OTHER) {
            *ret_number = n;
            *ret_sealed = seen == SEEN_SEAL;
            return HF_OK;
        }
    }
}

static enum hf_rc seal_one(const struct hf_run *run, const struct hf_call *c,
                           const struct hf_claim *mine, uint32_t attempt, struct hf_err *err)
{
    struct hf_decision seal = {.kind = HF_DECISION_SEAL, .by_attempt = mine->attempt};
    memcpy(seal.nonce, mine->nonce, sizeof(seal.nonce));
    HF_CLEANUP(hf_freep) char *text = hf_decision_print(&seal);
    for (;;) {
        uint32_t n = 0;
        bool sealed = false;
        HF_TRY(hf_lineage_next_number(run, c, attempt, &n, &sealed, err));
        if (sealed) {
            return HF_OK;
        }
        char key[HF_KEY_MAX];
        enum hf_rc rc = hf_obj_create(run, c, hf_key_decision(key, run->name, attempt, n),
                                      text_span(text), NULL, err);
        if (rc != HF_EEXISTS) {
            return rc; /* else the owner, or another claimant, was first: look again */
        }
    }
}

static enum hf_rc read_base(struct hf_span text, struct hf_base *ret, struct hf_err *err)
{
    HF_CLEANUP(hf_json_freep) cJSON *json = NULL;
    struct hf_base b = {.attempt = 0};
    HF_TRY(hf_record_check_sum(text, err));
    HF_TRY(hf_record_parse(text, HF_RECORD_MAX, "base", &json, err));
    HF_TRY(hf_record_hex(json, "nonce", b.nonce, sizeof(b.nonce), err));
    const cJSON *base = hf_json_opt(json, "base");
    if (!cJSON_IsNull(base)) {
        HF_TRY(hf_json_get_obj(json, "base", &base, err));
        HF_TRY(hf_record_number(base, "attempt", 1, &b.attempt, err));
        HF_TRY(hf_record_number(base, "number", 1, &b.number, err));
    }
    *ret = b;
    return HF_OK;
}

enum hf_rc hf_lineage_get_base(const struct hf_run *run, const struct hf_call *c, uint32_t attempt,
                               struct hf_base *ret, struct hf_err *err)
{
    char key[HF_KEY_MAX];
    struct hf_buf text;
    hf_buf_init(&text, HF_RECORD_MAX);
    enum hf_rc rc = hf_obj_get(run, c, hf_key_base(key, run->name, attempt), &text, err);
    if (rc == HF_OK) {
        rc = read_base(hf_buf_span(&text), ret, err);
        rc = rc == HF_OK ? rc : hf_wrap(err, rc, "'%s'", key);
    }
    hf_buf_release(&text);
    return rc;
}

/* Is there nothing to be known from a record, now or ever? */
static bool says_nothing(enum hf_rc rc)
{
    return rc == HF_ENOTFOUND || rc == HF_EFULL || rc == HF_ECORRUPT || rc == HF_ENOTSUP;
}

/* Whether the owner of that claim has sealed all attempts below its own: it puts its base only
 * after that, and a seal is for ever. A base that is lost or damaged says nothing. */
static enum hf_rc has_sealed(const struct hf_run *run, const struct hf_call *c,
                             const struct hf_claim *claim, bool *ret, struct hf_err *err)
{
    struct hf_base base;
    struct hf_err why;
    enum hf_rc rc = hf_lineage_get_base(run, c, claim->attempt, &base, &why);
    *ret = rc == HF_OK && strcmp(base.nonce, claim->nonce) == 0;
    return rc == HF_OK || says_nothing(rc) ? HF_OK : hf_err_give(err, &why);
}

enum hf_rc hf_lineage_need_claim(const struct hf_run *run, const struct hf_call *c,
                                 uint32_t attempt, struct hf_claim *ret, bool *ret_damaged,
                                 struct hf_err *err)
{
    struct hf_err why;
    enum hf_rc rc = hf_lineage_get_claim(run, c, attempt, ret, &why);
    if (rc == HF_ECORRUPT || rc == HF_ENOTFOUND) { /* two looks prove damage */
        rc = hf_lineage_get_claim(run, c, attempt, ret, &why);
    }
    *ret_damaged = rc == HF_ECORRUPT || rc == HF_ENOTFOUND;
    if (!*ret_damaged) {
        return rc == HF_OK ? rc : hf_err_give(err, &why);
    }
    struct hf_base base = {.attempt = 0};
    rc = hf_lineage_get_base(run, c, attempt, &base, &why);
    if (rc != HF_OK && !says_nothing(rc)) {
        return hf_err_give(err, &why);
    }
    *ret = (struct hf_claim){.attempt = attempt, .kind = HF_CLAIM_RUN};
    ret->fresh = rc == HF_OK && base.attempt == 0;
    memcpy(ret->nonce, base.nonce, sizeof(ret->nonce));
    return HF_OK;
}

enum hf_rc hf_lineage_seal(const struct hf_run *run, const struct hf_call *c,
                           const struct hf_claim *mine, struct hf_err *err)
{
    bool done = false; /* the rest was sealed before, by a claimant that is higher than it */
    for (uint32_t a = mine->attempt - 1; a >= 1 && !done; a--) {
        struct hf_claim lower = {.attempt = 0};
        bool damaged = false;
        HF_TRY(hf_lineage_need_claim(run, c, a, &lower, &damaged, err));
        enum hf_rc rc = HF_OK;
        if (lower.kind == HF_CLAIM_RUN) {
            rc = seal_one(run, c, mine, a, err);
            rc = rc == HF_OK && !damaged ? has_sealed(run, c, &lower, &done, err) : rc;
        }
        hf_claim_release(&lower);
        if (rc != HF_OK) {
            return hf_wrap(err, rc, "sealing attempt %u", a);
        }
    }
    return HF_OK;
}

enum hf_rc hf_lineage_get_decision(const struct hf_run *run, const struct hf_call *c,
                                   uint32_t attempt, uint32_t number, struct hf_decision *ret,
                                   struct hf_err *err)
{
    char key[HF_KEY_MAX];
    struct hf_buf text;
    hf_buf_init(&text, HF_DECISION_MAX);
    enum hf_rc rc =
        hf_obj_get(run, c, hf_key_decision(key, run->name, attempt, number), &text, err);
    struct hf_decision d = {.kind = HF_DECISION_ABORT};
    if (rc == HF_OK) {
        rc = hf_record_check_sum(hf_buf_span(&text), err);
        rc = rc == HF_OK ? hf_decision_parse(hf_buf_span(&text), &d, err) : rc;
        if (rc == HF_OK && d.kind == HF_DECISION_MANIFEST &&
            (d.manifest.attempt != attempt || d.manifest.number != number)) {
            hf_decision_release(&d);
            rc = hf_fail(err, HF_ECORRUPT, "the manifest of another checkpoint");
        }
        rc = rc == HF_OK ? rc : hf_wrap(err, rc, "'%s'", key);
    }
    hf_buf_release(&text);
    if (rc == HF_OK) {
        *ret = d;
    }
    return rc;
}

static enum hf_rc retired(const struct hf_run *run, const struct hf_call *c, uint32_t attempt,
                          uint32_t number, bool *ret, struct hf_err *err)
{
    char key[HF_KEY_MAX];
    return hf_obj_exists(run, c, hf_key_retired(key, run->name, attempt, number), ret, err);
}

bool hf_lineage_is_retired(const struct hf_run *run, const struct hf_call *c, uint32_t attempt,
                           uint32_t number)
{
    bool is = false;
    return retired(run, c, attempt, number, &is, NULL) == HF_OK && is;
}

struct choice {
    const struct hf_claim *mine;
    const struct hf_claim *claim; /* of the attempt that is looked at */
    uint32_t skip;
    bool further; /* another was looked at before */
};

/* Where the claim's nonce is lost, the place is the proof, if nobody but the owner can have put it
 * there. */
static bool is_by(const struct hf_run *run, const struct hf_decision *d,
                  const struct hf_claim *claim)
{
    return claim->nonce[0] == '\0' ? (run->store->caps & HF_STORE_CREATE_ONLY) != 0
                                   : strcmp(d->nonce, claim->nonce) == 0;
}

/* One number: HF_OK and *ret when it is the one, HF_ENOTFOUND to look further down. */
static enum hf_rc choose_number(const struct hf_run *run, const struct hf_call *c,
                                struct choice *choice, uint32_t number, struct hf_manifest *ret,
                                struct hf_err *err)
{
    bool gone = false;
    uint32_t attempt = choice->claim->attempt;
    HF_TRY(retired(run, c, attempt, number, &gone, err));
    if (gone) {
        return HF_ENOTFOUND;
    }
    struct hf_decision d;
    struct hf_err why;
    enum hf_rc rc = hf_lineage_get_decision(run, c, attempt, number, &d, &why);
    if (rc == HF_ECORRUPT || rc == HF_ENOTFOUND) { /* two looks prove damage */
        rc = hf_lineage_get_decision(run, c, attempt, number, &d, &why);
    }
    if (rc == HF_ENOTFOUND) {
        char key[HF_KEY_MAX];
        rc = hf_fail(&why, HF_ECORRUPT, "'%s' is missing",
                     hf_key_decision(key, run->name, attempt, number));
    }
    if (rc == HF_ECORRUPT && choice->skip-- > 0) {
        return HF_ENOTFOUND;
    }
    if (rc != HF_OK) {
        return hf_err_give(err, &why);
    }
    if (d.kind != HF_DECISION_MANIFEST || !is_by(run, &d, choice->claim) || choice->skip-- > 0) {
        hf_decision_release(&d);
        return HF_ENOTFOUND;
    }
    *ret = d.manifest; /* taken out of d, which holds nothing else */
    return HF_OK;
}

static enum hf_rc choose_in(const struct hf_run *run, const struct hf_call *c,
                            struct choice *choice, struct hf_manifest *ret, struct hf_err *err)
{
    uint32_t end = 0;
    bool sealed = false;
    HF_TRY(hf_lineage_next_number(run, c, choice->claim->attempt, &end, &sealed, err));
    if (!sealed && !choice->further) {
        return hf_fail(err, HF_EINVAL, "attempt %u is not sealed", choice->claim->attempt);
    }
    if (!sealed) { /* it was once, for those above it were: its seal is lost or damaged */
        HF_TRY(seal_one(run, c, choice->mine, choice->claim->attempt, err));
        HF_TRY(hf_lineage_next_number(run, c, choice->claim->attempt, &end, &sealed, err));
    }
    choice->further = true;
    for (uint32_t n = end - 1; n >= 1; n--) {
        enum hf_rc rc = choose_number(run, c, choice, n, ret, err);
        if (rc != HF_ENOTFOUND) {
            return rc;
        }
    }
    return HF_ENOTFOUND;
}

enum hf_rc hf_lineage_choose(const struct hf_run *run, const struct hf_call *c,
                             const struct hf_claim *mine, uint32_t skip, struct hf_manifest *ret,
                             struct hf_err *err)
{
    bool fresh = mine->fresh;
    struct choice choice = {.mine = mine, .skip = skip};
    for (uint32_t a = mine->attempt - 1; a >= 1 && !fresh; a--) {
        struct hf_claim lower = {.attempt = 0};
        bool damaged = false;
        HF_TRY(hf_lineage_need_claim(run, c, a, &lower, &damaged, err));
        fresh = lower.fresh;
        choice.claim = &lower;
        enum hf_rc rc =
            lower.kind == HF_CLAIM_RUN ? choose_in(run, c, &choice, ret, err) : HF_ENOTFOUND;
        hf_claim_release(&lower);
        if (rc != HF_ENOTFOUND) {
            return rc == HF_OK ? rc : hf_wrap(err, rc, "choosing a checkpoint");
        }
    }
    return hf_fail(err, HF_ENOTFOUND, "no checkpoint to restore");
}

enum hf_rc hf_lineage_put_base(const struct hf_run *run, const struct hf_call *c,
                               const struct hf_claim *mine, const struct hf_manifest *m,
                               struct hf_err *err)
{
    cJSON *json = hf_record_new("base");
    hf_json_add_str(json, "nonce", mine->nonce);
    if (m == NULL) {
        hf_json_add_null(json, "base");
    } else {
        cJSON *base = hf_json_obj();
        hf_json_add_int(base, "attempt", m->attempt);
        hf_json_add_int(base, "number", m->number);
        hf_json_add(json, "base", base);
    }
    HF_CLEANUP(hf_freep) char *text = hf_record_add_sum(hf_record_print(json));
    char key[HF_KEY_MAX];
    /* Evidence, not rule: the command does not wait for the disk because of it. */
    enum hf_rc rc = hf_obj_put_record(run, c, hf_key_base(key, run->name, mine->attempt),
                                      text_span(text), HF_PUT_CREATE_ONLY | HF_PUT_NO_SYNC, err);
    return rc == HF_EEXISTS || rc == HF_ENOTSUP ? HF_OK : rc;
}

enum hf_rc hf_lineage_superseded(const struct hf_run *run, const struct hf_call *c,
                                 uint32_t attempt, bool *ret, struct hf_err *err)
{
    return claimed(run, c, attempt + 1, ret, err);
}

/* The number is taken: by us, or by whoever took the run over? */
static enum hf_rc lost_to(struct hf_span other, const struct hf_claim *mine, uint32_t number,
                          struct hf_err *err)
{
    struct hf_decision d;
    struct hf_err ignored;
    bool ours = false;
    if (hf_decision_parse(other, &d, &ignored) == HF_OK) {
        ours = d.kind != HF_DECISION_SEAL && strcmp(d.nonce, mine->nonce) == 0;
        hf_decision_release(&d);
    }
    if (ours) {
        return hf_fail(err, HF_EAGAIN, "checkpoint %u of attempt %u: an earlier try was stored",
                       number, mine->attempt);
    }
    return hf_fail(err, HF_EEXISTS, "checkpoint %u of attempt %u: the run was taken over", number,
                   mine->attempt);
}

enum hf_rc hf_lineage_decide(const struct hf_run *run, const struct hf_call *c,
                             const struct hf_claim *mine, uint32_t number,
                             const struct hf_decision *d, struct hf_err *err)
{
    const char *nonce = d->kind == HF_DECISION_MANIFEST ? d->manifest.nonce : d->nonce;
    if (d->kind == HF_DECISION_SEAL || strcmp(nonce, mine->nonce) != 0 || number == 0) {
        return hf_fail(err, HF_EINTERNAL, "a decision that is not the owner's");
    }
    bool over = false;
    HF_TRY(hf_lineage_superseded(run, c, mine->attempt, &over, err));
    if (over) {
        return hf_fail(err, HF_EEXISTS, "attempt %u was taken over: %u is claimed", mine->attempt,
                       mine->attempt + 1);
    }
    HF_CLEANUP(hf_freep) char *text = hf_decision_print(d);
    if (strlen(text) > HF_DECISION_MAX) {
        enum hf_rc rc = hf_fail(
            err, HF_EFULL, "the manifest of %u files in %u blocks has %zu bytes, more than %u",
            d->manifest.n_files, d->manifest.n_blocks, strlen(text), HF_DECISION_MAX);
        return hf_hint(err, rc,
                       "Put many small files into few (tar, shards), or raise "
                       "--block-size for huge ones.");
    }
    char key[HF_KEY_MAX];
    struct hf_buf other;
    hf_buf_init(&other, HF_DECISION_MAX);
    char *taken = text;
    text = NULL;
    hf_key_decision(key, run->name, mine->attempt, number);
    enum hf_rc rc = hf_obj_create_text(run, c, key, taken, &other, err);
    if (rc == HF_EEXISTS) {
        rc = lost_to(hf_buf_span(&other), mine, number, err);
    }
    hf_buf_release(&other);
    return rc;
}
