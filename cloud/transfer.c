/* SPDX-License-Identifier: Apache-2.0
 *
 * Blocking HTTP by libcurl. A lane is an easy handle and a multi handle of its own, which keeps the
 * connection and waits for no longer than LOOK_MS at a time, so that cancel flag and deadline are
 * seen whatever the network does; lanes lie in a pool while nobody uses them. HTTP/2 costs 1.4
 * times the CPU for bulk data, and a redirect would break a signature, so both are off. Worker
 * threads.
 */
#include "base/prelude.h"

#include <curl/curl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/clock.h"
#include "cloud/transfer.h"

#define LOOK_MS       20
#define IDLE_MAX      64
#define CONNECT_MS    10000L
#define STALL_S       30L
#define UPLOAD_BUFFER (256L << 10) /* the flat optimum of 128 to 512 KiB */
#define HEADER_MAX    4096

struct lane {
    CURL *easy;
    CURLM *multi;
};

struct hf_transfers {
    pthread_mutex_t lock;
    struct lane idle[IDLE_MAX]; /* under lock, as n_idle */
    size_t n_idle;
    struct hf_transfers_cfg cfg; /* its text is not used */
    char *ca_file, *ca_dir;
};

struct exchange {
    const struct hf_call *call;
    const struct hf_request *req;
    struct hf_reply *reply;
    CURL *easy;
    size_t sent;
    size_t before; /* length of the reply's body */
    bool full;
    bool head_ended; /* libcurl takes headers that are cut short for whole ones */
    char detail[CURL_ERROR_SIZE];
};

enum hf_rc hf_transfers_new(const struct hf_transfers_cfg *cfg, struct hf_transfers **ret,
                            struct hf_err *err)
{
    if (curl_global_init(CURL_GLOBAL_DEFAULT) != CURLE_OK) {
        return hf_fail(err, HF_EIO, "libcurl cannot be started");
    }
    struct hf_transfers *t = HF_NEW(struct hf_transfers);
    pthread_mutex_init(&t->lock, NULL);
    t->cfg = *cfg;
    t->ca_file = hf_strdup(cfg->ca_file);
    t->ca_dir = cfg->ca_file == NULL ? hf_strdup(getenv("SSL_CERT_DIR")) : NULL;
    *ret = t;
    return HF_OK;
}

static void lane_free(struct lane l)
{
    curl_easy_cleanup(l.easy);
    curl_multi_cleanup(l.multi);
}

void hf_transfers_free(struct hf_transfers *t)
{
    if (t == NULL) {
        return;
    }
    for (size_t i = 0; i < t->n_idle; i++) {
        lane_free(t->idle[i]);
    }
    pthread_mutex_destroy(&t->lock);
    hf_free(t->ca_file);
    hf_free(t->ca_dir);
    hf_free(t);
    curl_global_cleanup();
}

void hf_request_release(struct hf_request *r)
{
    hf_free(r->url);
    hf_strv_clear(&r->headers);
    *r = (struct hf_request){.method = NULL};
}

void hf_reply_release(struct hf_reply *r)
{
    hf_buf_release(&r->error);
    hf_strv_clear(&r->headers);
}

const char *hf_reply_header(const struct hf_reply *r, const char *name)
{
    size_t len = strlen(name);
    for (size_t i = 0; i < r->headers.len; i++) {
        const char *line = r->headers.items[i];
        if (strncasecmp(line, name, len) == 0 && line[len] == ':') {
            return line + len + 1 + strspn(line + len + 1, " \t");
        }
    }
    return NULL;
}

static struct lane take_lane(struct hf_transfers *t)
{
    struct lane l = {.easy = NULL};
    pthread_mutex_lock(&t->lock);
    if (t->n_idle > 0) {
        l = t->idle[--t->n_idle];
    }
    pthread_mutex_unlock(&t->lock);
    if (l.easy == NULL) {
        l = (struct lane){.easy = curl_easy_init(), .multi = curl_multi_init()};
    }
    return l;
}

