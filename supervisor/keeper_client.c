/* SPDX-License-Identifier: Apache-2.0
 *
 * The supervisor's side of a keeper: its socket and its process on the loop, and what it tells
 * turned into callbacks. Loop thread only. Must not block, install a SIGCHLD handler, or take the
 * end of the socket for the end of the tree.
 */
#include "base/prelude.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

#include "supervisor/keeper_client.h"
#include "supervisor/keeper_wire.h"

#define LOST_AFTER_MS 500  /* from the end of the socket, where the keeper itself lives on */
#define GONE_AFTER_MS 5000 /* the same, where it has said that it is about to end */

struct hf_keeper {
    struct hf_loop *loop;
    struct hf_keeper_cb cb;
    void *user;
    struct hf_wire wire;
    struct hf_keeper_parts parts;
    uv_poll_t talk, end;
    uv_timer_t late;
    int open_handles;
    int64_t command;
    int status;
    bool raw, gone, over, closing;
    bool has_saved;
    struct termios saved; /* the terminal as it was, for the day the keeper dies in raw mode */
};

static void on_talk(uv_poll_t *handle, int status, int events);

static bool in_foreground(void)
{
    return isatty(STDIN_FILENO) == 1 && tcgetpgrp(STDIN_FILENO) == getpgrp();
}

static void restore_terminal(struct hf_keeper *k)
{
    if (!k->raw || !k->has_saved) {
        return;
    }
    k->raw = false;
    sigset_t stop;
    sigset_t before;
    sigemptyset(&stop);
    sigaddset(&stop, SIGTTOU);
    (void)pthread_sigmask(SIG_BLOCK, &stop, &before);
    (void)tcsetattr(STDIN_FILENO, TCSANOW, &k->saved);
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
}

/* The last callback. */
static void finish(struct hf_keeper *k)
{
    if (k->over || k->closing) {
        return;
    }
    k->over = true;
    (void)uv_poll_stop(&k->talk);
    (void)uv_poll_stop(&k->end);
    (void)uv_timer_stop(&k->late);
    restore_terminal(k);
    if (k->gone) {
        k->cb.gone(k->user, k->status);
    } else {
        k->cb.lost(k->user);
    }
}

static void dispatch(struct hf_keeper *k, const struct hf_wire_msg *msg)
{
    switch (msg->type) {
    case HF_WIRE_STARTED:
        k->command = msg->a;
        k->cb.started(k->user, msg->a, msg->b);
        return;
    case HF_WIRE_EXEC_FAILED:
        k->cb.exec_failed(k->user, (int)msg->a);
        return;
    case HF_WIRE_EXITED:
        k->cb.exited(k->user, (int)msg->a, msg->b != 0);
        return;
    case HF_WIRE_STOPPED:
        k->cb.stopped(k->user);
        return;
    case HF_WIRE_INTERRUPT:
        k->cb.interrupt(k->user);
        return;
    case HF_WIRE_STRAGGLER: {
        HF_CLEANUP(hf_freep) char *name = hf_strndup(msg->body.ptr, msg->body.len);
        k->cb.straggler(k->user, msg->a, name, msg->b != 0);
        return;
    }
    case HF_WIRE_RAW:
        k->raw = msg->a != 0;
        return;
    case HF_WIRE_LOG_DROPPED:
        k->cb.log_dropped(k->user, msg->b, (int)msg->a);
        return;
    case HF_WIRE_GONE:
        k->gone = true; /* told when the keeper itself has ended and is reaped */
        k->status = (int)msg->a;
        return;
    default:
        return; /* of a newer keeper */
    }
}

/* False: the keeper has closed the socket. */
static bool hear(struct hf_keeper *k)
{
    bool open = hf_wire_fill(&k->wire);
    struct hf_wire_msg msg;
    while (!k->closing && hf_wire_next(&k->wire, &msg)) {
        dispatch(k, &msg);
        hf_wire_drop(&k->wire, &msg);
    }
    return open;
}

