# SPDX-License-Identifier: Apache-2.0
"""What the producers share: each is `NAME.py OUT MODE [options]` and trains a tiny model for some
steps, saving into OUT the way its framework does. MODE `full` begins afresh; `resume` goes on from
what the framework itself finds in OUT, and begins afresh where there is nothing."""
import argparse
import hashlib
import os
import sys
import time

for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(name, "1")
for name in ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"):
    os.environ[name] = "1"
os.environ.setdefault("KERAS_BACKEND", "jax")
os.environ["JAX_PLATFORMS"] = "cpu"

FEATURES, CLASSES, ROWS, BATCH = 16, 4, 64, 4


def parse(description):
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("out")
    parser.add_argument("mode", choices=("full", "resume"))
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--every", type=int, default=4)
    parser.add_argument("--keep", type=int, default=0, help="checkpoints; 0: all")
    parser.add_argument("--step-ms", type=float, default=0)
    parser.add_argument("--note", help="each step is a line of this file, and the digest the last")
    parser.add_argument("--kind", default="", help="a way to save, where there are several; a,b: "
                        "one after the other, each into OUT/kind")
    return parser.parse_args()


def for_each_kind(train, description):
    args = parse(description)
    kinds = args.kind.split(",")
    for kind in kinds:
        out = os.path.join(args.out, kind) if len(kinds) > 1 else args.out
        os.makedirs(out, exist_ok=True)
        train(argparse.Namespace(**{**vars(args), "kind": kind, "out": out}))
    if world() > 1:
        sys.modules["torch"].distributed.destroy_process_group()


class Note:
    def __init__(self, args):
        self.args = args
        self.file = open(args.note, "a") if args.note and rank() == 0 else None

    def step(self, step):
        """Steps are counted from 1: how many are done. Called when no save is in progress."""
        mark()
        if self.file:
            print(step, file=self.file, flush=True)
        if self.args.step_ms:
            time.sleep(self.args.step_ms / 1000)

    def end(self, arrays):
        mark()
        if self.file:
            total = hashlib.sha256()
            for name, array in sorted(arrays.items()):
                total.update(f"{name} {array.shape} {array.dtype}".encode() + array.tobytes())
            print("digest", total.hexdigest(), file=self.file, flush=True)


def mark():
    """Tells a tape (disk_tape.c) that all saves so far are complete."""
    if "DISK_TAPE" not in os.environ:
        return
    if rank() == 0:
        with open(os.path.join(os.environ["DISK_TAPE_BELOW"], "mark"), "w"):
            pass
    if world() > 1:  # no rank begins the next save before
        sys.modules["torch"].distributed.barrier()


def rank():
    return int(os.environ.get("RANK", 0))


def world():
    return int(os.environ.get("WORLD_SIZE", 1))


def torch_model(width=32):
    import torch
    torch.set_num_threads(1)
    torch.manual_seed(7)
    return torch.nn.Sequential(torch.nn.Linear(FEATURES, width), torch.nn.ReLU(),
                               torch.nn.Linear(width, CLASSES))


def torch_data():
    import torch
    source = torch.Generator().manual_seed(1)
    x = torch.randn(ROWS, FEATURES, generator=source)
    return x, (x @ torch.randn(FEATURES, CLASSES, generator=source)).argmax(dim=1)


def torch_batch(step):
    x, y = torch_data()
    at = (step * world() + rank()) * BATCH % ROWS
    return x[at:at + BATCH], y[at:at + BATCH]


def torch_arrays(model):
    return {k: v.detach().cpu().numpy() for k, v in model.state_dict().items()}


def quiet():
    """No word on the streams: what a framework prints is not what is tested."""
    sys.stdout.flush()
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 1)
