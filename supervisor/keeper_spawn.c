/* SPDX-License-Identifier: Apache-2.0
 *
 * Makes a keeper: its socket and log are opened here, where an error still has somebody to tell,
 * then this program executes itself in the keeper's role. Loop thread; blocks for the few
 * milliseconds of an exec. Between fork and exec only async-signal-safe calls, as the supervisor
 * has threads.
 */
#include "base/prelude.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fault.h"
#include "supervisor/keeper_client.h"
#include "supervisor/keeper_role.h"

#define TOKEN_NAME "HOLDFAST_TOKEN="

/* True (with errno set) when a test wants the call about to be made to fail. */
static bool broken(void)
{
    if (hf_fault("spawn")) {
        errno = EAGAIN;
        return true;
    }
    return false;
}

void hf_inherited_take(struct hf_inherited *ret)
{
    struct hf_inherited got;
    sigemptyset(&got.mask);
    sigemptyset(&got.ignored);
    (void)pthread_sigmask(SIG_SETMASK, NULL, &got.mask);
    for (int sig = 1; sig < NSIG; sig++) {
        struct sigaction act;
        if (sigaction(sig, NULL, &act) == 0 && (act.sa_flags & SA_SIGINFO) == 0 &&
            act.sa_handler == SIG_IGN) {
            sigaddset(&got.ignored, sig);
        }
    }
    *ret = got;
}

enum hf_rc hf_keeper_address(const char *dir, struct hf_sockname *ret, struct hf_err *err)
{
    HF_CLEANUP(hf_freep) char *path = hf_asprintf("%s/k", dir);
    return hf_sockname_open(path, ret, err);
}

void hf_keeper_parts_close(struct hf_keeper_parts *p)
{
    hf_closep(&p->pidfd);
    hf_closep(&p->control);
    hf_closep(&p->listen);
    hf_closep(&p->log);
    p->pidfd = p->control = p->listen = p->log = -1;
}

/* A socket that nobody serves any more is replaced; a living keeper's is not. */
static enum hf_rc bind_at(const char *dir, const struct sockaddr_un *addr, int *ret_fd,
                          struct hf_err *err)
{
    HF_CLEANUP(hf_closep)
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    HF_CLEANUP(hf_closep)
    int probe = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0 || probe < 0 || broken()) {
        return hf_fail_errno(err, errno, "make the keeper's socket in '%s'", dir);
    }
    int rc = bind(fd, (const struct sockaddr *)addr, sizeof *addr);
    if (rc != 0 && errno == EADDRINUSE) {
        if (connect(probe, (const struct sockaddr *)addr, sizeof *addr) == 0) {
            return hf_fail(err, HF_EEXISTS, "a keeper already serves '%s'", dir);
        }
        (void)unlink(addr->sun_path);
        rc = bind(fd, (const struct sockaddr *)addr, sizeof *addr);
    }
    if (rc != 0) {
        return hf_fail_errno(err, errno, "bind the keeper's socket in '%s'", dir);
    }
    *ret_fd = fd;
    fd = -1;
    return HF_OK;
}

static enum hf_rc bind_listen(const char *dir, int *ret_fd, struct hf_err *err)
{
    struct hf_sockname name;
    HF_TRY(hf_keeper_address(dir, &name, err));
    enum hf_rc rc = bind_at(dir, &name.addr, ret_fd, err);
    hf_sockname_close(&name);
    return rc;
}

/* Our environment, with the token by which a dead keeper's tree is found again. */
static char **keeper_env(const char *token)
{
    size_t len = 0;
    while (environ[len] != NULL) {
        len++;
    }
    char **env = hf_calloc(len + 2, sizeof env[0]);
    size_t out = 0;
    for (size_t i = 0; i < len; i++) {
        if (strncmp(environ[i], TOKEN_NAME, strlen(TOKEN_NAME)) != 0) {
            env[out++] = hf_strdup(environ[i]);
        }
    }
    env[out] = hf_asprintf(TOKEN_NAME "%s", token);
    return env;
}

