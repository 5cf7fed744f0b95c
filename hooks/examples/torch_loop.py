# SPDX-License-Identifier: Apache-2.0
"""A plain PyTorch loop that survives preemptions: one process, or many under torchrun.

    pip install torch ./hooks/python
    holdfast run -- python hooks/examples/torch_loop.py
    holdfast run -- torchrun --standalone --nproc-per-node 2 hooks/examples/torch_loop.py

It learns to tell the classes of random points apart, on the CPU, deterministically. Interrupted
and resumed it ends with the same bits as without: weights, optimizer, random generators and the
place in the data are all in the checkpoint. The last line is a digest over the raw weights.
"""

import argparse
import hashlib
import os
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import holdfast

FEATURES, CLASSES, ROWS, BATCH = 32, 8, 4096, 64


class Data:
    """An endless shuffled walk over one rank's share of the rows. Its place is two numbers and the
    state of the generator that made the current order."""

    def __init__(self, rank, world):
        source = torch.Generator().manual_seed(1)
        self.x = torch.randn(ROWS, FEATURES, generator=source)[rank::world]
        self.y = (self.x @ torch.randn(FEATURES, CLASSES, generator=source)).argmax(dim=1)
        self.generator = torch.Generator().manual_seed(100 + rank)
        self.shuffle()

    def shuffle(self):
        self.before = self.generator.get_state()
        self.order = torch.randperm(len(self.x), generator=self.generator)
        self.position = 0

    def next(self):
        if self.position + BATCH > len(self.order):
            self.shuffle()
        rows = self.order[self.position : self.position + BATCH]
        self.position += BATCH
        return self.x[rows], self.y[rows]

    def state(self):
        return {"generator": self.before, "position": self.position}

    def restore(self, state):
        self.generator.set_state(state["generator"])
        self.shuffle()
        self.position = state["position"]


def digest(model):
    """SHA-256 over names, types, shapes and raw bytes of all tensors, ordered by name."""
    h = hashlib.sha256()
    for name, tensor in sorted(model.state_dict().items()):
        tensor = tensor.detach().cpu().contiguous()
        h.update(("%s %s %s\n" % (name, tensor.dtype, tuple(tensor.shape))).encode())
        h.update(tensor.reshape(-1).view(torch.uint8).numpy().tobytes())
    return h.hexdigest()


def write(value, path):
    with open(path, "wb") as f:
        torch.save(value, f)
        f.flush()
        os.fsync(f.fileno())


def parse():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--step-ms", type=float, default=0, help="make each step take this long")
    parser.add_argument("--save-every", type=int, default=0, help="saves of its own; 0: none")
    parser.add_argument("--out", help="write the final weights to this file")
    return parser.parse_args()


def train(args, rank, world):
    torch.manual_seed(10 + rank)
    model = nn.Sequential(
        nn.Linear(FEATURES, 64), nn.ReLU(), nn.Dropout(0.1), nn.Linear(64, CLASSES)
    )
    wrapped = DistributedDataParallel(model) if world > 1 else model  # same start on every rank
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    data = Data(rank, world)

    def load(path):
        shared = torch.load(os.path.join(path, "model.pt"), weights_only=True)
        model.load_state_dict(shared["model"])
        optimizer.load_state_dict(shared["optimizer"])
        # Not weights_only: the state of Python's and numpy's generators is no tensor.
        own = torch.load(os.path.join(path, "rank-%d.pt" % rank), weights_only=False)
        data.restore(own["data"])
        holdfast.set_rng_state(own["rng"])

    def save(path):
        if rank == 0:
            shared = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
            write(shared, os.path.join(path, "model.pt"))
        own = {"rng": holdfast.rng_state(), "data": data.state()}
        write(own, os.path.join(path, "rank-%d.pt" % rank))

    run = holdfast.init(steps=args.steps, framework="torch")
    start = run.resume(load)
    for step in range(start, args.steps):
        x, y = data.next()
        loss = nn.functional.cross_entropy(wrapped(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if args.step_ms:
            time.sleep(args.step_ms / 1000)
        if rank == 0:
            print("step %d loss %.6f" % (step, loss.item()), flush=True)
        mine = args.save_every and (step + 1) % args.save_every == 0
        if run.step(step) or mine:
            save(run.path(step))
            run.saved()
    run.done()
    if rank == 0:
        if args.out:
            write(model.state_dict(), args.out)
        print("digest: %s" % digest(model), flush=True)


def main():
    args = parse()
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    rank, world = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
    if world > 1:
        dist.init_process_group("gloo")
    try:
        train(args, rank, world)
    finally:
        if world > 1:
            dist.destroy_process_group()


if __name__ == "__main__":
    main()
