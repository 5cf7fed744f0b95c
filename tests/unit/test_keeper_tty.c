/* SPDX-License-Identifier: Apache-2.0
 *
 * The keeper on a terminal: the command sees one, keys reach it as signals, the real terminal is
 * raw exactly while it should be. The "real" terminal is a pty of the test's own: `person` is its
 * master, where a person types and reads. Every wait is for a condition with a deadline.
 */
#include "base/prelude.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/fsx.h"
#include "supervisor/tree.h"
#include "tests/unit/support_keeper.h"

struct terminal {
    int person, screen; /* master, slave */
};

static void terminal_open(struct sit *s, struct terminal *t)
{
    sit_init(s);
    t->person = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);
    assert_true(t->person >= 0);
    assert_int_equal(grantpt(t->person), 0);
    assert_int_equal(unlockpt(t->person), 0);
    t->screen = open(ptsname(t->person), O_RDWR | O_NOCTTY | O_CLOEXEC);
    assert_true(t->screen >= 0);
    struct winsize size = {.ws_row = 33, .ws_col = 101};
    assert_int_equal(ioctl(t->person, TIOCSWINSZ, &size), 0);
    hf_closep(&s->out_r);
    s->out_r = fcntl(t->person, F_DUPFD_CLOEXEC, 10);
    assert_int_equal(fcntl(s->out_r, F_SETFL, O_NONBLOCK), 0);
}

static void terminal_close(struct sit *s, struct terminal *t)
{
    sit_release(s);
    hf_closep(&t->person);
    hf_closep(&t->screen);
}

static void start_shell_on(struct sit *s, const struct terminal *t, const char *script)
{
    char sh[] = "sh";
    char option[] = "-c";
    HF_CLEANUP(hf_freep) char *text = hf_strdup(script);
    char *argv[] = {sh, option, text, NULL};
    sit_start(s, t->screen, argv);
}

static void type_keys(const struct terminal *t, const char *keys)
{
    assert_int_equal(write(t->person, keys, strlen(keys)), strlen(keys));
}

static bool is_raw(const struct terminal *t)
{
    struct termios mode;
    assert_int_equal(tcgetattr(t->screen, &mode), 0);
    return (mode.c_lflag & (ICANON | ECHO | ISIG)) == 0 && (mode.c_oflag & OPOST) == 0;
}

static void until_raw(struct sit *s, const struct terminal *t, bool raw)
{
    uint64_t until = hf_now_ns() + SIT_WAIT_MS * HF_MS;
    while (is_raw(t) != raw || (s->k != NULL && hf_keeper_terminal_is_raw(s->k) != raw)) {
        assert_true(hf_now_ns() < until);
        sit_once(s);
    }
}

static char state_of(pid_t pid)
{
    struct hf_procs mine = {0};
    char state = '?';
    assert_int_equal(hf_tree_descendants(getpid(), &mine, NULL), HF_OK);
    for (size_t i = 0; i < mine.len; i++) {
        state = mine.items[i].pid == pid ? mine.items[i].state : state;
    }
    hf_procs_release(&mine);
    return state;
}

static void looks_like_the_terminal(void **state)
{
    (void)state;
    struct sit s;
    struct terminal t;
    terminal_open(&s, &t);
    struct termios mode;
    assert_int_equal(tcgetattr(t.screen, &mode), 0);
    mode.c_cc[VERASE] = 'E';
    assert_int_equal(tcsetattr(t.screen, TCSANOW, &mode), 0);
    start_shell_on(&s, &t,
                   "test -t 0 && test -t 1 && test -t 2 && tty && stty size && stty -a | tr ';' "
                   "'\\n' | grep erase; trap 'stty size; exit 0' WINCH; : >/dev/tty && echo up; "
                   "while :; do sleep 0.02; done");
    sit_until_text(&s, &s.out, "up");
    assert_non_null(strstr(hf_buf_str(&s.out), "/dev/pts/"));
    assert_non_null(strstr(hf_buf_str(&s.out), "33 101\r"));
    assert_non_null(strstr(hf_buf_str(&s.out), "erase = E"));
    assert_false(is_raw(&t)); /* nobody said that we are in the foreground */
    struct winsize size = {.ws_row = 40, .ws_col = 120};
    assert_int_equal(ioctl(t.person, TIOCSWINSZ, &size), 0);
    hf_keeper_window_changed(s.k);
    sit_until(&s, &s.gone);
    sit_until_text(&s, &s.out, "40 120\r");
    assert_int_equal(s.status, 0);
    assert_int_equal(s.err.len, 0);
    terminal_close(&s, &t);
}

