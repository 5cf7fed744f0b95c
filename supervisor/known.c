/* SPDX-License-Identifier: Apache-2.0
 *
 * The memory of a watched folder. Worker threads. A print is 64 bits of a hash over what stat(2)
 * says of a file: enough to tell states of one folder apart, and never used to judge content.
 */
#include "base/prelude.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/fsx.h"
#include "base/json.h"
#include "supervisor/known.h"

#define FILE_MAX   (64u << 20)
#define PRINT_HEX  16
#define FNV_OFFSET UINT64_C(14695981039346656037)
#define FNV_PRIME  UINT64_C(1099511628211)

static void entry_release(struct hf_known *e)
{
    hf_free(e->path);
    hf_free(e->prints);
}

void hf_knowns_release(struct hf_knowns *k)
{
    for (size_t i = 0; i < k->len; i++) {
        entry_release(&k->items[i]);
    }
    hf_free(k->items);
    *k = (struct hf_knowns){0};
}

struct hf_known *hf_known_find(const struct hf_knowns *k, const char *path)
{
    for (size_t i = 0; i < k->len; i++) {
        if (strcmp(k->items[i].path, path) == 0) {
            return &k->items[i];
        }
    }
    return NULL;
}

static struct hf_known *add(struct hf_knowns *k, const char *path)
{
    if (k->len == k->room) {
        k->room = k->room > 0 ? 2 * k->room : 16;
        k->items = hf_realloc(k->items, k->room * sizeof(*k->items));
    }
    k->items[k->len] = (struct hf_known){.path = hf_strdup(path), .step = -1};
    return &k->items[k->len++];
}

static uint64_t fnv(uint64_t hash, const void *data, size_t len)
{
    const unsigned char *p = data;
    for (size_t i = 0; i < len; i++) {
        hash = (hash ^ p[i]) * FNV_PRIME;
    }
    return hash;
}

static uint64_t print_of(const struct hf_stamp *s)
{
    uint64_t hash = fnv(FNV_OFFSET, s->path, strlen(s->path));
    hash = fnv(hash, &s->size, sizeof(s->size));
    hash = fnv(hash, &s->mtime_ns, sizeof(s->mtime_ns));
    return fnv(hash, &s->inode, sizeof(s->inode));
}

