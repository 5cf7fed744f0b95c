/* SPDX-License-Identifier: Apache-2.0
 *
 * The inventory of a journal drill and what protects the files in it. Which files the command
 * will overwrite is unknown, so: the smallest files are copied until HF_ISO_COPY_MAX or a quarter
 * of the free space is used (clones that share blocks cost nothing and have no limit); every
 * other file gets a second name, which keeps its content through removal and replacement, but not
 * through a write in place. Such a write is found afterwards and reported. In folders other than
 * the working folder, which hold checkpoints, it is refused before. Blocking, one thread; changes
 * nothing but the hidden places.
 */
#include "base/prelude.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "supervisor/isolate_internal.h"

/* How many things of one sort, and the first of them, for one sentence. */
struct tally {
    char *first;
    size_t count;
    uint64_t bytes;
};

struct taking {
    struct hf_isolate *iso;
    uint32_t place;
    uint64_t dev;
    struct tally git, mounts, closed;
};

static void count(struct tally *t, const char *path, uint64_t bytes)
{
    if (t->count++ == 0) {
        t->first = hf_strdup(path);
    }
    t->bytes += bytes;
}

/* "'/a/b'" or "'/a/b' and 3 more"; owned by the caller. Ends the tally. */
static char *tally_take(struct tally *t)
{
    char *text = t->count > 1 ? hf_asprintf("'%s' and %zu more", t->first, t->count - 1)
                              : hf_asprintf("'%s'", t->first);
    hf_free(t->first);
    t->first = NULL;
    return text;
}

const char *hf_iso_size_text(uint64_t bytes, char out[32])
{
    static const char *const units[] = {"bytes", "KiB", "MiB", "GiB", "TiB"};
    double n = (double)bytes;
    size_t u = 0;
    while (n >= 1024 && u + 1 < HF_COUNT(units)) {
        n /= 1024;
        u++;
    }
    snprintf(out, 32, u == 0 ? "%.0f %s" : "%.1f %s", n, units[u]);
    return out;
}

/* ---- the inventory --------------------------------------------------------------------- */

/* True when what is below `e` must be left alone; says so. */
static bool skipped(struct taking *t, const struct hf_iso_entry *e, uint64_t dev, bool mount_root)
{
    const char *name = strrchr(e->path, '/') + 1;
    if (strcmp(e->path, t->iso->work) == 0) {
        return true;
    }
    if (dev != t->dev || mount_root) {
        count(&t->mounts, e->path, 0);
        return true;
    }
    if (strcmp(name, ".git") == 0) {
        count(&t->git, e->path, 0);
        return true;
    }
    if (e->kind == HF_ISO_DIR && euidaccess(e->path, R_OK | X_OK) != 0) {
        count(&t->closed, e->path, 0);
        return true;
    }
    return false;
}

static enum hf_rc visit(void *user, const char *path, bool *descend, struct hf_err *err)
{
    struct taking *t = user;
    struct hf_iso_list *list = &t->iso->journal.list;
    if (list->len >= HF_ISO_ENTRIES_MAX) {
        enum hf_rc rc = hf_fail(err, HF_ENOTSUP, "'%s' holds more than %d files and folders",
                                t->iso->dirs.items[t->place], HF_ISO_ENTRIES_MAX);
        return hf_hint(err, rc, "Run the drill in a smaller folder, or as root.");
    }
    struct hf_iso_entry found = {0};
    uint64_t dev = 0;
    bool mount_root = false;
    enum hf_rc rc = hf_iso_look(path, &found, &dev, &mount_root, err);
    if (rc != HF_OK) {
        return rc == HF_ENOTFOUND ? HF_OK : rc; /* gone since its name was read */
    }
    struct hf_iso_entry *e = hf_iso_list_add(list, path);
    found.path = e->path;
    found.place = t->place;
    *e = found;
    if (skipped(t, e, dev, mount_root)) {
        e->kind = HF_ISO_SKIPPED;
    }
    *descend = e->kind == HF_ISO_DIR;
    return HF_OK;
}