static void relays_what_is_typed(void **state)
{
    (void)state;
    struct sit s;
    struct terminal t;
    terminal_open(&s, &t);
    start_shell_on(&s, &t, "echo name?; read x; echo hello $x; read y || echo end");
    sit_until_text(&s, &s.out, "name?");
    hf_keeper_continue(s.k, true);
    until_raw(&s, &t, true);
    type_keys(&t, "me\r");
    sit_until_text(&s, &s.out, "me\r\nhello me\r\n");
    type_keys(&t, "\x04");
    sit_until(&s, &s.gone);
    sit_until_text(&s, &s.out, "end\r");
    assert_string_equal(s.order, "SXG");
    until_raw(&s, &t, false);
    terminal_close(&s, &t);
}

static void turns_keys_into_signals(void **state)
{
    (void)state;
    static const struct {
        const char *script, *keys;
        int status, interrupts;
    } cases[] = {
        {"echo up; exec sleep 6001", "\x03", SIGINT, 1},
        {"ulimit -c 0; echo up; exec sleep 6002", "\x1c", SIGQUIT, 1},
        /* Quoted by Ctrl-V, and in a mode without signals, the key is only a key. */
        {"echo up; read x; exit 5", "\x16\x03\r", 5 << 8, 0},
        {"stty -isig; echo up; read x; exit 6", "\x03\r", 6 << 8, 0},
    };
    for (size_t i = 0; i < HF_COUNT(cases); i++) {
        struct sit s;
        struct terminal t;
        terminal_open(&s, &t);
        start_shell_on(&s, &t, cases[i].script);
        sit_until_text(&s, &s.out, "up");
        hf_keeper_continue(s.k, true);
        until_raw(&s, &t, true);
        type_keys(&t, cases[i].keys);
        sit_until(&s, &s.gone);
        assert_int_equal(s.status & ~0x80, cases[i].status);
        assert_int_equal(s.interrupt, cases[i].interrupts);
        assert_false(is_raw(&t));
        terminal_close(&s, &t);
    }
}

/* Ctrl-Z, a look around, fg, bg, Ctrl-C. */
static void stops_and_goes_on(void **state)
{
    (void)state;
    struct sit s;
    struct terminal t;
    terminal_open(&s, &t);
    start_shell_on(&s, &t, "echo up; exec sleep 6003");
    sit_until_text(&s, &s.out, "up");
    hf_keeper_continue(s.k, true);
    until_raw(&s, &t, true);
    type_keys(&t, "\x1a");
    sit_until(&s, &s.stopped);
    until_raw(&s, &t, false);
    assert_int_equal(state_of((pid_t)s.pid), 'T');
    hf_keeper_continue(s.k, true);
    until_raw(&s, &t, true);
    uint64_t until = hf_now_ns() + SIT_WAIT_MS * HF_MS;
    while (state_of((pid_t)s.pid) != 'S') {
        assert_true(hf_now_ns() < until);
        sit_once(&s);
    }
    hf_keeper_continue(s.k, false); /* as "bg" does */
    until_raw(&s, &t, false);
    assert_int_equal(state_of((pid_t)s.pid), 'S');
    hf_keeper_continue(s.k, true);
    until_raw(&s, &t, true);
    type_keys(&t, "\x03");
    sit_until(&s, &s.gone);
    assert_string_equal(s.order, "SZIXG");
    assert_int_equal(s.status, SIGINT);
    terminal_close(&s, &t);
}

/* An operator or a checkpoint tool that freezes the command must not suspend the supervisor. */
static void leaves_a_freeze_alone(void **state)
{
    (void)state;
    struct sit s;
    struct terminal t;
    terminal_open(&s, &t);
    start_shell_on(&s, &t, "echo up; read x; exit 0");
    sit_until_text(&s, &s.out, "up");
    hf_keeper_continue(s.k, true);
    until_raw(&s, &t, true);
    assert_int_equal(kill((pid_t)s.pid, SIGSTOP), 0);
    uint64_t until = hf_now_ns() + SIT_WAIT_MS * HF_MS;
    while (state_of((pid_t)s.pid) != 'T') {
        assert_true(hf_now_ns() < until);
        sit_once(&s);
    }
    assert_int_equal(kill((pid_t)s.pid, SIGCONT), 0);
    type_keys(&t, "x\r");
    sit_until(&s, &s.gone);
    assert_string_equal(s.order, "SXG");
    terminal_close(&s, &t);
}

