/* SPDX-License-Identifier: Apache-2.0
 *
 * The keeper's process: set-up, its one poll loop, and the talk with whichever supervisor is
 * attached. One thread; every signal is blocked but the two that nobody can block. Must not end
 * before its tree has, print anything, or trust a peer of another user.
 */
#include "base/prelude.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "supervisor/keeper_role.h"

#define LAST_WORDS_MS 1000

enum slot {
    SLOT_SIGNAL,
    SLOT_CONTROL,
    SLOT_LISTEN,
    SLOT_NEXT,
    SLOT_EXEC,
    SLOT_SOURCE,                 /* one a stream */
    SLOT_SINK = SLOT_SOURCE + 2, /* one a stream */
    SLOT_TYPED = SLOT_SINK + 2,  /* the terminal's input */
    SLOT_MASTER,                 /* room for it in the pty */
    SLOT_COUNT
};

bool hf_role_attached(const struct hf_role *r)
{
    return r->wire.fd >= 0;
}

static void detach(struct hf_role *r)
{
    hf_wire_close(&r->wire);
    hf_tty_leave(r);
    r->tty.foreground = false;
}

void hf_role_tell(struct hf_role *r, enum hf_wire_type type, int64_t a, uint64_t b,
                  const char *text)
{
    if (!hf_role_attached(r)) {
        return;
    }
    if (hf_wire_put(&r->wire, type, a, b, text, NULL) != HF_OK ||
        hf_wire_flush(&r->wire, NULL) != HF_OK) {
        detach(r);
    }
}

/* What a supervisor that comes late has missed. */
static void tell_history(struct hf_role *r)
{
    if (r->exec_errno != 0) {
        hf_role_tell(r, HF_WIRE_EXEC_FAILED, r->exec_errno, 0, NULL);
    } else if (r->started) {
        hf_role_tell(r, HF_WIRE_STARTED, r->command, r->exec_ns, NULL);
        if (r->ended) {
            hf_role_tell(r, HF_WIRE_EXITED, r->status, r->killed, NULL);
        }
    }
    r->log_told_bytes = 0;
    hf_log_tell(r, true);
}

static void go_on(struct hf_role *r, bool foreground)
{
    r->tty.foreground = foreground;
    if (r->command > 0 && !r->ended) {
        r->stopped = false;
        if (!foreground) {
            hf_tty_leave(r);
        }
        hf_tty_enter(r);
        hf_role_signal(r, SIGCONT);
    }
}

/* The newcomer becomes the supervisor; the one before, if any, sees the end of its socket. */
static void adopt(struct hf_role *r, bool foreground)
{
    detach(r);
    r->wire = r->next;
    r->next = (struct hf_wire){.fd = -1};
    int fds[HF_WIRE_MAX_FDS];
    for (size_t i = 0; i < HF_COUNT(fds); i++) {
        fds[i] = hf_wire_take_fd(&r->wire, i);
    }
    tell_history(r);
    if (r->streams[0].src >= 0) {
        hf_sink_open(&r->streams[0].sink, fds[1]);
    }
    if (r->streams[1].src >= 0) {
        hf_sink_open(&r->streams[1].sink, fds[2]);
    }
    hf_tty_attach(r, fds[0], fds[1], foreground);
    if (r->stopped) {
        go_on(r, foreground); /* by Ctrl-Z, under a supervisor that is gone */
    }
    for (size_t i = 0; i < HF_COUNT(fds); i++) {
        if (fds[i] >= 0) {
            close(fds[i]);
        }
    }
}

static void obey(struct hf_role *r, const struct hf_wire_msg *msg)
{
    switch (msg->type) {
    case HF_WIRE_SIGNAL:
        if (msg->a > 0 && msg->a <= 64) {
            hf_role_signal(r, (int)msg->a);
        }
        return;
    case HF_WIRE_END:
        hf_role_end_tree(r, msg->b);
        return;
    case HF_WIRE_CONTINUE:
        go_on(r, msg->a != 0);
        return;
    case HF_WIRE_WINDOW:
        hf_tty_window(r);
        return;
    default:
        return; /* of a newer supervisor */
    }
}

static void hear(struct hf_role *r)
{
    bool open = hf_wire_fill(&r->wire);
    struct hf_wire_msg msg;
    while (hf_role_attached(r) && hf_wire_next(&r->wire, &msg)) {
        obey(r, &msg);
        hf_wire_drop(&r->wire, &msg);
    }
    if (!open || hf_wire_flush(&r->wire, NULL) != HF_OK) {
        detach(r);
    }
}

