/* SPDX-License-Identifier: Apache-2.0
 *
 * Reads files into blocks. A file is judged by size, time of change and inode before and after: one
 * that changed is read once more, and if it changes again the whole save fails, since a mix must
 * never be committed. Worker threads; lanes of its own.
 */
#include "base/prelude.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fault.h"
#include "base/hash.h"
#include "checkpoint/crypt.h"
#include "checkpoint/lanes.h"
#include "checkpoint/objects.h"
#include "checkpoint/snapshot.h"

/* One block to be read. */
struct piece {
    size_t entry;
    size_t index; /* within its file */
};

struct reading {
    const struct hf_snapshot_in *in;
    struct hf_snapshot *snap;
    atomic_bool *torn; /* of each entry: was not what the listing says */
    struct piece *pieces;
    size_t n_pieces;
    uint64_t longest;
    atomic_uint_fast64_t sent;
    pthread_mutex_t zero_lock;
    char zero_id[HF_ID_STRLEN]; /* of a whole block of zeros; "" until it was wanted */
};

static bool broken(void)
{
    if (hf_fault("file")) {
        errno = EIO;
        return true;
    }
    return false;
}

static const struct hf_strv *read_from(const struct hf_save_in *save)
{
    return save->sources.len > 0 ? &save->sources : &save->roots;
}

uint64_t hf_piece_count(uint64_t size, uint64_t block_bytes)
{
    return size / block_bytes + (size % block_bytes != 0 ? 1 : 0);
}

void hf_snapshot_release(struct hf_snapshot *s)
{
    hf_fileset_release(&s->set);
    hf_free(s->first);
    hf_free(s->ids);
    *s = (struct hf_snapshot){.n_ids = 0};
}

static bool is_as_listed(int fd, const struct hf_entry *e)
{
    struct stat st;
    return fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && (uint64_t)st.st_size == e->size &&
           st.st_ino == e->inode &&
           (int64_t)st.st_mtim.tv_sec * 1000000000 + st.st_mtim.tv_nsec == e->mtime_ns;
}

/* No data from there on for len bytes: a hole of the file, if its filesystem tells. */
static bool is_hole(int fd, uint64_t off, uint64_t len)
{
    off_t data = lseek(fd, (off_t)off, SEEK_DATA);
    return data < 0 ? errno == ENXIO : (uint64_t)data - off >= len;
}

/* What a reading found. */
struct found {
    bool torn; /* the file is not what was listed */
    bool hole; /* nothing but zeros, by the filesystem's word; the room is untouched */
};

/* Fills the room from the file. */
static enum hf_rc read_piece(const char *path, const struct hf_entry *e, uint64_t off,
                             struct hf_mspan room, struct found *ret, struct hf_err *err)
{
    HF_CLEANUP(hf_closep)
    int fd = broken() ? -1 : open(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0 && errno != ENOENT && errno != ELOOP && errno != ENOTDIR) {
        return hf_fail_errno(err, errno, "open '%s'", path);
    }
    ret->torn = fd < 0 || !is_as_listed(fd, e);
    ret->hole = !ret->torn && is_hole(fd, off, room.len);
    char *to = room.ptr;
    size_t left = ret->torn || ret->hole ? 0 : room.len;
    while (left > 0) {
        ssize_t n = broken() ? -1 : pread(fd, to, left, (off_t)off);
        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n < 0) {
            return hf_fail_errno(err, errno, "read '%s'", path);
        }
        if (n == 0) {
            ret->torn = true;
            break;
        }
        to += n;
        left -= (size_t)n;
        off += (uint64_t)n;
    }
    return HF_OK;
}

/* Puts the bytes at the beginning of the lane's room, which are sealed there first where the run
 * is encrypted. */
static enum hf_rc send_piece(struct reading *r, const char *id, struct hf_lane *lane, size_t len,
                             struct hf_err *err)
{
    const struct hf_snapshot_in *in = r->in;
    struct hf_block b = {.len = len, .codec = "raw"};
    memcpy(b.id, id, sizeof(b.id));
    memcpy(b.where, in->where, strlen(in->where) + 1);
    if (!hf_blocks_claim(in->blocks, &b)) {
        return HF_OK;
    }
    char key[HF_KEY_MAX];
    const struct hf_run *run = in->save->run;
    struct hf_span data = {.ptr = lane->room.ptr, .len = len};
    if (run->crypt != NULL) {
        data.len = hf_crypt_seal_block(run->crypt, b.id, b.codec, lane->room, len);
    }
    HF_TRY(hf_obj_put(run, in->call, hf_key_block(key, run->name, &b), data, HF_PUT_REPLACE, err));
    atomic_fetch_add(&r->sent, len);
    return HF_OK;
}

