/* SPDX-License-Identifier: Apache-2.0
 *
 * holdfast doctor: how fast this machine and a store are together, what the store promises, and how
 * much a save can bring to safety in a notice. checkpoint/measure.c measures, on a thread of its
 * own; the main thread waits for it or for a signal, so that nothing is left in the store.
 */
#include "base/prelude.h"

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <time.h>

#include "base/clock.h"
#include "base/json.h"
#include "base/mem.h"
#include "base/text.h"
#include "checkpoint/measure.h"
#include "supervisor/cmd.h"

#define LOOK_MS   50
#define SPEED_MIN 32

static const uint32_t notices[] = {30, 60, 120, 300};

struct visit {
    struct hf_op op; /* its flag alone: nothing is asked of a loop */
    struct hf_call call;
    struct hf_measure_in in;
    struct hf_measure seen;
    struct hf_err err;
    enum hf_rc rc;
    atomic_bool over;
};

static void *visit_main(void *arg)
{
    struct visit *v = arg;
    v->rc = hf_measure(&v->in, &v->seen, &v->err);
    atomic_store(&v->over, true);
    return NULL;
}

/* Measures. The signal that ended it early; 0: none. */
static int visit(struct visit *v)
{
    sigset_t ends, before;
    sigemptyset(&ends);
    sigaddset(&ends, SIGINT);
    sigaddset(&ends, SIGTERM);
    sigaddset(&ends, SIGHUP);
    pthread_sigmask(SIG_BLOCK, &ends, &before);
    pthread_t thread;
    int failed = pthread_create(&thread, NULL, visit_main, v);
    int sig = 0;
    while (failed == 0 && !atomic_load(&v->over)) {
        int got = sigtimedwait(&ends, NULL, &(struct timespec){.tv_nsec = LOOK_MS * 1000000});
        if (got > 0) {
            sig = got;
            hf_op_cancel(&v->op);
        }
    }
    if (failed == 0) {
        (void)pthread_join(thread, NULL);
    } else {
        v->rc = hf_fail_errno(&v->err, failed, "start a thread");
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return sig;
}

/* Decimal units, as bandwidth and bills are counted. */
static const char *bytes_text(uint64_t bytes, char out[SPEED_MIN])
{
    static const char *const units[] = {"B", "kB", "MB", "GB", "TB"};
    double value = (double)bytes;
    size_t unit = 0;
    while (value >= 999.5 && unit + 1 < HF_COUNT(units)) {
        value /= 1000;
        unit++;
    }
    (void)snprintf(out, SPEED_MIN, value < 9.995 && unit > 0 ? "%.2f %s" : "%.0f %s", value,
                   units[unit]);
    return out;
}

static void print_text(FILE *out, const struct visit *v, const struct hf_store *store)
{
    const struct hf_measure *m = &v->seen;
    char a[SPEED_MIN];
    char b[SPEED_MIN];
    HF_CLEANUP(hf_freep) char *uri = hf_text_clean(store->uri);
    bool outlives = (store->caps & HF_STORE_OUTLIVES) != 0;
    fprintf(out, "store         %s\n", uri);
    fprintf(out, "              %s\n",
            outlives ? "outlives this machine: what is committed is durable"
                     : "not known to outlive this machine: what is committed is local");
    fprintf(out, "create-only   %s\n",
            m->create_only ? "kept"
                           : "NOT kept: two machines of one run are told apart less surely");
    fprintf(out, "hash          %s/s a core\n", bytes_text(m->hash_bps, a));
    fprintf(out, "put           %s/s, hashed, %u lanes (%s measured)\n", bytes_text(m->put_bps, a),
            m->lanes, bytes_text(m->put_bytes, b));
    fprintf(out, "get           %s/s, verified (%s measured)\n", bytes_text(m->get_bps, a),
            bytes_text(m->get_bytes, b));
    fprintf(out, "small put     %.1f ms\n\n", m->small_put_ms);
    fprintf(out, "New bytes that fit in a notice, beside the time in which the program saves:\n");
    for (size_t i = 0; i < HF_COUNT(notices); i++) {
        fprintf(out, "%6u s  %s\n", notices[i], bytes_text(hf_measure_fits(m, notices[i]), a));
    }
}

static void print_json(FILE *out, const struct visit *v, const struct hf_store *store)
{
    const struct hf_measure *m = &v->seen;
    HF_CLEANUP(hf_json_freep) cJSON *obj = hf_json_obj();
    hf_json_add_int(obj, "format", 1);
    hf_json_add_str(obj, "store", store->uri);
    hf_json_add_bool(obj, "outlives", (store->caps & HF_STORE_OUTLIVES) != 0);
    hf_json_add_bool(obj, "create_only", m->create_only);
    hf_json_add_int(obj, "lanes", m->lanes);
    hf_json_add_int(obj, "block_bytes", (int64_t)v->in.block_bytes);
    hf_json_add_int(obj, "hash_bytes_per_s", (int64_t)m->hash_bps);
    hf_json_add_int(obj, "put_bytes_per_s", (int64_t)m->put_bps);
    hf_json_add_int(obj, "put_bytes", (int64_t)m->put_bytes);
    hf_json_add_int(obj, "get_bytes_per_s", (int64_t)m->get_bps);
    hf_json_add_int(obj, "get_bytes", (int64_t)m->get_bytes);
    hf_json_add_int(obj, "small_put_us", (int64_t)(m->small_put_ms * 1000));
    cJSON *fits = hf_json_arr();
    for (size_t i = 0; i < HF_COUNT(notices); i++) {
        cJSON *one = hf_json_obj();
        hf_json_add_int(one, "seconds", notices[i]);
        hf_json_add_int(one, "bytes", (int64_t)hf_measure_fits(m, notices[i]));
        hf_json_push(fits, one);
    }
    hf_json_add(obj, "fits", fits);
    HF_CLEANUP(hf_freep) char *text = hf_json_print(obj);
    fprintf(out, "%s\n", text);
}

static int examine(const struct hf_cmd_ctx *ctx, struct hf_store *store)
{
    const struct hf_settings *set = ctx->settings;
    struct visit v = {.in = {.store = store,
                             .block_bytes = (uint64_t)hf_set_int(set, HF_SET_BLOCK_SIZE),
                             .lanes = (uint32_t)hf_set_int(set, HF_SET_LANES),
                             .stage_ms = (uint32_t)hf_set_ms(set, HF_SET_SPEND)}};
    v.call.op = &v.op;
    v.in.call = &v.call;
    int sig = visit(&v);
    if (sig != 0 && v.rc == HF_ECANCELED) {
        hf_log(ctx->log, HF_LOG_WARN, "interrupted; what was put into the store is removed");
        return 128 + sig;
    }
    if (v.rc != HF_OK) {
        hf_log_err(ctx->log, HF_LOG_ERROR, &v.err, "store '%s'", store->uri);
        return HF_EXIT_FAIL;
    }
    (hf_set_bool(set, HF_SET_JSON) ? print_json : print_text)(ctx->out, &v, store);
    return HF_EXIT_OK;
}

static int run(struct hf_cmd_ctx *ctx)
{
    if (ctx->argc > 0) {
        hf_log(ctx->log, HF_LOG_ERROR, "doctor takes no operand; the store is named by --store");
        return HF_EXIT_USAGE;
    }
    const char *uri = hf_set_str(ctx->settings, HF_SET_STORE);
    HF_CLEANUP(hf_freep)
    char *own = hf_asprintf("file://%s/store", hf_set_str(ctx->settings, HF_SET_STATE_DIR));
    struct hf_store *store = NULL;
    struct hf_err err = {0};
    const struct hf_store_cfg cfg = hf_set_store(ctx->settings);
    if (hf_store_open(uri != NULL ? uri : own, &cfg, &store, &err) != HF_OK) {
        hf_log_err(ctx->log, HF_LOG_ERROR, &err, "%s", "");
        return HF_EXIT_FAIL;
    }
    int status = examine(ctx, store);
    hf_store_close(store);
    return status;
}

const struct hf_cmd hf_cmd_doctor = {
    .name = "doctor",
    .args = "[options]",
    .summary = "how fast this machine and the store are, and what fits in a notice",
    .about = "Puts random blocks into the store as a save does, gets them back, and removes them:\n"
             "at most 1 GiB. Nothing of a run is touched. Best done where the training will run,\n"
             "while nothing else does.",
    .exits = "0: measured\n1: the store cannot be used as it must\n64: wrong usage\n"
             "130: interrupted; the store was cleaned",
    .group = HF_FOR_DOCTOR,
    .usage_status = HF_EXIT_USAGE,
    .run = run,
};
