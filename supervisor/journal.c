/* SPDX-License-Identifier: Apache-2.0
 *
 * The local journal of saves. A line is whole or it is not there: it is flushed before anybody
 * relies on it, and a torn last line is passed over.
 */
#include "base/prelude.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/fsx.h"
#include "base/json.h"
#include "supervisor/journal.h"

#define JOURNAL_MAX    (256u << 20) /* 100,000 files a save, a few saves */
#define LINE_MAX_BYTES (64u << 20)
#define CLAIM_MAX      (4u << 20)

void hf_saved_free(struct hf_saved *s)
{
    if (s == NULL) {
        return;
    }
    hf_free(s->ranks);
    hf_free(s->reason);
    hf_free(s->strategy);
    hf_free(s->resume_path);
    hf_strv_clear(&s->roots);
    hf_strv_clear(&s->held);
    hf_stamps_release(&s->stamps);
    hf_free(s);
}

enum hf_rc hf_journal_put_claim(const char *attempt_dir, const struct hf_claim *claim,
                                struct hf_err *err)
{
    HF_CLEANUP(hf_freep) char *path = hf_asprintf("%s/claim.json", attempt_dir);
    HF_CLEANUP(hf_freep) char *text = hf_claim_print(claim);
    return hf_fs_write(path, (struct hf_span){text, strlen(text)}, 0600, false, err);
}

enum hf_rc hf_journal_get_claim(const char *attempt_dir, struct hf_claim *ret, struct hf_err *err)
{
    HF_CLEANUP(hf_freep) char *path = hf_asprintf("%s/claim.json", attempt_dir);
    struct hf_buf text;
    hf_buf_init(&text, CLAIM_MAX);
    enum hf_rc rc = hf_fs_read(path, &text, err);
    if (rc == HF_OK) {
        rc = hf_claim_parse(hf_buf_span(&text), ret, err);
        hf_wrap(err, rc, "'%s'", path);
    }
    hf_buf_release(&text);
    return rc;
}

static cJSON *stamps_json(const struct hf_stamps *stamps)
{
    cJSON *arr = hf_json_arr();
    for (size_t i = 0; i < stamps->len; i++) {
        const struct hf_stamp *s = &stamps->items[i];
        cJSON *one = hf_json_obj();
        hf_json_add(one, "path", hf_json_bytes(s->path));
        hf_json_add_int(one, "size", (int64_t)s->size);
        /* As text: nanoseconds and inodes may pass 2^53. */
        HF_CLEANUP(hf_freep) char *ns = hf_asprintf("%lld", (long long)s->mtime_ns);
        HF_CLEANUP(hf_freep) char *inode = hf_asprintf("%llu", (unsigned long long)s->inode);
        hf_json_add_str(one, "mtime_ns", ns);
        hf_json_add_str(one, "inode", inode);
        hf_json_push(arr, one);
    }
    return arr;
}

static cJSON *paths_json(const struct hf_strv *paths)
{
    cJSON *arr = hf_json_arr();
    for (size_t i = 0; i < paths->len; i++) {
        hf_json_push(arr, hf_json_bytes(paths->items[i]));
    }
    return arr;
}

static cJSON *saved_json(const struct hf_saved *s)
{
    cJSON *obj = hf_json_obj();
    hf_json_add_str(obj, "type", "saved");
    hf_json_add_int(obj, "serial", (int64_t)s->serial);
    hf_json_add_int(obj, "request", (int64_t)s->request);
    hf_json_add_int(obj, "life", s->life);
    hf_json_add_int(obj, "step", s->step);
    hf_json_add_int(obj, "world", s->world);
    cJSON *ranks = hf_json_arr();
    for (uint32_t i = 0; i < s->n_ranks; i++) {
        hf_json_push(ranks, cJSON_CreateNumber(s->ranks[i]));
    }
    hf_json_add(obj, "ranks", ranks);
    hf_json_add_str(obj, "reason", s->reason);
    hf_json_add_str(obj, "strategy", s->strategy);
    hf_json_add(obj, "resume_path", hf_json_bytes(s->resume_path));
    hf_json_add(obj, "roots", paths_json(&s->roots));
    hf_json_add(obj, "held", paths_json(&s->held));
    hf_json_add(obj, "stamps", stamps_json(&s->stamps));
    return obj;
}

