# SPDX-License-Identifier: Apache-2.0
"""Plain torch.save: kind `inplace` writes over its only file, `numbered` makes a file a step."""
import os
import re

from common import Note, for_each_kind, torch_arrays, torch_batch, torch_model


def newest(args):
    if args.kind == "inplace":
        path = os.path.join(args.out, "ckpt.pt")
        return path if os.path.exists(path) else None
    names = [n for n in os.listdir(args.out) if re.fullmatch(r"step-\d+\.pt", n)]
    names.sort(key=lambda n: int(re.sub(r"\D", "", n)))
    return os.path.join(args.out, names[-1]) if names else None


def train(args):
    import torch
    model = torch_model()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    note, begin = Note(args), 0
    path = newest(args) if args.mode == "resume" else None
    if path:
        state = torch.load(path, weights_only=True)
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        begin = state["step"]
    for step in range(begin, args.steps):
        x, y = torch_batch(step)
        loss = torch.nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        note.step(step + 1)
        if (step + 1) % args.every == 0:
            name = "ckpt.pt" if args.kind == "inplace" else f"step-{step + 1}.pt"
            torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(),
                        "step": step + 1}, os.path.join(args.out, name))
    note.end(torch_arrays(model))


for_each_kind(train, __doc__)
