/* SPDX-License-Identifier: Apache-2.0
 *
 * inotify. Loop thread; it reads no file and lists no folder. A watch belongs to an inode: several
 * of our folders may share one.
 */
#include "base/prelude.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/inotify.h>
#include <unistd.h>

#include "supervisor/watch_hints.h"

#define NODES_MAX 512 /* the limit of a user is 8192 on small machines */
#define DEPTH_MAX 3   /* of folders below a given one that are watched */
#define INSIDE                                                                               \
    (IN_CLOSE_WRITE | IN_MOVED_TO | IN_MOVED_FROM | IN_CREATE | IN_DELETE | IN_DELETE_SELF | \
     IN_MOVE_SELF | IN_ONLYDIR | IN_MASK_ADD)
#define ABOVE (IN_CREATE | IN_MOVED_TO | IN_ONLYDIR | IN_MASK_ADD)

struct node {
    char *path;
    int wd;         /* -1: not watched */
    int above_wd;   /* of the folder above, while a given one is not there; -1: none */
    unsigned depth; /* 0: a given one */
};

struct hf_hints {
    struct hf_hints_cb cb;
    void *user;
    struct node *nodes;
    size_t len;
    int fd;
    uv_poll_t *poll;
    bool started;
};

static void node_remove(struct hf_hints *h, size_t i)
{
    hf_free(h->nodes[i].path);
    h->nodes[i] = h->nodes[--h->len];
}

static void node_add(struct hf_hints *h, const char *path, unsigned depth)
{
    h->nodes = hf_realloc(h->nodes, (h->len + 1) * sizeof(*h->nodes));
    h->nodes[h->len++] =
        (struct node){.path = hf_strdup(path), .wd = -1, .above_wd = -1, .depth = depth};
}

static bool shared(const struct hf_hints *h, int wd)
{
    size_t users = 0;
    for (size_t i = 0; i < h->len; i++) {
        users += (h->nodes[i].wd == wd) + (h->nodes[i].above_wd == wd);
    }
    return users > 1;
}

static void leave_above(struct hf_hints *h, struct node *n)
{
    if (n->above_wd >= 0 && !shared(h, n->above_wd)) {
        inotify_rm_watch(h->fd, n->above_wd);
    }
    n->above_wd = -1;
}

/* Watches the folder, or the one above until it is there. */
static bool arm(struct hf_hints *h, struct node *n)
{
    if (n->wd >= 0) {
        return true;
    }
    n->wd = inotify_add_watch(h->fd, n->path, INSIDE);
    if (n->wd >= 0) {
        leave_above(h, n);
        if (h->started) {
            h->cb.lost(h->user); /* what was made in it before now was not told */
            h->cb.hint(h->user);
        }
        return true;
    }
    const char *slash = strrchr(n->path, '/');
    if (n->depth == 0 && n->above_wd < 0 && slash != n->path) {
        HF_CLEANUP(hf_freep) char *above = hf_strndup(n->path, (size_t)(slash - n->path));
        n->above_wd = inotify_add_watch(h->fd, above, ABOVE);
    }
    return false;
}

static void add(struct hf_hints *h, const char *folder, unsigned depth)
{
    if (h->len >= NODES_MAX || depth > DEPTH_MAX) {
        return;
    }
    for (size_t i = 0; i < h->len; i++) {
        if (strcmp(h->nodes[i].path, folder) == 0) {
            return;
        }
    }
    int wd = inotify_add_watch(h->fd, folder, INSIDE);
    if (wd >= 0) {
        node_add(h, folder, depth);
        h->nodes[h->len - 1].wd = wd;
    }
}

void hf_hints_add(struct hf_hints *h, const char *folder)
{
    add(h, folder, DEPTH_MAX);
}

/* The watch is of no use any more: its folder went, or has another name now. */
static void unwatch(struct hf_hints *h, int wd, bool removed)
{
    if (!removed) {
        inotify_rm_watch(h->fd, wd);
    }
    for (size_t i = h->len; i-- > 0;) {
        struct node *n = &h->nodes[i];
        n->above_wd = n->above_wd == wd ? -1 : n->above_wd;
        if (n->wd != wd) {
            continue;
        }
        n->wd = -1;
        if (n->depth > 0) {
            node_remove(h, i);
        }
    }
}

