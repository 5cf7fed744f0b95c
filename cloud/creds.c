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
#include <strings.h>

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

/* Words with one blank between and no quotes: [ profile "a b" ] is "profile a b". */
static bool is_section(const char *line, const char *end, const char *section)
{
    const char *close = memchr(line, ']', (size_t)(end - line));
    HF_CLEANUP(hf_freep) char *name = trimmed(line + 1, close != NULL ? close : end);
    char *to = name;
    for (const char *p = name; *p != '\0'; p++) {
        bool blank = *p == ' ' || *p == '\t';
        if (*p != '"' && *p != '\'' && !(blank && to > name && to[-1] == ' ')) {
            *to++ = blank ? ' ' : *p;
        }
    }
    *to = '\0';
    return strcmp(name, section) == 0;
}

/* Whether the section is there; the key's value in *ret (NULL: only the section is asked for). */
static bool ini_look(const char *text, const char *section, const char *key, char **ret)
{
    bool inside = false;
    bool seen = false;
    size_t below = SIZE_MAX; /* deeper lines belong to the key above */
    text += strncmp(text, "\xef\xbb\xbf", 3) == 0 ? 3 : 0;
    while (*text != '\0') {
        const char *end = text + strcspn(text, "\n");
        size_t indent = strspn(text, " \t");
        const char *line = text + indent;
        text = *end == '\n' ? end + 1 : end;
        if (line >= end || *line == '\r' || strchr("#;", *line) != NULL || indent > below) {
            continue;
        }
        below = SIZE_MAX;
        if (*line == '[') {
            inside = is_section(line, end, section);
            seen = seen || inside;
            continue;
        }
        const char *sign = line + strcspn(line, "=:\n");
        below = indent;
        if (!inside || ret == NULL || sign >= end) {
            continue;
        }
        HF_CLEANUP(hf_freep) char *name = trimmed(line, sign);
        if (strcasecmp(name, key) == 0) { /* the last one counts */
            hf_free(*ret);
            *ret = trimmed(sign + 1, end);
        }
    }
    return seen;
}

char *hf_ini_find(const char *text, const char *section, const char *key)
{
    char *found = NULL;
    (void)ini_look(text, section, key, &found);
    return found;
}

/* The file that a variable names, or the one in the home folder. "": it cannot be read. */
static char *read_file(const char *variable, const char *in_home)
{
    const char *home = env("HOME");
    home = home != NULL ? home : "";
    const char *said = env(variable);
    HF_CLEANUP(hf_freep)
    char *path = said == NULL                  ? hf_asprintf("%s/%s", home, in_home)
                 : strncmp(said, "~/", 2) == 0 ? hf_asprintf("%s%s", home, said + 1)
                                               : hf_strdup(said);
    struct hf_buf b;
    hf_buf_init(&b, FILE_MAX);
    char *text = hf_strdup(hf_fs_read(path, &b, NULL) == HF_OK ? hf_buf_str(&b) : "");
    if (b.data != NULL) {
        OPENSSL_cleanse(b.data, b.len);
    }
    hf_buf_release(&b);
    return text;
}

/* The profile in use, and what the files say of it. */
struct profile {
    const char *name;
    char *section;       /* of the config file */
    char *keys, *config; /* the files' texts */
};

static void profile_open(struct profile *p)
{
    p->name = env("AWS_PROFILE") != NULL ? env("AWS_PROFILE") : env("AWS_DEFAULT_PROFILE");
    p->name = p->name != NULL ? p->name : "default";
    p->section =
        strcmp(p->name, "default") == 0 ? hf_strdup(p->name) : hf_asprintf("profile %s", p->name);
    p->keys = read_file("AWS_SHARED_CREDENTIALS_FILE", ".aws/credentials");
    p->config = read_file("AWS_CONFIG_FILE", ".aws/config");
}

static void profile_close(struct profile *p)
{
    wipe(&p->keys);
    wipe(&p->config);
    hf_free(p->section);
}

/* "" is as good as nothing. */
static char *value_of(const char *text, const char *section, const char *key)
{
    char *value = hf_ini_find(text, section, key);
    if (value != NULL && value[0] == '\0') {
        hf_free(value);
        value = NULL;
    }
    return value;
}

