/* SPDX-License-Identifier: Apache-2.0
 *
 * The pure parts of object stores: signatures against what botocore 1.44.8 made of the same
 * requests, what an S3 reply means as a table, listing pages, XML within its limits, and where
 * access keys are found.
 */
#include "base/prelude.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/fsx.h"
#include "cloud/dialect.h"
#include "cloud/sigv4.h"
#include "cloud/xml.h"
#include "support_conform_store.h"

#define EMPTY_SUM "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"

/* ---- signatures ---- */

static const struct {
    const char *method, *host, *path, *query, *payload, *header1, *header2;
    const char *key, *secret, *token, *region;
    int64_t at_ms;
    const char *want;
} vectors[] = {
    {"PUT", "buck.s3.eu-west-1.amazonaws.com", "/pre/fix/a-b_c.d~e%40f%20g", "", HF_SIGV4_UNSIGNED,
     "if-none-match: *", "content-type: application/octet-stream", "AKIDEXAMPLE",
     "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY", "tok/en+==", "eu-west-1", 1796169599999,
     "AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/20261201/eu-west-1/s3/aws4_request, "
     "SignedHeaders=content-type;host;if-none-match;x-amz-content-sha256;x-amz-date;"
     "x-amz-security-token, "
     "Signature=84b34d9f423ca4e18de8a20d06b7228f4db205f4c190a1fd60ee554b2f6d7690"},
    {"GET", "127.0.0.1:9000", "/buck/",
     "continuation-token=a%2Fb%3D&encoding-type=url&list-type=2&prefix=x%20y%2F", EMPTY_SUM, NULL,
     NULL, "AK", "s", NULL, "us-east-1", 1440938160000,
     "AWS4-HMAC-SHA256 Credential=AK/20150830/us-east-1/s3/aws4_request, "
     "SignedHeaders=host;x-amz-content-sha256;x-amz-date, "
     "Signature=dd0fd4d70ac878096142b6b73d52f9e0b5dd7de11d940a4d4f827d39cfc87506"},
    {"DELETE", "s3.cn-north-1.amazonaws.com.cn", "/my.bucket/k", "", HF_SIGV4_UNSIGNED,
     "x-amz-meta-odd:   two   blanks\t here ", NULL, "AK", "secret", NULL, "cn-north-1",
     1709164800000,
     "AWS4-HMAC-SHA256 Credential=AK/20240229/cn-north-1/s3/aws4_request, "
     "SignedHeaders=host;x-amz-content-sha256;x-amz-date;x-amz-meta-odd, "
     "Signature=971cf0266dca663f36d9177c46e6dd65b61194ab5cb803a945458a374a646f1d"},
};

static const char *line_of(const struct hf_strv *lines, const char *name)
{
    for (size_t i = 0; i < lines->len; i++) {
        size_t len = strlen(name);
        if (strncmp(lines->items[i], name, len) == 0 &&
            strncmp(lines->items[i] + len, ": ", 2) == 0) {
            return lines->items[i] + len + 2;
        }
    }
    return NULL;
}

static void signatures(void **state)
{
    (void)state;
    for (size_t i = 0; i < HF_COUNT(vectors); i++) {
        struct hf_strv lines = {0};
        const char *const given[] = {vectors[i].header1, vectors[i].header2};
        for (size_t k = 0; k < HF_COUNT(given); k++) {
            if (given[k] != NULL) {
                hf_strv_add(&lines, given[k]);
            }
        }
        struct hf_sigv4 keys = {.access_key = vectors[i].key,
                                .secret_key = vectors[i].secret,
                                .token = vectors[i].token,
                                .region = vectors[i].region,
                                .service = "s3",
                                .now_wall_ms = vectors[i].at_ms};
        struct hf_sigv4_request what = {vectors[i].method, vectors[i].host, vectors[i].path,
                                        vectors[i].query, vectors[i].payload};
        hf_sigv4_sign(&keys, &what, &lines);
        assert_string_equal(line_of(&lines, "authorization"), vectors[i].want);
        assert_string_equal(line_of(&lines, "x-amz-content-sha256"), vectors[i].payload);
        const char *token = line_of(&lines, "x-amz-security-token");
        assert_int_equal(token != NULL, vectors[i].token != NULL);
        for (size_t k = 0; k < lines.len; k++) {
            assert_null(strstr(lines.items[k],
                               vectors[i].secret[1] != '\0' ? vectors[i].secret : "no such text"));
        }
        hf_strv_clear(&lines);
    }
}