/* The id of so many zeros; that of a whole block is worked out once. */
static void zero_id(struct reading *r, uint64_t len, char id[HF_ID_STRLEN])
{
    const struct hf_crypt *crypt = r->in->save->run->crypt;
    if (len != r->in->block_bytes) {
        hf_block_id_zeros(crypt, len, id);
        return;
    }
    pthread_mutex_lock(&r->zero_lock);
    if (r->zero_id[0] == '\0') {
        hf_block_id_zeros(crypt, len, r->zero_id);
    }
    memcpy(id, r->zero_id, HF_ID_STRLEN);
    pthread_mutex_unlock(&r->zero_lock);
}

/* A block of zeros is named, and not sent. */
static void name_zeros(struct reading *r, uint64_t len, char *id)
{
    struct hf_block b = {.len = len, .codec = "zero"};
    zero_id(r, len, id);
    memcpy(b.id, id, sizeof(b.id));
    memcpy(b.where, r->in->where, strlen(r->in->where) + 1);
    bool news = hf_blocks_claim(r->in->blocks, &b);
    (void)news;
}

static enum hf_rc do_piece(void *user, struct hf_lane *lane, size_t index, struct hf_err *err)
{
    struct reading *r = user;
    const struct piece *p = &r->pieces[index];
    const struct hf_entry *e = &r->snap->set.items[p->entry];
    uint64_t block_bytes = r->in->block_bytes;
    uint64_t off = p->index * block_bytes;
    uint64_t len = e->size - off < block_bytes ? e->size - off : block_bytes;
    if (atomic_load_explicit(&r->torn[p->entry], memory_order_relaxed)) {
        return HF_OK; /* the rest of it would be read in vain */
    }
    HF_CLEANUP(hf_freep) char *path = hf_entry_path(read_from(r->in->save), e);
    struct hf_mspan room = {.ptr = lane->room.ptr, .len = (size_t)len};
    struct found found = {.torn = false};
    HF_TRY(read_piece(path, e, off, room, &found, err));
    if (found.torn) {
        atomic_store(&r->torn[p->entry], true);
        return HF_OK;
    }
    struct hf_span data = {.ptr = room.ptr, .len = room.len};
    char *id = r->snap->ids[r->snap->first[p->entry] + p->index];
    if (found.hole || hf_all_zero(data)) {
        name_zeros(r, len, id);
    } else {
        hf_block_id(r->in->save->run->crypt, data, id);
        HF_TRY(send_piece(r, id, lane, data.len, err));
    }
    if (r->in->save->progress_bytes != NULL) {
        atomic_fetch_add(r->in->save->progress_bytes, len);
    }
    return HF_OK;
}

/* Gives each entry its place among the ids. */
static void lay_out(struct hf_snapshot *s, uint64_t block_bytes)
{
    s->first = hf_calloc(s->set.len, sizeof(size_t));
    s->n_ids = 0;
    for (size_t i = 0; i < s->set.len; i++) {
        s->first[i] = s->n_ids;
        s->n_ids += (size_t)hf_piece_count(s->set.items[i].size, block_bytes);
    }
    s->ids = hf_calloc(s->n_ids, sizeof(*s->ids));
}

static void add_pieces(struct reading *r, size_t entry)
{
    const struct hf_entry *e = &r->snap->set.items[entry];
    size_t n = (size_t)hf_piece_count(e->size, r->in->block_bytes);
    for (size_t i = 0; i < n; i++) {
        r->pieces[r->n_pieces++] = (struct piece){.entry = entry, .index = i};
    }
    if (e->size > r->longest) {
        r->longest = e->size;
    }
}

static enum hf_rc read_pieces(struct reading *r, struct hf_err *err)
{
    uint64_t room = r->longest < r->in->block_bytes ? r->longest : r->in->block_bytes;
    struct hf_lanes lanes = {.name = "save",
                             .call = r->in->call,
                             .items = r->n_pieces,
                             .lanes = r->in->save->lanes,
                             .room_bytes = (size_t)hf_stored_len(r->in->save->run->crypt, room),
                             .item = do_piece,
                             .user = r};
    enum hf_rc rc = hf_lanes_run(&lanes, err);
    r->snap->bytes_sent += atomic_load(&r->sent);
    return rc;
}

static enum hf_rc changed(const struct hf_snapshot_in *in, const struct hf_entry *e,
                          struct hf_err *err)
{
    HF_CLEANUP(hf_freep) char *path = hf_entry_path(&in->save->roots, e);
    return hf_fail(err, HF_EAGAIN, "'%s' changed while read", path);
}