/* A folder that is not there: its first missing component must be gone again afterwards. */
static void take_absent(struct taking *t, const char *dir)
{
    char *missing = hf_strdup(dir);
    for (;;) {
        char *parent = hf_iso_parent(missing);
        struct stat st;
        if (lstat(parent, &st) == 0) {
            hf_free(parent);
            break;
        }
        hf_free(missing);
        missing = parent;
    }
    struct hf_iso_entry *e = hf_iso_list_add(&t->iso->journal.list, missing);
    e->kind = HF_ISO_ABSENT;
    e->place = t->place;
    hf_free(missing);
}

static enum hf_rc take_dir(struct taking *t, const char *dir, struct hf_err *err)
{
    struct hf_iso_entry root = {0};
    struct hf_err local;
    enum hf_rc rc = hf_iso_look(dir, &root, &t->dev, NULL, &local);
    if (rc == HF_ENOTFOUND) {
        take_absent(t, dir);
        return HF_OK;
    }
    if (rc != HF_OK) {
        return hf_iso_pass(err, &local);
    }
    struct hf_iso_entry *e = hf_iso_list_add(&t->iso->journal.list, dir);
    root.path = e->path;
    root.place = t->place;
    *e = root;
    return hf_iso_walk(dir, visit, t, err);
}

static void say(struct hf_strv *notes, struct tally *t, const char *before, const char *after)
{
    if (t->count > 0) {
        HF_CLEANUP(hf_freep) char *names = tally_take(t);
        hf_strv_take(notes, hf_asprintf("%s%s%s", before, names, after));
    }
}

enum hf_rc hf_iso_take(struct hf_isolate *iso, struct hf_strv *notes, struct hf_err *err)
{
    struct taking t = {.iso = iso};
    enum hf_rc rc = HF_OK;
    for (size_t i = 0; i < iso->dirs.len && rc == HF_OK; i++) {
        t.place = (uint32_t)i;
        rc = take_dir(&t, iso->dirs.items[i], err);
    }
    hf_iso_list_sort(&iso->journal.list);
    say(notes, &t.git, "Not isolated: ", ".");
    say(notes, &t.mounts, "Not isolated, because it is a mount of its own: ", ".");
    say(notes, &t.closed, "Not isolated, because it may not be read: ", ".");
    return rc;
}

/* ---- guards ---------------------------------------------------------------------------- */

struct guarding {
    struct hf_isolate *iso;
    uint64_t left; /* bytes that may still be copied */
    struct tally busy, linked;
};

char *hf_iso_guard_path(const struct hf_isolate *iso, const struct hf_iso_entry *entry)
{
    return hf_asprintf("%s/guard/%u", iso->journal.places.items[entry->place], entry->number);
}

static uint64_t room(const char *place)
{
    struct statvfs fs;
    if (statvfs(place, &fs) != 0) {
        return 0;
    }
    uint64_t quarter = (uint64_t)fs.f_bavail * fs.f_frsize / 4;
    return quarter < HF_ISO_COPY_MAX ? quarter : HF_ISO_COPY_MAX;
}

static bool same_time(struct statx_timestamp a, struct statx_timestamp b)
{
    return a.tv_sec == b.tv_sec && a.tv_nsec == b.tv_nsec;
}

/* *ret_stable: the file was not written while it was copied. The entry follows the file. */
static enum hf_rc look_again(struct hf_iso_entry *e, bool *ret_stable, struct hf_err *err)
{
    struct hf_iso_entry before = *e;
    HF_TRY(hf_iso_look(e->path, e, NULL, NULL, err));
    *ret_stable = before.kind == e->kind && before.size == e->size && before.inode == e->inode &&
                  same_time(before.mtime, e->mtime) && same_time(before.ctime, e->ctime);
    return HF_OK;
}

/* Copies once, and once more if the file changed meanwhile. */
static enum hf_rc guard_by_copy(struct guarding *g, struct hf_iso_entry *e, const char *to,
                                struct hf_err *err)
{
    for (int tries = 0; tries < 2; tries++) {
        enum hf_iso_copy how = HF_ISO_TOO_BIG;
        HF_TRY(hf_iso_copy(e->path, to, g->left, &how, err));
        if (how == HF_ISO_TOO_BIG) {
            return HF_OK;
        }
        bool stable = false;
        HF_TRY(look_again(e, &stable, err));
        if (stable) {
            g->left -= how == HF_ISO_COPIED ? e->size : 0;
            e->guard = HF_ISO_COPY;
            return HF_OK;
        }
        unlink(to);
        if (e->kind != HF_ISO_FILE) {
            break;
        }
    }
    count(&g->busy, e->path, 0);
    e->kind = HF_ISO_SKIPPED;
    return HF_OK;
}

