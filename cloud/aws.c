/* SPDX-License-Identifier: Apache-2.0
 *
 * Spot notices of AWS: instance metadata with session tokens (IMDSv2), without tokens where there
 * are none. Builds requests and reads replies; no timer, no retry beyond the round, no log line.
 * Loop thread only. A 404 is the healthy answer and its body is never looked at.
 */
#include "base/prelude.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/json.h"
#include "cloud/cloud.h"

#define TOKEN_TTL_S    21600
#define TOKEN_MARGIN_S 15
#define TOKEN_MAX      1024
#define REPLY_MAX      16384
#define BARE_FOR_S     300 /* how long to go on without a token before asking for one again */
#define TTL_HEADER     "X-aws-ec2-metadata-token-ttl-seconds"
#define TOKEN_HEADER   "X-aws-ec2-metadata-token"
#define NOTICE_PATH    "/latest/meta-data/spot/instance-action"
#define PROOF_PATH     "/latest/meta-data/instance-id"
#define HINT_PATH      "/latest/meta-data/events/recommendations/rebalance"
#define HINT_EVERY_S   5  /* between two looks for a recommendation */
#define HINT_FAULT_S   60 /* after one that failed: a notice must not wait for it again and again */

/* BARE is the notice without a token. PROOF comes before it: any web server answers 404, and to
 * take that for a calm EC2 would be blindness that calls itself sight. */
enum asked { ASKED_TOKEN, ASKED_NOTICE, ASKED_BARE, ASKED_PROOF, ASKED_HINT };

struct aws {
    char *endpoint;
    char token[TOKEN_MAX + 1]; /* "": none */
    uint64_t token_end_ns;
    uint64_t bare_until_ns; /* go on without a token until then */
    bool proven;            /* what answers without a token is a metadata service */
    enum asked asked;
    struct hf_notice hint; /* the recommendation that stands; id "": none */
    uint64_t hint_at_ns;   /* when to look for it again; 0: not set yet */
    /* Of the round at hand. */
    struct {
        bool renewed; /* a token came: used whatever its lifetime */
        bool kept;    /* no token came, but the old one still stands */
        bool refused; /* a token was refused */
        bool mute;    /* the token request connected and was never answered */
        bool hint;    /* the notice is calm: now the recommendation */
    } round;
};

static void *create(const char *endpoint)
{
    struct aws *a = HF_NEW(struct aws);
    a->endpoint = hf_strdup(endpoint);
    return a;
}

static void destroy(void *self)
{
    struct aws *a = self;
    if (a != NULL) {
        hf_free(a->endpoint);
        hf_free(a);
    }
}

static enum asked next_question(const struct aws *a, uint64_t now_ns)
{
    if (a->round.hint) {
        return ASKED_HINT;
    }
    if (a->round.mute || now_ns < a->bare_until_ns) {
        return a->proven ? ASKED_BARE : ASKED_PROOF;
    }
    bool fresh = a->token_end_ns > now_ns + TOKEN_MARGIN_S * HF_SEC;
    bool usable = fresh || a->round.renewed || a->round.kept;
    return a->token[0] != '\0' && usable ? ASKED_NOTICE : ASKED_TOKEN;
}

static enum hf_rc poll_req(void *self, uint64_t now_ns, struct hf_http_req *req, struct hf_err *err)
{
    (void)err;
    struct aws *a = self;
    a->asked = next_question(a, now_ns);
    if (a->asked == ASKED_TOKEN) {
        hf_http_req_init(req, "PUT", REPLY_MAX);
        hf_http_req_url(req, "%s/latest/api/token", a->endpoint);
        hf_http_req_header(req, TTL_HEADER ": %d", TOKEN_TTL_S);
        return HF_OK;
    }
    hf_http_req_init(req, "GET", REPLY_MAX);
    hf_http_req_url(req, "%s%s", a->endpoint,
                    a->asked == ASKED_PROOF  ? PROOF_PATH
                    : a->asked == ASKED_HINT ? HINT_PATH
                                             : NOTICE_PATH);
    if (a->asked == ASKED_NOTICE || (a->asked == ASKED_HINT && a->token[0] != '\0')) {
        hf_http_req_header(req, TOKEN_HEADER ": %s", a->token);
    }
    return HF_OK;
}

/* Faults */

