/* SPDX-License-Identifier: Apache-2.0
 *
 * The C client: a rank's side of hook protocol 1 (docs/protocols.md). Runs on the thread of the
 * training loop and starts none. Must never print, end the process, wait on a socket, or wait
 * longer than holdfast.h says; must not write to a slot that no welcome gave it, nor in a forked
 * child. Stands alone: no other file of the project but the two private headers.
 */
#ifndef _GNU_SOURCE
#    define _GNU_SOURCE
#endif

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "client.h"

#define SPIN_NS (50 * UINT64_C(1000)) /* of holding before sleeping */

/* The runs of this process, for the fork handlers: pthread_atfork passes no argument. */
static pthread_mutex_t runs_lock = PTHREAD_MUTEX_INITIALIZER;
static struct holdfast *runs;
static pthread_once_t fork_once = PTHREAD_ONCE_INIT;

static void before_fork(void)
{
    pthread_mutex_lock(&runs_lock);
}

static void after_fork(void)
{
    pthread_mutex_unlock(&runs_lock);
}

static void in_child(void)
{
    for (struct holdfast *run = runs; run; run = run->next) {
        run->mode = DEAD;
        if (run->fd >= 0) {
            close(run->fd); /* else the supervisor would not see the parent's end */
            run->fd = -1;
        }
    }
    pthread_mutex_unlock(&runs_lock);
}

static void watch_forks(void)
{
    pthread_atfork(before_fork, after_fork, in_child);
}

static void pause_ms(void)
{
    nanosleep(&(struct timespec){.tv_nsec = (long)MS}, NULL);
}

static char *copy(const char *text)
{
    return text ? strdup(text) : NULL;
}

