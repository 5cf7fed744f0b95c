/* SPDX-License-Identifier: Apache-2.0
 *
 * HTTP exchanges that block, for object stores: one at a time for each worker thread, over
 * connections that are kept. libcurl, HTTP/1.1, no redirect followed, no content encoding. Worker
 * threads; a pool may be used by several at once. (base/http.h is for the loop thread.)
 */
#ifndef HF_CLOUD_TRANSFER_H
#define HF_CLOUD_TRANSFER_H

#include "base/buf.h"
#include "base/mem.h"
#include "cloud/store.h"

struct hf_transfers; /* the pool: idle connections, and how TLS is done */

/* Zeroed: the defaults. Text is copied. */
struct hf_transfers_cfg {
    const char *ca_file; /* trusted instead of what libcurl trusts by itself, NULL: that */
    bool tls_1_3;        /* no older TLS than 1.3; else than 1.2 */
    bool direct;         /* a metadata service: http alone, and never by a proxy */
    uint32_t connect_ms; /* 0: 10 s */
    uint32_t total_ms;   /* of an exchange, 0: no limit but the call's */
};
enum hf_rc hf_transfers_new(const struct hf_transfers_cfg *cfg, struct hf_transfers **ret,
                            struct hf_err *err) HF_MUST_USE;
void hf_transfers_free(struct hf_transfers *t); /* NULL is fine; no exchange may be under way */

struct hf_request {
    const char *method;     /* "GET", "PUT", "DELETE" */
    char *url;              /* owned */
    struct hf_strv headers; /* "name: value" */
    struct hf_span body;    /* borrowed until the exchange is over; sent from where it lies */
    const char *proof;      /* static: a 2xx without this header is somebody else's page, and its
                               body goes to `error`; NULL: all are taken */
};
void hf_request_release(struct hf_request *r);

#define HF_REPLY_HEADERS 32
#define HF_REPLY_ERROR   (64u << 10) /* more of an error's body is not kept */

struct hf_reply {
    int status;
    struct hf_buf *body; /* given by the caller, or NULL. A 2xx appends to it */
    struct hf_buf error; /* the body of any other status, and of a 2xx without the
                            request's proof, or when body is NULL */
    struct hf_strv headers;
};
void hf_reply_release(struct hf_reply *r);
/* The value without blanks around it, or NULL; names compare without case. Owned by r. */
const char *hf_reply_header(const struct hf_reply *r, const char *name);

/* HF_OK for any complete reply, whatever its status. *ret: what came back before is dropped first;
 * body as it was before after a failure. HF_ETIMEOUT: the call's deadline, or 30 s without a byte.
 * HF_ECANCELED. HF_EFULL: body's bound. HF_EDENIED: the certificate is not trusted, or TLS is too
 * old. HF_EINVAL: a URL that is none. HF_EAGAIN: the network; whether the request was carried out
 * is then not known. The cancel flag and the deadline are looked at every 20 ms. */
enum hf_rc hf_transfer(struct hf_transfers *t, const struct hf_call *c,
                       const struct hf_request *req, struct hf_reply *ret,
                       struct hf_err *err) HF_MUST_USE;

#endif
