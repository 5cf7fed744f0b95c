/* SPDX-License-Identifier: Apache-2.0
 *
 * Commands in the test's own process, see the header.
 */
#include "base/prelude.h"

#include <ctype.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/buf.h"
#include "base/json.h"
#include "supervisor/cmd.h"
#include "tests/unit/support_cmd.h"

#define WORDS_MAX 16

static char *all_of(int fd)
{
    off_t len = lseek(fd, 0, SEEK_END);
    assert_true(len >= 0);
    char *text = hf_calloc((size_t)len + 1, 1);
    assert_int_equal(pread(fd, text, (size_t)len, 0), len);
    return text;
}

struct told tell(const char *const *words)
{
    static char *const env[] = {"HOME=/nonexistent", NULL};
    static struct hf_inherited inherited;
    struct told t = {0};
    size_t out_len = 0;
    char *argv[WORDS_MAX + 2] = {"holdfast"};
    int argc = 1;
    for (size_t i = 0; words[i] != NULL; i++) {
        assert_true(argc <= WORDS_MAX);
        argv[argc++] = hf_strdup(words[i]);
    }
    int fd = memfd_create("stderr", MFD_CLOEXEC);
    assert_true(fd >= 0);
    struct hf_cmd_world world = {.cmds = hf_cmds,
                                 .env = env,
                                 .out = open_memstream(&t.out, &out_len),
                                 .err_out = fdopen(dup(fd), "w"),
                                 .err_fd = fd,
                                 .inherited = &inherited};
    assert_true(world.out != NULL && world.err_out != NULL);
    t.status = hf_cmd_dispatch(&world, argc, argv);
    (void)fclose(world.out);
    (void)fclose(world.err_out);
    t.err = all_of(fd);
    close(fd);
    for (int i = 1; i < argc; i++) {
        hf_free(argv[i]);
    }
    return t;
}

void told_release(struct told *t)
{
    free(t->out);
    hf_free(t->err);
    *t = (struct told){0};
}

void told_status(const struct told *t, int status)
{
    if (t->status != status) {
        fail_msg("exit status %d in place of %d\n%s%s", t->status, status, t->out, t->err);
    }
}

void must_say(const char *text, const char *part)
{
    if (strstr(text, part) == NULL) {
        fail_msg("'%s' is not in:\n%s", part, text);
    }
}

void must_not_say(const char *text, const char *part)
{
    if (strstr(text, part) != NULL) {
        fail_msg("'%s' is in:\n%s", part, text);
    }
}

cJSON *told_json(const struct told *t)
{
    struct hf_err err;
    cJSON *json = NULL;
    if (hf_json_parse((struct hf_span){t->out, strlen(t->out)}, 1u << 20, &json, &err) != HF_OK) {
        fail_msg("%s: %s%s", err.msg, t->out, t->err);
    }
    return json;
}

/* Bytes of "2026-01-02T03:04:05.678Z" at p, else 0. */
static size_t time_at(const char *p)
{
    static const char form[] = "dddd-dd-ddTdd:dd:dd.dddZ";
    size_t i = 0;
    while (form[i] != '\0' &&
           (form[i] == 'd' ? isdigit((unsigned char)p[i]) != 0 : p[i] == form[i])) {
        i++;
    }
    return form[i] == '\0' ? i : 0;
}

/* Bytes of "0.4 s ago", "3m12s ago", "in 12 s" at p, else 0. */
static size_t age_at(const char *p)
{
    bool later = strncmp(p, "in ", 3) == 0;
    size_t i = later ? 3 : 0;
    size_t from = i;
    while (p[i] != '\0' && (isdigit((unsigned char)p[i]) || strchr(".hmsd", p[i]) != NULL)) {
        i++;
    }
    if (i == from || !isdigit((unsigned char)p[from])) {
        return 0;
    }
    i += strncmp(p + i, " s", 2) == 0 ? 2 : 0;
    if (later) {
        return i;
    }
    return strncmp(p + i, " ago", 4) == 0 ? i + 4 : 0;
}

char *without_times(const char *text)
{
    struct hf_buf b;
    hf_buf_init(&b, 1u << 20);
    for (const char *p = text; *p != '\0';) {
        bool begins = p == text || !isalnum((unsigned char)p[-1]);
        size_t time = time_at(p);
        size_t age = begins ? age_at(p) : 0;
        struct hf_span put = time > 0  ? (struct hf_span){"TIME", 4}
                             : age > 0 ? (struct hf_span){"AGE", 3}
                                       : (struct hf_span){p, 1};
        assert_int_equal(hf_buf_add(&b, put.ptr, put.len, NULL), HF_OK);
        p += time > 0 ? time : age > 0 ? age : 1;
    }
    char *out = hf_strdup(hf_buf_str(&b));
    hf_buf_release(&b);
    return out;
}
