/* SPDX-License-Identifier: Apache-2.0
 *
 * holdfast ckpt rm|pin|unpin|gc: what is to stay and what is to go, by hand. Main thread: there is
 * no loop to keep waiting. It never asks back: what must not go is refused.
 */
#include "base/prelude.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "checkpoint/pin.h"
#include "checkpoint/prune.h"
#include "supervisor/cmd.h"
#include "supervisor/rundir.h"

struct keeping {
    struct hf_cmd_ctx *ctx;
    struct hf_run run;
    struct hf_ckpt_id *ids;
    size_t n_ids;
};

static enum hf_rc prune(struct keeping *k, struct hf_prune_report *report, struct hf_err *err)
{
    struct hf_call c = {0};
    struct hf_prune_in in = {.run = &k->run,
                             .ids = k->ids,
                             .n_ids = k->n_ids,
                             .even_last = hf_set_bool(k->ctx->settings, HF_SET_EVEN_LAST),
                             .dry_run = hf_set_bool(k->ctx->settings, HF_SET_DRY_RUN)};
    return hf_prune(&in, &c, report, err);
}

static void print_json(const struct keeping *k, const struct hf_prune_report *r, bool dry)
{
    HF_CLEANUP(hf_json_freep) cJSON *all = hf_json_obj();
    hf_json_add_int(all, "format", 1);
    hf_json_add_str(all, "run", k->run.name);
    hf_json_add_bool(all, "dry_run", dry);
    hf_json_add_int(all, "blocks", (int64_t)r->blocks);
    hf_json_add_int(all, "bytes", (int64_t)r->bytes);
    cJSON *rows = hf_json_arr();
    for (size_t i = 0; i < r->len; i++) {
        cJSON *one = hf_json_obj();
        hf_json_add_int(one, "attempt", r->items[i].attempt);
        hf_json_add_int(one, "number", r->items[i].number);
        hf_json_add_int(one, "blocks", (int64_t)r->items[i].blocks);
        hf_json_add_int(one, "bytes", (int64_t)r->items[i].bytes);
        hf_json_push(rows, one);
    }
    hf_json_add(all, "removed", rows);
    HF_CLEANUP(hf_freep) char *text = hf_json_print(all);
    fprintf(k->ctx->out, "%s\n", text);
}

static enum hf_rc remove_some(struct keeping *k, struct hf_err *err)
{
    struct hf_prune_report r = {.len = 0};
    HF_TRY(prune(k, &r, err));
    bool dry = hf_set_bool(k->ctx->settings, HF_SET_DRY_RUN);
    if (hf_set_bool(k->ctx->settings, HF_SET_JSON)) {
        print_json(k, &r, dry);
    } else {
        for (size_t i = 0; i < r.len; i++) {
            fprintf(k->ctx->out, "%u-%u: %" PRIu64 " blocks, %" PRIu64 " bytes\n",
                    r.items[i].attempt, r.items[i].number, r.items[i].blocks, r.items[i].bytes);
        }
        fprintf(k->ctx->out, "%s: %" PRIu64 " blocks, %" PRIu64 " bytes\n",
                dry ? "would be removed" : "removed", r.blocks, r.bytes);
    }
    hf_prune_report_release(&r);
    return HF_OK;
}

static enum hf_rc set_pins(struct keeping *k, bool pinned, struct hf_err *err)
{
    struct hf_call c = {0};
    bool json = hf_set_bool(k->ctx->settings, HF_SET_JSON);
    HF_CLEANUP(hf_json_freep) cJSON *all = hf_json_obj();
    hf_json_add_int(all, "format", 1);
    hf_json_add_str(all, "run", k->run.name);
    cJSON *rows = hf_json_arr();
    hf_json_add(all, "checkpoints", rows);
    for (size_t i = 0; i < k->n_ids; i++) {
        uint32_t a = k->ids[i].attempt;
        uint32_t n = k->ids[i].number;
        HF_TRY(hf_pin_set(&k->run, &c, a, n, pinned, err));
        cJSON *one = hf_json_obj();
        hf_json_add_int(one, "attempt", a);
        hf_json_add_int(one, "number", n);
        hf_json_add_bool(one, "pinned", pinned);
        hf_json_push(rows, one);
        if (!json) {
            fprintf(k->ctx->out, "%u-%u: %s\n", a, n, pinned ? "pinned" : "not pinned");
        }
    }
    HF_CLEANUP(hf_freep) char *text = hf_json_print(all);
    if (json) {
        fprintf(k->ctx->out, "%s\n", text);
    }
    return HF_OK;
}

