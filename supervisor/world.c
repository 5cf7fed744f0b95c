/* SPDX-License-Identifier: Apache-2.0
 *
 * Launchers' words for the number of ranks, in one table. What is not understood is not guessed.
 * Sources: the launchers' own --help; torchrun's environment names are PET_<OPTION>
 * (torch.distributed.argparse_util). Pure.
 */
#include "base/prelude.h"

#include <stdlib.h>
#include <string.h>

#include "supervisor/world.h"

#define WORLD_MAX 1000000

struct launcher {
    const char *program; /* the last part of a word's path, or a module behind "-m" */
    const char *verb;    /* the word that must follow, or NULL */
    const char *flags[5];
    const char *env;      /* says the same, or NULL */
    uint32_t fallback;    /* without any of them; 0: it finds out by itself */
    const char *nodes[3]; /* says over how many nodes, or NULL */
    const char *nodes_env;
};

static const struct launcher launchers[] = {
    {"torchrun",
     NULL,
     {"--nproc-per-node", "--nproc_per_node"},
     "PET_NPROC_PER_NODE",
     1,
     {"--nnodes"},
     "PET_NNODES"},
    {"torch.distributed.run",
     NULL,
     {"--nproc-per-node", "--nproc_per_node"},
     "PET_NPROC_PER_NODE",
     1,
     {"--nnodes"},
     "PET_NNODES"},
    {"torch.distributed.launch",
     NULL,
     {"--nproc-per-node", "--nproc_per_node"},
     NULL,
     1,
     {"--nnodes"},
     NULL},
    {"accelerate",
     "launch",
     {"--num_processes", "--num-processes"},
     NULL,
     0,
     {"--num_machines", "--num-machines"},
     NULL},
    {"deepspeed",
     NULL,
     {"--num_gpus", "--num-gpus"},
     NULL,
     0,
     {"--num_nodes", "--num-nodes"},
     NULL},
    {"mpirun", NULL, {"-np", "-n", "--np", "-c"}, NULL, 0, {NULL}, NULL},
    {"mpiexec", NULL, {"-np", "-n", "--np"}, NULL, 0, {NULL}, NULL},
    {"srun", NULL, {"-n", "--ntasks"}, NULL, 0, {NULL}, NULL},
};

static const char *last_part(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash != NULL ? slash + 1 : path;
}

static const char *env_value(const char *const *env, const char *name)
{
    size_t len = name != NULL ? strlen(name) : 0;
    for (; len > 0 && *env != NULL; env++) {
        if (strncmp(*env, name, len) == 0 && (*env)[len] == '=') {
            return *env + len + 1;
        }
    }
    return NULL;
}

/* The flag's value among the launcher's own options, which end at the first word that is neither an
 * option nor an option's value. A value that is missing is "". NULL: the flag is not there. */
static const char *flag_value(const char *const *argv, const char *const *flags)
{
    bool value = false; /* the word before was an option without "=" */
    for (; *argv != NULL; argv++) {
        const char *word = *argv;
        if (word[0] != '-') {
            size_t len = strlen(word);
            bool script = len > 3 && strcmp(word + len - 3, ".py") == 0;
            if (!value || script) { /* also behind an option that takes no value */
                return NULL;
            }
            value = false;
            continue;
        }
        for (size_t i = 0; flags[i] != NULL; i++) {
            size_t len = strlen(flags[i]);
            if (strncmp(word, flags[i], len) != 0) {
                continue;
            }
            if (word[len] == '=') {
                return word + len + 1;
            }
            if (word[len] == '\0') {
                return argv[1] != NULL ? argv[1] : "";
            }
        }
        value = strchr(word, '=') == NULL;
    }
    return NULL;
}

/* 0: no number. "1:1" is 1 (torchrun's least and most nodes), "1:4" is none. */
static uint32_t number(const char *text)
{
    char *end = NULL;
    if (text == NULL || text[0] < '0' || text[0] > '9') {
        return 0;
    }
    unsigned long n = strtoul(text, &end, 10);
    if (*end == ':') {
        const char *most = end + 1;
        unsigned long m = strtoul(most, &end, 10);
        if (m != n) {
            return 0;
        }
    }
    return *end == '\0' && n >= 1 && n <= WORLD_MAX ? (uint32_t)n : 0;
}

static uint32_t said_by(const struct launcher *l, const char *const *argv, const char *const *env)
{
    const char *said = flag_value(argv, l->flags);
    said = said != NULL ? said : env_value(env, l->env);
    uint32_t ranks = said != NULL ? number(said) : l->fallback;
    uint32_t nodes = 1;
    if (l->nodes[0] != NULL) {
        const char *text = flag_value(argv, l->nodes);
        text = text != NULL ? text : env_value(env, l->nodes_env);
        nodes = text != NULL ? number(text) : 1;
    }
    bool per_node = l->nodes_env != NULL || strcmp(l->program, "torch.distributed.launch") == 0;
    if (per_node) {
        return nodes > 0 && ranks <= WORLD_MAX / nodes ? ranks * nodes : 0;
    }
    return nodes == 1 ? ranks : 0;
}

uint32_t hf_declared_world(const char *const *argv, const char *const *env)
{
    for (size_t i = 0; argv[i] != NULL; i++) {
        for (size_t k = 0; k < HF_COUNT(launchers); k++) {
            const struct launcher *l = &launchers[k];
            bool module = i > 0 && strcmp(argv[i - 1], "-m") == 0;
            bool is = strcmp(module ? argv[i] : last_part(argv[i]), l->program) == 0;
            bool verb =
                l->verb == NULL || (is && argv[i + 1] != NULL && strcmp(argv[i + 1], l->verb) == 0);
            if (is && verb) {
                return said_by(l, argv + i + (l->verb != NULL ? 2 : 1), env);
            }
        }
    }
    return number(env_value(env, "WORLD_SIZE"));
}
