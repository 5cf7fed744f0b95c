/* SPDX-License-Identifier: Apache-2.0
 *
 * Fuzz target: containers. The first byte chooses the name, the rest is the file. Whatever it is,
 * the verdict is one, reasons are given where there is something wrong, and what says by its own
 * length that it is whole says otherwise without its last byte. One thread.
 */
#include "base/prelude.h"

#include <stdlib.h>
#include <string.h>

#include "checkpoint/container.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char *const names[] = {"a.pt",           "a.safetensors", "a.json", "a.h5",
                                    "a.keras",        "a.index",       "a.bin",  "__0_0.distcp",
                                    "manifest.ocdbt", ".metadata",     "a.ckpt", "none"};

static void require(bool holds)
{
    if (!holds) {
        abort();
    }
}

/* A zip may be made so that it holds another one in its comment. */
static bool is_exact(enum hf_box box)
{
    return box == HF_BOX_SAFETENSORS || box == HF_BOX_HDF5 || box == HF_BOX_MANIFEST;
}

static bool same(const struct hf_box_look *a, const struct hf_box_look *b)
{
    return a->box == b->box && a->state == b->state && a->size == b->size &&
           strcmp(a->why, b->why) == 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0) {
        return 0;
    }
    const char *name = names[data[0] % HF_COUNT(names)];
    struct hf_box_look look;
    struct hf_box_look again;
    hf_box_judge_bytes(data + 1, size - 1, name, &look);
    require(look.size == size - 1);
    require((look.state == HF_BOX_SHORT) == (look.why[0] != '\0'));
    require(memchr(look.why, '\0', sizeof(look.why)) != NULL);
    hf_box_judge_bytes(data + 1, size - 1, name, &again);
    require(same(&look, &again));
    if (look.state == HF_BOX_WHOLE && is_exact(look.box)) {
        hf_box_judge_bytes(data + 1, size - 2, name, &again);
        require(again.state != HF_BOX_WHOLE);
    }
    return 0;
}
