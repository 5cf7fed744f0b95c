/* SPDX-License-Identifier: Apache-2.0
 *
 * The keys of an AWS machine's role, by the metadata service's second version: a session token, the
 * role's name, its keys. Blocking; worker threads. Off AWS nothing answers, and a second of
 * waiting is all it may cost.
 */
#include "base/prelude.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/clock.h"
#include "base/json.h"
#include "cloud/creds.h"
#include "cloud/keyring.h"
#include "cloud/transfer.h"

#define ADDRESS    "http://169.254.169.254"
#define ROLES      "/latest/meta-data/iam/security-credentials/"
#define REPLY_MAX  16384
#define ROLE_MAX   128
#define CONNECT_MS 1000
#define TOTAL_MS   2000
#define TRIES      2

static enum hf_rc ask(struct hf_transfers *t, const struct hf_call *c, const char *method,
                      const char *path, const char *header, struct hf_buf *ret, struct hf_err *err)
{
    const char *base = getenv("AWS_EC2_METADATA_SERVICE_ENDPOINT");
    base = base != NULL && base[0] != '\0' ? base : ADDRESS;
    size_t len = strlen(base);
    len -= base[len - 1] == '/' ? 1 : 0;
    struct hf_request req = {.method = method, .url = hf_asprintf("%.*s%s", (int)len, base, path)};
    hf_strv_add(&req.headers, header);
    struct hf_reply reply = {.body = ret};
    enum hf_rc rc = hf_transfer(t, c, &req, &reply, err);
    if (rc == HF_OK && reply.status != 200) {
        rc = hf_fail_at(err, reply.status == 404 ? HF_ENOTFOUND : HF_EAGAIN, HF_DOM_HTTP,
                        reply.status, __FILE__, __LINE__, "the metadata service answers %d",
                        reply.status);
    }
    hf_reply_release(&reply);
    hf_request_release(&req);
    return rc;
}

/* What may stand in a header or a path: no blanks, no line's end. */
static enum hf_rc check_word(const struct hf_buf *b, struct hf_err *err)
{
    for (size_t i = 0; i < b->len; i++) {
        if (isgraph((unsigned char)b->data[i]) == 0) {
            return hf_fail(err, HF_EAGAIN, "the metadata service's answer is none");
        }
    }
    return b->len > 0 ? HF_OK : hf_fail(err, HF_ENOTFOUND, "the machine has no role");
}

enum hf_rc hf_creds_role_read(struct hf_span json, struct hf_creds *ret, struct hf_err *err)
{
    HF_CLEANUP(hf_json_freep) cJSON *obj = NULL;
    HF_TRY(hf_json_parse(json, REPLY_MAX, &obj, err));
    const char *code = hf_json_opt_str(obj, "Code", "Success");
    if (strcmp(code, "Success") != 0) {
        return hf_fail(err, HF_EAGAIN, "the metadata service has no keys: '%s'", code);
    }
    const char *id = NULL;
    const char *secret = NULL;
    const char *token = NULL;
    const char *expires = NULL;
    int64_t expires_ms = 0;
    HF_TRY(hf_json_get_str(obj, "AccessKeyId", &id, err));
    HF_TRY(hf_json_get_str(obj, "SecretAccessKey", &secret, err));
    HF_TRY(hf_json_get_str(obj, "Token", &token, err));
    HF_TRY(hf_json_get_str(obj, "Expiration", &expires, err));
    HF_TRY(hf_utc_parse(expires, &expires_ms, err));
    *ret = (struct hf_creds){.access_key = hf_strdup(id),
                             .secret_key = hf_strdup(secret),
                             .token = hf_strdup(token),
                             .expires_wall_ms = expires_ms};
    return hf_creds_check(ret, "the metadata service", err);
}

static enum hf_rc ask_all(struct hf_transfers *t, const struct hf_call *c, struct hf_creds *ret,
                          struct hf_err *err)
{
    struct hf_buf session;
    struct hf_buf role;
    struct hf_buf json;
    hf_buf_init(&session, 1024);
    hf_buf_init(&role, ROLE_MAX);
    hf_buf_init(&json, REPLY_MAX);
    enum hf_rc rc = ask(t, c, "PUT", "/latest/api/token",
                        "X-aws-ec2-metadata-token-ttl-seconds: 60", &session, err);
    rc = rc == HF_OK ? check_word(&session, err) : rc;
    if (rc == HF_OK) {
        HF_CLEANUP(hf_freep)
        char *header = hf_asprintf("X-aws-ec2-metadata-token: %s", hf_buf_str(&session));
        rc = ask(t, c, "GET", ROLES, header, &role, err);
        rc = rc == HF_OK ? check_word(&role, err) : rc;
        HF_CLEANUP(hf_freep) char *path = hf_asprintf("%s%s", ROLES, hf_buf_str(&role));
        rc = rc == HF_OK ? ask(t, c, "GET", path, header, &json, err) : rc;
    }
    rc = rc == HF_OK ? hf_creds_role_read(hf_buf_span(&json), ret, err) : rc;
    hf_buf_release(&session);
    hf_buf_release(&role);
    hf_buf_release(&json);
    return rc;
}

enum hf_rc hf_creds_role(const struct hf_call *c, struct hf_creds *ret, struct hf_err *err)
{
    const char *off = getenv("AWS_EC2_METADATA_DISABLED");
    if (off != NULL && strcasecmp(off, "true") == 0) {
        return hf_fail(err, HF_ENOTFOUND, "AWS_EC2_METADATA_DISABLED is 'true'");
    }
    struct hf_transfers_cfg cfg = {.direct = true, .connect_ms = CONNECT_MS, .total_ms = TOTAL_MS};
    struct hf_transfers *t = NULL;
    HF_TRY(hf_transfers_new(&cfg, &t, err));
    enum hf_rc rc = HF_EAGAIN;
    for (int i = 0; i < TRIES && (rc == HF_EAGAIN || rc == HF_ETIMEOUT); i++) {
        rc = ask_all(t, c, ret, err);
    }
    hf_transfers_free(t);
    return rc;
}

enum hf_rc hf_creds_aws(const struct hf_call *c, struct hf_creds *ret, struct hf_err *err)
{
    enum hf_rc rc = hf_creds_find(ret, err);
    if (rc != HF_ENOTFOUND) {
        return rc;
    }
    hf_creds_release(ret);
    struct hf_err why = {.code = HF_OK};
    rc = hf_creds_role(c, ret, &why);
    if (rc == HF_OK) {
        return HF_OK;
    }
    rc = hf_fail(err, rc == HF_ECANCELED ? rc : HF_EDENIED,
                 "no access key in the environment, in the AWS files, or from the machine's role "
                 "(%s)",
                 why.msg);
    return hf_hint(err, rc,
                   "Set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or a profile in "
                   "~/.aws/credentials, or give the machine a role.");
}
