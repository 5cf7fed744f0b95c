/* SPDX-License-Identifier: Apache-2.0
 *
 * Which notices stand: tells new, changed, gone and never carried out apart, from the full list
 * that each answered round gives. Pure and of fixed size; cloud/watch.c owns one. One thread.
 */
#ifndef HF_CLOUD_NOTICES_H
#define HF_CLOUD_NOTICES_H

#include "cloud/cloud.h"

#define HF_NOTICES_KEPT_MAX    (2 * HF_NOTICES_MAX)
#define HF_NOTICES_CHANGES_MAX (3 * HF_NOTICES_MAX)

struct hf_noticed {
    struct hf_notice n;
    int64_t due_ns; /* CLOCK_BOOTTIME when the machine should be gone; may lie before boot */
    bool told;      /* false: withdrawn, or not told at all */
    bool here;      /* in the round at hand */
};

struct hf_notices {
    uint32_t window_ms; /* the provider's; set by the owner */
    uint64_t rearm_ms;  /* how long past its time a notice stands; set by the owner */
    struct hf_noticed items[HF_NOTICES_KEPT_MAX];
    size_t len;
};

enum hf_notices_what { HF_NOTICES_TOLD = 1, HF_NOTICES_WITHDRAWN };

struct hf_notices_change {
    enum hf_notices_what what;
    struct hf_notice n;
};

/* Takes in one answered round; a zeroed struct with its two settings is empty. Returns the number
 * of changes, new ones before withdrawn ones. wall_ms stands in for a missing Date. */
size_t hf_notices_update(struct hf_notices *s, const struct hf_notice_list *list, uint64_t now_ns,
                         int64_t wall_ms, struct hf_notices_change ret[HF_NOTICES_CHANGES_MAX]);

#endif
