/* SPDX-License-Identifier: Apache-2.0
 *
 * The keeper with pipes: what the command gets, what becomes of its output and its exit status,
 * how its tree ends, and that the supervisor may die and come back. Real processes; every wait is
 * for a condition with a deadline. The terminal side is in test_keeper_tty.c.
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
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/fsx.h"
#include "supervisor/tree.h"
#include "tests/unit/support_keeper.h"

#define FILE_LIMIT 123456789
#define EXTRA_FD   57 /* a descriptor that the user passes on */

static char self_path[4096];

/* Nothing may be left when the command has ended and its tree is gone. */
static void expect_clean_end(struct sit *s)
{
    HF_CLEANUP(hf_freep) char *k = hf_asprintf("%s/k", s->dir);
    assert_false(hf_fs_exists(k));
    assert_int_equal(sit_number(s, "exit", "status"), s->gone_status);
    assert_true(sit_number(s, "exit", "at_wall_ms") > 0);
}

static void passes_statuses_on(void **state)
{
    (void)state;
    static const struct {
        const char *script;
        int status;
    } cases[] = {
        {"exit 0", 0},
        {"exit 3", 3 << 8},
        {"exit 255", 255 << 8},
        {"kill -9 $$", SIGKILL},
        {"kill -15 $$", SIGTERM},
        {"trap 'exit 0' TERM; kill -15 $$; exit 9", 0},
    };
    for (size_t i = 0; i < HF_COUNT(cases); i++) {
        struct sit s;
        sit_init(&s);
        uint64_t before = hf_now_ns();
        sit_start_shell(&s, cases[i].script);
        sit_until(&s, &s.gone);
        assert_string_equal(s.order, "SXG");
        assert_int_equal(s.status, cases[i].status);
        assert_int_equal(s.gone_status, cases[i].status);
        assert_true(s.exec_ns >= before && s.exec_ns <= hf_now_ns());
        assert_int_equal(s.pid, hf_keeper_command_pid(s.k));
        assert_int_equal(sit_number(&s, "keeper.json", "command_pid"), s.pid);
        assert_true(sit_number(&s, "keeper.json", "start") > 0);
        assert_int_equal(sit_number(&s, "exit", "log_dropped_bytes"), 0);
        expect_clean_end(&s);
        sit_release(&s);
    }
}

static void tells_exec_errors(void **state)
{
    (void)state;
    static const struct {
        const char *command;
        int num, status;
    } cases[] = {
        {"/no/such/command", ENOENT, 127 << 8},
        {"no-such-command-in-path", ENOENT, 127 << 8},
        {"/etc/passwd", EACCES, 126 << 8},
        {"/tmp", EACCES, 126 << 8},
    };
    for (size_t i = 0; i < HF_COUNT(cases); i++) {
        struct sit s;
        sit_init(&s);
        char *argv[] = {hf_strdup(cases[i].command), NULL};
        sit_start(&s, -1, argv);
        sit_until(&s, &s.gone);
        assert_string_equal(s.order, "FG");
        assert_int_equal(s.exec_errno, cases[i].num);
        assert_int_equal(s.gone_status, cases[i].status);
        assert_int_equal(sit_number(&s, "exit", "exec_errno"), cases[i].num);
        expect_clean_end(&s);
        sit_release(&s);
        hf_free(argv[0]);
    }
}