static void encoding(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        bool slash;
        const char *want;
    } rows[] = {
        {"", true, ""},
        {"aZ09-_.~", false, "aZ09-_.~"},
        {"a/b", true, "a/b"},
        {"a/b", false, "a%2Fb"},
        {"a b+c@d", true, "a%20b%2Bc%40d"},
        {"\xe4\xb8\xad\xff", true, "%E4%B8%AD%FF"},
        {"%41&=?#", false, "%2541%26%3D%3F%23"},
    };
    for (size_t i = 0; i < HF_COUNT(rows); i++) {
        HF_CLEANUP(hf_freep) char *got = hf_uri_encode(rows[i].text, rows[i].slash);
        assert_string_equal(got, rows[i].want);
    }
}

/* ---- requests ---- */

static void addresses(void **state)
{
    (void)state;
    static const struct {
        char *bucket, *endpoint, *region;
        bool path_style;
        enum hf_ask_kind kind;
        const char *key, *after, *want;
    } rows[] = {
        {"b", NULL, "eu-west-1", false, HF_ASK_GET, "k/1@x", NULL,
         "https://b.s3.eu-west-1.amazonaws.com/k/1%40x"},
        {"b", NULL, "cn-north-1", false, HF_ASK_PUT, "k", NULL,
         "https://b.s3.cn-north-1.amazonaws.com.cn/k"},
        {"b.c", NULL, "us-east-1", true, HF_ASK_REMOVE, "k", NULL,
         "https://s3.us-east-1.amazonaws.com/b.c/k"},
        {"b", "http://h:9000", "r", true, HF_ASK_GET, "k", NULL, "http://h:9000/b/k"},
        {"b", "https://h", "r", true, HF_ASK_LIST, "p/", NULL,
         "https://h/b/?encoding-type=url&list-type=2&prefix=p%2F"},
        {"b", "https://h", "r", true, HF_ASK_LIST, "", "t&/=",
         "https://h/b/?continuation-token=t%26%2F%3D&encoding-type=url&list-type=2&prefix="},
    };
    for (size_t i = 0; i < HF_COUNT(rows); i++) {
        struct hf_place at = {.bucket = rows[i].bucket,
                              .prefix = "",
                              .endpoint = rows[i].endpoint,
                              .region = rows[i].region,
                              .path_style = rows[i].path_style};
        struct hf_creds keys = {.access_key = "a", .secret_key = "s"};
        struct hf_ask ask = {.kind = rows[i].kind,
                             .key = rows[i].key,
                             .after = rows[i].after,
                             .create_only = rows[i].kind == HF_ASK_PUT};
        struct hf_request req = {.method = NULL};
        hf_dialect_s3.build(&at, &keys, 1796169599999, &ask, &req);
        assert_string_equal(req.url, rows[i].want);
        const char *condition = line_of(&req.headers, "if-none-match");
        assert_int_equal(condition != NULL, ask.create_only);
        /* The payload goes unsigned where TLS proves it, and nowhere else. */
        assert_string_equal(line_of(&req.headers, "x-amz-content-sha256"),
                            strncmp(req.url, "https", 5) == 0 ? HF_SIGV4_UNSIGNED : EMPTY_SUM);
        hf_request_release(&req);
    }
}

/* ---- replies ---- */

#define ERROR(code) "<?xml version='1.0'?><Error><Code>" code "</Code><Message>m</Message></Error>"

