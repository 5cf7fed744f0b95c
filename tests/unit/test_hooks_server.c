/* SPDX-License-Identifier: Apache-2.0
 *
 * The server against clients that are written out by hand: what a stranger's client may send, in
 * and out of order. The control file is looked at and played with as a rank would.
 */
#include "base/prelude.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/fsx.h"
#include "hooks/c/agree_step.h"
#include "hooks/server.h"
#include "tests/unit/support_loop.h"

#define PATIENT 10000

struct bench {
    struct hf_loop loop;
    struct hf_hooks *hooks;
    char dir[64], sock[80], file[80];
    struct hfw_head *head;
    struct hfw_slot *slots;
    uint32_t n_joined, n_saved, n_ended, n_done, n_resumed;
    uint64_t save_request;
    int64_t save_step;
    size_t save_paths;
    enum hf_request_end ended;
    char why[256];
    bool close_in_saved;
    int fd; /* the client that `wanted` is awaited from */
    const char *wanted;
    char got[HFW_LINE_BYTES];
    size_t got_len;
    bool eof;
};

static void on_joined(void *user, uint32_t rank, uint32_t world, uint32_t life, const char *fw)
{
    (void)rank, (void)world, (void)life, (void)fw;
    ((struct bench *)user)->n_joined++;
}

static void on_saved(void *user, const struct hf_hook_save *save)
{
    struct bench *b = user;
    b->n_saved++;
    b->save_request = save->request;
    b->save_step = save->step;
    b->save_paths = save->paths.len;
    if (b->close_in_saved) {
        hf_hooks_close(b->hooks);
        b->hooks = NULL;
    }
}

static void on_ended(void *user, uint64_t request, enum hf_request_end how, const char *why)
{
    struct bench *b = user;
    (void)request;
    b->n_ended++;
    b->ended = how;
    snprintf(b->why, sizeof b->why, "%s", why);
}

static void on_resumed(void *user, uint32_t rank, int64_t step)
{
    (void)rank, (void)step;
    ((struct bench *)user)->n_resumed++;
}

static void on_done(void *user)
{
    ((struct bench *)user)->n_done++;
}

static enum hf_rc open_attempt(struct bench *b, uint32_t attempt, struct hf_err *err)
{
    static const struct hf_hooks_cb cb = {.joined = on_joined,
                                          .saved = on_saved,
                                          .request_ended = on_ended,
                                          .resumed = on_resumed,
                                          .done = on_done};
    struct hf_hooks_cfg cfg = {
        .dir = b->dir, .run = "r", .attempt = attempt, .save_dir = b->dir, .resume_step = -1};
    return hf_hooks_open(&b->loop, &cfg, &cb, b, &b->hooks, err);
}

static void map(struct bench *b)
{
    int fd = open(b->file, O_RDWR | O_CLOEXEC);
    assert_true(fd >= 0);
    b->head = mmap(NULL, HFW_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    assert_ptr_not_equal(b->head, MAP_FAILED);
    b->slots = (struct hfw_slot *)(b->head + 1);
    close(fd);
}

static int setup(void **state)
{
    struct bench *b = test_calloc(1, sizeof *b);
    snprintf(b->dir, sizeof b->dir, "/tmp/hfsXXXXXX");
    assert_non_null(mkdtemp(b->dir));
    snprintf(b->sock, sizeof b->sock, "%s/s", b->dir);
    snprintf(b->file, sizeof b->file, "%s/c", b->dir);
    assert_int_equal(hf_loop_init(&b->loop, NULL), HF_OK);
    assert_int_equal(open_attempt(b, 1, NULL), HF_OK);
    map(b);
    *state = b;
    return 0;
}

static int teardown(void **state)
{
    struct bench *b = *state;
    hf_hooks_close(b->hooks);
    hf_test_loop_close(&b->loop);
    munmap(b->head, HFW_SIZE);
    assert_int_equal(hf_fs_remove_tree(b->dir, NULL), HF_OK);
    test_free(b);
    return 0;
}

static int dial(struct bench *b)
{
    struct sockaddr_un addr = {.sun_family = AF_UNIX};
    memcpy(addr.sun_path, b->sock, strlen(b->sock) + 1);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&addr, sizeof addr), 0);
    return fd;
}

