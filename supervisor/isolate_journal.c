/* SPDX-License-Identifier: Apache-2.0
 *
 * Isolation without privileges. At the beginning everything in the folders is written down and
 * guarded (isolate_guard.c), and that inventory is on the disk before an attempt starts. Putting
 * right is one idempotent comparison of folder and inventory: what is new moves to a hidden place
 * on the same mount, what is missing or changed comes back. A drill that dies at any moment is
 * undone by the same comparison. Blocking, one thread; overwrites no file that is not in a copy.
 *
 * A hidden place holds: guard/ (copies and second names), tmp (the file being put back), aside/N/
 * (what round N hid), kept/N/ (what recovery N hid: it may be the person's own, so it stays).
 */
#include "base/prelude.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/fault.h"
#include "base/fsx.h"
#include "supervisor/isolate_internal.h"

struct restoring {
    struct hf_isolate *iso;
    const char *into; /* "aside/3" or "kept/1" */
    uint32_t place;
};

static const char *place_of(const struct hf_isolate *iso, const struct hf_iso_entry *e)
{
    return iso->journal.places.items[e->place];
}

/* ---- hiding ---------------------------------------------------------------------------- */

/* A folder can leave its parent only if it may be written itself. */
static enum hf_rc move(const char *from, const char *to, struct hf_err *err)
{
    struct hf_err local;
    enum hf_rc rc = hf_iso_rename(from, to, &local);
    struct stat st;
    if (rc == HF_EDENIED && lstat(from, &st) == 0 && S_ISDIR(st.st_mode) &&
        chmod(from, st.st_mode | S_IRWXU) == 0) {
        return hf_iso_rename(from, to, err);
    }
    return rc == HF_OK ? HF_OK : hf_iso_pass(err, &local);
}

static enum hf_rc hide(struct restoring *r, const char *path, struct hf_err *err)
{
    const char *dir = r->iso->dirs.items[r->place];
    size_t len = strlen(dir);
    const char *rel = hf_iso_inside(path, dir) && path[len] == '/' ? path + len : "/folder";
    const char *place = r->iso->journal.places.items[r->place];
    HF_CLEANUP(hf_freep) char *to = hf_asprintf("%s/%s%s", place, r->into, rel);
    for (unsigned n = 1; hf_fs_exists(to); n++) {
        hf_free(to);
        to = hf_asprintf("%s/%s%s.%u", place, r->into, rel, n);
    }
    HF_CLEANUP(hf_freep) char *parent = hf_iso_parent(to);
    HF_TRY(hf_fs_mkdirs(parent, 0700, err));
    return move(path, to, err);
}

/* ---- putting back ---------------------------------------------------------------------- */

static bool same_time(struct statx_timestamp a, struct statx_timestamp b)
{
    return a.tv_sec == b.tv_sec && a.tv_nsec == b.tv_nsec;
}

static enum hf_rc set_times(const char *path, const struct hf_iso_entry *e, struct hf_err *err)
{
    struct timespec times[2] = {
        {.tv_nsec = UTIME_OMIT},
        {.tv_sec = e->mtime.tv_sec, .tv_nsec = (long)e->mtime.tv_nsec},
    };
    if (utimensat(AT_FDCWD, path, times, AT_SYMLINK_NOFOLLOW) != 0) {
        return hf_fail_errno(err, errno, "set the time of '%s'", path);
    }
    return HF_OK;
}

/* Owner before mode: a change of owner clears set-id bits. Somebody else's owner can be given
 * back by root alone; another user could not have taken it either. */
static enum hf_rc set_attributes(const char *path, const struct hf_iso_entry *e, struct hf_err *err)
{
    struct stat st;
    if (lstat(path, &st) != 0) {
        return hf_fail_errno(err, errno, "look at '%s'", path);
    }
    if ((st.st_uid != e->uid || st.st_gid != e->gid) && lchown(path, e->uid, e->gid) != 0 &&
        errno != EPERM) {
        return hf_fail_errno(err, errno, "set the owner of '%s'", path);
    }
    if (e->kind != HF_ISO_SYMLINK && chmod(path, e->mode) != 0) {
        return hf_fail_errno(err, errno, "set the mode of '%s'", path);
    }
    return set_times(path, e, err);
}

