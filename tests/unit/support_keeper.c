/* SPDX-License-Identifier: Apache-2.0
 *
 * The supervisor in a test: keeper callbacks written down, the command's outputs collected.
 */
#include "base/prelude.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/fsx.h"
#include "base/json.h"
#include "supervisor/tree.h"
#include "tests/unit/support_keeper.h"

static void note(struct sit *s, char letter)
{
    size_t len = strlen(s->order);
    assert_true(len + 1 < sizeof s->order);
    s->order[len] = letter;
    s->order[len + 1] = '\0';
}

static void on_started(void *user, int64_t pid, uint64_t exec_ns)
{
    struct sit *s = user;
    s->started++;
    s->pid = pid;
    s->exec_ns = exec_ns;
    note(s, 'S');
}

static void on_exec_failed(void *user, int num)
{
    struct sit *s = user;
    s->exec_failed++;
    s->exec_errno = num;
    note(s, 'F');
}

static void on_exited(void *user, int status, bool forced)
{
    struct sit *s = user;
    s->exited++;
    s->forced = forced;
    s->status = status;
    note(s, 'X');
}

static void on_stopped(void *user)
{
    struct sit *s = user;
    s->stopped++;
    note(s, 'Z');
}

static void on_interrupt(void *user)
{
    struct sit *s = user;
    s->interrupt++;
    note(s, 'I');
}

static void on_straggler(void *user, int64_t pid, const char *name, bool killed)
{
    struct sit *s = user;
    assert_true(pid > 0);
    size_t len = strlen(s->stragglers);
    snprintf(s->stragglers + len, sizeof s->stragglers - len, "%s:%d;", name, killed);
    note(s, killed ? 'K' : 'T');
}

static void on_gone(void *user, int status)
{
    struct sit *s = user;
    s->gone++;
    s->gone_status = status;
    note(s, 'G');
}

static void on_log_dropped(void *user, uint64_t bytes, int num)
{
    struct sit *s = user;
    s->log_dropped = bytes;
    s->log_errno = num;
    s->log_told++;
}

static void on_lost(void *user)
{
    struct sit *s = user;
    s->lost++;
    note(s, 'L');
}

static const struct hf_keeper_cb callbacks = {
    .started = on_started,
    .exec_failed = on_exec_failed,
    .exited = on_exited,
    .stopped = on_stopped,
    .interrupt = on_interrupt,
    .straggler = on_straggler,
    .gone = on_gone,
    .log_dropped = on_log_dropped,
    .lost = on_lost,
};

static void make_pipe(int *ret_read, int *ret_write)
{
    int ends[2];
    assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
    assert_int_equal(fcntl(ends[0], F_SETFL, O_NONBLOCK), 0);
    *ret_read = ends[0];
    *ret_write = ends[1];
}

void sit_init(struct sit *s)
{
    *s = (struct sit){.in = -1, .tty_out = -1};
    snprintf(s->dir, sizeof s->dir, "/tmp/hf-keeper-XXXXXX");
    assert_non_null(mkdtemp(s->dir));
    snprintf(s->token, sizeof s->token, "unit-%s", s->dir + strlen("/tmp/hf-keeper-"));
    assert_int_equal(hf_loop_init(&s->loop, NULL), HF_OK);
    hf_inherited_take(&s->inherited);
    s->linger_ms = 10000;
    s->log_limit = UINT64_C(1) << 30;
    make_pipe(&s->out_r, &s->out_w);
    make_pipe(&s->err_r, &s->err_w);
    hf_buf_init(&s->out, 64 * 1024 * 1024);
    hf_buf_init(&s->err, 64 * 1024 * 1024);
}