static void give_lane(struct hf_transfers *t, struct lane l)
{
    curl_easy_reset(l.easy); /* the connection and TLS sessions stay with the multi handle */
    pthread_mutex_lock(&t->lock);
    bool kept = t->n_idle < IDLE_MAX;
    if (kept) {
        t->idle[t->n_idle++] = l;
    }
    pthread_mutex_unlock(&t->lock);
    if (!kept) {
        lane_free(l);
    }
}

static size_t give_body(char *out, size_t size, size_t n, void *user)
{
    struct exchange *x = user;
    size_t left = x->req->body.len - x->sent;
    size_t room = size * n;
    size_t len = left < room ? left : room;
    memcpy(out, (const char *)x->req->body.ptr + x->sent, len);
    x->sent += len;
    return len;
}

/* libcurl sends a body again by itself when a kept connection proves dead. */
static int seek_body(void *user, curl_off_t offset, int origin)
{
    struct exchange *x = user;
    if (origin != SEEK_SET || offset < 0 || (uint64_t)offset > x->req->body.len) {
        return CURL_SEEKFUNC_FAIL;
    }
    x->sent = (size_t)offset;
    return CURL_SEEKFUNC_OK;
}

/* Whether what comes is what was asked for. */
static bool is_asked_for(const struct exchange *x)
{
    long status = 0;
    curl_easy_getinfo(x->easy, CURLINFO_RESPONSE_CODE, &status);
    return status >= 200 && status < 300 && x->reply->body != NULL &&
           (x->req->proof == NULL || hf_reply_header(x->reply, x->req->proof) != NULL);
}

static size_t got_body(char *data, size_t size, size_t n, void *user)
{
    struct exchange *x = user;
    size_t len = size * n;
    if (!is_asked_for(x)) {
        size_t room = HF_REPLY_ERROR - x->reply->error.len;
        enum hf_rc rc = hf_buf_add(&x->reply->error, data, len < room ? len : room, NULL);
        return rc == HF_OK ? len : 0;
    }
    x->full = hf_buf_add(x->reply->body, data, len, NULL) != HF_OK;
    return x->full ? 0 : len;
}

static size_t got_header(char *data, size_t size, size_t n, void *user)
{
    struct exchange *x = user;
    size_t len = size * n;
    size_t keep = len;
    while (keep > 0 &&
           (data[keep - 1] == '\r' || data[keep - 1] == '\n' || data[keep - 1] == ' ')) {
        keep--;
    }
    if (keep > 5 && memcmp(data, "HTTP/", 5) == 0) {
        hf_strv_clear(&x->reply->headers); /* of an interim reply */
        x->head_ended = false;
    } else if (keep == 0) {
        x->head_ended = true;
    } else if (keep <= HEADER_MAX && x->reply->headers.len < HF_REPLY_HEADERS) {
        hf_strv_take(&x->reply->headers, hf_strndup(data, keep));
    }
    return len;
}

static void set_body(struct exchange *x)
{
    bool sends = strcmp(x->req->method, "PUT") == 0 || strcmp(x->req->method, "POST") == 0;
    if (sends) {
        curl_easy_setopt(x->easy, CURLOPT_UPLOAD, 1L);
        curl_easy_setopt(x->easy, CURLOPT_INFILESIZE_LARGE, (curl_off_t)x->req->body.len);
        curl_easy_setopt(x->easy, CURLOPT_READFUNCTION, give_body);
        curl_easy_setopt(x->easy, CURLOPT_READDATA, x);
        curl_easy_setopt(x->easy, CURLOPT_SEEKFUNCTION, seek_body);
        curl_easy_setopt(x->easy, CURLOPT_SEEKDATA, x);
        curl_easy_setopt(x->easy, CURLOPT_UPLOAD_BUFFERSIZE, UPLOAD_BUFFER);
    }
    curl_easy_setopt(x->easy, CURLOPT_CUSTOMREQUEST, x->req->method);
}