/* Makes in `tmp` what belongs at e->path. */
static enum hf_rc make(const struct hf_isolate *iso, const struct hf_iso_entry *e, const char *tmp,
                       struct hf_err *err)
{
    unlink(tmp);
    if (e->kind == HF_ISO_SYMLINK) {
        return symlink(e->target, tmp) == 0 ? set_attributes(tmp, e, err)
                                            : hf_fail_errno(err, errno, "create link '%s'", tmp);
    }
    HF_CLEANUP(hf_freep) char *guard = hf_iso_guard_path(iso, e);
    if (e->guard == HF_ISO_LINK) {
        return link(guard, tmp) == 0 ? set_attributes(tmp, e, err)
                                     : hf_fail_errno(err, errno, "link '%s'", guard);
    }
    enum hf_iso_copy how = HF_ISO_COPIED;
    HF_TRY(hf_iso_copy(guard, tmp, UINT64_MAX, &how, err));
    return set_attributes(tmp, e, err);
}

/* A file with several names gets its content back in place, so that it keeps them; a death in
 * the middle leaves another time, and the copy is written again. */
static enum hf_rc write_in_place(const struct hf_isolate *iso, const struct hf_iso_entry *e,
                                 struct hf_err *err)
{
    HF_CLEANUP(hf_freep) char *guard = hf_iso_guard_path(iso, e);
    HF_CLEANUP(hf_closep) int in = open(guard, O_RDONLY | O_CLOEXEC);
    HF_CLEANUP(hf_closep) int out = open(e->path, O_WRONLY | O_TRUNC | O_NOFOLLOW | O_CLOEXEC);
    if (in < 0 || out < 0) {
        return hf_fail_errno(err, errno, "open '%s'", in < 0 ? guard : e->path);
    }
    HF_CLEANUP(hf_freep) char *chunk = hf_calloc(1, 65536);
    ssize_t n = 0;
    while ((n = read(in, chunk, 65536)) > 0) {
        HF_TRY(hf_fs_write_all(out, (struct hf_span){chunk, (size_t)n}, e->path, err));
    }
    if (n < 0 || fsync(out) != 0) {
        return hf_fail_errno(err, errno, "copy '%s' to '%s'", guard, e->path);
    }
    return set_attributes(e->path, e, err);
}

static enum hf_rc put_back(struct restoring *r, struct hf_iso_entry *e, bool there, uint64_t inode,
                           struct hf_err *err)
{
    r->place = e->place;
    bool in_place = there && inode == e->inode && e->guard == HF_ISO_COPY && e->links > 1 &&
                    write_in_place(r->iso, e, NULL) == HF_OK;
    if (!in_place) {
        HF_CLEANUP(hf_freep) char *tmp = hf_asprintf("%s/tmp", place_of(r->iso, e));
        HF_TRY(make(r->iso, e, tmp, err));
        if (there) {
            HF_TRY(hide(r, e->path, err));
        }
        HF_TRY(hf_iso_rename(tmp, e->path, err));
    }
    struct hf_iso_entry now = {0};
    HF_TRY(hf_iso_look(e->path, &now, NULL, NULL, err));
    e->inode = now.inode;
    e->ctime = now.ctime;
    hf_free(now.target);
    return HF_OK;
}

static bool same_attributes(const struct hf_iso_entry *e, const struct hf_iso_entry *now)
{
    return now->mode == e->mode && now->uid == e->uid && now->gid == e->gid &&
           same_time(now->mtime, e->mtime);
}

/* Whether the entry is what it was at the beginning, its mode, owner and time aside where it can
 * get those back without being made anew. */
static bool same_content(const struct hf_iso_entry *e, const struct hf_iso_entry *now)
{
    if (e->kind == HF_ISO_SYMLINK) {
        return strcmp(e->target, now->target) == 0;
    }
    if (now->inode != e->inode) {
        return false;
    }
    return e->guard != HF_ISO_COPY ||
           (now->size == e->size && same_attributes(e, now) && same_time(now->ctime, e->ctime));
}

/* True when the file was put back before, by a recovery that died; its inode is then not that of
 * the inventory. */
