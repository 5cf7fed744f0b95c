/* SPDX-License-Identifier: Apache-2.0
 *
 * Access keys for object stores, found where AWS's own tools look: the environment, then the
 * profile's entry of the credentials file, then that of the config file, then the machine's role.
 * The first place that names any decides. Blocking; worker threads.
 * A secret is never put into an error, a log line or a file.
 */
#ifndef HF_CLOUD_CREDS_H
#define HF_CLOUD_CREDS_H

#include "base/err.h"

struct hf_creds {
    char *access_key, *secret_key;
    char *token;             /* NULL: none */
    char *region;            /* as the same places name it, NULL: they do not */
    int64_t expires_wall_ms; /* 0: never, or not known */
    uint64_t generation;     /* cloud/keyring.h's; 0: of none */
};

/* AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_SESSION_TOKEN, AWS_REGION, AWS_DEFAULT_REGION,
 * AWS_PROFILE, AWS_SHARED_CREDENTIALS_FILE, AWS_CONFIG_FILE (~/.aws/credentials, ~/.aws/config).
 * HF_ENOTFOUND: no place names any (region is found all the same). HF_EDENIED: half a pair, a
 * profile that is not there or gets its keys in a way not known here, odd characters. *ret is the
 * caller's to release, also after a failure. */
enum hf_rc hf_creds_find(struct hf_creds *ret, struct hf_err *err) HF_MUST_USE;
void hf_creds_release(struct hf_creds *c); /* the secrets are overwritten */

/* A whole pair, and nothing in it that would end a header. HF_EDENIED names the place. Pure. */
enum hf_rc hf_creds_check(const struct hf_creds *c, const char *where,
                          struct hf_err *err) HF_MUST_USE;

/* The keys of the machine's role (IMDSv2), with their end. HF_ENOTFOUND: there is none, or
 * AWS_EC2_METADATA_DISABLED is "true". AWS_EC2_METADATA_SERVICE_ENDPOINT names another address. */
struct hf_call;
enum hf_rc hf_creds_role(const struct hf_call *c, struct hf_creds *ret,
                         struct hf_err *err) HF_MUST_USE;
/* The service's answer. HF_EAGAIN: it has none for now. Pure. */
enum hf_rc hf_creds_role_read(struct hf_span json, struct hf_creds *ret,
                              struct hf_err *err) HF_MUST_USE;

/* All places in their order, as hf_creds_fn; HF_EDENIED: none has any. */
enum hf_rc hf_creds_aws(const struct hf_call *c, struct hf_creds *ret,
                        struct hf_err *err) HF_MUST_USE;

/* AWS_ENDPOINT_URL_S3, AWS_ENDPOINT_URL, the profile's endpoint_url; owned by the caller, NULL:
 * none is named, or AWS_IGNORE_CONFIGURED_ENDPOINT_URLS is "true". */
char *hf_aws_endpoint(void);

/* The value of a key in a section of a file in AWS's form ("[profile x]", "key = value"; '#' and
 * ';' begin comments; lines that are indented deeper than the key above belong to it and are passed
 * over; keys compare without case, and ':' does for '='), or NULL. Pure; owned by the caller. */
char *hf_ini_find(const char *text, const char *section, const char *key);

#endif
