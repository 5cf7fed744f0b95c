/* SPDX-License-Identifier: Apache-2.0
 *
 * Running a loop in tests. Conditions are polled with a deadline; nothing sleeps.
 */
#include "base/prelude.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>

#include <cmocka.h>

#include "support_loop.h"

struct until {
    struct hf_loop *loop;
    struct hf_timer timer;
    hf_test_cond_fn *cond;
    void *user;
    uint64_t deadline_ns;
    bool held;
};

static void look(void *user)
{
    struct until *u = user;
    u->held = u->cond(u->user);
    if (u->held || hf_now_ns() >= u->deadline_ns) {
        hf_loop_stop(u->loop);
        return;
    }
    hf_timer_start(&u->timer, u->loop, 2, look, u);
}

bool hf_test_run_until(struct hf_loop *loop, hf_test_cond_fn *cond, void *user, uint64_t timeout_ms)
{
    struct until u = {.loop = loop, .cond = cond, .user = user};
    u.deadline_ns = hf_now_ns() + timeout_ms * HF_MS;
    hf_timer_start(&u.timer, loop, 0, look, &u);
    hf_loop_run(loop);
    hf_timer_close(&u.timer);
    uv_run(&loop->uv, UV_RUN_NOWAIT);
    return u.held;
}

void hf_test_loop_close(struct hf_loop *loop)
{
    struct hf_err err;
    if (hf_loop_close(loop, &err) != HF_OK) {
        fail_msg("loop: %s", err.msg);
    }
}
