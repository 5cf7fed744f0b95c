/* SPDX-License-Identifier: Apache-2.0
 *
 * Containers that know their own length. A source of bytes (a file or memory) is read by position;
 * nothing is trusted that was not checked against its size. Blocking; no state is kept.
 */
#include "base/prelude.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/mem.h"
#include "checkpoint/container.h"

#define ZIP_TAIL_MAX   (size_t)(65535 + 22)
#define ZIP_END_BYTES  22
#define ZIP_END64      56
#define ZIP_LOCATOR    20
#define TENSORS_HEADER (UINT64_C(100) << 20) /* the library's own limit */
#define TABLE_FOOTER   48
#define HEAD_BYTES     8

struct source {
    int fd; /* -1: memory */
    const char *data;
    uint64_t size;
};

static bool read_at(const struct source *s, uint64_t off, void *out, size_t len)
{
    if (off > s->size || len > s->size - off) {
        return false;
    }
    if (s->fd < 0) {
        memcpy(out, s->data + off, len);
        return true;
    }
    char *to = out;
    while (len > 0) {
        ssize_t n = pread(s->fd, to, len, (off_t)off);
        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n <= 0) {
            return false;
        }
        to += n;
        off += (uint64_t)n;
        len -= (size_t)n;
    }
    return true;
}

static uint64_t little(const unsigned char *p, unsigned bytes)
{
    uint64_t v = 0;
    for (unsigned i = bytes; i > 0; i--) {
        v = v << 8 | p[i - 1];
    }
    return v;
}

static void HF_PRINTF(2, 3) is_short(struct hf_box_look *ret, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    vsnprintf(ret->why, sizeof(ret->why), fmt, args);
    va_end(args);
    ret->state = HF_BOX_SHORT;
}

/* ---- zip ---- */

/* Where the end record lies in the tail, or SIZE_MAX: its comment must reach exactly to the end. */
static size_t find_end(const unsigned char *tail, size_t len)
{
    for (size_t at = len - ZIP_END_BYTES + 1; at > 0; at--) {
        const unsigned char *p = tail + at - 1;
        if (memcmp(p, "PK\5\6", 4) == 0 && little(p + 20, 2) == len - (at - 1) - ZIP_END_BYTES) {
            return at - 1;
        }
    }
    return SIZE_MAX;
}

/* The directory of a zip64 archive: its own end record lies before the locator. */
static bool zip64_directory(const struct source *s, uint64_t end_at, uint64_t *off, uint64_t *len,
                            uint64_t *before)
{
    unsigned char loc[ZIP_LOCATOR];
    unsigned char end[ZIP_END64];
    if (end_at < ZIP_LOCATOR || !read_at(s, end_at - ZIP_LOCATOR, loc, sizeof(loc)) ||
        memcmp(loc, "PK\6\7", 4) != 0) {
        return false;
    }
    if (!read_at(s, little(loc + 8, 8), end, sizeof(end)) || memcmp(end, "PK\6\6", 4) != 0) {
        return false;
    }
    *before = little(loc + 8, 8);
    *len = little(end + 40, 8);
    *off = little(end + 48, 8);
    return true;
}