static bool map_control(struct holdfast *run)
{
    int fd = open(run->control_path, O_RDWR | O_CLOEXEC);
    struct stat st;
    void *map = MAP_FAILED;
    if (fd >= 0 && fstat(fd, &st) == 0 && (size_t)st.st_size == HFW_SIZE) {
        map = mmap(NULL, HFW_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    }
    if (fd >= 0) {
        close(fd);
    }
    if (map == MAP_FAILED) {
        return false;
    }
    run->head = map;
    return hfw_load(&run->head->magic) == HFW_MAGIC && run->head->version == HFW_VERSION &&
           run->head->slots == HFW_SLOTS;
}

static bool env_number(const char *name, int64_t max, int64_t *ret)
{
    const char *text = getenv(name);
    char *end;
    if (!text || *text < '0' || *text > '9') {
        return false;
    }
    errno = 0;
    long long value = strtoll(text, &end, 10);
    if (*end || errno || value > max) {
        return false;
    }
    *ret = value;
    return true;
}

static void find_rank(struct holdfast *run)
{
    static const char *const names[][2] = {
        {"RANK", "WORLD_SIZE"},
        {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"},
        {"PMI_RANK", "PMI_SIZE"},
        {"SLURM_PROCID", "SLURM_STEP_NUM_TASKS"},
    };
    run->rank_no = 0;
    run->world = 1;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        int64_t rank;
        int64_t world;
        if (env_number(names[i][0], INT32_MAX, &rank) &&
            env_number(names[i][1], INT32_MAX, &world) && rank < world) {
            run->rank_no = (uint32_t)rank;
            run->world = (uint32_t)world;
            return;
        }
    }
}

static bool make_token(char out[17])
{
    unsigned char raw[8];
    if (getrandom(raw, sizeof raw, 0) != (ssize_t)sizeof raw) {
        return false;
    }
    for (size_t i = 0; i < sizeof raw; i++) {
        snprintf(out + 2 * i, 3, "%02x", raw[i]);
    }
    return true;
}

static void read_opts(struct holdfast *run, const struct holdfast_opts *given)
{
    struct holdfast_opts opts = {0};
    if (given) {
        memcpy(&opts, given, given->size < sizeof opts ? given->size : sizeof opts);
    }
    snprintf(run->framework, sizeof run->framework, "%s", opts.framework ? opts.framework : "c");
    run->last = opts.steps > 0 && opts.steps <= HFW_STEP_MAX ? opts.steps - 1 : -1;
    find_rank(run);
    if (opts.world > 0 && opts.rank < opts.world) {
        run->world = opts.world;
        run->rank_no = opts.rank;
    }
    const char *dir = getenv("HOLDFAST_SAVE_DIR");
    if (!dir) {
        dir = opts.save_dir ? opts.save_dir : "checkpoints";
    }
    run->save_dir = copy(dir);
    run->resume_path = copy(getenv("HOLDFAST_RESUME"));
    env_number("HOLDFAST_RESUME_STEP", HFW_STEP_MAX, &run->resume_step);
}

/* Inside Holdfast: the file mapped, buffers made. False: as outside. */
static bool enter(struct holdfast *run)
{
    run->control_path = copy(getenv("HOLDFAST_CONTROL"));
    run->socket_path = copy(getenv("HOLDFAST_SOCKET"));
    if (!run->control_path || !run->socket_path || !make_token(run->token)) {
        return false;
    }
    run->out.cap = 4 * (size_t)HFW_LINE_BYTES;
    run->out.data = malloc(run->out.cap);
    run->in = malloc(HFW_LINE_BYTES);
    return run->out.data && run->in && map_control(run);
}

struct holdfast *holdfast_init(const struct holdfast_opts *opts)
{
    struct holdfast *run = calloc(1, sizeof *run);
    if (!run) {
        return NULL;
    }
    int saved_errno = errno;
    run->mode = OUTSIDE;
    run->fd = -1;
    run->step = run->asked_step = run->resumed = run->resume_step = -1;
    run->top = run->open_step = -1;
    run->calm = NO_WORD;
    read_opts(run, opts);
    pthread_once(&fork_once, watch_forks);
    pthread_mutex_lock(&runs_lock);
    run->next = runs;
    if (runs) {
        runs->prev = run;
    }
    runs = run;
    pthread_mutex_unlock(&runs_lock);
    if (enter(run)) {
        run->mode = WAITING;
        uint64_t limit = holdfast_now_ns() + WELCOME_MS * MS;
        holdfast_service(run, RETRY_NOW_MS);
        while (run->mode == WAITING && holdfast_now_ns() < limit) {
            pause_ms();
            holdfast_service(run, RETRY_NOW_MS);
        }
    }
    errno = saved_errno;
    return run;
}

bool holdfast_active(const struct holdfast *run)
{
    return run && run->mode == JOINED;
}

void holdfast_close(struct holdfast *run)
{
    if (!run) {
        return;
    }
    if (run->mode == JOINED) {
        holdfast_send(run, "{\"msg\":\"bye\"}\n");
    }
    pthread_mutex_lock(&runs_lock);
    if (run->prev) {
        run->prev->next = run->next;
    } else {
        runs = run->next;
    }
    if (run->next) {
        run->next->prev = run->prev;
    }
    pthread_mutex_unlock(&runs_lock);
    if (run->fd >= 0) {
        close(run->fd);
    }
    if (run->head) {
        munmap(run->head, HFW_SIZE);
    }
    char *texts[] = {run->in,           run->out.data,    run->saved_line, run->path,
                     run->control_path, run->socket_path, run->save_dir,   run->resume_path};
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        free(texts[i]);
    }
    free(run);
}

/* --- going on from a checkpoint ----------------------------------------- */

const char *holdfast_resume_path(const struct holdfast *run, int64_t *ret_start)
{
    const char *path = run ? run->resume_path : NULL;
    if (ret_start) {
        *ret_start = path && run->resume_step >= 0 ? run->resume_step + 1 : 0;
    }
    return path;
}

int64_t holdfast_resume(struct holdfast *run, int (*load)(void *user, const char *path), void *user)
{
    int64_t start;
    const char *path = holdfast_resume_path(run, &start);
    if (path && load(user, path) != 0) {
        return -1;
    }
    if (run && run->mode == JOINED) {
        run->resumed = start;
        holdfast_send_resumed(run);
    }
    return start;
}

/* --- the boundary ------------------------------------------------------- */

/* A new open file: flock belongs to it, and closing it gives the lock back. -1: busy. */
static int try_lock(const struct holdfast *run)
{
    int fd = open(run->control_path, O_RDWR | O_CLOEXEC);
    if (fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) != 0) {
        close(fd);
        fd = -1;
    }
    return fd;
}

static void breathe(uint64_t since_ns)
{
    if (holdfast_now_ns() - since_ns > SPIN_NS) {
        pause_ms();
    }
}

