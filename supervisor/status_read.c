/* SPDX-License-Identifier: Apache-2.0
 *
 * A run's status from this machine's state folder. Ages are taken on CLOCK_BOOTTIME where the word
 * is of this boot, so that a step of the wall clock makes nothing older or younger. Reads small
 * local files; asks no network.
 */
#include "base/prelude.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/fsx.h"
#include "supervisor/status_read.h"
#include "supervisor/tree.h"

#define STATUS_MAX 65536

const char *hf_ago_format(int64_t age_ms, char out[HF_AGO_STRLEN])
{
    uint64_t ms = (uint64_t)(age_ms < 0 ? -age_ms : age_ms);
    char d[HF_DURATION_STRLEN];
    if (ms < 10000) {
        snprintf(d, sizeof(d), "%" PRIu64 ".%" PRIu64 " s", ms / 1000, ms % 1000 / 100);
    } else if (ms < 60000) {
        snprintf(d, sizeof(d), "%" PRIu64 " s", ms / 1000);
    } else {
        hf_duration_format(ms / 1000 * 1000, d);
    }
    snprintf(out, HF_AGO_STRLEN, age_ms < 0 ? "in %s" : "%s ago", d);
    return out;
}

/* *ret: milliseconds since that time; false: there is none. */
static bool age_of(const cJSON *obj, const char *key, int64_t now_ms, int64_t *ret)
{
    const char *text = obj != NULL ? hf_json_opt_str(obj, key, NULL) : NULL;
    int64_t at = 0;
    if (text == NULL || hf_utc_parse(text, &at, NULL) != HF_OK) {
        return false;
    }
    *ret = now_ms - at;
    return true;
}

void hf_status_add_ages(cJSON *obj, int64_t now_ms)
{
    static const char *const keys[] = {"since",    "updated", "heartbeat", "step_at",
                                       "last_ok",  "at",      "deadline",  "store_silent_since",
                                       "stored_at"};
    for (size_t i = 0; i < HF_COUNT(keys); i++) {
        int64_t age = 0;
        char name[40];
        if (hf_json_opt(obj, keys[i]) == NULL) {
            continue;
        }
        snprintf(name, sizeof(name), "%s_age_s", keys[i]);
        if (age_of(obj, keys[i], now_ms, &age)) {
            hf_json_add_int(obj, name, age / 1000);
        } else {
            hf_json_add_null(obj, name);
        }
    }
    for (cJSON *child = obj->child; child != NULL; child = child->next) {
        if (cJSON_IsObject(child) || cJSON_IsArray(child)) {
            hf_status_add_ages(child, now_ms);
        }
    }
}

static void replace(cJSON *obj, const char *key, const char *text)
{
    cJSON_DeleteItemFromObjectCaseSensitive(obj, key);
    hf_json_add_str(obj, key, text);
}

void hf_status_add_evidence(cJSON *list, const char *by, int64_t at_ms, const char *fmt, ...)
{
    char text[256];
    char utc[HF_UTC_STRLEN];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof(text), fmt, args);
    va_end(args);
    cJSON *one = hf_json_obj();
    hf_json_add_str(one, "by", by);
    hf_json_add_str(one, "what", text);
    hf_json_add_str(one, "at", hf_utc_format(at_ms, utc));
    hf_json_push(list, one);
}

/* What the last word itself tells, at the time when it was told. */
static void told_evidence(const cJSON *obj, cJSON *list, int64_t now_ms)
{
    const cJSON *ranks = hf_json_opt(obj, "ranks");
    int64_t age = 0;
    if (cJSON_IsObject(ranks) && age_of(ranks, "step_at", now_ms, &age)) {
        hf_status_add_evidence(list, "trainer", now_ms - age,
                               "step %" PRId64 " told by the trainer",
                               hf_json_opt_int(ranks, "step", -1));
    }
    if (age_of(obj, "updated", now_ms, &age)) {
        hf_status_add_evidence(list, "supervisor", now_ms - age,
                               "status written by the supervisor");
    }
    if (age_of(obj, "heartbeat", now_ms, &age)) {
        hf_status_add_evidence(list, "store", now_ms - age, "heartbeat acknowledged by the store");
    }
}