static enum hf_rc do_rm(struct keeping *k, struct hf_err *err)
{
    return remove_some(k, err);
}

static enum hf_rc do_pin(struct keeping *k, struct hf_err *err)
{
    return set_pins(k, true, err);
}

static enum hf_rc do_unpin(struct keeping *k, struct hf_err *err)
{
    return set_pins(k, false, err);
}

static const struct {
    const char *name;
    enum hf_rc (*act)(struct keeping *k, struct hf_err *err);
    bool ids; /* names checkpoints */
} verbs[] = {{"rm", do_rm, true},
             {"pin", do_pin, true},
             {"unpin", do_unpin, true},
             {"gc", remove_some, false}};

bool hf_ckpt_keeps(const char *verb)
{
    for (size_t i = 0; i < HF_COUNT(verbs); i++) {
        if (strcmp(verb, verbs[i].name) == 0) {
            return true;
        }
    }
    return false;
}

/* Digits up to `end`, from 1 to HF_NUMBER_MAX; 0: something else. */
static uint32_t read_number(const char *text, char end, const char **ret_rest)
{
    char *stop = NULL;
    unsigned long v = text[0] >= '0' && text[0] <= '9' ? strtoul(text, &stop, 10) : 0;
    if (v == 0 || v > HF_NUMBER_MAX || *stop != end) {
        return 0;
    }
    *ret_rest = stop + 1;
    return (uint32_t)v;
}

const char hf_ckpt_id_wrong[] =
    "a checkpoint is named ATTEMPT-NUMBER, as 'holdfast ckpt ls' shows it";

bool hf_ckpt_id_parse(const char *text, struct hf_ckpt_id *ret)
{
    const char *rest = text;
    ret->attempt = read_number(text, '-', &rest);
    ret->number = ret->attempt > 0 ? read_number(rest, '\0', &rest) : 0;
    return ret->number > 0;
}

/* NULL: fits. Else what is wrong with the words. */
static const char *read_words(struct keeping *k, size_t verb)
{
    const struct hf_cmd_ctx *ctx = k->ctx;
    bool gc = !verbs[verb].ids;
    if (ctx->argc < 2 || (gc && ctx->argc > 2) || (!gc && ctx->argc < 3)) {
        return "use: holdfast ckpt rm|pin|unpin RUN ATTEMPT-NUMBER..., ckpt gc RUN [--dry-run]";
    }
    for (int i = 2; i < ctx->argc; i++) {
        if (!hf_ckpt_id_parse(ctx->argv[i], &k->ids[k->n_ids++])) {
            return hf_ckpt_id_wrong;
        }
    }
    return NULL;
}

int hf_ckpt_keep(struct hf_cmd_ctx *ctx)
{
    size_t verb = 0;
    while (strcmp(ctx->argv[0], verbs[verb].name) != 0) {
        verb++;
    }
    struct keeping k = {.ctx = ctx};
    k.ids = hf_calloc((size_t)ctx->argc, sizeof(*k.ids));
    const char *wrong = read_words(&k, verb);
    if (wrong != NULL) {
        hf_log(ctx->log, HF_LOG_ERROR, "%s", wrong);
        hf_free(k.ids);
        return HF_EXIT_USAGE;
    }
    struct hf_rundir dir;
    struct hf_err err = {0};
    enum hf_rc rc = hf_ckpt_open_run(ctx, ctx->argv[1], &dir, &k.run, &err);
    if (rc == HF_OK) {
        rc = verbs[verb].act(&k, &err);
    }
    if (rc != HF_OK) {
        hf_log_err(ctx->log, HF_LOG_ERROR, &err, "%s", "");
    }
    hf_run_close(&k.run);
    hf_rundir_release(&dir);
    hf_free(k.ids);
    return rc == HF_OK ? HF_EXIT_OK : HF_EXIT_FAIL;
}
