/* SPDX-License-Identifier: Apache-2.0
 *
 * Pages for secrets. What the kernel refuses (a limit on locked memory) is done without: it is a
 * precaution, and no reason to lose a training run. Any thread.
 */
#include "base/prelude.h"

#include <openssl/crypto.h>
#include <sys/mman.h>

#include "base/mem.h"
#include "base/secret.h"

void *hf_secret_new(size_t len)
{
    void *p = hf_big_new(len);
    if (p == NULL) {
        hf_out_of_memory();
    }
    (void)mlock(p, len);
    (void)madvise(p, len, MADV_DONTDUMP);
    (void)madvise(p, len, MADV_DONTFORK);
    return p;
}

void hf_secret_free(void *ptr, size_t len)
{
    if (ptr != NULL) {
        hf_wipe(ptr, len);
        (void)munlock(ptr, len);
        hf_big_free(ptr, len);
    }
}

void hf_wipe(void *ptr, size_t len)
{
    OPENSSL_cleanse(ptr, len);
}

bool hf_same_secret(const void *a, const void *b, size_t len)
{
    return CRYPTO_memcmp(a, b, len) == 0;
}
