/* SPDX-License-Identifier: Apache-2.0
 *
 * Reading and writing the lines of hook protocol 1. Pure; every byte of a line comes from a
 * program that Holdfast does not trust to be right, so each field is checked before it is used,
 * and nothing of it is kept on failure.
 */
#include "base/prelude.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/json.h"
#include "base/text.h"
#include "hooks/c/agree_step.h"
#include "hooks/proto.h"

static enum hf_rc parse_token(const char *text, uint64_t *ret, struct hf_err *err)
{
    if (strlen(text) != 16 || strspn(text, "0123456789abcdef") != 16) {
        return hf_fail(err, HF_ECORRUPT, "'token' is not 16 hexadecimal digits");
    }
    *ret = strtoull(text, NULL, 16);
    return HF_OK;
}

/* Cut between two characters. */
static void copy_name(char *out, size_t size, const char *text)
{
    size_t len = strlen(text);
    size_t at = 0;
    size_t n;
    while (at < len && (n = hf_utf8_next(text + at, len - at, NULL)) > 0 && at + n < size) {
        at += n;
    }
    memcpy(out, text, at);
    out[at] = '\0';
}

static enum hf_rc parse_hello(const cJSON *obj, struct hf_hook_msg *m, struct hf_err *err)
{
    int64_t protocol;
    int64_t rank;
    int64_t world;
    const char *token;
    HF_TRY(hf_json_get_int(obj, "protocol", 1, INT32_MAX, &protocol, err));
    HF_TRY(hf_json_get_int(obj, "world", 1, INT32_MAX, &world, err));
    HF_TRY(hf_json_get_int(obj, "rank", 0, world - 1, &rank, err));
    HF_TRY(hf_json_get_int(obj, "pid", 1, INT32_MAX, &m->pid, err));
    HF_TRY(hf_json_get_str(obj, "token", &token, err));
    HF_TRY(parse_token(token, &m->token, err));
    m->protocol = (uint32_t)protocol;
    m->rank = (uint32_t)rank;
    m->world = (uint32_t)world;
    m->last = hf_json_opt_int(obj, "last", -1);
    if (m->last < -1 || m->last > HFW_STEP_MAX) {
        return hf_fail(err, HF_ECORRUPT, "'last' is out of bounds");
    }
    copy_name(m->framework, sizeof m->framework, hf_json_opt_str(obj, "framework", ""));
    return HF_OK;
}

/* Without what changes nothing: "//", "/./" and a slash at the end. ".." may lead through a link,
 * and stays. */
static void make_plain(char *path)
{
    char *out = path;
    for (const char *in = path; *in != '\0';) {
        if (in[0] == '/' && (in[1] == '/' || in[1] == '\0')) {
            in++;
        } else if (in[0] == '/' && in[1] == '.' && (in[2] == '/' || in[2] == '\0')) {
            in += 2;
        } else {
            *out++ = *in++;
        }
    }
    if (out == path && path[0] == '/') {
        out++; /* the root itself */
    }
    *out = '\0';
}

static enum hf_rc parse_saved(const cJSON *obj, struct hf_hook_msg *m, struct hf_err *err)
{
    int64_t id;
    const cJSON *paths;
    HF_TRY(hf_json_get_int(obj, "id", 0, 0xffff, &id, err));
    HF_TRY(hf_json_get_int(obj, "step", 0, HFW_STEP_MAX, &m->step, err));
    HF_TRY(hf_json_get_arr(obj, "paths", &paths, err));
    m->id = (uint32_t)id;
    m->turn = hf_json_opt_int(obj, "turn", 0);
    const cJSON *item;
    cJSON_ArrayForEach(item, paths)
    {
        if (m->paths.len == HF_HOOK_PATHS_MAX) {
            return hf_fail(err, HF_EFULL, "more than %d paths in one message", HF_HOOK_PATHS_MAX);
        }
        char *path;
        HF_TRY(hf_json_bytes_read(item, &path, err));
        hf_strv_take(&m->paths, path);
        make_plain(path);
        if (path[0] != '/') {
            return hf_fail(err, HF_ECORRUPT, "saved path '%s' is not absolute", path);
        }
    }
    return HF_OK;
}

