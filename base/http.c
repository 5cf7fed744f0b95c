/* SPDX-License-Identifier: Apache-2.0
 *
 * HTTP by libcurl on the loop: one multi handle, one uv_poll for each socket that libcurl wants
 * watched, one uv_timer. Loop thread only. No user code runs inside libcurl's callbacks: results
 * go out through hf_op_finish, so `done` may start, cancel and free as it likes. Must not touch
 * libcurl before the first request.
 */
#include "base/prelude.h"

#include <curl/curl.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>

#include "base/http.h"

#define CONNECT_MS_DEFAULT 1000
#define TOTAL_MS_DEFAULT   10000
#define HEADER_LINE_MAX    1024
#define HEADER_TOTAL_MAX   65536
#define BODY_MAX           (8u << 20)
#define KEPT_CONNECTIONS   8L
#define FD_LOOKED_AT       1024

struct hf_http {
    struct hf_loop *loop;
    CURLM *multi; /* NULL until the first request */
    uv_timer_t timer;
};

/* A socket of libcurl's; freed when its handle has closed. */
struct watched {
    uv_poll_t poll;
    struct hf_http *http;
    curl_socket_t fd;
};

struct transfer {
    struct hf_op op; /* first: op.destroy gets back here */
    struct hf_http *http;
    struct hf_http_req *req;
    CURL *easy; /* NULL once the result is known */
    struct curl_slist *headers;
    size_t header_bytes;
    char detail[CURL_ERROR_SIZE];
    bool too_long, head_too_long;
    bool head_ended; /* libcurl takes headers that are cut short for whole ones */
    bool fresh;      /* sent again, on a connection of its own */
};

/* Requests */

void hf_http_req_init(struct hf_http_req *req, const char *method, size_t max_reply_bytes)
{
    memset(req, 0, sizeof(*req));
    snprintf(req->method, sizeof(req->method), "%s", method);
    hf_buf_init(&req->body, BODY_MAX);
    hf_buf_init(&req->reply, max_reply_bytes);
}

static char *take_text(char *text, int n)
{
    return n >= 0 ? text : hf_strdup("");
}

void hf_http_req_url(struct hf_http_req *req, const char *fmt, ...)
{
    char *url = NULL;
    va_list args;
    va_start(args, fmt);
    int n = vasprintf(&url, fmt, args);
    va_end(args);
    hf_free(req->url);
    req->url = take_text(url, n);
}

void hf_http_req_header(struct hf_http_req *req, const char *fmt, ...)
{
    char *line = NULL;
    va_list args;
    va_start(args, fmt);
    int n = vasprintf(&line, fmt, args);
    va_end(args);
    hf_strv_take(&req->headers, take_text(line, n));
}

static void clear_reply_headers(struct hf_http_req *req)
{
    for (size_t i = 0; i < HF_HTTP_HEADERS && req->reply_headers[i] != NULL; i++) {
        hf_free(req->reply_headers[i]);
        req->reply_headers[i] = NULL;
    }
}

static void clear_reply(struct hf_http_req *req)
{
    req->status = 0;
    req->connected = false;
    req->sent_ns = req->done_ns = 0;
    hf_buf_reset(&req->reply);
    clear_reply_headers(req);
}

void hf_http_req_release(struct hf_http_req *req)
{
    clear_reply_headers(req);
    hf_free(req->url);
    req->url = NULL;
    hf_strv_clear(&req->headers);
    hf_buf_release(&req->body);
    hf_buf_release(&req->reply);
}

const char *hf_http_reply_header(const struct hf_http_req *req, const char *name)
{
    size_t len = strlen(name);
    for (size_t i = 0; i < HF_HTTP_HEADERS && req->reply_headers[i] != NULL; i++) {
        const char *line = req->reply_headers[i];
        if (strncasecmp(line, name, len) == 0 && line[len] == ':') {
            return line + len + 1 + strspn(line + len + 1, " \t");
        }
    }
    return NULL;
}

/* What libcurl calls. */

static size_t got_body(char *data, size_t size, size_t n, void *user)
{
    struct transfer *t = user;
    if (hf_buf_add(&t->req->reply, data, size * n, NULL) != HF_OK) {
        t->too_long = true;
        return 0;
    }
    return size * n;
}