enum hf_rc hf_creds_check(const struct hf_creds *c, const char *where, struct hf_err *err)
{
    static const char remedy[] =
        "Set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or a profile in ~/.aws/credentials.";
    if (c->access_key == NULL || c->secret_key == NULL) {
        return hf_hint(err, hf_fail(err, HF_EDENIED, "%s: only half a pair of keys", where), "%s",
                       remedy);
    }
    const char *const all[] = {c->access_key, c->secret_key, c->token};
    for (size_t i = 0; i < HF_COUNT(all); i++) {
        for (const char *p = all[i] != NULL ? all[i] : ""; *p != '\0'; p++) {
            if (isgraph((unsigned char)*p) == 0) {
                return hf_hint(
                    err,
                    hf_fail(err, HF_EDENIED, "%s: blanks or odd characters in the keys", where),
                    "%s", remedy);
            }
        }
    }
    return HF_OK;
}

/* HF_ENOTFOUND: the section names none. */
static enum hf_rc from_section(struct hf_creds *ret, const char *text, const char *section,
                               const char *where, struct hf_err *err)
{
    ret->access_key = value_of(text, section, "aws_access_key_id");
    ret->secret_key = value_of(text, section, "aws_secret_access_key");
    ret->token = value_of(text, section, "aws_session_token");
    if (ret->access_key == NULL && ret->secret_key == NULL) {
        wipe(&ret->token); /* it belongs to the pair that is not there */
        return HF_ENOTFOUND;
    }
    return hf_creds_check(ret, where, err);
}

/* Why a profile has no keys of its own; HF_ENOTFOUND: that is as it should be. */
static enum hf_rc why_none(const struct profile *p, const char *where, struct hf_err *err)
{
    static const char *const ways[] = {"role_arn", "sso_session", "sso_start_url",
                                       "credential_process", "web_identity_token_file"};
    for (size_t i = 0; i < HF_COUNT(ways); i++) {
        HF_CLEANUP(hf_freep) char *said = value_of(p->config, p->section, ways[i]);
        if (said != NULL) {
            return hf_hint(
                err,
                hf_fail(err, HF_EDENIED, "%s: it uses %s, which is not asked yet", where, ways[i]),
                "Export its keys: aws configure export-credentials --format env.");
        }
    }
    if (strcmp(p->name, "default") != 0 && !ini_look(p->keys, p->name, NULL, NULL) &&
        !ini_look(p->config, p->section, NULL, NULL)) {
        return hf_hint(err, hf_fail(err, HF_EDENIED, "%s: it is in neither file", where),
                       "Look at AWS_PROFILE, ~/.aws/credentials and ~/.aws/config.");
    }
    return hf_fail(err, HF_ENOTFOUND, "no access keys");
}

enum hf_rc hf_creds_find(struct hf_creds *ret, struct hf_err *err)
{
    *ret = (struct hf_creds){.access_key = hf_strdup(env("AWS_ACCESS_KEY_ID")),
                             .secret_key = hf_strdup(env("AWS_SECRET_ACCESS_KEY")),
                             .token = hf_strdup(env("AWS_SESSION_TOKEN"))};
    struct profile p;
    profile_open(&p);
    HF_CLEANUP(hf_freep) char *where = hf_asprintf("AWS profile '%s'", p.name);
    enum hf_rc rc = HF_OK;
    if (ret->access_key != NULL || ret->secret_key != NULL) {
        rc = hf_creds_check(ret, "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY", err);
    } else {
        wipe(&ret->token);
        rc = from_section(ret, p.keys, p.name, where, err);
        rc = rc == HF_ENOTFOUND ? from_section(ret, p.config, p.section, where, err) : rc;
        rc = rc == HF_ENOTFOUND ? why_none(&p, where, err) : rc;
    }
    const char *region = env("AWS_REGION") != NULL ? env("AWS_REGION") : env("AWS_DEFAULT_REGION");
    ret->region = region != NULL ? hf_strdup(region) : value_of(p.config, p.section, "region");
    ret->region = ret->region != NULL ? ret->region : value_of(p.keys, p.name, "region");
    profile_close(&p);
    return rc;
}

char *hf_aws_endpoint(void)
{
    const char *ignore = env("AWS_IGNORE_CONFIGURED_ENDPOINT_URLS");
    if (ignore != NULL && strcasecmp(ignore, "true") == 0) {
        return NULL;
    }
    const char *said =
        env("AWS_ENDPOINT_URL_S3") != NULL ? env("AWS_ENDPOINT_URL_S3") : env("AWS_ENDPOINT_URL");
    if (said != NULL) {
        return hf_strdup(said);
    }
    struct profile p;
    profile_open(&p);
    char *url = value_of(p.config, p.section, "endpoint_url");
    profile_close(&p);
    return url;
}
