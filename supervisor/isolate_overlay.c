/* SPDX-License-Identifier: Apache-2.0
 *
 * Isolation as root: a mount namespace of the drill's own, in which every folder is covered by an
 * overlay whose lower layer is the user's folder. What an attempt writes lands in the upper
 * layer, below the scratch folder; a new machine is a fresh upper layer; at the end the covers
 * are taken off, and the user's folders were never touched. When the process dies the kernel
 * drops its mounts, so recovery only removes the scratch folder.
 *
 * Blocking, and only while the process has one thread: unshare(2) moves the calling thread alone.
 */
#include "base/prelude.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/fsx.h"
#include "supervisor/isolate_internal.h"

#define MOUNTINFO_MAX_BYTES (8u << 20)

static enum hf_rc open_path(const char *path, int *ret_fd, struct hf_err *err)
{
    int fd = open(path, O_PATH | O_CLOEXEC);
    if (fd < 0) {
        return hf_fail_errno(err, errno, "open '%s'", path);
    }
    *ret_fd = fd;
    return HF_OK;
}

/* Layers are named by descriptors, so that no path needs quoting and no cover hides a layer. */
static enum hf_rc mount_overlay(int lower, const char *upper, const char *work, const char *at,
                                bool redirect, struct hf_err *err)
{
    HF_CLEANUP(hf_closep) int upper_fd = -1;
    HF_CLEANUP(hf_closep) int work_fd = -1;
    HF_TRY(open_path(upper, &upper_fd, err));
    HF_TRY(open_path(work, &work_fd, err));
    char options[160];
    snprintf(options, sizeof(options),
             "lowerdir=/proc/self/fd/%d,upperdir=/proc/self/fd/%d,workdir=/proc/self/fd/%d%s",
             lower, upper_fd, work_fd, redirect ? ",redirect_dir=on" : "");
    if (mount("overlay", at, "overlay", 0, options) != 0) {
        return hf_fail_errno(err, errno, "mount an overlay on '%s'", at);
    }
    return HF_OK;
}

/* ---- the trial ------------------------------------------------------------------------- */

static bool put(const char *dir, const char *name, const char *text)
{
    HF_CLEANUP(hf_freep) char *path = hf_asprintf("%s/%s", dir, name);
    return hf_fs_write(path, (struct hf_span){text, strlen(text)}, 0600, false, NULL) == HF_OK;
}

static bool has(const char *dir, const char *name, const char *text)
{
    HF_CLEANUP(hf_freep) char *path = hf_asprintf("%s/%s", dir, name);
    struct hf_buf b;
    hf_buf_init(&b, 64);
    bool same = hf_fs_read(path, &b, NULL) == HF_OK && strcmp(hf_buf_str(&b), text) == 0;
    hf_buf_release(&b);
    return same;
}

/* Replace, remove, remove and make again, rename: some file systems mount and then refuse. */
static bool works(const char *lower, const char *merged, bool redirect)
{
    HF_CLEANUP(hf_freep) char *dir = hf_asprintf("%s/dir", merged);
    HF_CLEANUP(hf_freep) char *moved = hf_asprintf("%s/moved", merged);
    HF_CLEANUP(hf_freep) char *inner = hf_asprintf("%s/dir/file", merged);
    HF_CLEANUP(hf_freep) char *lower_dir = hf_asprintf("%s/dir", lower);
    if (!put(merged, "file", "new") || !has(merged, "file", "new") || unlink(inner) != 0) {
        return false;
    }
    if (redirect ? rename(dir, moved) != 0 : rmdir(dir) != 0) {
        return false;
    }
    return mkdir(dir, 0700) == 0 && !hf_fs_exists(inner) && has(lower, "file", "old") &&
           has(lower_dir, "file", "old");
}

static bool try_once(const char *base, bool redirect)
{
    HF_CLEANUP(hf_freep) char *lower = hf_asprintf("%s/lower", base);
    HF_CLEANUP(hf_freep) char *lower_dir = hf_asprintf("%s/lower/dir", base);
    HF_CLEANUP(hf_freep) char *upper = hf_asprintf("%s/upper", base);
    HF_CLEANUP(hf_freep) char *work = hf_asprintf("%s/work", base);
    HF_CLEANUP(hf_freep) char *merged = hf_asprintf("%s/merged", base);
    const char *dirs[] = {lower_dir, upper, work, merged};
    for (size_t i = 0; i < HF_COUNT(dirs); i++) {
        if (hf_fs_mkdirs(dirs[i], 0700, NULL) != HF_OK) {
            return false;
        }
    }
    HF_CLEANUP(hf_closep) int fd = -1;
    if (!put(lower, "file", "old") || !put(lower_dir, "file", "old") ||
        open_path(lower, &fd, NULL) != HF_OK ||
        mount_overlay(fd, upper, work, merged, redirect, NULL) != HF_OK) {
        return false;
    }
    bool good = works(lower, merged, redirect);
    return umount2(merged, MNT_DETACH) == 0 && good;
}