/* The child writes its argv and environment, each with its NUL. PATH is the command's own. */
static void gives_bytes_unchanged(void **state)
{
    (void)state;
    struct sit s;
    sit_init(&s);
    HF_CLEANUP(hf_freep) char *link = hf_asprintf("%s/my-trainer", s.dir);
    HF_CLEANUP(hf_freep) char *path = hf_asprintf("PATH=/nowhere:%s", s.dir);
    assert_int_equal(symlink(self_path, link), 0);
    char name[] = "my-trainer";
    char role[] = "--child";
    char what[] = "dump";
    char empty[] = "";
    char odd[] = "a b\t\n\"'\\ \xff\xfe \xc3\xa9 --";
    char *argv[] = {name, role, what, empty, odd, empty, NULL};
    char e1[] = "EMPTY=";
    char e2[] = "RAW=\x01\xff\n";
    char e3[] = "no-equals-sign";
    char *env[] = {e1, path, e2, e3, e1, NULL};
    s.env = env;
    sit_start(&s, -1, argv);
    sit_until(&s, &s.gone);
    sit_collect(&s);
    assert_string_equal(s.order, "SXG");
    struct hf_buf want;
    hf_buf_init(&want, 65536);
    for (size_t i = 0; argv[i] != NULL; i++) {
        assert_int_equal(hf_buf_add(&want, argv[i], strlen(argv[i]) + 1, NULL), HF_OK);
    }
    for (size_t i = 0; env[i] != NULL; i++) {
        assert_int_equal(hf_buf_add(&want, env[i], strlen(env[i]) + 1, NULL), HF_OK);
    }
    assert_int_equal(s.out.len, want.len);
    assert_memory_equal(s.out.data, want.data, want.len);
    assert_true(sit_file_is(&s, HF_LOGRING_FIRST, hf_buf_span(&want)));
    hf_buf_release(&want);
    sit_release(&s);
}

static int child_dump(int argc, char **argv)
{
    for (int i = 0; i < argc; i++) {
        (void)fwrite(argv[i], 1, strlen(argv[i]) + 1, stdout);
    }
    for (size_t i = 0; environ[i] != NULL; i++) {
        (void)fwrite(environ[i], 1, strlen(environ[i]) + 1, stdout);
    }
    return 0;
}

/* Ten thousand arguments and a big environment do not fit the socket at once. */
static void gives_long_lists(void **state)
{
    (void)state;
    struct sit s;
    sit_init(&s);
    char **argv = hf_calloc(10006, sizeof argv[0]);
    argv[0] = hf_strdup("sh");
    argv[1] = hf_strdup("-c");
    argv[2] = hf_strdup("echo $# ${9999} ${#BIG}");
    for (int i = 3; i < 10005; i++) {
        argv[i] = hf_asprintf("argument-number-%d-of-many-of-them", i - 3);
    }
    char *big = hf_asprintf("BIG=%0100000d", 0);
    char *token = hf_asprintf("HOLDFAST_TOKEN=%s", s.token);
    char *env[] = {token, big, NULL};
    s.env = env;
    sit_start(&s, -1, argv);
    sit_until(&s, &s.gone);
    sit_collect(&s);
    assert_string_equal(hf_buf_str(&s.out), "10001 argument-number-9999-of-many-of-them 100000\n");
    for (int i = 0; i < 10005; i++) {
        hf_free(argv[i]);
    }
    hf_free(argv);
    hf_free(big);
    hf_free(token);
    sit_release(&s);
}

static void on_usr1(int sig)
{
    (void)sig;
}

/* Lists what the command got: dispositions, mask, umask, limit, niceness, folder, descriptors. */
static int child_state(void)
{
    sigset_t mask;
    (void)sigprocmask(SIG_SETMASK, NULL, &mask);
    printf("blocked:");
    for (int sig = 1; sig < NSIG; sig++) {
        if (sigismember(&mask, sig) == 1) {
            printf(" %d", sig);
        }
    }
    printf("\nignored:");
    for (int sig = 1; sig < NSIG; sig++) {
        struct sigaction act;
        if (sigaction(sig, NULL, &act) == 0 && act.sa_handler == SIG_IGN) {
            printf(" %d", sig);
        }
    }
    struct rlimit size = {0};
    (void)getrlimit(RLIMIT_FSIZE, &size);
    mode_t mode = umask(0);
    char cwd[4096] = "";
    printf("\numask: %03o\nfile size: %lu\nnice: %d\ncwd: %s\nfds:", (unsigned)mode,
           (unsigned long)size.rlim_cur, getpriority(PRIO_PROCESS, 0), getcwd(cwd, sizeof cwd));
    for (int fd = 0; fd < 1024; fd++) {
        if (fcntl(fd, F_GETFD) >= 0) {
            printf(" %d", fd);
        }
    }
    printf("\nleader: %d\n", getpgrp() == getpid());
    ssize_t n = write(EXTRA_FD, "extra", 5);
    close(EXTRA_FD); /* the test must see the end of the pipe while we live */
    (void)fflush(stdout);
    char c = 0;
    return n == 5 && read(STDIN_FILENO, &c, 1) == 1 && c == 'x' ? 0 : 1;
}

