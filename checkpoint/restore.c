/* SPDX-License-Identifier: Apache-2.0
 *
 * A restore: what is there and equal stays, the rest is built beside its place, and only when all
 * of it is built, verified and flushed is anything exchanged. What is in the way is moved aside
 * on the same filesystem, never overwritten. Worker threads.
 */
#include "base/prelude.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fault.h"
#include "base/fsx.h"
#include "base/hash.h"
#include "checkpoint/build.h"
#include "checkpoint/crypt.h"
#include "checkpoint/fileset.h"
#include "checkpoint/lanes.h"
#include "checkpoint/objects.h"
#include "checkpoint/restore.h"

#define NEW_MARK    ".holdfast-new-"
#define ASIDE_MARK  ".holdfast-aside-"
#define ASIDE_TRIES 1000
#define SWAP_TRIES  5

static bool broken(void)
{
    if (hf_fault("file")) {
        errno = EIO;
        return true;
    }
    return false;
}

void hf_restore_report_release(struct hf_restore_report *r)
{
    hf_strv_clear(&r->aside);
    *r = (struct hf_restore_report){.bytes = 0};
}

/* "/a" of "/a/b", "/" of "/a"; owned by the caller. */
static char *folder_of(const char *path)
{
    const char *slash = strrchr(path, '/');
    return hf_strndup(path, slash == path ? 1 : (size_t)(slash - path));
}

/* Removes what an interrupted restore of this root has left beside it. */
static enum hf_rc remove_leftovers(const char *path, struct hf_err *err)
{
    HF_CLEANUP(hf_freep) char *folder = folder_of(path);
    HF_CLEANUP(hf_freep) char *stem = hf_sibling_stem(path);
    HF_CLEANUP(hf_freep) char *mark = hf_asprintf("%s" NEW_MARK, strrchr(stem, '/') + 1);
    DIR *d = broken() ? NULL : opendir(folder);
    if (d == NULL) {
        return hf_fail_errno(err, errno, "open folder '%s'", folder);
    }
    enum hf_rc rc = HF_OK;
    for (const struct dirent *e = readdir(d); e != NULL && rc == HF_OK; e = readdir(d)) {
        if (strncmp(e->d_name, mark, strlen(mark)) == 0) {
            HF_CLEANUP(hf_freep) char *old = hf_asprintf("%s/%s", folder, e->d_name);
            rc = hf_remove_all(old, err);
        }
    }
    closedir(d);
    return rc;
}

/* The comparison of what lies at a root with what the manifest says. */
struct compare {
    const struct hf_run *run;
    const struct hf_manifest *m;
    const char *root;
    uint32_t first, end; /* the root's files */
    struct piece {
        uint32_t file, extent;
    } * pieces;
    size_t n_pieces;
    uint64_t bytes, longest;
    atomic_bool differs;
};

static bool entry_fits(const struct hf_entry *e, const struct hf_file *f)
{
    return e->kind == f->kind && strcmp(e->path, f->path) == 0 && e->size == f->size &&
           strcmp(e->target != NULL ? e->target : "", f->target != NULL ? f->target : "") == 0;
}

static bool set_fits(const struct compare *cmp, const struct hf_fileset *set)
{
    if (set->len != cmp->end - cmp->first) {
        return false;
    }
    for (size_t i = 0; i < set->len; i++) {
        if (!entry_fits(&set->items[i], &cmp->m->files[cmp->first + i])) {
            return false;
        }
    }
    return true;
}

/* Reads the extent's bytes; false: they cannot be had. */
static bool read_extent(const char *path, const struct hf_extent *e, void *to)
{
    HF_CLEANUP(hf_closep)
    int fd = broken() ? -1 : open(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    uint64_t done = 0;
    while (fd >= 0 && done < e->len) {
        ssize_t n =
            broken() ? -1 : pread(fd, (char *)to + done, e->len - done, (off_t)(e->off + done));
        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n <= 0) {
            break;
        }
        done += (uint64_t)n;
    }
    return done == e->len;
}

static enum hf_rc compare_piece(void *user, struct hf_lane *lane, size_t index, struct hf_err *err)
{
    (void)err;
    struct compare *cmp = user;
    if (atomic_load_explicit(&cmp->differs, memory_order_relaxed)) {
        return HF_OK;
    }
    const struct hf_file *f = &cmp->m->files[cmp->pieces[index].file];
    const struct hf_extent *e = &f->extents[cmp->pieces[index].extent];
    HF_CLEANUP(hf_freep)
    char *path =
        f->path[0] == '\0' ? hf_strdup(cmp->root) : hf_asprintf("%s/%s", cmp->root, f->path);
    char id[HF_ID_STRLEN] = "";
    struct hf_span data = {.ptr = lane->room.ptr, .len = (size_t)e->len};
    const struct hf_block *b = &cmp->m->blocks[e->block];
    bool had = read_extent(path, e, lane->room.ptr);
    if (had && hf_block_is_zero(b)) {
        if (!hf_all_zero(data)) {
            atomic_store(&cmp->differs, true);
        }
        return HF_OK;
    }
    if (had) {
        hf_block_id(cmp->run->crypt, data, id);
    }
    if (strcmp(id, b->id) != 0) {
        atomic_store(&cmp->differs, true);
    }
    return HF_OK;
}