static const struct {
    int status;
    const char *body, *header;
    enum hf_ask_kind kind;
    enum hf_rc want;
    enum hf_answer_action action;
    const char *hint; /* part of it; NULL: none */
} replies[] = {
    {200, "", "ETag: \"1\"", HF_ASK_PUT, HF_OK, 0, NULL},
    {206, "", "etag: \"1\"", HF_ASK_GET, HF_OK, 0, NULL},
    {200, "", NULL, HF_ASK_LIST, HF_OK, 0, NULL},
    {200, "<html>Please log in</html>", NULL, HF_ASK_PUT, HF_EAGAIN, 0, NULL},
    {200, "", NULL, HF_ASK_GET, HF_EAGAIN, 0, NULL},
    {200, ERROR("InternalError"), "ETag: \"1\"", HF_ASK_PUT, HF_EAGAIN, 0, NULL},
    {200, ERROR("SomethingNew"), "ETag: \"1\"", HF_ASK_PUT, HF_EAGAIN, 0, NULL},
    {200, ERROR("AccessDenied"), NULL, HF_ASK_REMOVE, HF_EDENIED, 0, "s3:DeleteObject"},
    {200, "<Error><Code>Slow", "ETag: \"1\"", HF_ASK_PUT, HF_EAGAIN, 0, NULL},
    {204, "", NULL, HF_ASK_REMOVE, HF_OK, 0, NULL},
    {404, ERROR("NoSuchKey"), NULL, HF_ASK_GET, HF_ENOTFOUND, 0, NULL},
    {404, ERROR("NoSuchKey"), NULL, HF_ASK_REMOVE, HF_OK, 0, NULL},
    {404, "", NULL, HF_ASK_GET, HF_EINVAL, 0, "object store"},
    {404, "<html>not here</html>", NULL, HF_ASK_REMOVE, HF_EINVAL, 0, "object store"},
    {301, "", "x-amz-bucket-region: evil.example/", HF_ASK_GET, HF_EINVAL, 0, "--store-region"},
    {404, ERROR("NoSuchBucket"), NULL, HF_ASK_GET, HF_EDENIED, 0, "spelt right"},
    {404, ERROR("NoSuchBucket"), NULL, HF_ASK_REMOVE, HF_EDENIED, 0, "spelt right"},
    {412, ERROR("PreconditionFailed"), NULL, HF_ASK_PUT, HF_EEXISTS, 0, NULL},
    {412, "", NULL, HF_ASK_PUT, HF_EEXISTS, 0, NULL},
    {412, "", NULL, HF_ASK_GET, HF_EIO, 0, NULL},
    {409, ERROR("ConditionalRequestConflict"), NULL, HF_ASK_PUT, HF_EAGAIN, 0, NULL},
    {503, ERROR("SlowDown"), "Retry-After: 2", HF_ASK_PUT, HF_EAGAIN, 0, NULL},
    {400, ERROR("RequestTimeout"), NULL, HF_ASK_PUT, HF_EAGAIN, 0, NULL},
    {400, ERROR("ThrottlingException"), NULL, HF_ASK_GET, HF_EAGAIN, 0, NULL},
    {500, "<html>gateway", NULL, HF_ASK_GET, HF_EAGAIN, 0, NULL},
    {502, "", NULL, HF_ASK_GET, HF_EAGAIN, 0, NULL},
    {429, "", NULL, HF_ASK_GET, HF_EAGAIN, 0, NULL},
    {507, "", NULL, HF_ASK_PUT, HF_EFULL, 0, NULL},
    {403, ERROR("AccessDenied"), NULL, HF_ASK_PUT, HF_EDENIED, 0, "s3:PutObject"},
    {403, "", NULL, HF_ASK_GET, HF_EDENIED, 0, "s3:GetObject"},
    {403, ERROR("InvalidAccessKeyId"), NULL, HF_ASK_GET, HF_EDENIED, HF_ANSWER_KEYS,
     "AWS_ACCESS_KEY_ID"},
    {403, ERROR("SignatureDoesNotMatch"), NULL, HF_ASK_GET, HF_EDENIED, HF_ANSWER_KEYS,
     "AWS_SECRET"},
    {400, ERROR("BadDigest"), NULL, HF_ASK_PUT, HF_EAGAIN, 0, NULL},
    {400, ERROR("InvalidDigest"), NULL, HF_ASK_PUT, HF_ENOTSUP, 0, "--store-checksum none"},
    {403, ERROR("RequestTimeTooSkewed"), NULL, HF_ASK_GET, HF_EDENIED, HF_ANSWER_CLOCK, "clock"},
    {400, ERROR("ExpiredToken"), NULL, HF_ASK_GET, HF_EDENIED, HF_ANSWER_KEYS, "Renew"},
    {301, ERROR("PermanentRedirect"), "x-amz-bucket-region: eu-west-1", HF_ASK_GET, HF_EINVAL,
     HF_ANSWER_REGION, "--store-region"},
    {400, "<Error><Code>AuthorizationHeaderMalformed</Code><Region>eu-west-1</Region></Error>",
     NULL, HF_ASK_GET, HF_EINVAL, HF_ANSWER_REGION, "--store-region"},
    {301, "", "x-amz-bucket-region: r", HF_ASK_GET, HF_EINVAL, 0, "--store-region"},
    {400, ERROR("EntityTooLarge"), NULL, HF_ASK_PUT, HF_EIO, 0, NULL},
    {302, "", NULL, HF_ASK_GET, HF_EIO, 0, NULL},
    {100, "", NULL, HF_ASK_GET, HF_EIO, 0, NULL},
};

