/* SPDX-License-Identifier: Apache-2.0
 *
 * Room for checkpoints: looked at before the first step, at each reported save and after each
 * that was shipped, by a worker. Warned of once for each filesystem until it is better; folders
 * of ours that nobody resumes from go first. Loop thread.
 */
#include "base/prelude.h"

#include <inttypes.h>
#include <string.h>

#include "supervisor/disk.h"
#include "supervisor/sup.h"

#define FILE_SCHEME "file://"

/* What the save folder, the state folder and a store in a folder are on. */
enum place { PLACE_SAVE, PLACE_STATE, PLACE_STORE, PLACES };
static const char *const place_names[PLACES] = {"save", "state", "store"};

struct look {
    struct hf_sup *sup;
    uint32_t attempt;
    uint64_t need;
    char *paths[PLACES]; /* NULL: none */
    struct hf_disk disks[PLACES];
    bool known[PLACES];
};

static void look_free(struct look *l)
{
    for (size_t i = 0; i < PLACES; i++) {
        hf_free(l->paths[i]);
    }
    hf_free(l);
}

static enum hf_rc look_work(void *arg, const struct hf_op *op, struct hf_err *err)
{
    (void)op;
    (void)err;
    struct look *l = arg;
    for (size_t i = 0; i < PLACES; i++) {
        l->known[i] = l->paths[i] != NULL && hf_disk_look(l->paths[i], &l->disks[i], NULL) == HF_OK;
    }
    return HF_OK;
}

static void tell(struct hf_sup *sup, const struct look *l, size_t i, enum hf_disk_word word)
{
    const struct hf_disk *d = &l->disks[i];
    cJSON *f = hf_json_obj();
    hf_json_add_str(f, "place", place_names[i]);
    hf_json_add(f, "path", hf_json_bytes(l->paths[i]));
    hf_json_add_int(f, "free", (int64_t)d->free_bytes);
    hf_json_add_int(f, "total", (int64_t)d->total_bytes);
    hf_json_add_int(f, "checkpoint", (int64_t)l->need);
    hf_event(&sup->events, sup->at.claim.attempt, "disk-low", f);
    if (word == HF_DISK_LOW) {
        hf_log(&sup->log, HF_LOG_WARN,
               "little room in '%s': %" PRIu64 " bytes are free, and a checkpoint takes %" PRIu64
               "; free some, or name another folder",
               l->paths[i], d->free_bytes, l->need);
    } else {
        hf_log(&sup->log, HF_LOG_WARN,
               "the filesystem of '%s' is nine tenths full: %" PRIu64
               " bytes are free, and a checkpoint takes %" PRIu64,
               l->paths[i], d->free_bytes, l->need);
    }
}

/* Whether a place before this one is on the same filesystem. */
static bool told_already(const struct look *l, size_t i)
{
    for (size_t k = 0; k < i; k++) {
        if (l->known[k] && l->disks[k].device == l->disks[i].device) {
            return true;
        }
    }
    return false;
}

static void look_done(void *user, const struct hf_err *err)
{
    struct look *l = user;
    struct hf_sup *sup = l->sup;
    struct hf_attempt *at = &sup->at;
    sup->disk_busy = false;
    if (err != NULL || l->attempt != at->claim.attempt || at->ship == NULL) {
        look_free(l);
        return;
    }
    for (size_t i = 0; i < PLACES; i++) {
        if (!l->known[i] || told_already(l, i)) {
            continue;
        }
        enum hf_disk_word word = hf_disk_judge(&l->disks[i], l->need);
        if (word != HF_DISK_FINE && !sup->disk_told[i]) {
            tell(sup, l, i, word);
        }
        sup->disk_told[i] = word != HF_DISK_FINE;
    }
    if (l->known[PLACE_SAVE] && hf_disk_is_short(&l->disks[PLACE_SAVE], l->need)) {
        hf_ship_trim(at->ship, l->need);
    }
    look_free(l);
}

void hf_sup_disk_look(struct hf_sup *sup)
{
    uint64_t need = sup->at.ship != NULL ? hf_ship_verdict(sup->at.ship)->bytes : 0;
    if (sup->disk_busy || need == 0) {
        return;
    }
    struct look *l = HF_NEW(struct look);
    l->sup = sup;
    l->attempt = sup->at.claim.attempt;
    l->need = need;
    l->paths[PLACE_SAVE] = hf_strdup(sup->save_dir);
    l->paths[PLACE_STATE] = hf_strdup(sup->dir.state);
    if (strncmp(sup->dir.store, FILE_SCHEME, strlen(FILE_SCHEME)) == 0) {
        l->paths[PLACE_STORE] = hf_strdup(sup->dir.store + strlen(FILE_SCHEME));
    }
    sup->disk_busy = true;
    if (hf_pool_submit(sup->local_pool, &sup->scope, look_work, l, look_done, l, NULL, NULL) !=
        HF_OK) {
        sup->disk_busy = false;
        look_free(l);
    }
}