static int by_value(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a;
    uint64_t y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

/* A folder is no content: it stays the same whatever is written into it. */
static bool is_content(const struct hf_stamp *s)
{
    struct stat st;
    return s->mtime_ns != 0 || (lstat(s->path, &st) == 0 && !S_ISDIR(st.st_mode));
}

static size_t prints_of(const struct hf_stamps *stamps, uint64_t **ret, int64_t *ret_newest)
{
    uint64_t *prints = hf_calloc(stamps->len + 1, sizeof(*prints));
    size_t n = 0;
    *ret_newest = 0;
    for (size_t i = 0; i < stamps->len; i++) {
        const struct hf_stamp *s = &stamps->items[i];
        if (is_content(s)) {
            prints[n++] = print_of(s);
            *ret_newest = s->mtime_ns > *ret_newest ? s->mtime_ns : *ret_newest;
        }
    }
    qsort(prints, n, sizeof(*prints), by_value);
    *ret = prints;
    return n;
}

static size_t count_known(const struct hf_known *e, const uint64_t *prints, size_t n)
{
    size_t known = 0;
    for (size_t i = 0; i < n && e->n_prints > 0; i++) {
        known += bsearch(&prints[i], e->prints, e->n_prints, sizeof(*prints), by_value) != NULL;
    }
    return known;
}

struct hf_known *hf_known_note(struct hf_knowns *k, const char *path, int64_t step,
                               const struct hf_stamps *stamps, uint64_t now_ns)
{
    uint64_t *prints = NULL;
    int64_t newest = 0;
    size_t n = prints_of(stamps, &prints, &newest);
    struct hf_known *e = hf_known_find(k, path);
    bool is_new = e == NULL;
    if (is_new) {
        e = add(k, path);
    }
    size_t same = count_known(e, prints, n);
    e->seen = true;
    e->step = step;
    if (!is_new && same == n) {
        hf_free(prints);
        return e;
    }
    e->grown = (e->done || e->grown) && same > 0;
    e->done = false;
    e->renamed = false;
    e->open = false;
    e->since_ns = now_ns;
    e->newest_ns = newest;
    hf_free(e->prints);
    e->prints = prints;
    e->n_prints = n;
    return e;
}

void hf_knowns_drop_unseen(struct hf_knowns *k)
{
    size_t kept = 0;
    for (size_t i = 0; i < k->len; i++) {
        if (k->items[i].seen) {
            k->items[kept] = k->items[i];
            k->items[kept++].seen = false;
        } else {
            entry_release(&k->items[i]);
        }
    }
    k->len = kept;
}

static cJSON *entry_json(const struct hf_known *e)
{
    cJSON *obj = hf_json_obj();
    hf_json_add(obj, "path", hf_json_bytes(e->path));
    hf_json_add_int(obj, "step", e->step);
    char *hex = hf_calloc(e->n_prints + 1, PRINT_HEX);
    for (size_t i = 0; i < e->n_prints; i++) {
        char one[PRINT_HEX + 1];
        snprintf(one, sizeof(one), "%016llx", (unsigned long long)e->prints[i]);
        memcpy(hex + i * PRINT_HEX, one, PRINT_HEX);
    }
    hf_json_add_str(obj, "prints", hex);
    hf_free(hex);
    return obj;
}

enum hf_rc hf_knowns_save(const struct hf_knowns *k, const char *except, const char *file,
                          struct hf_err *err)
{
    HF_CLEANUP(hf_json_freep) cJSON *obj = hf_json_obj();
    cJSON *arr = hf_json_arr();
    hf_json_add_int(obj, "format", 1);
    hf_json_add(obj, "known", arr);
    for (size_t i = 0; i < k->len; i++) {
        const struct hf_known *e = &k->items[i];
        if (e->done && (except == NULL || strcmp(e->path, except) != 0)) {
            hf_json_push(arr, entry_json(e));
        }
    }
    HF_CLEANUP(hf_freep) char *text = hf_json_print(obj);
    return hf_fs_write(file, (struct hf_span){text, strlen(text)}, 0600, false, err);
}

static enum hf_rc read_prints(const char *hex, struct hf_known *e, struct hf_err *err)
{
    e->n_prints = strlen(hex) / PRINT_HEX;
    e->prints = hf_calloc(e->n_prints + 1, sizeof(*e->prints));
    for (size_t i = 0; i < e->n_prints; i++) {
        char one[PRINT_HEX + 1] = {0};
        char *end = NULL;
        memcpy(one, hex + i * PRINT_HEX, PRINT_HEX);
        e->prints[i] = strtoull(one, &end, 16);
        if (*end != '\0') {
            return hf_fail(err, HF_ECORRUPT, "'prints' is no hexadecimal number");
        }
    }
    qsort(e->prints, e->n_prints, sizeof(*e->prints), by_value);
    return HF_OK;
}

static enum hf_rc read_known(const cJSON *obj, struct hf_knowns *k, struct hf_err *err)
{
    const cJSON *arr = NULL;
    const cJSON *one = NULL;
    HF_TRY(hf_json_get_arr(obj, "known", &arr, err));
    cJSON_ArrayForEach(one, arr)
    {
        HF_CLEANUP(hf_freep) char *path = NULL;
        const char *hex = NULL;
        HF_TRY(hf_json_bytes_read(hf_json_opt(one, "path"), &path, err));
        HF_TRY(hf_json_get_str(one, "prints", &hex, err));
        struct hf_known *e = add(k, path);
        e->step = hf_json_opt_int(one, "step", -1);
        e->done = true;
        HF_TRY(read_prints(hex, e, err));
    }
    return HF_OK;
}

enum hf_rc hf_knowns_load(struct hf_knowns *k, const char *file, struct hf_err *err)
{
    struct hf_buf text;
    HF_CLEANUP(hf_json_freep) cJSON *obj = NULL;
    hf_buf_init(&text, FILE_MAX);
    enum hf_rc rc = hf_fs_read(file, &text, err);
    if (rc == HF_OK) {
        rc = hf_json_parse(hf_buf_span(&text), FILE_MAX, &obj, err);
    }
    if (rc == HF_OK) {
        rc = read_known(obj, k, err);
    }
    hf_buf_release(&text);
    return rc == HF_OK ? rc : hf_wrap(err, rc, "'%s'", file);
}