static enum hfw_order look(struct holdfast *run)
{
    struct hfw_rank *r = &run->rank;
    enum hfw_event ev = HFW_EV_NONE;
    uint64_t since = holdfast_now_ns();
    uint64_t limit = run->head->hold_limit_ms * MS;
    uint32_t id = 0;
    int lock = -1;
    hfw_rank_begin(r, run->step);
    r->at = HFW_AT_LOOK; /* holdfast_step has published */
    for (;;) {
        enum hfw_order order = hfw_rank_next(r, run->head, run->slot, ev);
        if (r->id != id) {
            id = r->id;
            since = holdfast_now_ns();
        }
        ev = HFW_EV_NONE;
        switch (order) {
        case HFW_AGAIN:
            break;
        case HFW_WAIT:
            breathe(since);
            ev = holdfast_now_ns() - since >= limit ? HFW_EV_LATE : HFW_EV_NONE;
            break;
        case HFW_TRY_LOCK:
            lock = try_lock(run);
            ev = lock >= 0 ? HFW_EV_LOCKED : HFW_EV_BUSY;
            if (lock < 0 && holdfast_now_ns() - since >= 2 * limit) {
                ev = HFW_EV_HOPELESS;
            }
            break;
        case HFW_UNLOCK:
            close(lock);
            break;
        case HFW_GO_ON:
        case HFW_SAVE:
        case HFW_LEAVE_NOW:
            return order;
        }
    }
}

static enum holdfast_verb slow_step(struct holdfast *run)
{
    holdfast_service(run, RETRY_MS);
    if (run->mode != JOINED) {
        return HOLDFAST_GO_ON;
    }
    hfw_publish(run->slot, run->step); /* the welcome may have come just now */
    enum hfw_order order = look(run);
    if (order == HFW_LEAVE_NOW) {
        return HOLDFAST_LEAVE;
    }
    if (order == HFW_SAVE) {
        run->asked_id = run->rank.id;
        run->asked_step = run->step;
        return HOLDFAST_SAVE;
    }
    uint64_t word = hfw_load(&run->head->word);
    bool quiet = run->welcomed && run->out.len == 0 && hfw_state(word) == HFW_IDLE &&
                 (uint32_t)hfw_step(word) == run->epoch;
    run->calm = quiet ? word : NO_WORD;
    return HOLDFAST_GO_ON;
}

enum holdfast_verb holdfast_step(struct holdfast *run, int64_t step)
{
    if (!run || step < 0 || step > HFW_STEP_MAX) {
        return HOLDFAST_GO_ON;
    }
    run->step = step;
    if (run->mode == JOINED) {
        hfw_publish(run->slot, step);
        if (hfw_load(&run->head->word) == run->calm) {
            return HOLDFAST_GO_ON;
        }
    }
    int saved_errno = errno;
    enum holdfast_verb verb = slow_step(run);
    errno = saved_errno;
    return verb;
}

/* --- saving ------------------------------------------------------------- */

static bool make_dirs(char *path)
{
    for (char *p = path + 1; *p; p++) {
        if (*p == '/') {
            *p = '\0';
            bool ok = mkdir(path, 0777) == 0 || errno == EEXIST || errno == EROFS;
            *p = '/';
            if (!ok) {
                return false;
            }
        }
    }
    return mkdir(path, 0777) == 0 || errno == EEXIST;
}

static char *absolute(const char *path)
{
    char cwd[PATH_MAX];
    char *out;
    if (path[0] == '/') {
        return copy(path);
    }
    if (!getcwd(cwd, sizeof cwd) || asprintf(&out, "%s/%s", cwd, path) < 0) {
        return NULL;
    }
    return out;
}

/* The folder's name is a function of the attempt, the life, the step and `turn`, and turn is one
 * of this rank's own calls here: equal on all ranks. Within a turn each newly opened step is
 * higher than all before, so no folder is handed out twice. */
static char *name_folder(const struct holdfast *run, int64_t step)
{
    char name[96];
    char turn[24] = "";
    if (run->turn > 0) {
        snprintf(turn, sizeof turn, "-%lld", (long long)run->turn);
    }
    if (run->mode == JOINED) {
        snprintf(name, sizeof name, "%u-%u-%lld%s", run->attempt, run->life, (long long)step, turn);
    } else {
        snprintf(name, sizeof name, "%s-%lld%s", run->control_path ? "alone" : "step",
                 (long long)step, turn);
    }
    char *joined;
    if (!run->save_dir || asprintf(&joined, "%s/%s", run->save_dir, name) < 0) {
        return NULL;
    }
    char *out = absolute(joined);
    free(joined);
    return out;
}

