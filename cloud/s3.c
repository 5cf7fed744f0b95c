/* SPDX-License-Identifier: Apache-2.0
 *
 * Amazon S3 and what speaks like it. Requests are signed with version 4; over TLS the payload is
 * not hashed, since TLS proves it, over plain HTTP it is, so that the store does. Pure.
 * Sources of names and codes: the S3 API reference and botocore's retry tables.
 */
#include "base/prelude.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/hash.h"
#include "cloud/dialect.h"
#include "cloud/sigv4.h"
#include "cloud/xml.h"

#define CODE_ROOM 64
#define TEXT_ROOM 160
#define KEY_ROOM  1100   /* S3 allows 1024 bytes */
#define PROOF     "etag" /* no portal's page has it */

/* "https://host" and "/bucket/" or "/". Both owned by the caller. */
static char *host_of(const struct hf_place *at, const char **ret_scheme)
{
    *ret_scheme = "https://";
    if (at->endpoint == NULL) {
        const char *tail = strncmp(at->region, "cn-", 3) == 0 ? ".cn" : "";
        return at->path_style
                   ? hf_asprintf("s3.%s.amazonaws.com%s", at->region, tail)
                   : hf_asprintf("%s.s3.%s.amazonaws.com%s", at->bucket, at->region, tail);
    }
    const char *host = strstr(at->endpoint, "://") + 3;
    *ret_scheme = strncmp(at->endpoint, "http://", 7) == 0 ? "http://" : *ret_scheme;
    return at->path_style ? hf_strdup(host) : hf_asprintf("%s.%s", at->bucket, host);
}

static char *query_of(const struct hf_ask *ask)
{
    if (ask->kind != HF_ASK_LIST) {
        return hf_strdup("");
    }
    HF_CLEANUP(hf_freep) char *prefix = hf_uri_encode(ask->key, false);
    HF_CLEANUP(hf_freep) char *after = hf_uri_encode(ask->after != NULL ? ask->after : "", false);
    return hf_asprintf("%s%s%sencoding-type=url&list-type=2&prefix=%s",
                       ask->after != NULL ? "continuation-token=" : "", after,
                       ask->after != NULL ? "&" : "", prefix);
}

static void build(const struct hf_place *at, const struct hf_creds *keys, int64_t now_wall_ms,
                  const struct hf_ask *ask, struct hf_request *ret)
{
    static const char *const methods[] = {[HF_ASK_GET] = "GET",
                                          [HF_ASK_PUT] = "PUT",
                                          [HF_ASK_REMOVE] = "DELETE",
                                          [HF_ASK_LIST] = "GET"};
    const char *scheme = NULL;
    HF_CLEANUP(hf_freep) char *host = host_of(at, &scheme);
    HF_CLEANUP(hf_freep)
    char *key = ask->kind == HF_ASK_LIST ? hf_strdup("") : hf_uri_encode(ask->key, true);
    HF_CLEANUP(hf_freep)
    char *path = at->path_style ? hf_asprintf("/%s/%s", at->bucket, key) : hf_asprintf("/%s", key);
    HF_CLEANUP(hf_freep) char *query = query_of(ask);
    char sum[HF_SHA256_HEX];
    bool tls = strcmp(scheme, "https://") == 0;
    if (!tls) {
        hf_sha256_hex(ask->body, sum);
    }
    ret->method = methods[ask->kind];
    ret->url = hf_asprintf("%s%s%s%s%s", scheme, host, path, query[0] != '\0' ? "?" : "", query);
    ret->body = ask->body;
    ret->proof = ask->kind == HF_ASK_GET || ask->kind == HF_ASK_PUT ? PROOF : NULL;
    if (ask->md5 != NULL) {
        hf_strv_take(&ret->headers, hf_asprintf("content-md5: %s", ask->md5));
    }
    if (ask->create_only) {
        hf_strv_add(&ret->headers, "if-none-match: *");
    }
    if (ask->kind == HF_ASK_PUT) {
        hf_strv_add(&ret->headers, "content-type: application/octet-stream");
    }
    struct hf_sigv4 with = {.access_key = keys->access_key,
                            .secret_key = keys->secret_key,
                            .token = keys->token,
                            .region = at->region,
                            .service = "s3",
                            .now_wall_ms = now_wall_ms};
    struct hf_sigv4_request what = {.method = ret->method,
                                    .host = host,
                                    .path = path,
                                    .query = query,
                                    .payload = tls ? HF_SIGV4_UNSIGNED : sum};
    hf_sigv4_sign(&with, &what, &ret->headers);
}

/* ---- replies ---- */

struct fault {
    bool is_error; /* the document is one */
    char code[CODE_ROOM], text[TEXT_ROOM], region[CODE_ROOM];
};