static size_t got_header(char *data, size_t size, size_t n, void *user)
{
    struct transfer *t = user;
    size_t len = size * n;
    t->header_bytes += len;
    if (t->header_bytes > HEADER_TOTAL_MAX) {
        t->head_too_long = true;
        return 0;
    }
    t->head_ended = t->head_ended || len <= 2;
    if (len >= 5 && memcmp(data, "HTTP/", 5) == 0) {
        /* A status line: what came before it belonged to a 1xx reply. */
        clear_reply_headers(t->req);
        t->head_ended = false;
        return len;
    }
    size_t text = len;
    while (text > 0 && strchr(" \t\r\n", data[text - 1]) != NULL) {
        text--;
    }
    if (text == 0 || text > HEADER_LINE_MAX || memchr(data, ':', text) == NULL) {
        return len;
    }
    for (size_t i = 0; i + 1 < HF_HTTP_HEADERS; i++) {
        if (t->req->reply_headers[i] == NULL) {
            t->req->reply_headers[i] = hf_strndup(data, text);
            break;
        }
    }
    return len;
}

/* libcurl's own sockets would be inherited by the keeper and so by the training program. */
static curl_socket_t open_socket(void *user, curlsocktype purpose, struct curl_sockaddr *a)
{
    (void)user;
    (void)purpose;
    return socket(a->family, a->socktype | SOCK_CLOEXEC, a->protocol);
}

/* Results */

static void drop_easy(struct transfer *t)
{
    curl_multi_remove_handle(t->http->multi, t->easy);
    curl_easy_cleanup(t->easy);
    curl_slist_free_all(t->headers);
    t->easy = NULL;
    t->headers = NULL;
}

static void destroy_transfer(struct hf_op *op)
{
    hf_free(op);
}

static void cancel_transfer(struct hf_op *op)
{
    struct transfer *t = (struct transfer *)op;
    if (t->easy == NULL) {
        return; /* the result that won is on its way */
    }
    drop_easy(t);
    t->req->done_ns = hf_now_ns();
    struct hf_err err;
    hf_fail(&err, HF_ECANCELED, "%s '%s': canceled", t->req->method, t->req->url);
    hf_op_finish(op, &err);
}

static uint32_t or_default(uint32_t value, uint32_t fallback)
{
    return value != 0 ? value : fallback;
}

static void describe_failure(const struct transfer *t, CURLcode code, struct hf_err *err)
{
    const struct hf_http_req *req = t->req;
    long num = 0;
    curl_easy_getinfo(t->easy, CURLINFO_OS_ERRNO, &num);
    /* A line over 100 KiB never gets here: libcurl says that it has no memory for it. */
    bool long_line = code == CURLE_OUT_OF_MEMORY && !t->head_ended;
    if (t->too_long || t->head_too_long || long_line) {
        hf_fail_at(err, HF_EFULL, HF_DOM_CURL, code, __FILE__, __LINE__,
                   "%s '%s': the reply%s longer than %zu bytes", req->method, req->url,
                   t->too_long ? " is" : "'s headers are",
                   t->too_long ? req->reply.max : (size_t)HEADER_TOTAL_MAX);
    } else if (code == CURLE_OPERATION_TIMEDOUT && req->connected) {
        hf_fail_at(err, HF_ETIMEOUT, HF_DOM_CURL, code, __FILE__, __LINE__,
                   "%s '%s': connected, but no complete answer within %" PRIu32 " ms", req->method,
                   req->url, or_default(req->total_ms, TOTAL_MS_DEFAULT));
    } else if (code == CURLE_OPERATION_TIMEDOUT) {
        hf_fail_at(err, HF_ETIMEOUT, HF_DOM_CURL, code, __FILE__, __LINE__,
                   "%s '%s': no connection within the time-out", req->method, req->url);
    } else if (!req->connected &&
               (code == CURLE_UNSUPPORTED_PROTOCOL || code == CURLE_URL_MALFORMAT)) {
        hf_fail_at(err, HF_EINVAL, HF_DOM_CURL, code, __FILE__, __LINE__,
                   "%s '%s': not an address that can be used here, expected %s", req->method,
                   req->url, req->metadata ? "'http://...'" : "'http://...' or 'https://...'");
    } else if (code == CURLE_COULDNT_CONNECT && num != 0) {
        /* Whatever the number is, the outside world did it: the class stays HF_EIO. */
        hf_fail_errno_at(err, (int)num, __FILE__, __LINE__, "%s '%s': no connection", req->method,
                         req->url);
        err->code = HF_EIO;
    } else {
        hf_fail_at(err, HF_EIO, HF_DOM_CURL, code, __FILE__, __LINE__, "%s '%s': %s", req->method,
                   req->url, t->detail[0] != '\0' ? t->detail : curl_easy_strerror(code));
    }
}

