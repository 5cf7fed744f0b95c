/* SPDX-License-Identifier: Apache-2.0
 *
 * Builds files from blocks in new siblings of their roots. A block is fetched once, checked, and
 * written to every place that it belongs to. All paths are walked part by part from an open
 * folder, following no link. Worker threads; lanes of its own; nothing outside the siblings is
 * touched.
 */
#include "base/prelude.h"

#include <errno.h>
#include <fcntl.h>
#include <fts.h>
#include <limits.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fault.h"
#include "base/hash.h"
#include "checkpoint/build.h"
#include "checkpoint/crypt.h"
#include "checkpoint/lanes.h"
#include "checkpoint/objects.h"

#define MODE_MASK  01777 /* never set-user-id or set-group-id from a store */
#define MARK_BYTES 40    /* ".holdfast-aside-" with a time and a number */
#define STEM_BYTES 150   /* of a name that is too long for a mark behind it */

/* A place where a block belongs. */
struct use {
    uint32_t file;
    uint32_t extent;
};

struct building {
    const struct hf_run *run;
    const struct hf_call *call;
    const struct hf_manifest *m;
    struct hf_site *sites;
    struct use *uses; /* sorted by block */
    size_t *first;    /* of each block: index of its first use; n_blocks + 1 of them */
    uint32_t *wanted; /* blocks with a use */
    size_t n_wanted;
    uint64_t longest;
    atomic_uint_fast64_t bytes;
};

static bool broken(void)
{
    if (hf_fault("file")) {
        errno = EIO;
        return true;
    }
    return false;
}

enum hf_rc hf_remove_all(const char *path, struct hf_err *err)
{
    HF_CLEANUP(hf_freep) char *copy = hf_strdup(path);
    char *paths[] = {copy, NULL};
    FTS *walk = fts_open(paths, FTS_PHYSICAL | FTS_NOCHDIR, NULL);
    if (walk == NULL) {
        return hf_fail_errno(err, errno, "remove '%s'", path);
    }
    int failed = 0;
    for (const FTSENT *e = fts_read(walk); e != NULL; e = fts_read(walk)) {
        int rc = 0;
        if (e->fts_info == FTS_D) {
            rc = chmod(e->fts_accpath, 0700); /* a folder may be closed to its owner */
        } else if (e->fts_info == FTS_DP) {
            rc = broken() ? -1 : rmdir(e->fts_accpath);
        } else if (e->fts_info != FTS_NS) {
            rc = broken() ? -1 : unlink(e->fts_accpath);
        }
        if (rc != 0 && errno != ENOENT && failed == 0) {
            failed = errno;
        }
    }
    fts_close(walk);
    return failed == 0 ? HF_OK : hf_fail_errno(err, failed, "remove '%s'", path);
}