const char *holdfast_path(struct holdfast *run, int64_t step)
{
    if (!run || step < 0) {
        errno = EINVAL;
        return NULL;
    }
    if (step != run->open_step || !run->path) {
        if (step <= run->top) {
            run->turn++;
        }
        run->top = run->open_step = step;
        run->open_reported_ok = run->mode == JOINED;
        free(run->path);
        run->path = name_folder(run, step);
    }
    if (!run->path) {
        errno = ENOMEM;
        return NULL;
    }
    return make_dirs(run->path) ? run->path : NULL;
}

static void add_paths(const struct holdfast *run, struct hfj_out *o, const char *const *paths)
{
    const char *const own[] = {run->open_step >= 0 ? run->path : NULL, NULL};
    const char *comma = "";
    for (const char *const *p = paths ? paths : own; *p; p++) {
        char *abs = absolute(*p);
        hfj_text(o, comma);
        hfj_bytes(o, abs ? abs : "");
        o->full |= !abs;
        free(abs);
        comma = ",";
    }
}

static void report_save(struct holdfast *run, uint32_t id, int64_t step, const char *const *paths)
{
    char *text = malloc(HFW_LINE_BYTES);
    if (!text) {
        return;
    }
    struct hfj_out o = {.data = text, .cap = HFW_LINE_BYTES};
    hfj_text(&o, "{\"msg\":\"saved\",\"id\":");
    hfj_int(&o, id);
    hfj_text(&o, ",\"step\":");
    hfj_int(&o, step);
    hfj_text(&o, ",\"turn\":");
    hfj_int(&o, run->turn);
    hfj_text(&o, ",\"paths\":[");
    add_paths(run, &o, paths);
    hfj_text(&o, "]}\n");
    if (o.full) {
        free(text);
        return;
    }
    free(run->saved_line);
    run->saved_line = text;
    if (id != 0) {
        hfw_store(&run->slot->saved, hfw_pack(HFW_TARGET, id, step));
    }
    if (run->welcomed) {
        holdfast_send(run, text);
    } /* else it is told after the welcome */
}

/* A rank that left while others still save would get them killed by their launcher: all wait. */
static enum holdfast_verb wait_release(struct holdfast *run, uint32_t id)
{
    uint64_t limit = run->head->hold_limit_ms * MS;
    uint64_t connected = holdfast_now_ns();
    for (;;) {
        holdfast_service(run, RETRY_NOW_MS);
        enum hfw_order order =
            hfw_after_save(hfw_load(&run->head->word), hfw_load(&run->head->leave), id);
        uint64_t now = holdfast_now_ns();
        connected = run->welcomed ? now : connected;
        if (order == HFW_LEAVE_NOW) {
            return HOLDFAST_LEAVE;
        }
        if (order != HFW_WAIT || now >= hfw_load(&run->head->deadline_ns) ||
            now - connected > limit || run->mode != JOINED) {
            return HOLDFAST_GO_ON;
        }
        pause_ms();
    }
}

enum holdfast_verb holdfast_saved(struct holdfast *run, const char *const *paths)
{
    if (!run) {
        return HOLDFAST_GO_ON;
    }
    int saved_errno = errno;
    enum holdfast_verb verb = HOLDFAST_GO_ON;
    int64_t step = run->open_step >= 0 ? run->open_step : run->step;
    bool countable = run->open_step < 0 || run->open_reported_ok;
    if (run->mode == JOINED && step >= 0 && countable) {
        uint32_t id = run->asked_step == step ? run->asked_id : 0;
        holdfast_service(run, RETRY_MS);
        report_save(run, id, step, paths);
        verb = wait_release(run, id);
    }
    run->asked_id = 0;
    run->open_step = -1;
    errno = saved_errno;
    return verb;
}

void holdfast_done(struct holdfast *run)
{
    if (!run || run->mode != JOINED || run->done) {
        return;
    }
    int saved_errno = errno;
    run->done = true;
    __atomic_store_n(&run->slot->done, 1, __ATOMIC_SEQ_CST);
    holdfast_service(run, RETRY_MS);
    if (run->welcomed) {
        holdfast_send(run, "{\"msg\":\"done\"}\n");
    }
    errno = saved_errno;
}