static bool is_put_back(const struct hf_isolate *iso, const struct hf_iso_entry *e,
                        const struct hf_iso_entry *now)
{
    if (e->kind != HF_ISO_FILE || e->guard != HF_ISO_COPY || now->size != e->size ||
        !same_attributes(e, now)) {
        return false;
    }
    HF_CLEANUP(hf_freep) char *guard = hf_iso_guard_path(iso, e);
    return hf_iso_equal(guard, e->path);
}

/* What cannot be put back keeps its time, which tells so. */
static bool written_in_place(const struct hf_iso_entry *e, const struct hf_iso_entry *now)
{
    return e->kind == HF_ISO_FILE && (now->size != e->size || !same_time(now->mtime, e->mtime));
}

static enum hf_rc put_right(struct restoring *r, struct hf_iso_entry *e, struct hf_err *err)
{
    if (e->kind == HF_ISO_SKIPPED || e->kind == HF_ISO_ABSENT) {
        return HF_OK;
    }
    struct hf_iso_entry now = {0};
    struct hf_err local;
    enum hf_rc rc = hf_iso_look(e->path, &now, NULL, NULL, &local);
    bool there = rc == HF_OK;
    if (!there && rc != HF_ENOTFOUND) {
        return hf_iso_pass(err, &local);
    }
    rc = HF_OK;
    if (e->kind == HF_ISO_DIR) {
        if (!there && mkdir(e->path, 0700) != 0) {
            rc = hf_fail_errno(err, errno, "create folder '%s'", e->path);
        }
    } else if (there && same_content(e, &now)) {
        rc = same_attributes(e, &now) || written_in_place(e, &now)
                 ? HF_OK
                 : set_attributes(e->path, e, err);
    } else if (there && is_put_back(r->iso, e, &now)) {
        e->inode = now.inode;
        e->ctime = now.ctime;
    } else if (e->guard != HF_ISO_UNGUARDED || e->kind == HF_ISO_SYMLINK) {
        rc = put_back(r, e, there, now.inode, err);
    }
    hf_free(now.target);
    return rc;
}

/* ---- the comparison -------------------------------------------------------------------- */

static enum hf_rc visit(void *user, const char *path, bool *descend, struct hf_err *err)
{
    struct restoring *r = user;
    const struct hf_iso_entry *e = hf_iso_list_find(&r->iso->journal.list, path);
    if (strcmp(path, r->iso->journal.places.items[r->place]) == 0) {
        return HF_OK;
    }
    if (e == NULL) {
        return hide(r, path, err);
    }
    if (e->kind == HF_ISO_SKIPPED) {
        return HF_OK;
    }
    struct hf_iso_entry now = {0};
    HF_TRY(hf_iso_look(path, &now, NULL, NULL, err));
    hf_free(now.target);
    if (now.kind != e->kind) {
        return hide(r, path, err);
    }
    if (e->kind == HF_ISO_DIR) {
        *descend = true;
        if (euidaccess(path, R_OK | W_OK | X_OK) != 0) {
            /* Refused for a folder of somebody else, where nothing could be changed either. */
            int ignored = chmod(path, e->mode | S_IRWXU);
            (void)ignored;
        }
    }
    return HF_OK;
}

static enum hf_rc hide_new(struct restoring *r, struct hf_err *err)
{
    const struct hf_iso_list *list = &r->iso->journal.list;
    for (size_t i = 0; i < list->len; i++) {
        const struct hf_iso_entry *e = &list->items[i];
        if (e->kind == HF_ISO_ABSENT && hf_fs_exists(e->path)) {
            r->place = e->place;
            HF_TRY(hide(r, e->path, err));
        }
    }
    for (size_t i = 0; i < r->iso->dirs.len; i++) {
        const char *dir = r->iso->dirs.items[i];
        if (hf_iso_list_find(list, dir) == NULL || !hf_fs_exists(dir)) {
            continue;
        }
        r->place = (uint32_t)i;
        bool descend = false;
        HF_TRY(visit(r, dir, &descend, err));
        if (descend) {
            HF_TRY(hf_iso_walk(dir, visit, r, err));
        }
    }
    return HF_OK;
}

