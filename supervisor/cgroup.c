/* SPDX-License-Identifier: Apache-2.0
 *
 * Child cgroups through the file system. Used in the keeper (one thread) and by the supervisor's
 * workers. Nothing here is needed for a tree to end: every failure means "walk the tree". Must
 * never kill in, or remove, a cgroup that was not made here.
 */
#include "base/prelude.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fsx.h"
#include "base/json.h"
#include "base/mem.h"
#include "supervisor/cgroup.h"
#include "supervisor/tree.h"

#define PREFIX     "holdfast-"
#define TOKEN_PART 12
#define TEXT_MAX   (1u << 20)
#define DEPTH_MAX  16
#define PAUSE_MS   10

/* The next field of a mountinfo line; NULL at its end. */
static const char *next_field(const char *p)
{
    const char *end = p + strcspn(p, " \n");
    return *end == ' ' ? end + 1 : NULL;
}

/* Fields 4 (root) and 5 (mount point) of a line, if it is a cgroup2's. */
static bool read_mount(const char *line, char **ret_root, char **ret_point)
{
    const char *field[16] = {line};
    int n = 1;
    while (n < 16 && (field[n] = next_field(field[n - 1])) != NULL) {
        n++;
    }
    int dash = 5;
    while (dash < n && strncmp(field[dash], "- ", 2) != 0) {
        dash++;
    }
    if (dash + 1 >= n || strncmp(field[dash + 1], "cgroup2 ", 8) != 0) {
        return false;
    }
    *ret_root = hf_strndup(field[3], strcspn(field[3], " "));
    *ret_point = hf_strndup(field[4], strcspn(field[4], " "));
    return strchr(*ret_point, '\\') == NULL; /* an escaped name: such a one is not used */
}

static char *own_path(const char *self_cgroup)
{
    for (const char *line = self_cgroup; *line != '\0';) {
        size_t len = strcspn(line, "\n");
        if (strncmp(line, "0::/", 4) == 0) {
            return hf_strndup(line + 3, len - 3);
        }
        line += len + (line[len] == '\n' ? 1 : 0);
    }
    return NULL;
}

/* `own` as seen below a mount whose root is `root`; NULL: not there. */
static char *below(const char *point, const char *root, const char *own)
{
    size_t len = strcmp(root, "/") == 0 ? 0 : strlen(root);
    if (strncmp(own, root, len) != 0 || (own[len] != '/' && own[len] != '\0') ||
        strncmp(own, "/..", 3) == 0) {
        return NULL;
    }
    const char *rest = strcmp(own + len, "/") == 0 ? "" : own + len;
    return hf_asprintf("%s%s", point, rest);
}

char *hf_cgroup_folder(const char *mountinfo, const char *self_cgroup)
{
    HF_CLEANUP(hf_freep) char *own = own_path(self_cgroup);
    char *found = NULL;
    for (const char *line = mountinfo; own != NULL && found == NULL && *line != '\0';) {
        HF_CLEANUP(hf_freep) char *root = NULL;
        HF_CLEANUP(hf_freep) char *point = NULL;
        if (read_mount(line, &root, &point)) {
            found = below(point, root, own);
        }
        size_t len = strcspn(line, "\n");
        line += len + (line[len] == '\n' ? 1 : 0);
    }
    return found;
}

static char *own_folder(void)
{
    struct hf_buf mounts;
    struct hf_buf self;
    hf_buf_init(&mounts, TEXT_MAX);
    hf_buf_init(&self, TEXT_MAX);
    char *folder = NULL;
    if (hf_fs_read("/proc/self/mountinfo", &mounts, NULL) == HF_OK &&
        hf_fs_read("/proc/self/cgroup", &self, NULL) == HF_OK) {
        folder = hf_cgroup_folder(hf_buf_str(&mounts), hf_buf_str(&self));
    }
    hf_buf_release(&mounts);
    hf_buf_release(&self);
    return folder;
}

/* Depth first; what still holds a process stays (EBUSY). */
static void remove_tree(const char *dir, int depth)
{
    DIR *d = depth < DEPTH_MAX ? opendir(dir) : NULL;
    for (struct dirent *e = d != NULL ? readdir(d) : NULL; e != NULL; e = readdir(d)) {
        if (e->d_type == DT_DIR && e->d_name[0] != '.') {
            HF_CLEANUP(hf_freep) char *inner = hf_asprintf("%s/%s", dir, e->d_name);
            remove_tree(inner, depth + 1);
        }
    }
    if (d != NULL) {
        closedir(d);
    }
    (void)rmdir(dir);
}

static bool is_keeper(long pid)
{
    char comm[32] = "";
    return hf_proc_file((pid_t)pid, "comm", comm, sizeof comm) > 0 &&
           strcmp(comm, "holdfast-keeper\n") == 0;
}

/* Of keepers that are gone. One of another pid namespace may be taken for gone: it is not removed
 * as long as a process is in it, and a keeper that finds none walks its tree. */