static void finish_transfer(struct transfer *t, CURLcode code)
{
    struct hf_http_req *req = t->req;
    req->done_ns = hf_now_ns();
    curl_off_t ready_us = 0;
    curl_easy_getinfo(t->easy, CURLINFO_PRETRANSFER_TIME_T, &ready_us);
    req->connected = ready_us > 0;
    struct hf_err err = {.code = HF_OK};
    long status = 0;
    curl_easy_getinfo(t->easy, CURLINFO_RESPONSE_CODE, &status);
    if (code != CURLE_OK) {
        describe_failure(t, code, &err);
    } else if (!t->head_ended || status < 200) {
        hf_fail(&err, HF_EIO, "%s '%s': the connection was closed before the reply's headers ended",
                req->method, req->url);
    } else {
        req->status = (int)status;
    }
    drop_easy(t);
    hf_op_finish(&t->op, err.code == HF_OK ? NULL : &err);
}

/* A kept connection may turn out to be dead just when it is used. libcurl sends again by itself
 * when it sees the end, but not when sending fails. Whether it was sent again. */
static bool sent_again(struct transfer *t, CURLcode code)
{
    long connects = 0;
    curl_easy_getinfo(t->easy, CURLINFO_NUM_CONNECTS, &connects);
    if (code != CURLE_SEND_ERROR || connects > 0 || t->fresh || t->header_bytes > 0) {
        return false;
    }
    t->fresh = true;
    t->detail[0] = '\0';
    curl_easy_setopt(t->easy, CURLOPT_FRESH_CONNECT, 1L);
    return curl_multi_remove_handle(t->http->multi, t->easy) == CURLM_OK &&
           curl_multi_add_handle(t->http->multi, t->easy) == CURLM_OK;
}

static void collect(struct hf_http *http)
{
    int left = 0;
    CURLMsg *msg;
    while ((msg = curl_multi_info_read(http->multi, &left)) != NULL) {
        if (msg->msg == CURLMSG_DONE) {
            struct transfer *t = NULL;
            CURLcode code = msg->data.result;
            curl_easy_getinfo(msg->easy_handle, CURLINFO_PRIVATE, (char **)&t);
            if (!sent_again(t, code)) {
                finish_transfer(t, code);
            }
        }
    }
}

/* Between libcurl and libuv. */

static void socket_ready(uv_poll_t *poll, int status, int events)
{
    struct watched *w = poll->data;
    struct hf_http *http = w->http;
    int mask = (events & UV_READABLE ? CURL_CSELECT_IN : 0) |
               (events & UV_WRITABLE ? CURL_CSELECT_OUT : 0) | (status < 0 ? CURL_CSELECT_ERR : 0);
    int running;
    curl_multi_socket_action(http->multi, w->fd, mask, &running);
    collect(http);
}

static void free_watched(uv_handle_t *handle)
{
    hf_free(handle->data);
}

static int want_socket(CURL *easy, curl_socket_t fd, int what, void *user, void *socket_user)
{
    (void)easy;
    struct hf_http *http = user;
    struct watched *w = socket_user;
    if (what == CURL_POLL_REMOVE) {
        if (w != NULL) {
            curl_multi_assign(http->multi, fd, NULL);
            uv_close((uv_handle_t *)&w->poll, free_watched);
        }
        return 0;
    }
    if (w == NULL) {
        w = HF_NEW(struct watched);
        w->http = http;
        w->fd = fd;
        w->poll.data = w;
        if (uv_poll_init_socket(&http->loop->uv, &w->poll, fd) != 0) {
            hf_free(w); /* unwatched, the transfer ends in its own time-out */
            return 0;
        }
        curl_multi_assign(http->multi, fd, w);
    }
    int events = (what & CURL_POLL_IN ? UV_READABLE : 0) | (what & CURL_POLL_OUT ? UV_WRITABLE : 0);
    uv_poll_start(&w->poll, events, socket_ready);
    return 0;
}

