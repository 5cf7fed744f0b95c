/* SPDX-License-Identifier: Apache-2.0
 *
 * Which fault a rehearsed metadata service answers a request with. Pure and repeatable: the same
 * seed gives the same row of faults. Of any three requests in a row at least one is answered as it
 * should be, so that who asks again gets an answer.
 */
#ifndef HF_CLOUD_CHAOS_H
#define HF_CLOUD_CHAOS_H

#include "base/prelude.h"

enum hf_chaos {
    HF_CHAOS_NONE,
    HF_CHAOS_UNAUTHORIZED, /* 401, and every token given so far is forgotten */
    HF_CHAOS_ERROR,        /* 500 */
    HF_CHAOS_BUSY,         /* 503 */
    HF_CHAOS_HANG,         /* taken, and never answered */
    HF_CHAOS_DROP,         /* the connection is closed without an answer */
    HF_CHAOS_KINDS
};

/* nth: counted from 0. */
enum hf_chaos hf_chaos_of(uint64_t seed, uint64_t nth);

#endif