/* Are both listings the same? If not, *ret_first is the first entry that is not. */
static bool sets_equal(const struct hf_fileset *a, const struct hf_fileset *b,
                       const struct hf_entry **ret_first)
{
    for (size_t i = 0; i < a->len || i < b->len; i++) {
        if (i >= a->len || i >= b->len) {
            *ret_first = i >= a->len ? &b->items[i] : &a->items[i];
            return false;
        }
        int order = hf_entry_order(&a->items[i], &b->items[i]);
        if (order != 0 || !hf_entry_same(&a->items[i], &b->items[i])) {
            *ret_first = order <= 0 ? &a->items[i] : &b->items[i];
            return false;
        }
    }
    return true;
}

static enum hf_rc check_expected(const struct hf_snapshot_in *in, const struct hf_fileset *set,
                                 struct hf_err *err)
{
    if (in->save->expect == NULL) {
        return HF_OK;
    }
    struct hf_stamps now;
    hf_stamps_of(&in->save->roots, set, &now);
    const char *which = "";
    enum hf_rc rc = HF_OK;
    if (!hf_stamps_equal(in->save->expect, &now, &which)) {
        rc = hf_fail(err, HF_EAGAIN, "'%s' changed since it was reported (changed while read)",
                     which);
    }
    hf_stamps_release(&now);
    return rc;
}

static void init_reading(struct reading *r, const struct hf_snapshot_in *in,
                         struct hf_snapshot *snap)
{
    *r = (struct reading){.in = in, .snap = snap};
    pthread_mutex_init(&r->zero_lock, NULL);
    lay_out(snap, in->block_bytes);
    r->torn = hf_calloc(snap->set.len, sizeof(atomic_bool));
    r->pieces = hf_calloc(snap->n_ids, sizeof(struct piece));
}

static void release_reading(struct reading *r)
{
    hf_free(r->torn);
    hf_free(r->pieces);
    pthread_mutex_destroy(&r->zero_lock);
}

/* Carries over what did not change since the first reading; the rest has to be read. */
static void carry_over(const struct reading *old, struct reading *r)
{
    const struct hf_fileset *was = &old->snap->set;
    size_t k = 0;
    for (size_t i = 0; i < r->snap->set.len; i++) {
        const struct hf_entry *e = &r->snap->set.items[i];
        while (k < was->len && hf_entry_order(&was->items[k], e) < 0) {
            k++;
        }
        if (k < was->len && hf_entry_order(&was->items[k], e) == 0 && !old->torn[k] &&
            hf_entry_same(&was->items[k], e)) {
            size_t n = (size_t)hf_piece_count(e->size, r->in->block_bytes);
            memcpy(r->snap->ids[r->snap->first[i]], old->snap->ids[old->snap->first[k]],
                   n * sizeof(*r->snap->ids));
        } else {
            add_pieces(r, i);
        }
    }
    r->snap->bytes_sent = old->snap->bytes_sent;
}

static const struct hf_entry *first_torn(const struct reading *r)
{
    for (size_t i = 0; i < r->snap->set.len; i++) {
        if (r->torn[i]) {
            return &r->snap->set.items[i];
        }
    }
    return NULL;
}

/* Reads what is to be read, then looks whether all is still as listed. *ret_bad: what is not;
 * it points into the snapshot or into *ret_after, the listing made afterwards. */
static enum hf_rc read_and_look(struct reading *r, struct hf_fileset *ret_after,
                                const struct hf_entry **ret_bad, struct hf_err *err)
{
    HF_TRY(read_pieces(r, err));
    HF_TRY(hf_fileset_list(read_from(r->in->save), ret_after, err));
    *ret_bad = first_torn(r);
    if (*ret_bad == NULL) {
        const struct hf_entry *first = NULL;
        *ret_bad = sets_equal(&r->snap->set, ret_after, &first) ? NULL : first;
    }
    return HF_OK;
}

/* The second reading: of `set_taken`, on top of what the first one proved. */
static enum hf_rc take_again(const struct reading *old, struct hf_fileset *set_taken,
                             struct hf_snapshot *ret, struct hf_err *err)
{
    struct hf_snapshot snap = {.set = *set_taken};
    *set_taken = (struct hf_fileset){.len = 0};
    struct reading r;
    init_reading(&r, old->in, &snap);
    carry_over(old, &r);
    struct hf_fileset after = {.len = 0};
    const struct hf_entry *bad = NULL;
    enum hf_rc rc = read_and_look(&r, &after, &bad, err);
    if (rc == HF_OK && bad != NULL) {
        rc = changed(old->in, bad, err);
    }
    hf_fileset_release(&after);
    release_reading(&r);
    if (rc == HF_OK) {
        *ret = snap;
    } else {
        hf_snapshot_release(&snap);
    }
    return rc;
}

