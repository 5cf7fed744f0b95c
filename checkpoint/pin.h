/* SPDX-License-Identifier: Apache-2.0
 *
 * Pins: a person's word that a checkpoint is to stay, whatever retention says. Each checkpoint has
 * a row of create-only records, checkpoints/NNNNNN-NNNNNN.pin.NNNNNN.json, from 1 without a gap;
 * the last one rules: pinned, unpinned, or closed. "closed" ends the row: the checkpoint is about
 * to be retired, and nobody can pin it any more. So of a pin and a removal that meet, the store
 * lets one win, and nothing is ever changed or deleted. Blocking, worker threads.
 */
#ifndef HF_CHECKPOINT_PIN_H
#define HF_CHECKPOINT_PIN_H

#include "checkpoint/lineage.h"

enum hf_pin_state { HF_PIN_NONE, HF_PIN_PINNED, HF_PIN_UNPINNED, HF_PIN_CLOSED };

/* The last record of a row; *ret_n: how many there are. One that is damaged counts as a pin. */
enum hf_rc hf_pin_get(const struct hf_run *run, const struct hf_call *c, uint32_t attempt,
                      uint32_t number, enum hf_pin_state *ret, uint32_t *ret_n,
                      struct hf_err *err) HF_MUST_USE;

/* Pins or unpins; so already: success. HF_ENOTFOUND: there is no such checkpoint. HF_EEXISTS: it is
 * removed, or about to be. */
enum hf_rc hf_pin_set(const struct hf_run *run, const struct hf_call *c, uint32_t attempt,
                      uint32_t number, bool pinned, struct hf_err *err) HF_MUST_USE;

/* Before a checkpoint is retired: ends its row. *ret_closed false: it is pinned, leave it. */
enum hf_rc hf_pin_close(const struct hf_run *run, const struct hf_call *c, uint32_t attempt,
                        uint32_t number, bool *ret_closed, struct hf_err *err) HF_MUST_USE;

#endif