static enum hf_rc trial(struct hf_isolate *iso, struct hf_err *err)
{
    HF_CLEANUP(hf_freep) char *first = hf_asprintf("%s/trial1", iso->overlay.scratch);
    HF_CLEANUP(hf_freep) char *second = hf_asprintf("%s/trial2", iso->overlay.scratch);
    iso->overlay.redirect = try_once(first, true);
    bool good = iso->overlay.redirect || try_once(second, false);
    HF_TRY(hf_iso_remove(first, err));
    HF_TRY(hf_iso_remove(second, err));
    return good ? HF_OK : hf_fail(err, HF_ENOTSUP, "overlays do not work here");
}

/* ---- what must be bound back ----------------------------------------------------------- */

/* mountinfo writes blanks, tabs, newlines and backslashes as \ooo. */
static void unescape(char *s)
{
    char *out = s;
    while (*s != '\0') {
        if (s[0] == '\\' && s[1] >= '0' && s[1] <= '3' && s[2] != '\0' && s[3] != '\0') {
            *out++ = (char)((s[1] - '0') * 64 + (s[2] - '0') * 8 + (s[3] - '0'));
            s += 4;
        } else {
            *out++ = *s++;
        }
    }
    *out = '\0';
}

/* The fifth word of a line, changed in place. */
static char *mount_point(char *line)
{
    for (int i = 0; i < 4 && line != NULL; i++) {
        line = strchr(line, ' ');
        line = line != NULL ? line + 1 : NULL;
    }
    char *end = line != NULL ? strchr(line, ' ') : NULL;
    if (end == NULL) {
        return NULL;
    }
    *end = '\0';
    unescape(line);
    return line;
}

static bool below_dirs(const struct hf_isolate *iso, const char *path)
{
    for (size_t i = 0; i < iso->dirs.len; i++) {
        if (hf_iso_inside(path, iso->dirs.items[i]) && strcmp(path, iso->dirs.items[i]) != 0) {
            return true;
        }
    }
    return false;
}

static enum hf_rc add_back(struct hf_iso_overlay *o, const char *path, struct hf_err *err)
{
    int fd = -1;
    HF_TRY(open_path(path, &fd, err));
    o->back = hf_realloc(o->back, (o->back_len + 1) * sizeof(o->back[0]));
    o->back[o->back_len++] = (struct hf_iso_mount){.path = hf_strdup(path), .fd = fd};
    return HF_OK;
}

/* In the order of mountinfo, parents come before what is mounted inside them. */
static enum hf_rc find_back(struct hf_isolate *iso, struct hf_strv *notes, struct hf_err *err)
{
    struct hf_buf b;
    hf_buf_init(&b, MOUNTINFO_MAX_BYTES);
    enum hf_rc rc = hf_fs_read("/proc/self/mountinfo", &b, err);
    size_t pos = 0;
    size_t len = 0;
    for (char *line = NULL; rc == HF_OK && (line = hf_buf_next_line(&b, &pos, &len)) != NULL;) {
        const char *at = mount_point(line);
        if (at == NULL || !below_dirs(iso, at) || hf_iso_inside(at, iso->work)) {
            continue;
        }
        rc = add_back(&iso->overlay, at, err);
        hf_strv_take(notes,
                     hf_asprintf("Not isolated, because it is a mount of its own: '%s'.", at));
    }
    hf_buf_release(&b);
    if (rc == HF_OK && below_dirs(iso, iso->work)) {
        rc = add_back(&iso->overlay, iso->work, err);
    }
    return rc;
}

/* ---- covering -------------------------------------------------------------------------- */

static char *machine_path(const struct hf_isolate *iso)
{
    return hf_asprintf("%s/machine%u", iso->overlay.scratch, iso->overlay.machine);
}

/* The root of an overlay has the mode, owner and time of its upper folder. */
static enum hf_rc like(const char *upper, int lower, struct hf_err *err)
{
    struct stat st;
    if (fstat(lower, &st) != 0 || chown(upper, st.st_uid, st.st_gid) != 0 ||
        chmod(upper, st.st_mode & 07777u) != 0) {
        return hf_fail_errno(err, errno, "prepare '%s'", upper);
    }
    struct timespec times[2] = {st.st_atim, st.st_mtim};
    return utimensat(AT_FDCWD, upper, times, 0) == 0
               ? HF_OK
               : hf_fail_errno(err, errno, "set the time of '%s'", upper);
}

