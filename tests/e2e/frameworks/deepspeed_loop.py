# SPDX-License-Identifier: Apache-2.0
"""DeepSpeed on the CPU with gloo, under torchrun; kind `zero0`, `zero1`, `zero3`."""
import os

from common import Note, for_each_kind, quiet, torch_arrays, torch_batch, torch_model

os.environ["DS_ACCELERATOR"] = "cpu"
os.environ["DS_BUILD_OPS"] = "0"


def train(args):
    quiet()
    import torch
    import deepspeed
    deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False  # else it compiles for a minute
    deepspeed.init_distributed("gloo")
    model = torch_model()
    engine, _, _, _ = deepspeed.initialize(
        model=model, optimizer=torch.optim.AdamW(model.parameters(), lr=1e-2),
        config={"train_micro_batch_size_per_gpu": 4, "steps_per_print": 1000000,
                "bf16": {"enabled": args.kind != "zero0"},
                "zero_allow_untested_optimizer": True,
                "zero_force_ds_cpu_optimizer": False,
                "zero_optimization": {"stage": int(args.kind[-1:] or 1)}})
    note, begin = Note(args), 0
    if args.mode == "resume":
        path, _ = engine.load_checkpoint(args.out)
        begin = engine.global_steps if path else 0
    for step in range(begin, args.steps):
        x, y = torch_batch(step)
        if args.kind != "zero0":
            x = x.bfloat16()
        engine.backward(torch.nn.functional.cross_entropy(engine(x), y))
        engine.step()
        note.step(step + 1)
        if (step + 1) % args.every == 0:
            engine.save_checkpoint(args.out)
    if args.kind != "zero3":
        note.end({k: v.view(int) if v.dtype.kind == "V" else v
                  for k, v in torch_arrays(engine.module.float()).items()})
    torch.distributed.barrier()


for_each_kind(train, __doc__)
