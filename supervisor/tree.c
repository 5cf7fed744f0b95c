/* SPDX-License-Identifier: Apache-2.0
 *
 * Process trees through /proc: who descends from whom, who bears a token, and signals that never
 * reach a recycled pid. Runs in the keeper and on the supervisor's loop thread; reads small
 * files only, keeps no state. Must not trust a pid without its start time, and must not list the
 * caller or its ancestors.
 */
#include "base/prelude.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/mem.h"
#include "supervisor/tree.h"

#define SCAN_PAUSE_MS 20
#define STAT_MAX      4096

/* One pass over /proc; `alive` is false for zombies. */
struct seen {
    struct hf_proc proc;
    bool alive, chosen;
};

struct scan {
    struct seen *items;
    size_t len, cap;
};

static void scan_release(struct scan *s)
{
    hf_free(s->items);
    *s = (struct scan){0};
}

/* Reads a small /proc file into text[size], terminated. Returns its length, or -1. */
static ssize_t read_small(const char *path, char *text, size_t size)
{
    HF_CLEANUP(hf_closep) int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        return -1;
    }
    size_t len = 0;
    while (len < size - 1) {
        ssize_t n = read(fd, text + len, size - 1 - len);
        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n < 0) {
            return -1;
        }
        if (n == 0) {
            break;
        }
        len += (size_t)n;
    }
    text[len] = '\0';
    return (ssize_t)len;
}

ssize_t hf_proc_file(pid_t pid, const char *name, char *text, size_t size)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/%s", pid, name);
    return read_small(path, text, size);
}

/* Field `index` (as proc(5) counts) of the part of stat that follows the name. */
static const char *stat_field(const char *after_name, int index)
{
    const char *p = after_name;
    for (int i = 3; i < index && p != NULL; i++) {
        p = strchr(p, ' ');
        p = p == NULL ? NULL : p + 1;
    }
    return p;
}

/* The name may hold blanks and brackets: what follows its last ')' is counted. */
static bool read_stat(pid_t pid, struct hf_proc *ret, bool *ret_alive)
{
    char path[64];
    char text[STAT_MAX];
    snprintf(path, sizeof path, "/proc/%d/stat", pid);
    if (read_small(path, text, sizeof text) <= 0) {
        return false;
    }
    char *open_at = strchr(text, '(');
    char *close_at = strrchr(text, ')');
    if (open_at == NULL || close_at == NULL || close_at[1] != ' ') {
        return false;
    }
    const char *rest = close_at + 2;
    const char *ppid = stat_field(rest, 4);
    const char *threads = stat_field(rest, 20);
    const char *start = stat_field(rest, 22);
    if (ppid == NULL || threads == NULL || start == NULL) {
        return false;
    }
    *ret = (struct hf_proc){.pid = pid,
                            .ppid = (pid_t)strtol(ppid, NULL, 10),
                            .start = strtoull(start, NULL, 10),
                            .state = rest[0]};
    *close_at = '\0';
    snprintf(ret->name, sizeof ret->name, "[%.60s]", open_at + 1);
    /* A process whose first thread has ended shows Z while its other threads go on. */
    *ret_alive = (rest[0] != 'Z' && rest[0] != 'X') || strtol(threads, NULL, 10) > 1;
    return true;
}

/* The command line says more than the 15 bytes of comm; kernel threads and cleared ones have
 * none. */
static void read_name(struct hf_proc *p)
{
    char path[64];
    char text[sizeof p->name];
    snprintf(path, sizeof path, "/proc/%d/cmdline", p->pid);
    ssize_t len = read_small(path, text, sizeof text);
    while (len > 0 && text[len - 1] == '\0') {
        len--;
    }
    if (len <= 0) {
        return;
    }
    for (ssize_t i = 0; i < len; i++) {
        unsigned char c = (unsigned char)text[i];
        if (c == '\0') {
            text[i] = ' ';
        } else if (c < 0x20 || c == 0x7f) {
            text[i] = '?';
        }
    }
    memcpy(p->name, text, (size_t)len);
    p->name[len] = '\0';
}

static bool read_pid(const char *name, pid_t *ret)
{
    char *end = NULL;
    errno = 0;
    long n = strtol(name, &end, 10);
    if (name[0] < '1' || name[0] > '9' || *end != '\0' || errno != 0 || n > INT32_MAX) {
        return false;
    }
    *ret = (pid_t)n;
    return true;
}

static int by_pid(const void *a, const void *b)
{
    const struct seen *x = (const struct seen *)a;
    const struct seen *y = (const struct seen *)b;
    return (x->proc.pid > y->proc.pid) - (x->proc.pid < y->proc.pid);
}

