/* SPDX-License-Identifier: Apache-2.0
 *
 * Membership of ranks. Loop thread; the only waiting it does is none. Must never let two living
 * processes own one slot, and must never give two ranks of one life different checkpoints.
 */
#include "base/prelude.h"

#include <poll.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/mem.h"
#include "hooks/ranks.h"

static int open_pidfd(int32_t pid)
{
    return pid > 0 ? (int)syscall(SYS_pidfd_open, pid, 0) : -1;
}

bool hf_ranks_alive(const struct hf_member *m)
{
    if (!m->used || m->left) {
        return false;
    }
    if (m->pidfd < 0) {
        return m->conn != NULL;
    }
    struct pollfd p = {.fd = m->pidfd, .events = POLLIN}; /* readable: it has exited */
    return poll(&p, 1, 0) == 0;
}

bool hf_ranks_current(const struct hf_ranks *r, uint32_t slot)
{
    const struct hfw_slot *s = &r->control->slots[slot];
    return r->members[slot].used && s->joined && s->life == r->control->head->life;
}

static bool life_begun(const struct hf_ranks *r)
{
    for (uint32_t i = 0; i < HFW_SLOTS; i++) {
        if (hf_ranks_current(r, i)) {
            return true;
        }
    }
    return false;
}

void hf_ranks_init(struct hf_ranks *r, struct hf_control *control)
{
    *r = (struct hf_ranks){.control = control, .newest_step = -1};
    for (uint32_t i = 0; i < HFW_SLOTS; i++) {
        const struct hfw_slot *s = &control->slots[i];
        struct hf_member *m = &r->members[i];
        *m = (struct hf_member){.pidfd = -1, .resumed = -1};
        if (s->joined) {
            m->used = true;
            m->pid = s->pid;
            m->pidfd = open_pidfd(s->pid);
            m->done = s->done != 0;
        }
    }
}

static void forget_process(struct hf_member *m)
{
    hf_closep(&m->pidfd);
    *m = (struct hf_member){.pidfd = -1, .resumed = -1};
}

void hf_ranks_release(struct hf_ranks *r)
{
    for (uint32_t i = 0; r->control && i < HFW_SLOTS; i++) {
        forget_process(&r->members[i]);
    }
    hf_free(r->newest_path);
    r->newest_path = NULL;
}

enum hf_rc hf_ranks_set_newest(struct hf_ranks *r, const char *path, int64_t step,
                               struct hf_err *err)
{
    if (path && strlen(path) >= sizeof r->control->head->resume_path) {
        return hf_fail(err, HF_EINVAL, "checkpoint path '%s' is too long", path);
    }
    char *copy = hf_strdup(path);
    hf_free(r->newest_path);
    r->newest_path = copy;
    r->newest_step = path ? step : -1;
    return HF_OK;
}

/* Fixed here for all ranks of the life, also for those that shake hands after the next save. */
static void fix_resume(struct hf_ranks *r)
{
    struct hfw_head *head = r->control->head;
    size_t len = r->newest_path ? strlen(r->newest_path) : 0;
    memset(head->resume_path, 0, sizeof head->resume_path);
    if (len > 0) {
        memcpy(head->resume_path, r->newest_path, len);
    }
    head->resume_step = r->newest_step;
}

/* The rank's own slot, else a free one; HFW_SLOTS: none left. */
static uint32_t find_slot(const struct hf_ranks *r, uint32_t rank)
{
    uint32_t free_slot = HFW_SLOTS;
    for (uint32_t i = 0; i < HFW_SLOTS; i++) {
        if (r->members[i].used && r->control->slots[i].rank == rank) {
            return i;
        }
        if (!r->members[i].used && free_slot == HFW_SLOTS) {
            free_slot = i;
        }
    }
    return free_slot;
}

static void begin_life(struct hf_ranks *r, bool first)
{
    struct hfw_head *head = r->control->head;
    head->life += first ? 0 : 1;
    head->world = 0;
    r->world_clash = false;
    fix_resume(r);
}

static void take_world(struct hf_ranks *r, uint32_t world)
{
    struct hfw_head *head = r->control->head;
    r->world_clash |= head->world != 0 && head->world != world;
    head->world = world;
}

static enum hf_rc check_holder(const struct hf_member *m, uint32_t rank, int32_t pid,
                               struct hf_err *err)
{
    /* The same process with a new token has called exec. */
    bool same = pid != 0 && m->pid == pid;
    if (m->used && !same && hf_ranks_alive(m)) {
        return hf_fail(err, HF_EDENIED, "rank %u is held by living process %d", rank, m->pid);
    }
    return HF_OK;
}

enum hf_rc hf_ranks_join(struct hf_ranks *r, const struct hf_hook_msg *hello,
                         struct hf_lineconn *conn, uint32_t *ret_slot, enum hf_join *ret_how,
                         struct hf_err *err)
{
    uint32_t slot = find_slot(r, hello->rank);
    if (slot == HFW_SLOTS) {
        return hf_fail(err, HF_EDENIED, "all %u slots are taken", HFW_SLOTS);
    }
    struct hf_member *m = &r->members[slot];
    struct hf_lineconn *before = m->conn; /* what it still holds unread belongs to a past life */
    int32_t pid = hf_lineconn_pid(conn);
    *ret_slot = slot;
    *ret_how = HF_JOIN_BACK;
    if (!m->used || r->control->slots[slot].token != hello->token) {
        HF_TRY(check_holder(m, hello->rank, pid, err));
        bool first = !life_begun(r);
        *ret_how = hf_ranks_current(r, slot) ? HF_JOIN_NEW_LIFE : HF_JOIN_NEW;
        if (first || *ret_how == HF_JOIN_NEW_LIFE) {
            begin_life(r, first);
        }
        take_world(r, hello->world);
        forget_process(m);
        m->pidfd = open_pidfd(pid);
        hf_control_grant(r->control, slot,
                         &(struct hfw_slot){.token = hello->token,
                                            .rank = hello->rank,
                                            .pid = pid,
                                            .life = r->control->head->life,
                                            .last = hello->last});
    }
    if (before) {
        hf_lineconn_drop(before);
    }
    m->used = true;
    m->left = false;
    m->pid = pid;
    m->conn = conn;
    return HF_OK;
}

bool hf_ranks_resume_clash(const struct hf_ranks *r)
{
    int64_t seen = -1;
    for (uint32_t i = 0; i < HFW_SLOTS; i++) {
        int64_t step = hf_ranks_current(r, i) ? r->members[i].resumed : -1;
        if (step >= 0 && seen >= 0 && step != seen) {
            return true;
        }
        seen = step >= 0 ? step : seen;
    }
    return false;
}

size_t hf_ranks_read(const struct hf_ranks *r, struct hf_agree_rank *out, uint32_t *ret_slots)
{
    size_t n = 0;
    for (uint32_t i = 0; i < HFW_SLOTS; i++) {
        if (hf_ranks_current(r, i)) {
            out[n] = (struct hf_agree_rank){0};
            hf_control_read(r->control, i, &out[n]);
            out[n].alive = hf_ranks_alive(&r->members[i]);
            out[n].connected = r->members[i].conn != NULL;
            out[n].done |= r->members[i].done;
            ret_slots[n++] = i;
        }
    }
    return n;
}

uint32_t hf_ranks_world(const struct hf_ranks *r)
{
    return r->world_clash ? 0 : r->control->head->world;
}
