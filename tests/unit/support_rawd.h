/* SPDX-License-Identifier: Apache-2.0
 *
 * A TCP server for tests that answers with given bytes, right or wrong, whole or cut, at once or in
 * dribs and drabs. One thread, one answer at a time. What it says is set between two requests.
 */
#ifndef HF_TESTS_SUPPORT_RAWD_H
#define HF_TESTS_SUPPORT_RAWD_H

#include "base/prelude.h"

enum hf_rawd_after {
    HF_RAWD_KEEP,  /* the connection stays up for the next request */
    HF_RAWD_CLOSE, /* closed properly */
    HF_RAWD_RESET, /* closed with a reset */
    HF_RAWD_MUTE   /* stays up, and nothing that comes is read any more */
};

enum hf_rawd_when {
    HF_RAWD_HEAD,  /* answers when the request's headers are there */
    HF_RAWD_BODY,  /* when its whole body is there */
    HF_RAWD_ACCEPT /* before a byte of it came */
};

struct hf_rawd_say {
    const char *data; /* NULL: nothing */
    size_t len;
    size_t piece;    /* bytes at a time; 0: all at once */
    unsigned gap_ms; /* between the pieces */
    bool for_ever;   /* again and again, until the client hangs up */
    enum hf_rawd_after after;
    enum hf_rawd_when when;
};

struct hf_rawd;
struct hf_rawd *hf_rawd_start(void);
void hf_rawd_stop(struct hf_rawd *d); /* joins the thread */
uint16_t hf_rawd_port(const struct hf_rawd *d);
/* For all requests from now on; the bytes are copied. */
void hf_rawd_set(struct hf_rawd *d, const struct hf_rawd_say *say);
unsigned hf_rawd_answers(struct hf_rawd *d);

#endif
