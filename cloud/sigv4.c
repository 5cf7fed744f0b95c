/* SPDX-License-Identifier: Apache-2.0
 *
 * Signing a request with AWS Signature Version 4. One clock reading gives the date of the scope and
 * of the header, so that midnight cannot come between them. Pure; any thread.
 */
#include "base/prelude.h"

#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/buf.h"
#include "base/hash.h"
#include "cloud/sigv4.h"

#define MAC_BYTES  32
#define STAMP_ROOM 20 /* 20261201T120000Z */

struct mac {
    unsigned char bytes[MAC_BYTES];
};

static struct mac hmac(const void *key, size_t key_len, const char *text)
{
    struct mac m = {{0}};
    unsigned int len = MAC_BYTES;
    (void)HMAC(EVP_sha256(), key, (int)key_len, (const unsigned char *)text, strlen(text), m.bytes,
               &len);
    return m;
}

static void hex_of(const struct mac *m, char out[2 * MAC_BYTES + 1])
{
    for (size_t i = 0; i < MAC_BYTES; i++) {
        (void)snprintf(out + 2 * i, 3, "%02x", m->bytes[i]);
    }
}

static void stamp_of(int64_t wall_ms, char out[STAMP_ROOM])
{
    time_t at = (time_t)(wall_ms / 1000);
    struct tm tm;
    gmtime_r(&at, &tm);
    (void)strftime(out, STAMP_ROOM, "%Y%m%dT%H%M%SZ", &tm);
}

static int by_name(const void *a, const void *b)
{
    const char *x = *(char *const *)a;
    const char *y = *(char *const *)b;
    size_t n = strcspn(x, ":");
    size_t m = strcspn(y, ":");
    int order = strncmp(x, y, n < m ? n : m);
    return order != 0 ? order : (int)n - (int)m;
}

/* Unbounded, so that only memory can run out, which is fatal anyway. */
static void add(struct hf_buf *b, const char *text, size_t len)
{
    enum hf_rc rc = hf_buf_add(b, text, len, NULL);
    (void)rc;
}

static void add_text(struct hf_buf *b, const char *text)
{
    add(b, text, strlen(text));
}

/* "name:value\n" with blanks at the ends gone and inner runs made one. */
static void add_header(struct hf_buf *b, const char *line)
{
    const char *value = strchr(line, ':') + 1;
    add(b, line, (size_t)(value - line));
    bool gap = false;
    bool any = false;
    for (; *value != '\0'; value++) {
        if (*value == ' ' || *value == '\t') {
            gap = any;
            continue;
        }
        if (gap) {
            add(b, " ", 1);
        }
        add(b, value, 1);
        gap = false;
        any = true;
    }
    add(b, "\n", 1);
}

/* Sorts, and gives back "host;x-amz-date" as well. */
static void list_headers(struct hf_strv *lines, struct hf_buf *canonical, struct hf_buf *names)
{
    qsort(lines->items, lines->len, sizeof(char *), by_name);
    for (size_t i = 0; i < lines->len; i++) {
        add_header(canonical, lines->items[i]);
        add_text(names, i > 0 ? ";" : "");
        add(names, lines->items[i], strcspn(lines->items[i], ":"));
    }
}

static char *authorization(const struct hf_sigv4 *k, const struct hf_sigv4_request *r,
                           const char *stamp, struct hf_strv *signed_lines)
{
    struct hf_buf canonical;
    struct hf_buf names;
    hf_buf_init(&canonical, SIZE_MAX);
    hf_buf_init(&names, SIZE_MAX);
    HF_CLEANUP(hf_freep) char *head = hf_asprintf("%s\n%s\n%s\n", r->method, r->path, r->query);
    add_text(&canonical, head);
    list_headers(signed_lines, &canonical, &names);
    HF_CLEANUP(hf_freep) char *foot = hf_asprintf("\n%s\n%s", hf_buf_str(&names), r->payload);
    add_text(&canonical, foot);
    char sum[HF_SHA256_HEX];
    hf_sha256_hex(hf_buf_span(&canonical), sum);
    HF_CLEANUP(hf_freep)
    char *scope = hf_asprintf("%.8s/%s/%s/aws4_request", stamp, k->region, k->service);
    HF_CLEANUP(hf_freep)
    char *to_sign = hf_asprintf("AWS4-HMAC-SHA256\n%s\n%s\n%s", stamp, scope, sum);
    HF_CLEANUP(hf_freep) char *first = hf_asprintf("AWS4%s", k->secret_key);
    HF_CLEANUP(hf_freep) char *day = hf_strndup(stamp, 8);
    struct mac m = hmac(first, strlen(first), day);
    OPENSSL_cleanse(first, strlen(first));
    m = hmac(m.bytes, MAC_BYTES, k->region);
    m = hmac(m.bytes, MAC_BYTES, k->service);
    m = hmac(m.bytes, MAC_BYTES, "aws4_request");
    m = hmac(m.bytes, MAC_BYTES, to_sign);
    char signature[2 * MAC_BYTES + 1];
    hex_of(&m, signature);
    char *line = hf_asprintf("authorization: AWS4-HMAC-SHA256 Credential=%s/%s, SignedHeaders=%s, "
                             "Signature=%s",
                             k->access_key, scope, hf_buf_str(&names), signature);
    hf_buf_release(&canonical);
    hf_buf_release(&names);
    return line;
}

void hf_sigv4_sign(const struct hf_sigv4 *k, const struct hf_sigv4_request *r,
                   struct hf_strv *headers)
{
    char stamp[STAMP_ROOM];
    stamp_of(k->now_wall_ms, stamp);
    hf_strv_take(headers, hf_asprintf("x-amz-date: %s", stamp));
    hf_strv_take(headers, hf_asprintf("x-amz-content-sha256: %s", r->payload));
    if (k->token != NULL) {
        hf_strv_take(headers, hf_asprintf("x-amz-security-token: %s", k->token));
    }
    struct hf_strv all = {0};
    hf_strv_take(&all, hf_asprintf("host: %s", r->host));
    for (size_t i = 0; i < headers->len; i++) {
        hf_strv_add(&all, headers->items[i]);
    }
    hf_strv_take(headers, authorization(k, r, stamp, &all));
    hf_strv_clear(&all);
}

char *hf_uri_encode(const char *text, bool slash)
{
    static const char plain[] =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_.~";
    char *out = hf_calloc(3 * strlen(text) + 1, 1);
    char *to = out;
    for (const char *p = text; *p != '\0'; p++) {
        if (strchr(plain, *p) != NULL || (slash && *p == '/')) {
            *to++ = *p;
        } else {
            to += snprintf(to, 4, "%%%02X", (unsigned char)*p);
        }
    }
    return out;
}
