/* SPDX-License-Identifier: Apache-2.0
 *
 * supervisor/cgroup: where our own cgroup2 folder lies, read from texts, and a real cgroup made,
 * entered, killed and removed where this machine lets us.
 */
#include "base/prelude.h"

#include <errno.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/fsx.h"
#include "base/mem.h"
#include "supervisor/cgroup.h"
#include "supervisor/tree.h"

#define V1 "30 25 0:26 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory\n"
#define V2 "31 25 0:27 / /sys/fs/cgroup rw,nosuid shared:4 master:1 - cgroup2 cgroup2 rw\n"

static const struct {
    const char *what, *mounts, *self, *want;
} places[] = {
    {"v2", V2, "0::/user.slice/a.scope\n", "/sys/fs/cgroup/user.slice/a.scope"},
    {"v2, the root", V2, "0::/\n", "/sys/fs/cgroup"},
    {"v1 alone", V1, "4:memory:/a\n", NULL},
    {"v1, and a line of v2 without a mount", V1, "4:memory:/a\n0::/\n", NULL},
    {"hybrid", V1 "32 25 0:28 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n",
     "4:memory:/a\n0::/b c\n", "/sys/fs/cgroup/unified/b c"},
    {"a container's bind mount", "31 25 0:27 /docker/ab /sys/fs/cgroup ro - cgroup2 cgroup rw\n",
     "0::/docker/ab/inner\n", "/sys/fs/cgroup/inner"},
    {"the bind mount itself", "31 25 0:27 /docker/ab /sys/fs/cgroup ro - cgroup2 cgroup rw\n",
     "0::/docker/ab\n", "/sys/fs/cgroup"},
    {"a sibling with a longer name", "31 25 0:27 /docker/ab /cg ro - cgroup2 cgroup rw\n",
     "0::/docker/abc\n", NULL},
    {"outside of the namespace", V2, "0::/../x\n", NULL},
    {"the second mount holds it",
     "30 25 0:27 /other /a rw - cgroup2 cgroup rw\n31 25 0:27 / /b rw - cgroup2 cgroup rw\n",
     "0::/x\n", "/b/x"},
    {"an escaped name", "31 25 0:27 / /sys\\040fs rw - cgroup2 cgroup rw\n", "0::/x\n", NULL},
    {"cut short", "31 25 0:27 / /sys", "0::/x\n", NULL},
    {"no end of line", "31 25 0:27 / /c rw - cgroup2 cgroup rw", "0::/x", "/c/x"},
    {"nothing", "", "", NULL},
};

static void finds_our_own(void **state)
{
    (void)state;
    for (size_t i = 0; i < HF_COUNT(places); i++) {
        char *got = hf_cgroup_folder(places[i].mounts, places[i].self);
        bool same = (got == NULL) == (places[i].want == NULL) &&
                    (got == NULL || strcmp(got, places[i].want) == 0);
        if (!same) {
            fail_msg("%s: %s", places[i].what, got != NULL ? got : "none");
        }
        hf_free(got);
    }
}

static bool make_or_skip(const char *token, struct hf_cgroup *g)
{
    struct hf_err err = {0};
    if (hf_cgroup_make(token, g, &err) != HF_OK) {
        print_message("no cgroup can be made here: %s\n", err.msg);
        assert_null(g->dir);
        assert_false(hf_cgroup_enter(g));
        assert_false(hf_cgroup_kill(g));
        hf_cgroup_release(g);
        return false;
    }
    return true;
}

/* In it, in a session of its own, without environment, and a group made below. */
static pid_t start_in(const struct hf_cgroup *g)
{
    int ready[2];
    char c = 0;
    assert_int_equal(pipe(ready), 0);
    pid_t pid = fork();
    if (pid == 0) {
        if (!hf_cgroup_enter(g) || setsid() < 0 || fork() != 0) {
            for (;;) {
                pause();
            }
        }
        (void)!write(ready[1], "x", 1);
        for (;;) {
            pause();
        }
    }
    close(ready[1]);
    assert_int_equal(read(ready[0], &c, 1), 1);
    close(ready[0]);
    return pid;
}

