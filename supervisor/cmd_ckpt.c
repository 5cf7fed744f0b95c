/* SPDX-License-Identifier: Apache-2.0
 *
 * holdfast ckpt ls|show|verify: what a run's store holds, and whether it is whole. Reads only; the
 * verbs that keep and remove are in cmd_ckpt_keep.c. Main thread: there is no loop to keep waiting.
 */
#include "base/prelude.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/text.h"
#include "checkpoint/pin.h"
#include "checkpoint/prune.h"
#include "checkpoint/restore.h"
#include "supervisor/cmd.h"
#include "supervisor/keysource.h"
#include "supervisor/rundir.h"
#include "supervisor/status_read.h"

struct ckpt {
    struct hf_cmd_ctx *ctx;
    struct hf_run run;
    bool json;
    cJSON *rows; /* json: what ls prints */
    bool one;    /* show, verify: `wanted` alone */
    struct hf_ckpt_id wanted;
    uint64_t seen, bad;
    enum hf_rc rc;
    struct hf_err err;
    int (*each)(struct ckpt *k, const struct hf_lineage_row *row);
};

/* Unknown counts as not: it is shown, and nothing rests on it. */
static bool is_pinned(const struct ckpt *k, const struct hf_lineage_row *row)
{
    struct hf_call c = {0};
    enum hf_pin_state state = HF_PIN_NONE;
    uint32_t n = 0;
    return !row->retired &&
           hf_pin_get(&k->run, &c, row->attempt, row->number, &state, &n, NULL) == HF_OK &&
           state == HF_PIN_PINNED;
}

static cJSON *row_json(const struct ckpt *k, const struct hf_lineage_row *row)
{
    static const char *const kinds[] = {"checkpoint", "aborted", "sealed"};
    char utc[HF_UTC_STRLEN];
    cJSON *obj = hf_json_obj();
    hf_json_add_int(obj, "attempt", row->attempt);
    hf_json_add_int(obj, "number", row->number);
    hf_json_add_str(obj, "kind", row->damaged ? "damaged" : kinds[row->decision->kind]);
    if (row->decision->kind != HF_DECISION_MANIFEST) {
        return obj;
    }
    const struct hf_manifest *m = &row->decision->manifest;
    if (m->step >= 0) {
        hf_json_add_int(obj, "step", m->step);
    } else {
        hf_json_add_null(obj, "step");
    }
    hf_json_add_bool(obj, "retired", row->retired);
    hf_json_add_bool(obj, "pinned", is_pinned(k, row));
    hf_json_add_str(obj, "reason", m->reason);
    hf_json_add_int(obj, "files", m->n_files);
    hf_json_add_int(obj, "bytes", (int64_t)m->bytes);
    hf_json_add_int(obj, "bytes_sent", (int64_t)m->bytes_sent);
    hf_json_add_str(obj, "at", hf_utc_format(m->at_wall_ms, utc));
    hf_json_add_int(obj, "at_age_s", (hf_wall_ms() - m->at_wall_ms) / 1000);
    hf_json_add(obj, "resume_path", hf_json_bytes(m->resume_path));
    return obj;
}

static int ls_row(struct ckpt *k, const struct hf_lineage_row *row)
{
    if (k->json) {
        hf_json_push(k->rows, row_json(k, row));
        return 0;
    }
    const struct hf_manifest *m = &row->decision->manifest;
    char step[32] = "-";
    char utc[HF_UTC_STRLEN];
    switch (row->decision->kind) {
    case HF_DECISION_MANIFEST:
        if (m->step >= 0) {
            snprintf(step, sizeof(step), "%" PRId64, m->step);
        }
        fprintf(k->ctx->out, "%3u-%-6u %12s %14" PRIu64 " %7u  %-9s %s%s\n", row->attempt,
                row->number, step, m->bytes, m->n_files, m->reason,
                hf_utc_format(m->at_wall_ms, utc),
                row->retired        ? "  (removed)"
                : is_pinned(k, row) ? "  (pinned)"
                                    : "");
        break;
    case HF_DECISION_ABORT:
    case HF_DECISION_SEAL:
        fprintf(k->ctx->out, "%3u-%-6u %12s %14s %7s  %s\n", row->attempt, row->number, "-", "-",
                "-",
                row->damaged                              ? "DAMAGED"
                : row->decision->kind == HF_DECISION_SEAL ? "sealed"
                                                          : "aborted");
        break;
    }
    return 0;
}

