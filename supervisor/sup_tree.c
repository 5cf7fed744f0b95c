/* SPDX-License-Identifier: Apache-2.0
 *
 * Signals to the training's processes, and ranks that live outside of the tree. Loop thread;
 * reads small files of /proc. Must never signal a data-loader worker, a process that would die of
 * it unasked, or one that does not descend from the keeper.
 */
#include "base/prelude.h"

#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "hooks/c/agree_step.h"
#include "supervisor/sup.h"
#include "supervisor/targets.h"

#define OUTSIDE_PAUSE_MS 100

static size_t living_peers(const struct hf_sup *sup, struct hf_hook_peer out[HFW_SLOTS])
{
    return sup->at.hooks == NULL ? 0 : hf_hooks_peers(sup->at.hooks, out, HFW_SLOTS);
}

static bool is_outside(const struct hf_sup *sup, const struct hf_hook_peer *peer)
{
    pid_t keeper = (pid_t)hf_keeper_pid(sup->at.keeper);
    return peer->pid <= 0 || !hf_proc_below(peer->pid, keeper);
}

/* ---- signals ---- */

static void say_hidden(struct hf_sup *sup, const struct hf_targets *t)
{
    if (!t->env_hidden || t->how != HF_TARGET_COMMAND || sup->at.hidden_told) {
        return;
    }
    sup->at.hidden_told = true;
    hf_log(&sup->log, HF_LOG_WARN,
           "the environment of some processes may not be read: which of them are ranks is not "
           "known, so the command's topmost process that catches a signal gets it");
}

static void send_all(const struct hf_target_table *table, const struct hf_targets *t, int sig,
                     cJSON *pids)
{
    for (size_t i = 0; i < t->len; i++) {
        const struct hf_proc *p = &table->procs.items[t->at[i]];
        enum hf_rc rc = hf_tree_signal(p, sig, NULL);
        if (rc == HF_OK && p->state == 'T') {
            rc = hf_tree_signal(p, SIGCONT, NULL); /* a stopped process sees no signal */
        }
        (void)rc; /* not ours to signal: what it does not hear is ended at the end of the grace */
        hf_json_push(pids, cJSON_CreateNumber(p->pid));
    }
}

static size_t choose_and_send(struct hf_sup *sup, const struct hf_target_table *table,
                              const struct hf_target_query *q, const char *why)
{
    struct hf_targets t;
    cJSON *pids = hf_json_arr();
    hf_targets_choose(table->rows, table->procs.len, q, &t);
    say_hidden(sup, &t);
    send_all(table, &t, q->sig, pids);
    size_t sent = t.len;
    const char *name = sigabbrev_np(q->sig);
    cJSON *f = hf_json_obj();
    hf_json_add_str(f, "why", why);
    hf_json_add_str(f, "signal", name != NULL ? name : "?");
    hf_json_add_str(f, "found_by", hf_target_how_name(t.how));
    hf_json_add_int(f, "found", (int64_t)t.roots);
    hf_json_add(f, "pids", pids);
    hf_event(&sup->events, sup->at.claim.attempt, "signal", f);
    hf_targets_release(&t);
    return sent;
}

size_t hf_sup_signal_ranks(struct hf_sup *sup, int sig, bool or_command, const char *why)
{
    if (sup->at.keeper == NULL) {
        return 0;
    }
    struct hf_hook_peer peers[HFW_SLOTS];
    int32_t pids[HFW_SLOTS];
    struct hf_target_table table;
    struct hf_err err = {0};
    struct hf_target_query q = {.command = (pid_t)hf_keeper_command_pid(sup->at.keeper),
                                .peers = pids,
                                .n_peers = living_peers(sup, peers),
                                .sig = sig,
                                .or_command = or_command};
    for (size_t i = 0; i < q.n_peers; i++) {
        pids[i] = peers[i].pid;
    }
    size_t sent = 0;
    if (hf_targets_read((pid_t)hf_keeper_pid(sup->at.keeper), &table, &err) == HF_OK) {
        sent = choose_and_send(sup, &table, &q, why);
    } else {
        hf_log_err(&sup->log, HF_LOG_WARN, &err, "the ranks could not be looked for");
    }
    hf_target_table_release(&table);
    return sent;
}