static void read_fault(void *user, const char *path, const char *text)
{
    struct fault *f = user;
    if (strcmp(path, "Error") == 0) {
        f->is_error = true;
    } else if (strcmp(path, "Error/Code") == 0) {
        (void)snprintf(f->code, sizeof(f->code), "%s", text);
    } else if (strcmp(path, "Error/Message") == 0) {
        (void)snprintf(f->text, sizeof(f->text), "%s", text);
    } else if (strcmp(path, "Error/Region") == 0) {
        (void)snprintf(f->region, sizeof(f->region), "%s", text);
    }
}

enum cause {
    CAUSE_BUSY = 1, /* another try may succeed */
    CAUSE_CLOCK,
    CAUSE_KEYS,
    CAUSE_REGION,
    CAUSE_KEY_WRONG,
    CAUSE_DENIED,
    CAUSE_BUCKET,
    CAUSE_ABSENT,
    CAUSE_EXISTS,
    CAUSE_DIGEST,
    CAUSE_FULL
};

static const struct {
    const char *code;
    enum cause cause;
} causes[] = {
    {"NoSuchKey", CAUSE_ABSENT},
    {"NoSuchBucket", CAUSE_BUCKET},
    {"PreconditionFailed", CAUSE_EXISTS},
    {"ConditionalRequestConflict", CAUSE_BUSY},
    {"OperationAborted", CAUSE_BUSY},
    {"RequestTimeout", CAUSE_BUSY},
    {"RequestTimeTooSkewed", CAUSE_CLOCK},
    {"RequestExpired", CAUSE_CLOCK},
    {"ExpiredToken", CAUSE_KEYS},
    {"ExpiredTokenException", CAUSE_KEYS},
    {"TokenRefreshRequired", CAUSE_KEYS},
    {"BadDigest", CAUSE_BUSY}, /* changed on its way */
    {"InvalidDigest", CAUSE_DIGEST},
    {"XAmzContentSHA256Mismatch", CAUSE_BUSY},
    {"IncompleteBody", CAUSE_BUSY},
    {"InvalidToken", CAUSE_KEY_WRONG},
    {"InvalidAccessKeyId", CAUSE_KEY_WRONG},
    {"SignatureDoesNotMatch", CAUSE_KEY_WRONG},
    {"AccessDenied", CAUSE_DENIED},
    {"AllAccessDisabled", CAUSE_DENIED},
    {"AccountProblem", CAUSE_DENIED},
    {"PermanentRedirect", CAUSE_REGION},
    {"TemporaryRedirect", CAUSE_REGION},
    {"AuthorizationHeaderMalformed", CAUSE_REGION},
    {"IllegalLocationConstraintException", CAUSE_REGION},
    {"SlowDown", CAUSE_BUSY},
    {"SlowDownRead", CAUSE_BUSY},
    {"SlowDownWrite", CAUSE_BUSY},
    {"Throttling", CAUSE_BUSY},
    {"ThrottlingException", CAUSE_BUSY},
    {"RequestThrottled", CAUSE_BUSY},
    {"RequestLimitExceeded", CAUSE_BUSY},
    {"TooManyRequests", CAUSE_BUSY},
    {"BandwidthLimitExceeded", CAUSE_BUSY},
    {"InternalError", CAUSE_BUSY},
    {"ServiceUnavailable", CAUSE_BUSY},
    {"XMinioServerNotInitialized", CAUSE_BUSY},
    {"QuotaExceeded", CAUSE_FULL},
    {"XMinioStorageFull", CAUSE_FULL},
};

static const struct {
    int status;
    enum cause cause;
} statuses[] = {{301, CAUSE_REGION}, {307, CAUSE_REGION}, {401, CAUSE_DENIED}, {403, CAUSE_DENIED},
                {408, CAUSE_BUSY},   {409, CAUSE_BUSY},   {412, CAUSE_EXISTS}, {429, CAUSE_BUSY},
                {500, CAUSE_BUSY},   {502, CAUSE_BUSY},   {503, CAUSE_BUSY},   {504, CAUSE_BUSY},
                {507, CAUSE_FULL}};

static enum cause cause_of(const struct fault *f, int status)
{
    for (size_t i = 0; i < HF_COUNT(causes); i++) {
        if (strcmp(causes[i].code, f->code) == 0) {
            return causes[i].cause;
        }
    }
    for (size_t i = 0; i < HF_COUNT(statuses); i++) {
        if (statuses[i].status == status) {
            return statuses[i].cause;
        }
    }
    return status >= 200 && status < 300 ? CAUSE_BUSY : 0;
}

