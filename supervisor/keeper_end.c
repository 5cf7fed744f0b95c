/* SPDX-License-Identifier: Apache-2.0
 *
 * The keeper's reaping and ending: the command's own end, the time that its descendants get, the
 * signals that follow, and the proof that none is left. Runs in the keeper's poll loop; every wait
 * has a bound, as a process inside the kernel (state D) may never end. Must not signal a pid that
 * is not known to be of this tree.
 */
#include "base/prelude.h"

#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fsx.h"
#include "supervisor/keeper_role.h"

#define TERM_TO_KILL_NS  HF_SEC
#define KILL_PAUSE_NS    (20 * HF_MS)
#define KILL_BOUND_NS    (10 * HF_SEC)  /* a driver that frees 80 GB of a GPU takes seconds */
#define STUCK_BOUND_NS   (1500 * HF_MS) /* for what waits in the kernel, if an end was asked for */
#define KILLED_LINGER_MS 2000           /* at most, for what a command that was killed left */
#define ESCAPED_PAUSE_NS (100 * HF_MS)
#define FORCED_DRAIN_NS  (2 * HF_SEC)
#define LAST_DRAIN_NS    HF_SEC

static uint64_t earlier(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* All of the tree that lives: by ancestry, and only when that finds none, by token (a process that
 * a daemon outside started for it). */
static struct hf_procs tree_left(const struct hf_role *r)
{
    struct hf_procs left = {0};
    enum hf_rc rc = hf_tree_descendants(getpid(), &left, NULL);
    if (left.len == 0) {
        rc = hf_tree_by_token(r->token, &left, NULL);
    }
    (void)rc; /* /proc unreadable: nothing can be found, and ECHILD says when we are done */
    return left;
}

static void write_exit(struct hf_role *r)
{
    struct hf_buf b;
    hf_buf_init(&b, 1024);
    HF_CLEANUP(hf_freep) char *path = hf_asprintf("%s/exit", r->dir);
    enum hf_rc rc = hf_buf_addf(
        &b, NULL,
        "{\"status\":%d,\"at_wall_ms\":%" PRId64
        ",\"exec_errno\":%d,\"forced\":%s,\"log_dropped_bytes\":%" PRIu64 "}\n",
        r->status, hf_wall_ms(), r->exec_errno, r->killed ? "true" : "false", r->log.dropped);
    if (rc == HF_OK) {
        rc = hf_fs_write(path, hf_buf_span(&b), 0600, true, NULL);
    }
    /* A full disk: the supervisor that is attached hears it by the socket. */
    (void)rc;
    hf_buf_release(&b);
}

void hf_role_command_ended(struct hf_role *r, int status)
{
    if (r->exec_fd >= 0) {
        hf_role_check_exec(r);
    }
    r->ended = true;
    r->status = status;
    hf_streams_pump(r);
    hf_tty_leave(r);
    write_exit(r);
    if (r->exec_errno == 0) {
        hf_role_tell(r, HF_WIRE_EXITED, status, r->killed, NULL);
    }
    /* What a killed command leaves are orphans that nobody waits for. Where the end was asked for,
     * all that shall be asked has been: no second SIGTERM follows. */
    bool was_killed = WIFSIGNALED(status) || (WIFEXITED(status) && WEXITSTATUS(status) > 128);
    uint64_t linger_ms =
        was_killed && r->linger_ms > KILLED_LINGER_MS ? KILLED_LINGER_MS : r->linger_ms;
    uint64_t over = hf_now_ns() + linger_ms * HF_MS;
    if (r->forced) {
        r->kill_at = earlier(r->kill_at, over);
    } else {
        r->term_at = over;
    }
}

static void command_stopped(struct hf_role *r, int sig)
{
    if (sig == SIGSTOP) {
        return; /* not from the keyboard: an operator or a checkpoint tool holds it */
    }
    r->stopped = true;
    hf_streams_pump(r);
    hf_tty_leave(r);
    hf_role_tell(r, HF_WIRE_STOPPED, 0, 0, NULL);
}

void hf_role_reap(struct hf_role *r)
{
    while (true) {
        int status = 0;
        pid_t pid = waitpid(-1, &status, WNOHANG | WUNTRACED | WCONTINUED);
        if (pid < 0 && errno == EINTR) {
            continue;
        }
        if (pid <= 0) {
            r->childless = pid < 0 && errno == ECHILD;
            return;
        }
        if (pid != r->command || r->ended) {
            continue;
        }
        if (WIFSTOPPED(status)) {
            command_stopped(r, WSTOPSIG(status));
        } else if (WIFCONTINUED(status)) {
            r->stopped = false;
        } else {
            hf_role_command_ended(r, status);
        }
    }
}

void hf_role_signal(struct hf_role *r, int sig)
{
    if (r->command > 0 && !r->ended) {
        (void)kill(-r->command, sig); /* not reaped, so the number is still ours */
        return;
    }
    struct hf_procs left = tree_left(r);
    for (size_t i = 0; i < left.len; i++) {
        enum hf_rc rc = hf_tree_signal(&left.items[i], sig, NULL);
        (void)rc; /* gone meanwhile, or not ours to signal */
    }
    hf_procs_release(&left);
}

void hf_role_end_tree(struct hf_role *r, uint64_t grace_ms)
{
    uint64_t now = hf_now_ns();
    r->forced = true;
    if (r->ended) { /* it went before this was heard: what it left has no longer than otherwise */
        r->kill_at = earlier(r->kill_at, r->term_at);
    }
    r->term_at = HF_NEVER;
    r->kill_at = earlier(r->kill_at, now + grace_ms * HF_MS);
    if (r->draining) {
        r->drain_until = earlier(r->drain_until, now + FORCED_DRAIN_NS);
    }
}

static bool told_before(struct hf_role *r, const struct hf_proc *p, bool killed)
{
    for (size_t i = 0; i < r->told.len; i++) {
        struct hf_proc *t = &r->told.items[i];
        if (t->pid == p->pid && t->start == p->start) {
            bool before = t->state == 'K' || !killed;
            t->state = killed ? 'K' : t->state;
            return before;
        }
    }
    size_t size = (r->told.len + 1) * sizeof r->told.items[0];
    r->told.items = hf_realloc(r->told.items, size);
    r->told.items[r->told.len] = *p;
    r->told.items[r->told.len++].state = killed ? 'K' : 'T';
    return false;
}

static void signal_left(struct hf_role *r, int sig)
{
    struct hf_procs left = tree_left(r);
    bool killed = sig == SIGKILL;
    if (killed && !r->ended && r->command > 0) {
        r->killed = true;
    }
    bool at_once = killed && hf_cgroup_kill(&r->cgroup);
    for (size_t i = 0; i < left.len; i++) {
        const struct hf_proc *p = &left.items[i];
        bool sent = hf_tree_signal(p, sig, NULL) == HF_OK || at_once;
        if (sent && p->pid != r->command && !told_before(r, p, killed)) {
            hf_role_tell(r, HF_WIRE_STRAGGLER, p->pid, killed, p->name);
        }
    }
    hf_procs_release(&left);
}

/* Nothing is left but what waits inside the kernel. */
static bool all_stuck(const struct hf_role *r)
{
    struct hf_procs left = tree_left(r);
    bool stuck = left.len > 0;
    for (size_t i = 0; i < left.len; i++) {
        stuck = stuck && left.items[i].state == 'D';
    }
    hf_procs_release(&left);
    return stuck;
}

static void start_drain(struct hf_role *r, uint64_t now)
{
    r->draining = true;
    r->term_at = r->kill_at = r->give_up_at = r->scan_at = HF_NEVER;
    r->drain_until = r->forced ? now + FORCED_DRAIN_NS : HF_NEVER;
    hf_tty_leave(r);
    hf_tty_hang_up_slave(r);
}

/* What SIGKILL does not end waits inside the kernel. It is named and left. */
static void give_up(struct hf_role *r, uint64_t now)
{
    struct hf_procs left = tree_left(r);
    for (size_t i = 0; i < left.len; i++) {
        char text[128];
        snprintf(text, sizeof text, "%s (state %c, cannot be ended)", left.items[i].name,
                 left.items[i].state);
        hf_role_tell(r, HF_WIRE_STRAGGLER, left.items[i].pid, 0, text);
    }
    hf_procs_release(&left);
    if (!r->ended) {
        r->ended = true;
        r->status = SIGKILL;
    }
    start_drain(r, now);
}

static bool tree_gone(struct hf_role *r, uint64_t now)
{
    if (!r->ended || !r->childless) {
        return false;
    }
    if (now < r->scan_at && r->scan_at != HF_NEVER) {
        return false;
    }
    struct hf_procs left = tree_left(r);
    bool gone = left.len == 0;
    hf_procs_release(&left);
    r->scan_at = now + ESCAPED_PAUSE_NS;
    return gone;
}

static void drain(struct hf_role *r, uint64_t now)
{
    bool drained = hf_streams_drained(r);
    if (!drained && now >= r->drain_until) {
        /* Whoever reads our output does not; the log still gets the rest. */
        hf_sink_close(&r->streams[0].sink);
        hf_sink_close(&r->streams[1].sink);
        uint64_t until = now + LAST_DRAIN_NS;
        while (!hf_streams_drained(r) && hf_now_ns() < until) {
        }
        drained = true;
    }
    if (drained) {
        HF_CLEANUP(hf_freep) char *path = hf_asprintf("%s/k", r->dir);
        (void)unlink(path);
        hf_log_tell(r, true);
        hf_role_tell(r, HF_WIRE_GONE, r->status, 0, NULL);
        r->done = true;
    }
}

void hf_role_tick(struct hf_role *r)
{
    uint64_t now = hf_now_ns();
    if (!r->draining && tree_gone(r, now)) {
        start_drain(r, now);
    }
    if (r->draining) {
        drain(r, now);
        return;
    }
    if (now >= r->term_at) {
        r->term_at = HF_NEVER;
        r->kill_at = earlier(r->kill_at, now + TERM_TO_KILL_NS);
        signal_left(r, SIGTERM);
    }
    if (now >= r->kill_at) {
        signal_left(r, SIGKILL);
        r->kill_at = now + KILL_PAUSE_NS;
        r->killed_at = r->killed_at == 0 ? now : r->killed_at;
        r->give_up_at = earlier(r->give_up_at, now + KILL_BOUND_NS);
        if (r->forced && now - r->killed_at >= STUCK_BOUND_NS && all_stuck(r)) {
            r->give_up_at = now;
        }
    }
    if (now >= r->give_up_at) {
        give_up(r, now);
        drain(r, now);
    }
}

uint64_t hf_role_next_ns(const struct hf_role *r)
{
    uint64_t next = earlier(earlier(r->term_at, r->kill_at), earlier(r->give_up_at, r->scan_at));
    return earlier(next, r->drain_until);
}