static enum hf_poll_result no_reply(const struct hf_err *transport, struct hf_err *err)
{
    *err = *transport;
    hf_wrap(err, err->code, "aws metadata");
    hf_hint(err, err->code,
            "Check that this is an EC2 machine with its metadata service turned on and that "
            "the address can be reached from here, or set --metadata-endpoint.");
    return HF_POLL_FAULT;
}

static enum hf_poll_result odd_status(const struct hf_http_req *req, struct hf_err *err)
{
    int status = req->status;
    bool busy = status >= 500 || status == 429;
    enum hf_rc code = busy ? HF_EAGAIN : status == 401 || status == 403 ? HF_EDENIED : HF_EIO;
    hf_fail_at(err, code, HF_DOM_HTTP, status, __FILE__, __LINE__,
               "aws metadata: %s '%s' was answered with status %d", req->method, req->url, status);
    if (status == 403) {
        hf_hint(err, code,
                "The metadata service of this instance is turned off or forbidden: set "
                "HttpEndpoint to 'enabled' (modify-instance-metadata-options).");
    }
    return HF_POLL_FAULT;
}

static enum hf_poll_result hop_limit(const struct aws *a, struct hf_err *err)
{
    hf_fail_at(err, HF_EDENIED, HF_DOM_HTTP, 401, __FILE__, __LINE__,
               "aws metadata: '%s' takes the token request and its answer never arrives, yet it "
               "wants a token: the hop limit stops the answer on its way into this container",
               a->endpoint);
    hf_hint(err, HF_EDENIED,
            "Set the instance's HttpPutResponseHopLimit to 2 "
            "(modify-instance-metadata-options), or run the container with host networking.");
    return HF_POLL_FAULT;
}

/* Token */

/* The header's number of seconds, or `fallback` when it is missing or odd. */
static uint64_t ttl_of(const struct hf_http_req *req, uint64_t fallback)
{
    const char *text = hf_http_reply_header(req, TTL_HEADER);
    if (text == NULL || text[0] < '0' || text[0] > '9') {
        return fallback;
    }
    char *end;
    unsigned long n = strtoul(text, &end, 10);
    return *end == '\0' && n <= TOKEN_TTL_S ? n : fallback;
}

static enum hf_poll_result take_token(struct aws *a, uint64_t now_ns, const struct hf_http_req *req,
                                      struct hf_err *err)
{
    const char *text = hf_buf_str(&req->reply);
    size_t len = req->reply.len;
    while (len > 0 && (text[len - 1] == '\n' || text[len - 1] == '\r')) {
        len--;
    }
    bool ok = len > 0 && len <= TOKEN_MAX;
    for (size_t i = 0; ok && i < len; i++) {
        ok = text[i] > ' ' && text[i] <= '~';
    }
    if (!ok) {
        hf_fail(err, HF_ECORRUPT,
                "aws metadata: the token request was answered with %zu bytes that are no token",
                req->reply.len);
        return HF_POLL_FAULT;
    }
    memcpy(a->token, text, len);
    a->token[len] = '\0';
    a->token_end_ns = now_ns + ttl_of(req, TOKEN_TTL_S) * HF_SEC;
    a->round.renewed = true;
    return HF_POLL_MORE;
}

static enum hf_poll_result read_token(struct aws *a, uint64_t now_ns, const struct hf_http_req *req,
                                      const struct hf_err *transport, struct hf_err *err)
{
    if (transport == NULL && req->status == 200) {
        return take_token(a, now_ns, req, err);
    }
    if (transport == NULL && (req->status == 403 || req->status == 404 || req->status == 405)) {
        a->token[0] = '\0';
        a->bare_until_ns = now_ns + BARE_FOR_S * HF_SEC;
        a->proven = false;
        return HF_POLL_MORE;
    }
    if (a->token[0] != '\0' && now_ns < a->token_end_ns) {
        a->round.kept = true;
        return HF_POLL_MORE;
    }
    if (transport != NULL && transport->code == HF_ETIMEOUT && req->connected) {
        a->proven = false;
        a->round.mute = true; /* a question without a token tells a hop limit from a dead service */
        return HF_POLL_MORE;
    }
    return transport != NULL ? no_reply(transport, err) : odd_status(req, err);
}

/* Notice */