static enum hf_rc append_synced(const char *attempt_dir, cJSON *obj_taken, struct hf_err *err)
{
    HF_CLEANUP(hf_json_freep) cJSON *obj = obj_taken;
    HF_CLEANUP(hf_freep) char *path = hf_asprintf("%s/saves.jsonl", attempt_dir);
    HF_CLEANUP(hf_freep) char *text = hf_json_print(obj);
    /* A new line first: a torn last line never swallows this one. */
    HF_CLEANUP(hf_freep) char *line = hf_asprintf("\n%s\n", text);
    HF_TRY(hf_fs_append(path, (struct hf_span){line, strlen(line)}, err));
    HF_CLEANUP(hf_closep) int fd = open(path, O_WRONLY | O_CLOEXEC);
    if (fd < 0 || fdatasync(fd) != 0) {
        return hf_fail(err, HF_EIO, "flush '%s'", path);
    }
    return HF_OK;
}

enum hf_rc hf_journal_put_save(const char *attempt_dir, const struct hf_saved *s,
                               struct hf_err *err)
{
    return append_synced(attempt_dir, saved_json(s), err);
}

enum hf_rc hf_journal_put_shipped(const char *attempt_dir, uint64_t serial, struct hf_err *err)
{
    cJSON *obj = hf_json_obj();
    hf_json_add_str(obj, "type", "shipped");
    hf_json_add_int(obj, "serial", (int64_t)serial);
    return append_synced(attempt_dir, obj, err);
}

static enum hf_rc read_text(const cJSON *obj, const char *key, char **ret, struct hf_err *err)
{
    const char *text = NULL;
    HF_TRY(hf_json_get_str(obj, key, &text, err));
    *ret = hf_strdup(text);
    return HF_OK;
}

static enum hf_rc read_number_text(const cJSON *obj, const char *key, int64_t *ret,
                                   struct hf_err *err)
{
    const char *text = NULL;
    HF_TRY(hf_json_get_str(obj, key, &text, err));
    char *end = NULL;
    *ret = (int64_t)strtoll(text, &end, 10);
    return *text != '\0' && *end == '\0' ? HF_OK
                                         : hf_fail(err, HF_ECORRUPT, "'%s' is no number", key);
}

static enum hf_rc read_stamps(const cJSON *obj, struct hf_stamps *ret, struct hf_err *err)
{
    const cJSON *arr = NULL;
    HF_TRY(hf_json_get_arr(obj, "stamps", &arr, err));
    ret->items = hf_calloc((size_t)cJSON_GetArraySize(arr) + 1, sizeof(*ret->items));
    const cJSON *one = NULL;
    cJSON_ArrayForEach(one, arr)
    {
        struct hf_stamp *s = &ret->items[ret->len];
        int64_t size = 0;
        int64_t inode = 0;
        HF_TRY(hf_json_bytes_read(hf_json_opt(one, "path"), &s->path, err));
        ret->len++;
        HF_TRY(hf_json_get_int(one, "size", 0, INT64_MAX, &size, err));
        HF_TRY(read_number_text(one, "mtime_ns", &s->mtime_ns, err));
        HF_TRY(read_number_text(one, "inode", &inode, err));
        s->size = (uint64_t)size;
        s->inode = (uint64_t)inode;
    }
    return HF_OK;
}

static enum hf_rc read_ranks(const cJSON *obj, struct hf_saved *s, struct hf_err *err)
{
    const cJSON *ranks = NULL;
    HF_TRY(hf_json_get_arr(obj, "ranks", &ranks, err));
    s->ranks = hf_calloc((size_t)cJSON_GetArraySize(ranks) + 1, sizeof(*s->ranks));
    const cJSON *one = NULL;
    cJSON_ArrayForEach(one, ranks)
    {
        double rank = cJSON_IsNumber(one) ? one->valuedouble : -1;
        if (rank < 0 || rank > 1e9 || rank != (uint32_t)rank) {
            return hf_fail(err, HF_ECORRUPT, "a rank is no number");
        }
        s->ranks[s->n_ranks++] = (uint32_t)rank;
    }
    return HF_OK;
}