static void keeper_evidence(const struct hf_status_seen *seen, cJSON *list)
{
    int64_t now = seen->wall_ms;
    if (seen->exit_noted) {
        hf_status_add_evidence(list, "keeper", now,
                               "the command has ended; its exit status is kept");
    }
    if (seen->keeper == HF_SEEN_ALIVE) {
        hf_status_add_evidence(list, "keeper", now,
                               "keeper pid %" PRId64 " is alive (checked now)%s", seen->keeper_pid,
                               seen->locked ? "" : ": what it keeps goes on without a supervisor");
    } else if (seen->keeper == HF_SEEN_GONE && !seen->locked) {
        hf_status_add_evidence(list, "keeper", now, "keeper pid %" PRId64 " is gone (checked now)",
                               seen->keeper_pid);
    }
}

void hf_status_judge(cJSON *obj, const struct hf_status_seen *seen)
{
    const char *said = hf_json_opt_str(obj, "state", "none");
    HF_CLEANUP(hf_freep) char *state = hf_strdup(said);
    int64_t updated_ms = hf_json_opt_int(obj, "updated_boot_ms", -1);
    int64_t now_ms = seen->wall_ms;
    int64_t age = 0;
    bool told = age_of(obj, "updated", now_ms, &age);
    if (told && seen->same_boot && updated_ms >= 0) {
        int64_t true_age = (int64_t)seen->boot_ms - updated_ms;
        now_ms += true_age - age; /* as the writer's clock would show it */
        age = true_age;
    }
    bool over = strcmp(state, "ended") == 0 || strcmp(state, "none") == 0;
    bool fresh = told && age < HF_STATUS_SILENT_MS;
    cJSON *list = hf_json_arr();
    hf_json_add_bool(obj, "supervised", seen->locked);
    hf_json_add_str(obj, "last_state", state);
    if (seen->locked) {
        hf_status_add_evidence(list, "supervisor", now_ms,
                               "a supervisor holds the run's lock (checked now)");
    } else if (!over) {
        hf_status_add_evidence(
            list, "supervisor", now_ms,
            "no supervisor lives here: nobody holds the run's lock (checked now)");
    }
    if (!over && told && !seen->same_boot) {
        hf_status_add_evidence(list, "machine", now_ms, "this machine was started anew since");
    }
    if (!over) {
        keeper_evidence(seen, list);
    }
    told_evidence(obj, list, now_ms);
    if (over && seen->locked && seen->supervisor != HF_SEEN_ALIVE) {
        /* Not the one whose word this is: it has claimed nothing yet. */
        replace(obj, "state", "preparing");
        replace(obj, "since", NULL);
        replace(obj, "outcome", NULL);
        replace(obj, "exit_status", NULL);
    } else if (!over && (!seen->locked || !fresh)) {
        HF_CLEANUP(hf_freep) char *since = hf_strdup(hf_json_opt_str(obj, "updated", ""));
        replace(obj, "state", "unknown");
        replace(obj, "since", since[0] != '\0' ? since : NULL);
    }
    hf_json_add(obj, "evidence", list);
    hf_status_add_ages(obj, now_ms);
    char utc[HF_UTC_STRLEN];
    replace(obj, "asked", hf_utc_format(now_ms, utc));
}

