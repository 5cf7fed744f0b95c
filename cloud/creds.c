/* SPDX-License-Identifier: Apache-2.0
 *
 * Finding access keys. Files are read each time: they are small, and other tools renew them. A
 * credential process, SSO and roles to assume are not known here; whoever uses one exports its
 * result. Worker threads.
 */
#include "base/prelude.h"

#include <ctype.h>
#include <openssl/crypto.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/fsx.h"
#include "base/mem.h"
#include "cloud/creds.h"

#define FILE_MAX (1u << 20)

/* A variable that says something. */
static const char *env(const char *name)
{
    const char *value = getenv(name);
    return value != NULL && value[0] != '\0' ? value : NULL;
}

static void wipe(char **text)
{
    if (*text != NULL) {
        OPENSSL_cleanse(*text, strlen(*text));
    }
    hf_free(*text);
    *text = NULL;
}

void hf_creds_release(struct hf_creds *c)
{
    wipe(&c->access_key);
    wipe(&c->secret_key);
    wipe(&c->token);
    hf_free(c->region);
    c->region = NULL;
}

/* The text between, without blanks at its ends. */
static char *trimmed(const char *from, const char *to)
{
    while (from < to && isspace((unsigned char)*from)) {
        from++;
    }
    while (to > from && isspace((unsigned char)to[-1])) {
        to--;
    }
    return hf_strndup(from, (size_t)(to - from));
}

static bool is_section(const char *line, const char *end, const char *section)
{
    const char *close = memchr(line, ']', (size_t)(end - line));
    HF_CLEANUP(hf_freep) char *name = trimmed(line + 1, close != NULL ? close : end);
    return strcmp(name, section) == 0;
}

char *hf_ini_find(const char *text, const char *section, const char *key)
{
    bool inside = false;
    char *found = NULL;
    while (*text != '\0') {
        const char *end = text + strcspn(text, "\n");
        const char *equals = memchr(text, '=', (size_t)(end - text));
        if (*text == '[') {
            inside = is_section(text, end, section);
        } else if (inside && equals != NULL && !isspace((unsigned char)*text) &&
                   strchr("#;", *text) == NULL) {
            HF_CLEANUP(hf_freep) char *name = trimmed(text, equals);
            if (strcmp(name, key) == 0) { /* the last one counts */
                hf_free(found);
                found = trimmed(equals + 1, end);
            }
        }
        text = *end == '\n' ? end + 1 : end;
    }
    return found;
}

/* The file that a variable names, or the one in the home folder. "": it cannot be read. */
static char *read_file(const char *variable, const char *in_home)
{
    const char *home = env("HOME");
    HF_CLEANUP(hf_freep)
    char *path = env(variable) != NULL ? hf_strdup(env(variable))
                                       : hf_asprintf("%s/%s", home != NULL ? home : "", in_home);
    struct hf_buf b;
    hf_buf_init(&b, FILE_MAX);
    char *text = hf_strdup(hf_fs_read(path, &b, NULL) == HF_OK ? hf_buf_str(&b) : "");
    if (b.data != NULL) {
        OPENSSL_cleanse(b.data, b.len);
    }
    hf_buf_release(&b);
    return text;
}

static void take(char **slot, const char *text, const char *section, const char *key)
{
    if (*slot == NULL) {
        *slot = hf_ini_find(text, section, key);
    }
}

static void from_file(struct hf_creds *c, const char *text, const char *section, bool keys)
{
    if (keys) {
        take(&c->access_key, text, section, "aws_access_key_id");
        take(&c->secret_key, text, section, "aws_secret_access_key");
        take(&c->token, text, section, "aws_session_token");
    }
    take(&c->region, text, section, "region");
}

enum hf_rc hf_creds_find(struct hf_creds *ret, struct hf_err *err)
{
    static const char remedy[] =
        "Set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or a profile in ~/.aws/credentials.";
    *ret = (struct hf_creds){.access_key = hf_strdup(env("AWS_ACCESS_KEY_ID")),
                             .secret_key = hf_strdup(env("AWS_SECRET_ACCESS_KEY")),
                             .token = hf_strdup(env("AWS_SESSION_TOKEN"))};
    const char *region = env("AWS_REGION") != NULL ? env("AWS_REGION") : env("AWS_DEFAULT_REGION");
    ret->region = hf_strdup(region);
    bool given = ret->access_key != NULL && ret->secret_key != NULL;
    if (!given && (ret->access_key != NULL || ret->secret_key != NULL)) {
        return hf_hint(err,
                       hf_fail(err, HF_EDENIED,
                               "of AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY "
                               "only one is set"),
                       "%s", remedy);
    }
    if (!given) {
        wipe(&ret->token); /* it belongs to the pair that is not there */
    }
    const char *profile = env("AWS_PROFILE") != NULL ? env("AWS_PROFILE") : "default";
    HF_CLEANUP(hf_freep) char *keys = read_file("AWS_SHARED_CREDENTIALS_FILE", ".aws/credentials");
    HF_CLEANUP(hf_freep) char *config = read_file("AWS_CONFIG_FILE", ".aws/config");
    HF_CLEANUP(hf_freep)
    char *section =
        strcmp(profile, "default") == 0 ? hf_strdup(profile) : hf_asprintf("profile %s", profile);
    from_file(ret, keys, profile, !given);
    from_file(ret, config, section, !given);
    OPENSSL_cleanse(keys, strlen(keys));
    OPENSSL_cleanse(config, strlen(config));
    if (ret->access_key != NULL && ret->secret_key != NULL) {
        return HF_OK;
    }
    return hf_hint(err,
                   hf_fail(err, HF_EDENIED,
                           "no access key in the environment, nor for profile "
                           "'%s' in the credentials and config files",
                           profile),
                   "%s", remedy);
}
