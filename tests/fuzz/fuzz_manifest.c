/* SPDX-License-Identifier: Apache-2.0
 *
 * Fuzz target: the records of the store. Whatever parses has to be printable, and what is printed
 * has to parse to the same text.
 */
#include "base/prelude.h"

#include <stdlib.h>
#include <string.h>

#include "checkpoint/manifest.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(bool ok)
{
    if (!ok) {
        abort();
    }
}

static struct hf_span span_of(const char *text)
{
    return (struct hf_span){.ptr = text, .len = strlen(text)};
}

static void try_decision(struct hf_span text)
{
    struct hf_decision d;
    struct hf_err err;
    if (hf_decision_parse(text, &d, &err) != HF_OK) {
        return;
    }
    char *first = hf_decision_print(&d);
    hf_decision_release(&d);
    must(hf_decision_parse(span_of(first), &d, &err) == HF_OK);
    char *second = hf_decision_print(&d);
    must(strcmp(first, second) == 0);
    hf_decision_release(&d);
    free(first);
    free(second);
}

static void try_claim(struct hf_span text)
{
    struct hf_claim c;
    struct hf_err err;
    if (hf_claim_parse(text, &c, &err) != HF_OK) {
        return;
    }
    char *first = hf_claim_print(&c);
    hf_claim_release(&c);
    must(hf_claim_parse(span_of(first), &c, &err) == HF_OK);
    char *second = hf_claim_print(&c);
    must(strcmp(first, second) == 0);
    hf_claim_release(&c);
    free(first);
    free(second);
}

static void try_end(struct hf_span text)
{
    struct hf_end e;
    struct hf_err err;
    if (hf_end_parse(text, &e, &err) != HF_OK) {
        return;
    }
    char *first = hf_end_print(&e);
    hf_end_release(&e);
    must(hf_end_parse(span_of(first), &e, &err) == HF_OK);
    char *second = hf_end_print(&e);
    must(strcmp(first, second) == 0);
    hf_end_release(&e);
    free(first);
    free(second);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct hf_span text = {.ptr = data, .len = size};
    try_decision(text);
    try_claim(text);
    try_end(text);
    return 0;
}