static void judge_zip(const struct source *s, struct hf_box_look *ret)
{
    size_t len = s->size < ZIP_TAIL_MAX ? (size_t)s->size : ZIP_TAIL_MAX;
    if (len < ZIP_END_BYTES) {
        is_short(ret, "a zip without its end");
        return;
    }
    HF_CLEANUP(hf_freep) char *tail = hf_calloc(len, 1);
    size_t at = SIZE_MAX;
    if (read_at(s, s->size - len, tail, len)) {
        at = find_end((const unsigned char *)tail, len);
    }
    if (at == SIZE_MAX) {
        is_short(ret, "a zip without its end");
        return;
    }
    const unsigned char *end = (const unsigned char *)tail + at;
    uint64_t end_at = s->size - len + at;
    uint64_t dir_len = little(end + 12, 4);
    uint64_t dir_off = little(end + 16, 4);
    uint64_t before = end_at; /* what the directory must reach to */
    uint64_t entries = little(end + 10, 2);
    bool wants64 = dir_len == UINT32_MAX || dir_off == UINT32_MAX || entries == UINT16_MAX;
    bool has64 = zip64_directory(s, end_at, &dir_off, &dir_len, &before);
    unsigned char first[4];
    bool fits = dir_off <= before && dir_len == before - dir_off && (has64 || !wants64);
    if (fits && dir_len > 0) {
        fits = read_at(s, dir_off, first, 4) && memcmp(first, "PK\1\2", 4) == 0;
    }
    if (!fits) {
        is_short(ret, "a zip whose directory is not where its end says");
        return;
    }
    ret->state = HF_BOX_WHOLE;
}

/* ---- safetensors ---- */

struct header {
    const char *at, *end;
    unsigned depth;
};

static bool is_blank(char c)
{
    return c == ' ' || c == '\t' || c == '\r' || c == '\n';
}

/* A string; its text without quotes, as it is written. */
static bool header_string(struct header *h, const char **ret, size_t *ret_len)
{
    const char *from = ++h->at;
    while (h->at < h->end && *h->at != '"') {
        h->at += *h->at == '\\' && h->at + 1 < h->end ? 2 : 1;
    }
    if (h->at >= h->end) {
        return false;
    }
    *ret = from;
    *ret_len = (size_t)(h->at++ - from);
    return true;
}

static bool header_number(struct header *h, uint64_t *ret)
{
    while (h->at < h->end &&
           (is_blank(*h->at) || *h->at == ':' || *h->at == '[' || *h->at == ',')) {
        h->at++;
    }
    if (h->at >= h->end || *h->at < '0' || *h->at > '9') {
        return false;
    }
    uint64_t v = 0;
    while (h->at < h->end && *h->at >= '0' && *h->at <= '9') {
        if (v > UINT64_MAX / 10 - 1) {
            return false;
        }
        v = v * 10 + (uint64_t)(*h->at++ - '0');
    }
    *ret = v;
    return true;
}

/* The highest end of any tensor's data. A walk, not a parse: headers are read whole by the
 * library, this only needs one number from each tensor. */
static bool tensors_end(const char *text, size_t len, uint64_t *ret)
{
    struct header h = {.at = text, .end = text + len};
    *ret = 0;
    while (h.at < h.end) {
        char c = *h.at;
        if (c != '"') {
            h.depth += c == '{' || c == '[' ? 1 : 0;
            if ((c == '}' || c == ']') && h.depth-- == 0) {
                return false;
            }
            h.at++;
            continue;
        }
        const char *key = NULL;
        size_t n = 0;
        if (!header_string(&h, &key, &n)) {
            return false;
        }
        const char *value = h.at;
        while (value < h.end && (is_blank(*value) || *value == ':')) {
            value++;
        }
        bool offsets = h.depth == 2 && n == 12 && memcmp(key, "data_offsets", 12) == 0 &&
                       value < h.end && *value == '[';
        uint64_t begin = 0;
        uint64_t end = 0;
        if (!offsets) {
            continue;
        }
        h.depth++; /* the bracket that header_number passes over */
        if (!header_number(&h, &begin) || !header_number(&h, &end) || end < begin) {
            return false;
        }
        *ret = end > *ret ? end : *ret;
    }
    return h.depth == 0;
}

