/* SPDX-License-Identifier: Apache-2.0
 *
 * Object stores, once for all dialects: asking until a clear answer comes or the class of the
 * failure says that none will, on the store's clock, with keys that are found again when they have
 * expired, in the region where the bucket is. Worker threads, several on one store.
 */
#include "base/prelude.h"

#include <openssl/evp.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/retry.h"
#include "cloud/dialect.h"
#include "cloud/store_backend.h"

#define TRIES      8
#define PREFIX_MAX 120 /* of 1024 bytes that a key may have, ours take up to 900 */
#define BASE_MS    100
#define CAP_MS     5000
#define TURNS_MAX  3 /* of clock, keys and region, in one call */
#define PAGE_MAX   (8u << 20)
#define MD5_ROOM   28 /* 24 digits and NUL, rounded up */
#define PAGE_TRIES 3

struct object_store {
    struct hf_store store;
    const struct hf_dialect *dialect;
    struct hf_transfers *transfers;
    pthread_mutex_t lock;
    struct hf_place place; /* region: under lock */
    struct hf_keyring *keys;
    bool checksum;
    int64_t skew_ms; /* under lock: the store's clock less ours */
};

/* What the last try turned up. */
struct turn {
    struct hf_answer answer;
    uint64_t generation; /* of the keys */
};

static struct object_store *of(struct hf_store *s)
{
    return (struct object_store *)s;
}

static enum hf_rc make_request(struct object_store *o, const struct hf_call *c,
                               const struct hf_ask *ask, struct hf_request *ret,
                               uint64_t *ret_generation, struct hf_err *err)
{
    struct hf_place at = o->place;
    pthread_mutex_lock(&o->lock);
    at.region = hf_strdup(o->place.region);
    int64_t now_wall_ms = hf_wall_ms() + o->skew_ms;
    pthread_mutex_unlock(&o->lock);
    struct hf_creds keys;
    enum hf_rc rc = hf_keyring_get(o->keys, c, now_wall_ms, 0, &keys, err);
    if (rc == HF_OK) {
        *ret_generation = keys.generation;
        o->dialect->build(&at, &keys, now_wall_ms, ask, ret); /* may hash: not under lock */
    }
    hf_creds_release(&keys);
    hf_free(at.region);
    return rc;
}

static bool turn_clock(struct object_store *o, const struct hf_reply *reply)
{
    const char *date = hf_reply_header(reply, "date");
    int64_t theirs = 0;
    if (date == NULL || hf_http_date_parse(date, &theirs, NULL) != HF_OK) {
        return false;
    }
    pthread_mutex_lock(&o->lock);
    o->skew_ms = theirs - hf_wall_ms();
    pthread_mutex_unlock(&o->lock);
    return true;
}

/* Whether there are other keys now. */
static bool turn_keys(struct object_store *o, const struct hf_call *c, uint64_t refused)
{
    struct hf_creds keys;
    int64_t now_wall_ms = hf_wall_ms();
    bool other = hf_keyring_get(o->keys, c, now_wall_ms, refused, &keys, NULL) == HF_OK &&
                 keys.generation != refused;
    hf_creds_release(&keys);
    return other;
}

static bool turn_region(struct object_store *o, const char *region)
{
    pthread_mutex_lock(&o->lock);
    hf_free(o->place.region);
    o->place.region = hf_strdup(region);
    pthread_mutex_unlock(&o->lock);
    return true;
}

/* Whether the same may be asked again at once, since something about us was wrong and is not any
 * more. */
static bool turn(struct object_store *o, const struct hf_call *c, const struct turn *t,
                 const struct hf_reply *reply)
{
    switch (t->answer.action) {
    case HF_ANSWER_DONE:
        return false;
    case HF_ANSWER_CLOCK:
        return turn_clock(o, reply);
    case HF_ANSWER_KEYS:
        return turn_keys(o, c, t->generation);
    case HF_ANSWER_REGION:
        return turn_region(o, t->answer.region);
    }
    return false;
}

/* One try, and what it turned up. */
static enum hf_rc try_once(struct object_store *o, const struct hf_call *c,
                           const struct hf_ask *ask, struct hf_reply *reply, struct turn *t,
                           struct hf_err *err)
{
    struct hf_request req = {.method = NULL};
    t->answer = (struct hf_answer){.action = HF_ANSWER_DONE};
    enum hf_rc rc = make_request(o, c, ask, &req, &t->generation, err);
    rc = rc == HF_OK ? hf_transfer(o->transfers, c, &req, reply, err) : rc;
    hf_request_release(&req);
    if (rc != HF_OK) {
        return rc;
    }
    pthread_mutex_lock(&o->lock);
    rc = o->dialect->judge(&o->place, ask, reply, &t->answer, err);
    pthread_mutex_unlock(&o->lock);
    return rc;
}

