/* SPDX-License-Identifier: Apache-2.0
 *
 * The keeper's start of the command: pty or pipes, fork, and all that the command must get exactly
 * as Holdfast got it. Runs in the keeper, which has no other thread, so the child may use any
 * function before its exec. Must not wait for the exec: its outcome comes through a pipe.
 */
#include "base/prelude.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fault.h"
#include "base/fsx.h"
#include "supervisor/keeper_role.h"

#define KERNEL_SIGNALS 64

/* The child's side of the streams. in < 0: descriptor 0 as it is. */
struct plan {
    int in, out, err;
};

static bool cut_text(struct hf_span *rest, char **ret)
{
    struct hf_span s;
    if (!hf_wire_cut(rest, &s)) {
        return false;
    }
    *ret = hf_strndup(s.ptr, s.len);
    return true;
}

static bool cut_exact(struct hf_span *rest, void *out, size_t len)
{
    struct hf_span s;
    if (!hf_wire_cut(rest, &s) || s.len != len) {
        return false;
    }
    memcpy(out, s.ptr, len);
    return true;
}

static bool cut_list(struct hf_span *rest, struct hf_strv *out)
{
    uint32_t count = 0;
    if (!cut_exact(rest, &count, sizeof count)) {
        return false;
    }
    char **items = hf_calloc((size_t)count + 1, sizeof items[0]);
    for (uint32_t i = 0; i < count; i++) {
        if (!cut_text(rest, &items[i])) {
            *out = (struct hf_strv){.items = items, .len = i};
            return false;
        }
    }
    *out = (struct hf_strv){.items = items, .len = count};
    return true;
}

bool hf_role_read_spec(struct hf_role *r, struct hf_span body)
{
    uint32_t foreground = 0;
    bool ok = cut_text(&body, &r->dir) && cut_text(&body, &r->token) &&
              cut_exact(&body, &r->inherited, sizeof r->inherited) &&
              cut_exact(&body, &r->linger_ms, sizeof r->linger_ms) &&
              cut_exact(&body, &r->log_limit, sizeof r->log_limit) &&
              cut_exact(&body, &foreground, sizeof foreground) && cut_list(&body, &r->argv) &&
              cut_list(&body, &r->env) && r->argv.len > 0;
    r->tty.foreground = foreground != 0;
    return ok;
}

static void restore_signals(const struct hf_inherited *was)
{
    for (int sig = 1; sig <= KERNEL_SIGNALS; sig++) {
        struct sigaction act = {0};
        act.sa_handler = sigismember(&was->ignored, sig) == 1 ? SIG_IGN : SIG_DFL;
        (void)sigaction(sig, &act, NULL); /* KILL, STOP and libc's own two refuse */
    }
}

static HF_NORETURN void become_command(struct hf_role *r, const struct plan *plan, int report)
{
    (void)setpgid(0, 0);
    if (r->tty.slave >= 0) {
        (void)tcsetpgrp(r->tty.slave, getpid()); /* SIGTTOU is still blocked */
    }
    bool ok = (plan->in < 0 || dup2(plan->in, STDIN_FILENO) >= 0) &&
              dup2(plan->out, STDOUT_FILENO) >= 0 && dup2(plan->err, STDERR_FILENO) >= 0;
    if (ok) {
        (void)hf_cgroup_enter(&r->cgroup); /* else it stays in ours, and the tree is walked */
        umask(r->umask);
        restore_signals(&r->inherited);
        environ = r->env.items; /* execvp looks for PATH there */
        (void)sigprocmask(SIG_SETMASK, &r->inherited.mask, NULL);
        execvp(r->argv.items[0], r->argv.items);
    }
    int num = errno;
    /* Should that write fail, the supervisor sees a start and this exit status. */
    ssize_t n = write(report, &num, sizeof num);
    _exit(n >= 0 && num == ENOENT ? 127 : 126);
}

static bool pipe_for(struct hf_stream *s, int *ret_child)
{
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) {
        return false;
    }
    (void)fcntl(ends[0], F_SETFL, O_NONBLOCK);
    s->src = ends[0];
    *ret_child = ends[1];
    return true;
}

static bool plan_streams(struct hf_role *r, struct plan *plan)
{
    *plan = (struct plan){-1, -1, -1};
    bool out_tty = isatty(STDOUT_FILENO) == 1;
    hf_sink_open(&r->streams[0].sink, STDOUT_FILENO);
    if (out_tty && hf_tty_open(r)) {
        r->streams[0].src = r->tty.master;
        r->streams[0].pty = true;
        plan->out = r->tty.slave;
        r->tty.relays = isatty(STDIN_FILENO) == 1;
        plan->in = r->tty.relays ? r->tty.slave : -1;
        hf_tty_attach(r, STDIN_FILENO, STDOUT_FILENO, r->tty.foreground);
        if (isatty(STDERR_FILENO) == 1) {
            plan->err = r->tty.slave;
            return true;
        }
    } else if (!pipe_for(&r->streams[0], &plan->out)) {
        return false;
    } else if (hf_same_description(STDOUT_FILENO, STDERR_FILENO)) {
        /* "2>&1": one pipe keeps the order of what is written to both. */
        plan->err = plan->out;
        return true;
    }
    hf_sink_open(&r->streams[1].sink, STDERR_FILENO);
    return pipe_for(&r->streams[1], &plan->err);
}

