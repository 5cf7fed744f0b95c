# SPDX-License-Identifier: Apache-2.0
"""Layouts whose frameworks are too large to install here: the files, by the names and in the order
that the frameworks' own code and documents give (the container files are real: torch's, DCP's). It
is a simulation, and so the tests call it. Kind: the layout."""
import json
import os
import random

from common import Note, for_each_kind, torch_model


def text(path, content):
    with open(path, "w") as f:
        f.write(content)


def binary(path, size):
    """A file of no known format, written in two pieces."""
    data = random.Random(os.path.basename(path)).randbytes(size)
    with open(path, "wb", buffering=0) as f:
        f.write(data[:size // 2])
        f.write(data[size // 2:])


def save(kind, out, step, state):
    import torch
    import torch.distributed.checkpoint as dcp
    from safetensors.torch import save_file
    at = os.path.join
    if kind == "composer":
        torch.save(state, at(out, f"ep0-ba{step}-rank0.pt"))
        torch.save(state, at(out, f"ep0-ba{step}-rank1.pt"))
        for rank in range(2):
            link = at(out, f"latest-rank{rank}.pt")
            if os.path.lexists(link):
                os.remove(link)
            os.symlink(f"ep0-ba{step}-rank{rank}.pt", link)
    elif kind == "ultralytics":
        torch.save(state, at(out, "last.pt"))
    elif kind == "megatron":
        folder = at(out, f"iter_{step:07d}")
        os.makedirs(folder)
        torch.save({"step": step}, at(folder, "common.pt"))
        dcp.save(state, checkpoint_id=folder, no_dist=True)
        text(at(folder, "metadata.json"), json.dumps({"sharded_backend": "torch_dist",
                                                      "sharded_backend_version": 1}))
        text(at(out, "latest_checkpointed_iteration.txt"), str(step))
    elif kind == "megatron-legacy":
        for rank in range(2):
            folder = at(out, f"iter_{step:07d}", f"mp_rank_{rank:02d}")
            os.makedirs(folder)
            torch.save(state, at(folder, "model_optim_rng.pt"))
        text(at(out, "latest_checkpointed_iteration.txt"), str(step))
    elif kind == "nemo":
        name = f"model--step={step}-last"
        text(at(out, name + "-unfinished"), "")
        torch.save(state, at(out, name + ".ckpt"))
        os.remove(at(out, name + "-unfinished"))
    elif kind == "lightning-sharded":
        folder = at(out, f"step={step}.ckpt")
        os.makedirs(folder)
        dcp.save(state, checkpoint_id=folder, no_dist=True)
        torch.save({"global_step": step}, at(folder, "meta.pt"))
    elif kind == "mindformers":
        folder = at(out, f"iteration_{step:08d}")
        os.makedirs(folder)
        for part in ("model", "opt"):
            for rank in range(2):
                save_file(state["model"], at(folder, f"net-{part}-{rank:07d}-0000002.safetensors"))
        text(at(folder, "metadata.json"), json.dumps({"storage_data": {}}))
        text(at(folder, "common.json"), json.dumps({"step_num": step}))
        text(at(out, "latest_checkpointed_iteration.txt"), str(step))
    elif kind == "mindspore":
        binary(at(out, f"net-1_{step}.ckpt"), 4000)
    elif kind == "paddle":
        folder = at(out, f"checkpoint-{step}")
        os.makedirs(folder)
        binary(at(folder, "model_state.pdparams"), 4000)
        binary(at(folder, "optimizer.pdopt"), 8000)
        binary(at(folder, "scheduler.pdparams"), 100)
        text(at(folder, "trainer_state.json"), json.dumps({"global_step": step}))
        text(at(folder, ".checkpoint_done"), "")
    else:
        raise SystemExit(f"no such layout: {kind}")


def train(args):
    model = torch_model()
    note = Note(args)
    for step in range(args.every, args.steps + 1, args.every):
        save(args.kind, args.out, step, {"model": model.state_dict()})
        note.step(step)
    note.end({})


for_each_kind(train, __doc__)
