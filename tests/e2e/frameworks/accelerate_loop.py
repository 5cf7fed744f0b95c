# SPDX-License-Identifier: Apache-2.0
"""Accelerate's save_state with automatic naming, alone or under its launcher. OUT is the project's
folder; the checkpoints lie in OUT/checkpoints."""
import os
import re

from common import Note, parse, torch_arrays, torch_data, torch_model


def main():
    args = parse(__doc__)
    import torch
    from accelerate import Accelerator
    from accelerate.utils import ProjectConfiguration
    accelerator = Accelerator(cpu=True, project_config=ProjectConfiguration(
        project_dir=args.out, automatic_checkpoint_naming=True, total_limit=args.keep or None))
    model = torch_model()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    x, y = torch_data()
    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x, y), batch_size=4)
    schedule = torch.optim.lr_scheduler.LinearLR(optimizer, total_iters=100)
    model, optimizer, loader, schedule = accelerator.prepare(model, optimizer, loader, schedule)
    note, begin = Note(args), 0
    folder = os.path.join(args.out, "checkpoints")
    if args.mode == "resume" and os.path.isdir(folder):
        numbers = [int(m[1]) for m in map(re.compile(r"checkpoint_(\d+)$").match,
                                          os.listdir(folder)) if m]
        if numbers:
            accelerator.load_state()
            accelerator.project_configuration.iteration = max(numbers) + 1
            begin = (max(numbers) + 1) * args.every
    step = begin
    batches = accelerator.skip_first_batches(loader, begin % len(loader))
    while step < args.steps:
        for x, y in batches:
            loss = torch.nn.functional.cross_entropy(model(x), y)
            optimizer.zero_grad()
            accelerator.backward(loss)
            optimizer.step()
            schedule.step()
            step += 1
            note.step(step)
            if step % args.every == 0:
                accelerator.save_state()
            if step == args.steps:
                break
        batches = loader
    note.end(torch_arrays(accelerator.unwrap_model(model)))
    accelerator.end_training()


main()
