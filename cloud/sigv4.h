/* SPDX-License-Identifier: Apache-2.0
 *
 * AWS Signature Version 4, as it is done for S3: the path is signed as it is sent, neither
 * normalised nor encoded twice (read in botocore; vectors in tests/unit/test_sigv4.c are its own).
 * Pure but for OpenSSL's HMAC; any thread.
 */
#ifndef HF_CLOUD_SIGV4_H
#define HF_CLOUD_SIGV4_H

#include "base/err.h"
#include "base/mem.h"

#define HF_SIGV4_UNSIGNED "UNSIGNED-PAYLOAD" /* over TLS only: AWS refuses it elsewhere */

struct hf_sigv4 {
    const char *access_key, *secret_key;
    const char *token; /* of temporary keys; NULL: none */
    const char *region, *service;
    int64_t now_wall_ms; /* by the service's clock: more than 15 minutes off is refused */
};

/* What is sent. path: encoded, begins with '/'. query: encoded, sorted, "a=1&b=", or "". host: as
 * in the Host header that goes out. payload: lower-case hex of the body's SHA-256, or
 * HF_SIGV4_UNSIGNED. */
struct hf_sigv4_request {
    const char *method, *host, *path, *query, *payload;
};

/* headers: "name: value" lines that go out, names in lower case, each once; all are signed. Adds
 * x-amz-date, x-amz-content-sha256, x-amz-security-token and authorization to them. */
void hf_sigv4_sign(const struct hf_sigv4 *k, const struct hf_sigv4_request *r,
                   struct hf_strv *headers);

/* Percent-encodes all but A-Z a-z 0-9 - _ . ~ and, where `slash`, '/'. Owned by the caller. */
char *hf_uri_encode(const char *text, bool slash);

#endif