/* Members that the word lacks: no attempt was claimed from here, or it is another version's. */
static void fill(cJSON *obj, const struct hf_rundir *r)
{
    static const char *const unknown[] = {
        "store_kind",
        "since",
        "attempt",
        "supervisor_pid",
        "command_pid",
        "protected_by",
        "ranks",
        "watch",
        "notice",
        "save",
        "heartbeat",
        "outcome",
        "exit_status",
        "updated",
        "store_silent_since",
        "log",
        "boot_id",
        "updated_boot_ms",
        "pid_ns",
        "supervisor_start",
        "host",
        "every_ms",
        "store_create_only",
    };
    replace(obj, "run", r->name);
    replace(obj, "store", r->store);
    if (hf_json_opt_str(obj, "state", NULL) == NULL) {
        replace(obj, "state", "none");
    }
    if (hf_json_opt(obj, "unprotected") == NULL) {
        hf_json_add_bool(obj, "unprotected", false);
    }
    if (hf_json_opt(obj, "events_dropped") == NULL) {
        hf_json_add_int(obj, "events_dropped", 0);
    }
    for (size_t i = 0; i < HF_COUNT(unknown); i++) {
        if (hf_json_opt(obj, unknown[i]) == NULL) {
            hf_json_add_null(obj, unknown[i]);
        }
    }
}

static cJSON *read_object(const char *path)
{
    struct hf_buf text;
    hf_buf_init(&text, STATUS_MAX);
    cJSON *obj = NULL;
    if (hf_fs_read(path, &text, NULL) == HF_OK &&
        hf_json_parse(hf_buf_span(&text), STATUS_MAX, &obj, NULL) == HF_OK &&
        !cJSON_IsObject(obj)) {
        hf_json_free(obj);
        obj = NULL;
    }
    hf_buf_release(&text);
    return obj;
}

static enum hf_seen look_at(int64_t pid, int64_t start)
{
    if (pid <= 0 || start <= 0) {
        return HF_SEEN_NOT_LOOKED;
    }
    return hf_proc_alive((pid_t)pid, (uint64_t)start) ? HF_SEEN_ALIVE : HF_SEEN_GONE;
}

static void look_around(const struct hf_rundir *r, const cJSON *obj, struct hf_status_seen *seen)
{
    char boot[40] = "";
    struct hf_err err;
    seen->locked = hf_rundir_is_locked(r);
    seen->same_boot =
        hf_boot_id(boot, &err) == HF_OK && strcmp(boot, hf_json_opt_str(obj, "boot_id", "?")) == 0;
    seen->boot_ms = hf_now_ns() / HF_MS;
    seen->wall_ms = hf_wall_ms();
    int64_t attempt = hf_json_opt_int(obj, "attempt", 0);
    if (!seen->same_boot || attempt <= 0 ||
        hf_json_opt_int(obj, "pid_ns", -1) != (int64_t)hf_pid_ns()) {
        return;
    }
    seen->supervisor = look_at(hf_json_opt_int(obj, "supervisor_pid", 0),
                               hf_json_opt_int(obj, "supervisor_start", 0));
    HF_CLEANUP(hf_freep) char *dir = hf_rundir_attempt(r, (uint32_t)attempt);
    HF_CLEANUP(hf_freep) char *facts = hf_asprintf("%s/keeper.json", dir);
    HF_CLEANUP(hf_freep) char *end = hf_asprintf("%s/exit", dir);
    HF_CLEANUP(hf_json_freep) cJSON *keeper = read_object(facts);
    seen->exit_noted = hf_fs_exists(end);
    if (keeper != NULL) {
        seen->keeper_pid = hf_json_opt_int(keeper, "pid", 0);
        seen->keeper = look_at(seen->keeper_pid, hf_json_opt_int(keeper, "start", 0));
    }
}

cJSON *hf_status_here(const struct hf_rundir *r)
{
    HF_CLEANUP(hf_freep) char *path = hf_rundir_file(r, "status.json");
    cJSON *obj = read_object(path);
    if (obj == NULL) {
        obj = hf_json_obj();
    }
    fill(obj, r);
    struct hf_status_seen seen = {.locked = false};
    look_around(r, obj, &seen);
    hf_status_judge(obj, &seen);
    return obj;
}