static int show_row(struct ckpt *k, const struct hf_lineage_row *row)
{
    const struct hf_manifest *m = &row->decision->manifest;
    cJSON *obj = row_json(k, row);
    cJSON *files = hf_json_arr();
    for (uint32_t i = 0; row->decision->kind == HF_DECISION_MANIFEST && i < m->n_files; i++) {
        static const char *const kinds[] = {"file", "folder", "link"};
        cJSON *f = hf_json_obj();
        hf_json_add(f, "root", hf_json_bytes(m->roots[m->files[i].root].path));
        hf_json_add(f, "path", hf_json_bytes(m->files[i].path));
        hf_json_add_str(f, "kind", kinds[m->files[i].kind]);
        hf_json_add_int(f, "bytes", (int64_t)m->files[i].size);
        hf_json_push(files, f);
    }
    hf_json_add(obj, "content", files);
    if (k->json) {
        hf_json_push(k->rows, obj);
        return 0;
    }
    hf_json_free(obj);
    ls_row(k, row);
    for (uint32_t i = 0; row->decision->kind == HF_DECISION_MANIFEST && i < m->n_files; i++) {
        const char *path = m->files[i].path;
        HF_CLEANUP(hf_freep)
        char *full = hf_asprintf("%s%s%s", m->roots[m->files[i].root].path,
                                 path[0] != '\0' ? "/" : "", path);
        HF_CLEANUP(hf_freep) char *clean = hf_text_clean(full);
        fprintf(k->ctx->out, "  %14" PRIu64 "  %s\n", m->files[i].size, clean);
    }
    return 0;
}

static int verify_row(struct ckpt *k, const struct hf_lineage_row *row)
{
    if (row->damaged && !row->retired) {
        k->bad++;
        if (k->json) {
            cJSON *obj = row_json(k, row);
            hf_json_add_bool(obj, "whole", false);
            hf_json_add_str(obj, "why", "the record cannot be read");
            hf_json_push(k->rows, obj);
        } else {
            fprintf(k->ctx->out, "%u-%u: DAMAGED: the record cannot be read\n", row->attempt,
                    row->number);
        }
        return 0;
    }
    if (row->decision->kind != HF_DECISION_MANIFEST || row->retired) {
        return 0;
    }
    struct hf_call c = {0};
    struct hf_err err = {0};
    uint64_t bytes = 0;
    enum hf_rc rc = hf_verify(&k->run, &c, &row->decision->manifest, &bytes, &err);
    k->bad += rc != HF_OK ? 1 : 0;
    if (k->json) {
        cJSON *obj = row_json(k, row);
        hf_json_add_bool(obj, "whole", rc == HF_OK);
        hf_json_add_str(obj, "why", rc == HF_OK ? NULL : err.msg);
        hf_json_push(k->rows, obj);
    } else if (rc == HF_OK) {
        fprintf(k->ctx->out, "%u-%u: whole, %" PRIu64 " bytes read\n", row->attempt, row->number,
                bytes);
    } else {
        fprintf(k->ctx->out, "%u-%u: %s: %s\n", row->attempt, row->number,
                rc == HF_ECORRUPT ? "DAMAGED" : "could not be read", err.msg);
    }
    return 0;
}

static bool each_row(void *user, const struct hf_lineage_row *row)
{
    struct ckpt *k = user;
    if (k->one && (row->attempt != k->wanted.attempt || row->number != k->wanted.number)) {
        return true;
    }
    k->seen++;
    return k->each(k, row) == 0;
}