static void say(int fd, const char *text)
{
    assert_int_equal(send(fd, text, strlen(text), MSG_NOSIGNAL), (ssize_t)strlen(text));
}

static bool heard(void *user)
{
    struct bench *b = user;
    ssize_t n = recv(b->fd, b->got + b->got_len, sizeof b->got - 1 - b->got_len, 0);
    b->eof |= n == 0 || (n < 0 && errno != EAGAIN);
    b->got_len += n > 0 ? (size_t)n : 0;
    b->got[b->got_len] = '\0';
    return b->wanted ? strstr(b->got, b->wanted) != NULL : b->eof;
}

/* Runs the loop until the text has come from fd; NULL: until the server has closed it. */
static void expect(struct bench *b, int fd, const char *text)
{
    b->fd = fd;
    b->wanted = text;
    b->got_len = 0;
    b->eof = false;
    if (!hf_test_run_until(&b->loop, heard, b, PATIENT)) {
        fail_msg("'%s' did not come, but '%s'", text ? text : "end", b->got);
    }
}

static int join(struct bench *b, uint32_t rank, uint32_t world, const char *token)
{
    char line[300];
    int fd = dial(b);
    snprintf(line, sizeof line,
             "{\"msg\":\"hello\",\"protocol\":1,\"rank\":%u,\"world\":%u,\"pid\":1,"
             "\"token\":\"%s\"}\n",
             rank, world, token);
    say(fd, line);
    expect(b, fd, "\"msg\":\"welcome\"");
    return fd;
}

#define TOKEN_A "aaaaaaaaaaaaaaaa"
#define TOKEN_B "bbbbbbbbbbbbbbbb"

static bool is_saved(void *user)
{
    return ((struct bench *)user)->n_saved > 0;
}

static bool is_ended(void *user)
{
    return ((struct bench *)user)->n_ended > 0;
}

static bool is_done(void *user)
{
    return ((struct bench *)user)->n_done > 0;
}

#define RUN_UNTIL(b, cond) assert_true(hf_test_run_until(&(b)->loop, cond, (b), PATIENT))

static enum hf_rc ask(struct bench *b, struct hf_err *err)
{
    uint64_t id;
    return hf_hooks_request(b->hooks, 0, false, "why", &id, err);
}

/* --- tests ---------------------------------------------------------------- */