static void timer_fired(uv_timer_t *timer)
{
    struct hf_http *http = timer->data;
    int running;
    curl_multi_socket_action(http->multi, CURL_SOCKET_TIMEOUT, 0, &running);
    collect(http);
}

static int want_timer(CURLM *multi, long timeout_ms, void *user)
{
    (void)multi;
    struct hf_http *http = user;
    if (timeout_ms < 0) {
        uv_timer_stop(&http->timer);
    } else {
        uv_update_time(&http->loop->uv);
        uv_timer_start(&http->timer, timer_fired, (uint64_t)timeout_ms, 0);
    }
    return 0;
}

/* The client */

struct hf_http *hf_http_new(struct hf_loop *loop)
{
    struct hf_http *http = HF_NEW(struct hf_http);
    http->loop = loop;
    return http;
}

/* libcurl's multi handle opens a wake-up pair without close-on-exec, and the keeper would take it
 * into the training program. Only what is new is marked: descriptors that Holdfast itself got are
 * the program's to inherit. */
static CURLM *new_multi(void)
{
    bool before[FD_LOOKED_AT];
    for (int fd = 0; fd < FD_LOOKED_AT; fd++) {
        before[fd] = fcntl(fd, F_GETFD) >= 0;
    }
    CURLM *multi = curl_multi_init();
    for (int fd = 0; fd < FD_LOOKED_AT; fd++) {
        int flags = before[fd] ? -1 : fcntl(fd, F_GETFD);
        if (flags >= 0 && !(flags & FD_CLOEXEC)) {
            fcntl(fd, F_SETFD, flags | FD_CLOEXEC);
        }
    }
    return multi;
}

static enum hf_rc wake(struct hf_http *http, struct hf_err *err)
{
    if (http->multi != NULL) {
        return HF_OK;
    }
    if (curl_global_init(CURL_GLOBAL_DEFAULT) != CURLE_OK) {
        return hf_fail(err, HF_EIO, "libcurl cannot be initialised");
    }
    http->multi = new_multi();
    if (http->multi == NULL) {
        curl_global_cleanup();
        return hf_fail(err, HF_EIO, "libcurl has no multi handle to give");
    }
    curl_multi_setopt(http->multi, CURLMOPT_SOCKETFUNCTION, want_socket);
    curl_multi_setopt(http->multi, CURLMOPT_SOCKETDATA, http);
    curl_multi_setopt(http->multi, CURLMOPT_TIMERFUNCTION, want_timer);
    curl_multi_setopt(http->multi, CURLMOPT_TIMERDATA, http);
    curl_multi_setopt(http->multi, CURLMOPT_MAXCONNECTS, KEPT_CONNECTIONS);
    uv_timer_init(&http->loop->uv, &http->timer);
    http->timer.data = http;
    return HF_OK;
}

static void free_http(uv_handle_t *handle)
{
    hf_free(handle->data);
}

void hf_http_free(struct hf_http *http)
{
    if (http == NULL) {
        return;
    }
    if (http->multi == NULL) {
        hf_free(http);
        return;
    }
    curl_multi_cleanup(http->multi);
    curl_global_cleanup();
    uv_close((uv_handle_t *)&http->timer, free_http);
}

static void set_method(struct transfer *t)
{
    const struct hf_http_req *req = t->req;
    if (strcmp(req->method, "HEAD") == 0) {
        curl_easy_setopt(t->easy, CURLOPT_NOBODY, 1L);
        return;
    }
    bool carries = req->body.len > 0 || strcmp(req->method, "PUT") == 0 ||
                   strcmp(req->method, "POST") == 0 || strcmp(req->method, "PATCH") == 0;
    if (carries) {
        /* Known length even when 0: never chunked, which metadata services do not take. */
        curl_easy_setopt(t->easy, CURLOPT_POSTFIELDS, hf_buf_str(&req->body));
        curl_easy_setopt(t->easy, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)req->body.len);
    }
    curl_easy_setopt(t->easy, CURLOPT_CUSTOMREQUEST, req->method);
}

