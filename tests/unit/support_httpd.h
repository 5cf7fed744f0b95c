/* SPDX-License-Identifier: Apache-2.0
 *
 * A raw HTTP/1.1 server for tests, on a free port of 127.0.0.1, with threads of its own. A
 * function decides what happens to each request, misbehaviour included. Requests are decided one
 * at a time, in the order in which they came in.
 */
#ifndef HF_TESTS_SUPPORT_HTTPD_H
#define HF_TESTS_SUPPORT_HTTPD_H

#include "base/prelude.h"

#include <pthread.h>

enum hf_httpd_act {
    HF_HTTPD_ANSWER,
    HF_HTTPD_MUTE, /* never answers; the connection stays up */
    HF_HTTPD_CUT,  /* announces the whole body, sends half of it and closes */
    HF_HTTPD_DROP  /* closes without a byte */
};

struct hf_httpd_request {
    char method[8];
    char path[512];
    char head[8192]; /* request line and headers as received */
    char body[1024]; /* its beginning */
    size_t body_len;
    unsigned connection; /* 1 is the first one accepted */
    bool held;           /* asked again after hold_ms or hf_httpd_release */
};

struct hf_httpd_reply {
    enum hf_httpd_act act;
    int status;        /* 0: 200 */
    char headers[512]; /* each line ended by \r\n; Content-Length is added */
    char body[2048];
    size_t filler_bytes; /* that many 'x' after the body */
    unsigned delay_ms;   /* before anything is sent */
    unsigned hold_ms;    /* not 0: hold the request so long, then ask the function again */
};

typedef void hf_httpd_fn(void *user, const struct hf_httpd_request *rq, struct hf_httpd_reply *ret);

struct hf_httpd;
struct hf_httpd *hf_httpd_start(hf_httpd_fn *fn, void *user);
void hf_httpd_stop(struct hf_httpd *s); /* NULL is fine; joins all threads */
uint16_t hf_httpd_port(const struct hf_httpd *s);
void hf_httpd_release(struct hf_httpd *s); /* ends all holds */
unsigned hf_httpd_requests(struct hf_httpd *s);
unsigned hf_httpd_connections(struct hf_httpd *s);

/* How often a header stands in the request, and the last value of it (may be NULL). */
unsigned hf_httpd_header(const struct hf_httpd_request *rq, const char *name, char *ret,
                         size_t size);

/* A port of 127.0.0.1 on which nobody listens. */
uint16_t hf_httpd_refusing_port(void);

/* A list of replies, one a request; the last one repeats. Use hf_httpd_play as the function. */
struct hf_httpd_script {
    const struct hf_httpd_reply *replies;
    size_t len;
    size_t next;
};
void hf_httpd_play(void *script, const struct hf_httpd_request *rq, struct hf_httpd_reply *ret);

#endif