static void judge_tensors(const struct source *s, struct hf_box_look *ret)
{
    unsigned char head[8];
    if (!read_at(s, 0, head, sizeof(head))) {
        is_short(ret, "safetensors without a header");
        return;
    }
    uint64_t n = little(head, 8);
    if (n < 2 || n > TENSORS_HEADER || n > s->size - 8) {
        is_short(ret, "safetensors whose header is cut");
        return;
    }
    HF_CLEANUP(hf_freep) char *text = hf_calloc((size_t)n, 1);
    uint64_t end = 0;
    if (!read_at(s, 8, text, (size_t)n) || text[0] != '{' || !tensors_end(text, (size_t)n, &end)) {
        is_short(ret, "safetensors whose header is damaged");
        return;
    }
    if (end != s->size - 8 - n) {
        is_short(ret, "safetensors with %llu bytes of data, and not %llu",
                 (unsigned long long)(s->size - 8 - n), (unsigned long long)end);
        return;
    }
    ret->state = HF_BOX_WHOLE;
}

/* ---- HDF5 ---- */

/* Closing a file cuts it to the end that the superblock names, and takes back its mark of being
 * open. Only a writer that died before leaves one that is longer. */
static void judge_hdf5(const struct source *s, struct hf_box_look *ret)
{
    unsigned char head[64] = {0};
    size_t len = s->size < sizeof(head) ? (size_t)s->size : sizeof(head);
    unsigned version = read_at(s, 0, head, len) ? head[8] : 0;
    size_t at = version == 0 ? 40 : version == 1 ? 44 : 28;
    unsigned width = version <= 1 ? head[13] : head[9];
    if (len < at + 8) {
        is_short(ret, "HDF5 whose superblock is cut");
        return;
    }
    if (version > 3 || width != 8) {
        ret->state = HF_BOX_UNKNOWN;
        return;
    }
    uint64_t end = little(head + at, 8);
    if (end > s->size) {
        is_short(ret, "HDF5 of %llu bytes, and not %llu", (unsigned long long)s->size,
                 (unsigned long long)end);
    } else if (end < s->size || (version == 3 && (head[11] & 5) != 0)) {
        is_short(ret, "HDF5 that its writer has not closed");
    } else {
        ret->state = HF_BOX_WHOLE;
    }
}

/* ---- what only its last bytes or its first ones tell ---- */

static void judge_pickle(const struct source *s, struct hf_box_look *ret)
{
    /* The number that torch.save began with until 1.6: behind its pickles raw numbers follow. */
    static const unsigned char torch[15] = {0x80, 2,    0x8a, 10,   0x6c, 0xfc, 0x9c, 0x46,
                                            0xf9, 0x20, 0x6a, 0xa8, 0x50, 0x19, '.'};
    unsigned char head[sizeof(torch)] = {0};
    char last = 0;
    /* A full stop may stand anywhere in the data: no proof of being whole, ever. */
    ret->state = HF_BOX_UNKNOWN;
    if (read_at(s, 0, head, sizeof(head)) && memcmp(head, torch, sizeof(torch)) == 0) {
        return;
    }
    if (!read_at(s, s->size - 1, &last, 1) || last != '.') {
        is_short(ret, "a pickle without its end");
    }
}

static void judge_manifest(const struct source *s, struct hf_box_look *ret)
{
    unsigned char head[12] = {0};
    if (!read_at(s, 0, head, sizeof(head)) || little(head + 4, 8) != s->size) {
        is_short(ret, "an OCDBT manifest that is not as long as it says");
        return;
    }
    ret->state = HF_BOX_WHOLE;
}

static void judge_table(const struct source *s, struct hf_box_look *ret)
{
    static const unsigned char magic[8] = {0x57, 0xfb, 0x80, 0x8b, 0x24, 0x75, 0x47, 0xdb};
    unsigned char end[TABLE_FOOTER] = {0};
    bool read = s->size >= sizeof(end) && read_at(s, s->size - sizeof(end), end, sizeof(end));
    if (read && memcmp(end + sizeof(end) - sizeof(magic), magic, sizeof(magic)) == 0) {
        ret->box = HF_BOX_TABLE;
        ret->state = HF_BOX_WHOLE;
    }
}

/* ---- JSON ---- */

/* Brackets and strings alone: a text that is cut leaves some of them open. A parser would refuse
 * the NaN that Python writes, and several values in a row, and it would need the whole text. */
