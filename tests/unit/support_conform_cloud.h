/* SPDX-License-Identifier: Apache-2.0
 *
 * What is asked of every provider (docs/providers.md), run against any table: the real ones and
 * the test doubles. A subject brings its table and a function that plays its service; no socket is
 * involved, so a round costs microseconds.
 */
#ifndef HF_TESTS_SUPPORT_CONFORM_CLOUD_H
#define HF_TESTS_SUPPORT_CONFORM_CLOUD_H

#include "cloud/cloud.h"
#include "support_httpd.h"

enum hf_mood {
    HF_MOOD_CALM,
    HF_MOOD_NOTICE, /* the machine will be taken */
    HF_MOOD_HINT,   /* an early hint alone; only where has_hint */
    HF_MOOD_OTHER   /* a notice that differs from that of HF_MOOD_NOTICE */
};

struct hf_conform_subject {
    const struct hf_cloud_ops *ops;
    /* The healthy service's answer. act ANSWER only. `mood` points at an enum hf_mood. */
    hf_httpd_fn *serve;
    bool has_other; /* whether a second, different notice is possible */
    bool has_hint;  /* whether the provider gives early hints */
};

/* What goes wrong with a request. */
enum hf_conform_fault {
    HF_CONFORM_HEALTHY,
    HF_CONFORM_TIMEOUT, /* connected, no answer */
    HF_CONFORM_REFUSED,
    HF_CONFORM_TOO_LONG,
    HF_CONFORM_500,
    HF_CONFORM_503,
    HF_CONFORM_429,
    HF_CONFORM_EMPTY,   /* 200 without a byte */
    HF_CONFORM_HTML,    /* 200 with a web page */
    HF_CONFORM_RUBBISH, /* 200 with bytes that are no text */
    HF_CONFORM_FAULTS
};

/* The requests from..to (0 is the first) of the round that `fault` befalls. */
struct hf_conform_plan {
    enum hf_conform_fault fault;
    unsigned from, to;
};

/* One round; plan may be NULL. Returns the result that ended it. */
enum hf_poll_result hf_conform_round(const struct hf_conform_subject *s, void *self,
                                     enum hf_mood mood, const struct hf_conform_plan *plan,
                                     struct hf_notice_list *ret, struct hf_err *err);

/* All of it; fails the running cmocka test. */
void hf_conform_cloud(const struct hf_conform_subject *s);

#endif
