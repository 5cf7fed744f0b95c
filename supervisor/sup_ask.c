/* SPDX-License-Identifier: Apache-2.0
 *
 * The final save of a program without a hook: a signal to its ranks, a command of the user's, or
 * both. A complete checkpoint in a watched folder, or the program's end, is the answer. Loop
 * thread. The save command is this process's child, in a session of its own; it never outlives
 * its time.
 */
#include "base/prelude.h"

#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "supervisor/sup.h"

struct hf_save_command {
    uv_process_t proc;
    uv_timer_t limit;
    struct hf_sup *sup; /* NULL: nobody is to be told any more */
    int open_handles;
    bool late;
};

static void handle_closed(uv_handle_t *handle)
{
    struct hf_save_command *c = handle->data;
    if (--c->open_handles == 0) {
        hf_free(c);
    }
}

static void close_all(struct hf_save_command *c)
{
    uv_close((uv_handle_t *)&c->limit, handle_closed);
    uv_close((uv_handle_t *)&c->proc, handle_closed);
}

static void command_ended(struct hf_sup *sup, int64_t status, int sig, bool late)
{
    struct hf_attempt *at = &sup->at;
    cJSON *f = hf_json_obj();
    hf_json_add_int(f, "exit_code", sig != 0 ? -1 : status);
    hf_json_add_int(f, "signal", sig);
    hf_json_add_bool(f, "late", late);
    hf_event(&sup->events, at->claim.attempt, "save-command", f);
    bool good = status == 0 && sig == 0;
    if (late) {
        hf_log(&sup->log, HF_LOG_WARN, "the save command did not end in its time: killed");
    } else if (sig != 0) {
        hf_log(&sup->log, HF_LOG_WARN, "the save command was killed by signal %d", sig);
    } else {
        hf_log(&sup->log, good ? HF_LOG_INFO : HF_LOG_WARN, "the save command exited with %" PRId64,
               status);
    }
    if (at->watchdir != NULL) {
        hf_watchdir_scan(at->watchdir); /* what it made is found now */
    }
    bool nothing_to_see = at->watchdir == NULL;
    bool by_signal = hf_set_int(sup->ctx->settings, HF_SET_SAVE_SIGNAL) > 0;
    if (at->otherwise && !at->final_settled && !by_signal && (nothing_to_see || !good)) {
        at->final_settled = true;
        snprintf(at->save_why, sizeof(at->save_why),
                 good ? "no --checkpoint-dir is watched" : "the save command failed");
        hf_sup_check_safe(sup);
    }
}

static void on_exit(uv_process_t *proc, int64_t status, int sig)
{
    struct hf_save_command *c = proc->data;
    struct hf_sup *sup = c->sup;
    bool late = c->late;
    close_all(c);
    if (sup != NULL) {
        sup->save_command = NULL;
        command_ended(sup, status, sig, late);
    }
}

static void on_limit(uv_timer_t *timer)
{
    struct hf_save_command *c = timer->data;
    c->late = true;
    (void)kill(-c->proc.pid, SIGKILL); /* not reaped yet, so the number is still its own */
}

void hf_sup_save_command_end(struct hf_sup *sup)
{
    struct hf_save_command *c = sup->save_command;
    if (c != NULL) {
        on_limit(&c->limit);
    }
}

void hf_sup_save_command_close(struct hf_sup *sup)
{
    struct hf_save_command *c = sup->save_command;
    if (c != NULL) {
        on_limit(&c->limit);
        c->sup = NULL;
        sup->save_command = NULL;
        close_all(c); /* not waited for: it is init's when this process has ended */
    }
}

static void add_env(struct hf_sup *sup, uint64_t by_ns, struct hf_strv *env)
{
    uint64_t now = hf_now_ns();
    int64_t left_ms = by_ns > now ? (int64_t)((by_ns - now) / HF_MS) : 0;
    hf_sup_build_env(sup, env);
    hf_strv_take(
        env, hf_asprintf("HOLDFAST_COMMAND_PID=%" PRId64, hf_keeper_command_pid(sup->at.keeper)));
    hf_strv_take(env, hf_asprintf("HOLDFAST_DEADLINE=%" PRId64, (hf_wall_ms() + left_ms) / 1000));
}

static bool start_command(struct hf_sup *sup, const struct hf_strv *words, uint64_t by_ns)
{
    if (sup->save_command != NULL) {
        return true; /* of a notice before, which was withdrawn */
    }
    struct hf_save_command *c = HF_NEW(struct hf_save_command);
    struct hf_strv env = {0};
    add_env(sup, by_ns, &env);
    uv_stdio_container_t streams[3] = {{.flags = UV_IGNORE},
                                       {.flags = UV_INHERIT_FD, .data.fd = 2},
                                       {.flags = UV_INHERIT_FD, .data.fd = 2}};
    uv_process_options_t o = {.exit_cb = on_exit,
                              .file = words->items[0],
                              .args = words->items,
                              .env = env.items,
                              .flags = UV_PROCESS_DETACHED,
                              .stdio_count = 3,
                              .stdio = streams};
    c->sup = sup;
    c->proc.data = c->limit.data = c;
    (void)uv_timer_init(&sup->loop.uv, &c->limit);
    c->open_handles = 2;
    int rc = uv_spawn(&sup->loop.uv, &c->proc, &o);
    hf_strv_clear(&env);
    if (rc != 0) {
        hf_log(&sup->log, HF_LOG_WARN, "the save command '%s' was not started: %s", words->items[0],
               uv_strerror(rc));
        close_all(c);
        return false;
    }
    uint64_t now = hf_now_ns();
    (void)uv_timer_start(&c->limit, on_limit, by_ns > now ? (by_ns - now) / HF_MS : 0, 0);
    sup->save_command = c;
    hf_log(&sup->log, HF_LOG_INFO, "the save command '%s' runs", words->items[0]);
    return true;
}

static bool signal_ranks(struct hf_sup *sup)
{
    int sig = (int)hf_set_int(sup->ctx->settings, HF_SET_SAVE_SIGNAL);
    if (sig <= 0) {
        return false;
    }
    size_t sent = hf_sup_signal_ranks(sup, sig, false, "save");
    if (sent == 0) {
        hf_log(&sup->log, HF_LOG_WARN, "no rank catches SIG%s (--save-signal): it was not sent",
               sigabbrev_np(sig));
        return false;
    }
    hf_log(&sup->log, HF_LOG_INFO, "asked to save by SIG%s: %zu %s", sigabbrev_np(sig), sent,
           sent == 1 ? "process" : "processes");
    return true;
}

bool hf_sup_ask_otherwise(struct hf_sup *sup, uint64_t by_ns)
{
    const struct hf_strv *words = hf_set_list(sup->ctx->settings, HF_SET_SAVE_COMMAND);
    bool asked = signal_ranks(sup);
    if (words->len > 0) {
        asked = start_command(sup, words, by_ns) || asked;
    }
    sup->at.otherwise = asked;
    sup->at.otherwise_wall_ms = hf_wall_ms();
    return asked;
}

void hf_sup_answered(struct hf_sup *sup)
{
    struct hf_attempt *at = &sup->at;
    if (at->otherwise && !at->final_settled) {
        at->final_settled = true;
        at->save_why[0] = '\0';
        hf_sup_check_safe(sup); /* or when it has been shipped */
    }
}
