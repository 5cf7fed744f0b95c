/* SPDX-License-Identifier: Apache-2.0
 *
 * Fuzz target: what a stranger may put into the place of an encrypted record, log piece, block or
 * run.json. Nothing opens but what was sealed, byte for byte: what opens has to be sealed to the
 * same bytes again.
 */
#include "base/prelude.h"

#include <stdlib.h>
#include <string.h>

#include "checkpoint/record.h"
#include "checkpoint/sealed.h"
#include "checkpoint/wrap.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(bool ok)
{
    if (!ok) {
        abort();
    }
}

static void try_object(const struct hf_crypt *k, const char *name, const void *data, size_t size)
{
    struct hf_span plain;
    char *copy = hf_calloc(1, size + 1);
    memcpy(copy, data, size);
    struct hf_mspan object = {.ptr = copy, .len = size};
    if (hf_sealed_open(k, name, object, &plain, NULL) == HF_OK) {
        size_t len = 0;
        char *again = hf_sealed_make(k, name, plain, &len);
        must(len == size && memcmp(again, data, size) == 0);
        hf_free(again);
    }
    hf_free(copy);
}

/* With a right sum: who can write can make one. */
static void try_body(const struct hf_crypt *k, const uint8_t *data, size_t size)
{
    if (memchr(data, '\0', size) != NULL) {
        return;
    }
    char *text = hf_asprintf(
        "{\"format\":1,\"features\":[\"encrypted\"],\"type\":\"sealed\",\"body\":\"%.*s\"}",
        (int)size, (const char *)data);
    char *object = hf_record_add_sum(text);
    try_object(k, "attempts/000001.json", object, strlen(object));
    hf_free(object);
}

static void try_block(const struct hf_crypt *k, const uint8_t *data, size_t size)
{
    char id[HF_CRYPT_ID_HEX];
    char *copy = hf_calloc(1, size + 1);
    size_t len = 0;
    hf_block_id(k, (struct hf_span){.ptr = "x", .len = 1}, id);
    memcpy(copy, data, size);
    must(!hf_crypt_open_block(k, id, "raw", (struct hf_mspan){.ptr = copy, .len = size}, &len) ||
         (len == 1 && copy[0] == 'x'));
    hf_free(copy);
}

/* By key file alone: the cost of scrypt, though bounded, is nothing for a fuzzer. */
static void try_run(const uint8_t *data, size_t size)
{
    unsigned char secret[HF_KEY_FILE_BYTES];
    for (size_t i = 0; i < sizeof(secret); i++) {
        secret[i] = (unsigned char)(i * 131);
    }
    struct hf_unlock *u =
        hf_unlock_new(HF_UNLOCK_KEY_FILE, (struct hf_span){.ptr = secret, .len = sizeof(secret)});
    struct hf_crypt *k = NULL;
    struct hf_span text = {.ptr = data, .len = size};
    must(hf_wrap_open(text, "job", u, &k, NULL) == HF_OK ? k != NULL : k == NULL);
    hf_crypt_free(k);
    hf_unlock_free(u);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    unsigned char master[HF_MASTER_BYTES];
    for (size_t i = 0; i < sizeof(master); i++) {
        master[i] = (unsigned char)(0x40 + i); /* as in tests/data/crypt-1.json */
    }
    struct hf_crypt *k = hf_crypt_new(master);
    try_object(k, "attempts/000001.json", data, size);
    try_object(k, "logs/000003/000001.log.zst", data, size);
    try_body(k, data, size);
    try_block(k, data, size);
    try_run(data, size);
    hf_crypt_free(k);
    return 0;
}
