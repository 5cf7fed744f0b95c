/* SPDX-License-Identifier: Apache-2.0
 *
 * A bench for the hooks: the real server on the test's loop, and ranks that are forked processes
 * running a small training loop through the C client. What a rank did comes back through a shared
 * page. One thread.
 */
#ifndef HF_TESTS_SUPPORT_RANKS_H
#define HF_TESTS_SUPPORT_RANKS_H

#include "base/prelude.h"

#include <sys/types.h>

#include "hooks/server.h"

#define RANKS   3
#define PATIENT 20000 /* milliseconds that anything may take */

/* How a rank behaves, and what became of it; shared with its process. */
struct rank_box {
    /* orders */
    int64_t steps;
    uint32_t step_us;
    uint32_t save_ms;
    int64_t stall_at;  /* sleeps there until `go`; -1: never */
    int64_t own_every; /* saves of its own, 0: none */
    bool no_done;
    volatile bool go;
    /* facts */
    volatile int64_t start, at, saved_at;
    volatile uint32_t n_saves;
    volatile bool active, finished;
    char resumed_from[256];
    char saved_path[256];
};

struct track {
    struct hf_loop loop;
    struct hf_hooks *hooks;
    struct hf_hooks_cb cb;
    char dir[64], att[80], save_dir[80];
    struct rank_box *box; /* RANKS of them */
    pid_t pids[RANKS];
    uint32_t world;
    /* heard from the server */
    uint32_t n_joined, n_saved, n_ended, n_resumed, n_done;
    uint32_t joined_life;
    struct hf_hook_save save; /* the last one; the lists are not kept */
    char save_path[256];
    size_t save_paths;
    uint64_t ended_id;
    enum hf_request_end ended;
    char why[256];
    int64_t resumed_step;
};

/* For cmocka: *state is a struct track. */
int track_setup(void **state);
int track_teardown(void **state); /* kills what still runs; fails when the loop is not clean */

void track_open(struct track *b, const char *resume, int64_t resume_step);
/* The environment of a trainer, here; undone by track_clear_env. */
void track_set_env(const struct track *b);
void track_clear_env(void);

/* Starts a process with this box and rank; its pid goes to pids[box]. */
void track_start(struct track *b, uint32_t box, uint32_t rank);
void track_start_all(struct track *b);          /* and waits until each has done some steps */
int track_wait(struct track *b, uint32_t rank); /* the raw status of one that has ended */

/* holdfast_resume's `load`: notes the path in a struct rank_box; fails for "unreadable". */
int track_load(void *user, const char *path);
void track_nap_us(uint32_t us);

#define RUN_UNTIL(b, cond) assert_true(hf_test_run_until(&(b)->loop, cond, (b), PATIENT))
bool track_all_running(void *user);
bool track_ended(void *user);
bool track_saved(void *user);

#endif
