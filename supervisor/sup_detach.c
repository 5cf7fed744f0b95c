/* SPDX-License-Identifier: Apache-2.0
 *
 * run --detach: Holdfast goes on in a session of its own with /dev/null as its standard streams;
 * its caller waits until the command runs, and returns. Until then our lines reach the caller's
 * stderr, afterwards supervisor.log in the run's folder. hf_sup_detach is called before the loop
 * and any thread exist; the rest on the loop thread.
 */
#include "base/prelude.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fsx.h"
#include "supervisor/sup.h"

#define OWN_LOG     "supervisor.log"
#define OWN_LOG_MAX (1024 * 1024) /* then it becomes supervisor.log.1 */

/* In the process that goes on. False: errno says why. */
static bool let_go(struct hf_cmd_ctx *ctx, int report)
{
    int err_fd = fcntl(ctx->log->fd, F_DUPFD_CLOEXEC, 3);
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    bool ok = err_fd >= 0 && null >= 0 && setsid() >= 0;
    for (int fd = 0; ok && fd < 3; fd++) {
        ok = dup2(null, fd) >= 0;
    }
    hf_closep(&null);
    if (err_fd >= 0) {
        ctx->log->fd = err_fd;
    }
    ctx->detach_fd = report;
    return ok;
}

/* Reads what the other process says, until its end of the pipe closes. Ctrl-C and SIGTERM are for
 * the whole: they are passed on. */
static void hear(int report, pid_t pid, char *name, size_t room)
{
    sigset_t set;
    sigset_t before;
    sigemptyset(&set);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGTERM);
    (void)pthread_sigmask(SIG_BLOCK, &set, &before);
    HF_CLEANUP(hf_closep) int signals = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    size_t len = 0;
    ssize_t n = 1;
    while (n != 0) {
        struct pollfd p[2] = {{.fd = report, .events = POLLIN}, {.fd = signals, .events = POLLIN}};
        struct signalfd_siginfo info;
        (void)poll(p, HF_COUNT(p), -1);
        if (p[1].revents != 0 && read(signals, &info, sizeof(info)) == (ssize_t)sizeof(info)) {
            (void)kill(pid, (int)info.ssi_signo);
        }
        if (p[0].revents != 0) {
            n = read(report, name + len, room - 1 - len);
            len += n > 0 ? (size_t)n : 0;
        }
    }
    name[len] = '\0';
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
}

static int status_of(pid_t pid)
{
    int status = 0;
    while (waitpid(pid, &status, 0) < 0) {
        if (errno != EINTR) {
            return HF_EXIT_OWN;
        }
    }
    return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

static int wait_for_start(struct hf_cmd_ctx *ctx, int report, pid_t pid)
{
    char name[600];
    hear(report, pid, name, sizeof(name));
    if (name[0] == '\0') {
        return status_of(pid); /* it has said why */
    }
    hf_log(ctx->log, HF_LOG_INFO, "run '%s' goes on without this terminal (pid %d)", name, pid);
    hf_log(ctx->log, HF_LOG_INFO, "  holdfast status %s", name);
    hf_log(ctx->log, HF_LOG_INFO, "  holdfast logs -f %s        (--own: Holdfast's own lines)",
           name);
    hf_log(ctx->log, HF_LOG_INFO, "  kill %d                     saves, and leaves", pid);
    return HF_EXIT_OK;
}

bool hf_sup_detach(struct hf_cmd_ctx *ctx, int *ret_status)
{
    int report[2];
    pid_t pid = pipe2(report, O_CLOEXEC) == 0 ? fork() : -1;
    if (pid < 0) {
        hf_log(ctx->log, HF_LOG_ERROR, "cannot go on without the terminal: %s",
               strerrordesc_np(errno));
        *ret_status = HF_EXIT_OWN;
        return true;
    }
    if (pid == 0) {
        close(report[0]);
        bool ok = let_go(ctx, report[1]);
        if (!ok) {
            hf_log(ctx->log, HF_LOG_ERROR, "cannot go on without the terminal: %s",
                   strerrordesc_np(errno));
            *ret_status = HF_EXIT_OWN;
        }
        return !ok;
    }
    close(report[1]);
    *ret_status = wait_for_start(ctx, report[0], pid);
    close(report[0]);
    return true;
}

static int open_own_log(const struct hf_sup *sup)
{
    HF_CLEANUP(hf_freep) char *path = hf_rundir_file(&sup->dir, OWN_LOG);
    return open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
}

void hf_sup_detach_started(struct hf_sup *sup)
{
    struct hf_cmd_ctx *ctx = sup->ctx;
    if (ctx->detach_fd == 0) {
        return;
    }
    struct hf_err err = {0};
    const char *name = sup->run.name;
    int fd = open_own_log(sup);
    if (fd < 0) {
        hf_log(&sup->log, HF_LOG_WARN, "no " OWN_LOG ": %s; what Holdfast says is lost",
               strerrordesc_np(errno));
    }
    if (hf_fs_write_all(ctx->detach_fd, (struct hf_span){name, strlen(name)}, "the caller", &err) !=
        HF_OK) {
        hf_log_err(&sup->log, HF_LOG_DEBUG, &err, "%s", "");
    }
    close(ctx->log->fd);
    ctx->log->fd = fd >= 0 ? fd : STDERR_FILENO;
    sup->log.fd = ctx->log->fd;
    sup->log.stamp = true;
    sup->own_log_fd = fd >= 0 ? fd : 0;
    close(ctx->detach_fd);
    ctx->detach_fd = 0;
    hf_log(&sup->log, HF_LOG_INFO, "run '%s', attempt %u, without a terminal", name,
           sup->at.claim.attempt);
}

void hf_sup_detach_look(struct hf_sup *sup)
{
    struct stat st;
    if (sup->own_log_fd == 0 || fstat(sup->own_log_fd, &st) != 0 || st.st_size < OWN_LOG_MAX) {
        return;
    }
    HF_CLEANUP(hf_freep) char *path = hf_rundir_file(&sup->dir, OWN_LOG);
    HF_CLEANUP(hf_freep) char *old = hf_asprintf("%s.1", path);
    int fd = rename(path, old) == 0 ? open_own_log(sup) : -1;
    if (fd >= 0) {
        (void)dup3(fd, sup->own_log_fd, O_CLOEXEC);
        close(fd);
    }
}