/* The supervisor is gone: the terminal is the shell's again, and what is typed is too. */
static void gives_the_terminal_back(void **state)
{
    (void)state;
    struct sit s;
    struct terminal t;
    terminal_open(&s, &t);
    start_shell_on(&s, &t, "echo up; read x; echo got $x");
    sit_until_text(&s, &s.out, "up");
    hf_keeper_continue(s.k, true);
    until_raw(&s, &t, true);
    sit_close(&s);
    until_raw(&s, &t, false);
    type_keys(&t, "for the shell\r");
    char line[64] = "";
    assert_int_equal(read(t.screen, line, sizeof line), strlen("for the shell\n"));
    assert_string_equal(line, "for the shell\n");
    assert_int_equal(s.exited, 0);
    /* The next one takes it over. sit_attach closes out_r, as it would a pipe. */
    int screen_out = fcntl(t.person, F_DUPFD_CLOEXEC, 10);
    s.started = 0;
    assert_int_equal(sit_attach(&s, t.screen, NULL), HF_OK);
    hf_closep(&s.out_r);
    s.out_r = screen_out;
    sit_until(&s, &s.started);
    hf_keeper_continue(s.k, true);
    until_raw(&s, &t, true);
    type_keys(&t, "this\r");
    sit_until(&s, &s.gone);
    sit_until_text(&s, &s.out, "got this\r\n");
    until_raw(&s, &t, false);
    terminal_close(&s, &t);
}

/* The keeper is killed while the terminal is raw: the supervisor puts it right. */
static void repairs_the_terminal_of_a_dead_keeper(void **state)
{
    (void)state;
    struct sit s;
    struct terminal t;
    terminal_open(&s, &t);
    start_shell_on(&s, &t, "trap '' HUP; echo up; exec sleep 6004");
    sit_until_text(&s, &s.out, "up");
    hf_keeper_continue(s.k, true);
    until_raw(&s, &t, true);
    int saved = fcntl(0, F_DUPFD_CLOEXEC, 10);
    assert_int_equal(dup2(t.screen, 0), 0); /* the supervisor's stdin is the terminal */
    assert_int_equal(kill((pid_t)sit_number(&s, "keeper.json", "pid"), SIGKILL), 0);
    sit_until(&s, &s.lost);
    assert_int_equal(dup2(saved, 0), 0);
    close(saved);
    assert_false(is_raw(&t));
    assert_false(hf_keeper_terminal_is_raw(s.k));
    assert_int_equal(hf_tree_kill_token(s.token, SIT_WAIT_MS, NULL), HF_OK);
    terminal_close(&s, &t);
}

/* stdout alone is the terminal: stdin stays what it was, stderr a pipe. */
static void mixes_terminal_and_pipes(void **state)
{
    (void)state;
    struct sit s;
    struct terminal t;
    terminal_open(&s, &t);
    int in[2];
    assert_int_equal(pipe2(in, O_CLOEXEC), 0);
    s.in = in[0];
    s.tty_out = t.screen;
    sit_start_shell(&s, "read x; test -t 0 || echo in $x; test -t 1 && echo out; "
                        "test -t 2 || echo err >&2");
    close(in[0]);
    assert_int_equal(write(in[1], "piped\n", 6), 6);
    close(in[1]);
    sit_until(&s, &s.gone);
    sit_until_text(&s, &s.out, "out\r");
    sit_until_text(&s, &s.err, "err\n");
    assert_non_null(strstr(hf_buf_str(&s.out), "in piped\r"));
    terminal_close(&s, &t);
}

/* A person who holds the screen (Ctrl-S at the outer end) loses nothing; the keeper drains all
 * before it says that it is gone. */