static void on_late(uv_timer_t *timer)
{
    struct hf_keeper *k = (struct hf_keeper *)timer->data;
    bool knew = k->gone;
    (void)hear(k);
    if (!knew && k->gone && !k->closing) {
        (void)uv_timer_start(&k->late, on_late, GONE_AFTER_MS, 0);
        return;
    }
    finish(k);
}

static void watch(struct hf_keeper *k)
{
    int events = k->wire.out.len > 0 ? UV_READABLE | UV_WRITABLE : UV_READABLE;
    (void)uv_poll_start(&k->talk, events, on_talk);
}

/* The keeper is ending, or serves another supervisor now. Its pidfd decides, for a while. */
static void cut_off(struct hf_keeper *k)
{
    (void)uv_poll_stop(&k->talk);
    (void)uv_timer_start(&k->late, on_late, k->gone ? GONE_AFTER_MS : LOST_AFTER_MS, 0);
}

static void push(struct hf_keeper *k)
{
    if (hf_wire_flush(&k->wire, NULL) != HF_OK) {
        cut_off(k);
        return;
    }
    if (k->wire.give_len == 0) {
        /* They are the keeper's now. A copy of the listening socket here would let an attach
         * succeed when the keeper is dead. */
        hf_closep(&k->parts.listen);
        hf_closep(&k->parts.log);
        k->parts.listen = k->parts.log = -1;
    }
    watch(k);
}

static void on_talk(uv_poll_t *handle, int status, int events)
{
    struct hf_keeper *k = (struct hf_keeper *)handle->data;
    bool open = status == 0;
    if (open && (events & UV_READABLE) != 0) {
        open = hear(k);
    }
    if (k->closing || k->over) {
        return;
    }
    if (open) {
        push(k);
    } else {
        cut_off(k);
    }
}

static void on_end(uv_poll_t *handle, int status, int events)
{
    (void)status;
    (void)events;
    struct hf_keeper *k = (struct hf_keeper *)handle->data;
    (void)hear(k); /* its last words may still lie in the socket */
    if (k->closing) {
        return;
    }
    siginfo_t info;
    /* ECHILD where a supervisor before us had started it. */
    (void)waitid(P_PIDFD, (id_t)k->parts.pidfd, &info, WEXITED | WNOHANG);
    finish(k);
}

static void on_closed(uv_handle_t *handle)
{
    struct hf_keeper *k = (struct hf_keeper *)handle->data;
    k->open_handles--;
    if (k->open_handles == 0) {
        hf_wire_close(&k->wire);
        hf_keeper_parts_close(&k->parts);
        hf_free(k);
    }
}

void hf_keeper_close(struct hf_keeper *k)
{
    if (k == NULL || k->closing) {
        return;
    }
    k->closing = true;
    uv_close((uv_handle_t *)&k->talk, on_closed);
    uv_close((uv_handle_t *)&k->end, on_closed);
    uv_close((uv_handle_t *)&k->late, on_closed);
}

/* Takes the parts; from here on hf_keeper_close frees everything. */
static enum hf_rc keeper_new(struct hf_loop *loop, const struct hf_keeper_cb *cb, void *user,
                             struct hf_keeper_parts *parts_taken, struct hf_keeper **ret,
                             struct hf_err *err)
{
    struct hf_keeper *k = HF_NEW(struct hf_keeper);
    k->loop = loop;
    k->cb = *cb;
    k->user = user;
    k->parts = *parts_taken;
    k->has_saved = tcgetattr(STDIN_FILENO, &k->saved) == 0;
    hf_wire_init(&k->wire, k->parts.control, HF_WIRE_MAX_QUEUED);
    k->parts.control = -1;
    k->talk.data = k->end.data = k->late.data = k;
    int rc = uv_poll_init(&loop->uv, &k->talk, k->wire.fd);
    if (rc == 0) {
        k->open_handles++;
        rc = uv_poll_init(&loop->uv, &k->end, k->parts.pidfd);
        k->open_handles += rc == 0;
    }
    if (rc != 0) {
        if (k->open_handles == 1) {
            k->closing = true;
            uv_close((uv_handle_t *)&k->talk, on_closed);
        } else {
            hf_wire_close(&k->wire);
            hf_keeper_parts_close(&k->parts);
            hf_free(k);
        }
        return hf_fail(err, HF_EIO, "watch the keeper: %s", uv_strerror(rc));
    }
    (void)uv_timer_init(&loop->uv, &k->late);
    k->open_handles++;
    (void)uv_poll_start(&k->end, UV_READABLE, on_end);
    *ret = k;
    return HF_OK;
}

