/* SPDX-License-Identifier: Apache-2.0
 *
 * The long-poll double: both sides of it, provider and service. The body is "calm" or
 * "taken NUMBER"; the ETag is the number.
 */
#include "base/prelude.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support_longpoll.h"

struct longpoll {
    char *endpoint;
    char etag[24]; /* "": nothing answered yet */
};

static void *create(const char *endpoint)
{
    struct longpoll *p = HF_NEW(struct longpoll);
    p->endpoint = hf_strdup(endpoint);
    return p;
}

static void destroy(void *self)
{
    struct longpoll *p = self;
    if (p != NULL) {
        hf_free(p->endpoint);
        hf_free(p);
    }
}

static enum hf_rc poll_req(void *self, uint64_t now_ns, struct hf_http_req *req, struct hf_err *err)
{
    (void)now_ns;
    (void)err;
    struct longpoll *p = self;
    hf_http_req_init(req, "GET", 256);
    if (p->etag[0] == '\0') {
        hf_http_req_url(req, "%s/taken", p->endpoint);
        req->total_ms = 20000; /* the first answer may take long */
    } else {
        hf_http_req_url(req, "%s/taken?wait=1&last=%s", p->endpoint, p->etag);
        req->total_ms = 15000;
    }
    return HF_OK;
}

static enum hf_poll_result poll_read(void *self, uint64_t now_ns, const struct hf_http_req *req,
                                     const struct hf_err *transport, struct hf_notice_list *ret,
                                     struct hf_err *err)
{
    (void)now_ns;
    struct longpoll *p = self;
    if (transport != NULL) {
        *err = *transport;
        hf_wrap(err, err->code, "longpoll");
        p->etag[0] = '\0'; /* ask plainly: a change may have been missed */
        return HF_POLL_FAULT;
    }
    const char *body = hf_buf_str(&req->reply), *etag = hf_http_reply_header(req, "ETag");
    bool taken = strncmp(body, "taken ", 6) == 0;
    if (req->status != 200 || etag == NULL || (!taken && strcmp(body, "calm") != 0)) {
        hf_fail(err, HF_ECORRUPT, "longpoll: status %d, '%.20s'", req->status, body);
        p->etag[0] = '\0';
        return HF_POLL_FAULT;
    }
    snprintf(p->etag, sizeof(p->etag), "%s", etag);
    ret->len = 0;
    if (taken) {
        struct hf_notice n = {.kind = HF_NOTICE_RECLAIM, .source = "longpoll"};
        snprintf(n.id, sizeof(n.id), "%s", body + 6);
        ret->items[ret->len++] = n;
    }
    return HF_POLL_DONE;
}

static enum hf_rc ack_req(void *self, const struct hf_notice *n, struct hf_http_req *req,
                          struct hf_err *err)
{
    struct longpoll *p = self;
    hf_http_req_init(req, "POST", 256);
    hf_http_req_url(req, "%s/taken", p->endpoint);
    return hf_buf_addf(&req->body, err, "{\"start\":\"%s\"}", n->id);
}

const struct hf_cloud_ops hf_cloud_longpoll = {
    .size = sizeof(struct hf_cloud_ops),
    .name = "longpoll",
    .flags = HF_CLOUD_LONG_POLL,
    .endpoint = "http://127.0.0.1:7777",
    .poll_ms = 200,
    .total_ms = 2000,
    .window_ms = 30000,
    .create = create,
    .destroy = destroy,
    .poll_req = poll_req,
    .poll_read = poll_read,
    .ack_req = ack_req,
};

/* The service */

static void describe(unsigned state, struct hf_httpd_reply *ret)
{
    snprintf(ret->headers, sizeof(ret->headers), "ETag: %u\r\n", state);
    if (state == 0) {
        snprintf(ret->body, sizeof(ret->body), "calm");
    } else {
        snprintf(ret->body, sizeof(ret->body), "taken %u", state);
    }
}

void hf_longpoll_serve(void *service, const struct hf_httpd_request *rq, struct hf_httpd_reply *ret)
{
    struct hf_longpoll_service *s = service;
    if (strcmp(rq->method, "POST") == 0) {
        s->acknowledged++;
        return;
    }
    if (!rq->held) {
        s->questions++;
    }
    const char *last = strstr(rq->path, "last=");
    if (last != NULL && strtoul(last + 5, NULL, 10) == s->state && !rq->held && s->hold_ms > 0) {
        s->hanging++;
        ret->hold_ms = s->hold_ms;
        return;
    }
    ret->delay_ms = s->questions == 1 ? s->first_delay_ms : 0;
    describe(s->state, ret);
}

static void serve_mood(void *mood, const struct hf_httpd_request *rq, struct hf_httpd_reply *ret)
{
    if (strcmp(rq->method, "POST") == 0) {
        ret->status = strcmp(rq->body, "{\"start\":\"1\"}") == 0 ? 200 : 400;
        return;
    }
    describe(*(enum hf_mood *)mood, ret);
}

const struct hf_conform_subject hf_longpoll_subject = {&hf_cloud_longpoll, serve_mood, true, false};
