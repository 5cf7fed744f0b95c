/* SPDX-License-Identifier: Apache-2.0
 *
 * The event log of a run, for machines: one JSON line an event in events.jsonl (docs/formats.md
 * lists them). Drills, tests and tools read it; nothing parses the log for people. Loop thread
 * only.
 */
#ifndef HF_SUPERVISOR_EVENTS_H
#define HF_SUPERVISOR_EVENTS_H

#include "base/json.h"

/* Sees each event as it is written; `event` is the whole object, valid during the call. */
typedef void hf_event_fn(void *user, const char *name, const cJSON *event);

struct hf_events {
    char *path;         /* owned */
    uint64_t dropped;   /* lines that could not be written */
    hf_event_fn *heard; /* NULL: nobody listens */
    void *user;
};

void hf_events_open(struct hf_events *e, const char *path);
void hf_events_release(struct hf_events *e);

/* Appends {"ts", "ns", "attempt", "event", ...fields}. ns is CLOCK_BOOTTIME. `fields` is an
 * object that is taken, or NULL. A line that cannot be written is counted in `dropped`. */
void hf_event(struct hf_events *e, uint32_t attempt, const char *name, cJSON *fields_taken);

#endif
