/* SPDX-License-Identifier: Apache-2.0
 *
 * Chooses the processes that a signal is for. Pure over its table; any thread. Must never take
 * a data-loader worker, a process that would die of the signal, or one twice.
 */
#include "base/prelude.h"

#include <string.h>

#include "base/mem.h"
#include "supervisor/targets.h"

const char *hf_target_how_name(enum hf_target_how how)
{
    static const char *const names[] = {"none", "hook", "rank", "command"};
    return (size_t)how < HF_COUNT(names) ? names[how] : "none";
}

struct choice {
    const struct hf_target_row *rows;
    size_t n;
    uint64_t mask; /* the signal's bit in SigCgt */
    bool *taken;
    struct hf_targets *out;
};

static const struct hf_target_row *row_of(const struct choice *c, pid_t pid)
{
    for (size_t i = 0; i < c->n; i++) {
        if (c->rows[i].pid == pid) {
            return &c->rows[i];
        }
    }
    return NULL;
}

static void take(struct choice *c, size_t i)
{
    if (!c->taken[i]) {
        c->taken[i] = true;
        c->out->at[c->out->len++] = i;
    }
}

/* The topmost processes at or below `root` that catch the signal. Breadth first; no deeper than
 * the table is long, whatever a table that changed while it was read looks like. */
static void descend(struct choice *c, size_t root)
{
    size_t *queue = hf_calloc(c->n, sizeof queue[0]);
    bool *seen = hf_calloc(c->n, sizeof seen[0]);
    size_t head = 0;
    size_t tail = 0;
    queue[tail++] = root;
    seen[root] = true;
    while (head < tail) {
        size_t at = queue[head++];
        if ((c->rows[at].caught & c->mask) != 0) {
            take(c, at);
            continue;
        }
        for (size_t i = 0; i < c->n; i++) {
            if (c->rows[i].ppid == c->rows[at].pid && !c->rows[i].worker && !seen[i]) {
                seen[i] = true;
                queue[tail++] = i;
            }
        }
    }
    hf_free(seen);
    hf_free(queue);
}

static void by_peers(struct choice *c, const struct hf_target_query *q)
{
    for (size_t p = 0; p < q->n_peers; p++) {
        for (size_t i = 0; i < c->n; i++) {
            if (q->peers[p] <= 0 || c->rows[i].pid != q->peers[p]) {
                continue;
            }
            c->out->how = HF_TARGET_HOOK;
            c->out->roots++;
            if ((c->rows[i].caught & c->mask) != 0) {
                take(c, i); /* the trainer itself: what is below it are its workers */
            }
        }
    }
}

/* Whether a process above it has the same rank: then it is a worker or a helper of that one. */
static bool inherited(const struct choice *c, size_t at, enum hf_rank_var var)
{
    const struct hf_target_row *row = row_of(c, c->rows[at].ppid);
    for (size_t depth = 0; row != NULL && depth < c->n; depth++) {
        if (row->rank[var] == c->rows[at].rank[var]) {
            return true;
        }
        row = row_of(c, row->ppid);
    }
    return false;
}

static void by_rank(struct choice *c)
{
    for (int var = 0; var < HF_RANK_VARS && c->out->roots == 0; var++) {
        for (size_t i = 0; i < c->n; i++) {
            if (c->rows[i].rank[var] < 0 || inherited(c, i, (enum hf_rank_var)var)) {
                continue;
            }
            c->out->how = HF_TARGET_RANK;
            c->out->roots++;
            descend(c, i);
        }
    }
}

static void by_command(struct choice *c, pid_t command)
{
    for (size_t i = 0; i < c->n; i++) {
        if (c->rows[i].pid == command) {
            c->out->how = HF_TARGET_COMMAND;
            c->out->roots++;
            descend(c, i);
        }
    }
}

void hf_targets_choose(const struct hf_target_row *rows, size_t n, const struct hf_target_query *q,
                       struct hf_targets *ret)
{
    *ret = (struct hf_targets){.at = hf_calloc(n + 1, sizeof ret->at[0])};
    struct choice c = {.rows = rows, .n = n, .out = ret};
    c.mask = q->sig >= 1 && q->sig <= 64 ? UINT64_C(1) << (q->sig - 1) : 0;
    c.taken = hf_calloc(n + 1, sizeof c.taken[0]);
    for (size_t i = 0; i < n; i++) {
        ret->env_hidden = ret->env_hidden || rows[i].env_hidden;
    }
    by_peers(&c, q);
    if (ret->roots == 0) {
        by_rank(&c);
    }
    if (ret->roots == 0 || (q->or_command && ret->len == 0)) {
        by_command(&c, q->command);
    }
    hf_free(c.taken);
}

void hf_targets_release(struct hf_targets *t)
{
    hf_free(t->at);
    *t = (struct hf_targets){0};
}
