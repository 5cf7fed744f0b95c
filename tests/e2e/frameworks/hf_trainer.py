# SPDX-License-Identifier: Apache-2.0
"""transformers.Trainer, alone or under torchrun."""
import os

from common import Note, parse, quiet, torch_arrays


def main():
    args = parse(__doc__)
    quiet()
    import torch
    from transformers import (GPT2Config, GPT2LMHeadModel, Trainer, TrainerCallback,
                              TrainingArguments)
    from transformers.trainer_utils import get_last_checkpoint
    torch.set_num_threads(1)
    torch.manual_seed(7)
    config = GPT2Config(vocab_size=16, n_positions=8, n_embd=8, n_layer=1, n_head=2,
                        resid_pdrop=0.1, bos_token_id=0, eos_token_id=0)
    source = torch.Generator().manual_seed(1)
    rows = torch.randint(0, 16, (64, 8), generator=source)
    note = Note(args)

    class Count(TrainerCallback):
        def on_step_end(self, arguments, state, control, **kwargs):
            note.step(state.global_step)

    trainer = Trainer(
        model=GPT2LMHeadModel(config),
        args=TrainingArguments(
            output_dir=args.out, max_steps=args.steps, save_steps=args.every, save_strategy="steps",
            save_total_limit=args.keep or None, per_device_train_batch_size=2, use_cpu=True,
            report_to=[], disable_tqdm=True, logging_strategy="no", seed=7, learning_rate=1e-2),
        train_dataset=[{"input_ids": row, "labels": row} for row in rows],
        callbacks=[Count()])
    last = None
    if args.mode == "resume" and os.path.isdir(args.out):
        last = get_last_checkpoint(args.out)
    trainer.train(resume_from_checkpoint=last)
    note.end(torch_arrays(trainer.accelerator.unwrap_model(trainer.model)))
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()


main()
