/* SPDX-License-Identifier: Apache-2.0
 *
 * The settings file: one flat mapping of setting names to values, YAML or JSON. Scalars are
 * taken as text, whatever YAML would make of them, and typed by the setting's row. A JSON file
 * is first checked as JSON; it is then walked as the YAML that it also is, since that walk knows
 * lines and columns and sees duplicate keys. Blocking; reads that one file and nothing else.
 */
#include "base/prelude.h"

#include <stdlib.h>
#include <string.h>
#include <yaml.h>

#include "base/fsx.h"
#include "base/json.h"
#include "supervisor/settings.h"
#include "supervisor/settings_lines.h"

#define FILE_MAX_BYTES (1u << 20)

struct reader {
    struct hf_settings *s;
    const char *path;
    const char *home;
    struct hf_span text;
    yaml_parser_t parser;
    size_t seen_line[HF_SET_MAX]; /* 0: not yet */
};

static const char line_hint[] = "A settings file has lines like 'every: 10m'.";

#define AT(r, mark) (r)->path, (mark).line + 1, (mark).column + 1

/* A key without its colon is noticed a line later: the line where it stands is looked at. A quote
 * without its second is noticed at the end of the file: where it opens is told. */
static enum hf_rc syntax_error(const struct reader *r, struct hf_err *err)
{
    const yaml_parser_t *p = &r->parser;
    bool quote = p->context != NULL && strstr(p->context, "quoted scalar") != NULL;
    if (quote && strstr(p->problem, "end of stream") != NULL) {
        return hf_hint(
            err,
            hf_fail(err, HF_EINVAL, "%s:%zu:%zu: a quote is not closed", AT(r, p->context_mark)),
            "End the value with the quote that it begins with, or leave both out.");
    }
    bool key = p->context != NULL && strstr(p->context, "simple key") != NULL;
    const yaml_mark_t *mark = key ? &p->context_mark : &p->problem_mark;
    HF_TRY(hf_settings_line_explain(r->path, r->text, mark->line + 1, err));
    return hf_hint(err,
                   hf_fail(err, HF_EINVAL, "%s:%zu:%zu: %s", AT(r, *mark),
                           p->problem != NULL ? p->problem : "not YAML"),
                   "%s", line_hint);
}

static enum hf_rc next(struct reader *r, yaml_event_t *ret, struct hf_err *err)
{
    if (yaml_parser_parse(&r->parser, ret) == 0) {
        return syntax_error(r, err);
    }
    return HF_OK;
}

static enum hf_rc unexpected(const struct reader *r, const yaml_event_t *e, struct hf_err *err)
{
    const char *what = "something else";
    const char *hint = line_hint;
    if (e->type == YAML_MAPPING_START_EVENT) {
        what = "a mapping";
    } else if (e->type == YAML_SEQUENCE_START_EVENT) {
        what = "a list";
    } else if (e->type == YAML_ALIAS_EVENT) {
        what = "an alias";
        hint = "Write the value itself: aliases are not followed.";
    }
    return hf_hint(err,
                   hf_fail(err, HF_EINVAL, "%s:%zu:%zu: %s where a plain value is needed",
                           AT(r, e->start_mark), what),
                   "%s", hint);
}

static enum hf_rc refuse_tag(const struct reader *r, const yaml_event_t *e, const yaml_char_t *tag,
                             struct hf_err *err)
{
    if (tag == NULL) {
        return HF_OK;
    }
    return hf_hint(err,
                   hf_fail(err, HF_EINVAL, "%s:%zu:%zu: a tag ('%s')", AT(r, e->start_mark), tag),
                   "Write the value alone: its type comes from the setting.");
}

static enum hf_rc find_key(struct reader *r, const yaml_event_t *e, enum hf_set_id *ret,
                           struct hf_err *err)
{
    const char *key = (const char *)e->data.scalar.value;
    enum hf_set_id id = hf_settings_find(key);
    HF_TRY(refuse_tag(r, e, e->data.scalar.tag, err));
    if (id == HF_SET_MAX) {
        HF_TRY(hf_settings_line_explain(r->path, r->text, e->start_mark.line + 1, err));
        const char *names[HF_SET_MAX + 1];
        size_t n = 0;
        for (int i = 0; i < HF_SET_MAX; i++) {
            if (hf_settings_table[i].env != NULL && i != HF_SET_CONFIG) {
                names[n++] = hf_settings_table[i].name;
            }
        }
        names[n] = NULL;
        const char *nearest = hf_nearest(key, names);
        enum hf_rc rc =
            hf_fail(err, HF_EINVAL, "%s:%zu:%zu: unknown setting '%s'", AT(r, e->start_mark), key);
        return nearest != NULL ? hf_hint(err, rc, "Did you mean '%s'?", nearest)
                               : hf_hint(err, rc, "'holdfast run --help' lists the settings.");
    }
    if (hf_settings_table[id].env == NULL || id == HF_SET_CONFIG) {
        return hf_hint(err,
                       hf_fail(err, HF_EINVAL, "%s:%zu:%zu: '%s' cannot be set in a file",
                               AT(r, e->start_mark), key),
                       "Give it as the flag --%s.", key);
    }
    if (r->seen_line[id] != 0) {
        return hf_hint(
            err,
            hf_fail(err, HF_EINVAL, "%s:%zu:%zu: '%s' is set twice", AT(r, e->start_mark), key),
            "The first is in line %zu.", r->seen_line[id]);
    }
    r->seen_line[id] = e->start_mark.line + 1;
    *ret = id;
    return HF_OK;
}

