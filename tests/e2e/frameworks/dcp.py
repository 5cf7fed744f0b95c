# SPDX-License-Identifier: Apache-2.0
"""torch.distributed.checkpoint in folders `step-N`, as torchtitan names them; under torchrun. Kind
`fsdp` shards the model with fully_shard."""
import os

from common import Note, parse, torch_batch, torch_model


def main():
    args = parse(__doc__)
    import torch
    import torch.distributed as dist
    import torch.distributed.checkpoint as dcp
    from torch.distributed.checkpoint.state_dict import (
        StateDictOptions, get_model_state_dict, get_state_dict, set_state_dict)
    dist.init_process_group("gloo")
    model = torch_model()
    if args.kind == "fsdp":
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import fully_shard
        fully_shard(model, mesh=init_device_mesh("cpu", (dist.get_world_size(),)))
    else:
        model = torch.nn.parallel.DistributedDataParallel(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    note, begin = Note(args), 0
    if args.mode == "resume" and os.path.isdir(args.out):
        steps = [int(n[5:]) for n in os.listdir(args.out) if n.startswith("step-")
                 and os.path.exists(os.path.join(args.out, n, ".metadata"))]
        if steps:
            begin = max(steps)
            weights, moments = get_state_dict(model, optimizer)
            state = {"model": weights, "optimizer": moments}
            dcp.load(state, checkpoint_id=os.path.join(args.out, f"step-{begin}"))
            set_state_dict(model, optimizer, model_state_dict=state["model"],
                           optim_state_dict=state["optimizer"])
    for step in range(begin, args.steps):
        x, y = torch_batch(step)
        loss = torch.nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        note.step(step + 1)
        if (step + 1) % args.every == 0:
            weights, moments = get_state_dict(model, optimizer)
            dcp.save({"model": weights, "optimizer": moments},
                     checkpoint_id=os.path.join(args.out, f"step-{step + 1}"))
    whole = get_model_state_dict(model, options=StateDictOptions(full_state_dict=True,
                                                                 cpu_offload=True))
    note.end({k: v.numpy() for k, v in whole.items()})
    dist.destroy_process_group()


main()