static void add_pieces(struct compare *cmp)
{
    size_t n = 0;
    for (uint32_t i = cmp->first; i < cmp->end; i++) {
        n += cmp->m->files[i].n_extents;
    }
    cmp->pieces = hf_calloc(n, sizeof(*cmp->pieces));
    for (uint32_t i = cmp->first; i < cmp->end; i++) {
        const struct hf_file *f = &cmp->m->files[i];
        cmp->bytes += f->size;
        for (uint32_t k = 0; k < f->n_extents; k++) {
            cmp->pieces[cmp->n_pieces++] = (struct piece){.file = i, .extent = k};
            cmp->longest = f->extents[k].len > cmp->longest ? f->extents[k].len : cmp->longest;
        }
    }
}

/* Is what lies at the root complete and equal? What cannot be read is not. Modes do not count. */
static enum hf_rc compare_root(const struct hf_call *c, struct compare *cmp, bool *ret_equal,
                               struct hf_err *err)
{
    struct hf_strv roots = {.len = 0};
    hf_strv_add(&roots, cmp->root);
    struct hf_fileset set;
    bool fits = hf_fileset_list(&roots, &set, NULL) == HF_OK;
    hf_strv_clear(&roots);
    if (fits) {
        fits = set_fits(cmp, &set);
        hf_fileset_release(&set);
    }
    *ret_equal = false;
    if (!fits) {
        return HF_OK;
    }
    add_pieces(cmp);
    struct hf_lanes lanes = {.name = "compare",
                             .call = c,
                             .items = cmp->n_pieces,
                             .room_bytes = (size_t)cmp->longest,
                             .item = compare_piece,
                             .user = cmp};
    HF_TRY(hf_lanes_run(&lanes, err));
    *ret_equal = !atomic_load(&cmp->differs);
    return HF_OK;
}

static enum hf_rc look_at_roots(const struct hf_run *run, const struct hf_call *c,
                                const struct hf_manifest *m, struct hf_site *sites,
                                uint64_t *ret_kept, struct hf_err *err)
{
    uint32_t first = 0;
    for (uint32_t r = 0; r < m->n_roots; r++) {
        uint32_t end = first;
        while (end < m->n_files && m->files[end].root == r) {
            end++;
        }
        const char *path = m->roots[r].path;
        HF_CLEANUP(hf_freep) char *folder = folder_of(path);
        HF_TRY(hf_fs_mkdirs(folder, 0777, err));
        HF_TRY(remove_leftovers(path, err));
        struct compare cmp = {.run = run, .m = m, .root = path, .first = first, .end = end};
        enum hf_rc rc = compare_root(c, &cmp, &sites[r].skip, err);
        *ret_kept += rc == HF_OK && sites[r].skip ? cmp.bytes : 0;
        hf_free(cmp.pieces);
        HF_TRY(rc);
        first = end;
    }
    return HF_OK;
}

/* rename(2) that never replaces; an errno number, 0: done. */
static int rename_new(const char *from, const char *to)
{
    if (!broken() && renameat2(AT_FDCWD, from, AT_FDCWD, to, RENAME_NOREPLACE) == 0) {
        return 0;
    }
    if (errno != EINVAL && errno != ENOSYS && errno != EOPNOTSUPP) {
        return errno;
    }
    /* A filesystem without that flag (NFS): look first. Nobody else writes here at this moment. */
    if (hf_fs_exists(to)) {
        return EEXIST;
    }
    return !broken() && rename(from, to) == 0 ? 0 : errno;
}

static enum hf_rc move_aside(const char *path, struct hf_strv *aside, struct hf_err *err)
{
    char utc[HF_UTC_STRLEN];
    hf_utc_format(hf_wall_ms(), utc);
    char stamp[HF_UTC_STRLEN];
    size_t n = 0;
    for (const char *p = utc; *p != '\0' && *p != '.'; p++) {
        if (*p != '-' && *p != ':' && *p != 'Z') {
            stamp[n++] = *p;
        }
    }
    stamp[n] = '\0';
    HF_CLEANUP(hf_freep) char *stem = hf_sibling_stem(path);
    for (int i = 1; i <= ASIDE_TRIES; i++) {
        char again[16] = "";
        if (i > 1) {
            snprintf(again, sizeof(again), "-%d", i);
        }
        char *to = hf_asprintf("%s" ASIDE_MARK "%sZ%s", stem, stamp, again);
        int num = rename_new(path, to);
        if (num == 0) {
            hf_strv_take(aside, to);
            return HF_OK;
        }
        hf_free(to);
        if (num != EEXIST) {
            return hf_fail_errno(err, num, "move '%s' aside", path);
        }
    }
    return hf_fail(err, HF_EFULL, "move '%s' aside: too many are there already", path);
}