static void set_way(const struct hf_transfers_cfg *cfg, struct exchange *x)
{
    CURL *easy = x->easy;
    curl_easy_setopt(easy, CURLOPT_SSLVERSION,
                     cfg->tls_1_3 ? (long)CURL_SSLVERSION_TLSv1_3 : (long)CURL_SSLVERSION_TLSv1_2);
    curl_easy_setopt(easy, CURLOPT_CONNECTTIMEOUT_MS,
                     cfg->connect_ms > 0 ? (long)cfg->connect_ms : CONNECT_MS);
    curl_easy_setopt(easy, CURLOPT_TIMEOUT_MS, (long)cfg->total_ms);
    curl_easy_setopt(easy, CURLOPT_PROTOCOLS_STR, cfg->direct ? "http" : "http,https");
    if (cfg->direct) {
        curl_easy_setopt(easy, CURLOPT_NOPROXY, "*");
        curl_easy_setopt(easy, CURLOPT_PROXY, "");
    }
}

static void set_options(const struct hf_transfers *t, struct exchange *x)
{
    CURL *easy = x->easy;
    curl_easy_setopt(easy, CURLOPT_URL, x->req->url);
    curl_easy_setopt(easy, CURLOPT_PATH_AS_IS, 1L); /* what is signed is what is sent */
    curl_easy_setopt(easy, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(easy, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
    curl_easy_setopt(easy, CURLOPT_FOLLOWLOCATION, 0L);
    curl_easy_setopt(easy, CURLOPT_USERAGENT, "holdfast/" HF_VERSION);
    curl_easy_setopt(easy, CURLOPT_LOW_SPEED_LIMIT, 1L);
    curl_easy_setopt(easy, CURLOPT_LOW_SPEED_TIME, STALL_S);
    curl_easy_setopt(easy, CURLOPT_TCP_KEEPALIVE, 1L);
    curl_easy_setopt(easy, CURLOPT_WRITEFUNCTION, got_body);
    curl_easy_setopt(easy, CURLOPT_WRITEDATA, x);
    curl_easy_setopt(easy, CURLOPT_HEADERFUNCTION, got_header);
    curl_easy_setopt(easy, CURLOPT_HEADERDATA, x);
    curl_easy_setopt(easy, CURLOPT_ERRORBUFFER, x->detail);
    set_way(&t->cfg, x);
    if (t->ca_file != NULL) {
        curl_easy_setopt(easy, CURLOPT_CAINFO, t->ca_file);
    }
    if (t->ca_dir != NULL && t->ca_dir[0] != '\0') {
        curl_easy_setopt(easy, CURLOPT_CAPATH, t->ca_dir);
    }
    set_body(x);
}

static enum hf_rc explain(const struct exchange *x, CURLcode code, struct hf_err *err)
{
    const char *what = x->detail[0] != '\0' ? x->detail : curl_easy_strerror(code);
    enum hf_rc rc = HF_EAGAIN;
    if (x->full) {
        return hf_fail(err, HF_EFULL, "the reply is longer than %zu bytes", x->reply->body->max);
    }
    if (code == CURLE_OPERATION_TIMEDOUT) {
        rc = HF_ETIMEOUT;
    } else if (code == CURLE_PEER_FAILED_VERIFICATION || code == CURLE_SSL_CACERT_BADFILE) {
        rc = hf_fail_at(err, HF_EDENIED, HF_DOM_CURL, code, __FILE__, __LINE__, "%s", what);
        return hf_hint(err, rc,
                       "A certificate of your own is named by AWS_CA_BUNDLE or SSL_CERT_FILE.");
    } else if (code == CURLE_SSL_CONNECT_ERROR && (strstr(what, "protocol version") != NULL ||
                                                   strstr(what, "unsupported protocol") != NULL)) {
        rc = hf_fail_at(err, HF_EDENIED, HF_DOM_CURL, code, __FILE__, __LINE__, "%s", what);
        return hf_hint(err, rc, "The other side speaks older TLS than --tls allows.");
    } else if (code == CURLE_URL_MALFORMAT || code == CURLE_UNSUPPORTED_PROTOCOL) {
        rc = HF_EINVAL;
    } else if (code == CURLE_OUT_OF_MEMORY) {
        rc = HF_EFULL;
    }
    return hf_fail_at(err, rc, HF_DOM_CURL, code, __FILE__, __LINE__, "%s", what);
}

/* Until libcurl is done, or the call's circumstances say no more. */
static enum hf_rc drive(struct exchange *x, CURLM *multi, struct hf_err *err)
{
    enum hf_rc rc = HF_OK;
    const CURLMsg *said = NULL;
    curl_multi_add_handle(multi, x->easy);
    while (rc == HF_OK && said == NULL) {
        int running = 0;
        int left = 0;
        CURLMcode code = curl_multi_perform(multi, &running);
        said = curl_multi_info_read(multi, &left);
        rc = hf_call_check(x->call, err);
        if (rc == HF_OK && said == NULL && code == CURLM_OK) {
            code = curl_multi_poll(multi, NULL, 0, LOOK_MS, NULL);
        }
        if (rc == HF_OK && code != CURLM_OK) {
            rc = hf_fail(err, HF_EAGAIN, "libcurl: %s", curl_multi_strerror(code));
        }
    }
    if (said != NULL) {
        CURLcode code = said->data.result;
        code = code == CURLE_OK && !x->head_ended ? CURLE_PARTIAL_FILE : code;
        rc = code == CURLE_OK ? HF_OK : explain(x, code, err);
    }
    curl_multi_remove_handle(multi, x->easy); /* what is under way goes with its connection */
    return rc;
}

static enum hf_rc perform(struct hf_transfers *t, struct exchange *x, CURLM *multi,
                          struct hf_err *err)
{
    struct curl_slist *lines = NULL;
    for (size_t i = 0; i < x->req->headers.len; i++) {
        struct curl_slist *more = curl_slist_append(lines, x->req->headers.items[i]);
        if (more == NULL) {
            curl_slist_free_all(lines);
            return hf_fail(err, HF_EFULL, "no memory for a request");
        }
        lines = more;
    }
    struct curl_slist *more = curl_slist_append(lines, "Expect:");
    lines = more != NULL ? more : lines;
    set_options(t, x);
    curl_easy_setopt(x->easy, CURLOPT_HTTPHEADER, lines);
    enum hf_rc rc = drive(x, multi, err);
    long status = 0;
    curl_easy_getinfo(x->easy, CURLINFO_RESPONSE_CODE, &status);
    x->reply->status = (int)status;
    curl_slist_free_all(lines);
    return rc;
}

enum hf_rc hf_transfer(struct hf_transfers *t, const struct hf_call *c,
                       const struct hf_request *req, struct hf_reply *ret, struct hf_err *err)
{
    HF_TRY(hf_call_check(c, err));
    struct lane l = take_lane(t);
    struct exchange x = {.call = c, .req = req, .reply = ret, .easy = l.easy};
    if (l.easy == NULL || l.multi == NULL) {
        lane_free(l);
        return hf_fail(err, HF_EFULL, "no memory for a connection");
    }
    hf_reply_release(ret);
    hf_buf_init(&ret->error, HF_REPLY_ERROR);
    ret->status = 0;
    x.before = ret->body != NULL ? ret->body->len : 0;
    enum hf_rc rc = perform(t, &x, l.multi, err);
    if (rc != HF_OK && ret->body != NULL && ret->body->len > x.before) {
        ret->body->len = x.before;
        ret->body->data[x.before] = '\0';
    }
    give_lane(t, l);
    return rc;
}