static void env_free(char **env)
{
    for (size_t i = 0; env[i] != NULL; i++) {
        hf_free(env[i]);
    }
    hf_free(env);
}

static HF_NORETURN void become_keeper(int control, int report, char *const *argv, char *const *env)
{
    int num = 0;
    if (fcntl(control, F_SETFD, 0) == 0) {
        execve("/proc/self/exe", argv, env);
    }
    num = errno;
    ssize_t n = write(report, &num, sizeof num);
    _exit(n == (ssize_t)sizeof num ? 127 : 126);
}

/* *ret_num: errno of the exec, 0 when it succeeded. */
static pid_t fork_keeper(int control, const char *token, int *ret_num)
{
    int report[2];
    if (pipe2(report, O_CLOEXEC) != 0) {
        return -1;
    }
    char number[16];
    snprintf(number, sizeof number, "%d", control);
    char word[] = HF_KEEPER_WORD;
    char option[] = HF_KEEPER_OPTION;
    char *argv[] = {word, option, number, NULL};
    char **env = keeper_env(token);
    /* No handler of ours may run in the child: it would write into the parent's pipes. */
    sigset_t all;
    sigset_t before;
    sigfillset(&all);
    (void)pthread_sigmask(SIG_SETMASK, &all, &before);
    pid_t pid = fork();
    if (pid == 0) {
        become_keeper(control, report[1], argv, env);
    }
    int fork_errno = errno;
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    env_free(env);
    close(report[1]);
    *ret_num = 0;
    while (pid > 0 && read(report[0], ret_num, sizeof *ret_num) < 0 && errno == EINTR) {
    }
    close(report[0]);
    errno = fork_errno;
    return pid;
}

static void forget_socket(const char *dir)
{
    HF_CLEANUP(hf_freep) char *path = hf_asprintf("%s/k", dir);
    (void)unlink(path);
}

static void bury(pid_t pid)
{
    (void)kill(pid, SIGKILL);
    while (waitpid(pid, NULL, 0) < 0 && errno == EINTR) {
    }
}

void hf_keeper_bury(const char *dir, pid_t pid)
{
    bury(pid);
    forget_socket(dir);
}

static enum hf_rc launch(const char *token, struct hf_keeper_parts *p, struct hf_err *err)
{
    int ends[2];
    if (broken() || socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) != 0) {
        return hf_fail_errno(err, errno, "make the keeper's socket pair");
    }
    p->control = ends[0];
    HF_CLEANUP(hf_closep) int theirs = fcntl(ends[1], F_DUPFD_CLOEXEC, 3);
    close(ends[1]);
    if (theirs < 0) {
        return hf_fail_errno(err, errno, "make the keeper's socket pair");
    }
    int num = 0;
    p->pid = broken() ? -1 : fork_keeper(theirs, token, &num);
    if (p->pid < 0) {
        return hf_fail_errno(err, errno, "start the keeper");
    }
    if (num == 0) {
        p->pidfd = (int)syscall(SYS_pidfd_open, p->pid, 0);
        num = p->pidfd < 0 ? errno : 0;
    }
    if (num != 0) {
        bury(p->pid);
        return hf_fail_errno(err, num, "start the keeper from '/proc/self/exe'");
    }
    return HF_OK;
}

enum hf_rc hf_keeper_spawn(const struct hf_keeper_spec *spec, struct hf_keeper_parts *ret,
                           struct hf_err *err)
{
    struct hf_keeper_parts p = {.pidfd = -1, .control = -1, .listen = -1, .log = -1};
    HF_CLEANUP(hf_freep) char *log = hf_asprintf("%s/" HF_LOGRING_FIRST, spec->dir);
    HF_TRY(bind_listen(spec->dir, &p.listen, err));
    p.log = broken() ? -1 : open(log, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
    enum hf_rc rc = p.log >= 0 ? launch(spec->token, &p, err)
                               : hf_fail_errno(err, errno, "open the log '%s'", log);
    if (rc != HF_OK) {
        forget_socket(spec->dir);
        hf_keeper_parts_close(&p);
        return rc;
    }
    *ret = p;
    return HF_OK;
}
