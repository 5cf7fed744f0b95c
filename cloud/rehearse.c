/* SPDX-License-Identifier: Apache-2.0
 *
 * A metadata service for rehearsals, as AWS behaves: session tokens with a lifetime, 404 while
 * calm, the notice, and nothing else. libmicrohttpd's own thread answers; the state that both
 * sides touch is under one lock. Listens on loopback alone, since whoever can reach it can read
 * tokens from it.
 */
#include "base/prelude.h"

#include <arpa/inet.h>
#include <inttypes.h>
#include <microhttpd.h>
#include <netinet/in.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/hash.h"
#include "base/mem.h"
#include "cloud/chaos.h"
#include "cloud/rehearse.h"

#define TTL_HEADER   "X-aws-ec2-metadata-token-ttl-seconds"
#define TOKEN_HEADER "X-aws-ec2-metadata-token"
#define TTL_MAX_S    21600
#define TOKENS       64 /* the oldest one is forgotten */
#define TOKEN_HEX    41
#define HUNG_MAX     48 /* of the 64 connections */

struct token {
    char text[TOKEN_HEX];
    uint64_t end_ns;
};

struct hf_rehearsal {
    struct MHD_Daemon *daemon;
    uint16_t port;
    atomic_uint_fast64_t seen_ns, requests, faults;
    pthread_mutex_t lock;
    /* Under the lock. */
    struct token tokens[TOKENS];
    size_t next_token;
    bool marked;
    char action[16];
    char time[HF_UTC_STRLEN];
    bool chaos;
    uint64_t seed, asked;
    struct MHD_Connection *hung[HUNG_MAX]; /* suspended: they are never answered */
    size_t n_hung;
    char hint[HF_UTC_STRLEN]; /* of the recommendation; "": none */
};

/* Answers */

static const char html_form[] = "<?xml version=\"1.0\" encoding=\"iso-8859-1\"?>\n"
                                "<html><head><title>%s</title></head>\n"
                                "<body><h1>%s</h1></body></html>\n";

static enum MHD_Result answer(struct MHD_Connection *c, unsigned status, const char *type,
                              const char *body, uint64_t ttl_s)
{
    struct MHD_Response *r = MHD_create_response_from_buffer(strlen(body), (void *)(uintptr_t)body,
                                                             MHD_RESPMEM_MUST_COPY);
    if (r == NULL) {
        return MHD_NO;
    }
    MHD_add_response_header(r, "Content-Type", type);
    MHD_add_response_header(r, "Server", "EC2ws");
    if (ttl_s > 0) {
        char text[24];
        snprintf(text, sizeof(text), "%" PRIu64, ttl_s);
        MHD_add_response_header(r, TTL_HEADER, text);
    }
    enum MHD_Result result = MHD_queue_response(c, status, r);
    MHD_destroy_response(r);
    return result;
}

static enum MHD_Result answer_page(struct MHD_Connection *c, unsigned status, const char *title)
{
    char body[256];
    snprintf(body, sizeof(body), html_form, title, title);
    return answer(c, status, "text/html", body, 0);
}

/* Tokens */

static const char *header(struct MHD_Connection *c, const char *name)
{
    return MHD_lookup_connection_value(c, MHD_HEADER_KIND, name);
}

/* 0 when it is not a number from 1 to 21600. */
static uint64_t wanted_ttl_s(const char *text)
{
    if (text == NULL || text[0] < '0' || text[0] > '9') {
        return 0;
    }
    char *end;
    unsigned long n = strtoul(text, &end, 10);
    return *end == '\0' && n >= 1 && n <= TTL_MAX_S ? n : 0;
}