static enum hf_rc cover_one(struct hf_isolate *iso, size_t i, struct hf_err *err)
{
    HF_CLEANUP(hf_freep) char *machine = machine_path(iso);
    HF_CLEANUP(hf_freep) char *upper = hf_asprintf("%s/%zu/upper", machine, i);
    HF_CLEANUP(hf_freep) char *work = hf_asprintf("%s/%zu/work", machine, i);
    HF_TRY(hf_fs_mkdirs(upper, 0700, err));
    HF_TRY(hf_fs_mkdirs(work, 0700, err));
    const struct hf_iso_mount *d = &iso->overlay.dirs[i];
    HF_TRY(like(upper, d->fd, err));
    HF_TRY(mount_overlay(d->fd, upper, work, d->path, iso->overlay.redirect, err));
    iso->overlay.mounted = i + 1;
    return HF_OK;
}

static enum hf_rc bind_back(const struct hf_iso_mount *m, struct hf_err *err)
{
    char from[32];
    snprintf(from, sizeof(from), "/proc/self/fd/%d", m->fd);
    if (mount(from, m->path, NULL, MS_BIND, NULL) != 0) {
        return hf_fail_errno(err, errno, "mount '%s' again", m->path);
    }
    return HF_OK;
}

/* A working folder does not follow what is mounted over it. */
static enum hf_rc enter_cwd(const struct hf_isolate *iso, struct hf_err *err)
{
    if (iso->cwd != NULL && chdir(iso->cwd) != 0) {
        return hf_fail_errno(err, errno, "enter '%s'", iso->cwd);
    }
    return HF_OK;
}

static enum hf_rc cover(struct hf_isolate *iso, struct hf_err *err)
{
    struct hf_iso_overlay *o = &iso->overlay;
    for (size_t i = 0; i < iso->dirs.len; i++) {
        HF_TRY(cover_one(iso, i, err));
    }
    for (size_t i = 0; i < o->back_len; i++) {
        HF_TRY(bind_back(&o->back[i], err));
    }
    return enter_cwd(iso, err);
}

/* Detached: a file that a dying process still holds open lives on in a layer nobody sees. */
static enum hf_rc uncover(struct hf_isolate *iso, struct hf_err *err)
{
    struct hf_iso_overlay *o = &iso->overlay;
    if (chdir("/") != 0) {
        return hf_fail_errno(err, errno, "enter '/'");
    }
    while (o->mounted > 0) {
        const struct hf_iso_mount *d = &o->dirs[o->mounted - 1];
        if (umount2(d->path, MNT_DETACH | UMOUNT_NOFOLLOW) != 0) {
            return hf_fail_errno(err, errno, "unmount '%s'", d->path);
        }
        o->mounted--;
    }
    return enter_cwd(iso, err);
}

/* ---- begin and end --------------------------------------------------------------------- */

/* Upper layers may not lie inside a lower one. */
static enum hf_rc choose_scratch(struct hf_isolate *iso, struct hf_err *err)
{
    HF_CLEANUP(hf_freep) char *beside = NULL;
    for (size_t i = 0; i < iso->dirs.len; i++) {
        if (hf_iso_inside(iso->work, iso->dirs.items[i])) {
            beside = hf_iso_parent(iso->dirs.items[i]);
        }
    }
    iso->overlay.scratch = beside != NULL ? hf_asprintf("%s/.holdfast-drill-%s", beside, iso->id)
                                          : hf_asprintf("%s/holdfast-drill-%s", iso->work, iso->id);
    HF_TRY(hf_iso_save(iso, err));
    return hf_fs_mkdirs(iso->overlay.scratch, 0700, err);
}

/* A folder that is to be covered must exist; those that are made here go at the end. */
static enum hf_rc make_missing(struct hf_isolate *iso, struct hf_err *err)
{
    struct hf_strv missing = {0};
    for (size_t i = 0; i < iso->dirs.len; i++) {
        char *p = hf_strdup(iso->dirs.items[i]);
        while (!hf_fs_exists(p)) {
            char *parent = hf_iso_parent(p);
            hf_strv_take(&missing, p);
            p = parent;
        }
        hf_free(p);
    }
    for (size_t i = 0; i < missing.len; i++) {
        hf_strv_add(&iso->overlay.made, missing.items[i]);
    }
    hf_strv_clear(&missing);
    if (iso->overlay.made.len == 0) {
        return HF_OK;
    }
    HF_TRY(hf_iso_save(iso, err));
    for (size_t i = 0; i < iso->dirs.len; i++) {
        HF_TRY(hf_fs_mkdirs(iso->dirs.items[i], 0755, err));
    }
    return HF_OK;
}