static void judged(void **state)
{
    (void)state;
    struct hf_place at = {.bucket = "b", .prefix = "", .region = "r"};
    for (size_t i = 0; i < HF_COUNT(replies); i++) {
        struct hf_reply reply = {.status = replies[i].status};
        hf_buf_init(&reply.error, HF_REPLY_ERROR);
        expect_rc(hf_buf_add(&reply.error, replies[i].body, strlen(replies[i].body), NULL), HF_OK,
                  NULL);
        if (replies[i].header != NULL) {
            hf_strv_add(&reply.headers, replies[i].header);
        }
        struct hf_ask ask = {.kind = replies[i].kind, .create_only = replies[i].kind == HF_ASK_PUT};
        struct hf_answer answer = {.action = HF_ANSWER_DONE};
        struct hf_err err = {.code = HF_OK};
        enum hf_rc rc = hf_dialect_s3.judge(&at, &ask, &reply, &answer, &err);
        if (rc != replies[i].want || answer.action != replies[i].action) {
            fail_msg("row %zu: %s, action %d: %s", i, hf_rc_name(rc), (int)answer.action, err.msg);
        }
        if (replies[i].hint != NULL && strstr(err.hint, replies[i].hint) == NULL) {
            fail_msg("row %zu: '%s' is not in '%s'", i, replies[i].hint, err.hint);
        }
        if (answer.action == HF_ANSWER_REGION) {
            assert_string_equal(answer.region, "eu-west-1");
        }
        assert_int_equal(err.retry_after_ms,
                         replies[i].header != NULL && replies[i].header[0] == 'R' ? 2000 : 0);
        hf_reply_release(&reply);
    }
}

/* ---- listings ---- */

static bool collect(void *user, const char *key, uint64_t bytes)
{
    char *out = user;
    size_t at = strlen(out);
    (void)snprintf(out + at, 400 - at, "%s=%llu ", key, (unsigned long long)bytes);
    return strcmp(key, "stop") != 0;
}

#define LIST(inside)                                                            \
    "<ListBucketResult xmlns='http://s3.amazonaws.com/doc/2006-03-01/'>" inside \
    "</ListBucketResult>"
#define KEY(key, size) \
    "<Contents><Key>" key "</Key><Owner><ID>x</ID></Owner><Size>" size "</Size></Contents>"