/* Descriptors 0, 1 and 2 are the command's while the keeper is made, then ours again. */
static void swap_in(const struct sit *s, int tty, int saved[3])
{
    (void)fflush(stdout);
    for (int fd = 0; fd < 3; fd++) {
        saved[fd] = fcntl(fd, F_DUPFD_CLOEXEC, 10);
        assert_true(saved[fd] >= 0);
    }
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    assert_true(dup2(tty >= 0 ? tty : (s->in >= 0 ? s->in : null), 0) == 0);
    assert_true(dup2(tty >= 0 ? tty : (s->tty_out >= 0 ? s->tty_out : s->out_w), 1) == 1);
    assert_true(dup2(tty >= 0 ? tty : (s->joined ? s->out_w : s->err_w), 2) == 2);
    close(null);
}

static void swap_out(const int saved[3])
{
    for (int fd = 0; fd < 3; fd++) {
        (void)dup2(saved[fd], fd);
        close(saved[fd]);
    }
}

static void close_writers(struct sit *s)
{
    hf_closep(&s->out_w);
    hf_closep(&s->err_w);
    s->out_w = s->err_w = -1;
}

void sit_start(struct sit *s, int tty, char *const *argv)
{
    char path[] = "PATH=/usr/local/bin:/usr/bin:/bin";
    HF_CLEANUP(hf_freep) char *entry = hf_asprintf("HOLDFAST_TOKEN=%s", s->token);
    char *plain[] = {path, entry, NULL};
    struct hf_keeper_spec spec = {.dir = s->dir,
                                  .argv = argv,
                                  .env = s->env != NULL ? s->env : plain,
                                  .token = s->token,
                                  .inherited = &s->inherited,
                                  .linger_ms = s->linger_ms,
                                  .log_limit = s->log_limit};
    struct hf_err err = {0};
    int saved[3];
    swap_in(s, tty, saved);
    enum hf_rc rc = hf_keeper_start(&s->loop, &spec, &callbacks, s, &s->k, &err);
    swap_out(saved);
    if (rc != HF_OK) {
        fail_msg("keeper: %s", err.msg);
    }
    assert_int_equal(strlen(s->order), 0);
    close_writers(s);
}

void sit_start_shell(struct sit *s, const char *script)
{
    char sh[] = "sh";
    char option[] = "-c";
    HF_CLEANUP(hf_freep) char *text = hf_strdup(script);
    char *argv[] = {sh, option, text, NULL};
    sit_start(s, -1, argv);
}

enum hf_rc sit_attach(struct sit *s, int tty, struct hf_err *err)
{
    hf_closep(&s->out_r);
    hf_closep(&s->err_r);
    close_writers(s);
    make_pipe(&s->out_r, &s->out_w);
    make_pipe(&s->err_r, &s->err_w);
    s->order[0] = '\0';
    int saved[3];
    swap_in(s, tty, saved);
    enum hf_rc rc = hf_keeper_attach(&s->loop, s->dir, &callbacks, s, &s->k, err);
    swap_out(saved);
    close_writers(s);
    return rc;
}

static bool collect(int *fd, struct hf_buf *b)
{
    char piece[65536];
    ssize_t n = *fd < 0 ? -1 : read(*fd, piece, sizeof piece);
    if (n > 0) {
        assert_int_equal(hf_buf_add(b, piece, (size_t)n, NULL), HF_OK);
    }
    if (n == 0) {
        close(*fd);
        *fd = -1;
    }
    return n > 0;
}

void sit_collect(struct sit *s)
{
    bool some = true;
    while (some) {
        some = collect(&s->out_r, &s->out);
        some = collect(&s->err_r, &s->err) || some;
    }
}

void sit_once(struct sit *s)
{
    (void)uv_run(&s->loop.uv, UV_RUN_NOWAIT);
    bool some = false;
    if (!s->lazy) {
        some = collect(&s->out_r, &s->out);
        some = collect(&s->err_r, &s->err) || some;
    }
    if (!some) {
        struct pollfd p[3] = {{.fd = uv_backend_fd(&s->loop.uv), .events = POLLIN},
                              {.fd = s->lazy ? -1 : s->out_r, .events = POLLIN},
                              {.fd = s->lazy ? -1 : s->err_r, .events = POLLIN}};
        (void)poll(p, HF_COUNT(p), 2);
    }
}

