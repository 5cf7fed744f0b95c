/* SPDX-License-Identifier: Apache-2.0
 *
 * What the supervised attempt tells the drill: its event log, and the control file for steps
 * between two events. Reads only.
 */
#include "base/prelude.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/json.h"
#include "hooks/c/agree_step.h"
#include "supervisor/drill.h"

#define LINE_MAX_BYTES 65536

void hf_told_init(struct hf_told *t)
{
    *t = (struct hf_told){
        .restored_step = -1,
        .first_step = -1,
        .resumed_step = -1,
        .saved_step = -1,
        .verdict_step = -1,
        .verdict_bytes = -1,
        .verdict_took_ms = -1,
        .committed_step = -1,
        .second_step = -1,
        .exit_code = -1,
        .last_step = -1,
    };
}

static void copy(char *out, size_t size, const char *text)
{
    snprintf(out, size, "%s", text);
}

static bool is_second(const cJSON *e)
{
    return strcmp(hf_json_opt_str(e, "reason", ""), "window") == 0;
}

static void told_verdict(struct hf_told *t, const cJSON *e, uint64_t ns)
{
    const char *kind = hf_json_opt_str(e, "kind", "");
    bool committed = strcmp(kind, "durable") == 0 || strcmp(kind, "local") == 0;
    if (is_second(e) && !committed) {
        return; /* the first save of the notice stands */
    }
    t->verdict_ns = ns;
    copy(t->verdict, sizeof(t->verdict), kind);
    copy(t->verdict_why, sizeof(t->verdict_why), hf_json_opt_str(e, "why", ""));
    t->verdict_step = hf_json_opt_int(e, "step", -1);
    t->verdict_bytes = hf_json_opt_int(e, "bytes", -1);
    t->verdict_took_ms = hf_json_opt_int(e, "took_ms", -1);
    if (committed) {
        t->second_step = is_second(e) ? t->verdict_step : t->second_step;
        t->committed = true;
        t->committed_ns = ns;
        t->committed_step = t->verdict_step;
    }
}

static void told_restored(struct hf_told *t, const cJSON *e)
{
    t->restored_any = hf_json_opt_bool(e, "any", false);
    t->restored_step = hf_json_opt_int(e, "step", -1);
}

static void told_end(struct hf_told *t, const cJSON *e, uint64_t ns)
{
    t->ended_ns = ns;
    copy(t->outcome, sizeof(t->outcome), hf_json_opt_str(e, "outcome", ""));
    int64_t last = hf_json_opt_int(e, "last_step", -1);
    t->last_step = last > t->last_step ? last : t->last_step;
}

static void told_first(uint64_t *at, uint64_t ns)
{
    *at = *at == 0 ? ns : *at;
}

static void told_event(struct hf_told *t, const char *name, const cJSON *e, uint64_t ns)
{
    if (strcmp(name, "claimed") == 0) {
        copy(t->nonce, sizeof(t->nonce), hf_json_opt_str(e, "nonce", ""));
        t->claimed_ns = ns;
    } else if (strcmp(name, "restored") == 0) {
        told_restored(t, e);
    } else if (strcmp(name, "command-started") == 0) {
        t->started_ns = ns;
    } else if (strcmp(name, "joined") == 0) {
        told_first(&t->joined_ns, ns);
    } else if (strcmp(name, "resumed") == 0) {
        told_first(&t->resumed_ns, ns);
        t->resumed_step = hf_json_opt_int(e, "step", -1);
    } else if (strcmp(name, "first-step") == 0) {
        told_first(&t->first_step_ns, ns);
        t->first_step = hf_json_opt_int(e, "step", -1);
    } else if (strcmp(name, "notice") == 0) {
        told_first(&t->notice_ns, ns);
    } else if (strcmp(name, "request") == 0 && is_second(e)) {
        t->second_ns = ns;
    } else if (strcmp(name, "request") == 0) {
        t->request_ns = ns;
        t->request_how[0] = '\0';
        t->request_why[0] = '\0';
    } else if (strcmp(name, "request-ended") == 0 && t->second_ns == 0) {
        copy(t->request_how, sizeof(t->request_how), hf_json_opt_str(e, "how", ""));
        if (strcmp(t->request_how, "saved") != 0) {
            copy(t->request_why, sizeof(t->request_why), hf_json_opt_str(e, "why", "no answer"));
        }
    } else if (strcmp(name, "saved") == 0) {
        t->saved_ns = t->second_ns == 0 ? ns : t->saved_ns;
        t->saved_step = hf_json_opt_int(e, "step", -1);
    } else if (strcmp(name, "found") == 0) {
        t->found = true;
    } else if (strcmp(name, "verdict") == 0) {
        told_verdict(t, e, ns);
    } else if (strcmp(name, "unprotected") == 0) {
        t->unprotected = true;
    } else if (strcmp(name, "done") == 0) {
        t->done = true;
    } else if (strcmp(name, "command-exited") == 0) {
        t->exited_ns = ns;
        t->exit_code = hf_json_opt_int(e, "exit_code", -1);
        t->exit_signal = hf_json_opt_int(e, "signal", 0);
    } else if (strcmp(name, "attempt-ended") == 0) {
        told_end(t, e, ns);
    }
}