static enum MHD_Result give_token(struct hf_rehearsal *r, struct MHD_Connection *c)
{
    if (header(c, "X-Forwarded-For") != NULL) {
        return answer_page(c, MHD_HTTP_FORBIDDEN, "403 - Forbidden");
    }
    uint64_t ttl_s = wanted_ttl_s(header(c, TTL_HEADER));
    if (ttl_s == 0) {
        return answer_page(c, MHD_HTTP_BAD_REQUEST, "400 - Bad Request");
    }
    struct token t = {.end_ns = hf_now_ns() + ttl_s * HF_SEC};
    hf_random_hex((sizeof(t.text) - 1) / 2, t.text);
    pthread_mutex_lock(&r->lock);
    r->tokens[r->next_token] = t;
    r->next_token = (r->next_token + 1) % TOKENS;
    pthread_mutex_unlock(&r->lock);
    return answer(c, MHD_HTTP_OK, "text/plain", t.text, ttl_s);
}

/* Seconds that the request's token has left, 0 when it has none that holds. Under the lock. */
static uint64_t token_left_s(const struct hf_rehearsal *r, const char *text)
{
    uint64_t now_ns = hf_now_ns();
    for (size_t i = 0; text != NULL && i < TOKENS; i++) {
        const struct token *t = &r->tokens[i];
        if (t->end_ns > now_ns && strcmp(t->text, text) == 0) {
            return (t->end_ns - now_ns + HF_SEC - 1) / HF_SEC;
        }
    }
    return 0;
}

/* Requests */

static enum MHD_Result give_notice(struct hf_rehearsal *r, struct MHD_Connection *c)
{
    char body[128] = "";
    pthread_mutex_lock(&r->lock);
    uint64_t left_s = token_left_s(r, header(c, TOKEN_HEADER));
    if (r->marked) {
        snprintf(body, sizeof(body), "{\"action\":\"%s\",\"time\":\"%s\"}", r->action, r->time);
    }
    pthread_mutex_unlock(&r->lock);
    if (left_s == 0) {
        return answer_page(c, MHD_HTTP_UNAUTHORIZED, "401 - Unauthorized");
    }
    if (body[0] == '\0') {
        return answer_page(c, MHD_HTTP_NOT_FOUND, "404 - Not Found");
    }
    uint_fast64_t none = 0;
    atomic_compare_exchange_strong(&r->seen_ns, &none, hf_now_ns());
    return answer(c, MHD_HTTP_OK, "application/json", body, left_s);
}

static enum MHD_Result give_hint(struct hf_rehearsal *r, struct MHD_Connection *c)
{
    char body[64] = "";
    pthread_mutex_lock(&r->lock);
    uint64_t left_s = token_left_s(r, header(c, TOKEN_HEADER));
    if (r->hint[0] != '\0') {
        snprintf(body, sizeof(body), "{\"noticeTime\":\"%s\"}", r->hint);
    }
    pthread_mutex_unlock(&r->lock);
    if (left_s == 0) {
        return answer_page(c, MHD_HTTP_UNAUTHORIZED, "401 - Unauthorized");
    }
    return body[0] == '\0' ? answer_page(c, MHD_HTTP_NOT_FOUND, "404 - Not Found")
                           : answer(c, MHD_HTTP_OK, "application/json", body, left_s);
}

static enum MHD_Result give_nothing(struct hf_rehearsal *r, struct MHD_Connection *c)
{
    pthread_mutex_lock(&r->lock);
    uint64_t left_s = token_left_s(r, header(c, TOKEN_HEADER));
    pthread_mutex_unlock(&r->lock);
    return left_s == 0 ? answer_page(c, MHD_HTTP_UNAUTHORIZED, "401 - Unauthorized")
                       : answer_page(c, MHD_HTTP_NOT_FOUND, "404 - Not Found");
}

/* Chaos */

/* The n oldest are let go, which closes them unanswered. Under the lock. */
static void let_go(struct hf_rehearsal *r, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        MHD_resume_connection(r->hung[i]);
    }
    r->n_hung -= n;
    memmove(r->hung, r->hung + n, r->n_hung * sizeof(r->hung[0]));
}