static void kills_and_removes(void **state)
{
    (void)state;
    struct hf_cgroup g;
    if (!make_or_skip("0123456789abcdef", &g)) {
        skip();
    }
    assert_non_null(strstr(g.dir, "-0123456789ab"));
    pid_t pid = start_in(&g);
    char *inner = hf_asprintf("%s/inner", g.dir);
    assert_int_equal(mkdir(inner, 0755), 0);
    char *dir = hf_strdup(g.dir);
    assert_true(hf_cgroup_kill(&g));
    int status = 0;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    for (int i = 0; i < 1000 && access(dir, F_OK) == 0; i++) {
        struct hf_cgroup again = {.dir = hf_strdup(dir), .procs = -1};
        hf_cgroup_release(&again);
        (void)poll(NULL, 0, 2);
    }
    assert_int_equal(access(dir, F_OK), -1);
    hf_cgroup_release(&g);
    assert_null(g.dir);
    hf_free(inner);
    hf_free(dir);
}

/* What keepers that are gone left, also where another process has that number now. */
static void sweeps_left_overs(void **state)
{
    (void)state;
    struct hf_cgroup g;
    if (!make_or_skip("1111111111111111", &g)) {
        skip();
    }
    char *folder = hf_strndup(g.dir, (size_t)(strrchr(g.dir, '/') - g.dir));
    char *left = hf_asprintf("%s/holdfast-1-222222222222", folder);
    char *other = hf_asprintf("%s/not-holdfast-%d", folder, getpid());
    assert_int_equal(mkdir(left, 0755), 0);
    assert_int_equal(mkdir(other, 0755), 0);
    hf_cgroup_release(&g);
    assert_true(make_or_skip("1111111111111111", &g));
    assert_int_equal(access(left, F_OK), -1);
    assert_int_equal(rmdir(other), 0);
    hf_cgroup_release(&g);
    hf_free(other);
    hf_free(left);
    hf_free(folder);
}

static void write_facts(const char *folder, const char *boot, const char *cgroup)
{
    char *path = hf_asprintf("%s/keeper.json", folder);
    char *text = hf_asprintf("{\"boot_id\":\"%s\",\"cgroup\":\"%s\"}", boot, cgroup);
    struct hf_span span = {text, strlen(text)};
    assert_int_equal(hf_fs_write(path, span, 0600, false, NULL), HF_OK);
    hf_free(text);
    hf_free(path);
}

/* Only of this boot, of this token, and of ours; then it is emptied and removed. */
static void ends_what_a_dead_keeper_left(void **state)
{
    (void)state;
    char folder[] = "/tmp/hf-XXXXXX";
    char boot[40];
    struct hf_cgroup g;
    assert_non_null(mkdtemp(folder));
    assert_int_equal(hf_boot_id(boot, NULL), HF_OK);
    hf_cgroup_end(folder, "fedcba9876543210", 10); /* no keeper.json */
    if (!make_or_skip("fedcba9876543210", &g)) {
        assert_int_equal(hf_fs_remove_tree(folder, NULL), HF_OK);
        skip();
    }
    pid_t pid = start_in(&g);
    write_facts(folder, "another-boot", g.dir);
    hf_cgroup_end(folder, "fedcba9876543210", 10);
    write_facts(folder, boot, g.dir);
    hf_cgroup_end(folder, "0000000000000000", 10);
    write_facts(folder, boot, "/sys/fs/cgroup/not-ours-fedcba987654");
    hf_cgroup_end(folder, "fedcba9876543210", 10);
    assert_int_equal(waitpid(pid, NULL, WNOHANG), 0);
    write_facts(folder, boot, g.dir);
    hf_cgroup_end(folder, "fedcba9876543210", 5000);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    hf_cgroup_end(folder, "fedcba9876543210", 5000); /* its zombie is reaped now */
    assert_int_equal(access(g.dir, F_OK), -1);
    hf_cgroup_release(&g);
    assert_int_equal(hf_fs_remove_tree(folder, NULL), HF_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(finds_our_own),
        cmocka_unit_test(kills_and_removes),
        cmocka_unit_test(sweeps_left_overs),
        cmocka_unit_test(ends_what_a_dead_keeper_left),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