static enum hf_rc exchange(const char *path, const char *sibling, struct hf_strv *aside,
                           struct hf_err *err)
{
    for (int i = 0; i < SWAP_TRIES; i++) {
        int num = rename_new(sibling, path);
        if (num == 0) {
            HF_CLEANUP(hf_freep) char *folder = folder_of(path);
            return hf_fs_sync_dir(folder, err);
        }
        if (num != EEXIST && num != ENOTEMPTY) {
            return hf_fail_errno(err, num, "put '%s' in its place", path);
        }
        HF_TRY(move_aside(path, aside, err));
    }
    return hf_fail(err, HF_EAGAIN, "another writes to '%s'", path);
}

static enum hf_rc restore(const struct hf_run *run, const struct hf_call *c,
                          const struct hf_manifest *m, struct hf_site *sites,
                          struct hf_restore_report *report, struct hf_err *err)
{
    HF_TRY(look_at_roots(run, c, m, sites, &report->bytes_kept, err));
    HF_TRY(hf_build(run, c, m, sites, &report->bytes, err));
    /* The last look at the cancel flag: from here on it is a few renames. */
    HF_TRY(hf_call_check(c, err));
    for (uint32_t r = 0; r < m->n_roots; r++) {
        if (!sites[r].skip) {
            HF_TRY(exchange(m->roots[r].path, sites[r].sibling, &report->aside, err));
        }
    }
    return HF_OK;
}

enum hf_rc hf_restore(const struct hf_run *run, const struct hf_call *c,
                      const struct hf_manifest *m, struct hf_restore_report *ret,
                      struct hf_err *err)
{
    struct hf_site *sites = hf_calloc(m->n_roots, sizeof(struct hf_site));
    for (uint32_t r = 0; r < m->n_roots; r++) {
        sites[r].dir = -1;
    }
    struct hf_restore_report report = {.bytes = 0};
    enum hf_rc rc = restore(run, c, m, sites, &report, err);
    for (uint32_t r = 0; r < m->n_roots; r++) {
        hf_closep(&sites[r].dir);
        /* What cannot be removed now is removed by the next restore. */
        bool gone = rc == HF_OK || sites[r].sibling == NULL ||
                    hf_remove_all(sites[r].sibling, NULL) == HF_OK;
        (void)gone;
        hf_free(sites[r].sibling);
        hf_free(sites[r].name);
    }
    hf_free(sites);
    if (rc != HF_OK) {
        rc = hf_wrap(err, rc, "restoring checkpoint %u of attempt %u", m->number, m->attempt);
        if (report.aside.len > 0) {
            rc = hf_hint(err, rc, "What was there before is now '%s'.", report.aside.items[0]);
        }
        hf_restore_report_release(&report);
        return rc;
    }
    *ret = report;
    return HF_OK;
}

struct verifying {
    const struct hf_run *run;
    const struct hf_call *call;
    const struct hf_manifest *m;
    atomic_uint_fast64_t bytes;
};

static enum hf_rc verify_block(void *user, struct hf_lane *lane, size_t index, struct hf_err *err)
{
    struct verifying *v = user;
    const struct hf_block *b = &v->m->blocks[index];
    if (hf_block_is_zero(b)) {
        HF_TRY(hf_block_check_zero(v->run, b, err));
    } else {
        HF_TRY(hf_block_fetch(v->run, v->call, b, &lane->buf, err));
    }
    atomic_fetch_add(&v->bytes, b->len);
    return HF_OK;
}

enum hf_rc hf_verify(const struct hf_run *run, const struct hf_call *c, const struct hf_manifest *m,
                     uint64_t *ret_bytes, struct hf_err *err)
{
    struct verifying v = {.run = run, .call = c, .m = m};
    uint64_t longest = 0;
    for (uint32_t i = 0; i < m->n_blocks; i++) {
        bool zero = hf_block_is_zero(&m->blocks[i]);
        longest = !zero && m->blocks[i].len > longest ? m->blocks[i].len : longest;
    }
    struct hf_lanes lanes = {.name = "verify",
                             .call = c,
                             .items = m->n_blocks,
                             .buf_bytes = (size_t)hf_stored_len(run->crypt, longest),
                             .item = verify_block,
                             .user = &v};
    HF_TRY(hf_lanes_run(&lanes, err));
    *ret_bytes = atomic_load(&v.bytes);
    return HF_OK;
}
