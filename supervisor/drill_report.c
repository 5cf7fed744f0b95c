/* SPDX-License-Identifier: Apache-2.0
 *
 * The drill's judgement and its table. Pure. What cannot be known is "unknown"; a program that
 * does not survive is told why and what to change.
 */
#include "base/prelude.h"

#include <inttypes.h>
#include <string.h>

#include "supervisor/drill.h"

static void fail(struct hf_round *r, const char *fmt, ...) HF_PRINTF(2, 3);

/* The first reason is kept. */
static void fail(struct hf_round *r, const char *fmt, ...)
{
    if (r->fail[0] == '\0') {
        va_list args;
        va_start(args, fmt);
        vsnprintf(r->fail, sizeof(r->fail), fmt, args);
        va_end(args);
    }
}

/* What the preempted attempt achieved with its notice. */
void hf_round_judge_save(struct hf_round *r)
{
    const struct hf_told *b = &r->before;
    if (!r->had_notice) {
        return;
    }
    bool new_save = b->committed && b->committed_ns >= b->notice_ns && b->notice_ns != 0;
    if (b->notice_ns == 0) {
        fail(r, "the notice was not seen: look at the metadata endpoint and --poll");
    } else if (b->exited_ns != 0 && b->exit_code == 0 && !new_save && !b->done) {
        fail(r, "the command exited 0 on the notice without saving: its own SIGTERM handler must "
                "save, or leave that to holdfast");
    } else if (strcmp(b->request_how, "expired") == 0) {
        fail(r,
             "it saves too slowly for the notice: %s; save less, or faster, or make steps shorter",
             b->request_why);
    } else if (b->request_why[0] != '\0') {
        fail(r, "the save was not made: %s", b->request_why);
    } else if (!new_save && b->saved_ns >= b->notice_ns) {
        fail(r, "the save was made but not shipped before the machine died: save more often "
                "(--every), or less");
    } else if (!new_save && b->request_ns >= b->notice_ns && b->request_ns != 0) {
        fail(r, "it saves too slowly for the notice: no save before the deadline; save less, or "
                "faster, or make steps shorter");
    } else if (new_save && (strcmp(b->verdict, "stale") == 0 || strcmp(b->verdict, "lost") == 0)) {
        fail(r, "the last save failed: %s", b->verdict_why);
    } else if (new_save && b->committed_ns > r->deadline_ns) {
        fail(r, "the save was committed after the deadline: save less, or more often (--every)");
    } else if (!b->committed && !b->restored_any) {
        fail(r, "nothing was saved: call holdfast's library in the training loop, or name the "
                "folder that it saves into with --checkpoint-dir");
    }
}

/* The step of the newest checkpoint when the machine died: one whose commit was not told any more
 * is found by the next attempt. */
static int64_t step_kept(const struct hf_round *r)
{
    const struct hf_told *b = &r->before;
    int64_t told = b->committed ? b->committed_step : b->restored_step;
    return r->after.restored_any && r->after.restored_step > told ? r->after.restored_step : told;
}

/* What the next attempt made of it. */
void hf_round_judge_resume(struct hf_round *r, bool hooked)
{
    const struct hf_told *a = &r->after;
    int64_t stands = step_kept(r);
    if (a->attempt == 0) {
        fail(r, "no next attempt was started");
    } else if (!a->restored_any) {
        fail(r, "nothing was restored: no checkpoint had been committed when the machine died "
                "(--every sets how often)");
    } else if (a->restored_step < stands) {
        fail(r,
             "the checkpoint of step %" PRId64 " was restored, not the newest one of step %" PRId64,
             a->restored_step, stands);
    } else if (hooked && a->resumed_ns == 0 && a->first_step < 0) {
        fail(r, "the next attempt never reached a step");
    } else if (hooked && stands >= 0 && a->resumed_ns != 0 && a->resumed_step <= stands) {
        fail(r,
             "it saves but does not resume: it went on at step %" PRId64
             " with a checkpoint of step %" PRId64 "; load it in run.resume()",
             a->resumed_step, stands);
    } else if (hooked && stands >= 0 && a->resumed_ns == 0 && a->first_step <= stands) {
        fail(r,
             "it saves but does not resume: its first step was %" PRId64
             " with a checkpoint of step %" PRId64 "; call run.resume(), or use HOLDFAST_RESUME",
             a->first_step, stands);
    }
}