static enum hf_rc scan_all(struct scan *s, struct hf_err *err)
{
    DIR *dir = opendir("/proc");
    if (dir == NULL) {
        return hf_fail_errno(err, errno, "open '/proc'");
    }
    const struct dirent *entry = NULL;
    while ((entry = readdir(dir)) != NULL) {
        struct seen item = {0};
        pid_t pid = 0;
        if (!read_pid(entry->d_name, &pid) || !read_stat(pid, &item.proc, &item.alive)) {
            continue;
        }
        if (s->len == s->cap) {
            s->cap = s->cap == 0 ? 256 : s->cap * 2;
            s->items = hf_realloc(s->items, s->cap * sizeof s->items[0]);
        }
        s->items[s->len++] = item;
    }
    closedir(dir);
    if (s->len > 0) {
        qsort(s->items, s->len, sizeof s->items[0], by_pid);
    }
    return HF_OK;
}

static struct seen *scan_find(struct scan *s, pid_t pid)
{
    struct seen key = {.proc.pid = pid};
    return s->len == 0 ? NULL
                       : (struct seen *)bsearch(&key, s->items, s->len, sizeof s->items[0], by_pid);
}

/* Chooses every child of a chosen process (or of root), until a pass finds no more. */
static void choose_children(struct scan *s, pid_t root)
{
    bool more = true;
    while (more) {
        more = false;
        for (size_t i = 0; i < s->len; i++) {
            struct seen *item = &s->items[i];
            if (item->chosen) {
                continue;
            }
            const struct seen *parent = scan_find(s, item->proc.ppid);
            if (item->proc.ppid == root || (parent != NULL && parent->chosen)) {
                item->chosen = true;
                more = true;
            }
        }
    }
}

static void spare_self(struct scan *s)
{
    pid_t pid = getpid();
    for (size_t depth = 0; pid > 0 && depth <= s->len; depth++) {
        struct seen *item = scan_find(s, pid);
        if (item == NULL) {
            return;
        }
        item->chosen = false;
        pid = item->proc.ppid;
    }
}

static void scan_take(struct scan *s, struct hf_procs *ret)
{
    struct hf_procs out = {0};
    for (size_t i = 0; i < s->len; i++) {
        if (!s->items[i].chosen || !s->items[i].alive) {
            continue;
        }
        out.items = hf_realloc(out.items, (out.len + 1) * sizeof out.items[0]);
        read_name(&s->items[i].proc);
        out.items[out.len++] = s->items[i].proc;
    }
    *ret = out;
}

enum hf_rc hf_tree_descendants(pid_t root, struct hf_procs *ret, struct hf_err *err)
{
    struct scan s = {0};
    enum hf_rc rc = scan_all(&s, err);
    if (rc == HF_OK) {
        choose_children(&s, root);
        spare_self(&s);
        scan_take(&s, ret);
    }
    scan_release(&s);
    return rc;
}

/* Whether the environment of `pid`, as far as we may read it, has exactly that entry. Read in
 * pieces: it can be megabytes. */
static bool bears(pid_t pid, const char *entry, size_t entry_len)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/environ", pid);
    HF_CLEANUP(hf_closep) int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        return false;
    }
    char piece[4096];
    size_t matched = 0; /* bytes of `entry` matched so far in this one */
    bool same = true;   /* nothing has differed since this one began */
    while (true) {
        ssize_t n = read(fd, piece, sizeof piece);
        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n <= 0) {
            return n == 0 && same && matched == entry_len;
        }
        for (ssize_t i = 0; i < n; i++) {
            if (piece[i] == '\0') {
                if (same && matched == entry_len) {
                    return true;
                }
                matched = 0;
                same = true;
            } else if (same && matched < entry_len && piece[i] == entry[matched]) {
                matched++;
            } else {
                same = false;
            }
        }
    }
}

static enum hf_rc scan_token(struct scan *s, const char *token, struct hf_err *err)
{
    HF_TRY(scan_all(s, err));
    HF_CLEANUP(hf_freep) char *entry = hf_asprintf("HOLDFAST_TOKEN=%s", token);
    size_t len = strlen(entry);
    for (size_t i = 0; i < s->len; i++) {
        s->items[i].chosen = s->items[i].alive && bears(s->items[i].proc.pid, entry, len);
    }
    spare_self(s);
    return HF_OK;
}

enum hf_rc hf_tree_by_token(const char *token, struct hf_procs *ret, struct hf_err *err)
{
    struct scan s = {0};
    enum hf_rc rc = scan_token(&s, token, err);
    if (rc == HF_OK) {
        scan_take(&s, ret);
    }
    scan_release(&s);
    return rc;
}

void hf_procs_release(struct hf_procs *p)
{
    hf_free(p->items);
    *p = (struct hf_procs){0};
}

enum hf_rc hf_tree_signal(const struct hf_proc *p, int sig, struct hf_err *err)
{
    HF_CLEANUP(hf_closep) int fd = (int)syscall(SYS_pidfd_open, p->pid, 0);
    if (fd < 0) {
        return errno == ESRCH ? HF_OK : hf_fail_errno(err, errno, "open process %d", p->pid);
    }
    /* The descriptor is held now: if the start time still fits, it is the process meant. */
    if (hf_proc_start(p->pid) != p->start) {
        return HF_OK;
    }
    if (syscall(SYS_pidfd_send_signal, fd, sig, NULL, 0) != 0 && errno != ESRCH) {
        return hf_fail_errno(err, errno, "send signal %d to process %d '%s'", sig, p->pid, p->name);
    }
    return HF_OK;
}