static enum hf_rc refused(const struct hf_place *at, enum cause cause, const char *what,
                          struct hf_err *err)
{
    enum hf_rc rc = hf_fail(err, HF_EDENIED, "%s", what);
    if (cause == CAUSE_BUCKET) {
        return hf_hint(err, rc, "Is the bucket '%s' spelt right, and in region '%s'?", at->bucket,
                       at->region);
    }
    if (cause == CAUSE_DENIED) {
        return hf_hint(err, rc,
                       "The keys need s3:GetObject, s3:PutObject, s3:DeleteObject and "
                       "s3:ListBucket for bucket '%s'.",
                       at->bucket);
    }
    return hf_hint(err, rc,
                   "Look at AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and "
                   "AWS_SESSION_TOKEN, or at the profile's keys.");
}

static enum hf_rc busy(const struct hf_reply *reply, const char *what, struct hf_err *err)
{
    enum hf_rc rc =
        hf_fail_at(err, HF_EAGAIN, HF_DOM_HTTP, reply->status, __FILE__, __LINE__, "%s", what);
    const char *after = hf_reply_header(reply, "retry-after");
    if (err != NULL && after != NULL && isdigit((unsigned char)after[0])) {
        unsigned long s = strtoul(after, NULL, 10);
        err->retry_after_ms = (uint32_t)(s > 60 ? 60000 : s * 1000);
    }
    return rc;
}

static enum hf_rc elsewhere(const struct hf_place *at, const struct hf_reply *reply,
                            const struct fault *f, const char *what, struct hf_answer *ret,
                            struct hf_err *err)
{
    const char *region = hf_reply_header(reply, "x-amz-bucket-region");
    region = region != NULL ? region : f->region;
    /* It goes into a host's name, to which keys are shown. */
    bool name = region[strspn(region, "abcdefghijklmnopqrstuvwxyz0123456789-")] == '\0';
    if (name && region[0] != '\0' && strcmp(region, at->region) != 0) {
        ret->action = HF_ANSWER_REGION;
        (void)snprintf(ret->region, sizeof(ret->region), "%s", region);
    }
    enum hf_rc rc = hf_fail(err, HF_EINVAL, "%s", what);
    return hf_hint(err, rc, "The bucket '%s' is not in region '%s': --store-region names another.",
                   at->bucket, at->region);
}

/* A portal's page, or what a proxy made of a reply, has no ETag; nor may it be encoded. */
static enum hf_rc check_success(const struct hf_ask *ask, const struct hf_reply *reply,
                                struct hf_err *err)
{
    const char *encoding = hf_reply_header(reply, "content-encoding");
    bool object = ask->kind == HF_ASK_GET || ask->kind == HF_ASK_PUT;
    if (object && hf_reply_header(reply, PROOF) == NULL) {
        return hf_fail(err, HF_EAGAIN, "HTTP %d without an ETag is no object store's answer",
                       reply->status);
    }
    if (encoding != NULL && strcasecmp(encoding, "identity") != 0 &&
        strcasecmp(encoding, "aws-chunked") != 0) {
        return hf_hint(err, hf_fail(err, HF_ECORRUPT, "the reply is encoded as '%s'", encoding),
                       "Something between here and the store changes what it sends.");
    }
    return HF_OK;
}

static enum hf_rc judge(const struct hf_place *at, const struct hf_ask *ask,
                        const struct hf_reply *reply, struct hf_answer *ret, struct hf_err *err)
{
    struct fault f = {.code = ""};
    bool success = reply->status >= 200 && reply->status < 300;
    bool unread = reply->error.len > 0 &&
                  hf_xml_read(hf_buf_span(&reply->error), read_fault, &f, NULL) != HF_OK;
    if (unread) {
        f = (struct fault){.code = ""}; /* a proxy's page, or an error cut short */
    }
    if (success && !unread && !f.is_error) {
        return check_success(ask, reply, err);
    }
    char what[CODE_ROOM + TEXT_ROOM + 32];
    (void)snprintf(what, sizeof(what), "HTTP %d%s%s%s%s", reply->status, f.code[0] ? ", " : "",
                   f.code, f.text[0] ? ": " : "", f.text);
    enum cause cause = cause_of(&f, reply->status);
    switch (cause) {
    case CAUSE_BUSY:
        return busy(reply, what, err);
    case CAUSE_CLOCK:
        ret->action = HF_ANSWER_CLOCK;
        return hf_hint(err, hf_fail(err, HF_EDENIED, "%s", what), "Is this machine's clock right?");
    case CAUSE_KEYS:
        ret->action = HF_ANSWER_KEYS;
        return hf_hint(err, hf_fail(err, HF_EDENIED, "%s", what), "Renew the keys.");
    case CAUSE_REGION:
        return elsewhere(at, reply, &f, what, ret, err);
    case CAUSE_ABSENT:
        return ask->kind == HF_ASK_REMOVE ? HF_OK : hf_fail(err, HF_ENOTFOUND, "%s", what);
    case CAUSE_EXISTS:
        return hf_fail(err, ask->create_only ? HF_EEXISTS : HF_EIO, "%s", what);
    case CAUSE_FULL:
        return hf_fail(err, HF_EFULL, "%s", what);
    case CAUSE_DIGEST:
        return hf_hint(err, hf_fail(err, HF_ENOTSUP, "%s", what), "Set --store-checksum none.");
    case CAUSE_KEY_WRONG: /* they may have been exchanged */
        ret->action = HF_ANSWER_KEYS;
        return refused(at, cause, what, err);
    case CAUSE_BUCKET:
    case CAUSE_DENIED:
        return refused(at, cause, what, err);
    }
    if (reply->status == 404) { /* a missing object has a name for it: this is another's 404 */
        return hf_hint(err, hf_fail(err, HF_EINVAL, "%s", what),
                       "Is the endpoint an object store's?");
    }
    return hf_fail_at(err, HF_EIO, HF_DOM_HTTP, reply->status, __FILE__, __LINE__, "%s", what);
}

