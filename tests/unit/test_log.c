/* SPDX-License-Identifier: Apache-2.0
 *
 * base/log: the two formats, levels, hints, one write a line, and that a log never harms.
 */
#include "base/prelude.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/json.h"
#include "base/log.h"

/* A packet is one write(2). */
struct ends {
    int r, w;
};

static int setup(void **state)
{
    static struct ends e;
    int fds[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fds), 0);
    e = (struct ends){.r = fds[0], .w = fds[1]};
    *state = &e;
    return 0;
}

static int teardown(void **state)
{
    struct ends *e = *state;
    close(e->r);
    close(e->w);
    return 0;
}

/* The next line as it was written; "" when nothing was. */
static const char *next(const struct ends *e, char room[4096])
{
    ssize_t n = recv(e->r, room, 4095, 0);
    room[n > 0 ? n : 0] = '\0';
    return room;
}

static void text_lines(void **state)
{
    struct ends *e = *state;
    static const struct {
        enum hf_log_level level;
        const char *prefix;
        bool crlf;
        const char *line;
    } rows[] = {
        {HF_LOG_INFO, "holdfast: ", false, "holdfast: saved 7 files\n"},
        {HF_LOG_WARN, "holdfast: ", false, "holdfast: warning: saved 7 files\n"},
        {HF_LOG_ERROR, "holdfast: ", false, "holdfast: error: saved 7 files\n"},
        {HF_LOG_DEBUG, "holdfast: ", false, "holdfast: debug: saved 7 files\n"},
        {HF_LOG_INFO, NULL, false, "saved 7 files\n"},
        {HF_LOG_ERROR, "", true, "error: saved 7 files\r\n"},
    };
    for (size_t i = 0; i < HF_COUNT(rows); i++) {
        struct hf_log log = {.fd = e->w, .prefix = rows[i].prefix, .crlf = rows[i].crlf};
        char room[4096];
        hf_log(&log, rows[i].level, "saved %d files", 7);
        assert_string_equal(next(e, room), rows[i].line);
        assert_string_equal(next(e, room), "");
    }
}

/* What files and programs are called must not steer a terminal, or look like a line of ours. */
static void names_are_spelt_out(void **state)
{
    struct ends *e = *state;
    char room[4096];
    struct hf_log log = {.fd = e->w, .prefix = "hf: "};
    hf_log(&log, HF_LOG_INFO, "left: '%s'", "a\nhf: error: b\x1b[2J\xb6 实验");
    assert_string_equal(next(e, room), "hf: left: 'a\\nhf: error: b\\x1b[2J\\xb6 实验'\n");
}

static void levels(void **state)
{
    struct ends *e = *state;
    char room[4096];
    struct hf_err err = {.code = HF_EIO, .msg = "m"};
    for (int min = HF_LOG_DEBUG; min <= HF_LOG_ERROR; min++) {
        for (int level = HF_LOG_DEBUG; level <= HF_LOG_ERROR; level++) {
            struct hf_log log = {.fd = e->w, .min = (enum hf_log_level)min};
            hf_log(&log, (enum hf_log_level)level, "x");
            assert_int_equal(next(e, room)[0] != '\0', level >= min);
            hf_log_err(&log, (enum hf_log_level)level, &err, "x");
            assert_int_equal(next(e, room)[0] != '\0', level >= min);
        }
    }
    hf_log(NULL, HF_LOG_ERROR, "x");
    hf_log_err(NULL, HF_LOG_ERROR, &err, "x");
}

static void errors_and_hints(void **state)
{
    struct ends *e = *state;
    char room[4096];
    struct hf_log log = {.fd = e->w, .min = HF_LOG_INFO, .prefix = "hf: "};
    struct hf_err err = {.code = HF_EIO, .msg = "disk full", .hint = "Free some."};
    hf_log_err(&log, HF_LOG_WARN, &err, "save %d", 3);
    assert_string_equal(next(e, room), "hf: warning: save 3: disk full\n");
    assert_string_equal(next(e, room), "hf: Free some.\n");
    assert_string_equal(next(e, room), "");
    hf_log_err(&log, HF_LOG_ERROR, &err, "%s", "");
    assert_string_equal(next(e, room), "hf: error: disk full\n");
    assert_string_equal(next(e, room), "hf: Free some.\n");
    /* With -q the hint still follows its error. */
    log.min = HF_LOG_WARN;
    err.hint[0] = '\0';
    hf_log_err(&log, HF_LOG_ERROR, &err, "save");
    assert_string_equal(next(e, room), "hf: error: save: disk full\n");
    assert_string_equal(next(e, room), "");
    snprintf(err.hint, sizeof(err.hint), "Free some.");
    hf_log_err(&log, HF_LOG_ERROR, &err, "save");
    assert_string_equal(next(e, room), "hf: error: save: disk full\n");
    assert_non_null(strstr(next(e, room), "Free some.\n"));
}

