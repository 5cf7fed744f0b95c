/* SPDX-License-Identifier: Apache-2.0
 *
 * Holding checkpoints. Worker threads. All files of a hold are clones or all are links. A clone is
 * proof against a later overwriting; a link is not, which the stamps tell when it is read. Never
 * copies bytes: that would cost the space and the time that the training program needs.
 */
#include "base/prelude.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/fsx.h"
#include "supervisor/held.h"

#define HELD       ".holdfast-held"
#define SERIAL_MAX 1000000u

static char *folder_above(const char *dir)
{
    const char *slash = strrchr(dir, '/');
    return slash == NULL || slash == dir ? NULL : hf_strndup(dir, (size_t)(slash - dir));
}

static bool usable(const char *folder)
{
    struct stat st;
    return (mkdir(folder, 0700) == 0 || errno == EEXIST) && lstat(folder, &st) == 0 &&
           S_ISDIR(st.st_mode) && faccessat(AT_FDCWD, folder, W_OK | X_OK, AT_EACCESS) == 0;
}

enum hf_rc hf_beside(const char *dir, const char *name, bool inside, char **ret, struct hf_err *err)
{
    HF_CLEANUP(hf_freep) char *above = folder_above(dir);
    struct stat here;
    struct stat there;
    if (stat(dir, &here) != 0) {
        return hf_fail_errno(err, errno, "'%s'", dir);
    }
    if (above != NULL && stat(above, &there) == 0 && there.st_dev == here.st_dev) {
        char *path = hf_asprintf("%s/%s", above, name);
        if (usable(path)) {
            *ret = path;
            return HF_OK;
        }
        hf_free(path);
    }
    HF_CLEANUP(hf_freep) char *path = hf_asprintf("%s/%s", dir, name);
    if (!inside || !usable(path)) {
        return hf_fail(err, HF_ENOTSUP, "no folder '%s' can be made beside or in '%s'", name, dir);
    }
    *ret = path;
    path = NULL;
    return HF_OK;
}

void hf_hold_release(struct hf_hold *h)
{
    hf_free(h->folder);
    hf_strv_clear(&h->paths);
    *h = (struct hf_hold){0};
}

/* Where the file of a stamp is held: its root's place, and what follows the root. */
static char *place_of(const struct hf_hold_in *in, const struct hf_hold *h, const char *path)
{
    for (size_t i = 0; i < in->roots->len; i++) {
        size_t len = strlen(in->roots->items[i]);
        if (strncmp(path, in->roots->items[i], len) == 0 &&
            (path[len] == '\0' || path[len] == '/')) {
            return hf_asprintf("%s%s", h->paths.items[i], path + len);
        }
    }
    return NULL;
}