static void pages(void **state)
{
    (void)state;
    static const struct {
        const char *text, *told, *after;
        enum hf_rc want;
    } rows[] = {
        {LIST(""), "", NULL, HF_OK},
        {LIST(KEY("a%2Fb", "3") KEY("c%20d+e", "0")), "a/b=3 c d e=0 ", NULL, HF_OK},
        {LIST("<IsTruncated>true</IsTruncated><NextContinuationToken>t/==</"
              "NextContinuationToken>" KEY("a", "1")),
         "a=1 ", "t/==", HF_OK},
        {LIST("<IsTruncated>false</IsTruncated><NextContinuationToken>t</NextContinuationToken>"),
         "", NULL, HF_OK},
        {LIST(KEY("a", "18446744073709551615")), "a=18446744073709551615 ", NULL, HF_OK},
        {LIST(KEY("stop", "1") KEY("b", "1")), "stop=1 ", NULL, HF_OK},
        {LIST("<IsTruncated>true</IsTruncated>" KEY("a", "1")), "", NULL, HF_ECORRUPT},
        {LIST(KEY("a%2", "1")), "", NULL, HF_ECORRUPT},
        {LIST(KEY("a%zz", "1")), "", NULL, HF_ECORRUPT},
        {"<Error><Code>InternalError</Code></Error>", "", NULL, HF_ECORRUPT},
        {"<ListBucketResult>" KEY("a", "1"), "", NULL, HF_ECORRUPT},
        {"", "", NULL, HF_ECORRUPT},
        {"not xml", "", NULL, HF_ECORRUPT},
    };
    for (size_t i = 0; i < HF_COUNT(rows); i++) {
        char told[400] = "";
        struct hf_page page = {.each = collect, .user = told};
        struct hf_err err;
        enum hf_rc rc = hf_dialect_s3.page(text_of(rows[i].text), &page, &err);
        expect_rc(rc, rows[i].want, &err);
        assert_string_equal(told, rows[i].told);
        assert_string_equal(page.after != NULL ? page.after : "none",
                            rows[i].after != NULL ? rows[i].after : "none");
        hf_free(page.after);
    }
}

/* Every prefix of a page is refused, and no key of it told. */
static void pages_cut_off(void **state)
{
    (void)state;
    static const char text[] = LIST(KEY("a", "1") KEY("b", "2"));
    for (size_t len = 0; len + 1 < sizeof(text); len++) {
        char told[400] = "";
        struct hf_page page = {.each = collect, .user = told};
        assert_int_equal(hf_dialect_s3.page((struct hf_span){text, len}, &page, NULL), HF_ECORRUPT);
        assert_string_equal(told, "");
        assert_null(page.after);
    }
}

/* ---- XML ---- */

static void join(void *user, const char *path, const char *text)
{
    char *out = user;
    size_t at = strlen(out);
    (void)snprintf(out + at, 400 - at, "%s=%s;", path, text);
}

static char *nested(unsigned depth)
{
    char *text = hf_strdup("x");
    for (unsigned i = 0; i < depth; i++) {
        char *more = hf_asprintf("<a>%s</a>", text);
        hf_free(text);
        text = more;
    }
    return text;
}

static void xml_limits(void **state)
{
    (void)state;
    static const struct {
        const char *text, *told;
        enum hf_rc want;
    } rows[] = {
        {"<a><b>1</b><n:c xmlns:n='u'> &lt;2&#x4e2d; </n:c></a>", "a/b=1;a/c= <2\xe4\xb8\xad ;a=;",
         HF_OK},
        {"<a/>", "a=;", HF_OK},
        {"<!DOCTYPE a [<!ENTITY e 'x'>]><a>&e;</a>", NULL, HF_ECORRUPT},
        {"<!DOCTYPE a SYSTEM 'http://h/x.dtd'><a/>", NULL, HF_ECORRUPT},
        {"<a>&e;</a>", NULL, HF_ECORRUPT},
        {"<a></b>", NULL, HF_ECORRUPT},
        {"<a/><b/>", NULL, HF_ECORRUPT},
        {"<a>\x01</a>", NULL, HF_ECORRUPT},
        {"<a>\xff</a>", NULL, HF_ECORRUPT},
    };
    struct hf_err err;
    for (size_t i = 0; i < HF_COUNT(rows); i++) {
        char told[400] = "";
        expect_rc(hf_xml_read(text_of(rows[i].text), join, told, &err), rows[i].want, &err);
        if (rows[i].told != NULL) {
            assert_string_equal(told, rows[i].told);
        }
    }
    for (unsigned depth = 15; depth <= 18; depth++) {
        char told[400] = "";
        char *text = nested(depth);
        expect_rc(hf_xml_read(text_of(text), join, told, &err), depth <= 16 ? HF_OK : HF_ECORRUPT,
                  &err);
        hf_free(text);
    }
    static const size_t lengths[] = {16 << 10, (16 << 10) + 1, 1 << 20};
    for (size_t i = 0; i < HF_COUNT(lengths); i++) {
        char told[400] = "";
        HF_CLEANUP(hf_freep) char *fill = hf_calloc(lengths[i] + 1, 1);
        memset(fill, 'x', lengths[i]);
        HF_CLEANUP(hf_freep) char *text = hf_asprintf("<a>%s</a>", fill);
        expect_rc(hf_xml_read(text_of(text), join, told, &err), i == 0 ? HF_OK : HF_ECORRUPT, &err);
    }
}