/* Asks. `body` is the caller's, or NULL; it is as before unless HF_OK is returned. *ret_unclear (or
 * NULL): an earlier try failed in a way that does not say whether it was carried out. */
static enum hf_rc ask_store(struct object_store *o, const struct hf_call *c,
                            const struct hf_ask *ask, struct hf_buf *body, bool *ret_unclear,
                            struct hf_err *err)
{
    struct hf_retry retry = {.base_ms = BASE_MS, .cap_ms = CAP_MS, .tries = TRIES};
    struct hf_reply reply = {.body = body};
    struct hf_err why = {.code = HF_OK};
    size_t before = body != NULL ? body->len : 0;
    struct turn t = {.generation = 0};
    unsigned turns = 0;
    bool unclear = false;
    enum hf_rc rc = HF_OK;
    for (;;) {
        rc = try_once(o, c, ask, &reply, &t, &why);
        if (rc == HF_OK) {
            break;
        }
        if (body != NULL && body->len > before) { /* of a reply that was judged to be none */
            body->len = before;
            body->data[before] = '\0';
        }
        if (turns < TURNS_MAX && turn(o, c, &t, &reply)) {
            turns++;
            continue;
        }
        uint32_t delay_ms = 0;
        uint64_t deadline_ns = c != NULL ? c->deadline_ns : 0;
        if (!hf_retry_next(&retry, &why, hf_random_u64(), hf_now_ns(), deadline_ns, &delay_ms)) {
            break;
        }
        unclear = true;
        rc = hf_call_wait(c, delay_ms, &why);
        if (rc != HF_OK) {
            break;
        }
    }
    hf_reply_release(&reply);
    if (ret_unclear != NULL) {
        *ret_unclear = unclear;
    }
    if (rc != HF_OK && err != NULL) {
        *err = why;
    }
    return rc;
}

static char *full_key(const struct object_store *o, const char *key)
{
    return hf_asprintf("%s%s", o->place.prefix, key);
}

static enum hf_rc object_get(struct hf_store *s, const struct hf_call *c, const char *key,
                             struct hf_buf *ret, struct hf_err *err)
{
    HF_CLEANUP(hf_freep) char *full = full_key(of(s), key);
    struct hf_ask ask = {.kind = HF_ASK_GET, .key = full};
    enum hf_rc rc = ask_store(of(s), c, &ask, ret, NULL, err);
    return rc == HF_OK ? rc : hf_wrap(err, rc, "get '%s'", key);
}

/* "Exists" was the answer to a try after one whose reply was lost: the object may be that one's. */
static enum hf_rc whose(struct hf_store *s, const struct hf_call *c, const char *key,
                        struct hf_span data, struct hf_err *err)
{
    struct hf_buf there;
    struct hf_err why = {.code = HF_OK};
    hf_buf_init(&there, data.len);
    enum hf_rc rc = object_get(s, c, key, &there, &why);
    bool same = rc == HF_OK && there.len == data.len &&
                (data.len == 0 || memcmp(there.data, data.ptr, data.len) == 0);
    hf_buf_release(&there);
    if (same) {
        return HF_OK;
    }
    if (rc == HF_OK || rc == HF_EFULL) {
        return hf_fail(err, HF_EEXISTS, "another's is there");
    }
    return hf_fail(err, rc == HF_ECANCELED ? rc : HF_EAGAIN, "whose it is: %s", why.msg);
}

/* In base64, as a header has it. */
static enum hf_rc md5_of(struct hf_span data, char ret[MD5_ROOM], struct hf_err *err)
{
    unsigned char sum[EVP_MAX_MD_SIZE];
    unsigned len = 0;
    if (EVP_Digest(data.len > 0 ? data.ptr : "", data.len, sum, &len, EVP_md5(), NULL) != 1) {
        return hf_hint(err, hf_fail(err, HF_ENOTSUP, "this machine's OpenSSL has no MD5"),
                       "Set --store-checksum none.");
    }
    (void)EVP_EncodeBlock((unsigned char *)ret, sum, (int)len);
    return HF_OK;
}

