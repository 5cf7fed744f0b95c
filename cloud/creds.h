/* SPDX-License-Identifier: Apache-2.0
 *
 * Access keys for object stores, found where AWS's own tools look: the environment, then the
 * profile's entry of the credentials file, then that of the config file. Blocking; worker threads.
 * A secret is never put into an error, a log line or a file.
 */
#ifndef HF_CLOUD_CREDS_H
#define HF_CLOUD_CREDS_H

#include "base/err.h"

struct hf_creds {
    char *access_key, *secret_key;
    char *token;  /* NULL: none */
    char *region; /* as the same places name it, NULL: they do not */
};

/* AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_SESSION_TOKEN, AWS_REGION, AWS_DEFAULT_REGION,
 * AWS_PROFILE, AWS_SHARED_CREDENTIALS_FILE, AWS_CONFIG_FILE (~/.aws/credentials, ~/.aws/config).
 * HF_EDENIED: there are no keys, or half a pair; what was looked at is named. *ret is the caller's
 * to release, also after a failure. */
enum hf_rc hf_creds_find(struct hf_creds *ret, struct hf_err *err) HF_MUST_USE;
void hf_creds_release(struct hf_creds *c); /* the secrets are overwritten */

/* The value of a key in a section of a file in AWS's form ("[profile x]", "key = value"; '#' and
 * ';' begin comments; indented lines belong to the key above and are passed over), or NULL. Pure;
 * owned by the caller. */
char *hf_ini_find(const char *text, const char *section, const char *key);

#endif