static void one_event(struct hf_hints *h, const struct inotify_event *ev, const char *name)
{
    if ((ev->mask & IN_Q_OVERFLOW) != 0) {
        h->cb.lost(h->user);
        h->cb.hint(h->user);
        return;
    }
    if ((ev->mask & (IN_IGNORED | IN_MOVE_SELF)) != 0) {
        unwatch(h, ev->wd, (ev->mask & IN_IGNORED) != 0);
        h->cb.hint(h->user);
        return;
    }
    bool ours = ev->len > 0 && strstr(name, ".holdfast-") != NULL;
    for (size_t i = 0; i < h->len && !ours; i++) {
        struct node *n = &h->nodes[i];
        if (n->wd == ev->wd) {
            HF_CLEANUP(hf_freep)
            char *path = hf_asprintf("%s/%s", n->path, ev->len > 0 ? name : "");
            unsigned depth = n->depth + 1;
            if ((ev->mask & IN_MOVED_TO) != 0) {
                h->cb.renamed(h->user, path);
            }
            if ((ev->mask & IN_ISDIR) != 0 && (ev->mask & (IN_CREATE | IN_MOVED_TO)) != 0) {
                add(h, path, depth); /* n may have moved */
            }
            h->cb.hint(h->user);
        } else if (n->above_wd == ev->wd) {
            arm(h, n);
        }
    }
}

static void read_events(struct hf_hints *h)
{
    char room[16384] __attribute__((aligned(__alignof__(struct inotify_event))));
    for (;;) {
        ssize_t n = read(h->fd, room, sizeof(room));
        if (n <= 0) {
            return;
        }
        for (char *p = room; p < room + n;) {
            struct inotify_event ev;
            memcpy(&ev, p, sizeof(ev));
            one_event(h, &ev, p + sizeof(ev));
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

bool hf_hints_refresh(struct hf_hints *h)
{
    bool all = true;
    read_events(h);
    for (size_t i = 0; i < h->len; i++) {
        all = arm(h, &h->nodes[i]) && all;
    }
    return all;
}

static void poll_closed(uv_handle_t *handle)
{
    hf_free(handle);
}

void hf_hints_stop(struct hf_hints *h)
{
    if (h == NULL) {
        return;
    }
    if (h->poll != NULL) {
        uv_close((uv_handle_t *)h->poll, poll_closed);
    }
    if (h->fd >= 0) {
        close(h->fd);
    }
    while (h->len > 0) {
        node_remove(h, 0);
    }
    hf_free(h->nodes);
    hf_free(h);
}

static enum hf_rc start_poll(struct hf_hints *h, struct hf_loop *loop, struct hf_err *err)
{
    h->poll = HF_NEW(uv_poll_t);
    int n = uv_poll_init(&loop->uv, h->poll, h->fd);
    h->poll->data = h;
    if (n != 0) {
        hf_free(h->poll);
        h->poll = NULL;
        return hf_fail(err, HF_EIO, "watch a checkpoint folder: %s", uv_strerror(n));
    }
    uv_poll_start(h->poll, UV_READABLE, readable);
    return HF_OK;
}

enum hf_rc hf_hints_start(struct hf_loop *loop, const struct hf_strv *dirs,
                          const struct hf_hints_cb *cb, void *user, struct hf_hints **ret,
                          struct hf_err *err)
{
    struct hf_hints *h = HF_NEW(struct hf_hints);
    h->cb = *cb;
    h->user = user;
    h->fd = inotify_init1(IN_NONBLOCK | IN_CLOEXEC);
    enum hf_rc rc = h->fd >= 0 ? start_poll(h, loop, err)
                               : hf_fail_errno(err, errno, "watch a checkpoint folder");
    if (rc != HF_OK) {
        hf_hints_stop(h);
        return rc;
    }
    for (size_t i = 0; i < dirs->len; i++) {
        node_add(h, dirs->items[i], 0);
        arm(h, &h->nodes[h->len - 1]);
    }
    h->started = true;
    *ret = h;
    return HF_OK;
}