static enum hf_rc finish_dirs(const struct hf_isolate *iso, struct hf_err *err)
{
    const struct hf_iso_list *list = &iso->journal.list;
    /* Backwards: a folder that may not be searched is closed after what is in it. */
    for (size_t i = list->len; i-- > 0;) {
        const struct hf_iso_entry *e = &list->items[i];
        if (e->kind != HF_ISO_DIR) {
            continue;
        }
        struct hf_iso_entry now = {0};
        HF_TRY(hf_iso_look(e->path, &now, NULL, NULL, err));
        if (same_attributes(e, &now)) {
            continue;
        }
        struct hf_err local;
        enum hf_rc rc = set_attributes(e->path, e, &local);
        bool foreign = rc == HF_EDENIED && now.uid != geteuid(); /* its time is the owner's */
        if (rc != HF_OK && !foreign) {
            return hf_iso_pass(err, &local);
        }
    }
    return HF_OK;
}

/* A place inside its folder gave the folder another time. */
static void fix_root_times(const struct hf_isolate *iso)
{
    for (size_t i = 0; i < iso->journal.places.len; i++) {
        const char *dir = iso->dirs.items[i];
        const struct hf_iso_entry *e = hf_iso_list_find(&iso->journal.list, dir);
        if (e != NULL && hf_iso_inside(iso->journal.places.items[i], dir) &&
            !hf_iso_inside(iso->journal.places.items[i], iso->work)) {
            enum hf_rc ignored = set_times(dir, e, NULL);
            (void)ignored;
        }
    }
}