static bool known_action(const char *action)
{
    return strcmp(action, "terminate") == 0 || strcmp(action, "stop") == 0 ||
           strcmp(action, "hibernate") == 0;
}

static bool plain_word(const char *s)
{
    for (const char *p = s; *p != '\0'; p++) {
        if (*p <= ' ' || *p > '~') {
            return false;
        }
    }
    return s[0] != '\0';
}

static void digest_id(const char *action, const char *at, char *ret, size_t size)
{
    HF_CLEANUP(hf_freep) char *text = hf_asprintf("%s|%s", action, at);
    char hex[HF_SHA256_HEX];
    hf_sha256_hex((struct hf_span){text, strlen(text)}, hex);
    snprintf(ret, size, "%.32s", hex);
}

static enum hf_rc parse_notice(const struct hf_http_req *req, struct hf_notice *ret,
                               struct hf_err *err)
{
    HF_CLEANUP(hf_json_freep) cJSON *json = NULL;
    const char *action;
    HF_TRY(hf_json_parse(hf_buf_span(&req->reply), REPLY_MAX, &json, err));
    HF_TRY(hf_json_get_str(json, "action", &action, err));
    if (!plain_word(action) || strlen(action) >= sizeof(ret->action)) {
        return hf_fail(err, HF_ECORRUPT, "'action' is '%.40s'", action);
    }
    const char *at = hf_json_opt_str(json, "time", "");
    struct hf_notice n = {.kind = HF_NOTICE_RECLAIM, .source = "aws"};
    enum hf_rc rc = hf_utc_parse(at, &n.at_wall_ms, err);
    if (rc != HF_OK && !known_action(action)) {
        return hf_wrap(err, HF_ECORRUPT, "'time'");
    }
    /* With a known action an unreadable time leaves 0, unknown: the window decides. */
    snprintf(n.action, sizeof(n.action), "%s", action);
    digest_id(action, at, n.id, sizeof(n.id));
    n.window_ms = strcmp(action, "hibernate") == 0 ? 1 : 0; /* it begins at once */
    const char *date = hf_http_reply_header(req, "Date");
    if (date != NULL) {
        (void)!hf_http_date_parse(date, &n.date_wall_ms, NULL); /* unknown stays 0 */
    }
    *ret = n;
    return HF_OK;
}

static enum hf_poll_result take_notice(const struct hf_http_req *req, struct hf_notice_list *ret,
                                       struct hf_err *err)
{
    struct hf_err why = {.code = HF_OK};
    if (parse_notice(req, &ret->items[0], &why) != HF_OK) {
        hf_fail(err, HF_ECORRUPT,
                "aws metadata: '%s' was answered with status 200 and no notice that can be read "
                "(%s), beginning '%.60s'",
                req->url, why.msg, hf_buf_str(&req->reply));
        return HF_POLL_FAULT;
    }
    ret->len = 1;
    return HF_POLL_DONE;
}

static enum hf_poll_result unauthorized(struct aws *a, const struct hf_http_req *req,
                                        struct hf_err *err)
{
    if (a->round.mute) {
        return hop_limit(a, err);
    }
    a->token[0] = '\0';
    a->bare_until_ns = 0;
    a->proven = false;
    if (!a->round.refused) {
        a->round.refused = true;
        a->round.renewed = a->round.kept = false;
        return HF_POLL_MORE;
    }
    return odd_status(req, err);
}

static enum hf_poll_result take_proof(struct aws *a, const struct hf_http_req *req,
                                      struct hf_err *err)
{
    if (req->status == 200 && req->reply.len > 0) {
        a->proven = true;
        return HF_POLL_MORE;
    }
    if (req->status != 200 && req->status != 404) {
        return odd_status(req, err);
    }
    a->bare_until_ns = 0;
    hf_fail_at(err, HF_ENOTFOUND, HF_DOM_HTTP, req->status, __FILE__, __LINE__,
               "aws metadata: what answers at '%s' is no EC2 metadata service: it has neither "
               "tokens nor an instance id",
               a->endpoint);
    hf_hint(err, HF_ENOTFOUND, "Check --metadata-endpoint, or choose the right provider.");
    return HF_POLL_FAULT;
}