static enum hf_chaos draw(struct hf_rehearsal *r, struct MHD_Connection *c)
{
    pthread_mutex_lock(&r->lock);
    enum hf_chaos fate = r->chaos ? hf_chaos_of(r->seed, r->asked++) : HF_CHAOS_NONE;
    if (fate == HF_CHAOS_UNAUTHORIZED) {
        memset(r->tokens, 0, sizeof(r->tokens));
    } else if (fate == HF_CHAOS_HANG) {
        if (r->n_hung == HUNG_MAX) {
            let_go(r, HUNG_MAX / 2);
        }
        r->hung[r->n_hung++] = c;
        MHD_suspend_connection(c);
    }
    pthread_mutex_unlock(&r->lock);
    return fate;
}

/* False: nothing went wrong, answer as ever. */
static bool spoil(struct hf_rehearsal *r, struct MHD_Connection *c, void **per_request,
                  enum MHD_Result *ret)
{
    *ret = MHD_YES;
    enum hf_chaos fate = draw(r, c);
    if (fate != HF_CHAOS_NONE) {
        atomic_fetch_add(&r->faults, 1);
    }
    switch (fate) {
    case HF_CHAOS_NONE:
    case HF_CHAOS_KINDS:
        return false;
    case HF_CHAOS_UNAUTHORIZED:
        *ret = answer_page(c, MHD_HTTP_UNAUTHORIZED, "401 - Unauthorized");
        break;
    case HF_CHAOS_ERROR:
        *ret = answer_page(c, MHD_HTTP_INTERNAL_SERVER_ERROR, "500 - Internal Server Error");
        break;
    case HF_CHAOS_BUSY:
        *ret = answer_page(c, MHD_HTTP_SERVICE_UNAVAILABLE, "503 - Service Unavailable");
        break;
    case HF_CHAOS_HANG:
        *per_request = &r->hung;
        break;
    case HF_CHAOS_DROP:
        *ret = MHD_NO;
        break;
    }
    return true;
}

static bool ends_with(const char *s, const char *end)
{
    size_t n = strlen(s), m = strlen(end);
    return n >= m && strcmp(s + n - m, end) == 0;
}

static enum MHD_Result requested(void *user, struct MHD_Connection *c, const char *url,
                                 const char *method, const char *version, const char *upload,
                                 size_t *upload_len, void **per_request)
{
    (void)version;
    (void)upload;
    struct hf_rehearsal *r = user;
    if (*per_request == NULL) {
        *per_request = r; /* the head is in; libmicrohttpd calls again when the body is */
        return MHD_YES;
    }
    if (*upload_len > 0) {
        *upload_len = 0;
        return MHD_YES;
    }
    if (*per_request == &r->hung) {
        return MHD_NO; /* it hung, and is let go */
    }
    atomic_fetch_add(&r->requests, 1);
    enum MHD_Result spoiled = MHD_YES;
    if (spoil(r, c, per_request, &spoiled)) {
        return spoiled;
    }
    bool get = strcmp(method, MHD_HTTP_METHOD_GET) == 0;
    if (strcmp(method, MHD_HTTP_METHOD_PUT) == 0 && ends_with(url, "/api/token")) {
        return strcmp(url, "/latest/api/token") == 0
                   ? give_token(r, c)
                   : answer_page(c, MHD_HTTP_FORBIDDEN, "403 - Forbidden");
    }
    if (!get || ends_with(url, "/api/token")) {
        return answer_page(c, MHD_HTTP_METHOD_NOT_ALLOWED, "405 - Method Not Allowed");
    }
    if (strcmp(url, "/latest/meta-data/spot/instance-action") == 0) {
        return give_notice(r, c);
    }
    if (strcmp(url, "/latest/meta-data/events/recommendations/rebalance") == 0) {
        return give_hint(r, c);
    }
    return give_nothing(r, c);
}

/* The service */

