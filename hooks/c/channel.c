/* SPDX-License-Identifier: Apache-2.0
 *
 * The C client's socket: connect, hello, welcome, and telling again what a supervisor that came
 * back has not heard. On the thread of the training loop, between two steps. Must never wait for
 * the socket, print, or raise a signal.
 */
#ifndef _GNU_SOURCE
#    define _GNU_SOURCE
#endif

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "client.h"

uint64_t holdfast_now_ns(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_BOOTTIME, &ts);
    return (uint64_t)ts.tv_sec * 1000 * MS + (uint64_t)ts.tv_nsec;
}

static void lose(struct holdfast *run)
{
    if (run->fd >= 0) {
        close(run->fd);
    }
    run->fd = -1;
    run->welcomed = false;
    run->in_len = 0;
    run->out.len = 0;
    run->out.full = false;
    run->out_pos = 0;
    run->calm = NO_WORD;
}

static void flush_out(struct holdfast *run)
{
    while (run->fd >= 0 && run->out_pos < run->out.len) {
        ssize_t n = send(run->fd, run->out.data + run->out_pos, run->out.len - run->out_pos,
                         MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n < 0 && errno == EAGAIN) {
            run->calm = NO_WORD; /* so that the next step comes back here */
            return;
        }
        if (n < 0 && errno != EINTR) {
            lose(run);
            return;
        }
        run->out_pos += n > 0 ? (size_t)n : 0;
    }
    run->out.len = 0;
    run->out_pos = 0;
}

/* A line that does not fit is not sent at all; the supervisor then counts the save as not made. */
void holdfast_send(struct holdfast *run, const char *line)
{
    if (run->fd < 0) {
        return;
    }
    hfj_text(&run->out, line);
    if (run->out.full) {
        lose(run);
        return;
    }
    flush_out(run);
}

void holdfast_send_resumed(struct holdfast *run)
{
    char line[80];
    snprintf(line, sizeof line, "{\"msg\":\"resumed\",\"step\":%lld}\n", (long long)run->resumed);
    holdfast_send(run, line);
}

static void tell_again(struct holdfast *run)
{
    if (run->resumed >= 0) {
        holdfast_send_resumed(run);
    }
    if (run->saved_line) {
        holdfast_send(run, run->saved_line);
    }
    if (run->done) {
        holdfast_send(run, "{\"msg\":\"done\"}\n");
    }
}

static void take_text(char **field, char *value_taken)
{
    if (value_taken) {
        free(*field);
        *field = value_taken;
    }
}

static void on_welcome(struct holdfast *run, const char *line)
{
    int64_t slot;
    int64_t life;
    int64_t attempt;
    if (!hfj_get_int(line, "slot", &slot) || !hfj_get_int(line, "life", &life) ||
        !hfj_get_int(line, "attempt", &attempt) || slot < 0 || slot >= HFW_SLOTS) {
        lose(run);
        return;
    }
    bool back = run->mode == JOINED;
    run->welcomed = true;
    run->life = (uint32_t)life;
    run->attempt = (uint32_t)attempt;
    run->slot = (struct hfw_slot *)((char *)run->head + sizeof(struct hfw_head)) + slot;
    take_text(&run->save_dir, hfj_read_bytes(hfj_find(line, "save_dir")));
    if (back) {
        tell_again(run);
        return;
    }
    run->mode = JOINED;
    const char *resume = hfj_find(line, "resume");
    free(run->resume_path); /* the reply wins over the environment, also when it says "nothing" */
    run->resume_path = NULL;
    run->resume_step = -1;
    if (resume && *resume == '{') {
        run->resume_path = hfj_read_bytes(hfj_find(resume, "path"));
        hfj_get_int(resume, "step", &run->resume_step);
    }
}

static void on_line(struct holdfast *run, const char *line)
{
    char *name = hfj_read_bytes(hfj_find(line, "msg"));
    if (name && strcmp(name, "welcome") == 0 && !run->welcomed) {
        on_welcome(run, line);
    } else if (name && strcmp(name, "refused") == 0) {
        lose(run);
        run->mode = DEAD;
    }
    free(name);
}