/* ---- the table ---- */

static void cell(char *out, size_t size, bool known, int64_t value, const char *unit)
{
    if (known) {
        snprintf(out, size, "%" PRId64 "%s", value, unit);
    } else {
        snprintf(out, size, "unknown");
    }
}

static void ms_between(char *out, size_t size, uint64_t from, uint64_t to)
{
    bool known = from != 0 && to != 0;
    cell(out, size, known, known ? ((int64_t)to - (int64_t)from) / (int64_t)HF_MS : 0, " ms");
}

static void row_text(const struct hf_round *r, size_t row, char *out, size_t size)
{
    const struct hf_told *b = &r->before;
    const struct hf_told *a = &r->after;
    int64_t kept = step_kept(r);
    int64_t resumed = a->resumed_ns != 0 ? a->resumed_step : a->first_step;
    switch (row) {
    case 0:
        if (!r->had_notice) {
            snprintf(out, size, "no notice");
        } else {
            ms_between(out, size, r->notice_set_ns, b->notice_ns);
        }
        return;
    case 1:
        if (!r->had_notice) {
            snprintf(out, size, "not asked");
        } else {
            ms_between(out, size, b->request_ns, b->saved_ns >= b->request_ns ? b->saved_ns : 0);
        }
        return;
    case 2:
        cell(out, size, b->committed, b->verdict_bytes, "");
        return;
    case 3:
        if (!r->had_notice) {
            snprintf(out, size, "no notice");
        } else {
            bool known = b->committed && b->committed_ns >= b->notice_ns;
            int64_t ms = ((int64_t)r->deadline_ns - (int64_t)b->committed_ns) / (int64_t)HF_MS;
            int64_t tenths = ms >= 0 ? ms / 100 : (ms - 99) / 100; /* never more than there was */
            snprintf(out, size, known ? "%.1f" : "unknown", (double)tenths / 10);
        }
        return;
    case 4:
        if (b->second_ns == 0) {
            snprintf(out, size, "none");
        } else if (b->second_step < 0) {
            snprintf(out, size, "failed");
        } else {
            snprintf(out, size, "step %" PRId64, b->second_step);
        }
        return;
    case 5:
        cell(out, size, kept >= 0, kept, "");
        return;
    case 6:
        cell(out, size, resumed >= 0, resumed, "");
        return;
    case 7:
        cell(out, size, r->last_step >= 0 && resumed >= 0,
             r->last_step + 1 > resumed ? r->last_step + 1 - resumed : 0, "");
        return;
    default:
        ms_between(out, size, r->after_spawned_ns, a->first_step_ns);
        return;
    }
}

void hf_drill_table(FILE *out, const struct hf_round *rounds, size_t n)
{
    static const char *const names[] = {
        "notice seen after", "request answered", "bytes durable",
        "seconds to spare",  "second save",      "step saved",
        "step resumed at",   "steps lost",       "time to first step",
    };
    fprintf(out, "%-20s", "preemption");
    for (size_t i = 0; i < n; i++) {
        fprintf(out, " %14zu", i + 1);
    }
    fprintf(out, "\n");
    for (size_t row = 0; row < HF_COUNT(names); row++) {
        fprintf(out, "%-20s", names[row]);
        for (size_t i = 0; i < n; i++) {
            char text[40];
            row_text(&rounds[i], row, text, sizeof(text));
            fprintf(out, " %14s", text);
        }
        fprintf(out, "\n");
    }
}