static void json_lines(void **state)
{
    struct ends *e = *state;
    char room[4096];
    static const char *const names[] = {"debug", "info", "warning", "error"};
    for (int level = HF_LOG_DEBUG; level <= HF_LOG_ERROR; level++) {
        struct hf_log log = {
            .fd = e->w, .format = HF_LOG_JSON, .prefix = "holdfast: ", .crlf = true};
        hf_log(&log, (enum hf_log_level)level, "a \"%s\"\n\xff", "b");
        next(e, room);
        size_t len = strlen(room);
        assert_true(len > 0 && room[len - 1] == '\n' && strchr(room, '\n') == room + len - 1);
        cJSON *obj = NULL;
        struct hf_err err;
        assert_int_equal(hf_json_parse((struct hf_span){room, len}, 4096, &obj, &err), HF_OK);
        assert_string_equal(hf_json_opt_str(obj, "level", ""), names[level]);
        assert_string_equal(hf_json_opt_str(obj, "msg", ""), "a \"b\"\n\xef\xbf\xbd");
        int64_t ms = 0;
        assert_int_equal(hf_utc_parse(hf_json_opt_str(obj, "ts", ""), &ms, &err), HF_OK);
        hf_json_free(obj);
    }
}

static void long_lines_are_cut(void **state)
{
    struct ends *e = *state;
    char room[4096];
    char text[3000];
    memset(text, 'm', sizeof(text) - 1);
    text[sizeof(text) - 1] = '\0';
    for (int crlf = 0; crlf < 2; crlf++) {
        struct hf_log log = {.fd = e->w, .prefix = "p: ", .crlf = crlf == 1};
        hf_log(&log, HF_LOG_WARN, "%s", text);
        size_t len = strlen(next(e, room));
        assert_true(len > 1000 && len < 1500);
        assert_int_equal(room[len - 1], '\n');
        assert_int_equal(room[len - 2] == '\r', crlf == 1);
    }
    struct hf_log log = {.fd = e->w, .prefix = text};
    hf_log(&log, HF_LOG_WARN, "%s", text);
    size_t len = strlen(next(e, room));
    assert_true(len > 1000 && len < 1500 && room[len - 1] == '\n');
    log = (struct hf_log){.fd = e->w, .format = HF_LOG_JSON};
    hf_log(&log, HF_LOG_WARN, "%s", text);
    next(e, room);
    cJSON *obj = NULL;
    assert_int_equal(hf_json_parse((struct hf_span){room, strlen(room)}, 4096, &obj, NULL), HF_OK);
    hf_json_free(obj);
}

static void never_harms(void **state)
{
    struct ends *e = *state;
    struct hf_err err = {.code = HF_EIO, .msg = "m", .hint = "h"};
    static const int bad[] = {-1, 9999};
    for (size_t i = 0; i < HF_COUNT(bad); i++) {
        struct hf_log log = {.fd = bad[i]};
        errno = ENOTTY;
        hf_log(&log, HF_LOG_ERROR, "dropped");
        hf_log_err(&log, HF_LOG_ERROR, &err, "dropped");
        log.format = HF_LOG_JSON;
        hf_log(&log, HF_LOG_ERROR, "dropped");
        assert_int_equal(errno, ENOTTY);
    }
    struct hf_log log = {.fd = e->w};
    errno = ENOTTY;
    hf_log(&log, HF_LOG_ERROR, "written");
    assert_int_equal(errno, ENOTTY);
}

int main(void)
{
#define CASE(fn) cmocka_unit_test_setup_teardown(fn, setup, teardown)
    const struct CMUnitTest tests[] = {
        CASE(text_lines), CASE(names_are_spelt_out), CASE(levels),      CASE(errors_and_hints),
        CASE(json_lines), CASE(long_lines_are_cut),  CASE(never_harms),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