enum hf_rc hf_ckpt_open_run(struct hf_cmd_ctx *ctx, const char *name, struct hf_rundir *dir,
                            struct hf_run *ret, struct hf_err *err)
{
    const struct hf_settings *set = ctx->settings;
    const char *store = hf_set_str(set, HF_SET_STORE);
    enum hf_rc rc = hf_rundir_find(dir, hf_set_str(set, HF_SET_STATE_DIR), name, store, err);
    if (rc != HF_OK && (store == NULL || rc == HF_EINVAL)) {
        return rc;
    }
    const struct hf_store_cfg cfg = hf_set_store(set);
    if (rc == HF_OK) {
        ret->name = name;
        HF_TRY(hf_store_open(dir->store, &cfg, &ret->store, err));
        return hf_keysource_unlock(set, ret, err);
    }
    uint32_t highest = 0;
    HF_TRY(hf_far_open(store, name, &cfg, ret, err));
    HF_TRY(hf_lineage_top(ret, NULL, &highest, err));
    return highest > 0 ? hf_keysource_unlock(set, ret, err) : hf_far_none(ret, err);
}

static int walk(struct ckpt *k)
{
    struct hf_call c = {0};
    struct hf_err err = {0};
    k->rows = hf_json_arr();
    if (!k->json && k->each == ls_row) {
        fprintf(k->ctx->out, "%-10s %12s %14s %7s  %-9s %s\n", "CHECKPOINT", "STEP", "BYTES",
                "FILES", "REASON", "WHEN");
    }
    enum hf_rc rc = hf_lineage_walk(&k->run, &c, each_row, k, &err);
    bool none = k->one && k->seen == 0;
    if (rc == HF_OK && k->json && !none) {
        HF_CLEANUP(hf_json_freep) cJSON *all = hf_json_obj();
        hf_json_add_int(all, "format", 1);
        hf_json_add_str(all, "run", k->run.name);
        hf_json_add(all, "checkpoints", k->rows);
        k->rows = NULL;
        HF_CLEANUP(hf_freep) char *text = hf_json_print(all);
        fprintf(k->ctx->out, "%s\n", text);
    }
    hf_json_free(k->rows);
    if (rc != HF_OK) {
        hf_log_err(k->ctx->log, HF_LOG_ERROR, &err, "run '%s'", k->run.name);
        return HF_EXIT_FAIL;
    }
    if (none) {
        hf_log(k->ctx->log, HF_LOG_ERROR,
               "run '%s' has no checkpoint %u-%u; 'holdfast ckpt ls %s' shows them", k->run.name,
               k->wanted.attempt, k->wanted.number, k->run.name);
        return HF_EXIT_FAIL;
    }
    return k->bad > 0 ? HF_EXIT_FAIL : HF_EXIT_OK;
}

/* Whether no flag of another verb is given; says which otherwise. */
static bool flags_fit(const struct hf_cmd_ctx *ctx)
{
    static const struct {
        enum hf_set_id id;
        const char *verb;
    } own[] = {{HF_SET_DRY_RUN, "gc"}, {HF_SET_EVEN_LAST, "rm"}, {HF_SET_RANKS, "inspect"}};
    for (size_t i = 0; ctx->argc > 0 && i < HF_COUNT(own); i++) {
        if (hf_set_given(ctx->settings, own[i].id) && strcmp(ctx->argv[0], own[i].verb) != 0) {
            hf_log(ctx->log, HF_LOG_ERROR, "%s belongs to 'ckpt %s'",
                   hf_set_where(ctx->settings, own[i].id), own[i].verb);
            return false;
        }
    }
    return true;
}

static int unknown_verb(const struct hf_cmd_ctx *ctx, const char *verb)
{
    static const char *const names[] = {"ls",    "show", "verify",  "rm", "pin",
                                        "unpin", "gc",   "inspect", NULL};
    struct hf_err err = {0};
    const char *nearest = hf_nearest(verb, names);
    (void)hf_fail(&err, HF_EINVAL, "ckpt has no '%s'", verb);
    if (nearest != NULL) {
        (void)hf_hint(&err, HF_EINVAL, "Did you mean 'holdfast ckpt %s'?", nearest);
    } else {
        (void)hf_hint(&err, HF_EINVAL, "'holdfast ckpt --help' lists what it has.");
    }
    hf_log_err(ctx->log, HF_LOG_ERROR, &err, "%s", "");
    return HF_EXIT_USAGE;
}

