/* SPDX-License-Identifier: Apache-2.0
 *
 * Lines over a Unix socket, on the loop thread. Knows nothing of what the lines mean. Memory goes
 * with the last close callback of libuv, so closing inside any callback is safe. Must never let
 * one peer cost more than two buffers.
 */
#include "base/prelude.h"

#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/mem.h"
#include "base/sockname.h"
#include "hooks/c/agree_step.h"
#include "hooks/linesock.h"

#define CHUNK      16384
#define CONNS_MAX  512
#define UNSENT_MAX 65536
#define BACKLOG    256
#define TOO_LONG   "a line is longer than 65536 bytes"

struct hf_lineconn {
    uv_pipe_t pipe;
    struct hf_linesock *ls;
    struct hf_lineconn *prev, *next;
    struct hf_buf in;
    int32_t pid;
    int64_t tag;
    bool closing;
    char chunk[CHUNK];
};

struct hf_linesock {
    uv_pipe_t listener;
    struct hf_linesock_cb cb;
    void *user;
    struct hf_lineconn *first;
    size_t n_conns;
    size_t n_handles; /* open in libuv; the last close callback frees */
    bool closing;
    struct hf_sockname name; /* open as long as libuv may unlink what it has bound */
    char *path;
};

struct send_req {
    uv_write_t uv;
    char *line;
};

static void handle_gone(struct hf_linesock *ls)
{
    if (--ls->n_handles == 0) {
        hf_sockname_close(&ls->name);
        hf_free(ls->path);
        hf_free(ls);
    }
}

static void conn_closed(uv_handle_t *handle)
{
    struct hf_lineconn *conn = handle->data;
    struct hf_linesock *ls = conn->ls;
    hf_buf_release(&conn->in);
    hf_free(conn);
    handle_gone(ls);
}

void hf_lineconn_drop(struct hf_lineconn *conn)
{
    if (conn->closing) {
        return;
    }
    struct hf_linesock *ls = conn->ls;
    conn->closing = true;
    if (conn->prev) {
        conn->prev->next = conn->next;
    } else {
        ls->first = conn->next;
    }
    if (conn->next) {
        conn->next->prev = conn->prev;
    }
    ls->n_conns--;
    uv_close((uv_handle_t *)&conn->pipe, conn_closed);
}

static void end_conn(struct hf_lineconn *conn, const char *why)
{
    if (!conn->closing) {
        hf_lineconn_drop(conn);
        conn->ls->cb.gone(conn->ls->user, conn, why);
    }
}

static void give_chunk(uv_handle_t *handle, size_t suggested, uv_buf_t *ret)
{
    (void)suggested;
    struct hf_lineconn *conn = handle->data;
    *ret = uv_buf_init(conn->chunk, sizeof conn->chunk);
}

static void got_bytes(uv_stream_t *stream, ssize_t n, const uv_buf_t *buf)
{
    struct hf_lineconn *conn = stream->data;
    if (n < 0 || hf_buf_add(&conn->in, buf->base, (size_t)n, NULL) != HF_OK) {
        end_conn(conn, NULL);
        return;
    }
    size_t pos = 0;
    size_t len;
    char *line;
    while (!conn->closing && (line = hf_buf_next_line(&conn->in, &pos, &len))) {
        if (len >= HFW_LINE_BYTES) {
            end_conn(conn, TOO_LONG);
            return;
        }
        conn->ls->cb.line(conn->ls->user, conn, line, len);
    }
    hf_buf_drop_front(&conn->in, pos);
    if (conn->in.len >= HFW_LINE_BYTES) {
        end_conn(conn, TOO_LONG);
    }
}

/* The oldest that never said who it is gives way, so that silent ones cannot keep a rank out. */
static void make_room(struct hf_linesock *ls)
{
    struct hf_lineconn *oldest = NULL;
    for (struct hf_lineconn *c = ls->n_conns > CONNS_MAX ? ls->first : NULL; c; c = c->next) {
        oldest = c->tag < 0 ? c : oldest;
    }
    if (oldest) {
        end_conn(oldest, "too many connections, and it has not said hello");
    }
}