static enum hf_rc object_put(struct hf_store *s, const struct hf_call *c, const char *key,
                             struct hf_span data, enum hf_put_flags flags, struct hf_err *err)
{
    struct object_store *o = of(s);
    HF_CLEANUP(hf_freep) char *full = full_key(o, key);
    struct hf_ask ask = {.kind = HF_ASK_PUT,
                         .key = full,
                         .body = data,
                         .create_only = (flags & HF_PUT_CREATE_ONLY) != 0};
    char md5[MD5_ROOM];
    if (o->checksum) {
        HF_TRY(md5_of(data, md5, err));
        ask.md5 = md5;
    }
    bool unclear = false;
    enum hf_rc rc = ask_store(o, c, &ask, NULL, &unclear, err);
    if (rc == HF_EEXISTS && unclear) {
        rc = whose(s, c, key, data, err);
    }
    return rc == HF_OK ? rc : hf_wrap(err, rc, "put '%s'", key);
}

static enum hf_rc object_remove(struct hf_store *s, const struct hf_call *c, const char *key,
                                struct hf_err *err)
{
    HF_CLEANUP(hf_freep) char *full = full_key(of(s), key);
    struct hf_ask ask = {.kind = HF_ASK_REMOVE, .key = full};
    enum hf_rc rc = ask_store(of(s), c, &ask, NULL, NULL, err);
    return rc == HF_OK ? rc : hf_wrap(err, rc, "remove '%s'", key);
}

struct shown {
    size_t skip; /* our prefix */
    const char *prefix;
    hf_list_fn *each;
    void *user;
};

/* Without our prefix; what does not begin as asked, or cannot be a key, is none of ours. */
static bool show_key(void *user, const char *key, uint64_t bytes)
{
    const struct shown *v = user;
    if (strncmp(key, v->prefix, strlen(v->prefix)) != 0 || !hf_store_key_ok(key + v->skip, false)) {
        return true;
    }
    return v->each(v->user, key + v->skip, bytes);
}

static enum hf_rc list_page(struct object_store *o, const struct hf_call *c,
                            const struct hf_ask *ask, struct hf_page *page, struct hf_err *err)
{
    struct hf_buf text;
    enum hf_rc rc = HF_ECORRUPT;
    for (unsigned i = 0; i < PAGE_TRIES && rc == HF_ECORRUPT; i++) { /* an error under 200, too */
        hf_buf_init(&text, PAGE_MAX);
        rc = ask_store(o, c, ask, &text, NULL, err);
        rc = rc != HF_OK ? rc : o->dialect->page(hf_buf_span(&text), page, err);
        hf_buf_release(&text);
    }
    if (rc == HF_OK && ask->after != NULL && page->after != NULL &&
        strcmp(ask->after, page->after) == 0) {
        rc = hf_fail(err, HF_ECORRUPT, "the listing does not advance");
    }
    return rc;
}

static enum hf_rc object_list(struct hf_store *s, const struct hf_call *c, const char *prefix,
                              hf_list_fn *each, void *user, struct hf_err *err)
{
    struct object_store *o = of(s);
    HF_CLEANUP(hf_freep) char *full = full_key(o, prefix);
    HF_CLEANUP(hf_freep) char *after = NULL;
    struct shown shown = {
        .skip = strlen(o->place.prefix), .prefix = full, .each = each, .user = user};
    struct hf_page page = {.each = show_key, .user = &shown};
    do {
        struct hf_ask ask = {.kind = HF_ASK_LIST, .key = full, .after = after};
        page.after = NULL;
        enum hf_rc rc = list_page(o, c, &ask, &page, err);
        hf_free(after);
        after = page.after;
        if (rc != HF_OK) {
            return hf_wrap(err, rc, "list '%s'", prefix);
        }
    } while (after != NULL && !page.stopped);
    return HF_OK;
}

static void object_close(struct hf_store *s)
{
    struct object_store *o = of(s);
    hf_transfers_free(o->transfers);
    hf_keyring_free(o->keys);
    hf_free(o->place.bucket);
    hf_free(o->place.prefix);
    hf_free(o->place.endpoint);
    hf_free(o->place.region);
    pthread_mutex_destroy(&o->lock);
    hf_free(o);
}

static const struct hf_store_ops object_ops = {.size = sizeof(struct hf_store_ops),
                                               .scheme = "object",
                                               .close = object_close,
                                               .get = object_get,
                                               .put = object_put,
                                               .list = object_list,
                                               .remove = object_remove};

/* ---- opening ---- */

static const char *said(const char *a, const char *b, const char *c)
{
    const char *const all[] = {a, b, c};
    for (size_t i = 0; i < HF_COUNT(all); i++) {
        if (all[i] != NULL && all[i][0] != '\0') {
            return all[i];
        }
    }
    return NULL;
}