static void sweep(const char *folder)
{
    DIR *d = opendir(folder);
    for (struct dirent *e = d != NULL ? readdir(d) : NULL; e != NULL; e = readdir(d)) {
        if (e->d_type != DT_DIR || strncmp(e->d_name, PREFIX, strlen(PREFIX)) != 0) {
            continue;
        }
        long pid = strtol(e->d_name + strlen(PREFIX), NULL, 10);
        if (pid > 0 && !is_keeper(pid)) {
            HF_CLEANUP(hf_freep) char *dir = hf_asprintf("%s/%s", folder, e->d_name);
            remove_tree(dir, 0);
        }
    }
    if (d != NULL) {
        closedir(d);
    }
}

enum hf_rc hf_cgroup_make(const char *token, struct hf_cgroup *ret, struct hf_err *err)
{
    *ret = (struct hf_cgroup){.procs = -1};
    HF_CLEANUP(hf_freep) char *folder = own_folder();
    if (folder == NULL) {
        return hf_fail(err, HF_ENOTSUP, "no cgroup2 is mounted");
    }
    sweep(folder);
    char *dir = hf_asprintf("%s/" PREFIX "%d-%.*s", folder, getpid(), TOKEN_PART, token);
    if (mkdir(dir, 0755) != 0) {
        int num = errno;
        hf_fail_errno(err, num, "make cgroup '%s'", dir);
        hf_free(dir);
        return HF_ENOTSUP;
    }
    HF_CLEANUP(hf_freep) char *procs = hf_asprintf("%s/cgroup.procs", dir);
    HF_CLEANUP(hf_freep) char *kill_file = hf_asprintf("%s/cgroup.kill", dir);
    int fd = access(kill_file, W_OK) == 0 ? open(procs, O_WRONLY | O_CLOEXEC) : -1;
    if (fd < 0) {
        hf_fail_errno(err, errno, "use cgroup '%s'", dir);
        (void)rmdir(dir);
        hf_free(dir);
        return HF_ENOTSUP;
    }
    *ret = (struct hf_cgroup){.dir = dir, .procs = fd};
    return HF_OK;
}

bool hf_cgroup_enter(const struct hf_cgroup *g)
{
    return g->procs >= 0 && write(g->procs, "0\n", 2) == 2; /* 0: the writer itself */
}

static bool write_kill(const char *dir)
{
    HF_CLEANUP(hf_freep) char *path = hf_asprintf("%s/cgroup.kill", dir);
    HF_CLEANUP(hf_closep) int fd = open(path, O_WRONLY | O_CLOEXEC);
    return fd >= 0 && write(fd, "1\n", 2) == 2;
}

bool hf_cgroup_kill(const struct hf_cgroup *g)
{
    return g->dir != NULL && write_kill(g->dir);
}

void hf_cgroup_release(struct hf_cgroup *g)
{
    if (g->dir != NULL) {
        remove_tree(g->dir, 0);
    }
    hf_free(g->dir);
    hf_closep(&g->procs);
    *g = (struct hf_cgroup){.procs = -1};
}

/* The path that the dead keeper noted, if it is of this boot and of this attempt. */
static char *noted_dir(const char *attempt_dir, const char *token)
{
    HF_CLEANUP(hf_freep) char *path = hf_asprintf("%s/keeper.json", attempt_dir);
    HF_CLEANUP(hf_json_freep) cJSON *obj = NULL;
    HF_CLEANUP(hf_freep) char *want = hf_asprintf("-%.*s", TOKEN_PART, token);
    char boot[40] = "";
    struct hf_buf text;
    hf_buf_init(&text, TEXT_MAX);
    enum hf_rc rc = hf_fs_read(path, &text, NULL);
    if (rc == HF_OK) {
        rc = hf_json_parse(hf_buf_span(&text), TEXT_MAX, &obj, NULL);
    }
    hf_buf_release(&text);
    if (rc != HF_OK || hf_boot_id(boot, NULL) != HF_OK) {
        return NULL;
    }
    const char *dir = hf_json_opt_str(obj, "cgroup", "");
    const char *name = strrchr(dir, '/');
    bool ours = name != NULL && strncmp(name + 1, PREFIX, strlen(PREFIX)) == 0 &&
                strlen(name) > strlen(want) &&
                strcmp(name + strlen(name) - strlen(want), want) == 0 &&
                strcmp(hf_json_opt_str(obj, "boot_id", ""), boot) == 0;
    return ours ? hf_strdup(dir) : NULL;
}

void hf_cgroup_end(const char *attempt_dir, const char *token, uint32_t timeout_ms)
{
    HF_CLEANUP(hf_freep) char *dir = noted_dir(attempt_dir, token);
    uint64_t until = hf_now_ns() + timeout_ms * HF_MS;
    if (dir == NULL || !write_kill(dir)) {
        return;
    }
    remove_tree(dir, 0);
    while (access(dir, F_OK) == 0 && hf_now_ns() < until) {
        (void)poll(NULL, 0, PAUSE_MS);
        remove_tree(dir, 0);
    }
}
