/* SPDX-License-Identifier: Apache-2.0
 *
 * HTTP by libcurl on the loop. One request object is one transfer at a time; connections are
 * kept alive by the client. Loop thread only. libcurl is initialised by the first request, not
 * before: the command starts before HTTP is touched.
 */
#ifndef HF_BASE_HTTP_H
#define HF_BASE_HTTP_H

#include "base/buf.h"
#include "base/loop.h"
#include "base/mem.h"

struct hf_http;

#define HF_HTTP_HEADERS 24

struct hf_http_req {
    /* What to send; owned by the request, see the setters. */
    char method[8];
    char *url;
    struct hf_strv headers; /* "Name: value" */
    struct hf_buf body;
    uint32_t connect_ms; /* 0: 1000 */
    uint32_t total_ms;   /* 0: 10000; the whole transfer */
    bool metadata; /* link-local service: http:// only, no proxy whatever the environment says */
    /* What came back. status 0: no reply. */
    int status;
    struct hf_buf reply;
    /* "name: value" as received, NULL-terminated; later ones, and any over 1 KiB, are left out. */
    char *reply_headers[HF_HTTP_HEADERS];
    uint64_t sent_ns, done_ns; /* CLOCK_BOOTTIME */
    bool connected;            /* TCP came up: a time-out after that is the hop-limit sign */
};

/* Nothing of libcurl is touched yet. loop outlives the client. */
struct hf_http *hf_http_new(struct hf_loop *loop);
/* Closes the kept connections; NULL is fine. No transfer may be open. The memory goes when the
 * loop has run once more. */
void hf_http_free(struct hf_http *http);

/* Overwrites *req; strings are copied. max_reply_bytes bounds the body (HF_EFULL). */
void hf_http_req_init(struct hf_http_req *req, const char *method, size_t max_reply_bytes);
void hf_http_req_url(struct hf_http_req *req, const char *fmt, ...) HF_PRINTF(2, 3);
void hf_http_req_header(struct hf_http_req *req, const char *fmt, ...) HF_PRINTF(2, 3);
void hf_http_req_release(struct hf_http_req *req); /* not while a transfer is open */

/* Starts. No redirect is followed; a PUT or POST without a body sends Content-Length: 0. done's
 * err is NULL for any complete HTTP reply, whatever its status; else HF_ETIMEOUT, HF_EFULL (reply
 * longer than allowed), HF_EINVAL (address), HF_ECANCELED, or HF_EIO (domain curl; domain errno
 * with the number when no connection came up). req is borrowed until done; what came back from an
 * earlier use is cleared. *ret_op (ret_op may be NULL) is valid until done returns. */
enum hf_rc hf_http_start(struct hf_http *http, struct hf_scope *scope, struct hf_http_req *req,
                         hf_done_fn *done, void *user, struct hf_op **ret_op,
                         struct hf_err *err) HF_MUST_USE;

/* Value of a reply header, leading and trailing blanks removed, or NULL; names compare without
 * case; the first of several. Owned by req. */
const char *hf_http_reply_header(const struct hf_http_req *req, const char *name);

#endif