struct json_walk {
    uint64_t depth;
    bool in_string, escaped, any, damaged;
};

static void walk_json(struct json_walk *w, unsigned char c)
{
    if (c < 0x20 && (w->in_string || !is_blank((char)c))) {
        w->damaged = true;
    } else if (w->in_string) {
        w->in_string = c != '"' || w->escaped;
        w->escaped = c == '\\' && !w->escaped;
    } else if (c == '"') {
        w->in_string = true;
    } else if (c == '{' || c == '[') {
        w->depth++;
    } else if (c == '}' || c == ']') {
        w->damaged = w->damaged || w->depth == 0;
        w->depth -= w->depth > 0 ? 1 : 0;
    }
    w->any = w->any || !is_blank((char)c);
}

static void judge_json(const struct source *s, struct hf_box_look *ret)
{
    struct json_walk w = {0};
    char text[4096];
    for (uint64_t off = 0; off < s->size && !w.damaged; off += sizeof(text)) {
        size_t len = s->size - off < sizeof(text) ? (size_t)(s->size - off) : sizeof(text);
        w.damaged = !read_at(s, off, text, len);
        for (size_t i = 0; i < len && !w.damaged; i++) {
            walk_json(&w, (unsigned char)text[i]);
        }
    }
    if (w.damaged || !w.any || w.in_string || w.depth != 0) {
        is_short(ret, "JSON that is cut or damaged");
        return;
    }
    ret->state = HF_BOX_WHOLE;
}

/* ---- which ---- */

static bool ends_with(const char *name, const char *end)
{
    size_t n = strlen(name);
    size_t m = strlen(end);
    return n >= m && strcmp(name + n - m, end) == 0;
}

static bool ends_in(const char *name, const char *const *ends, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (ends_with(name, ends[i])) {
            return true;
        }
    }
    return false;
}

/* Files of these names are never empty; a ".distcp" is, of a rank that had nothing to save. */
static bool is_data_name(const char *name)
{
    static const char *const ends[] = {".pt",    ".pth",      ".bin",    ".ckpt", ".safetensors",
                                       ".h5",    ".hdf5",     ".keras",  ".npz",  ".npy",
                                       ".tar",   ".pkl",      ".pickle", ".json", ".pdparams",
                                       ".pdopt", ".metadata", ".index",  ".ocdbt"};
    return ends_in(name, ends, HF_COUNT(ends));
}

static bool is_json_name(const char *name)
{
    /* Orbax gives its JSON no ending. */
    return ends_with(name, ".json") || strcmp(name, "_CHECKPOINT_METADATA") == 0 ||
           strcmp(name, "_METADATA") == 0 || strcmp(name, "_sharding") == 0;
}

/* A file whose name says what it must begin with, and which does not: where a machine died, blocks
 * that never reached the disk read as zeros. */
static void judge_head(const unsigned char *head, const char *name, struct hf_box_look *ret)
{
    static const char *const zip[] = {".npz", ".keras"};
    static const char *const hdf5[] = {".h5", ".hdf5"};
    static const char *const not_zero[] = {".pt",     ".pth",    ".ckpt",     ".pkl",
                                           ".pickle", ".nemo",   ".pdparams", ".pdopt",
                                           ".tar",    ".distcp", ".ocdbt",    ".metadata"};
    static const unsigned char zeros[HEAD_BYTES] = {0};
    if (ends_in(name, zip, HF_COUNT(zip))) {
        is_short(ret, "by its name a zip, but it does not begin as one");
    } else if (ends_in(name, hdf5, HF_COUNT(hdf5))) {
        is_short(ret, "by its name HDF5, but it does not begin so");
    } else if (ends_in(name, not_zero, HF_COUNT(not_zero)) &&
               memcmp(head, zeros, sizeof(zeros)) == 0) {
        is_short(ret, "zeros where it should begin");
    }
}