static bool is_ours(int fd)
{
    struct ucred peer = {0};
    socklen_t len = sizeof peer;
    return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &len) == 0 &&
           (peer.uid == geteuid() || peer.uid == 0);
}

static void welcome(struct hf_role *r)
{
    int fd = accept4(r->listen_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd < 0) {
        return;
    }
    if (!is_ours(fd)) {
        close(fd);
        return;
    }
    hf_wire_close(&r->next);
    hf_wire_init(&r->next, fd, HF_WIRE_MAX_QUEUED);
}

static void hear_next(struct hf_role *r)
{
    bool open = hf_wire_fill(&r->next);
    struct hf_wire_msg msg;
    if (hf_wire_next(&r->next, &msg) && msg.type == HF_WIRE_SINKS) {
        bool foreground = msg.a != 0;
        hf_wire_drop(&r->next, &msg);
        adopt(r, foreground);
        hear(r); /* more may have come with it */
    } else if (!open || r->next.in.len > 0) {
        hf_wire_close(&r->next);
    }
}

static void watch(const struct hf_role *r, struct pollfd p[SLOT_COUNT])
{
    for (size_t i = 0; i < SLOT_COUNT; i++) {
        p[i] = (struct pollfd){.fd = -1, .events = POLLIN};
    }
    p[SLOT_SIGNAL].fd = r->signal_fd;
    p[SLOT_CONTROL].fd = r->wire.fd;
    if (r->wire.out.len > 0) {
        p[SLOT_CONTROL].events = POLLIN | POLLOUT;
    }
    p[SLOT_LISTEN].fd = r->listen_fd;
    p[SLOT_NEXT].fd = r->next.fd;
    p[SLOT_EXEC].fd = r->exec_fd;
    for (size_t i = 0; i < HF_COUNT(r->streams); i++) {
        const struct hf_stream *s = &r->streams[i];
        p[SLOT_SOURCE + i].fd = s->len == 0 ? s->src : -1;
        p[SLOT_SINK + i].fd = s->len > 0 ? s->sink.fd : -1;
        p[SLOT_SINK + i].events = POLLOUT;
    }
    if (r->tty.raw && r->tty.len == 0) {
        p[SLOT_TYPED].fd = r->tty.in;
    }
    if (r->tty.len > 0) {
        p[SLOT_MASTER].fd = r->tty.master;
        p[SLOT_MASTER].events = POLLOUT;
    }
}

static int timeout_ms(const struct hf_role *r)
{
    uint64_t next = hf_role_next_ns(r);
    if (next == HF_NEVER) {
        return -1;
    }
    uint64_t now = hf_now_ns();
    uint64_t ms = next <= now ? 0 : (next - now + HF_MS - 1) / HF_MS;
    return ms > 3600000 ? 3600000 : (int)ms;
}

static void serve(struct hf_role *r, const struct pollfd p[SLOT_COUNT])
{
    if (p[SLOT_SIGNAL].revents != 0) {
        struct signalfd_siginfo info[8];
        ssize_t n = read(r->signal_fd, info, sizeof info);
        (void)n; /* one SIGCHLD may stand for many: the children are asked */
        hf_role_reap(r);
    }
    if (p[SLOT_EXEC].revents != 0 && r->exec_fd >= 0) {
        hf_role_check_exec(r);
    }
    if (p[SLOT_CONTROL].revents != 0 && hf_role_attached(r)) {
        hear(r);
    }
    if (p[SLOT_NEXT].revents != 0) {
        hear_next(r);
    }
    if (p[SLOT_LISTEN].revents != 0) {
        welcome(r);
    }
    for (size_t i = 0; i < HF_COUNT(r->streams); i++) {
        if (p[SLOT_SOURCE + i].revents != 0 || p[SLOT_SINK + i].revents != 0) {
            hf_stream_pump(r, &r->streams[i]);
        }
    }
    if (p[SLOT_TYPED].revents != 0 || p[SLOT_MASTER].revents != 0) {
        hf_tty_input(r);
    }
    hf_role_tick(r);
}

static void run(struct hf_role *r)
{
    hf_role_start(r);
    hf_role_reap(r);
    hf_role_tick(r);
    while (!r->done) {
        struct pollfd p[SLOT_COUNT];
        watch(r, p);
        if (poll(p, SLOT_COUNT, timeout_ms(r)) >= 0) {
            serve(r, p);
        }
    }
    uint64_t until = hf_now_ns() + LAST_WORDS_MS * HF_MS;
    while (hf_role_attached(r) && r->wire.out.len > 0 && hf_now_ns() < until) {
        struct pollfd p = {.fd = r->wire.fd, .events = POLLOUT};
        (void)poll(&p, 1, LAST_WORDS_MS / 10);
        if (hf_wire_flush(&r->wire, NULL) != HF_OK) {
            return;
        }
    }
}