bool hf_proc_catches(pid_t pid, int sig)
{
    char path[64];
    char text[8192];
    snprintf(path, sizeof path, "/proc/%d/status", pid);
    if (sig < 1 || sig > 64 || read_small(path, text, sizeof text) <= 0) {
        return false;
    }
    const char *line = strstr(text, "\nSigCgt:");
    if (line == NULL) {
        return false;
    }
    uint64_t mask = strtoull(line + strlen("\nSigCgt:"), NULL, 16);
    return ((mask >> (sig - 1)) & 1) != 0;
}

uint64_t hf_proc_start(pid_t pid)
{
    struct hf_proc p = {0};
    bool alive = false;
    return read_stat(pid, &p, &alive) ? p.start : 0;
}

bool hf_proc_alive(pid_t pid, uint64_t start)
{
    struct hf_proc p = {0};
    bool alive = false;
    return read_stat(pid, &p, &alive) && alive && p.start == start;
}

bool hf_proc_below(pid_t pid, pid_t root)
{
    struct hf_proc p = {.ppid = pid};
    bool alive = false;
    /* Far more than any tree is deep; a cycle needs pids to be reused while this reads. */
    for (int depth = 0; p.ppid > 0 && depth < 4096; depth++) {
        if (p.ppid == root) {
            return true;
        }
        if (!read_stat(p.ppid, &p, &alive)) {
            return false;
        }
    }
    return false;
}

bool hf_proc_get(pid_t pid, struct hf_proc *ret)
{
    bool alive = false;
    if (!read_stat(pid, ret, &alive) || !alive) {
        return false;
    }
    read_name(ret);
    return true;
}

uint64_t hf_procs_cpu_ms(const struct hf_procs *p)
{
    uint64_t ticks = 0;
    for (size_t i = 0; i < p->len; i++) {
        char text[STAT_MAX];
        if (hf_proc_file(p->items[i].pid, "stat", text, sizeof text) <= 0) {
            continue;
        }
        const char *close_at = strrchr(text, ')');
        const char *field = close_at == NULL ? NULL : stat_field(close_at + 2, 14);
        for (int n = 0; n < 4 && field != NULL; n++) { /* utime, stime, cutime, cstime */
            ticks += strtoull(field, NULL, 10);
            field = stat_field(field, 4);
        }
    }
    return ticks * 1000 / (uint64_t)sysconf(_SC_CLK_TCK);
}

/* One round: every bearer and, since a child may have cleared its environment, all that descends
 * from one. *ret_left: how many there were; *ret_first: the first of them. */
static enum hf_rc kill_round(const char *token, size_t *ret_left, struct hf_proc *ret_first,
                             struct hf_err *err)
{
    struct scan s = {0};
    struct hf_procs left = {0};
    enum hf_rc rc = scan_token(&s, token, err);
    if (rc == HF_OK) {
        choose_children(&s, -1);
        spare_self(&s);
        scan_take(&s, &left);
    }
    scan_release(&s);
    if (rc != HF_OK) {
        return rc;
    }
    *ret_left = left.len;
    if (left.len > 0) {
        *ret_first = left.items[0];
    }
    for (size_t i = 0; i < left.len; i++) {
        /* The first error is kept; the others are still to be ended. */
        enum hf_rc one = hf_tree_signal(&left.items[i], SIGKILL, rc == HF_OK ? err : NULL);
        rc = rc == HF_OK ? one : rc;
    }
    hf_procs_release(&left);
    return rc;
}

enum hf_rc hf_tree_kill_token(const char *token, uint32_t timeout_ms, struct hf_err *err)
{
    uint64_t until = hf_now_ns() + timeout_ms * HF_MS;
    unsigned clean = 0;
    while (true) {
        size_t left = 0;
        struct hf_proc first = {0};
        HF_TRY(kill_round(token, &left, &first, err));
        clean = left == 0 ? clean + 1 : 0;
        if (clean == 2) {
            return HF_OK;
        }
        if (left > 0 && hf_now_ns() >= until) {
            hf_fail(err, HF_ETIMEOUT, "process %d '%s' (state %c) is still there after SIGKILL",
                    first.pid, first.name, first.state);
            return hf_hint(err, HF_ETIMEOUT,
                           "A process in state D waits inside the kernel; it ends when that "
                           "device or network file system answers.");
        }
        (void)poll(NULL, 0, SCAN_PAUSE_MS);
    }
}

enum hf_rc hf_boot_id(char out[40], struct hf_err *err)
{
    char text[64];
    ssize_t len = read_small("/proc/sys/kernel/random/boot_id", text, sizeof text);
    if (len < 36) {
        return hf_fail(err, HF_EIO, "read '/proc/sys/kernel/random/boot_id'");
    }
    memcpy(out, text, 36);
    out[36] = '\0';
    return HF_OK;
}

uint64_t hf_pid_ns(void)
{
    struct stat st;
    return stat("/proc/self/ns/pid", &st) == 0 ? st.st_ino : 0;
}