static void set_headers(struct transfer *t)
{
    bool has_type = false;
    for (size_t i = 0; i < t->req->headers.len; i++) {
        const char *line = t->req->headers.items[i];
        has_type = has_type || strncasecmp(line, "content-type:", 13) == 0;
        t->headers = curl_slist_append(t->headers, line);
    }
    /* Takes away what libcurl would add by itself. */
    t->headers = curl_slist_append(t->headers, "Expect:");
    if (!has_type) {
        t->headers = curl_slist_append(t->headers, "Content-Type:");
    }
    curl_easy_setopt(t->easy, CURLOPT_HTTPHEADER, t->headers);
}

static void set_options(struct transfer *t)
{
    const struct hf_http_req *req = t->req;
    CURL *easy = t->easy;
    curl_easy_setopt(easy, CURLOPT_PRIVATE, (char *)t);
    curl_easy_setopt(easy, CURLOPT_URL, req->url);
    curl_easy_setopt(easy, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(easy, CURLOPT_FOLLOWLOCATION, 0L);
    curl_easy_setopt(easy, CURLOPT_USERAGENT, "holdfast/" HF_VERSION);
    curl_easy_setopt(easy, CURLOPT_CONNECTTIMEOUT_MS,
                     (long)or_default(req->connect_ms, CONNECT_MS_DEFAULT));
    curl_easy_setopt(easy, CURLOPT_TIMEOUT_MS, (long)or_default(req->total_ms, TOTAL_MS_DEFAULT));
    curl_easy_setopt(easy, CURLOPT_PROTOCOLS_STR, req->metadata ? "http" : "http,https");
    if (req->metadata) {
        curl_easy_setopt(easy, CURLOPT_NOPROXY, "*");
        curl_easy_setopt(easy, CURLOPT_PROXY, "");
        curl_easy_setopt(easy, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
    }
    curl_easy_setopt(easy, CURLOPT_OPENSOCKETFUNCTION, open_socket);
    curl_easy_setopt(easy, CURLOPT_WRITEFUNCTION, got_body);
    curl_easy_setopt(easy, CURLOPT_WRITEDATA, t);
    curl_easy_setopt(easy, CURLOPT_HEADERFUNCTION, got_header);
    curl_easy_setopt(easy, CURLOPT_HEADERDATA, t);
    curl_easy_setopt(easy, CURLOPT_ERRORBUFFER, t->detail);
}

enum hf_rc hf_http_start(struct hf_http *http, struct hf_scope *scope, struct hf_http_req *req,
                         hf_done_fn *done, void *user, struct hf_op **ret_op, struct hf_err *err)
{
    if (req->url == NULL) {
        return hf_fail(err, HF_EINVAL, "%s request without an address", req->method);
    }
    HF_TRY(wake(http, err));
    CURL *easy = curl_easy_init();
    if (easy == NULL) {
        return hf_fail(err, HF_EIO, "%s '%s': libcurl has no handle to give", req->method,
                       req->url);
    }
    clear_reply(req);
    struct transfer *t = HF_NEW(struct transfer);
    t->http = http;
    t->req = req;
    t->easy = easy;
    set_options(t);
    set_method(t);
    set_headers(t);
    t->op.cancel = cancel_transfer;
    t->op.destroy = destroy_transfer;
    req->sent_ns = hf_now_ns();
    hf_op_begin(&t->op, http->loop, scope, done, user);
    CURLMcode code = curl_multi_add_handle(http->multi, easy);
    if (code != CURLM_OK) {
        hf_op_abandon(&t->op);
        curl_easy_cleanup(easy);
        curl_slist_free_all(t->headers);
        hf_free(t);
        return hf_fail(err, HF_EIO, "%s '%s': %s", req->method, req->url,
                       curl_multi_strerror(code));
    }
    if (ret_op != NULL) {
        *ret_op = &t->op;
    }
    return HF_OK;
}
