/* SPDX-License-Identifier: Apache-2.0
 *
 * Watching checkpoint folders. An entry counts when it was renamed into place: inotify says so
 * (IN_MOVED_TO). Where it could not (a folder that appeared only now, an overflown queue) an entry
 * counts whose inode changed after its content did: that is what a rename leaves, unless it came
 * within one tick of the filesystem's clock (4 ms) after the last byte. Entries that are written
 * in place are not taken: whether they are complete cannot be known here.
 */
#include "base/prelude.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fsx.h"
#include "supervisor/rundir.h"
#include "supervisor/watchdir.h"

#define RESCAN_MS 2000
#define STEP_MAX  INT64_C(9007199254740992)

struct dir {
    char *path;
    int wd;           /* -1: not there yet */
    int parent_wd;    /* of the folder above, while this one is not there; -1: none */
    int64_t since_ns; /* the change time of the newest entry that was reported or is old */
    bool old;         /* what is in it was there before it was watched */
};

/* An entry that was renamed into place, and when. */
struct entry {
    char *name;
    int64_t at_ns;
};

struct hf_watchdir {
    struct hf_loop *loop;
    struct hf_watchdir_cb cb;
    void *user;
    struct dir *dirs;
    size_t n_dirs;
    int fd;
    uv_poll_t *poll;
    struct hf_timer rescan;
};

int64_t hf_step_of_name(const char *name)
{
    int64_t step = -1;
    for (const char *p = name; *p != '\0';) {
        if (!isdigit((unsigned char)*p)) {
            p++;
            continue;
        }
        int64_t v = 0;
        for (; isdigit((unsigned char)*p); p++) {
            v = v < 0 || v > STEP_MAX / 10 ? -1 : v * 10 + (*p - '0');
        }
        step = v <= STEP_MAX ? v : -1;
    }
    return step;
}

/* Names that mark what is not a checkpoint: hidden files, our own siblings, the usual half-done
 * ones. */
static bool is_scratch(const char *name)
{
    static const char *const marks[] = {".holdfast-", ".tmp", ".incomplete", "-unfinished"};
    if (name[0] == '.') {
        return true;
    }
    for (size_t i = 0; i < HF_COUNT(marks); i++) {
        if (strstr(name, marks[i]) != NULL) {
            return true;
        }
    }
    return false;
}

