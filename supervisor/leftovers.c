/* SPDX-License-Identifier: Apache-2.0
 *
 * Moving incomplete checkpoints out of the way. Worker thread. Only what a layout knows to be
 * incomplete is touched; what belongs to a complete one, too, stays.
 */
#include "base/prelude.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fsx.h"
#include "supervisor/held.h"
#include "supervisor/leftovers.h"
#include "supervisor/watch_judge.h"

#define ASIDE     ".holdfast-aside"
#define NAMES_MAX 1000u

void hf_leftovers_release(struct hf_leftovers *l)
{
    for (size_t i = 0; i < l->len; i++) {
        hf_free(l->items[i].path);
        hf_free(l->items[i].to);
    }
    hf_free(l->items);
    hf_strv_clear(&l->troubles);
    *l = (struct hf_leftovers){0};
}

void hf_leftovers_choose(const struct hf_left_facts *f, size_t n, bool *ret_move)
{
    struct hf_cand *whole = hf_calloc(n + 1, sizeof(*whole));
    size_t len = 0;
    for (size_t i = 0; i < n; i++) {
        if (f[i].state == HF_LAYOUT_WHOLE) {
            whole[len++] = (struct hf_cand){.step = f[i].step, .newest_ns = f[i].newest_ns};
        }
    }
    size_t newest = len > 0 ? hf_judge_newest(whole, len) : 0;
    for (size_t i = 0; i < n; i++) {
        struct hf_cand one = {.step = f[i].step, .newest_ns = f[i].newest_ns};
        ret_move[i] = f[i].state == HF_LAYOUT_PARTIAL &&
                      (f[i].marked || len == 0 || hf_judge_newer(&one, &whole[newest]));
    }
    hf_free(whole);
}

/* Marks that frameworks put on what they have not finished. */
static bool is_marked(const char *path)
{
    static const char *const in_name[] = {".orbax-checkpoint-tmp", ".incomplete", "-unfinished"};
    for (size_t i = 0; i < HF_COUNT(in_name); i++) {
        if (strstr(strrchr(path, '/'), in_name[i]) != NULL) {
            return true;
        }
    }
    HF_CLEANUP(hf_freep) char *inside = hf_asprintf("%s/checkpoint-is-incomplete.txt", path);
    HF_CLEANUP(hf_freep) char *beside = hf_asprintf("%s-unfinished", path);
    return hf_fs_exists(inside) || hf_fs_exists(beside);
}

static struct hf_left_facts facts_of(const struct hf_layout_look *l)
{
    struct stat st;
    struct hf_left_facts f = {.state = l->state, .step = l->step, .marked = is_marked(l->path)};
    if (lstat(l->path, &st) == 0) {
        f.newest_ns = (int64_t)st.st_mtim.tv_sec * 1000000000 + st.st_mtim.tv_nsec;
    }
    return f;
}

/* What a complete checkpoint has as well is not an incomplete one's to lose. */
static bool belongs_to_other(const struct hf_layout_looks *looks, const bool *move,
                             const char *root)
{
    for (size_t i = 0; i < looks->len; i++) {
        const struct hf_layout_look *l = &looks->items[i];
        if (!move[i] && l->state != HF_LAYOUT_FOREIGN && hf_strv_has(&l->roots, root)) {
            return true;
        }
    }
    return false;
}

/* "20261130T223701Z" */
static void stamp_now(char out[HF_UTC_STRLEN])
{
    char utc[HF_UTC_STRLEN];
    size_t len = 0;
    hf_utc_format(hf_wall_ms(), utc);
    for (const char *p = utc; *p != '\0' && *p != '.'; p++) {
        if (*p != '-' && *p != ':') {
            out[len++] = *p;
        }
    }
    out[len++] = 'Z';
    out[len] = '\0';
}

static enum hf_rc move_one(const char *aside, const char *path, char **ret, struct hf_err *err)
{
    char when[HF_UTC_STRLEN];
    stamp_now(when);
    const char *name = strrchr(path, '/') + 1;
    for (unsigned i = 1; i < NAMES_MAX; i++) {
        char *to = i == 1 ? hf_asprintf("%s/%s-%s", aside, when, name)
                          : hf_asprintf("%s/%s.%u-%s", aside, when, i, name);
        if (renameat2(AT_FDCWD, path, AT_FDCWD, to, RENAME_NOREPLACE) == 0) {
            *ret = to;
            return HF_OK;
        }
        int num = errno;
        hf_free(to);
        if (num != EEXIST) {
            return hf_fail_errno(err, num, "move the incomplete '%s' aside", path);
        }
    }
    return hf_fail(err, HF_EFULL, "'%s' is full", aside);
}

static void note(struct hf_leftovers *ret, const char *path, char *to_taken, const char *why)
{
    ret->items = hf_realloc(ret->items, (ret->len + 1) * sizeof(*ret->items));
    struct hf_leftover *one = &ret->items[ret->len++];
    *one = (struct hf_leftover){.path = hf_strdup(path), .to = to_taken};
    snprintf(one->why, sizeof(one->why), "%s", why);
}

static void move_look(const char *dir, const struct hf_layout_looks *looks, const bool *move,
                      const struct hf_layout_look *l, struct hf_leftovers *ret)
{
    HF_CLEANUP(hf_freep) char *aside = NULL;
    struct hf_err err;
    bool inside = strcmp(l->layout, "accelerate") != 0;
    enum hf_rc rc = hf_beside(dir, ASIDE, inside, &aside, &err);
    for (size_t i = 0; rc == HF_OK && i < l->roots.len; i++) {
        const char *root = l->roots.items[i];
        char *to = NULL;
        if (belongs_to_other(looks, move, root)) {
            continue;
        }
        rc = move_one(aside, root, &to, &err);
        if (rc == HF_OK) {
            note(ret, root, to, l->why);
        }
    }
    if (rc != HF_OK && rc != HF_ENOTFOUND) {
        hf_strv_take(&ret->troubles,
                     hf_asprintf("the incomplete '%s' stays (%s): %s", l->path, l->why, err.msg));
    }
}

void hf_leftovers_move(const struct hf_strv *dirs, uint32_t world, struct hf_leftovers *ret)
{
    *ret = (struct hf_leftovers){0};
    for (size_t i = 0; i < dirs->len; i++) {
        struct hf_layout_looks looks = {0};
        struct hf_err err;
        if (hf_layout_scan(dirs->items[i], world, &looks, &err) != HF_OK) {
            continue; /* not there yet; the watcher tells of anything else */
        }
        struct hf_left_facts *facts = hf_calloc(looks.len + 1, sizeof(*facts));
        bool *move = hf_calloc(looks.len + 1, sizeof(*move));
        for (size_t k = 0; k < looks.len; k++) {
            facts[k] = facts_of(&looks.items[k]);
        }
        hf_leftovers_choose(facts, looks.len, move);
        for (size_t k = 0; k < looks.len; k++) {
            if (move[k]) {
                move_look(dirs->items[i], &looks, move, &looks.items[k], ret);
            }
        }
        hf_free(move);
        hf_free(facts);
        hf_layout_looks_release(&looks);
    }
}