static enum hf_rc add_list(struct hf_buf *b, char *const *list, struct hf_err *err)
{
    uint32_t count = 0;
    while (list[count] != NULL) {
        count++;
    }
    HF_TRY(hf_wire_add(b, &count, sizeof count, err));
    for (uint32_t i = 0; i < count; i++) {
        HF_TRY(hf_wire_add(b, list[i], strlen(list[i]), err));
    }
    return HF_OK;
}

/* Read back by hf_role_read_spec. */
static enum hf_rc add_spec(struct hf_buf *b, const struct hf_keeper_spec *spec, struct hf_err *err)
{
    uint32_t foreground = in_foreground();
    HF_TRY(hf_wire_add(b, spec->dir, strlen(spec->dir), err));
    HF_TRY(hf_wire_add(b, spec->token, strlen(spec->token), err));
    HF_TRY(hf_wire_add(b, spec->inherited, sizeof *spec->inherited, err));
    HF_TRY(hf_wire_add(b, &spec->linger_ms, sizeof spec->linger_ms, err));
    HF_TRY(hf_wire_add(b, &spec->log_limit, sizeof spec->log_limit, err));
    HF_TRY(hf_wire_add(b, &foreground, sizeof foreground, err));
    HF_TRY(add_list(b, spec->argv, err));
    return add_list(b, spec->env, err);
}

static enum hf_rc spec_body(const struct hf_keeper_spec *spec, struct hf_buf *b, struct hf_err *err)
{
    if (spec->dir[0] != '/' || spec->argv[0] == NULL || spec->token[0] == '\0') {
        return hf_fail(err, HF_EINVAL, "a keeper needs an absolute folder, a command and a token");
    }
    return add_spec(b, spec, err);
}

enum hf_rc hf_keeper_start(struct hf_loop *loop, const struct hf_keeper_spec *spec,
                           const struct hf_keeper_cb *cb, void *user, struct hf_keeper **ret,
                           struct hf_err *err)
{
    struct hf_buf body;
    struct hf_keeper *k = NULL;
    struct hf_keeper_parts parts = {.pid = -1};
    hf_buf_init(&body, HF_WIRE_MAX_SPEC);
    enum hf_rc rc = spec_body(spec, &body, err);
    if (rc == HF_OK) {
        rc = hf_keeper_spawn(spec, &parts, err);
    }
    if (rc == HF_OK) {
        rc = keeper_new(loop, cb, user, &parts, &k, err);
    }
    if (rc == HF_OK) {
        k->wire.give[0] = k->parts.listen;
        k->wire.give[1] = k->parts.log;
        k->wire.give_len = 2;
        rc = hf_wire_put_raw(&k->wire, HF_WIRE_SPEC, hf_buf_span(&body), err);
    }
    hf_buf_release(&body);
    if (rc != HF_OK) {
        if (parts.pid > 0) {
            hf_keeper_bury(spec->dir, parts.pid);
        }
        hf_keeper_close(k);
        return rc;
    }
    push(k);
    *ret = k;
    return HF_OK;
}