static int64_t ns_of(struct timespec t)
{
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static void moved_in(struct hf_watchdir *w, struct dir *d, const char *name)
{
    if (is_scratch(name)) {
        return;
    }
    HF_CLEANUP(hf_freep) char *path = hf_asprintf("%s/%s", d->path, name);
    struct stat st;
    if (lstat(path, &st) != 0 || (!S_ISREG(st.st_mode) && !S_ISDIR(st.st_mode))) {
        return;
    }
    d->since_ns = ns_of(st.st_ctim) > d->since_ns ? ns_of(st.st_ctim) : d->since_ns;
    if (!d->old) {
        w->cb.found(w->user, path, hf_step_of_name(name));
    }
}

static int by_time(const void *a, const void *b)
{
    const struct entry *x = a;
    const struct entry *y = b;
    return x->at_ns != y->at_ns ? (x->at_ns < y->at_ns ? -1 : 1) : strverscmp(x->name, y->name);
}

/* Entries that were renamed in since the folder was last looked at, oldest first. The clock of a
 * filesystem ticks slowly: one of the same tick is taken once more rather than not at all. */
static void look(struct hf_watchdir *w, struct dir *d)
{
    struct dirent **all = NULL;
    int n = scandir(d->path, &all, NULL, NULL);
    struct entry *found = hf_calloc((size_t)(n > 0 ? n : 0) + 1, sizeof(*found));
    size_t len = 0;
    for (int i = 0; i < n; i++) {
        HF_CLEANUP(hf_freep) char *path = hf_asprintf("%s/%s", d->path, all[i]->d_name);
        struct stat st;
        if (lstat(path, &st) == 0 && ns_of(st.st_ctim) >= d->since_ns &&
            ns_of(st.st_ctim) > ns_of(st.st_mtim)) {
            found[len++] = (struct entry){hf_strdup(all[i]->d_name), ns_of(st.st_ctim)};
        }
        hf_free(all[i]);
    }
    hf_free(all);
    qsort(found, len, sizeof(*found), by_time);
    for (size_t i = 0; i < len; i++) {
        moved_in(w, d, found[i].name);
        hf_free(found[i].name);
    }
    hf_free(found);
}

static void arm(struct hf_watchdir *w, struct dir *d)
{
    if (d->wd >= 0) {
        return;
    }
    d->wd = inotify_add_watch(w->fd, d->path, IN_MOVED_TO | IN_MOVE_SELF | IN_ONLYDIR);
    if (d->wd >= 0) {
        look(w, d);
        d->old = false;
        return;
    }
    const char *slash = strrchr(d->path, '/');
    if (d->parent_wd < 0 && slash != d->path) {
        HF_CLEANUP(hf_freep) char *parent = hf_strndup(d->path, (size_t)(slash - d->path));
        d->parent_wd = inotify_add_watch(w->fd, parent, IN_CREATE | IN_MOVED_TO | IN_ONLYDIR);
    }
}

static void one_event(struct hf_watchdir *w, struct dir *d, const struct inotify_event *ev,
                      const char *name)
{
    if ((ev->mask & IN_Q_OVERFLOW) != 0) {
        if (d->wd >= 0) {
            look(w, d);
        }
    } else if (ev->wd == d->parent_wd && d->wd < 0) {
        arm(w, d);
    } else if (ev->wd != d->wd) {
        return;
    } else if ((ev->mask & IN_MOVED_TO) != 0 && ev->len > 0) {
        moved_in(w, d, name);
    } else if ((ev->mask & (IN_IGNORED | IN_MOVE_SELF)) != 0) {
        d->wd = -1;
        d->parent_wd = -1;
    }
}

static void read_events(struct hf_watchdir *w)
{
    char room[16384] __attribute__((aligned(__alignof__(struct inotify_event))));
    for (;;) {
        ssize_t n = read(w->fd, room, sizeof(room));
        if (n <= 0) {
            return;
        }
        for (char *p = room; p < room + n;) {
            struct inotify_event ev;
            memcpy(&ev, p, sizeof(ev));
            for (size_t i = 0; i < w->n_dirs; i++) {
                one_event(w, &w->dirs[i], &ev, p + sizeof(ev));
            }
            p += sizeof(ev) + ev.len;
        }
    }
}

static void readable(uv_poll_t *poll, int status, int events)
{
    (void)status;
    (void)events;
    read_events(poll->data);
}

static void rescan_due(void *user)
{
    struct hf_watchdir *w = user;
    hf_watchdir_scan(w);
    hf_timer_start(&w->rescan, w->loop, RESCAN_MS, rescan_due, w);
}

void hf_watchdir_scan(struct hf_watchdir *w)
{
    for (size_t i = 0; i < w->n_dirs; i++) {
        arm(w, &w->dirs[i]);
    }
    read_events(w);
}

static void poll_closed(uv_handle_t *handle)
{
    hf_free(handle);
}

void hf_watchdir_stop(struct hf_watchdir *w)
{
    if (w == NULL) {
        return;
    }
    hf_timer_close(&w->rescan);
    if (w->poll != NULL) {
        uv_close((uv_handle_t *)w->poll, poll_closed);
    }
    if (w->fd >= 0) {
        close(w->fd);
    }
    for (size_t i = 0; i < w->n_dirs; i++) {
        hf_free(w->dirs[i].path);
    }
    hf_free(w->dirs);
    hf_free(w);
}

static enum hf_rc add_dir(struct hf_watchdir *w, const char *path, struct hf_err *err)
{
    struct stat st;
    if (stat(path, &st) == 0 && !S_ISDIR(st.st_mode)) {
        enum hf_rc rc = hf_fail(err, HF_EINVAL, "--checkpoint-dir '%s' is not a folder", path);
        return hf_hint(err, rc, "Name the folder that the training program saves into.");
    }
    struct dir *d = &w->dirs[w->n_dirs++];
    d->wd = -1;
    d->parent_wd = -1;
    /* What is in a folder that is there now is old; all of one that comes later is new. */
    d->old = hf_fs_exists(path);
    char cwd[PATH_MAX];
    if (getcwd(cwd, sizeof(cwd)) == NULL) {
        return hf_fail_errno(err, errno, "find the working folder");
    }
    d->path = hf_path_from(cwd, path);
    return HF_OK;
}

enum hf_rc hf_watchdir_start(struct hf_loop *loop, const struct hf_strv *dirs,
                             const struct hf_watchdir_cb *cb, void *user, struct hf_watchdir **ret,
                             struct hf_err *err)
{
    struct hf_watchdir *w = HF_NEW(struct hf_watchdir);
    w->loop = loop;
    w->cb = *cb;
    w->user = user;
    w->dirs = hf_calloc(dirs->len, sizeof(*w->dirs));
    w->fd = inotify_init1(IN_NONBLOCK | IN_CLOEXEC);
    enum hf_rc rc = w->fd >= 0 ? HF_OK : hf_fail_errno(err, errno, "watch a checkpoint folder");
    for (size_t i = 0; i < dirs->len && rc == HF_OK; i++) {
        rc = add_dir(w, dirs->items[i], err);
    }
    if (rc == HF_OK) {
        w->poll = HF_NEW(uv_poll_t);
        int n = uv_poll_init(&loop->uv, w->poll, w->fd);
        w->poll->data = w;
        if (n != 0) {
            hf_free(w->poll);
            w->poll = NULL;
            rc = hf_fail(err, HF_EIO, "watch a checkpoint folder: %s", uv_strerror(n));
        }
    }
    if (rc != HF_OK) {
        hf_watchdir_stop(w);
        return rc;
    }
    uv_poll_start(w->poll, UV_READABLE, readable);
    rescan_due(w);
    *ret = w;
    return HF_OK;
}