static void want_line(const struct sit *s, const char *fmt, long value)
{
    char line[128];
    snprintf(line, sizeof line, "%s%ld\n", fmt, value);
    if (strstr(hf_buf_str(&s->out), line) == NULL) {
        fail_msg("'%s' is not in '%s'", line, hf_buf_str(&s->out));
    }
}

/* "fds: 0 1 2 57\n", and what the test's own caller had left open for us. */
static void list_passed_on(struct hf_buf *b)
{
    assert_int_equal(hf_buf_addf(b, NULL, "fds:"), HF_OK);
    for (int fd = 0; fd < 1024; fd++) {
        int flags = fcntl(fd, F_GETFD);
        if (flags >= 0 && (flags & FD_CLOEXEC) == 0) {
            assert_int_equal(hf_buf_addf(b, NULL, " %d", fd), HF_OK);
        }
    }
    assert_int_equal(hf_buf_addf(b, NULL, "\n"), HF_OK);
}

/* What a supervisor does to itself (a handler, an ignored SIGPIPE, its mask) must not show. */
static void passes_its_inheritance_on(void **state)
{
    (void)state;
    struct sit s;
    sit_init(&s);
    struct sigaction ignore = {0};
    struct sigaction handle = {0};
    struct sigaction deflt = {0};
    ignore.sa_handler = SIG_IGN;
    handle.sa_handler = on_usr1;
    deflt.sa_handler = SIG_DFL;
    sigset_t usr2;
    sigemptyset(&usr2);
    sigaddset(&usr2, SIGUSR2);
    assert_int_equal(sigaction(SIGUSR1, &ignore, NULL), 0);
    assert_int_equal(sigprocmask(SIG_BLOCK, &usr2, NULL), 0);
    hf_inherited_take(&s.inherited);
    assert_int_equal(sigaction(SIGUSR1, &handle, NULL), 0);
    assert_int_equal(sigaction(SIGPIPE, &ignore, NULL), 0);
    assert_int_equal(sigprocmask(SIG_UNBLOCK, &usr2, NULL), 0);

    struct rlimit before;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    struct rlimit size = {.rlim_cur = FILE_LIMIT, .rlim_max = before.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &size), 0);
    mode_t mode = umask(0137);
    int nice_now = nice(1);
    int in[2];
    int extra[2];
    assert_int_equal(pipe2(in, O_CLOEXEC), 0);
    assert_int_equal(pipe2(extra, O_CLOEXEC), 0);
    assert_int_equal(fcntl(EXTRA_FD, F_GETFD), -1); /* the number is free, or the test is wrong */
    assert_int_equal(dup2(extra[1], EXTRA_FD), EXTRA_FD);
    close(extra[1]);
    struct hf_buf fds;
    hf_buf_init(&fds, 4096);
    list_passed_on(&fds);
    s.in = in[0];
    char role[] = "--child";
    char what[] = "state";
    char *argv[] = {self_path, role, what, NULL};
    sit_start(&s, -1, argv);
    close(EXTRA_FD);
    close(in[0]);
    umask(mode);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    assert_int_equal(sigaction(SIGPIPE, &deflt, NULL), 0);
    assert_int_equal(sigaction(SIGUSR1, &deflt, NULL), 0);

    sit_until_text(&s, &s.out, "leader");
    want_line(&s, "blocked: ", SIGUSR2);
    want_line(&s, "ignored: ", SIGUSR1);
    want_line(&s, "umask: ", 137);
    want_line(&s, "file size: ", FILE_LIMIT);
    want_line(&s, "nice: ", nice_now);
    assert_non_null(strstr(hf_buf_str(&s.out), hf_buf_str(&fds)));
    hf_buf_release(&fds);
    want_line(&s, "leader: ", 1);
    char cwd[4096];
    assert_non_null(getcwd(cwd, sizeof cwd));
    HF_CLEANUP(hf_freep) char *folder = hf_asprintf("cwd: %s\n", cwd);
    assert_non_null(strstr(hf_buf_str(&s.out), folder));
    char text[16] = "";
    assert_int_equal(read(extra[0], text, sizeof text), 5);
    assert_memory_equal(text, "extra", 5);
    assert_int_equal(read(extra[0], text, sizeof text), 0); /* the keeper holds no copy */
    assert_int_equal(s.exited, 0);
    assert_int_equal(write(in[1], "x", 1), 1);
    sit_until(&s, &s.gone);
    assert_int_equal(s.status, 0);
    close(in[1]);
    close(extra[0]);
    sit_release(&s);
}