static enum hf_rc check_endpoint(const char *url, struct hf_err *err)
{
    bool http = strncmp(url, "http://", 7) == 0;
    const char *host = http ? url + 7 : strncmp(url, "https://", 8) == 0 ? url + 8 : "";
    size_t len = strcspn(host, "/?#@ ");
    if (host[len] == '@') { /* a password may be in it */
        return hf_fail(err, HF_EDENIED, "the endpoint names a user");
    }
    if (len == 0 || (host[len] != '\0' && strcmp(host + len, "/") != 0)) {
        enum hf_rc rc = hf_fail(err, HF_EDENIED, "the endpoint '%s' is no address", url);
        return hf_hint(err, rc, "Write it as https://HOST or http://HOST:PORT, without a path.");
    }
    return HF_OK;
}

/* "bucket/a/b" in its parts. */
static enum hf_rc read_place(const char *rest, struct hf_place *p, struct hf_err *err)
{
    size_t len = strcspn(rest, "/");
    static const char plain[] = "abcdefghijklmnopqrstuvwxyz0123456789.-_ABCDEFGHIJKLMNOPQRSTUVWXYZ";
    const char *prefix = rest + len + (rest[len] == '/' ? 1 : 0);
    size_t end = strlen(prefix);
    while (end > 0 && prefix[end - 1] == '/') {
        end--;
    }
    HF_CLEANUP(hf_freep) char *kept = hf_strndup(prefix, end);
    bool prefix_ok = kept[0] == '\0' || (end <= PREFIX_MAX && hf_store_key_ok(kept, false));
    if (len == 0 || len > 255 || strspn(rest, plain) < len || !prefix_ok) {
        return hf_fail(err, HF_EINVAL, "no bucket");
    }
    p->bucket = hf_strndup(rest, len);
    p->prefix = end > 0 ? hf_asprintf("%s/", kept) : hf_strdup("");
    return HF_OK;
}

static enum hf_rc prepare(struct object_store *o, const char *rest, const struct hf_store_cfg *cfg,
                          struct hf_err *err)
{
    HF_TRY(read_place(rest, &o->place, err));
    HF_CLEANUP(hf_freep) char *theirs = hf_aws_endpoint();
    const char *endpoint = said(cfg->endpoint, theirs, NULL);
    if (endpoint != NULL) {
        HF_TRY(check_endpoint(endpoint, err));
        size_t len = strlen(endpoint);
        o->place.endpoint = hf_strndup(endpoint, endpoint[len - 1] == '/' ? len - 1 : len);
    }
    /* A name with dots fits no certificate; an endpoint of one's own has no name for each. */
    o->place.path_style = endpoint != NULL || strchr(o->place.bucket, '.') != NULL;
    struct hf_creds keys;
    enum hf_rc rc = hf_creds_find(&keys, err);
    o->place.region = hf_strdup(said(cfg->region, keys.region, o->dialect->region));
    hf_creds_release(&keys);
    if (rc != HF_OK && rc != HF_ENOTFOUND) { /* none: the machine may have a role */
        return rc;
    }
    struct hf_transfers_cfg transfers = {
        .ca_file = said(getenv("AWS_CA_BUNDLE"), getenv("CURL_CA_BUNDLE"), getenv("SSL_CERT_FILE")),
        .tls_1_3 = cfg->tls_1_3};
    return hf_transfers_new(&transfers, &o->transfers, err);
}

static enum hf_rc open_object(const struct hf_dialect *dialect, const char *rest,
                              const struct hf_store_cfg *cfg, struct hf_store **ret,
                              struct hf_err *err)
{
    if (strncmp(rest, "//", 2) != 0) {
        return hf_fail(err, HF_EINVAL, "no bucket");
    }
    struct object_store *o = HF_NEW(struct object_store);
    o->store = (struct hf_store){.ops = &object_ops, .caps = HF_STORE_CREATE_ONLY};
    o->store.caps |= HF_STORE_OUTLIVES;
    o->dialect = dialect;
    o->keys = hf_keyring_new(dialect->find_keys);
    o->checksum = !cfg->no_checksum;
    pthread_mutex_init(&o->lock, NULL);
    enum hf_rc rc = prepare(o, rest + 2, cfg, err);
    if (rc != HF_OK) {
        object_close(&o->store);
        return rc;
    }
    *ret = &o->store;
    return HF_OK;
}

static enum hf_rc open_s3(const char *rest, const struct hf_store_cfg *cfg, struct hf_store **ret,
                          struct hf_err *err)
{
    return open_object(&hf_dialect_s3, rest, cfg, ret, err);
}

const struct hf_store_backend hf_store_backend_s3 = {
    .scheme = "s3", .form = "s3://bucket/prefix", .open = open_s3};