/* Zips in a row, none of them with a comment, as torch.distributed.checkpoint writes them; through
 * an extension (compression) they begin otherwise, and nothing can be said. */
static void judge_distcp(const struct source *s, const unsigned char *head, struct hf_box_look *ret)
{
    unsigned char end[ZIP_END_BYTES] = {0};
    if (memcmp(head, "PK\3\4", 4) != 0) {
        judge_head(head, ".distcp", ret);
        return;
    }
    ret->box = HF_BOX_ZIP;
    if (s->size < sizeof(end) || !read_at(s, s->size - sizeof(end), end, sizeof(end)) ||
        memcmp(end, "PK\5\6", 4) != 0) {
        is_short(ret, "cut: the last of its zips has no end");
    }
}

/* A file of a data file's name that is shorter than that may be cut within it. */
static bool begins(const struct source *s, const unsigned char *head, const char *name,
                   const char *with, size_t len)
{
    size_t n = s->size < len && is_data_name(name) ? (size_t)s->size : len;
    return memcmp(head, with, n) == 0;
}

static void judge_content(const struct source *s, const unsigned char *head, const char *name,
                          struct hf_box_look *ret)
{
    if (begins(s, head, name, "PK\3\4", 4) || begins(s, head, name, "PK\5\6", 4)) {
        ret->box = HF_BOX_ZIP;
        judge_zip(s, ret);
    } else if (begins(s, head, name, "\x89HDF\r\n\x1a\n", 8)) {
        ret->box = HF_BOX_HDF5;
        judge_hdf5(s, ret);
    } else if (begins(s, head, name, "\x0c\xdb\x3a\x2a", 4)) {
        ret->box = HF_BOX_MANIFEST;
        judge_manifest(s, ret);
    } else if (head[0] == 0x80 && head[1] >= 2 && head[1] <= 5) {
        ret->box = HF_BOX_PICKLE;
        judge_pickle(s, ret);
    } else {
        judge_head(head, name, ret);
    }
}

static void judge(const struct source *s, const char *name, struct hf_box_look *ret)
{
    unsigned char head[HEAD_BYTES] = {0};
    *ret = (struct hf_box_look){.box = HF_BOX_OTHER, .state = HF_BOX_UNKNOWN, .size = s->size};
    if (s->size == 0) {
        if (is_data_name(name) || is_json_name(name)) {
            is_short(ret, "empty");
        }
        return;
    }
    if (!read_at(s, 0, head, s->size < sizeof(head) ? (size_t)s->size : sizeof(head))) {
        is_short(ret, "it cannot be read");
    } else if (ends_with(name, ".safetensors")) {
        ret->box = HF_BOX_SAFETENSORS;
        judge_tensors(s, ret);
    } else if (is_json_name(name)) {
        ret->box = HF_BOX_JSON;
        judge_json(s, ret);
    } else if (ends_with(name, ".index")) {
        judge_table(s, ret);
    } else if (ends_with(name, ".distcp")) {
        judge_distcp(s, head, ret);
    } else {
        judge_content(s, head, name, ret);
    }
}

void hf_box_judge_bytes(const void *data, size_t len, const char *name, struct hf_box_look *ret)
{
    struct source s = {.fd = -1, .data = data, .size = len};
    judge(&s, name, ret);
}

void hf_box_judge(int dirfd, const char *name, struct hf_box_look *ret)
{
    char text[96];
    struct stat st;
    *ret = (struct hf_box_look){.box = HF_BOX_OTHER};
    HF_CLEANUP(hf_closep)
    int fd = openat(dirfd, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY);
    if (fd < 0 || fstat(fd, &st) != 0) {
        is_short(ret, "it cannot be read: %s", strerror_r(errno, text, sizeof(text)));
        return;
    }
    if (!S_ISREG(st.st_mode)) {
        is_short(ret, "not a regular file");
        return;
    }
    struct source s = {.fd = fd, .size = (uint64_t)st.st_size};
    judge(&s, name, ret);
}