bool hf_sup_stop_signal(struct hf_sup *sup)
{
    struct hf_attempt *at = &sup->at;
    int sig = (int)hf_set_int(sup->ctx->settings, HF_SET_STOP_SIGNAL);
    if (!at->stop_sent) {
        at->stop_sent = hf_sup_signal_ranks(sup, sig, true, "stop") > 0;
    }
    return at->stop_sent;
}

/* ---- ranks outside of the tree ---- */

static void describe(const struct hf_hook_peer *peer, char *out, size_t size)
{
    struct hf_proc p;
    if (peer->pid > 0 && hf_proc_get(peer->pid, &p)) {
        snprintf(out, size, "pid %d '%s' (rank %u)", peer->pid, p.name, peer->rank);
    } else {
        snprintf(out, size, "rank %u of another pid namespace", peer->rank);
    }
}

void hf_sup_note_outside(struct hf_sup *sup, uint32_t rank)
{
    struct hf_hook_peer peers[HFW_SLOTS];
    size_t n = sup->at.keeper == NULL ? 0 : living_peers(sup, peers);
    for (size_t i = 0; i < n; i++) {
        if (peers[i].rank != rank || !is_outside(sup, &peers[i])) {
            continue;
        }
        char text[128];
        describe(&peers[i], text, sizeof(text));
        hf_log(
            &sup->log, HF_LOG_WARN,
            "%s was not started by this command: it is asked to save and to leave, and cannot be "
            "stopped from here",
            text);
        cJSON *f = hf_json_obj();
        hf_json_add_int(f, "rank", rank);
        hf_json_add_int(f, "pid", peers[i].pid);
        hf_event(&sup->events, sup->at.claim.attempt, "outside", f);
    }
}

/* Those that live, as a text; returns how many. The tree is gone: what is left is outside. */
static size_t name_left(struct hf_sup *sup, char *out, size_t size)
{
    struct hf_hook_peer peers[HFW_SLOTS];
    size_t n = living_peers(sup, peers);
    size_t len = 0;
    size_t left = 0;
    pid_t keeper = sup->at.keeper != NULL ? (pid_t)hf_keeper_pid(sup->at.keeper) : 0;
    out[0] = '\0';
    for (size_t i = 0; i < n; i++) {
        char text[128];
        if (peers[i].pid > 0 && keeper > 0 && hf_proc_below(peers[i].pid, keeper)) {
            continue;
        }
        describe(&peers[i], text, sizeof(text));
        int more = snprintf(out + len, size - len, "%s%s", left > 0 ? ", " : "", text);
        len += more > 0 && (size_t)more < size - len ? (size_t)more : 0;
        out[len] = '\0'; /* one that does not fit whole is left out */
        left++;
    }
    return left;
}

static void look_again(void *user)
{
    hf_sup_maybe_settled(user);
}

bool hf_sup_waits_for_outside(struct hf_sup *sup)
{
    struct hf_attempt *at = &sup->at;
    if (at->ending.not_started || name_left(sup, at->outside, sizeof(at->outside)) == 0) {
        return false;
    }
    uint64_t now = hf_now_ns();
    if (at->outside_until_ns == 0) {
        hf_hooks_release(at->hooks, true);
        uint64_t linger_ms = hf_set_ms(sup->ctx->settings, HF_SET_LINGER);
        at->outside_until_ns =
            sup->leaving.notice ? sup->leaving.deadline_ns : now + linger_ms * HF_MS;
    }
    if (now < at->outside_until_ns) {
        hf_timer_start(&sup->soft, &sup->loop, OUTSIDE_PAUSE_MS, look_again, sup);
        return true;
    }
    hf_log(&sup->log, HF_LOG_WARN,
           "cannot be stopped from here: %s; it may still train while the next attempt does",
           at->outside);
    return false;
}
