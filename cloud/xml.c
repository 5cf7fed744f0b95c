/* SPDX-License-Identifier: Apache-2.0
 *
 * Replies of object stores, which a hostile one may have written: the parser is expat, what it may
 * build here is bounded, and a document type ends it. Any thread; nothing is kept.
 */
#include "base/prelude.h"

#include <expat.h>
#include <limits.h>
#include <string.h>

#include "base/buf.h"
#include "cloud/xml.h"

#define DEPTH_MAX 16
#define TEXT_MAX  (16u << 10)
#define PATH_ROOM 512

struct reading {
    XML_Parser parser;
    hf_xml_fn *each;
    void *user;
    unsigned depth;
    char path[PATH_ROOM];
    size_t ends[DEPTH_MAX]; /* where the path above each element ends */
    struct hf_buf text;     /* of the innermost element */
    const char *fault;      /* why it was stopped, NULL: it was not */
};

static void stop(struct reading *r, const char *why)
{
    r->fault = r->fault != NULL ? r->fault : why;
    (void)XML_StopParser(r->parser, XML_FALSE);
}

static void on_start(void *user, const XML_Char *name, const XML_Char **attributes)
{
    (void)attributes;
    struct reading *r = user;
    const char *colon = strrchr(name, ':');
    name = colon != NULL ? colon + 1 : name;
    size_t at = strlen(r->path);
    if (r->depth == DEPTH_MAX || at + strlen(name) + 2 > PATH_ROOM) {
        stop(r, "it is too deep");
        return;
    }
    r->ends[r->depth++] = at;
    if (at > 0) {
        r->path[at++] = '/';
    }
    memcpy(r->path + at, name, strlen(name) + 1);
    hf_buf_reset(&r->text);
}

static void on_text(void *user, const XML_Char *text, int len)
{
    struct reading *r = user;
    if (hf_buf_add(&r->text, text, (size_t)len, NULL) != HF_OK) {
        stop(r, "a text is too long");
    }
}

static void on_end(void *user, const XML_Char *name)
{
    (void)name;
    struct reading *r = user;
    if (r->fault != NULL) {
        return;
    }
    r->each(r->user, r->path, hf_buf_str(&r->text));
    r->path[r->ends[--r->depth]] = '\0';
    hf_buf_reset(&r->text);
}

static void on_doctype(void *user, const XML_Char *name, const XML_Char *system,
                       const XML_Char *public, int internal)
{
    (void)name;
    (void)system;
    (void)public;
    (void)internal;
    stop(user, "it has a document type");
}

enum hf_rc hf_xml_read(struct hf_span text, hf_xml_fn *each, void *user, struct hf_err *err)
{
    if (text.len == 0 || text.len > INT_MAX) {
        return hf_fail(err, HF_ECORRUPT, "%zu bytes are no XML", text.len);
    }
    struct reading r = {.parser = XML_ParserCreate(NULL), .each = each, .user = user};
    if (r.parser == NULL) {
        return hf_fail(err, HF_EFULL, "no memory to read XML");
    }
    hf_buf_init(&r.text, TEXT_MAX);
    XML_SetUserData(r.parser, &r);
    XML_SetElementHandler(r.parser, on_start, on_end);
    XML_SetCharacterDataHandler(r.parser, on_text);
    XML_SetStartDoctypeDeclHandler(r.parser, on_doctype);
    enum hf_rc rc = HF_OK;
    if (XML_Parse(r.parser, text.ptr, (int)text.len, XML_TRUE) != XML_STATUS_OK) {
        rc = hf_fail(err, HF_ECORRUPT, "XML, line %lu: %s",
                     (unsigned long)XML_GetCurrentLineNumber(r.parser),
                     r.fault != NULL ? r.fault : XML_ErrorString(XML_GetErrorCode(r.parser)));
    }
    XML_ParserFree(r.parser);
    hf_buf_release(&r.text);
    return rc;
}
