/* SPDX-License-Identifier: Apache-2.0
 *
 * How many ranks a command will start, as far as its own words tell: a checkpoint of another number
 * of ranks fails late, or loads wrongly. Pure; any thread.
 */
#ifndef HF_SUPERVISOR_WORLD_H
#define HF_SUPERVISOR_WORLD_H

#include "base/prelude.h"

/* The number that the launcher in argv is given (torchrun, torch.distributed.run and .launch,
 * accelerate launch, deepspeed, mpirun, mpiexec, srun), else WORLD_SIZE of the environment. 0: it
 * cannot be told: no launcher that is known here, several nodes, or a number that it finds out by
 * itself ("gpu", "auto"). Both arrays are NULL-terminated. */
uint32_t hf_declared_world(const char *const *argv, const char *const *env);

#endif
