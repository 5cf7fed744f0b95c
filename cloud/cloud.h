/* SPDX-License-Identifier: Apache-2.0
 *
 * A provider of notices: builds a request and reads a reply, nothing else. It owns no timer, no
 * retry and no log line; cloud/watch.c does, the same for all (docs/providers.md walks every
 * cloud through this interface). Loop thread only.
 */
#ifndef HF_CLOUD_CLOUD_H
#define HF_CLOUD_CLOUD_H

#include "base/http.h"

enum hf_notice_kind {
    HF_NOTICE_RECLAIM = 1, /* the machine will be taken */
    HF_NOTICE_REBALANCE,   /* an early hint; never a deadline */
    HF_NOTICE_MAINTENANCE  /* a planned event */
};

struct hf_notice {
    enum hf_notice_kind kind;
    char id[72];          /* the provider's id, or a digest of the payload: tells notices apart */
    char source[16];      /* "aws", "signal", "file", ... */
    char action[16];      /* "terminate", "stop", "hibernate", or "" */
    int64_t at_wall_ms;   /* when the machine goes, by the service's clock; 0: unknown */
    int64_t date_wall_ms; /* the service's clock when it said so (its Date header); 0: unknown */
    /* The longest time that this one notice leaves, where that is not the provider's window (an
     * Azure reboot, AWS hibernation: 1, which is as good as none). 0: the provider's. */
    uint32_t window_ms;
};

#define HF_NOTICES_MAX 8
struct hf_notice_list {
    struct hf_notice items[HF_NOTICES_MAX];
    size_t len;
};

/* What a reply means for the round. */
enum hf_poll_result {
    HF_POLL_DONE = 1, /* the round is over; ret holds every notice that stands now (empty: calm) */
    HF_POLL_MORE,     /* ask poll_req again at once (a token first, an old one was refused...) */
    HF_POLL_FAULT     /* the service did not do its part; err says what was seen */
};

/* At most this many HF_POLL_MORE follow each other. */
#define HF_POLL_MORE_MAX 4

enum hf_cloud_flags {
    HF_CLOUD_LONG_POLL = 1, /* the service holds its reply until there is news */
    HF_CLOUD_NO_HTTP = 2    /* notices come by signal or file alone: endpoint, poll_* are NULL */
};

struct hf_cloud_ops {
    uint32_t size; /* sizeof(struct hf_cloud_ops) at build time */
    const char *name;
    enum hf_cloud_flags flags;
    const char *endpoint;     /* default, "http://169.254.169.254" */
    const char *disabled_env; /* the variable that, being "true", turns its tools away, or NULL */
    const char *endpoint_env; /* the variable that the provider's own tools honour, or NULL */
    /* From the start of one round to the start of the next. With HF_CLOUD_LONG_POLL the least
     * such time: the next round starts at once, unless the service answers faster than this. */
    uint32_t poll_ms;
    uint32_t total_ms;  /* of one request, for which poll_req sets nothing else */
    uint32_t window_ms; /* the longest time between a notice and the end that it grants */
    /* endpoint has no trailing slash and is copied. */
    void *(*create)(const char *endpoint);
    void (*destroy)(void *self); /* NULL is fine */
    /* Makes the next request by hf_http_req_init and the setters; on error *req is left alone and
     * the round counts as HF_POLL_FAULT. The watcher adds `metadata` and, where total_ms is 0, the
     * table's. Setting it is for a healthy reply that may take longer (a hanging GET, Azure's first
     * call): the watcher waits that long before it calls itself blind. */
    enum hf_rc (*poll_req)(void *self, uint64_t now_ns, struct hf_http_req *req,
                           struct hf_err *err);
    /* Reads the reply; transport != NULL: there was none, and why. HF_POLL_FAULT fills err and
     * leaves ret empty. Whatever is kept between rounds (token, ETag, own name) lives in self and
     * is of bounded size. Never blocks, never logs, reads no clock but now_ns. */
    enum hf_poll_result (*poll_read)(void *self, uint64_t now_ns, const struct hf_http_req *req,
                                     const struct hf_err *transport, struct hf_notice_list *ret,
                                     struct hf_err *err);
    /* The request that acknowledges a notice and so brings the end forward: sent only when all is
     * safe. Any 2xx is success. NULL: the provider has nothing like it. */
    enum hf_rc (*ack_req)(void *self, const struct hf_notice *n, struct hf_http_req *req,
                          struct hf_err *err);
};

/* All providers, in probing order; NULL-terminated. */
extern const struct hf_cloud_ops *const hf_clouds[];
extern const struct hf_cloud_ops hf_cloud_aws;
const struct hf_cloud_ops *hf_cloud_by_name(const char *name); /* NULL: no such provider */

/* What the machine's firmware strings say (DMI under `sysfs`, normally "/sys/class/dmi/id"): a
 * provider's name, or NULL. No network; under a millisecond. */
const struct hf_cloud_ops *hf_cloud_detect_dmi(const char *sysfs);

#endif