/* ---- access keys ---- */

static void ini(void **state)
{
    (void)state;
    static const char text[] = "k = before any section\n"
                               "[default]\n"
                               "# k = comment\n"
                               "k=first\n"
                               "  k = indented belongs to the line above\n"
                               "k =  last one = counts \r\n"
                               "empty =\n"
                               "[ spaced ]\n"
                               "k\t=\ttabs\t\n"
                               "[profile x y]\n"
                               "k = z\n"
                               "[ profile  'q r' ]  # why not\n"
                               "  K : colon\n"
                               "   k = deeper\n"
                               "  s3 =\n"
                               "     k = nested\n"
                               "[s3]\n"
                               "no equals\n"
                               "[default]\n"
                               "again = here";
    static const struct {
        const char *section, *key, *want;
    } rows[] = {
        {"default", "k", "last one = counts"},
        {"default", "empty", ""},
        {"default", "again", "here"},
        {"spaced", "k", "tabs"},
        {"profile x y", "k", "z"},
        {"profile x", "k", NULL},
        {"profile q r", "k", "colon"},
        {"s3", "k", NULL},
        {"default", "no equals", NULL},
        {"", "k", NULL},
    };
    for (size_t i = 0; i < HF_COUNT(rows); i++) {
        HF_CLEANUP(hf_freep) char *got = hf_ini_find(text, rows[i].section, rows[i].key);
        assert_string_equal(got != NULL ? got : "none",
                            rows[i].want != NULL ? rows[i].want : "none");
    }
}

static const char *const variables[] = {
    "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN",
    "AWS_REGION",        "AWS_DEFAULT_REGION",    "AWS_PROFILE",
};

static void keys_are_found(void **state)
{
    (void)state;
    HF_CLEANUP(hf_freep) char *folder = temp_folder();
    HF_CLEANUP(hf_freep) char *keys = hf_asprintf("%s/k", folder);
    HF_CLEANUP(hf_freep) char *config = hf_asprintf("%s/c", folder);
    struct hf_err err;
    static const char in_keys[] = "[default]\naws_access_key_id=FK\naws_secret_access_key=FS\n"
                                  "[half]\naws_access_key_id=HK\n"
                                  "[p]\naws_access_key_id=PK\naws_secret_access_key=PS\n"
                                  "aws_session_token=PT\n"
                                  "[blank]\naws_access_key_id=B K\naws_secret_access_key=E5\n";
    static const char in_config[] = "[default]\nregion=file-region\n[profile half]\n"
                                    "aws_secret_access_key=HS\n[profile p]\nregion=p-region\n"
                                    "[profile whole]\naws_access_key_id=CK\n"
                                    "aws_secret_access_key=CS\n"
                                    "[profile sso]\nsso_session=x\n";
    expect_rc(hf_fs_write(keys, text_of(in_keys), 0600, false, &err), HF_OK, &err);
    expect_rc(hf_fs_write(config, text_of(in_config), 0600, false, &err), HF_OK, &err);
    setenv("AWS_SHARED_CREDENTIALS_FILE", keys, 1);
    setenv("AWS_CONFIG_FILE", config, 1);
    static const struct {
        const char *given[HF_COUNT(variables)];
        const char *want; /* key, secret, token, region; NULL: HF_EDENIED */
    } rows[] = {
        {{NULL}, "FK FS none file-region"},
        {{"EK", "E5"}, "EK E5 none file-region"},
        {{"EK", "E5", "ET", "er"}, "EK E5 ET er"},
        {{"EK", "E5", NULL, NULL, "dr"}, "EK E5 none dr"},
        {{"EK", "E5", NULL, "er", "dr", "p"}, "EK E5 none er"},
        {{NULL, NULL, "ET"}, "FK FS none file-region"}, /* a token without its pair */
        {{NULL, NULL, NULL, NULL, NULL, "p"}, "PK PS PT p-region"},
        {{NULL, NULL, NULL, NULL, NULL, "half"}, NULL}, /* no pair is made of two files */
        {{NULL, NULL, NULL, NULL, NULL, "whole"}, "CK CS none none"},
        {{NULL, NULL, NULL, NULL, NULL, "sso"}, NULL},
        {{NULL, NULL, NULL, NULL, NULL, "blank"}, NULL},
        {{"E\nK", "E5"}, NULL},
        {{"EK"}, NULL},
        {{NULL, "E5"}, NULL},
        {{"EK", ""}, NULL},
        {{NULL, NULL, NULL, NULL, NULL, "nosuch"}, NULL},
    };
    for (size_t i = 0; i < HF_COUNT(rows); i++) {
        for (size_t k = 0; k < HF_COUNT(variables); k++) {
            unsetenv(variables[k]);
            if (rows[i].given[k] != NULL) {
                setenv(variables[k], rows[i].given[k], 1);
            }
        }
        struct hf_creds c;
        expect_rc(hf_creds_find(&c, &err), rows[i].want != NULL ? HF_OK : HF_EDENIED, &err);
        if (rows[i].want != NULL) {
            HF_CLEANUP(hf_freep)
            char *got = hf_asprintf("%s %s %s %s", c.access_key, c.secret_key,
                                    c.token != NULL ? c.token : "none",
                                    c.region != NULL ? c.region : "none");
            assert_string_equal(got, rows[i].want);
        } else {
            assert_null(strstr(err.msg, "E5"));
            assert_true(err.hint[0] != '\0');
        }
        hf_creds_release(&c);
    }
    expect_rc(hf_fs_remove_tree(folder, &err), HF_OK, &err);
}

