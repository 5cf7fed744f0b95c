/* SPDX-License-Identifier: Apache-2.0
 *
 * holdfast ckpt inspect DIR: what lies in a checkpoint folder, by which layout each thing was
 * recognised, and why it would be shipped or not. Reads the folder alone; needs no store and no
 * run. Main thread.
 */
#include "base/prelude.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/text.h"
#include "checkpoint/layout.h"
#include "supervisor/cmd.h"

static const char *verdict(const struct hf_layout_look *l)
{
    switch (l->state) {
    case HF_LAYOUT_WHOLE:
        return "would be shipped";
    case HF_LAYOUT_UNSURE:
        return "would be shipped once it was renamed into place, or is quiet and nobody writes";
    case HF_LAYOUT_PARTIAL:
        return "would not be shipped";
    case HF_LAYOUT_FOREIGN:
        break;
    }
    return "no checkpoint";
}

static cJSON *look_json(const struct hf_layout_look *l)
{
    cJSON *obj = hf_json_obj();
    hf_json_add(obj, "path", hf_json_bytes(l->path));
    hf_json_add_str(obj, "layout", l->layout);
    hf_json_add_str(obj, "state", hf_layout_state_name(l->state));
    if (l->step >= 0) {
        hf_json_add_int(obj, "step", l->step);
    } else {
        hf_json_add_null(obj, "step");
    }
    hf_json_add_int(obj, "world", l->world);
    hf_json_add_int(obj, "bytes", (int64_t)hf_layout_bytes(l));
    hf_json_add_str(obj, "why", l->why);
    cJSON *roots = hf_json_arr();
    for (size_t i = 0; i < l->roots.len; i++) {
        hf_json_push(roots, hf_json_bytes(l->roots.items[i]));
    }
    hf_json_add(obj, "roots", roots);
    return obj;
}

static void print_name(FILE *out, const char *before, const char *path)
{
    HF_CLEANUP(hf_freep) char *clean = hf_text_clean(strrchr(path, '/') + 1);
    fprintf(out, "%s%s\n", before, clean);
}

static void print_look(FILE *out, const struct hf_layout_look *l)
{
    HF_CLEANUP(hf_freep) char *why = hf_text_clean(l->why);
    print_name(out, "", l->path);
    fprintf(out, "    %s, layout %s", hf_layout_state_name(l->state), l->layout);
    if (l->step >= 0 && l->state != HF_LAYOUT_FOREIGN) {
        fprintf(out, ", step %" PRId64, l->step);
    }
    if (l->world > 1) {
        fprintf(out, ", %u ranks", l->world);
    }
    if (l->state != HF_LAYOUT_FOREIGN) {
        fprintf(out, ", %" PRIu64 " bytes", hf_layout_bytes(l));
    }
    fprintf(out, "\n    %s: %s\n", verdict(l), why);
    for (size_t i = 1; i < l->roots.len; i++) {
        print_name(out, "    with ", l->roots.items[i]);
    }
}

int hf_ckpt_inspect(struct hf_cmd_ctx *ctx, const char *dir)
{
    HF_CLEANUP(hf_freep) char *path = realpath(dir, NULL);
    struct hf_layout_looks looks = {0};
    struct hf_err err = {0};
    uint32_t ranks = (uint32_t)hf_set_int(ctx->settings, HF_SET_RANKS);
    if (hf_layout_scan(path != NULL ? path : dir, ranks, &looks, &err) != HF_OK) {
        hf_hint(&err, err.code, "Name the folder that the training program saves into.");
        hf_log_err(ctx->log, HF_LOG_ERROR, &err, "%s", "nothing to inspect");
        return HF_EXIT_FAIL;
    }
    bool json = hf_set_bool(ctx->settings, HF_SET_JSON);
    cJSON *things = hf_json_arr();
    bool whole = false;
    for (size_t i = 0; i < looks.len; i++) {
        whole = whole || looks.items[i].state == HF_LAYOUT_WHOLE;
        if (json) {
            hf_json_push(things, look_json(&looks.items[i]));
        } else {
            print_look(ctx->out, &looks.items[i]);
        }
    }
    HF_CLEANUP(hf_json_freep) cJSON *all = hf_json_obj();
    hf_json_add_int(all, "format", 1);
    hf_json_add(all, "folder", hf_json_bytes(path != NULL ? path : dir));
    hf_json_add(all, "things", things);
    if (json) {
        HF_CLEANUP(hf_freep) char *text = hf_json_print(all);
        fprintf(ctx->out, "%s\n", text);
    } else if (looks.len == 0) {
        fprintf(ctx->out, "nothing is in it\n");
    }
    hf_layout_looks_release(&looks);
    return whole ? HF_EXIT_OK : HF_EXIT_FAIL;
}