static enum hf_rc open_dirs(struct hf_isolate *iso, struct hf_err *err)
{
    struct hf_iso_overlay *o = &iso->overlay;
    o->dirs = hf_calloc(iso->dirs.len, sizeof(o->dirs[0]));
    for (size_t i = 0; i < iso->dirs.len; i++) {
        o->dirs[i] = (struct hf_iso_mount){.path = hf_strdup(iso->dirs.items[i]), .fd = -1};
    }
    for (size_t i = 0; i < iso->dirs.len; i++) {
        HF_TRY(open_path(o->dirs[i].path, &o->dirs[i].fd, err));
    }
    return HF_OK;
}

static enum hf_rc set_up(struct hf_isolate *iso, struct hf_strv *notes, struct hf_err *err)
{
    HF_TRY(choose_scratch(iso, err));
    /* Slave, not private: the person's later mounts still show, ours never leave. */
    if (unshare(CLONE_NEWNS) != 0 || mount(NULL, "/", NULL, MS_REC | MS_SLAVE, NULL) != 0) {
        return hf_fail_errno(err, errno, "make a mount namespace");
    }
    HF_TRY(trial(iso, err));
    HF_TRY(make_missing(iso, err));
    HF_TRY(open_dirs(iso, err));
    HF_TRY(find_back(iso, notes, err));
    return cover(iso, err);
}

static enum hf_rc clear(struct hf_isolate *iso, struct hf_err *err)
{
    if (iso->overlay.scratch != NULL) {
        HF_TRY(hf_iso_remove(iso->overlay.scratch, err));
    }
    for (size_t i = 0; i < iso->overlay.made.len; i++) {
        const char *dir = iso->overlay.made.items[i];
        if (rmdir(dir) != 0 && errno != ENOENT && errno != ENOTEMPTY && errno != EEXIST) {
            return hf_fail_errno(err, errno, "remove '%s'", dir);
        }
    }
    HF_CLEANUP(hf_freep) char *head = hf_asprintf("%s/isolate.json", iso->work);
    return hf_fs_remove_tree(head, err);
}

static enum hf_rc undo(struct hf_isolate *iso, struct hf_err *err)
{
    HF_TRY(uncover(iso, err));
    HF_TRY(clear(iso, err));
    hf_iso_overlay_release(iso);
    return HF_OK;
}

enum hf_rc hf_iso_overlay_begin(struct hf_isolate *iso, struct hf_strv *notes, struct hf_err *err)
{
    struct hf_strv own = {0};
    struct hf_err local;
    enum hf_rc rc = set_up(iso, &own, &local);
    for (size_t i = 0; rc == HF_OK && i < own.len; i++) {
        hf_strv_add(notes, own.items[i]);
    }
    hf_strv_clear(&own);
    if (rc == HF_OK) {
        return HF_OK;
    }
    /* What cannot be undone stays in isolate.json for recovery: no other mode then. */
    HF_TRY(undo(iso, err));
    return hf_fail(err, HF_ENOTSUP, "%s", local.msg);
}

enum hf_rc hf_iso_overlay_new_machine(struct hf_isolate *iso, struct hf_err *err)
{
    HF_CLEANUP(hf_freep) char *old = machine_path(iso);
    HF_TRY(uncover(iso, err));
    HF_TRY(hf_iso_remove(old, err));
    iso->overlay.machine++;
    return cover(iso, err);
}

enum hf_rc hf_iso_overlay_end(struct hf_isolate *iso, struct hf_err *err)
{
    HF_TRY(uncover(iso, err));
    return clear(iso, err);
}

enum hf_rc hf_iso_overlay_recover(struct hf_isolate *iso, struct hf_err *err)
{
    return clear(iso, err);
}

void hf_iso_overlay_release(struct hf_isolate *iso)
{
    struct hf_iso_overlay *o = &iso->overlay;
    for (size_t i = 0; o->dirs != NULL && i < iso->dirs.len; i++) {
        hf_closep(&o->dirs[i].fd);
        hf_free(o->dirs[i].path);
    }
    for (size_t i = 0; i < o->back_len; i++) {
        hf_closep(&o->back[i].fd);
        hf_free(o->back[i].path);
    }
    hf_free(o->dirs);
    hf_free(o->back);
    hf_free(o->scratch);
    hf_strv_clear(&o->made);
    *o = (struct hf_iso_overlay){0};
}