static enum hf_rc clone_file(const char *from, const char *to, const struct stat *st,
                             struct hf_err *err)
{
    HF_CLEANUP(hf_closep) int in = open(from, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (in < 0) {
        return hf_fail_errno(err, errno, "open '%s'", from);
    }
    HF_CLEANUP(hf_closep) int out = open(to, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (out < 0) {
        return hf_fail_errno(err, errno, "make '%s'", to);
    }
    if (ioctl(out, FICLONE, in) != 0) {
        return hf_fail(err, HF_ENOTSUP, "clone '%s'", from);
    }
    struct timespec times[2] = {st->st_atim, st->st_mtim};
    if (fchmod(out, st->st_mode & 07777) != 0 || futimens(out, times) != 0) {
        return hf_fail_errno(err, errno, "give '%s' its mode and time", to);
    }
    return HF_OK;
}

static enum hf_rc link_file(const char *from, const char *to, struct hf_err *err)
{
    if (link(from, to) == 0) {
        return HF_OK;
    }
    /* Not the filesystem's way, not our file, on another one, too many links: never mind which. */
    return errno == ENOENT ? hf_fail_errno(err, errno, "link '%s'", from)
                           : hf_fail(err, HF_ENOTSUP, "link '%s': errno %d", from, errno);
}

static enum hf_rc hold_link(const char *from, const char *to, struct hf_err *err)
{
    char target[4096];
    ssize_t n = readlink(from, target, sizeof(target) - 1);
    if (n < 0) {
        return hf_fail_errno(err, errno, "read the link '%s'", from);
    }
    target[n] = '\0';
    return symlink(target, to) == 0 ? HF_OK : hf_fail_errno(err, errno, "make the link '%s'", to);
}

static enum hf_rc hold_one(const char *from, const char *to, struct hf_hold *h, bool *ret_regular,
                           struct hf_err *err)
{
    struct stat st;
    if (lstat(from, &st) != 0) {
        return hf_fail_errno(err, errno, "'%s'", from);
    }
    *ret_regular = S_ISREG(st.st_mode);
    if (S_ISREG(st.st_mode)) {
        h->bytes += (uint64_t)st.st_size;
        return h->cloned ? clone_file(from, to, &st, err) : link_file(from, to, err);
    }
    if (S_ISLNK(st.st_mode)) {
        return hold_link(from, to, err);
    }
    if (!S_ISDIR(st.st_mode) || (st.st_mode & 0700) != 0700) {
        return hf_fail(err, HF_ENOTSUP, "'%s' cannot be held", from);
    }
    if (mkdir(to, 0700) != 0 || chmod(to, st.st_mode & 07777) != 0) {
        return hf_fail_errno(err, errno, "make folder '%s'", to);
    }
    return HF_OK;
}

/* Folders come before what is in them. */
static enum hf_rc hold_all(const struct hf_hold_in *in, const struct hf_stamps *stamps,
                           struct hf_hold *h, bool *regular, struct hf_err *err)
{
    h->bytes = 0;
    for (size_t i = 0; i < stamps->len; i++) {
        HF_CLEANUP(hf_freep) char *to = place_of(in, h, stamps->items[i].path);
        if (to == NULL) {
            return hf_fail(err, HF_EINVAL, "'%s' lies in no root", stamps->items[i].path);
        }
        HF_TRY(hold_one(stamps->items[i].path, to, h, &regular[i], err));
    }
    return HF_OK;
}

/* A folder that nobody had before. */
static enum hf_rc new_folder(const struct hf_hold_in *in, char **ret, struct hf_err *err)
{
    HF_CLEANUP(hf_freep) char *held = NULL;
    HF_TRY(hf_beside(in->dir, HELD, in->inside, &held, err));
    for (unsigned serial = 1; serial < SERIAL_MAX; serial++) {
        char *path = hf_asprintf("%s/%s-%u-%u", held, in->key, in->attempt, serial);
        if (mkdir(path, 0700) == 0) {
            *ret = path;
            return HF_OK;
        }
        int num = errno;
        hf_free(path);
        if (num != EEXIST) {
            return hf_fail_errno(err, num, "make a folder in '%s'", held);
        }
    }
    return hf_fail(err, HF_EFULL, "'%s' is full", held);
}

static enum hf_rc try_hold(const struct hf_hold_in *in, const struct hf_stamps *stamps, bool clone,
                           struct hf_hold *ret, bool *regular, struct hf_err *err)
{
    struct hf_hold h = {.cloned = clone};
    HF_TRY(new_folder(in, &h.folder, err));
    for (size_t i = 0; i < in->roots->len; i++) {
        hf_strv_take(&h.paths, hf_asprintf("%s/%zu", h.folder, i));
    }
    enum hf_rc rc = hold_all(in, stamps, &h, regular, err);
    struct hf_stamps after = {0};
    if (rc == HF_OK) {
        rc = hf_stamps_take(in->roots, &after, err);
    }
    const char *which = "";
    if (rc == HF_OK && !hf_stamps_equal(stamps, &after, &which)) {
        rc = hf_fail(err, HF_EAGAIN, "'%s' changed", which);
    }
    hf_stamps_release(&after);
    if (rc == HF_OK) {
        *ret = h;
        return HF_OK;
    }
    hf_held_drop(h.folder);
    hf_hold_release(&h);
    return rc == HF_ENOTFOUND ? hf_fail(err, HF_EAGAIN, "a file went while it was to be held") : rc;
}

enum hf_rc hf_hold_take(const struct hf_hold_in *in, struct hf_stamps *stamps, struct hf_hold *ret,
                        struct hf_err *err)
{
    HF_CLEANUP(hf_freep) bool *regular = hf_calloc(stamps->len + 1, sizeof(bool));
    enum hf_rc rc = try_hold(in, stamps, true, ret, regular, NULL);
    if (rc != HF_OK && rc != HF_EAGAIN) {
        rc = try_hold(in, stamps, false, ret, regular, err);
    } else if (rc == HF_EAGAIN) {
        return hf_fail(err, rc, "it changed while it was to be held");
    }
    for (size_t i = 0; rc == HF_OK && i < stamps->len; i++) {
        if (ret->cloned || !regular[i]) {
            stamps->items[i].inode = 0;
        }
    }
    return rc;
}

bool hf_held_there(const struct hf_strv *paths)
{
    for (size_t i = 0; i < paths->len; i++) {
        struct stat st;
        if (lstat(paths->items[i], &st) != 0) {
            return false;
        }
    }
    return paths->len > 0;
}

/* Once nothing is held any more its folder goes too: rmdir removes no other. */
static void remove_above(const char *folder)
{
    HF_CLEANUP(hf_freep) char *above = folder_above(folder);
    if (above != NULL) {
        rmdir(above);
    }
}

void hf_held_drop(const char *folder)
{
    HF_CLEANUP(hf_freep) char *gone = hf_asprintf("%s.gone", folder);
    struct hf_err left;
    if (rename(folder, gone) == 0 && hf_fs_remove_tree(gone, &left) == HF_OK) {
        remove_above(folder);
    }
}

/* "-NUMBER": what follows it, NULL if it is not there. */
static const char *after_number(const char *text, unsigned long *ret)
{
    if (text == NULL || text[0] != '-' || !isdigit((unsigned char)text[1])) {
        return NULL;
    }
    char *end = NULL;
    *ret = strtoul(text + 1, &end, 10);
    return end;
}

/* "KEY-ATTEMPT-SERIAL", and ".gone" behind it if it is being removed. */
static bool is_ours(const char *name, const char *key, uint32_t attempt)
{
    size_t len = strlen(key);
    unsigned long of = 0;
    unsigned long serial = 0;
    if (strncmp(name, key, len) != 0) {
        return false;
    }
    const char *end = after_number(after_number(name + len, &of), &serial);
    return end != NULL && (*end == '\0' || *end == '.') && (attempt == 0 || attempt == of);
}

static void clean_one(const char *held, const char *key, uint32_t attempt)
{
    DIR *d = opendir(held);
    if (d == NULL) {
        return;
    }
    const struct dirent *e = NULL;
    struct hf_strv ours = {0};
    while ((e = readdir(d)) != NULL) {
        if (is_ours(e->d_name, key, attempt)) {
            hf_strv_take(&ours, hf_asprintf("%s/%s", held, e->d_name));
        }
    }
    closedir(d);
    for (size_t i = 0; i < ours.len; i++) {
        hf_held_drop(ours.items[i]);
    }
    hf_strv_clear(&ours);
    rmdir(held);
}

void hf_held_clean(const struct hf_strv *dirs, const char *key, uint32_t attempt)
{
    for (size_t i = 0; i < dirs->len; i++) {
        HF_CLEANUP(hf_freep) char *above = folder_above(dirs->items[i]);
        HF_CLEANUP(hf_freep) char *inside = hf_asprintf("%s/" HELD, dirs->items[i]);
        HF_CLEANUP(hf_freep)
        char *beside = hf_asprintf("%s/" HELD, above != NULL ? above : dirs->items[i]);
        clean_one(beside, key, attempt);
        clean_one(inside, key, attempt);
    }
}

uint64_t hf_free_bytes(const char *path)
{
    struct statvfs fs;
    return statvfs(path, &fs) == 0 ? (uint64_t)fs.f_bavail * fs.f_frsize : UINT64_MAX;
}