void sit_until(struct sit *s, const int *flag)
{
    uint64_t until = hf_now_ns() + SIT_WAIT_MS * HF_MS;
    while (*flag == 0) {
        if (hf_now_ns() > until) {
            fail_msg("nothing came; so far '%s', stragglers '%s', out '%s'", s->order,
                     s->stragglers, hf_buf_str(&s->out));
        }
        sit_once(s);
    }
}

void sit_until_text(struct sit *s, const struct hf_buf *b, const char *text)
{
    uint64_t until = hf_now_ns() + SIT_WAIT_MS * HF_MS;
    while (strstr(hf_buf_str(b), text) == NULL) {
        if (hf_now_ns() > until) {
            fail_msg("'%s' did not come; so far '%s', out '%s'", text, s->order, hf_buf_str(b));
        }
        sit_once(s);
    }
}

void sit_close(struct sit *s)
{
    hf_keeper_close(s->k);
    s->k = NULL;
    for (int i = 0; i < 3; i++) {
        (void)uv_run(&s->loop.uv, UV_RUN_NOWAIT);
    }
}

void sit_release(struct sit *s)
{
    struct hf_procs left = {0};
    assert_int_equal(hf_tree_by_token(s->token, &left, NULL), HF_OK);
    if (left.len > 0) {
        fail_msg("left over: %d '%s'", left.items[0].pid, left.items[0].name);
    }
    hf_procs_release(&left);
    sit_close(s);
    struct hf_err err = {0};
    if (hf_loop_close(&s->loop, &err) != HF_OK) {
        fail_msg("loop: %s", err.msg);
    }
    errno = 0;
    assert_int_equal(waitpid(-1, NULL, WNOHANG), -1);
    assert_int_equal(errno, ECHILD);
    close_writers(s);
    hf_closep(&s->out_r);
    hf_closep(&s->err_r);
    hf_buf_release(&s->out);
    hf_buf_release(&s->err);
    assert_int_equal(hf_fs_remove_tree(s->dir, NULL), HF_OK);
}

char *sit_file(const struct sit *s, const char *name)
{
    HF_CLEANUP(hf_freep) char *path = hf_asprintf("%s/%s", s->dir, name);
    struct hf_buf b;
    hf_buf_init(&b, 64 * 1024 * 1024);
    char *text = hf_fs_read(path, &b, NULL) == HF_OK ? hf_strndup(hf_buf_str(&b), b.len) : NULL;
    hf_buf_release(&b);
    return text;
}

bool sit_file_is(const struct sit *s, const char *name, struct hf_span want)
{
    HF_CLEANUP(hf_freep) char *path = hf_asprintf("%s/%s", s->dir, name);
    struct hf_buf b;
    hf_buf_init(&b, 64 * 1024 * 1024);
    bool same = hf_fs_read(path, &b, NULL) == HF_OK && b.len == want.len &&
                (want.len == 0 || memcmp(b.data, want.ptr, want.len) == 0);
    hf_buf_release(&b);
    return same;
}

int64_t sit_number(const struct sit *s, const char *name, const char *key)
{
    HF_CLEANUP(hf_freep) char *text = sit_file(s, name);
    if (text == NULL) {
        fail_msg("no file '%s'", name);
        return -1;
    }
    HF_CLEANUP(hf_json_freep) cJSON *json = NULL;
    int64_t n = -1;
    assert_int_equal(hf_json_parse((struct hf_span){text, strlen(text)}, 4096, &json, NULL), HF_OK);
    assert_int_equal(hf_json_get_int(json, key, INT64_MIN, INT64_MAX, &n, NULL), HF_OK);
    return n;
}
