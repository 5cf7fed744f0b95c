/* SPDX-License-Identifier: Apache-2.0
 *
 * The supervisor's side of the hooks: messages in, requests out, one in flight at most. Loop
 * thread. The control file is polled (5 ms while a request is in flight, else 250 ms), since
 * ranks publish there without a word on the socket. Must never wait for a rank, and never call
 * back from inside a call of the owner.
 */
#include "base/prelude.h"

#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/fsx.h"
#include "base/mem.h"
#include "hooks/ranks.h"
#include "hooks/saves.h"
#include "hooks/server.h"

#define POLL_BUSY_MS 5
#define POLL_CALM_MS 250
#define EXPIRE_NS    (600 * HF_SEC)
#define REFUSED_MAX  100 /* told to the owner */
#define HELLO_FIRST  "say hello first, and once"

struct request {
    uint64_t id; /* 0: none in flight */
    int64_t target;
    uint64_t deadline_ns;
    bool leave;
};

struct hf_hooks {
    struct hf_loop *loop;
    struct hf_hooks_cb cb;
    void *user;
    struct hf_control control;
    struct hf_ranks ranks;
    struct hf_saves saves;
    struct hf_linesock *sock;
    uv_timer_t timer;
    bool closing;
    struct request req;
    uint64_t last_id;
    bool done_told; /* in this life */
    unsigned refused_told;
    /* progress as seen by the poll */
    uint32_t seen_life;
    int64_t seen_step;
    uint64_t seen_ns, step_ns;
    char *run, *save_dir, *control_path, *sock_path;
    uint32_t attempt;
};

struct reading {
    struct hf_agree_rank ranks[HFW_SLOTS];
    uint32_t slots[HFW_SLOTS];
    size_t n;
};

static void read_ranks(const struct hf_hooks *h, struct reading *ret)
{
    ret->n = hf_ranks_read(&h->ranks, ret->ranks, ret->slots);
    for (size_t i = 0; i < ret->n; i++) {
        ret->ranks[i].named_files =
            h->req.id != 0 &&
            hf_saves_has(&h->saves, h->req.id, h->control.head->life, ret->slots[i]);
    }
}

static struct hf_agree_view make_view(const struct hf_hooks *h, const struct reading *reading,
                                      uint64_t deadline_ns)
{
    return (struct hf_agree_view){.ranks = reading->ranks,
                                  .n_ranks = reading->n,
                                  .world = hf_ranks_world(&h->ranks),
                                  .now_ns = hf_now_ns(),
                                  .deadline_ns = deadline_ns,
                                  .step_ns = h->step_ns};
}

static int64_t highest_step(const struct reading *reading)
{
    int64_t high = -1;
    for (size_t i = 0; i < reading->n; i++) {
        high = reading->ranks[i].step > high ? reading->ranks[i].step : high;
    }
    return high;
}

static void track_progress(struct hf_hooks *h, const struct reading *reading)
{
    int64_t high = highest_step(reading);
    uint64_t now = hf_now_ns();
    if (h->seen_life != h->control.head->life || high < h->seen_step) {
        h->seen_life = h->control.head->life;
        h->seen_step = -1;
        h->seen_ns = 0;
        h->step_ns = 0;
    }
    if (high <= h->seen_step) {
        return;
    }
    if (h->seen_step >= 0) {
        uint64_t one = (now - h->seen_ns) / (uint64_t)(high - h->seen_step);
        h->step_ns = h->step_ns ? (3 * h->step_ns + one) / 4 : one;
    }
    h->seen_step = high;
    h->seen_ns = now;
}

static void poll_fired(uv_timer_t *timer);

static void set_pace(struct hf_hooks *h)
{
    uint64_t ms = h->req.id ? POLL_BUSY_MS : POLL_CALM_MS;
    uv_timer_start(&h->timer, poll_fired, ms, ms);
}

static void finish(struct hf_hooks *h, enum hf_request_end how, const char *why)
{
    uint64_t id = h->req.id;
    bool hold = how == HF_REQUEST_SAVED && h->req.leave; /* until hf_hooks_release */
    h->req = (struct request){0};
    if (!hold && hfw_state(hf_control_word(&h->control)) != HFW_LEAVE) {
        hf_control_set_idle(&h->control);
    }
    set_pace(h);
    h->cb.request_ended(h->user, id, how, why);
}