int hf_open_parent(int dir, const char *path, const char **ret_name)
{
    int at = fcntl(dir, F_DUPFD_CLOEXEC, 0);
    const char *part = path;
    for (const char *slash = strchr(part, '/'); slash != NULL && at >= 0;
         slash = strchr(part, '/')) {
        HF_CLEANUP(hf_freep) char *name = hf_strndup(part, (size_t)(slash - part));
        int next = broken() ? -1 : openat(at, name, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        hf_closep(&at);
        at = next;
        part = slash + 1;
    }
    *ret_name = part;
    return at;
}

/* The folder and the name of a file within its site. */
static int open_place(const struct building *b, const struct hf_file *f, const char **ret_name)
{
    const struct hf_site *site = &b->sites[f->root];
    if (site->name != NULL) {
        *ret_name = site->name;
        return fcntl(site->dir, F_DUPFD_CLOEXEC, 0);
    }
    return hf_open_parent(site->dir, f->path, ret_name);
}

static enum hf_rc failed_at(const struct building *b, const struct hf_file *f, const char *what,
                            struct hf_err *err)
{
    return hf_fail_errno(err, errno, "%s '%s' in '%s'", what, f->path, b->sites[f->root].sibling);
}

static int open_file(const struct building *b, const struct hf_file *f, int flags)
{
    const char *name = NULL;
    HF_CLEANUP(hf_closep) int dir = open_place(b, f, &name);
    if (dir < 0 || broken()) {
        return -1;
    }
    return openat(dir, name, flags | O_NOFOLLOW | O_CLOEXEC, 0600);
}

/* Room is asked for now: a full disk is known before anything is fetched. Zeros stay holes. */
static enum hf_rc make_room(const struct building *b, int fd, const struct hf_file *f,
                            struct hf_err *err)
{
    uint64_t from = 0;
    for (uint32_t i = 0; i <= f->n_extents; i++) {
        const struct hf_extent *e = i < f->n_extents ? &f->extents[i] : NULL;
        if (e != NULL && !hf_block_is_zero(&b->m->blocks[e->block])) {
            continue;
        }
        uint64_t end = e != NULL ? e->off : f->size;
        if (end > from && (broken() || fallocate(fd, 0, (off_t)from, (off_t)(end - from)) != 0) &&
            errno != EOPNOTSUPP && errno != ENOSYS && errno != EINVAL) {
            return failed_at(b, f, "make room for", err);
        }
        from = e != NULL ? e->off + e->len : end;
    }
    return HF_OK;
}

static enum hf_rc make_file(const struct building *b, const struct hf_file *f, struct hf_err *err)
{
    HF_CLEANUP(hf_closep) int fd = open_file(b, f, O_WRONLY | O_CREAT | O_EXCL);
    if (fd < 0 || broken() || ftruncate(fd, (off_t)f->size) != 0) {
        return failed_at(b, f, "create", err);
    }
    return make_room(b, fd, f, err);
}

static enum hf_rc make_entry(const struct building *b, const struct hf_file *f, struct hf_err *err)
{
    if (f->kind == HF_FILE_REGULAR) {
        return make_file(b, f, err);
    }
    const char *name = NULL;
    HF_CLEANUP(hf_closep) int dir = open_place(b, f, &name);
    if (dir < 0 || broken()) {
        return failed_at(b, f, "create", err);
    }
    int rc = f->kind == HF_FILE_DIR ? mkdirat(dir, name, 0700) : symlinkat(f->target, dir, name);
    return rc == 0 ? HF_OK : failed_at(b, f, "create", err);
}

char *hf_sibling_stem(const char *path)
{
    const char *name = strrchr(path, '/') + 1;
    if (strlen(name) <= NAME_MAX - MARK_BYTES) {
        return hf_strdup(path);
    }
    char id[HF_ID_STRLEN];
    hf_sha256_hex((struct hf_span){.ptr = name, .len = strlen(name)}, id);
    return hf_asprintf("%.*s%.*s~%.8s", (int)(name - path), path, STEM_BYTES, name, id);
}

static enum hf_rc make_site(const struct building *b, uint32_t root, struct hf_err *err)
{
    struct hf_site *site = &b->sites[root];
    const char *path = b->m->roots[root].path;
    char rand[9];
    hf_random_hex(4, rand);
    HF_CLEANUP(hf_freep) char *stem = hf_sibling_stem(path);
    site->sibling = hf_asprintf("%s.holdfast-new-%s", stem, rand);
    const char *slash = strrchr(site->sibling, '/');
    HF_CLEANUP(hf_freep) char *open_this = NULL;
    if (b->m->roots[root].kind == HF_FILE_DIR) {
        if (broken() || mkdir(site->sibling, 0700) != 0) {
            return hf_fail_errno(err, errno, "create '%s'", site->sibling);
        }
        open_this = hf_strdup(site->sibling);
    } else {
        site->name = hf_strdup(slash + 1);
        size_t len = slash == site->sibling ? 1 : (size_t)(slash - site->sibling);
        open_this = hf_strndup(site->sibling, len);
    }
    site->dir = broken() ? -1 : open(open_this, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    return site->dir >= 0 ? HF_OK : hf_fail_errno(err, errno, "open folder '%s'", open_this);
}

static enum hf_rc make_all(const struct building *b, struct hf_err *err)
{
    for (uint32_t r = 0; r < b->m->n_roots; r++) {
        if (!b->sites[r].skip) {
            HF_TRY(make_site(b, r, err));
        }
    }
    for (uint32_t i = 0; i < b->m->n_files; i++) {
        const struct hf_file *f = &b->m->files[i];
        bool itself = f->path[0] == '\0' && f->kind == HF_FILE_DIR; /* made with the site */
        if (!b->sites[f->root].skip && !itself) {
            HF_TRY(hf_call_check(b->call, err));
            HF_TRY(make_entry(b, f, err));
        }
    }
    return HF_OK;
}

static bool is_built(const struct building *b, const struct hf_file *f)
{
    return f->kind == HF_FILE_REGULAR && !b->sites[f->root].skip;
}

/* Turns the files' extents round: for each block, where it belongs. A counting sort. */
static void index_uses(struct building *b)
{
    const struct hf_manifest *m = b->m;
    b->first = hf_calloc((size_t)m->n_blocks + 2, sizeof(size_t));
    size_t *count = b->first + 1;
    size_t n = 0;
    for (uint32_t i = 0; i < m->n_files; i++) {
        for (uint32_t k = 0; is_built(b, &m->files[i]) && k < m->files[i].n_extents; k++) {
            count[m->files[i].extents[k].block + 1]++;
            n++;
        }
    }
    for (uint32_t i = 1; i <= m->n_blocks; i++) {
        count[i] += count[i - 1];
    }
    b->uses = hf_calloc(n, sizeof(struct use));
    for (uint32_t i = 0; i < m->n_files; i++) {
        for (uint32_t k = 0; is_built(b, &m->files[i]) && k < m->files[i].n_extents; k++) {
            b->uses[count[m->files[i].extents[k].block]++] = (struct use){.file = i, .extent = k};
        }
    }
    b->wanted = hf_calloc(m->n_blocks, sizeof(uint32_t));
    for (uint32_t i = 0; i < m->n_blocks; i++) {
        if (b->first[i + 1] > b->first[i]) {
            b->wanted[b->n_wanted++] = i;
            bool zero = hf_block_is_zero(&m->blocks[i]);
            b->longest = !zero && m->blocks[i].len > b->longest ? m->blocks[i].len : b->longest;
        }
    }
}

static enum hf_rc write_use(struct building *b, const struct use *use, struct hf_span data,
                            struct hf_err *err)
{
    const struct hf_file *f = &b->m->files[use->file];
    const struct hf_extent *e = &f->extents[use->extent];
    HF_CLEANUP(hf_closep) int fd = open_file(b, f, O_WRONLY);
    if (fd < 0) {
        return failed_at(b, f, "open", err);
    }
    const char *from = (const char *)data.ptr + e->block_off;
    uint64_t done = 0;
    while (done < e->len) {
        ssize_t n = broken() ? -1 : pwrite(fd, from + done, e->len - done, (off_t)(e->off + done));
        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n < 0) {
            return failed_at(b, f, "write", err);
        }
        done += (uint64_t)n;
    }
    atomic_fetch_add(&b->bytes, e->len);
    return HF_OK;
}

static enum hf_rc do_block(void *user, struct hf_lane *lane, size_t index, struct hf_err *err)
{
    struct building *b = user;
    uint32_t block = b->wanted[index];
    if (hf_block_is_zero(&b->m->blocks[block])) {
        return hf_block_check_zero(b->run, &b->m->blocks[block],
                                   err); /* the new file is zeros there */
    }
    enum hf_rc rc = hf_block_fetch(b->run, b->call, &b->m->blocks[block], &lane->buf, err);
    if (rc != HF_OK) {
        return hf_wrap(err, rc, "'%s'", b->m->files[b->uses[b->first[block]].file].path);
    }
    for (size_t u = b->first[block]; u < b->first[block + 1]; u++) {
        HF_TRY(write_use(b, &b->uses[u], hf_buf_span(&lane->buf), err));
    }
    return HF_OK;
}

static enum hf_rc fetch_all(struct building *b, struct hf_err *err)
{
    index_uses(b);
    struct hf_lanes lanes = {.name = "restore",
                             .call = b->call,
                             .items = b->n_wanted,
                             .buf_bytes = (size_t)hf_stored_len(b->run->crypt, b->longest),
                             .item = do_block,
                             .user = b};
    return hf_lanes_run(&lanes, err);
}

/* A file gets its mode and lies on the disk; folders wait, since a mode may close them. */
static enum hf_rc finish_file(void *user, struct hf_lane *lane, size_t index, struct hf_err *err)
{
    (void)lane;
    const struct building *b = user;
    const struct hf_file *f = &b->m->files[index];
    if (!is_built(b, f)) {
        return HF_OK;
    }
    HF_CLEANUP(hf_closep) int fd = open_file(b, f, O_WRONLY);
    if (fd < 0 || broken() || fchmod(fd, f->mode & MODE_MASK) != 0 || broken() || fsync(fd) != 0) {
        return failed_at(b, f, "flush", err);
    }
    return HF_OK;
}

static enum hf_rc finish_folder(const struct building *b, const struct hf_file *f,
                                struct hf_err *err)
{
    const struct hf_site *site = &b->sites[f->root];
    HF_CLEANUP(hf_closep) int fd = -1;
    if (f->path[0] == '\0') {
        fd = fcntl(site->dir, F_DUPFD_CLOEXEC, 0);
    } else {
        fd = open_file(b, f, O_RDONLY | O_DIRECTORY);
    }
    if (fd < 0 || broken() || fchmod(fd, f->mode & MODE_MASK) != 0 || broken() || fsync(fd) != 0) {
        return failed_at(b, f, "flush folder", err);
    }
    return HF_OK;
}

static enum hf_rc finish_all(struct building *b, struct hf_err *err)
{
    struct hf_lanes lanes = {
        .name = "flush", .call = b->call, .items = b->m->n_files, .item = finish_file, .user = b};
    HF_TRY(hf_lanes_run(&lanes, err));
    for (uint32_t i = b->m->n_files; i-- > 0;) { /* what is inside first */
        const struct hf_file *f = &b->m->files[i];
        if (f->kind == HF_FILE_DIR && !b->sites[f->root].skip) {
            HF_TRY(finish_folder(b, f, err));
        }
    }
    return HF_OK;
}

enum hf_rc hf_build(const struct hf_run *run, const struct hf_call *c, const struct hf_manifest *m,
                    struct hf_site *sites, uint64_t *ret_bytes, struct hf_err *err)
{
    struct building b = {.run = run, .call = c, .m = m, .sites = sites};
    enum hf_rc rc = make_all(&b, err);
    if (rc == HF_OK) {
        rc = fetch_all(&b, err);
    }
    if (rc == HF_OK) {
        rc = finish_all(&b, err);
    }
    hf_free(b.uses);
    hf_free(b.first);
    hf_free(b.wanted);
    *ret_bytes = atomic_load(&b.bytes);
    return rc;
}