/* ---- listings ---- */

/* A whole page is read before its keys are told: one that is cut off tells none. */
struct listing {
    struct hf_strv keys;
    uint64_t *sizes; /* of each key */
    char key[KEY_ROOM];
    uint64_t bytes;
    bool is_list, more, broken;
    char *after;
};

static int hex_value(char c)
{
    return c >= '0' && c <= '9'   ? c - '0'
           : c >= 'a' && c <= 'f' ? c - 'a' + 10
           : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                  : -1;
}

/* False: longer than a key may be, or no encoding. */
static bool decode(const char *text, char *out, size_t size)
{
    size_t at = 0;
    for (; *text != '\0' && at + 1 < size; text++) {
        int high = *text == '%' ? hex_value(text[1]) : 0;
        int low = *text == '%' && high >= 0 ? hex_value(text[2]) : 0;
        if (high < 0 || low < 0) {
            return false;
        }
        int byte = *text == '%' ? 16 * high + low : *text == '+' ? ' ' : *text;
        out[at++] = (char)byte;
        text += *text == '%' ? 2 : 0;
    }
    out[at] = '\0';
    return *text == '\0';
}

static void read_entry(void *user, const char *path, const char *text)
{
    static const char root[] = "ListBucketResult";
    struct listing *l = user;
    if (strncmp(path, root, sizeof(root) - 1) != 0) {
        return;
    }
    const char *name = path[sizeof(root) - 1] == '/' ? path + sizeof(root) : "";
    if (name[0] == '\0') {
        l->is_list = true;
    } else if (strcmp(name, "IsTruncated") == 0) {
        l->more = strcmp(text, "true") == 0;
    } else if (strcmp(name, "NextContinuationToken") == 0) {
        hf_free(l->after);
        l->after = hf_strdup(text);
    } else if (strcmp(name, "Contents/Key") == 0) {
        l->broken = l->broken || !decode(text, l->key, sizeof(l->key));
    } else if (strcmp(name, "Contents/Size") == 0) {
        l->bytes = strtoull(text, NULL, 10);
    } else if (strcmp(name, "Contents") == 0 && l->key[0] != '\0') {
        l->sizes = hf_realloc(l->sizes, (l->keys.len + 1) * sizeof(uint64_t));
        l->sizes[l->keys.len] = l->bytes;
        hf_strv_add(&l->keys, l->key);
        l->key[0] = '\0';
        l->bytes = 0;
    }
}

static enum hf_rc read_page(struct hf_span text, struct listing *l, struct hf_err *err)
{
    HF_TRY(hf_xml_read(text, read_entry, l, err));
    if (!l->is_list || l->broken) {
        return hf_fail(err, HF_ECORRUPT, "the reply is no listing");
    }
    if (l->more && (l->after == NULL || l->after[0] == '\0')) {
        return hf_fail(err, HF_ECORRUPT, "the listing goes on, but does not say where");
    }
    return HF_OK;
}

static enum hf_rc page(struct hf_span text, struct hf_page *ret, struct hf_err *err)
{
    struct listing l = {.is_list = false};
    enum hf_rc rc = read_page(text, &l, err);
    for (size_t i = 0; rc == HF_OK && i < l.keys.len && !ret->stopped; i++) {
        ret->stopped = !ret->each(ret->user, l.keys.items[i], l.sizes[i]);
    }
    if (rc == HF_OK && l.more) {
        ret->after = l.after;
        l.after = NULL;
    }
    hf_free(l.after);
    hf_free(l.sizes);
    hf_strv_clear(&l.keys);
    return rc;
}

const struct hf_dialect hf_dialect_s3 = {.scheme = "s3",
                                         .find_keys = hf_creds_aws,
                                         .region = "us-east-1",
                                         .build = build,
                                         .judge = judge,
                                         .page = page};