static void check_request(struct hf_hooks *h)
{
    if (h->closing || h->req.id == 0) {
        return;
    }
    struct reading reading;
    struct hf_err err;
    read_ranks(h, &reading);
    struct hf_agree_view view = make_view(h, &reading, h->req.deadline_ns);
    switch (hf_agree_watch(&view, (uint32_t)h->req.id & 0xffff, h->req.target, &err)) {
    case HF_OK:
        finish(h, HF_REQUEST_SAVED, "");
        break;
    case HF_EAGAIN:
        break;
    case HF_ETIMEOUT:
        finish(h, HF_REQUEST_EXPIRED, err.msg);
        break;
    default:
        finish(h, HF_REQUEST_CANCELED, err.msg);
        break;
    }
}

static void check_done(struct hf_hooks *h)
{
    struct hf_hooks_status status;
    if (h->closing || h->done_told) {
        return;
    }
    hf_hooks_get_status(h, &status);
    if (status.all_done) {
        h->done_told = true;
        h->cb.done(h->user);
    }
}

/* A word that stayed RAISED because some process kept the lock. */
static void clear_raised(struct hf_hooks *h)
{
    uint64_t word = hf_control_word(&h->control);
    if (h->req.id == 0 && hfw_state(word) == HFW_RAISED) {
        uint64_t cancel = hfw_pack(HFW_CANCEL, hfw_id(word), 0);
        if (hf_control_decide(&h->control, hfw_id(word), cancel, NULL) == HF_OK) {
            hf_control_set_idle(&h->control);
        }
    }
}

static void poll_fired(uv_timer_t *timer)
{
    struct hf_hooks *h = timer->data;
    struct reading reading;
    read_ranks(h, &reading);
    track_progress(h, &reading);
    clear_raised(h);
    check_request(h);
    check_done(h);
}

/* --- messages ----------------------------------------------------------- */

static void tell_refused(struct hf_hooks *h, const struct hf_lineconn *conn, const char *why)
{
    if (h->cb.refused != NULL && h->refused_told < REFUSED_MAX) {
        h->refused_told++;
        h->cb.refused(h->user, hf_lineconn_pid(conn), why);
    }
}

static void welcome(struct hf_hooks *h, struct hf_lineconn *conn, uint32_t slot)
{
    const struct hfw_head *head = h->control.head;
    struct hf_hook_welcome w = {.run = h->run,
                                .attempt = h->attempt,
                                .slot = slot,
                                .life = h->control.slots[slot].life,
                                .save_dir = h->save_dir};
    if (head->resume_path[0]) {
        w.resume_path = head->resume_path;
        w.resume_step = head->resume_step;
    }
    hf_lineconn_send(conn, hf_hook_print_welcome(&w));
}

static void on_hello(struct hf_hooks *h, struct hf_lineconn *conn, const struct hf_hook_msg *m)
{
    uint32_t slot;
    enum hf_join how;
    struct hf_err err;
    if (hf_ranks_join(&h->ranks, m, conn, &slot, &how, &err) != HF_OK) {
        tell_refused(h, conn, err.msg);
        hf_lineconn_send(conn, hf_hook_print_refused(err.msg));
        return;
    }
    hf_lineconn_set_tag(conn, slot);
    welcome(h, conn, slot);
    if (how == HF_JOIN_NEW_LIFE) {
        hf_saves_clear(&h->saves);
        h->done_told = false;
        if (h->req.id) {
            char why[64];
            snprintf(why, sizeof why, "rank %u was restarted", m->rank);
            finish(h, HF_REQUEST_CANCELED, why);
        }
    }
    struct hf_member *member = &h->ranks.members[slot];
    if (!h->closing && !member->announced) {
        member->announced = true;
        h->cb.joined(h->user, m->rank, m->world, h->control.slots[slot].life, m->framework);
    }
}

/* The full id of the 16 bits that a rank knows; 0 if they are not of the newest request. */
static uint64_t full_id(const struct hf_hooks *h, uint32_t id)
{
    return id != 0 && (h->last_id & 0xffff) == id ? h->last_id : 0;
}