static enum hf_rc start_daemon(struct hf_rehearsal *r, uint16_t port, struct hf_err *err)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons(port)};
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    /* The new thread must not take signals that the program waits for elsewhere. */
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    r->daemon = MHD_start_daemon(MHD_USE_AUTO_INTERNAL_THREAD | MHD_ALLOW_SUSPEND_RESUME, port,
                                 NULL, NULL, requested, r, MHD_OPTION_SOCK_ADDR,
                                 (struct sockaddr *)&at, MHD_OPTION_CONNECTION_LIMIT, 64u,
                                 MHD_OPTION_CONNECTION_TIMEOUT, 30u, MHD_OPTION_END);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (r->daemon == NULL) {
        return hf_fail(err, HF_EIO, "rehearsal service: cannot listen on 127.0.0.1:%u",
                       (unsigned)port);
    }
    const union MHD_DaemonInfo *info = MHD_get_daemon_info(r->daemon, MHD_DAEMON_INFO_BIND_PORT);
    r->port = info != NULL ? info->port : port;
    return HF_OK;
}

enum hf_rc hf_rehearsal_start(uint16_t port, struct hf_rehearsal **ret, struct hf_err *err)
{
    struct hf_rehearsal *r = HF_NEW(struct hf_rehearsal);
    pthread_mutex_init(&r->lock, NULL);
    enum hf_rc rc = start_daemon(r, port, err);
    if (rc != HF_OK) {
        hf_rehearsal_stop(r);
        return rc;
    }
    *ret = r;
    return HF_OK;
}

uint16_t hf_rehearsal_port(const struct hf_rehearsal *r)
{
    return r->port;
}

void hf_rehearsal_notice(struct hf_rehearsal *r, const char *action, uint64_t lead_ms)
{
    char utc[HF_UTC_STRLEN];
    hf_utc_format(hf_wall_ms() + (int64_t)lead_ms, utc);
    pthread_mutex_lock(&r->lock);
    r->marked = true;
    snprintf(r->action, sizeof(r->action), "%s", action);
    /* "2026-11-30T22:37:01.000Z" without the fraction, as the real service writes it. */
    snprintf(r->time, sizeof(r->time), "%.19sZ", utc);
    atomic_store(&r->seen_ns, 0);
    pthread_mutex_unlock(&r->lock);
}

void hf_rehearsal_hint(struct hf_rehearsal *r)
{
    char utc[HF_UTC_STRLEN];
    hf_utc_format(hf_wall_ms(), utc);
    pthread_mutex_lock(&r->lock);
    /* Without the fraction, as above. */
    snprintf(r->hint, sizeof(r->hint), "%.19sZ", utc);
    pthread_mutex_unlock(&r->lock);
}

void hf_rehearsal_calm(struct hf_rehearsal *r)
{
    pthread_mutex_lock(&r->lock);
    r->marked = false;
    r->hint[0] = '\0';
    pthread_mutex_unlock(&r->lock);
}

void hf_rehearsal_chaos(struct hf_rehearsal *r, uint64_t seed)
{
    pthread_mutex_lock(&r->lock);
    r->chaos = true;
    r->seed = seed;
    r->asked = 0;
    pthread_mutex_unlock(&r->lock);
}

uint64_t hf_rehearsal_faults(const struct hf_rehearsal *r)
{
    return atomic_load(&r->faults);
}

uint64_t hf_rehearsal_seen_ns(const struct hf_rehearsal *r)
{
    return atomic_load(&r->seen_ns);
}

uint64_t hf_rehearsal_requests(const struct hf_rehearsal *r)
{
    return atomic_load(&r->requests);
}

void hf_rehearsal_stop(struct hf_rehearsal *r)
{
    if (r == NULL) {
        return;
    }
    if (r->daemon != NULL) {
        pthread_mutex_lock(&r->lock);
        r->chaos = false;
        let_go(r, r->n_hung);
        pthread_mutex_unlock(&r->lock);
        MHD_stop_daemon(r->daemon);
    }
    pthread_mutex_destroy(&r->lock);
    hf_free(r);
}
