# SPDX-License-Identifier: Apache-2.0
"""timm's CheckpointSaver: a step is an epoch; a recovery file half-way through each."""
import os
import sys
import types

from common import Note, parse, quiet, torch_arrays, torch_batch, torch_model


def saver_class():
    """timm without torchvision, which has no build for the CPU-only torch: its saver needs but the
    names of a few classes, to see whether a model is of them."""
    for name in ("torchvision", "torchvision.ops", "torchvision.ops.misc", "timm", "timm.layers"):
        module = sys.modules[name] = types.ModuleType(name)
        module.__getattr__ = lambda attribute: type(attribute, (), {})
    sys.modules["timm"].__path__ = [os.path.join(sys.prefix, "apart", "timm")]
    from timm.utils.checkpoint_saver import CheckpointSaver
    return CheckpointSaver


def main():
    args = parse(__doc__)
    quiet()
    import torch
    os.makedirs(args.out, exist_ok=True)
    model = torch_model()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    saver = saver_class()(model, optimizer, checkpoint_dir=args.out, recovery_dir=args.out,
                          max_history=args.keep or 10)
    note, begin = Note(args), 0
    last = os.path.join(args.out, "last.pth.tar")
    if args.mode == "resume" and os.path.exists(last):
        state = torch.load(last, weights_only=False)
        model.load_state_dict(state["state_dict"])
        optimizer.load_state_dict(state["optimizer"])
        begin = state["epoch"] + 1
    for epoch in range(begin, args.steps):
        x, y = torch_batch(epoch)
        loss = torch.nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        saver.save_recovery(epoch, batch_idx=1)
        note.step(epoch + 1)
        saver.save_checkpoint(epoch, metric=float(epoch))
    note.end(torch_arrays(model))


main()