static void keeps_two_streams_two(void **state)
{
    (void)state;
    struct sit s;
    sit_init(&s);
    sit_start_shell(&s, "echo one; echo two >&2; echo three; test -t 1 && echo tty");
    sit_until(&s, &s.gone);
    sit_collect(&s);
    assert_string_equal(hf_buf_str(&s.out), "one\nthree\n");
    assert_string_equal(hf_buf_str(&s.err), "two\n");
    sit_release(&s);
}

/* "2>&1" is one pipe: what is written to both stays in order. */
static void keeps_the_order_of_one_stream(void **state)
{
    (void)state;
    struct sit s;
    sit_init(&s);
    s.joined = true;
    sit_start_shell(&s, "for i in 1 2 3 4 5 6 7 8 9; do echo o$i; echo e$i >&2; done");
    sit_until(&s, &s.gone);
    sit_collect(&s);
    const char *want = "o1\ne1\no2\ne2\no3\ne3\no4\ne4\no5\ne5\no6\ne6\no7\ne7\no8\ne8\no9\ne9\n";
    assert_string_equal(hf_buf_str(&s.out), want);
    assert_int_equal(s.err.len, 0);
    assert_true(sit_file_is(&s, HF_LOGRING_FIRST, hf_buf_span(&s.out)));
    sit_release(&s);
}

/* Numbered lines, `bytes` of them, to stdout. */
static int child_lines(const char *bytes)
{
    long max = strtol(bytes, NULL, 10);
    long sum = 0;
    for (long i = 0; sum < max; i++) {
        sum += printf("line %ld\n", i);
    }
    return 0;
}

static void check_lines(const struct hf_buf *b, size_t min_len)
{
    assert_true(b->len >= min_len);
    size_t pos = 0;
    for (long i = 0; pos < b->len; i++) {
        char line[32];
        int n = snprintf(line, sizeof line, "line %ld\n", i);
        assert_true(b->len - pos >= (size_t)n);
        assert_memory_equal(b->data + pos, line, n);
        pos += (size_t)n;
    }
}

static void copies_ten_megabytes(void **state)
{
    (void)state;
    struct sit s;
    sit_init(&s);
    char role[] = "--child";
    char what[] = "lines";
    char bytes[] = "10485760";
    char *argv[] = {self_path, role, what, bytes, NULL};
    sit_start(&s, -1, argv);
    sit_until(&s, &s.gone);
    sit_collect(&s);
    check_lines(&s.out, 10485760);
    assert_true(sit_file_is(&s, HF_LOGRING_FIRST, hf_buf_span(&s.out)));
    sit_release(&s);
}

static size_t log_size(const struct sit *s)
{
    HF_CLEANUP(hf_freep) char *path = hf_asprintf("%s/" HF_LOGRING_FIRST, s->dir);
    struct stat st;
    return stat(path, &st) == 0 ? (size_t)st.st_size : 0;
}

/* A reader that does not read stops the command, not the keeper, and loses nothing. */
static void waits_for_a_slow_reader(void **state)
{
    (void)state;
    struct sit s;
    sit_init(&s);
    char role[] = "--child";
    char what[] = "lines";
    char bytes[] = "2000000";
    char *argv[] = {self_path, role, what, bytes, NULL};
    s.lazy = true;
    sit_start(&s, -1, argv);
    sit_until(&s, &s.started);
    size_t size = 0;
    uint64_t still_since = hf_now_ns();
    while (size == 0 || hf_now_ns() - still_since < 300 * HF_MS) {
        sit_once(&s);
        if (log_size(&s) != size) {
            size = log_size(&s);
            still_since = hf_now_ns();
        }
    }
    assert_int_equal(s.exited, 0);
    assert_true(size < 400000); /* our 64 KiB, and a pipe's, and no more */
    s.lazy = false;
    sit_until(&s, &s.gone);
    sit_collect(&s);
    check_lines(&s.out, 2000000);
    assert_int_equal(s.status, 0);
    sit_release(&s);
}