static enum hf_rc refuse(const struct hf_iso_entry *e, struct hf_err *err)
{
    char size[32];
    enum hf_rc rc = hf_fail(err, HF_ENOTSUP,
                            "'%s' (%s) may be overwritten by the command, and is too big to be "
                            "copied before",
                            e->path, hf_iso_size_text(e->size, size));
    return hf_hint(err, rc,
                   "Drill with another, empty --checkpoint-dir, move the file away, free "
                   "disk space, or run the drill as root.");
}

static bool is_strict(const struct hf_isolate *iso, const char *path)
{
    for (size_t i = 0; i < iso->strict.len; i++) {
        if (hf_iso_inside(path, iso->strict.items[i])) {
            return true;
        }
    }
    return false;
}

static enum hf_rc guard_one(struct guarding *g, struct hf_iso_entry *e, struct hf_err *err)
{
    HF_CLEANUP(hf_freep) char *to = hf_iso_guard_path(g->iso, e);
    if (e->kind == HF_ISO_FILE) {
        struct hf_err local;
        enum hf_rc rc = guard_by_copy(g, e, to, &local);
        if (rc == HF_ENOTFOUND) {
            e->kind = HF_ISO_SKIPPED; /* somebody's temporary file, gone already */
            return HF_OK;
        }
        if (rc != HF_OK && rc != HF_EDENIED) {
            return hf_iso_pass(err, &local);
        }
        if (e->kind == HF_ISO_SKIPPED || e->guard == HF_ISO_COPY) {
            return HF_OK;
        }
    }
    /* Where even a second name is refused the file stays unguarded: who may not link it may not
     * write it in place either (fs.protected_hardlinks). */
    e->guard = link(e->path, to) == 0 ? HF_ISO_LINK : HF_ISO_UNGUARDED;
    if (e->kind == HF_ISO_FILE && euidaccess(e->path, W_OK) == 0) {
        if (is_strict(g->iso, e->path)) {
            return refuse(e, err);
        }
        count(&g->linked, e->path, e->size);
    }
    return HF_OK;
}

static int by_size(const void *a, const void *b)
{
    const struct hf_iso_entry *x = *(struct hf_iso_entry *const *)a;
    const struct hf_iso_entry *y = *(struct hf_iso_entry *const *)b;
    if (x->size != y->size) {
        return x->size < y->size ? -1 : 1;
    }
    return strcmp(x->path, y->path);
}

static size_t collect(struct hf_isolate *iso, struct hf_iso_entry **order)
{
    size_t n = 0;
    for (size_t i = 0; i < iso->journal.list.len; i++) {
        struct hf_iso_entry *e = &iso->journal.list.items[i];
        if (e->kind == HF_ISO_FILE || e->kind == HF_ISO_SPECIAL) {
            order[n++] = e;
        }
    }
    if (n > 1) {
        qsort(order, n, sizeof(struct hf_iso_entry *), by_size);
    }
    return n;
}

enum hf_rc hf_iso_guard_all(struct hf_isolate *iso, struct hf_strv *notes, struct hf_err *err)
{
    struct guarding g = {.iso = iso, .left = HF_ISO_COPY_MAX};
    for (size_t i = 0; i < iso->journal.places.len; i++) {
        uint64_t here = room(iso->journal.places.items[i]);
        g.left = here < g.left ? here : g.left;
    }
    struct hf_iso_entry **order =
        hf_calloc(iso->journal.list.len + 1, sizeof(struct hf_iso_entry *));
    size_t n = collect(iso, order);
    enum hf_rc rc = HF_OK;
    for (size_t i = 0; i < n && rc == HF_OK; i++) {
        order[i]->number = (uint32_t)i + 1;
        rc = guard_one(&g, order[i], err);
    }
    hf_free(order);
    char size[32];
    hf_iso_size_text(g.linked.bytes, size);
    say(notes, &g.busy, "Not isolated, because it is being written by another program: ", ".");
    HF_CLEANUP(hf_freep)
    char *after = hf_asprintf(" (%s). Removed or replaced files come back; a write into the file "
                              "itself cannot be undone.",
                              size);
    say(notes, &g.linked, "Too big to be copied: ", after);
    return rc;
}