/* The first look comes a moment after the first calm answer. */
static bool hint_due(struct aws *a, uint64_t now_ns)
{
    bool due = a->hint_at_ns != 0 && now_ns >= a->hint_at_ns;
    if (due || a->hint_at_ns == 0) {
        a->hint_at_ns = now_ns + HINT_EVERY_S * HF_SEC;
    }
    return due;
}

/* {"noticeTime": "..."}; *ret is left alone when it cannot be read. Its time is when it was given:
 * no deadline follows from it. */
static bool parse_hint(const struct hf_http_req *req, struct hf_notice *ret)
{
    HF_CLEANUP(hf_json_freep) cJSON *json = NULL;
    const char *at;
    int64_t when = 0;
    if (hf_json_parse(hf_buf_span(&req->reply), REPLY_MAX, &json, NULL) != HF_OK ||
        hf_json_get_str(json, "noticeTime", &at, NULL) != HF_OK ||
        hf_utc_parse(at, &when, NULL) != HF_OK) {
        return false;
    }
    *ret = (struct hf_notice){.kind = HF_NOTICE_REBALANCE, .source = "aws"};
    digest_id("rebalance", at, ret->id, sizeof(ret->id));
    return true;
}

static enum hf_poll_result read_notice(struct aws *a, uint64_t now_ns,
                                       const struct hf_http_req *req, struct hf_notice_list *ret,
                                       struct hf_err *err)
{
    if (req->status == 401) {
        return unauthorized(a, req, err);
    }
    if (a->asked == ASKED_PROOF) {
        return take_proof(a, req, err);
    }
    if (req->status != 404 && req->status != 200) {
        return odd_status(req, err);
    }
    if (a->round.mute) {
        a->bare_until_ns = now_ns + BARE_FOR_S * HF_SEC; /* it does without tokens */
    }
    if (a->asked == ASKED_NOTICE) {
        uint64_t left_ns = ttl_of(req, TOKEN_TTL_S) * HF_SEC;
        if (now_ns + left_ns < a->token_end_ns) {
            a->token_end_ns = now_ns + left_ns;
        }
    }
    if (req->status == 200) {
        return take_notice(req, ret, err);
    }
    a->round.hint = hint_due(a, now_ns);
    return a->round.hint ? HF_POLL_MORE : HF_POLL_DONE;
}

/* The round has its answer already, whatever comes of this: the machine is calm. */
static void read_hint(struct aws *a, uint64_t now_ns, const struct hf_http_req *req,
                      const struct hf_err *transport)
{
    if (transport == NULL && req->status == 404) {
        a->hint.id[0] = '\0';
    } else if (transport == NULL && req->status == 401) {
        a->token[0] = '\0';
    } else if (transport != NULL || req->status != 200 || !parse_hint(req, &a->hint)) {
        a->hint_at_ns = now_ns + HINT_FAULT_S * HF_SEC;
    }
}

static enum hf_poll_result poll_read(void *self, uint64_t now_ns, const struct hf_http_req *req,
                                     const struct hf_err *transport, struct hf_notice_list *ret,
                                     struct hf_err *err)
{
    struct aws *a = self;
    enum hf_poll_result result;
    ret->len = 0;
    if (a->asked == ASKED_HINT) {
        read_hint(a, now_ns, req, transport);
        result = HF_POLL_DONE;
    } else if (a->asked == ASKED_TOKEN) {
        result = read_token(a, now_ns, req, transport, err);
    } else if (transport != NULL) {
        result = no_reply(transport, err);
    } else {
        result = read_notice(a, now_ns, req, ret, err);
    }
    if (result != HF_POLL_MORE) {
        memset(&a->round, 0, sizeof(a->round));
    }
    if (result == HF_POLL_DONE && a->hint.id[0] != '\0') {
        ret->items[ret->len++] = a->hint;
    }
    return result;
}

const struct hf_cloud_ops hf_cloud_aws = {
    .size = sizeof(struct hf_cloud_ops),
    .name = "aws",
    .endpoint = "http://169.254.169.254",
    .disabled_env = "AWS_EC2_METADATA_DISABLED",
    .endpoint_env = "AWS_EC2_METADATA_SERVICE_ENDPOINT",
    .poll_ms = 1000,
    .total_ms = 2000,
    .window_ms = 120000,
    .create = create,
    .destroy = destroy,
    .poll_req = poll_req,
    .poll_read = poll_read,
};