static int run(struct hf_cmd_ctx *ctx)
{
    static const struct {
        const char *name;
        int (*each)(struct ckpt *k, const struct hf_lineage_row *row);
        int min, max; /* operands, the run's name among them */
    } verbs[] = {{"ls", ls_row, 1, 1}, {"show", show_row, 2, 2}, {"verify", verify_row, 1, 2}};
    struct ckpt k = {.ctx = ctx, .json = hf_set_bool(ctx->settings, HF_SET_JSON)};
    if (!flags_fit(ctx)) {
        return HF_EXIT_USAGE;
    }
    if (ctx->argc == 2 && strcmp(ctx->argv[0], "inspect") == 0) {
        return hf_ckpt_inspect(ctx, ctx->argv[1]);
    }
    if (ctx->argc > 0 && hf_ckpt_keeps(ctx->argv[0])) {
        return hf_ckpt_keep(ctx);
    }
    const char *name = ctx->argc > 1 ? ctx->argv[1] : hf_set_str(ctx->settings, HF_SET_RUN);
    int operands = ctx->argc > 1 ? ctx->argc - 1 : name != NULL;
    bool known = ctx->argc == 0 || strcmp(ctx->argv[0], "inspect") == 0;
    for (size_t i = 0; !known && i < HF_COUNT(verbs); i++) {
        known = strcmp(ctx->argv[0], verbs[i].name) == 0;
        if (known && operands >= verbs[i].min && operands <= verbs[i].max) {
            k.each = verbs[i].each;
        }
    }
    if (!known) {
        return unknown_verb(ctx, ctx->argv[0]);
    }
    if (k.each == NULL) {
        hf_log(ctx->log, HF_LOG_ERROR,
               "use: holdfast ckpt ls RUN, ckpt show RUN ATTEMPT-NUMBER, ckpt verify RUN "
               "[ATTEMPT-NUMBER], ckpt inspect FOLDER, ckpt rm|pin|unpin RUN ATTEMPT-NUMBER..., "
               "ckpt gc RUN [--dry-run]");
        return HF_EXIT_USAGE;
    }
    k.one = ctx->argc > 2;
    if (k.one && !hf_ckpt_id_parse(ctx->argv[2], &k.wanted)) {
        hf_log(ctx->log, HF_LOG_ERROR, "%s", hf_ckpt_id_wrong);
        return HF_EXIT_USAGE;
    }
    struct hf_rundir dir;
    struct hf_err err = {0};
    int status = HF_EXIT_FAIL;
    if (hf_ckpt_open_run(ctx, name, &dir, &k.run, &err) == HF_OK) {
        status = walk(&k);
    } else {
        hf_log_err(ctx->log, HF_LOG_ERROR, &err, "%s", "");
    }
    hf_run_close(&k.run);
    hf_rundir_release(&dir);
    return status;
}

const struct hf_cmd hf_cmd_ckpt = {
    .name = "ckpt",
    .args = "ls|show|verify|rm|pin|unpin|gc RUN [ID]... | inspect FOLDER [options]",
    .summary = "list, verify, keep and remove a run's checkpoints, or inspect a folder",
    .about =
        "A checkpoint's ID is ATTEMPT-NUMBER, as 'ckpt ls' shows it. verify reads every "
        "block and\n"
        "exits 1 if one is damaged. inspect looks into a folder that a training program saves\n"
        "into, and says of each thing whether it would be shipped, and why. pin keeps a "
        "checkpoint\n"
        "whatever --keep says, rm removes some but never the last good one, gc removes what "
        "nobody\n"
        "needs.",
    .exits =
        "0: done; with verify: all is whole\n1: the run, checkpoint or folder is not there, cannot "
        "be read, or is damaged\n64: wrong usage",
    .group = HF_FOR_CKPT,
    .usage_status = HF_EXIT_USAGE,
    .run = run,
};
