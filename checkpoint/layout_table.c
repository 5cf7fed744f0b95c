/* SPDX-License-Identifier: Apache-2.0
 *
 * The table of layouts. The first row that knows an entry judges it, so the narrower ones stand
 * above the wider ones; the last of each kind takes all.
 */
#include "base/prelude.h"

#include "checkpoint/layout_row.h"

/* clang-format off */
const struct hf_layout_row hf_layout_rows[] = {
    {"orbax",             true,  hf_is_orbax,         hf_judge_orbax},
    {"paddle",            true,  hf_is_paddle_dir,    hf_judge_paddle_dir},
    {"accelerate",        true,  hf_is_accelerate,    hf_judge_accelerate},
    {"hf-trainer",        true,  hf_is_trainer,       hf_judge_trainer},
    {"deepspeed",         true,  hf_is_deepspeed,     hf_judge_deepspeed},
    {"megatron",          true,  hf_is_megatron,      hf_judge_megatron},
    {"mindformers",       true,  hf_is_mindformers,   hf_judge_mindformers},
    {"lightning-sharded", true,  hf_is_lightning_dir, hf_judge_lightning_dir},
    {"dcp",               true,  hf_is_dcp,           hf_judge_dcp},
    {"unknown",           true,  hf_is_any_dir,       hf_judge_any_dir},
    {"none",              false, hf_is_no_checkpoint, hf_judge_no_checkpoint},
    {"composer",          false, hf_is_composer,      hf_judge_composer},
    {"keras-backup",      false, hf_is_keras_backup,  hf_judge_keras_backup},
    {"keras",             false, hf_is_keras,         hf_judge_box},
    {"tensorflow",        false, hf_is_tensorflow,    hf_judge_tensorflow},
    {"paddle",            false, hf_is_paddle,        hf_judge_paddle},
    {"timm",              false, hf_is_timm,          hf_judge_timm},
    {"lightning",         false, hf_is_lightning,     hf_judge_box},
    {"torch",             false, hf_is_torch,         hf_judge_box},
    {"safetensors",       false, hf_is_safetensors,   hf_judge_box},
    {"unknown",           false, hf_is_any_file,      hf_judge_any_file},
};
/* clang-format on */
const size_t hf_layout_n_rows = HF_COUNT(hf_layout_rows);