static void on_saved(struct hf_hooks *h, uint32_t slot, const struct hf_hook_msg *m)
{
    if (!hf_ranks_current(&h->ranks, slot) || hf_ranks_resume_clash(&h->ranks)) {
        return;
    }
    struct hf_save_key key = {.request = full_id(h, m->id),
                              .life = h->control.slots[slot].life,
                              .step = m->step,
                              .turn = m->turn};
    if (h->req.id != 0 && key.request == h->req.id && m->step != h->req.target) {
        key.request = 0; /* not where it was asked to: its own save */
    }
    struct hf_hook_save save;
    uint32_t world = hf_ranks_world(&h->ranks);
    if (!hf_saves_add(&h->saves, &key, slot, world, &m->paths, &save)) {
        if (h->cb.part != NULL && m->paths.len > 0) {
            h->cb.part(h->user, &m->paths);
        }
        return;
    }
    if (save.paths.len > 0) {
        h->cb.saved(h->user, &save);
    } else if (h->req.id != 0 && key.request == h->req.id) {
        finish(h, HF_REQUEST_CANCELED, "no rank named a file that it saved");
    }
    hf_hook_save_release(&save);
}

static void on_message(struct hf_hooks *h, struct hf_lineconn *conn, const struct hf_hook_msg *m)
{
    int64_t tag = hf_lineconn_tag(conn);
    uint32_t slot = (uint32_t)tag;
    if (m->kind == HF_HOOK_UNKNOWN) {
        hf_lineconn_send(conn, hf_hook_print_unsupported(m->name));
        return;
    }
    if ((m->kind == HF_HOOK_HELLO) != (tag < 0)) { /* hello first, and once */
        tell_refused(h, conn, HELLO_FIRST);
        hf_lineconn_send(conn, hf_hook_print_refused(HELLO_FIRST));
        return;
    }
    switch (m->kind) {
    case HF_HOOK_HELLO:
        on_hello(h, conn, m);
        break;
    case HF_HOOK_SAVED:
        on_saved(h, slot, m);
        break;
    case HF_HOOK_RESUMED:
        h->ranks.members[slot].resumed = m->step;
        h->cb.resumed(h->user, h->control.slots[slot].rank, m->step);
        break;
    case HF_HOOK_DONE:
        h->ranks.members[slot].done = true;
        break;
    case HF_HOOK_BYE:
        h->ranks.members[slot].left = true;
        break;
    case HF_HOOK_UNKNOWN:
        break;
    }
    check_request(h);
    check_done(h);
}

static void conn_gone(void *user, struct hf_lineconn *conn, const char *why)
{
    struct hf_hooks *h = user;
    int64_t tag = hf_lineconn_tag(conn);
    if (why != NULL) {
        tell_refused(h, conn, why);
    }
    if (tag >= 0 && h->ranks.members[tag].conn == conn) {
        h->ranks.members[tag].conn = NULL;
        check_request(h);
    }
}

static void conn_line(void *user, struct hf_lineconn *conn, const char *line, size_t len)
{
    struct hf_hooks *h = user;
    struct hf_hook_msg msg;
    struct hf_err err;
    if (hf_hook_parse((struct hf_span){line, len}, &msg, &err) != HF_OK) {
        conn_gone(h, conn, err.msg);
        hf_lineconn_drop(conn);
        return;
    }
    on_message(h, conn, &msg);
    hf_hook_msg_release(&msg);
}

/* --- requests ----------------------------------------------------------- */

static enum hf_rc check_ready(struct hf_hooks *h, struct hf_err *err)
{
    if (h->req.id) {
        return hf_fail(err, HF_EAGAIN, "request %llu is in flight", (unsigned long long)h->req.id);
    }
    struct reading reading;
    read_ranks(h, &reading);
    size_t alive = 0;
    for (size_t i = 0; i < reading.n; i++) {
        alive += reading.ranks[i].alive;
    }
    if (alive == 0) {
        return hf_fail(err, HF_ENOTFOUND, "no living rank has shaken hands");
    }
    if (hf_ranks_resume_clash(&h->ranks)) {
        return hf_fail(err, HF_ECANCELED, "the ranks resumed from different steps");
    }
    clear_raised(h);
    enum hfw_state state = hfw_state(hf_control_word(&h->control));
    if (state == HFW_LEAVE) {
        return hf_fail(err, HF_ECANCELED, "the ranks have been told to leave");
    }
    if (state == HFW_RAISED) {
        return hf_fail(err, HF_ECANCELED, "a process keeps the lock of the control file");
    }
    return HF_OK;
}

