/* SPDX-License-Identifier: Apache-2.0
 *
 * The control file, seen from the supervisor. Loop thread; every call is short (the fence is the
 * longest, about 10 ms). Must never truncate or replace a file that ranks may have mapped, and
 * must not touch a rank's line of a slot after its welcome was sent.
 */
#include "base/prelude.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/membarrier.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/mem.h"
#include "hooks/control.h"

#define LOCK_TRIES   20
#define LOCK_WAIT_NS 500000

static void format_file(struct hf_control *c, uint32_t attempt)
{
    struct hfw_head *head = c->head;
    head->version = HFW_VERSION;
    head->size = (uint32_t)HFW_SIZE;
    head->slots = HFW_SLOTS;
    head->attempt = attempt;
    head->hold_limit_ms = HFW_HOLD_MS;
    head->resume_step = -1;
    for (uint32_t i = 0; i < HFW_SLOTS; i++) {
        c->slots[i].step = -1;
        c->slots[i].last = -1;
    }
    hfw_store(&head->magic, HFW_MAGIC); /* last: without it the file counts as empty */
}

static enum hf_rc check_file(const struct hf_control *c, const char *path, uint32_t attempt,
                             struct hf_err *err)
{
    const struct hfw_head *head = c->head;
    if (head->magic != HFW_MAGIC || head->version != HFW_VERSION || head->size != HFW_SIZE) {
        return hf_fail(err, HF_ECORRUPT, "'%s' is not a control file of version %u", path,
                       HFW_VERSION);
    }
    if (head->attempt != attempt) {
        return hf_fail(err, HF_ECORRUPT, "control file '%s' is of attempt %u, not %u", path,
                       head->attempt, attempt);
    }
    return HF_OK;
}

static enum hf_rc map_file(struct hf_control *c, const char *path, struct hf_err *err)
{
    struct stat st;
    c->fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (c->fd < 0 || fstat(c->fd, &st) != 0) {
        return hf_fail_errno(err, errno, "open control file '%s'", path);
    }
    if (st.st_size != 0 && (size_t)st.st_size != HFW_SIZE) {
        return hf_fail(err, HF_ECORRUPT, "control file '%s' has %lld bytes", path,
                       (long long)st.st_size);
    }
    /* A mapped hole on a full disk would kill the trainer by SIGBUS. */
    int num = posix_fallocate(c->fd, 0, (off_t)HFW_SIZE);
    if (num != 0) {
        return hf_fail_errno(err, num, "allocate control file '%s'", path);
    }
    void *map = mmap(NULL, HFW_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, c->fd, 0);
    if (map == MAP_FAILED) {
        return hf_fail_errno(err, errno, "map control file '%s'", path);
    }
    c->head = map;
    c->slots = (struct hfw_slot *)((char *)map + sizeof(struct hfw_head));
    return HF_OK;
}

enum hf_rc hf_control_open(const char *path, uint32_t attempt, struct hf_control *ret,
                           bool *ret_found, struct hf_err *err)
{
    struct hf_control c = {.fd = -1};
    enum hf_rc rc = map_file(&c, path, err);
    if (rc != HF_OK) {
        hf_control_close(&c);
        return rc;
    }
    bool found = hfw_load(&c.head->magic) != 0;
    if (!found) {
        format_file(&c, attempt);
    }
    rc = check_file(&c, path, attempt, err);
    if (rc != HF_OK) {
        hf_control_close(&c);
        return rc;
    }
    __atomic_store_n(&c.head->epoch, c.head->epoch + 1, __ATOMIC_SEQ_CST);
    *ret = c;
    *ret_found = found;
    return HF_OK;
}

void hf_control_close(struct hf_control *c)
{
    if (c->head) {
        munmap(c->head, HFW_SIZE);
        c->head = NULL;
        c->slots = NULL;
    }
    hf_closep(&c->fd);
    c->fd = -1;
}

uint64_t hf_control_word(const struct hf_control *c)
{
    return hfw_load(&c->head->word);
}

void hf_control_set_word(struct hf_control *c, uint64_t word)
{
    __atomic_store_n(&c->head->word, word, __ATOMIC_SEQ_CST);
}

void hf_control_set_idle(struct hf_control *c)
{
    hf_control_set_word(c, hfw_pack(HFW_IDLE, hfw_id(hf_control_word(c)), c->head->epoch));
}

static enum hf_rc take_lock(const struct hf_control *c, struct hf_err *err)
{
    for (int i = 0; i < LOCK_TRIES; i++) {
        if (flock(c->fd, LOCK_EX | LOCK_NB) == 0) {
            return HF_OK;
        }
        if (errno != EWOULDBLOCK && errno != EINTR) {
            return hf_fail_errno(err, errno, "lock the control file");
        }
        nanosleep(&(struct timespec){.tv_nsec = LOCK_WAIT_NS}, NULL);
    }
    return hf_fail(err, HF_EAGAIN, "another process keeps the lock of the control file");
}

enum hf_rc hf_control_decide(struct hf_control *c, uint32_t id, uint64_t word, struct hf_err *err)
{
    HF_TRY(take_lock(c, err));
    uint64_t now = hf_control_word(c);
    bool open = hfw_state(now) == HFW_RAISED && hfw_id(now) == id;
    if (open) {
        hf_control_set_word(c, word);
    }
    flock(c->fd, LOCK_UN);
    if (!open) {
        return hf_fail(err, HF_ECANCELED, "a rank has waited too long for the decision");
    }
    return HF_OK;
}

bool hf_control_fence(void)
{
    if (syscall(SYS_membarrier, MEMBARRIER_CMD_GLOBAL, 0, 0) == 0) {
        return true;
    }
    nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    return false;
}

void hf_control_read(const struct hf_control *c, uint32_t slot, struct hf_agree_rank *ret)
{
    const struct hfw_slot *s = &c->slots[slot];
    ret->rank = s->rank;
    ret->step = __atomic_load_n(&s->step, __ATOMIC_ACQUIRE);
    ret->hold = hfw_load(&s->hold);
    ret->saved = hfw_load(&s->saved);
    ret->last = __atomic_load_n(&s->last, __ATOMIC_ACQUIRE);
    ret->gave_up = __atomic_load_n(&s->gave_up, __ATOMIC_ACQUIRE);
    ret->done = __atomic_load_n(&s->done, __ATOMIC_ACQUIRE) != 0;
}

void hf_control_grant(struct hf_control *c, uint32_t slot, const struct hfw_slot *owner)
{
    struct hfw_slot *s = &c->slots[slot];
    memset(s, 0, sizeof *s);
    s->token = owner->token;
    s->rank = owner->rank;
    s->pid = owner->pid;
    s->life = owner->life;
    s->last = owner->last;
    s->step = -1;
    __atomic_store_n(&s->joined, 1, __ATOMIC_SEQ_CST);
}