/* 0, 1 and 2 are open afterwards, so that none of ours takes such a number. */
static bool fill_low(void)
{
    int fd = -1;
    do {
        fd = open("/dev/null", O_RDWR | O_NOCTTY);
    } while (fd >= 0 && fd < 3);
    if (fd >= 0) {
        close(fd);
    }
    return fd >= 0;
}

static bool settle(struct hf_role *r)
{
    (void)prctl(PR_SET_NAME, HF_KEEPER_WORD, 0, 0, 0);
    sigset_t all;
    sigfillset(&all);
    (void)sigprocmask(SIG_SETMASK, &all, NULL);
    /* An inherited "ignore" would take the children's exit statuses away. */
    struct sigaction act = {0};
    act.sa_handler = SIG_DFL;
    (void)sigaction(SIGCHLD, &act, NULL);
    sigset_t child;
    sigemptyset(&child);
    sigaddset(&child, SIGCHLD);
    if (!fill_low() || setsid() < 0 || prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0) {
        return false;
    }
    r->umask = umask(077);
    r->signal_fd = signalfd(-1, &child, SFD_CLOEXEC | SFD_NONBLOCK);
    return r->signal_fd >= 0;
}

/* Waits for the whole spec; false when the supervisor has gone instead. */
static bool learn(struct hf_role *r)
{
    struct hf_wire_msg msg;
    while (!hf_wire_next(&r->wire, &msg)) {
        struct pollfd p = {.fd = r->wire.fd, .events = POLLIN};
        if (poll(&p, 1, -1) > 0 && !hf_wire_fill(&r->wire) && !hf_wire_next(&r->wire, &msg)) {
            return false;
        }
    }
    bool ok = msg.type == HF_WIRE_SPEC && hf_role_read_spec(r, msg.body);
    hf_wire_drop(&r->wire, &msg);
    r->listen_fd = hf_wire_take_fd(&r->wire, 0);
    int log = hf_wire_take_fd(&r->wire, 1);
    if (ok && log >= 0) {
        hf_logring_init(&r->log, r->dir, log, r->log_limit);
    }
    return ok && r->listen_fd >= 0 && log >= 0 && listen(r->listen_fd, 8) == 0;
}

static void role_release(struct hf_role *r)
{
    hf_tty_close(r);
    hf_cgroup_release(&r->cgroup);
    for (size_t i = 0; i < HF_COUNT(r->streams); i++) {
        hf_sink_close(&r->streams[i].sink);
    }
    hf_closep(&r->signal_fd);
    hf_closep(&r->listen_fd);
    hf_logring_release(&r->log);
    hf_wire_close(&r->next);
    hf_wire_close(&r->wire);
    hf_procs_release(&r->told);
    hf_strv_clear(&r->argv);
    hf_strv_clear(&r->env);
    hf_free(r->dir);
    hf_free(r->token);
}

bool hf_keeper_is_role(int argc, char **argv)
{
    return argc == 3 && strcmp(argv[0], HF_KEEPER_WORD) == 0 &&
           strcmp(argv[1], HF_KEEPER_OPTION) == 0;
}

int hf_keeper_main(int argc, char **argv)
{
    char *end = NULL;
    long fd = argc == 3 ? strtol(argv[2], &end, 10) : -1;
    if (fd < 3 || *end != '\0' || fcntl((int)fd, F_SETFD, FD_CLOEXEC) != 0) {
        return 125;
    }
    struct hf_role *r = HF_NEW(struct hf_role);
    r->signal_fd = r->listen_fd = r->exec_fd = r->next.fd = r->cgroup.procs = -1;
    r->log.fd = r->log.times_fd = -1;
    r->tty.master = r->tty.slave = r->tty.real = r->tty.in = -1;
    for (size_t i = 0; i < HF_COUNT(r->streams); i++) {
        r->streams[i].src = r->streams[i].sink.fd = -1;
    }
    r->term_at = r->kill_at = r->give_up_at = r->scan_at = r->drain_until = HF_NEVER;
    hf_wire_init(&r->wire, (int)fd, HF_WIRE_MAX_SPEC);
    bool ok = settle(r) && learn(r);
    if (ok) {
        run(r);
    }
    role_release(r);
    hf_free(r);
    return ok ? 0 : 125;
}
