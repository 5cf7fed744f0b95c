/* SPDX-License-Identifier: Apache-2.0
 *
 * How many ranks a command declares: launchers' spellings, and what must not be guessed.
 */
#include "base/prelude.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"
#include "supervisor/world.h"

#define WORDS 16

/* Words are split at spaces: none of these has one inside. */
static void split(const char *text, char *copy, const char **words)
{
    size_t n = 0;
    snprintf(copy, 256, "%s", text);
    for (char *at = copy; *at != '\0' && n + 1 < WORDS; n++) {
        words[n] = at;
        at += strcspn(at, " ");
        if (*at == ' ') {
            *at++ = '\0';
        }
    }
    words[n] = NULL;
}

static void commands(void **state)
{
    (void)state;
    static const struct {
        const char *command, *env;
        uint32_t world;
    } table[] = {
        {"python train.py", "", 0},
        {"python train.py", "WORLD_SIZE=4 RANK=1", 4},
        {"python train.py", "WORLD_SIZE=", 0},
        {"python train.py", "WORLD_SIZE=four", 0},
        {"python train.py", "MY_WORLD_SIZE=4", 0},
        {"torchrun --nproc-per-node 4 train.py", "", 4},
        {"torchrun --nproc_per_node=8 train.py --lr 1", "", 8},
        {"/opt/venv/bin/torchrun --standalone --nproc-per-node=2 t.py", "", 2},
        {"torchrun train.py", "", 1},
        {"torchrun train.py", "PET_NPROC_PER_NODE=3", 3},
        {"torchrun --nproc-per-node=gpu train.py", "", 0},
        {"torchrun --nproc-per-node auto train.py", "", 0},
        {"torchrun --nnodes=2 --nproc-per-node=4 train.py", "", 8},
        {"torchrun --nnodes 1:1 --nproc-per-node=4 train.py", "", 4},
        {"torchrun --nnodes=1:4 --nproc-per-node=4 train.py", "", 0},
        {"torchrun --nproc-per-node=4 train.py", "PET_NNODES=2", 8},
        {"torchrun train.py --nproc-per-node 5", "", 1},
        {"torchrun --standalone t.py --nproc-per-node 5", "", 1},
        {"torchrun --nproc-per-node", "", 0},
        {"torchrun --nproc-per-node=0 train.py", "", 0},
        {"torchrun --nproc-per-node=-1 train.py", "", 0},
        {"torchrun --nproc-per-node=99999999 train.py", "", 0},
        {"python -m torch.distributed.run --nproc-per-node=2 t.py", "", 2},
        {"python -m torch.distributed.launch --nproc_per_node=2 --nnodes=3 t.py", "", 6},
        {"python3 -u -m torchrun t.py", "", 1},
        {"accelerate launch --num_processes 2 t.py", "", 2},
        {"accelerate launch --num-processes=2 --num_machines=1 t.py", "", 2},
        {"accelerate launch --num_processes=8 --num_machines=2 t.py", "", 0},
        {"accelerate launch t.py", "", 0},
        {"accelerate config", "WORLD_SIZE=2", 2},
        {"deepspeed --num_gpus 4 t.py", "", 4},
        {"deepspeed --num_gpus=4 --num_nodes=2 t.py", "", 0},
        {"deepspeed t.py", "", 0},
        {"mpirun -np 4 python t.py", "", 4},
        {"mpiexec -n 3 python t.py", "", 3},
        {"srun --ntasks=6 python t.py", "", 6},
        {"srun -n 6 python t.py", "", 6},
        {"env A=1 torchrun --nproc-per-node=2 t.py", "", 2},
        {"sh run.sh torchrun.sh", "", 0},
    };
    for (size_t i = 0; i < HF_COUNT(table); i++) {
        char command[256];
        char env[256];
        const char *argv[WORDS];
        const char *vars[WORDS];
        split(table[i].command, command, argv);
        split(table[i].env, env, vars);
        uint32_t world = hf_declared_world(argv, vars);
        if (world != table[i].world) {
            fail_msg("'%s' with '%s': %u, and not %u", table[i].command, table[i].env, world,
                     table[i].world);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(commands)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