static void plan_close(const struct hf_role *r, const struct plan *plan)
{
    if (plan->err >= 0 && plan->err != plan->out && plan->err != r->tty.slave) {
        close(plan->err);
    }
    if (plan->out >= 0 && plan->out != r->tty.slave) {
        close(plan->out);
    }
}

/* What was passed on is the command's alone from here on: the keeper must not hold a pipe open
 * that others wait for the end of. */
static void forget_inherited(void)
{
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    for (int fd = 0; fd < 3 && null >= 0; fd++) {
        (void)dup2(null, fd);
    }
    if (null >= 0) {
        close(null);
    }
    DIR *dir = opendir("/proc/self/fd");
    if (dir == NULL) {
        return;
    }
    const struct dirent *entry = NULL;
    while ((entry = readdir(dir)) != NULL) {
        char *end = NULL;
        long fd = strtol(entry->d_name, &end, 10);
        int flags = *end == '\0' && fd > 2 ? fcntl((int)fd, F_GETFD) : -1;
        if (flags >= 0 && (flags & FD_CLOEXEC) == 0) {
            close((int)fd); /* all of ours are close-on-exec */
        }
    }
    closedir(dir);
}

static void never_ran(struct hf_role *r, int num)
{
    r->exec_errno = num;
    hf_tty_leave(r);
    hf_role_tell(r, HF_WIRE_EXEC_FAILED, num, 0, NULL);
}

void hf_role_start(struct hf_role *r)
{
    struct plan plan;
    int report[2] = {-1, -1};
    pid_t pid = -1;
    enum hf_rc none = hf_cgroup_make(r->token, &r->cgroup, NULL);
    (void)none; /* without one the tree is walked */
    if (plan_streams(r, &plan) && pipe2(report, O_CLOEXEC | O_NONBLOCK) == 0) {
        errno = EAGAIN; /* for the fault point */
        pid = hf_fault("spawn") ? -1 : fork();
        if (pid == 0) {
            become_command(r, &plan, report[1]);
        }
    }
    int num = errno;
    if (report[1] >= 0) {
        close(report[1]);
    }
    plan_close(r, &plan);
    forget_inherited();
    if (pid < 0) {
        if (report[0] >= 0) {
            close(report[0]);
        }
        never_ran(r, num);
        hf_role_command_ended(r, 126 << 8);
        return;
    }
    (void)setpgid(pid, pid); /* whoever is first; EACCES after its exec */
    r->command = pid;
    r->exec_fd = report[0];
}

/* "" where a name needs more than JSON's plain characters: it is then not noted. */
static const char *cgroup_name(const struct hf_role *r)
{
    const char *dir = r->cgroup.dir != NULL ? r->cgroup.dir : "";
    for (const char *p = dir; *p != '\0'; p++) {
        if (*p < 0x20 || *p == '"' || *p == '\\' || (unsigned char)*p >= 0x7f) {
            return "";
        }
    }
    return dir;
}

/* For people and for a supervisor that comes back when the keeper is dead. */
static void write_facts(struct hf_role *r)
{
    char boot[40] = "";
    struct hf_buf b;
    hf_buf_init(&b, 8192);
    HF_CLEANUP(hf_freep) char *path = hf_asprintf("%s/keeper.json", r->dir);
    enum hf_rc rc = hf_boot_id(boot, NULL);
    if (rc == HF_OK) {
        rc = hf_buf_addf(&b, NULL,
                         "{\"pid\":%d,\"start\":%" PRIu64 ",\"boot_id\":\"%s\",\"command_pid\":%d,"
                         "\"command_start\":%" PRIu64 ",\"cgroup\":\"%s\"}\n",
                         getpid(), hf_proc_start(getpid()), boot, r->command,
                         hf_proc_start(r->command), cgroup_name(r));
    }
    if (rc == HF_OK) {
        rc = hf_fs_write(path, hf_buf_span(&b), 0600, false, NULL);
    }
    /* A full disk must not stop the training: the token finds the tree as well. */
    (void)rc;
    hf_buf_release(&b);
}

void hf_role_check_exec(struct hf_role *r)
{
    int num = 0;
    ssize_t n = read(r->exec_fd, &num, sizeof num);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) {
        return;
    }
    close(r->exec_fd);
    r->exec_fd = -1;
    if (n == (ssize_t)sizeof num) {
        never_ran(r, num);
        return;
    }
    r->exec_ns = hf_now_ns();
    r->started = true;
    write_facts(r);
    hf_role_tell(r, HF_WIRE_STARTED, r->command, r->exec_ns, NULL);
}