static void raise_word(struct hf_hooks *h, uint32_t id, const struct request *req,
                       const char *reason)
{
    struct hfw_head *head = h->control.head;
    hfw_store(&head->deadline_ns, req->deadline_ns);
    hfw_store(&head->leave, req->leave ? id : 0);
    memset(head->reason, 0, sizeof head->reason);
    snprintf(head->reason, sizeof head->reason, "%s", reason ? reason : "");
    hf_control_set_word(&h->control, hfw_pack(HFW_RAISED, id, 0));
}

/* Raised: fence, read, and write TARGET or CANCEL. */
static enum hf_rc decide(struct hf_hooks *h, uint32_t id, struct request *req, uint64_t deadline_ns,
                         struct hf_err *err)
{
    struct reading reading;
    bool fenced = hf_control_fence();
    read_ranks(h, &reading);
    track_progress(h, &reading);
    struct hf_agree_view view = make_view(h, &reading, deadline_ns);
    view.fenced = fenced;
    enum hf_rc rc = hf_agree_decide(&view, id, &req->target, err);
    if (rc != HF_OK) {
        enum hf_rc written = hf_control_decide(&h->control, id, hfw_pack(HFW_CANCEL, id, 0), NULL);
        if (written == HF_OK) {
            hf_control_set_idle(&h->control);
        } /* else the poll tries again, or a rank has done it */
        return rc;
    }
    rc = hf_control_decide(&h->control, id, hfw_pack(HFW_TARGET, id, req->target), err);
    return rc == HF_OK ? rc : HF_ECANCELED;
}

enum hf_rc hf_hooks_request(struct hf_hooks *h, uint64_t deadline_ns, bool leave,
                            const char *reason, uint64_t *ret_id, struct hf_err *err)
{
    HF_TRY(check_ready(h, err));
    struct request req = {.deadline_ns = deadline_ns, .leave = leave};
    if (deadline_ns == 0) {
        req.deadline_ns = hf_now_ns() + EXPIRE_NS;
    }
    h->last_id++;
    if ((h->last_id & 0xffff) == 0) { /* 0 is "no request" in the file */
        h->last_id++;
    }
    req.id = h->last_id;
    uint32_t id = (uint32_t)req.id & 0xffff;
    raise_word(h, id, &req, reason);
    HF_TRY(decide(h, id, &req, deadline_ns, err));
    h->req = req;
    set_pace(h);
    *ret_id = req.id;
    return HF_OK;
}

void hf_hooks_hurry(struct hf_hooks *h, uint64_t deadline_ns, bool leave)
{
    if (h->req.id == 0) {
        return;
    }
    if (deadline_ns != 0 && deadline_ns < h->req.deadline_ns) {
        h->req.deadline_ns = deadline_ns;
        hfw_store(&h->control.head->deadline_ns, deadline_ns);
    }
    if (leave) {
        h->req.leave = true;
        hfw_store(&h->control.head->leave, h->req.id & 0xffff);
    }
}

void hf_hooks_release(struct hf_hooks *h, bool leave)
{
    uint32_t id = hfw_id(hf_control_word(&h->control));
    if (!leave) {
        hfw_store(&h->control.head->leave, 0);
        h->req.leave = false;
        if (h->req.id == 0) {
            hf_control_set_idle(&h->control);
        }
        return;
    }
    clear_raised(h);
    if (hfw_state(hf_control_word(&h->control)) != HFW_RAISED) {
        hf_control_set_word(&h->control, hfw_pack(HFW_LEAVE, id, 0));
    }
}

void hf_hooks_set_newest(struct hf_hooks *h, const char *resume_path, int64_t step)
{
    /* A path that no rank could be told of leaves the one before. */
    (void)!hf_ranks_set_newest(&h->ranks, resume_path, step, NULL);
}

void hf_hooks_get_status(struct hf_hooks *h, struct hf_hooks_status *ret)
{
    struct reading reading;
    read_ranks(h, &reading);
    track_progress(h, &reading);
    *ret = (struct hf_hooks_status){.life = h->control.head->life,
                                    .world = h->control.head->world,
                                    .step = h->seen_step,
                                    .step_changed_ns = h->seen_ns,
                                    .request = h->req.id};
    size_t done = 0;
    for (size_t i = 0; i < reading.n; i++) {
        ret->joined += reading.ranks[i].alive || reading.ranks[i].connected;
        done += reading.ranks[i].done;
    }
    uint32_t world = hf_ranks_world(&h->ranks);
    ret->all_done = world != 0 && done == world;
}