static void read_lines(struct holdfast *run)
{
    while (run->fd >= 0) {
        ssize_t n =
            recv(run->fd, run->in + run->in_len, HFW_LINE_BYTES - run->in_len, MSG_DONTWAIT);
        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n < 0 && errno == EAGAIN) {
            return;
        }
        if (n <= 0) {
            lose(run);
            return;
        }
        run->in_len += (size_t)n;
        char *nl;
        while (run->fd >= 0 && (nl = memchr(run->in, '\n', run->in_len))) {
            *nl = '\0';
            on_line(run, run->in);
            size_t used = (size_t)(nl + 1 - run->in);
            run->in_len = run->fd >= 0 ? run->in_len - used : 0;
            memmove(run->in, nl + 1, run->in_len);
        }
        if (run->in_len == HFW_LINE_BYTES) {
            lose(run);
        }
    }
}

static void send_hello(struct holdfast *run)
{
    char text[512];
    struct hfj_out o = {.data = text, .cap = sizeof text};
    hfj_text(&o, "{\"msg\":\"hello\",\"protocol\":1,\"client\":\"c\",\"framework\":");
    hfj_bytes(&o, run->framework);
    hfj_text(&o, ",\"rank\":");
    hfj_int(&o, run->rank_no);
    hfj_text(&o, ",\"world\":");
    hfj_int(&o, run->world);
    hfj_text(&o, ",\"pid\":");
    hfj_int(&o, getpid());
    hfj_text(&o, ",\"last\":");
    hfj_int(&o, run->last);
    hfj_text(&o, ",\"token\":\"");
    hfj_text(&o, run->token);
    hfj_text(&o, "\"}\n");
    holdfast_send(run, o.full ? "" : text);
}

/* A path that is longer than an address is reached through its folder. Sets errno. */
static int connect_to(int fd, const char *path)
{
    struct sockaddr_un addr = {.sun_family = AF_UNIX};
    size_t len = strlen(path);
    if (len < sizeof addr.sun_path) {
        memcpy(addr.sun_path, path, len + 1);
        return connect(fd, (const struct sockaddr *)&addr, sizeof addr);
    }
    const char *slash = strrchr(path, '/');
    char *folder = slash != NULL ? strndup(path, (size_t)(slash - path)) : NULL;
    int dir = folder != NULL ? open(folder, O_PATH | O_DIRECTORY | O_CLOEXEC) : -1;
    free(folder);
    if (dir < 0) {
        return -1;
    }
    int n = snprintf(addr.sun_path, sizeof addr.sun_path, "/proc/self/fd/%d%s", dir, slash);
    bool fits = n > 0 && (size_t)n < sizeof addr.sun_path;
    int rc = fits ? connect(fd, (const struct sockaddr *)&addr, sizeof addr) : -1;
    close(dir);
    return rc;
}

static void try_connect(struct holdfast *run, uint64_t retry_ms)
{
    uint64_t now = holdfast_now_ns();
    if (now < run->try_ns) {
        return;
    }
    run->try_ns = now + retry_ms * MS;
    run->epoch = __atomic_load_n(&run->head->epoch, __ATOMIC_ACQUIRE);
    run->fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (run->fd < 0) {
        return;
    }
    if (connect_to(run->fd, run->socket_path) != 0) {
        lose(run);
        return;
    }
    send_hello(run);
}

void holdfast_service(struct holdfast *run, uint64_t retry_ms)
{
    if (run->mode != WAITING && run->mode != JOINED) {
        return;
    }
    if (run->fd >= 0 && run->epoch != __atomic_load_n(&run->head->epoch, __ATOMIC_ACQUIRE)) {
        lose(run);
        run->try_ns = 0;
    }
    if (run->fd < 0) {
        try_connect(run, retry_ms);
    }
    flush_out(run);
    read_lines(run);
}