/* ---- opening ---- */

static void uris(void **state)
{
    (void)state;
    setenv("AWS_ACCESS_KEY_ID", "k", 1);
    setenv("AWS_SECRET_ACCESS_KEY", "s", 1);
    static const struct {
        const char *uri, *endpoint;
        enum hf_rc want;
    } rows[] = {
        {"s3://b", NULL, HF_OK},
        {"s3://b/", NULL, HF_OK},
        {"s3://b/p/q/", NULL, HF_OK},
        {"s3://b", "https://h", HF_OK},
        {"s3://b", "http://h:1/", HF_OK},
        {"s3://", NULL, HF_EINVAL},
        {"s3:///p", NULL, HF_EINVAL},
        {"s3:b", NULL, HF_EINVAL},
        {"s3://b//p", NULL, HF_EINVAL},
        {"s3://b/p//q", NULL, HF_EINVAL},
        {"s3://b c/p", NULL, HF_EINVAL},
        {"s3://b/../q", NULL, HF_EINVAL},
        {"s3://b/p?q", NULL, HF_EINVAL},
        {"s3://b/.tmp-x", NULL, HF_EINVAL},
        {"s3://b", "https://user:E5cret@h", HF_EDENIED},
        {"s3://b", "h:1", HF_EDENIED},
        {"s3://b", "https://", HF_EDENIED},
        {"s3://b", "https://h/path", HF_EDENIED},
        {"s3://b", "https://h?x", HF_EDENIED},
    };
    for (size_t i = 0; i < HF_COUNT(rows); i++) {
        struct hf_store_cfg cfg = {.endpoint = rows[i].endpoint};
        struct hf_store *s = NULL;
        struct hf_err err = {.code = HF_OK};
        enum hf_rc rc = hf_store_open(rows[i].uri, &cfg, &s, &err);
        if (rc != rows[i].want) {
            fail_msg("%s, %s: %s, %s", rows[i].uri, rows[i].endpoint, hf_rc_name(rc), err.msg);
        }
        assert_null(strstr(err.msg, "E5cret"));
        hf_store_close(s);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(signatures), cmocka_unit_test(encoding),
        cmocka_unit_test(addresses),  cmocka_unit_test(judged),
        cmocka_unit_test(pages),      cmocka_unit_test(pages_cut_off),
        cmocka_unit_test(xml_limits), cmocka_unit_test(ini),
        cmocka_unit_test(uris),       cmocka_unit_test(keys_are_found),
    };
    return cmocka_run_group_tests_name("object_parts", tests, NULL, NULL);
}