/* As without Holdfast, "| head" ends the command by SIGPIPE. */
static void passes_a_closed_reader_on(void **state)
{
    (void)state;
    struct sit s;
    sit_init(&s);
    sit_start_shell(&s, "exec yes");
    sit_until_text(&s, &s.out, "y\ny\n");
    hf_closep(&s.out_r);
    s.out_r = -1;
    sit_until(&s, &s.gone);
    assert_int_equal(s.status, SIGPIPE);
    sit_release(&s);
}

/* The log's disk is full: the command and its output do not notice. */
static void survives_a_full_log(void **state)
{
    (void)state;
    struct sit s;
    sit_init(&s);
    HF_CLEANUP(hf_freep) char *log = hf_asprintf("%s/" HF_LOGRING_FIRST, s.dir);
    assert_int_equal(symlink("/dev/full", log), 0);
    sit_start_shell(&s, "echo hello");
    sit_until(&s, &s.gone);
    sit_collect(&s);
    assert_string_equal(hf_buf_str(&s.out), "hello\n");
    assert_int_equal(s.status, 0);
    assert_int_equal(sit_number(&s, "exit", "log_dropped_bytes"), 6);
    assert_int_equal(s.log_dropped, 6);
    assert_int_equal(s.log_errno, ENOSPC);
    sit_release(&s);
}

static void refuses_a_bad_folder(void **state)
{
    (void)state;
    struct sit s;
    sit_init(&s);
    char dir[160]; /* longer than a socket's address, and missing */
    memset(dir, 'd', sizeof dir);
    dir[0] = '/';
    dir[sizeof dir - 1] = '\0';
    char name[] = "true";
    char *argv[] = {name, NULL};
    char *env[] = {NULL};
    struct hf_keeper_spec spec = {
        .dir = dir, .argv = argv, .env = env, .token = "t", .inherited = &s.inherited};
    struct hf_err err = {0};
    struct hf_keeper *k = NULL;
    struct hf_keeper_cb none = {0};
    assert_int_equal(hf_keeper_start(&s.loop, &spec, &none, NULL, &k, &err), HF_ENOTFOUND);
    assert_int_equal(hf_keeper_attach(&s.loop, dir, &none, NULL, &k, &err), HF_ENOTFOUND);
    assert_int_equal(hf_keeper_attach(&s.loop, s.dir, &none, NULL, &k, &err), HF_ENOTFOUND);
    spec.dir = "/no/such/folder";
    assert_int_equal(hf_keeper_start(&s.loop, &spec, &none, NULL, &k, &err), HF_ENOTFOUND);
    spec.dir = s.dir;
    argv[0] = NULL;
    assert_int_equal(hf_keeper_start(&s.loop, &spec, &none, NULL, &k, &err), HF_EINVAL);
    sit_release(&s);
}

static int run_child(int argc, char **argv)
{
    if (strcmp(argv[2], "dump") == 0) {
        return child_dump(argc, argv);
    }
    if (strcmp(argv[2], "state") == 0) {
        return child_state();
    }
    return argc > 3 ? child_lines(argv[3]) : 1;
}

int main(int argc, char **argv)
{
    if (hf_keeper_is_role(argc, argv)) {
        return hf_keeper_main(argc, argv);
    }
    if (argc > 2 && strcmp(argv[1], "--child") == 0) {
        return run_child(argc, argv);
    }
    if (readlink("/proc/self/exe", self_path, sizeof self_path - 1) < 0) {
        return 1;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(passes_statuses_on),
        cmocka_unit_test(tells_exec_errors),
        cmocka_unit_test(gives_bytes_unchanged),
        cmocka_unit_test(gives_long_lists),
        cmocka_unit_test(passes_its_inheritance_on),
        cmocka_unit_test(keeps_two_streams_two),
        cmocka_unit_test(keeps_the_order_of_one_stream),
        cmocka_unit_test(copies_ten_megabytes),
        cmocka_unit_test(waits_for_a_slow_reader),
        cmocka_unit_test(passes_a_closed_reader_on),
        cmocka_unit_test(survives_a_full_log),
        cmocka_unit_test(refuses_a_bad_folder),
    };
    return cmocka_run_group_tests_name("keeper", tests, NULL, NULL);
}