size_t hf_hooks_peers(const struct hf_hooks *h, struct hf_hook_peer *out, size_t max)
{
    size_t n = 0;
    for (uint32_t i = 0; i < HFW_SLOTS && n < max; i++) {
        const struct hf_member *m = &h->ranks.members[i];
        if (hf_ranks_current(&h->ranks, i) && hf_ranks_alive(m)) {
            out[n++] = (struct hf_hook_peer){.rank = h->control.slots[i].rank, .pid = m->pid};
        }
    }
    return n;
}

void hf_hooks_env(const struct hf_hooks *h, struct hf_strv *env)
{
    hf_strv_take(env, hf_asprintf("HOLDFAST_CONTROL=%s", h->control_path));
    hf_strv_take(env, hf_asprintf("HOLDFAST_SOCKET=%s", h->sock_path));
    hf_strv_take(env, hf_asprintf("HOLDFAST_SAVE_DIR=%s", h->save_dir));
}

/* --- opening and closing ------------------------------------------------ */

/* What an earlier supervisor left: undecided is cancelled, decided goes on. */
static void take_over(struct hf_hooks *h)
{
    uint64_t word = hf_control_word(&h->control);
    h->last_id = hfw_id(word);
    clear_raised(h);
    word = hf_control_word(&h->control);
    if (hfw_state(word) == HFW_TARGET) {
        const struct hfw_head *head = h->control.head;
        h->req = (struct request){.id = h->last_id,
                                  .target = hfw_step(word),
                                  .deadline_ns = head->deadline_ns,
                                  .leave = head->leave == hfw_id(word)};
    } else if (hfw_state(word) == HFW_IDLE || hfw_state(word) == HFW_CANCEL) {
        hf_control_set_idle(&h->control); /* the new epoch makes ranks connect again */
    }
}

static void free_hooks(struct hf_hooks *h)
{
    hf_ranks_release(&h->ranks);
    hf_control_close(&h->control);
    hf_saves_clear(&h->saves);
    hf_free(h->run);
    hf_free(h->save_dir);
    hf_free(h->control_path);
    hf_free(h->sock_path);
    hf_free(h);
}

static void timer_closed(uv_handle_t *handle)
{
    free_hooks(handle->data);
}

static enum hf_rc open_files(struct hf_hooks *h, const struct hf_hooks_cfg *cfg, struct hf_err *err)
{
    bool found;
    HF_TRY(hf_fs_mkdirs(cfg->dir, 0700, err));
    HF_TRY(hf_fs_mkdirs(cfg->save_dir, 0700, err));
    HF_TRY(hf_control_open(h->control_path, cfg->attempt, &h->control, &found, err));
    hf_ranks_init(&h->ranks, &h->control);
    HF_TRY(hf_ranks_set_newest(&h->ranks, cfg->resume_path, cfg->resume_step, err));
    if (found) {
        take_over(h);
    } else {
        hf_control_set_idle(&h->control);
    }
    const struct hf_linesock_cb cb = {.line = conn_line, .gone = conn_gone};
    return hf_linesock_open(h->loop, h->sock_path, &cb, h, &h->sock, err);
}

enum hf_rc hf_hooks_open(struct hf_loop *loop, const struct hf_hooks_cfg *cfg,
                         const struct hf_hooks_cb *cb, void *user, struct hf_hooks **ret,
                         struct hf_err *err)
{
    struct hf_hooks *h = HF_NEW(struct hf_hooks);
    h->loop = loop;
    h->cb = *cb;
    h->user = user;
    h->control.fd = -1;
    h->seen_step = -1;
    h->run = hf_strdup(cfg->run);
    h->attempt = cfg->attempt;
    h->save_dir = hf_strdup(cfg->save_dir);
    h->control_path = hf_asprintf("%s/c", cfg->dir);
    h->sock_path = hf_asprintf("%s/s", cfg->dir);
    enum hf_rc rc = open_files(h, cfg, err);
    if (rc != HF_OK) {
        free_hooks(h);
        return hf_wrap(err, rc, "open the hooks of attempt %u", cfg->attempt);
    }
    uv_timer_init(&loop->uv, &h->timer);
    h->timer.data = h;
    set_pace(h);
    *ret = h;
    return HF_OK;
}

void hf_hooks_close(struct hf_hooks *h)
{
    if (!h || h->closing) {
        return;
    }
    h->closing = true;
    hf_linesock_close(h->sock);
    uv_close((uv_handle_t *)&h->timer, timer_closed);
}