static enum hf_rc read_paths(const cJSON *arr, struct hf_strv *ret, struct hf_err *err)
{
    const cJSON *one = NULL;
    cJSON_ArrayForEach(one, arr)
    {
        char *path = NULL;
        HF_TRY(hf_json_bytes_read(one, &path, err));
        hf_strv_take(ret, path);
    }
    return HF_OK;
}

static enum hf_rc read_saved(const cJSON *obj, struct hf_saved *s, struct hf_err *err)
{
    int64_t serial = 0;
    int64_t request = 0;
    int64_t life = 0;
    int64_t world = 0;
    HF_TRY(hf_json_get_int(obj, "serial", 1, INT64_MAX, &serial, err));
    HF_TRY(hf_json_get_int(obj, "request", 0, INT64_MAX, &request, err));
    HF_TRY(hf_json_get_int(obj, "life", 0, UINT32_MAX, &life, err));
    HF_TRY(hf_json_get_int(obj, "step", -1, INT64_MAX, &s->step, err));
    HF_TRY(hf_json_get_int(obj, "world", 0, UINT32_MAX, &world, err));
    s->serial = (uint64_t)serial;
    s->request = (uint64_t)request;
    s->life = (uint32_t)life;
    s->world = (uint32_t)world;
    HF_TRY(read_ranks(obj, s, err));
    HF_TRY(read_text(obj, "reason", &s->reason, err));
    HF_TRY(read_text(obj, "strategy", &s->strategy, err));
    HF_TRY(hf_json_bytes_read(hf_json_opt(obj, "resume_path"), &s->resume_path, err));
    const cJSON *roots = NULL;
    HF_TRY(hf_json_get_arr(obj, "roots", &roots, err));
    HF_TRY(read_paths(roots, &s->roots, err));
    HF_TRY(read_paths(hf_json_opt(obj, "held"), &s->held, err));
    if (s->roots.len == 0 || (s->held.len != 0 && s->held.len != s->roots.len)) {
        return hf_fail(err, HF_ECORRUPT, "%zu roots, held in %zu places", s->roots.len,
                       s->held.len);
    }
    return read_stamps(obj, &s->stamps, err);
}

/* One line: a newer save replaces the candidate, a "shipped" note of it or of a newer one drops
 * it. */
static void take_line(const char *line, size_t len, struct hf_saved **best, uint64_t *serial_max)
{
    HF_CLEANUP(hf_json_freep) cJSON *obj = NULL;
    if (len == 0 ||
        hf_json_parse((struct hf_span){line, len}, LINE_MAX_BYTES, &obj, NULL) != HF_OK) {
        return;
    }
    const char *type = hf_json_opt_str(obj, "type", "");
    int64_t given = hf_json_opt_int(obj, "serial", 0);
    if (given <= 0) {
        return;
    }
    uint64_t serial = (uint64_t)given;
    if (strcmp(type, "shipped") == 0) {
        if (*best != NULL && (*best)->serial <= serial) {
            hf_saved_free(*best);
            *best = NULL;
        }
    } else if (strcmp(type, "saved") == 0) {
        struct hf_saved *s = HF_NEW(struct hf_saved);
        if (read_saved(obj, s, NULL) != HF_OK || (*best != NULL && (*best)->serial > serial)) {
            hf_saved_free(s);
            return;
        }
        hf_saved_free(*best);
        *best = s;
    } else {
        return;
    }
    *serial_max = serial > *serial_max ? serial : *serial_max;
}

enum hf_rc hf_journal_unshipped(const char *attempt_dir, struct hf_saved **ret,
                                uint64_t *ret_serial, struct hf_err *err)
{
    *ret = NULL;
    *ret_serial = 0;
    HF_CLEANUP(hf_freep) char *path = hf_asprintf("%s/saves.jsonl", attempt_dir);
    struct hf_buf text;
    hf_buf_init(&text, JOURNAL_MAX);
    enum hf_rc rc = hf_fs_read(path, &text, err);
    if (rc == HF_ENOTFOUND) {
        hf_buf_release(&text);
        return HF_OK;
    }
    size_t pos = 0;
    size_t len = 0;
    for (char *line = NULL; rc == HF_OK && (line = hf_buf_next_line(&text, &pos, &len)) != NULL;) {
        take_line(line, len, ret, ret_serial);
    }
    hf_buf_release(&text);
    return rc;
}