/* An indented line after "keep: 3" belongs to its value, which is seldom meant. */
static enum hf_rc continuation(const struct reader *r, const yaml_event_t *e, struct hf_err *err)
{
    for (size_t line = e->start_mark.line + 2; line <= e->end_mark.line + 1; line++) {
        HF_TRY(hf_settings_line_explain(r->path, r->text, line, err));
    }
    return hf_hint(err,
                   hf_fail(err, HF_EINVAL,
                           "%s:%zu:1: an indented line goes on with the value before", r->path,
                           e->start_mark.line + 2),
                   "Start the line with the setting's name.");
}

static enum hf_rc set_scalar(struct reader *r, enum hf_set_id id, const yaml_event_t *e,
                             struct hf_err *err)
{
    const struct hf_setting *row = &hf_settings_table[id];
    const char *text = (const char *)e->data.scalar.value;
    HF_CLEANUP(hf_freep)
    char *where = hf_asprintf("%s:%zu:%zu: %s", AT(r, e->start_mark), row->name);
    HF_TRY(refuse_tag(r, e, e->data.scalar.tag, err));
    if (strlen(text) != e->data.scalar.length) {
        return hf_hint(err, hf_fail(err, HF_EINVAL, "%s: the value has a NUL character", where),
                       "Remove the '\\0': no setting can have one.");
    }
    bool plain = e->data.scalar.style == YAML_PLAIN_SCALAR_STYLE;
    if (plain && (*text == '\0' || strcmp(text, "null") == 0 || strcmp(text, "~") == 0)) {
        return hf_hint(err, hf_fail(err, HF_EINVAL, "%s: there is no value", where),
                       "Leave the line out to use the default.");
    }
    if (plain) {
        HF_TRY(hf_settings_quote_check(where, text, err));
    }
    bool path = row->type == HF_SET_PATH || row->type == HF_SET_PATHS;
    HF_CLEANUP(hf_freep) char *expanded = NULL;
    if (path && strncmp(text, "~/", 2) == 0 && r->home != NULL) {
        expanded = hf_asprintf("%s%s", r->home, text + 1);
    }
    enum hf_rc rc =
        hf_settings_set(r->s, id, HF_FROM_FILE, where, expanded != NULL ? expanded : text, err);
    bool folded = plain && e->end_mark.line > e->start_mark.line;
    return rc != HF_OK && folded ? continuation(r, e, err) : rc;
}

static enum hf_rc read_value(struct reader *r, enum hf_set_id id, struct hf_err *err)
{
    bool list = hf_settings_table[id].type == HF_SET_PATHS;
    bool inside = false;
    enum hf_rc rc = HF_OK;
    do {
        yaml_event_t e;
        HF_TRY(next(r, &e, err));
        if (e.type == YAML_SCALAR_EVENT) {
            rc = set_scalar(r, id, &e, err);
        } else if (list && !inside && e.type == YAML_SEQUENCE_START_EVENT) {
            inside = true;
            rc = refuse_tag(r, &e, e.data.sequence_start.tag, err);
        } else if (inside && e.type == YAML_SEQUENCE_END_EVENT) {
            inside = false;
        } else {
            rc = unexpected(r, &e, err);
        }
        yaml_event_delete(&e);
    } while (rc == HF_OK && inside);
    return rc;
}

static enum hf_rc read_mapping(struct reader *r, struct hf_err *err)
{
    for (;;) {
        yaml_event_t e;
        HF_TRY(next(r, &e, err));
        if (e.type == YAML_MAPPING_END_EVENT) {
            yaml_event_delete(&e);
            return HF_OK;
        }
        enum hf_set_id id = HF_SET_MAX;
        enum hf_rc rc =
            e.type == YAML_SCALAR_EVENT ? find_key(r, &e, &id, err) : unexpected(r, &e, err);
        yaml_event_delete(&e);
        HF_TRY(rc);
        HF_TRY(read_value(r, id, err));
    }
}

