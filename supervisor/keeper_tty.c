/* SPDX-License-Identifier: Apache-2.0
 *
 * The keeper's terminal side: the command's pty, the real terminal's raw mode, and the relay of
 * what a person types. Runs in the keeper's poll loop. Must never leave the terminal raw when the
 * supervisor is gone, stopped or in the background, and never read it then.
 *
 * The keeper itself is the leader of the pty's session and the command leads a process group in
 * it. Were the command the leader, its group would be an orphaned one, in which the kernel drops
 * Ctrl-Z, and its end would send SIGHUP to the children that linger.
 */
#include "base/prelude.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "supervisor/keeper_role.h"

static void close_fd(int *fd)
{
    if (*fd >= 0) {
        close(*fd);
    }
    *fd = -1;
}

static void copy_window(int from, int to)
{
    struct winsize size;
    if (from >= 0 && to >= 0 && ioctl(from, TIOCGWINSZ, &size) == 0) {
        (void)ioctl(to, TIOCSWINSZ, &size);
    }
}

bool hf_tty_open(struct hf_role *r)
{
    struct hf_tty *t = &r->tty;
    t->master = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC | O_NONBLOCK);
    if (t->master < 0 || grantpt(t->master) != 0 || unlockpt(t->master) != 0) {
        hf_tty_close(r);
        return false;
    }
    t->slave = ioctl(t->master, TIOCGPTPEER, O_RDWR | O_NOCTTY | O_CLOEXEC);
    if (t->slave < 0 || ioctl(t->slave, TIOCSCTTY, 0) != 0) {
        hf_tty_close(r);
        return false;
    }
    struct termios mode;
    if (tcgetattr(STDOUT_FILENO, &mode) == 0) {
        (void)tcsetattr(t->slave, TCSANOW, &mode);
    }
    copy_window(STDOUT_FILENO, t->master);
    return true;
}

void hf_tty_attach(struct hf_role *r, int in, int out, bool foreground)
{
    struct hf_tty *t = &r->tty;
    if (t->master < 0) {
        return;
    }
    hf_tty_leave(r);
    close_fd(&t->real);
    close_fd(&t->in);
    t->foreground = foreground;
    if (isatty(out)) {
        t->real = fcntl(out, F_DUPFD_CLOEXEC, 3);
        copy_window(t->real, t->master);
    }
    if (t->relays && t->real >= 0 && isatty(in)) {
        t->in = hf_reopen(in, O_RDONLY);
        if (t->in < 0) {
            t->in = fcntl(in, F_DUPFD_CLOEXEC, 3);
        }
    }
    hf_tty_enter(r);
}

void hf_tty_enter(struct hf_role *r)
{
    struct hf_tty *t = &r->tty;
    if (t->in < 0 || t->raw || !t->foreground || r->stopped || r->ended) {
        return;
    }
    if (tcgetattr(t->in, &t->saved) != 0) {
        return;
    }
    struct termios mode = t->saved;
    cfmakeraw(&mode);
    /* At once: waiting for output to drain would block on a terminal held by Ctrl-S. */
    if (tcsetattr(t->in, TCSANOW, &mode) == 0) {
        t->raw = true;
        hf_role_tell(r, HF_WIRE_RAW, 1, 0, NULL);
    }
}

/* Still as hf_tty_enter left it? A shell that found our supervisor dead has put its own mode there
 * meanwhile, and reads a line in it. */
static bool is_as_set(const struct hf_tty *t)
{
    struct termios now;
    struct termios set = t->saved;
    cfmakeraw(&set);
    return tcgetattr(t->in, &now) != 0 ||
           (now.c_lflag == set.c_lflag && now.c_iflag == set.c_iflag && now.c_oflag == set.c_oflag);
}

void hf_tty_leave(struct hf_role *r)
{
    struct hf_tty *t = &r->tty;
    if (t->raw) {
        t->raw = false;
        if (is_as_set(t)) {
            (void)tcsetattr(t->in, TCSANOW, &t->saved);
        }
        hf_role_tell(r, HF_WIRE_RAW, 0, 0, NULL);
    }
}

void hf_tty_window(struct hf_role *r)
{
    copy_window(r->tty.real, r->tty.master);
}

static bool is_key(const struct termios *mode, size_t which, unsigned char c)
{
    return mode->c_cc[which] != _POSIX_VDISABLE && mode->c_cc[which] == c;
}

/* The pty's line discipline turns these keys into signals by itself; the supervisor is only told
 * that a person pressed one. */
static void look_for_interrupt(struct hf_role *r, const char *data, size_t len)
{
    struct termios mode;
    if (tcgetattr(r->tty.master, &mode) != 0 || (mode.c_lflag & ISIG) == 0) {
        return;
    }
    for (size_t i = 0; i < len; i++) {
        unsigned char c = (unsigned char)data[i];
        if ((mode.c_lflag & IEXTEN) != 0 && is_key(&mode, VLNEXT, c)) {
            i++; /* the next byte is meant literally */
        } else if (is_key(&mode, VINTR, c) || is_key(&mode, VQUIT, c)) {
            hf_role_tell(r, HF_WIRE_INTERRUPT, 0, 0, NULL);
        }
    }
}

void hf_tty_input(struct hf_role *r)
{
    struct hf_tty *t = &r->tty;
    if (t->len == 0 && t->raw) {
        ssize_t n = read(t->in, t->data, sizeof t->data);
        if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR)) {
            hf_tty_leave(r); /* the terminal has hung up */
            close_fd(&t->in);
            return;
        }
        if (n > 0) {
            t->off = 0;
            t->len = (size_t)n;
            look_for_interrupt(r, t->data, t->len);
        }
    }
    if (t->len > 0) {
        ssize_t n = write(t->master, t->data + t->off, t->len);
        if (n > 0) {
            t->off += (size_t)n;
            t->len -= (size_t)n;
        } else if (n < 0 && errno != EAGAIN && errno != EINTR) {
            t->len = 0;
        }
    }
}

static bool adds_returns(int fd)
{
    struct termios mode;
    return tcgetattr(fd, &mode) == 0 &&
           (mode.c_oflag & (tcflag_t)(OPOST | ONLCR)) == (tcflag_t)(OPOST | ONLCR);
}

/* While the terminal is not raw (in the background, and after the command's end) it turns a newline
 * into a return and a newline, as the pty has done already. */
size_t hf_tty_uncook(const struct hf_role *r, char *data, size_t len)
{
    const struct hf_tty *t = &r->tty;
    if (t->real < 0 || t->raw || !adds_returns(t->real) || !adds_returns(t->master)) {
        return len;
    }
    size_t out = 0;
    for (size_t i = 0; i < len; i++) {
        if (data[i] != '\r' || i + 1 == len || data[i + 1] != '\n') {
            data[out++] = data[i];
        }
    }
    return out;
}

void hf_tty_hang_up_slave(struct hf_role *r)
{
    close_fd(&r->tty.slave);
}

void hf_tty_close(struct hf_role *r)
{
    struct hf_tty *t = &r->tty;
    hf_tty_leave(r);
    close_fd(&t->slave);
    close_fd(&t->master);
    close_fd(&t->real);
    close_fd(&t->in);
}