static void test_files(void **state)
{
    struct bench *b = *state;
    struct stat st;
    assert_int_equal(stat(b->file, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0600);
    assert_int_equal(st.st_size, HFW_SIZE);
    assert_true((size_t)st.st_blocks * 512 >= HFW_SIZE); /* no hole to die of */
    assert_int_equal(lstat(b->sock, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0600);
    hf_hooks_close(b->hooks);
    b->hooks = NULL;
    assert_int_equal(lstat(b->sock, &st), -1);
    assert_int_equal(stat(b->file, &st), 0);
}

static void test_foreign_control_file(void **state)
{
    struct bench *b = *state;
    struct hf_err err = {0};
    hf_hooks_close(b->hooks);
    b->hooks = NULL;
    assert_int_equal(open_attempt(b, 2, &err), HF_ECORRUPT);
    assert_non_null(strstr(err.msg, "is of attempt 1, not 2"));
    b->head->version = 9;
    assert_int_equal(open_attempt(b, 1, &err), HF_ECORRUPT);
    b->head->version = HFW_VERSION;
    assert_int_equal(truncate(b->file, 100), 0);
    assert_int_equal(open_attempt(b, 1, &err), HF_ECORRUPT);
    assert_int_equal(truncate(b->file, (off_t)HFW_SIZE), 0); /* it is mapped here */
}

static void test_long_socket_path(void **state)
{
    struct bench *b = *state;
    char dir[200];
    snprintf(dir, sizeof dir, "%s/%0120d", b->dir, 7);
    struct hf_hooks_cb cb = {0};
    struct hf_hooks_cfg cfg = {.dir = dir, .run = "r", .attempt = 1, .save_dir = b->dir};
    struct hf_hooks *other = NULL;
    struct hf_err err = {0};
    assert_int_equal(hf_hooks_open(&b->loop, &cfg, &cb, b, &other, &err), HF_OK);
    char *path = hf_asprintf("%s/s", dir);
    struct stat st;
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0600);
    hf_hooks_close(other);
    assert_int_equal(stat(path, &st), -1);
    hf_free(path);
}

static void test_bad_clients_are_dropped_alone(void **state)
{
    struct bench *b = *state;
    int good = join(b, 0, 1, TOKEN_A);
    static const char *const bad[] = {"nonsense\n", "{\"msg\":\"hello\"}\n", "[]\n", "\n"};
    for (size_t i = 0; i < HF_COUNT(bad); i++) {
        int fd = dial(b);
        say(fd, bad[i]);
        expect(b, fd, NULL);
        close(fd);
    }
    int fd = dial(b);
    char chunk[4097];
    memset(chunk, 'x', sizeof chunk - 1);
    chunk[sizeof chunk - 1] = '\0';
    for (size_t sent = 0; sent <= HFW_LINE_BYTES; sent += sizeof chunk - 1) {
        say(fd, chunk); /* a line without an end */
    }
    expect(b, fd, NULL);
    close(fd);
    say(good, "{\"msg\":\"new thing\"}\n");
    expect(b, good, "{\"msg\":\"unsupported\",\"what\":\"new thing\"}\n");
    close(good);
}

static void test_line_of_exactly_the_limit(void **state)
{
    struct bench *b = *state;
    int fd = dial(b);
    static char line[HFW_LINE_BYTES + 1];
    memset(line, ' ', HFW_LINE_BYTES);
    memcpy(line, "{\"msg\":\"x\"}", 11);
    line[HFW_LINE_BYTES - 1] = '\n';
    say(fd, line);
    expect(b, fd, "unsupported");
    close(fd);
}

/* Known by the socket's credentials, not by what a hello says; gone when they have left. */
static void test_peers(void **state)
{
    struct bench *b = *state;
    struct hf_hook_peer peers[4];
    assert_int_equal(hf_hooks_peers(b->hooks, peers, 4), 0);
    int fd = join(b, 0, 2, TOKEN_A);
    int other = join(b, 1, 2, TOKEN_B);
    assert_int_equal(hf_hooks_peers(b->hooks, peers, 4), 2);
    assert_int_equal(peers[0].rank + peers[1].rank, 1);
    assert_int_equal(peers[0].pid, getpid());
    assert_int_equal(hf_hooks_peers(b->hooks, peers, 1), 1);
    say(fd, "{\"msg\":\"bye\"}\n{\"msg\":\"x\"}\n");
    expect(b, fd, "unsupported");
    assert_int_equal(hf_hooks_peers(b->hooks, peers, 4), 1);
    assert_int_equal(peers[0].rank, 1);
    close(other);
    close(fd);
}

static void test_order_of_messages(void **state)
{
    struct bench *b = *state;
    int fd = dial(b);
    say(fd, "{\"msg\":\"done\"}\n");
    expect(b, fd, "refused");
    say(fd, "{\"msg\":\"saved\",\"id\":0,\"step\":1,\"paths\":[\"/a\"]}\n");
    expect(b, fd, "refused");
    close(fd);
    fd = join(b, 0, 1, TOKEN_A);
    say(fd,
        "{\"msg\":\"hello\",\"protocol\":1,\"rank\":0,\"world\":1,\"pid\":1,\"token\":\"" TOKEN_A
        "\"}\n");
    expect(b, fd, "refused");
    assert_int_equal(b->n_joined, 1);
    assert_int_equal(b->n_saved, 0);
    close(fd);
}

static void test_split_lines(void **state)
{
    struct bench *b = *state;
    int fd = join(b, 0, 1, TOKEN_A);
    say(fd, "{\"msg\":\"sav");
    say(fd, "ed\",\"id\":0,\"step\":1,\"paths\":[\"/a\"]}\n{\"msg\":");
    RUN_UNTIL(b, is_saved);
    say(fd, "\"done\"}\n");
    RUN_UNTIL(b, is_done);
    assert_int_equal(b->n_done, 1);
    close(fd);
}

/* Told again after a reconnection: counted once. */
static void test_told_again(void **state)
{
    struct bench *b = *state;
    const char *line = "{\"msg\":\"saved\",\"id\":0,\"step\":1,\"paths\":[\"/a\"]}\n";
    int first = join(b, 0, 2, TOKEN_A);
    int other = join(b, 1, 2, TOKEN_B);
    say(first, line);
    close(first);
    first = join(b, 0, 2, TOKEN_A);
    say(first, line);
    say(first, "{\"msg\":\"x\"}\n");
    expect(b, first, "unsupported");
    assert_int_equal(b->n_saved, 0); /* rank 0 twice is not rank 0 and rank 1 */
    say(other, "{\"msg\":\"saved\",\"id\":0,\"step\":1,\"paths\":[\"/b\",\"/a\"]}\n");
    RUN_UNTIL(b, is_saved);
    assert_int_equal(b->save_paths, 2);
    say(other, "{\"msg\":\"saved\",\"id\":0,\"step\":1,\"paths\":[\"/b\",\"/a\"]}\n");
    say(other, "{\"msg\":\"x\"}\n");
    expect(b, other, "unsupported");
    assert_int_equal(b->n_saved, 1);
    assert_int_equal(b->n_joined, 2);
    close(first);
    close(other);
}

static void test_turns_and_requests_do_not_mix(void **state)
{
    struct bench *b = *state;
    int a = join(b, 0, 2, TOKEN_A);
    int c = join(b, 1, 2, TOKEN_B);
    say(a, "{\"msg\":\"saved\",\"id\":0,\"step\":1,\"turn\":1,\"paths\":[\"/a\"]}\n");
    say(c, "{\"msg\":\"saved\",\"id\":0,\"step\":1,\"turn\":0,\"paths\":[\"/a\"]}\n"
           "{\"msg\":\"saved\",\"id\":0,\"step\":2,\"turn\":1,\"paths\":[\"/a\"]}\n"
           "{\"msg\":\"x\"}\n");
    expect(b, c, "unsupported");
    assert_int_equal(b->n_saved, 0);
    say(c, "{\"msg\":\"saved\",\"id\":0,\"step\":1,\"turn\":1,\"paths\":[\"/a\"]}\n");
    RUN_UNTIL(b, is_saved);
    assert_int_equal(b->save_step, 1);
    close(a);
    close(c);
}

static void test_request_needs_everybody(void **state)
{
    struct bench *b = *state;
    struct hf_err err = {0};
    assert_int_equal(ask(b, &err), HF_ENOTFOUND);
    int a = join(b, 0, 2, TOKEN_A);
    b->slots[0].step = 3;
    assert_int_equal(ask(b, &err), HF_ECANCELED);
    assert_non_null(strstr(err.msg, "only 1 of 2 ranks"));
    assert_int_equal(hfw_state(b->head->word), HFW_IDLE);
    int c = join(b, 1, 2, TOKEN_B);
    assert_int_equal(ask(b, &err), HF_OK);
    assert_int_equal(hfw_state(b->head->word), HFW_TARGET);
    assert_true(hfw_step(b->head->word) == 4 || hfw_step(b->head->word) == 5);
    assert_string_equal(b->head->reason, "why");
    assert_int_equal(b->head->leave, 0);
    assert_int_equal(ask(b, &err), HF_EAGAIN);
    close(a);
    close(c);
}

static void test_worlds_differ(void **state)
{
    struct bench *b = *state;
    struct hf_err err = {0};
    int a = join(b, 0, 2, TOKEN_A);
    int c = join(b, 1, 3, TOKEN_B);
    assert_int_equal(ask(b, &err), HF_ECANCELED);
    assert_non_null(strstr(err.msg, "disagree"));
    close(a);
    close(c);
}

/* Ranks that went on from different steps hold different trainings: nothing of them is kept. */
static void test_resume_clash(void **state)
{
    struct bench *b = *state;
    struct hf_err err = {0};
    int a = join(b, 0, 2, TOKEN_A);
    int c = join(b, 1, 2, TOKEN_B);
    say(a, "{\"msg\":\"resumed\",\"step\":10}\n"
           "{\"msg\":\"saved\",\"id\":0,\"step\":11,\"paths\":[\"/a\"]}\n{\"msg\":\"x\"}\n");
    expect(b, a, "unsupported");
    say(c, "{\"msg\":\"resumed\",\"step\":0}\n"
           "{\"msg\":\"saved\",\"id\":0,\"step\":11,\"paths\":[\"/a\"]}\n{\"msg\":\"x\"}\n");
    expect(b, c, "unsupported");
    assert_int_equal(b->n_resumed, 2);
    assert_int_equal(b->n_saved, 0);
    b->slots[0].step = b->slots[1].step = 12;
    assert_int_equal(ask(b, &err), HF_ECANCELED);
    assert_non_null(strstr(err.msg, "resumed from different steps"));
    close(a);
    close(c);
}

static void test_leaver_is_no_member(void **state)
{
    struct bench *b = *state;
    struct hf_err err = {0};
    int fd = join(b, 0, 1, TOKEN_A);
    b->slots[0].step = 1;
    say(fd, "{\"msg\":\"bye\"}\n{\"msg\":\"x\"}\n");
    expect(b, fd, "unsupported");
    assert_int_equal(ask(b, &err), HF_ENOTFOUND);
    close(fd);
}

/* A request whose save names nothing has saved nothing. */
static void test_save_without_files(void **state)
{
    struct bench *b = *state;
    int fd = join(b, 0, 1, TOKEN_A);
    b->slots[0].step = 1;
    assert_int_equal(ask(b, NULL), HF_OK);
    int64_t target = hfw_step(b->head->word);
    char line[200];
    snprintf(line, sizeof line, "{\"msg\":\"saved\",\"id\":%u,\"step\":%lld,\"paths\":[]}\n",
             hfw_id(b->head->word), (long long)target);
    b->slots[0].saved = b->head->word;
    b->slots[0].step = target;
    say(fd, line);
    RUN_UNTIL(b, is_ended);
    assert_int_equal(b->ended, HF_REQUEST_CANCELED);
    assert_non_null(strstr(b->why, "no rank named a file"));
    assert_int_equal(hfw_state(b->head->word), HFW_IDLE);
    close(fd);
}

static void test_save_elsewhere_is_its_own(void **state)
{
    struct bench *b = *state;
    int fd = join(b, 0, 1, TOKEN_A);
    b->slots[0].step = 1;
    assert_int_equal(ask(b, NULL), HF_OK);
    char line[200];
    snprintf(line, sizeof line, "{\"msg\":\"saved\",\"id\":%u,\"step\":1,\"paths\":[\"/a\"]}\n",
             hfw_id(b->head->word));
    say(fd, line);
    RUN_UNTIL(b, is_saved);
    assert_int_equal(b->save_request, 0);
    assert_int_equal(b->n_ended, 0);
    close(fd);
}

static void test_rank_that_skips_the_save(void **state)
{
    struct bench *b = *state;
    int fd = join(b, 0, 1, TOKEN_A);
    b->slots[0].step = 1;
    assert_int_equal(ask(b, NULL), HF_OK);
    b->slots[0].step = hfw_step(b->head->word) + 1;
    RUN_UNTIL(b, is_ended);
    assert_int_equal(b->ended, HF_REQUEST_CANCELED);
    assert_non_null(strstr(b->why, "without saving"));
    close(fd);
}

/* Another process keeps the lock: the request is void, and a later one works. */
static void test_lock_is_kept(void **state)
{
    struct bench *b = *state;
    struct hf_err err = {0};
    int fd = join(b, 0, 1, TOKEN_A);
    b->slots[0].step = 1;
    int lock = open(b->file, O_RDWR | O_CLOEXEC);
    assert_int_equal(flock(lock, LOCK_EX), 0);
    assert_int_equal(ask(b, &err), HF_ECANCELED);
    assert_non_null(strstr(err.msg, "keeps the lock"));
    assert_int_equal(hfw_state(b->head->word), HFW_RAISED);
    assert_int_equal(ask(b, &err), HF_ECANCELED);
    close(lock);
    assert_int_equal(ask(b, &err), HF_OK);
    assert_int_equal(hfw_state(b->head->word), HFW_TARGET);
    close(fd);
}

static void test_undecided_is_cancelled_at_start(void **state)
{
    struct bench *b = *state;
    hf_hooks_close(b->hooks);
    b->head->word = hfw_pack(HFW_RAISED, 41, 0);
    uint32_t epoch = b->head->epoch;
    assert_int_equal(open_attempt(b, 1, NULL), HF_OK);
    assert_int_equal(b->head->epoch, epoch + 1);
    assert_int_equal(hfw_state(b->head->word), HFW_IDLE);
    assert_int_equal(hfw_step(b->head->word), epoch + 1);
    int fd = join(b, 0, 1, TOKEN_A);
    b->slots[0].step = 1;
    uint64_t id = 0;
    assert_int_equal(hf_hooks_request(b->hooks, 0, false, "", &id, NULL), HF_OK);
    assert_int_equal(id, 42); /* ids go on, so that no rank takes one for another */
    close(fd);
}

static void test_ids_skip_zero(void **state)
{
    struct bench *b = *state;
    hf_hooks_close(b->hooks);
    b->head->word = hfw_pack(HFW_IDLE, 0xffff, 1);
    assert_int_equal(open_attempt(b, 1, NULL), HF_OK);
    int fd = join(b, 0, 1, TOKEN_A);
    b->slots[0].step = 1;
    assert_int_equal(ask(b, NULL), HF_OK);
    assert_int_equal(hfw_id(b->head->word), 1);
    close(fd);
}

static void test_release_without_request(void **state)
{
    struct bench *b = *state;
    struct hf_err err = {0};
    int fd = join(b, 0, 1, TOKEN_A);
    b->slots[0].step = 1;
    hf_hooks_hurry(b->hooks, 1, true); /* nothing in flight: nothing happens */
    assert_int_equal(hfw_state(b->head->word), HFW_IDLE);
    hf_hooks_release(b->hooks, true);
    assert_int_equal(hfw_state(b->head->word), HFW_LEAVE);
    assert_int_equal(ask(b, &err), HF_ECANCELED);
    assert_non_null(strstr(err.msg, "told to leave"));
    hf_hooks_release(b->hooks, false);
    assert_int_equal(hfw_state(b->head->word), HFW_IDLE);
    assert_int_equal(ask(b, &err), HF_OK);
    close(fd);
}

static void test_hurry(void **state)
{
    struct bench *b = *state;
    int fd = join(b, 0, 1, TOKEN_A);
    b->slots[0].step = 1;
    assert_int_equal(ask(b, NULL), HF_OK);
    uint64_t deadline = b->head->deadline_ns;
    hf_hooks_hurry(b->hooks, deadline + 1, false);
    assert_int_equal(b->head->deadline_ns, deadline); /* never later */
    hf_hooks_hurry(b->hooks, hf_now_ns() + 20 * HF_MS, true);
    assert_true(b->head->deadline_ns < deadline);
    assert_int_equal(b->head->leave, hfw_id(b->head->word));
    RUN_UNTIL(b, is_ended);
    assert_int_equal(b->ended, HF_REQUEST_EXPIRED);
    assert_int_equal(hfw_state(b->head->word), HFW_IDLE);
    close(fd);
}

static void test_close_inside_a_callback(void **state)
{
    struct bench *b = *state;
    int fd = join(b, 0, 1, TOKEN_A);
    b->close_in_saved = true;
    say(fd, "{\"msg\":\"saved\",\"id\":0,\"step\":1,\"paths\":[\"/a\"]}\n{\"msg\":\"done\"}\n");
    RUN_UNTIL(b, is_saved);
    assert_int_equal(b->n_done, 0);
    close(fd);
}

/* A client that never reads is dropped before it costs much. */
static void test_deaf_client(void **state)
{
    struct bench *b = *state;
    int fd = dial(b);
    char batch[16 * 13 + 1] = "";
    for (int i = 0; i < 16; i++) {
        memcpy(batch + 12 * i, "{\"msg\":\"x\"}\n", 13);
    }
    bool dropped = false;
    uint64_t limit = hf_now_ns() + PATIENT * HF_MS;
    while (!dropped && hf_now_ns() < limit) {
        dropped = send(fd, batch, strlen(batch), MSG_NOSIGNAL) < 0 && errno == EPIPE;
        uv_run(&b->loop.uv, UV_RUN_NOWAIT);
    }
    assert_true(dropped);
    close(fd);
}

static void test_slots_run_out(void **state)
{
    struct bench *b = *state;
    int fds[HFW_SLOTS];
    char token[17];
    for (uint32_t i = 0; i < HFW_SLOTS; i++) {
        snprintf(token, sizeof token, "%016x", i);
        fds[i] = join(b, i, 200, token);
    }
    int fd = dial(b);
    say(fd, "{\"msg\":\"hello\",\"protocol\":1,\"rank\":199,\"world\":200,\"pid\":1,\"token\":"
            "\"" TOKEN_A "\"}\n");
    expect(b, fd, "slots are taken");
    close(fd);
    for (uint32_t i = 0; i < HFW_SLOTS; i++) {
        close(fds[i]);
    }
}

int main(void)
{
#define TEST(fn) cmocka_unit_test_setup_teardown(fn, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(test_files),
        TEST(test_foreign_control_file),
        TEST(test_long_socket_path),
        TEST(test_bad_clients_are_dropped_alone),
        TEST(test_line_of_exactly_the_limit),
        TEST(test_peers),
        TEST(test_order_of_messages),
        TEST(test_split_lines),
        TEST(test_told_again),
        TEST(test_turns_and_requests_do_not_mix),
        TEST(test_request_needs_everybody),
        TEST(test_worlds_differ),
        TEST(test_resume_clash),
        TEST(test_leaver_is_no_member),
        TEST(test_save_without_files),
        TEST(test_save_elsewhere_is_its_own),
        TEST(test_rank_that_skips_the_save),
        TEST(test_lock_is_kept),
        TEST(test_undecided_is_cancelled_at_start),
        TEST(test_ids_skip_zero),
        TEST(test_release_without_request),
        TEST(test_hurry),
        TEST(test_close_inside_a_callback),
        TEST(test_deaf_client),
        TEST(test_slots_run_out),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