static const struct {
    const char *name;
    enum hf_hook_kind kind;
} kinds[] = {
    {"hello", HF_HOOK_HELLO}, {"saved", HF_HOOK_SAVED}, {"resumed", HF_HOOK_RESUMED},
    {"done", HF_HOOK_DONE},   {"bye", HF_HOOK_BYE},
};

static enum hf_rc parse_object(const cJSON *obj, struct hf_hook_msg *m, struct hf_err *err)
{
    const char *name;
    HF_TRY(hf_json_get_str(obj, "msg", &name, err));
    copy_name(m->name, sizeof m->name, name);
    for (size_t i = 0; i < HF_COUNT(kinds); i++) {
        if (strcmp(name, kinds[i].name) == 0) {
            m->kind = kinds[i].kind;
        }
    }
    switch (m->kind) {
    case HF_HOOK_HELLO:
        return parse_hello(obj, m, err);
    case HF_HOOK_SAVED:
        return parse_saved(obj, m, err);
    case HF_HOOK_RESUMED:
        return hf_json_get_int(obj, "step", 0, HFW_STEP_MAX, &m->step, err);
    case HF_HOOK_UNKNOWN:
    case HF_HOOK_DONE:
    case HF_HOOK_BYE:
        break;
    }
    return HF_OK;
}

/* A byte string that is none is written as hex, on purpose. */
static enum hf_rc check_utf8(struct hf_span line, struct hf_err *err)
{
    const char *text = line.ptr;
    for (size_t at = 0, n; at < line.len; at += n) {
        n = hf_utf8_next(text + at, line.len - at, NULL);
        if (n == 0) {
            return hf_fail(err, HF_ECORRUPT, "byte %zu of a line is not UTF-8", at);
        }
    }
    return HF_OK;
}

enum hf_rc hf_hook_parse(struct hf_span line, struct hf_hook_msg *ret, struct hf_err *err)
{
    HF_CLEANUP(hf_json_freep) cJSON *obj = NULL;
    HF_TRY(check_utf8(line, err));
    HF_TRY(hf_json_parse(line, HFW_LINE_BYTES, &obj, err));
    if (!cJSON_IsObject(obj)) {
        return hf_fail(err, HF_ECORRUPT, "a line is not a JSON object");
    }
    struct hf_hook_msg m = {.last = -1, .step = -1};
    enum hf_rc rc = parse_object(obj, &m, err);
    if (rc != HF_OK) {
        hf_hook_msg_release(&m);
        return m.name[0] ? hf_wrap(err, rc, "message '%s'", m.name) : rc;
    }
    *ret = m;
    return HF_OK;
}

void hf_hook_msg_release(struct hf_hook_msg *msg)
{
    hf_strv_clear(&msg->paths);
}

static char *print_line(cJSON *obj_taken)
{
    char *text = hf_json_print(obj_taken);
    char *line = hf_asprintf("%s\n", text);
    hf_free(text);
    hf_json_free(obj_taken);
    return line;
}

char *hf_hook_print_welcome(const struct hf_hook_welcome *w)
{
    cJSON *obj = hf_json_obj();
    hf_json_add_str(obj, "msg", "welcome");
    hf_json_add_int(obj, "protocol", HF_HOOK_PROTOCOL);
    hf_json_add_str(obj, "run", w->run);
    hf_json_add_int(obj, "attempt", w->attempt);
    hf_json_add_int(obj, "slot", w->slot);
    hf_json_add_int(obj, "life", w->life);
    hf_json_add(obj, "save_dir", hf_json_bytes(w->save_dir));
    if (w->resume_path) {
        cJSON *resume = hf_json_obj();
        hf_json_add(resume, "path", hf_json_bytes(w->resume_path));
        if (w->resume_step >= 0) {
            hf_json_add_int(resume, "step", w->resume_step);
        } else {
            hf_json_add_null(resume, "step");
        }
        hf_json_add(obj, "resume", resume);
    } else {
        hf_json_add_null(obj, "resume");
    }
    return print_line(obj);
}

char *hf_hook_print_refused(const char *why)
{
    cJSON *obj = hf_json_obj();
    hf_json_add_str(obj, "msg", "refused");
    hf_json_add_str(obj, "why", why);
    return print_line(obj);
}

char *hf_hook_print_unsupported(const char *name)
{
    cJSON *obj = hf_json_obj();
    hf_json_add_str(obj, "msg", "unsupported");
    hf_json_add_str(obj, "what", name);
    return print_line(obj);
}