static void loses_nothing_on_a_slow_screen(void **state)
{
    (void)state;
    struct sit s;
    struct terminal t;
    terminal_open(&s, &t);
    s.lazy = true;
    start_shell_on(&s, &t, "stty -opost; seq 1 30000");
    sit_until(&s, &s.started);
    uint64_t until = hf_now_ns() + 200 * HF_MS;
    while (hf_now_ns() < until) {
        sit_once(&s);
    }
    assert_int_equal(s.gone, 0);
    s.lazy = false;
    sit_until(&s, &s.gone);
    sit_collect(&s);
    const char *p = hf_buf_str(&s.out);
    for (long i = 1; i <= 30000; i++) {
        char *end = NULL;
        assert_int_equal(strtol(p, &end, 10), i);
        p = end;
    }
    HF_CLEANUP(hf_freep) char *log = sit_file(&s, HF_LOGRING_FIRST);
    assert_non_null(strstr(log, "\n29999\n30000\n"));
    terminal_close(&s, &t);
}

/* The window is closed: its output goes to the log alone and the command goes on. */
static void outlives_its_terminal(void **state)
{
    (void)state;
    struct sit s;
    struct terminal t;
    terminal_open(&s, &t);
    start_shell_on(&s, &t,
                   "trap 'echo after; echo more; exit 4' USR1; echo up; "
                   "while :; do sleep 0.02; done");
    sit_until_text(&s, &s.out, "up");
    hf_keeper_continue(s.k, true);
    until_raw(&s, &t, true);
    hf_closep(&s.out_r);
    s.out_r = -1;
    hf_closep(&t.person);
    t.person = -1;
    uint64_t until = hf_now_ns() + SIT_WAIT_MS * HF_MS;
    while (hf_keeper_terminal_is_raw(s.k)) {
        assert_true(hf_now_ns() < until);
        sit_once(&s);
    }
    hf_keeper_signal(s.k, SIGUSR1);
    sit_until(&s, &s.gone);
    assert_int_equal(s.status, 4 << 8);
    HF_CLEANUP(hf_freep) char *log = sit_file(&s, HF_LOGRING_FIRST);
    assert_non_null(strstr(log, "after\r\nmore\r\n"));
    terminal_close(&s, &t);
}

/* The whole thing: a supervisor that owns the terminal's foreground, killed outright. */
static void takes_the_foreground_it_has(void **state)
{
    (void)state;
    struct sit s;
    struct terminal t;
    terminal_open(&s, &t);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        struct sit own;
        sit_init(&own);
        assert_int_equal(hf_fs_remove_tree(own.dir, NULL), HF_OK);
        snprintf(own.dir, sizeof own.dir, "%s", s.dir);
        snprintf(own.token, sizeof own.token, "%s", s.token);
        assert_true(setsid() > 0);
        assert_int_equal(ioctl(t.screen, TIOCSCTTY, 0), 0);
        start_shell_on(&own, &t, "echo up; read x; echo got $x; exec sleep 6005");
        while (true) {
            (void)uv_run(&own.loop.uv, UV_RUN_ONCE);
        }
    }
    sit_until_text(&s, &s.out, "up");
    until_raw(&s, &t, true);
    type_keys(&t, "it\r");
    sit_until_text(&s, &s.out, "got it\r\n");
    assert_int_equal(kill(pid, SIGKILL), 0);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    until_raw(&s, &t, false);
    assert_int_equal(sit_attach(&s, -1, NULL), HF_OK);
    sit_until(&s, &s.started);
    assert_int_equal(s.exited, 0);
    hf_keeper_end_tree(s.k, 0);
    sit_until(&s, &s.gone);
    assert_string_equal(s.order, "SXG");
    terminal_close(&s, &t);
}

int main(int argc, char **argv)
{
    if (hf_keeper_is_role(argc, argv)) {
        return hf_keeper_main(argc, argv);
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(looks_like_the_terminal),
        cmocka_unit_test(relays_what_is_typed),
        cmocka_unit_test(turns_keys_into_signals),
        cmocka_unit_test(stops_and_goes_on),
        cmocka_unit_test(leaves_a_freeze_alone),
        cmocka_unit_test(gives_the_terminal_back),
        cmocka_unit_test(repairs_the_terminal_of_a_dead_keeper),
        cmocka_unit_test(mixes_terminal_and_pipes),
        cmocka_unit_test(loses_nothing_on_a_slow_screen),
        cmocka_unit_test(outlives_its_terminal),
        cmocka_unit_test(takes_the_foreground_it_has),
    };
    return cmocka_run_group_tests_name("keeper-tty", tests, NULL, NULL);
}