void hf_told_line(struct hf_told *t, const char *line, size_t len)
{
    HF_CLEANUP(hf_json_freep) cJSON *e = NULL;
    if (hf_json_parse((struct hf_span){line, len}, LINE_MAX_BYTES, &e, NULL) != HF_OK) {
        return;
    }
    const char *name = hf_json_opt_str(e, "event", "");
    uint64_t ns = strtoull(hf_json_opt_str(e, "ns", "0"), NULL, 10);
    int64_t attempt = hf_json_opt_int(e, "attempt", 0);
    if (strcmp(name, "claimed") == 0) {
        hf_told_init(t);
        t->attempt = (uint32_t)attempt;
    }
    if (attempt == (int64_t)t->attempt) {
        told_event(t, name, e, ns);
    }
}

/* The highest step that any rank has published, from the control file of the present attempt. */
static int64_t published(const struct hf_drill *d)
{
    HF_CLEANUP(hf_freep) char *dir = hf_rundir_attempt(&d->dir, d->told.attempt);
    HF_CLEANUP(hf_freep) char *path = hf_asprintf("%s/c", dir);
    HF_CLEANUP(hf_closep) int fd = open(path, O_RDONLY | O_CLOEXEC);
    struct stat st;
    if (fd < 0 || fstat(fd, &st) != 0 || (uint64_t)st.st_size < HFW_SIZE) {
        return -1;
    }
    void *map = mmap(NULL, HFW_SIZE, PROT_READ, MAP_SHARED, fd, 0);
    if (map == MAP_FAILED) {
        return -1;
    }
    const struct hfw_head *head = map;
    const struct hfw_slot *slots =
        (const struct hfw_slot *)(const void *)((const char *)map + sizeof(*head));
    int64_t best = -1;
    for (uint32_t i = 0; head->magic == HFW_MAGIC && i < HFW_SLOTS; i++) {
        int64_t step = __atomic_load_n(&slots[i].step, __ATOMIC_ACQUIRE);
        best = slots[i].joined != 0 && step > best ? step : best;
    }
    munmap(map, HFW_SIZE);
    return best;
}

void hf_drill_follow(struct hf_drill *d)
{
    HF_CLEANUP(hf_freep) char *path = hf_rundir_file(&d->dir, "events.jsonl");
    HF_CLEANUP(hf_closep) int fd = open(path, O_RDONLY | O_CLOEXEC);
    char chunk[16384];
    for (ssize_t n = 1; fd >= 0 && n > 0;) {
        n = pread(fd, chunk, sizeof(chunk), (off_t)d->events_read);
        if (n > 0 && hf_buf_add(&d->events, chunk, (size_t)n, NULL) != HF_OK) {
            hf_buf_reset(&d->events);
        }
        d->events_read += n > 0 ? (uint64_t)n : 0;
        size_t pos = 0;
        size_t len = 0;
        for (char *line = NULL; (line = hf_buf_next_line(&d->events, &pos, &len)) != NULL;) {
            hf_told_line(&d->told, line, len);
        }
        hf_buf_drop_front(&d->events, pos);
    }
    int64_t step = d->told.attempt > 0 ? published(d) : -1;
    if (step > d->told.last_step) {
        d->told.last_step = step;
    }
    if (step >= 0 && d->told.first_step_ns == 0) {
        d->told.first_step_ns = hf_now_ns();
        d->told.first_step = step;
    }
}