static void accept_one(uv_stream_t *listener, int status)
{
    struct hf_linesock *ls = listener->data;
    if (status < 0 || ls->closing) {
        return;
    }
    struct hf_lineconn *conn = HF_NEW(struct hf_lineconn);
    conn->ls = ls;
    conn->tag = -1;
    hf_buf_init(&conn->in, HFW_LINE_BYTES + CHUNK);
    uv_pipe_init(listener->loop, &conn->pipe, 0);
    conn->pipe.data = conn;
    conn->next = ls->first;
    if (ls->first) {
        ls->first->prev = conn;
    }
    ls->first = conn;
    ls->n_conns++;
    ls->n_handles++;
    if (uv_accept(listener, (uv_stream_t *)&conn->pipe) != 0 ||
        uv_read_start((uv_stream_t *)&conn->pipe, give_chunk, got_bytes) != 0) {
        hf_lineconn_drop(conn);
        return;
    }
    uv_os_fd_t fd;
    struct ucred cred = {0};
    socklen_t len = sizeof cred;
    if (uv_fileno((uv_handle_t *)&conn->pipe, &fd) == 0 &&
        getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &cred, &len) == 0) {
        conn->pid = cred.pid;
    }
    make_room(ls);
}

static void listener_closed(uv_handle_t *handle)
{
    handle_gone(handle->data);
}

static int listen_on(struct hf_linesock *ls)
{
    unlink(ls->path);
    int n = uv_pipe_bind(&ls->listener, ls->name.addr.sun_path);
    if (n == 0) {
        chmod(ls->path, 0600);
        n = uv_listen((uv_stream_t *)&ls->listener, BACKLOG, accept_one);
    }
    return n;
}

enum hf_rc hf_linesock_open(struct hf_loop *loop, const char *path, const struct hf_linesock_cb *cb,
                            void *user, struct hf_linesock **ret, struct hf_err *err)
{
    struct hf_sockname name;
    HF_TRY(hf_sockname_open(path, &name, err));
    struct hf_linesock *ls = HF_NEW(struct hf_linesock);
    ls->name = name;
    ls->path = hf_strdup(path);
    ls->cb = *cb;
    ls->user = user;
    ls->n_handles = 1;
    uv_pipe_init(&loop->uv, &ls->listener, 0);
    ls->listener.data = ls;
    int n = listen_on(ls);
    if (n != 0) {
        uv_close((uv_handle_t *)&ls->listener, listener_closed);
        return hf_fail(err, HF_EIO, "listen on '%s': %s", path, uv_strerror(n));
    }
    *ret = ls;
    return HF_OK;
}

void hf_linesock_close(struct hf_linesock *ls)
{
    if (!ls || ls->closing) {
        return;
    }
    ls->closing = true;
    while (ls->first) {
        hf_lineconn_drop(ls->first);
    }
    unlink(ls->path);
    uv_close((uv_handle_t *)&ls->listener, listener_closed);
}

static void sent(uv_write_t *uv, int status)
{
    (void)status; /* a broken connection is seen by its reader */
    struct send_req *req = uv->data;
    hf_free(req->line);
    hf_free(req);
}

void hf_lineconn_send(struct hf_lineconn *conn, char *line_taken)
{
    uv_stream_t *stream = (uv_stream_t *)&conn->pipe;
    if (conn->closing || uv_stream_get_write_queue_size(stream) > UNSENT_MAX) {
        hf_free(line_taken);
        end_conn(conn, "it does not read its answers");
        return;
    }
    struct send_req *req = HF_NEW(struct send_req);
    req->line = line_taken;
    req->uv.data = req;
    uv_buf_t buf = uv_buf_init(line_taken, (unsigned)strlen(line_taken));
    if (uv_write(&req->uv, stream, &buf, 1, sent) != 0) {
        sent(&req->uv, 0);
    }
}

int32_t hf_lineconn_pid(const struct hf_lineconn *conn)
{
    return conn->pid;
}

void hf_lineconn_set_tag(struct hf_lineconn *conn, int64_t tag)
{
    conn->tag = tag;
}

int64_t hf_lineconn_tag(const struct hf_lineconn *conn)
{
    return conn->tag;
}
