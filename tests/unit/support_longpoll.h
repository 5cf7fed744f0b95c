/* SPDX-License-Identifier: Apache-2.0
 *
 * A provider for tests whose service holds its reply until there is news: a plain question first,
 * then hanging ones with the last ETag; a first answer that may take long; notices that can be
 * acknowledged. It shows that the interface and the watcher carry more than AWS.
 */
#ifndef HF_TESTS_SUPPORT_LONGPOLL_H
#define HF_TESTS_SUPPORT_LONGPOLL_H

#include "base/prelude.h"

#include <stdatomic.h>

#include "cloud/cloud.h"
#include "support_conform_cloud.h"

extern const struct hf_cloud_ops hf_cloud_longpoll;
extern const struct hf_conform_subject hf_longpoll_subject;

/* The service. state: 0 calm, n: notice number n. */
struct hf_longpoll_service {
    struct hf_httpd *server;
    atomic_uint state;
    unsigned hold_ms; /* how long a question hangs; 0: answers at once, as a broken one would */
    unsigned first_delay_ms;
    atomic_uint questions, hanging, acknowledged;
};
void hf_longpoll_serve(void *service, const struct hf_httpd_request *rq,
                       struct hf_httpd_reply *ret);

#endif