static enum hf_rc flush(const struct hf_isolate *iso, struct hf_err *err)
{
    for (size_t i = 0; i < iso->journal.places.len; i++) {
        const char *place = iso->journal.places.items[i];
        HF_CLEANUP(hf_closep) int fd = open(place, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        if (fd < 0 || hf_fault("file") || syncfs(fd) != 0) {
            return hf_fail_errno(err, errno, "flush the file system of '%s'", place);
        }
    }
    return HF_OK;
}

static enum hf_rc restore(struct hf_isolate *iso, const char *into, struct hf_err *err)
{
    struct restoring r = {.iso = iso, .into = into};
    HF_TRY(hide_new(&r, err));
    for (size_t i = 0; i < iso->journal.list.len; i++) {
        HF_TRY(put_right(&r, &iso->journal.list.items[i], err));
    }
    return finish_dirs(iso, err);
}

/* Finds what no guard can put back: a linked file that was written in place, an unguarded one
 * that is no longer itself. */
static enum hf_rc check(const struct hf_isolate *iso, struct hf_err *err)
{
    for (size_t i = 0; i < iso->journal.list.len; i++) {
        const struct hf_iso_entry *e = &iso->journal.list.items[i];
        if (e->kind != HF_ISO_FILE || e->guard == HF_ISO_COPY) {
            continue;
        }
        HF_CLEANUP(hf_freep)
        char *path = e->guard == HF_ISO_LINK ? hf_iso_guard_path(iso, e) : hf_strdup(e->path);
        struct hf_iso_entry now = {0};
        enum hf_rc rc = hf_iso_look(path, &now, NULL, NULL, NULL);
        hf_free(now.target);
        if (rc != HF_OK || now.inode != e->inode || now.size != e->size ||
            !same_time(now.mtime, e->mtime)) {
            char size[32];
            rc = hf_fail(err, HF_EIO,
                         "the command changed '%s' (%s), which was too big to be copied, and it "
                         "cannot be put back",
                         e->path, hf_iso_size_text(e->size, size));
            return hf_hint(err, rc, "Run the drill in a folder without that file, or as root.");
        }
    }
    return HF_OK;
}

/* ---- begin ----------------------------------------------------------------------------- */

static char *first_existing(const char *path)
{
    char *p = hf_strdup(path);
    while (!hf_fs_exists(p)) {
        char *parent = hf_iso_parent(p);
        hf_free(p);
        p = parent;
    }
    return p;
}

/* rename(2) tells two mounts apart (EXDEV) before it finds that the name is missing. */
static bool same_mount(const char *a, const char *b, const char *id)
{
    struct stat x;
    struct stat y;
    HF_CLEANUP(hf_freep) char *from = hf_asprintf("%s/.holdfast-probe-%s", a, id);
    HF_CLEANUP(hf_freep) char *to = hf_asprintf("%s/.holdfast-probe-%s", b, id);
    return stat(a, &x) == 0 && stat(b, &y) == 0 && x.st_dev == y.st_dev && rename(from, to) != 0 &&
           errno == ENOENT;
}

/* The drill's own folder if it is on the same mount, else beside the user's folder, else (the
 * folder is a mount) inside it. */
static enum hf_rc choose_place(const struct hf_isolate *iso, size_t i, char **ret,
                               struct hf_err *err)
{
    const char *dir = iso->dirs.items[i];
    HF_CLEANUP(hf_freep) char *there = first_existing(dir);
    HF_CLEANUP(hf_freep) char *beside = hf_iso_parent(there);
    const char *candidates[] = {iso->work, beside, there};
    for (size_t c = 0; c < HF_COUNT(candidates); c++) {
        if (same_mount(there, candidates[c], iso->id) &&
            euidaccess(candidates[c], W_OK | X_OK) == 0) {
            *ret = hf_asprintf("%s/%sholdfast-drill-%s-%zu", candidates[c], c == 0 ? "" : ".",
                               iso->id, i);
            return HF_OK;
        }
    }
    return hf_fail(err, HF_ENOTSUP, "'%s' cannot be isolated: it may not be written", dir);
}

static enum hf_rc make_places(struct hf_isolate *iso, struct hf_err *err)
{
    for (size_t i = 0; i < iso->dirs.len; i++) {
        char *place = NULL;
        HF_TRY(choose_place(iso, i, &place, err));
        hf_strv_take(&iso->journal.places, place);
    }
    HF_TRY(hf_iso_save(iso, err));
    for (size_t i = 0; i < iso->journal.places.len; i++) {
        HF_CLEANUP(hf_freep) char *guard = hf_asprintf("%s/guard", iso->journal.places.items[i]);
        HF_TRY(hf_fs_mkdirs(guard, 0700, err));
    }
    return HF_OK;
}

/* File times come from a clock of up to 10 ms a tick: an attempt that writes within the tick of
 * the inventory would not be seen. */
static void let_clock_tick(void)
{
    poll(NULL, 0, 20);
}

static char *list_path(const struct hf_isolate *iso)
{
    return hf_asprintf("%s/isolate.list", iso->work);
}

static enum hf_rc prepare(struct hf_isolate *iso, struct hf_strv *notes, struct hf_err *err)
{
    iso->journal.phase = HF_ISO_PREPARING;
    HF_CLEANUP(hf_freep) char *list = list_path(iso);
    HF_TRY(hf_iso_take(iso, notes, err));
    HF_TRY(make_places(iso, err));
    HF_TRY(hf_iso_guard_all(iso, notes, err));
    fix_root_times(iso);
    HF_TRY(hf_iso_list_write(&iso->journal.list, list, err));
    HF_TRY(flush(iso, err));
    let_clock_tick();
    iso->journal.phase = HF_ISO_ARMED;
    return hf_iso_save(iso, err);
}

/* ---- end ------------------------------------------------------------------------------- */

static enum hf_rc note_kept(const struct hf_isolate *iso, const char *place, struct hf_err *err)
{
    struct hf_strv kept = {0};
    hf_isolate_kept(iso->work, &kept);
    enum hf_rc rc = HF_OK;
    if (!hf_strv_has(&kept, place)) {
        HF_CLEANUP(hf_freep) char *list = hf_asprintf("%s/isolate.kept", iso->work);
        HF_CLEANUP(hf_freep) char *line = hf_asprintf("%s\n", place);
        rc = hf_fs_append(list, (struct hf_span){line, strlen(line)}, err);
    }
    hf_strv_clear(&kept);
    return rc;
}

static enum hf_rc remove_place(const struct hf_isolate *iso, const char *place, struct hf_err *err)
{
    static const char *const parts[] = {"guard", "tmp", "aside"};
    for (size_t i = 0; i < HF_COUNT(parts); i++) {
        HF_CLEANUP(hf_freep) char *path = hf_asprintf("%s/%s", place, parts[i]);
        HF_TRY(hf_iso_remove(path, err));
    }
    if (rmdir(place) == 0 || errno == ENOENT) {
        return HF_OK;
    }
    return errno == ENOTEMPTY || errno == EEXIST ? note_kept(iso, place, err)
                                                 : hf_fail_errno(err, errno, "remove '%s'", place);
}

/* Removes the drill's own things; isolate.json last. */
static enum hf_rc discard(struct hf_isolate *iso, struct hf_err *err)
{
    for (size_t i = 0; i < iso->journal.places.len; i++) {
        HF_TRY(remove_place(iso, iso->journal.places.items[i], err));
    }
    fix_root_times(iso);
    HF_CLEANUP(hf_freep) char *list = list_path(iso);
    HF_CLEANUP(hf_freep) char *head = hf_asprintf("%s/isolate.json", iso->work);
    HF_TRY(hf_fs_remove_tree(list, err));
    return hf_fs_remove_tree(head, err);
}

enum hf_rc hf_iso_journal_begin(struct hf_isolate *iso, struct hf_strv *notes, struct hf_err *err)
{
    enum hf_rc rc = prepare(iso, notes, err);
    if (rc != HF_OK) {
        iso->journal.phase = HF_ISO_PREPARING;
        /* What this leaves behind, isolate.json does too: recovery removes it. */
        enum hf_rc ignored = discard(iso, NULL);
        (void)ignored;
        return rc;
    }
    hf_strv_add(notes, "Leave the isolated folders alone while the drill runs: what anybody else "
                       "creates or changes in them meanwhile is undone with the command's work.");
    return HF_OK;
}

enum hf_rc hf_iso_journal_new_machine(struct hf_isolate *iso, struct hf_err *err)
{
    HF_TRY(check(iso, err));
    HF_CLEANUP(hf_freep) char *into = hf_asprintf("aside/%u", ++iso->journal.round);
    return restore(iso, into, err);
}

static enum hf_rc put_all_right(struct hf_isolate *iso, const char *into, struct hf_err *err)
{
    HF_TRY(restore(iso, into, err));
    HF_TRY(flush(iso, err)); /* before the copies go */
    iso->journal.phase = HF_ISO_RESTORED;
    HF_TRY(hf_iso_save(iso, err));
    return discard(iso, err);
}

enum hf_rc hf_iso_journal_end(struct hf_isolate *iso, struct hf_err *err)
{
    /* What cannot be put back is reported after the rest has been. */
    struct hf_err lost;
    enum hf_rc checked = check(iso, &lost);
    HF_CLEANUP(hf_freep) char *into = hf_asprintf("aside/%u", ++iso->journal.round);
    HF_TRY(put_all_right(iso, into, err));
    return checked == HF_OK ? HF_OK : hf_iso_pass(err, &lost);
}

/* A recovery that died may have hidden things already. */
static char *fresh_kept(const struct hf_isolate *iso)
{
    for (unsigned n = 1;; n++) {
        bool used = false;
        for (size_t i = 0; i < iso->journal.places.len; i++) {
            HF_CLEANUP(hf_freep)
            char *path = hf_asprintf("%s/kept/%u", iso->journal.places.items[i], n);
            used = used || hf_fs_exists(path);
        }
        if (!used) {
            return hf_asprintf("kept/%u", n);
        }
    }
}

enum hf_rc hf_iso_journal_recover(struct hf_isolate *iso, struct hf_err *err)
{
    HF_CLEANUP(hf_freep) char *list = list_path(iso);
    if (iso->journal.phase == HF_ISO_ARMED) {
        HF_TRY(hf_iso_list_read(&iso->journal.list, list, err));
        struct hf_err lost;
        enum hf_rc checked = check(iso, &lost);
        HF_CLEANUP(hf_freep) char *into = fresh_kept(iso);
        HF_TRY(put_all_right(iso, into, err));
        return checked == HF_OK ? HF_OK : hf_iso_pass(err, &lost);
    }
    /* Wanted for the time of a folder that has a place inside; it may be removed already. */
    enum hf_rc ignored = hf_iso_list_read(&iso->journal.list, list, NULL);
    (void)ignored;
    return discard(iso, err);
}

void hf_iso_journal_release(struct hf_isolate *iso)
{
    hf_iso_list_release(&iso->journal.list);
    hf_strv_clear(&iso->journal.places);
}