/* True: the file was read ahead just as it is now, and its ids are in place. */
static bool carry_early(struct reading *r, size_t i)
{
    const struct hf_entry *e = &r->snap->set.items[i];
    if (r->in->early == NULL || e->kind != HF_FILE_REGULAR) {
        return false;
    }
    HF_CLEANUP(hf_freep) char *path = hf_entry_path(&r->in->save->roots, e);
    const char(*ids)[HF_ID_STRLEN] = hf_early_find(r->in->early, path, e);
    size_t n = (size_t)hf_piece_count(e->size, r->in->block_bytes);
    for (size_t k = 0; ids != NULL && k < n; k++) {
        if (!hf_blocks_knows(r->in->blocks, ids[k])) {
            return false;
        }
    }
    if (ids != NULL) {
        memcpy(r->snap->ids[r->snap->first[i]], ids, n * sizeof(*ids));
    }
    return ids != NULL;
}

static enum hf_rc take(const struct hf_snapshot_in *in, struct hf_snapshot *snap,
                       struct hf_err *err)
{
    struct reading r;
    init_reading(&r, in, snap);
    for (size_t i = 0; i < snap->set.len; i++) {
        if (!carry_early(&r, i)) {
            add_pieces(&r, i);
        }
    }
    struct hf_fileset after = {.len = 0};
    const struct hf_entry *bad = NULL;
    enum hf_rc rc = read_and_look(&r, &after, &bad, err);
    if (rc == HF_OK && bad != NULL && in->save->expect != NULL) {
        rc = changed(in, bad, err); /* what was reported is gone: reading again cannot help */
    } else if (rc == HF_OK && bad != NULL) {
        struct hf_snapshot second = {.n_ids = 0};
        rc = take_again(&r, &after, &second, err);
        if (rc == HF_OK) {
            hf_snapshot_release(snap);
            *snap = second;
        }
    }
    hf_fileset_release(&after);
    release_reading(&r);
    return rc;
}

static enum hf_rc check_some(const struct hf_snapshot_in *in, const struct hf_fileset *set,
                             struct hf_err *err)
{
    for (size_t i = 0; i < set->len; i++) {
        if (set->items[i].kind == HF_FILE_REGULAR) {
            return HF_OK;
        }
    }
    return hf_fail(err, HF_EINVAL, "there is no file in '%s'", in->save->roots.items[0]);
}

enum hf_rc hf_snapshot_take(const struct hf_snapshot_in *in, struct hf_snapshot *ret,
                            struct hf_err *err)
{
    struct hf_snapshot snap = {.n_ids = 0};
    HF_TRY(hf_fileset_list(read_from(in->save), &snap.set, err));
    enum hf_rc rc = check_some(in, &snap.set, err);
    if (rc == HF_OK) { /* before hours of reading */
        rc = hf_fileset_fits(&snap.set, in->block_bytes, err);
    }
    if (rc == HF_OK) {
        rc = check_expected(in, &snap.set, err);
    }
    if (rc == HF_OK) {
        rc = take(in, &snap, err);
    }
    if (rc != HF_OK) {
        hf_snapshot_release(&snap);
        return rc;
    }
    *ret = snap;
    return HF_OK;
}

enum hf_rc hf_snapshot_ahead(const struct hf_snapshot_in *in, int64_t settled_ns,
                             hf_snapshot_file_fn *each, void *user, uint64_t *ret_sent,
                             struct hf_err *err)
{
    struct hf_snapshot snap = {.n_ids = 0};
    HF_TRY(hf_fileset_list(&in->save->roots, &snap.set, err));
    struct reading r;
    init_reading(&r, in, &snap);
    bool *mine = hf_calloc(snap.set.len, sizeof(bool));
    for (size_t i = 0; i < snap.set.len; i++) {
        const struct hf_entry *e = &snap.set.items[i];
        mine[i] = e->size > 0 && e->mtime_ns <= settled_ns && !carry_early(&r, i);
        if (mine[i]) {
            add_pieces(&r, i);
        }
    }
    enum hf_rc rc = read_pieces(&r, err);
    for (size_t i = 0; rc == HF_OK && i < snap.set.len; i++) {
        if (mine[i] && !r.torn[i]) {
            const struct hf_entry *e = &snap.set.items[i];
            each(user, hf_entry_path(&in->save->roots, e), e,
                 (const char(*)[HF_ID_STRLEN])snap.ids[snap.first[i]],
                 (size_t)hf_piece_count(e->size, in->block_bytes));
        }
    }
    *ret_sent += snap.bytes_sent;
    hf_free(mine);
    release_reading(&r);
    hf_snapshot_release(&snap);
    return rc;
}