/* The keeper listens itself, so the peer of a connected socket is the keeper. */
static enum hf_rc find_peer(struct hf_keeper_parts *p, const char *dir, struct hf_err *err)
{
    struct ucred peer = {0};
    socklen_t len = sizeof peer;
    if (getsockopt(p->control, SOL_SOCKET, SO_PEERCRED, &peer, &len) != 0) {
        return hf_fail_errno(err, errno, "ask for the keeper of '%s'", dir);
    }
    if (peer.pid <= 0) {
        return hf_fail(err, HF_ENOTSUP, "the keeper of '%s' lives in another pid namespace", dir);
    }
    if (peer.uid != geteuid() && peer.uid != 0) {
        return hf_fail(err, HF_EDENIED, "the keeper of '%s' belongs to user %u", dir, peer.uid);
    }
    p->pid = peer.pid;
    p->pidfd = (int)syscall(SYS_pidfd_open, peer.pid, 0);
    if (p->pidfd < 0) {
        int num = errno;
        return num == ESRCH ? hf_fail(err, HF_ENOTFOUND, "no keeper lives in '%s'", dir)
                            : hf_fail_errno(err, num, "open the keeper's process %d", peer.pid);
    }
    return HF_OK;
}

static enum hf_rc reach(const char *dir, struct hf_keeper_parts *p, struct hf_err *err)
{
    struct hf_sockname name;
    HF_TRY(hf_keeper_address(dir, &name, err));
    p->control = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    int num = p->control < 0 ? errno : 0;
    if (num == 0 &&
        connect(p->control, (const struct sockaddr *)&name.addr, sizeof name.addr) != 0) {
        num = errno;
    }
    hf_sockname_close(&name);
    if (num != 0) {
        return num == ECONNREFUSED || num == ENOENT
                   ? hf_fail(err, HF_ENOTFOUND, "no keeper lives in '%s'", dir)
                   : hf_fail_errno(err, num, "connect to the keeper of '%s'", dir);
    }
    return find_peer(p, dir, err);
}

enum hf_rc hf_keeper_attach(struct hf_loop *loop, const char *dir, const struct hf_keeper_cb *cb,
                            void *user, struct hf_keeper **ret, struct hf_err *err)
{
    struct hf_keeper_parts parts = {.pidfd = -1, .control = -1, .listen = -1, .log = -1};
    struct hf_keeper *k = NULL;
    enum hf_rc rc = reach(dir, &parts, err);
    if (rc != HF_OK) {
        hf_keeper_parts_close(&parts);
        return rc;
    }
    HF_TRY(keeper_new(loop, cb, user, &parts, &k, err));
    for (int fd = 0; fd < HF_WIRE_MAX_FDS; fd++) {
        k->wire.give[fd] = fd; /* stdin, stdout, stderr */
    }
    k->wire.give_len = HF_WIRE_MAX_FDS;
    rc = hf_wire_put(&k->wire, HF_WIRE_SINKS, in_foreground(), 0, NULL, err);
    if (rc == HF_OK) {
        rc = hf_wire_flush(&k->wire, err);
    }
    if (rc != HF_OK) {
        hf_keeper_close(k);
        return hf_wrap(err, rc, "attach to the keeper of '%s'", dir);
    }
    watch(k);
    *ret = k;
    return HF_OK;
}

static void say(struct hf_keeper *k, enum hf_wire_type type, int64_t a, uint64_t b)
{
    if (k->over || k->closing) {
        return;
    }
    if (hf_wire_put(&k->wire, type, a, b, NULL, NULL) == HF_OK) {
        push(k);
    }
}

void hf_keeper_signal(struct hf_keeper *k, int sig)
{
    say(k, HF_WIRE_SIGNAL, sig, 0);
}

void hf_keeper_end_tree(struct hf_keeper *k, uint32_t grace_ms)
{
    say(k, HF_WIRE_END, 0, grace_ms);
}

void hf_keeper_continue(struct hf_keeper *k, bool foreground)
{
    say(k, HF_WIRE_CONTINUE, foreground, 0);
}

void hf_keeper_window_changed(struct hf_keeper *k)
{
    say(k, HF_WIRE_WINDOW, 0, 0);
}

int64_t hf_keeper_pid(const struct hf_keeper *k)
{
    return k->parts.pid;
}

bool hf_keeper_terminal_is_raw(const struct hf_keeper *k)
{
    return k->raw;
}

int64_t hf_keeper_command_pid(const struct hf_keeper *k)
{
    return k->command;
}