static enum hf_rc not_a_mapping(const struct reader *r, const yaml_event_t *e, struct hf_err *err)
{
    if (e->type == YAML_SCALAR_EVENT) {
        HF_TRY(hf_settings_line_explain(r->path, r->text, e->start_mark.line + 1, err));
    }
    return hf_hint(
        err, hf_fail(err, HF_EINVAL, "%s:%zu:%zu: not a mapping of settings", AT(r, e->start_mark)),
        "%s", line_hint);
}

/* The stream's only document: a mapping, or nothing at all. */
static enum hf_rc read_document(struct reader *r, struct hf_err *err)
{
    bool mapping_done = false;
    for (;;) {
        yaml_event_t e;
        HF_TRY(next(r, &e, err));
        yaml_event_type_t type = e.type;
        bool empty = type == YAML_SCALAR_EVENT && e.data.scalar.length == 0;
        enum hf_rc rc = HF_OK;
        if (type == YAML_MAPPING_START_EVENT && !mapping_done) {
            rc = refuse_tag(r, &e, e.data.mapping_start.tag, err);
            rc = rc == HF_OK ? read_mapping(r, err) : rc;
            mapping_done = true;
        } else if (type == YAML_DOCUMENT_START_EVENT && mapping_done) {
            rc = hf_hint(
                err, hf_fail(err, HF_EINVAL, "%s:%zu:%zu: a second document", AT(r, e.start_mark)),
                "Remove the '---' line: a settings file is one document.");
        } else if (!empty && (type == YAML_SCALAR_EVENT || type == YAML_ALIAS_EVENT ||
                              type == YAML_SEQUENCE_START_EVENT)) {
            rc = not_a_mapping(r, &e, err);
        }
        yaml_event_delete(&e);
        HF_TRY(rc);
        if (type == YAML_STREAM_END_EVENT) {
            return HF_OK;
        }
    }
}

static bool is_json(const char *path)
{
    size_t len = strlen(path);
    return len > 5 && strcmp(path + len - 5, ".json") == 0;
}

/* Where a key should start, the parser stops one byte behind what stands there instead. */
static size_t json_fault(struct hf_span text, size_t at)
{
    static const char blank[] = " \t\r\n";
    const char *s = text.ptr;
    if (at == 0 || at > text.len || s[at - 1] == '"' || strchr(blank, s[at - 1]) != NULL) {
        return at;
    }
    size_t before = at - 1;
    while (before > 0 && strchr(blank, s[before - 1]) != NULL) {
        before--;
    }
    return before > 0 && (s[before - 1] == '{' || s[before - 1] == ',') ? at - 1 : at;
}

static enum hf_rc check_json(const struct reader *r, struct hf_err *err)
{
    struct hf_err own = {0};
    cJSON *json = NULL;
    enum hf_rc rc = hf_json_parse(r->text, FILE_MAX_BYTES, &json, &own);
    hf_json_free(json);
    if (rc == HF_OK) {
        return HF_OK;
    }
    size_t line = 0;
    size_t column = 0;
    hf_settings_place(r->text, json_fault(r->text, (size_t)own.native), &line, &column);
    HF_TRY(hf_settings_line_explain(r->path, r->text, line, err));
    return hf_hint(err, hf_fail(err, HF_EINVAL, "%s:%zu:%zu: not JSON", r->path, line, column),
                   "A JSON settings file looks like {\"every\": \"10m\", \"keep\": 3}.");
}

static enum hf_rc read_text(struct reader *r, struct hf_err *err)
{
    HF_TRY(hf_settings_text_check(r->path, &r->text, err));
    if (is_json(r->path)) {
        HF_TRY(check_json(r, err));
    }
    if (yaml_parser_initialize(&r->parser) == 0) {
        return hf_fail(err, HF_EINTERNAL, "cannot start the YAML parser");
    }
    yaml_parser_set_encoding(&r->parser, YAML_UTF8_ENCODING);
    yaml_parser_set_input_string(&r->parser, r->text.ptr, r->text.len);
    enum hf_rc rc = read_document(r, err);
    yaml_parser_delete(&r->parser);
    return rc;
}

enum hf_rc hf_settings_file(struct hf_settings *s, const char *path, const char *home,
                            struct hf_err *err)
{
    struct hf_buf text;
    hf_buf_init(&text, FILE_MAX_BYTES);
    enum hf_rc rc = hf_fs_read(path, &text, err);
    if (rc == HF_OK) {
        struct hf_span all = {hf_buf_str(&text), hf_buf_span(&text).len};
        struct reader r = {.s = s, .path = path, .home = home, .text = all};
        rc = read_text(&r, err);
    } else {
        rc = hf_wrap(err, rc, "settings file '%s'", path);
    }
    hf_buf_release(&text);
    return rc;
}
