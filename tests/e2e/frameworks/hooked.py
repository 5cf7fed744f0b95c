# SPDX-License-Identifier: Apache-2.0
"""A training with Holdfast's hook, started by a framework's launcher: the process group and the
wrapping of the model are the framework's, and each rank has two DataLoader workers that tell of
every signal they get. `hooked.py accelerate|deepspeed|torchrun NOTES`."""
import argparse
import functools
import os
import signal
import time

from common import torch_arrays, torch_data, torch_model

WATCHED = (signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2, signal.SIGHUP)


def tell(notes, name, text=""):
    with open(os.path.join(notes, name), "a") as f:
        f.write(f"{time.clock_gettime_ns(time.CLOCK_BOOTTIME)} {text}\n")


def watch_signals(notes, worker):
    import torch
    tell(notes, f"worker.{os.environ.get('RANK', 0)}.{worker}", "begin")
    for number in WATCHED:
        signal.signal(number, lambda n, frame: (
            tell(notes, f"signal.{os.getpid()}", signal.Signals(n).name), os._exit(0)))
    torch.set_num_threads(1)


def wrap(launcher, model):
    import torch
    if launcher == "accelerate":
        from accelerate import Accelerator
        return Accelerator(cpu=True).prepare(model)
    if launcher == "deepspeed":
        os.environ["DS_ACCELERATOR"] = "cpu"
        import deepspeed
        deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False
        deepspeed.init_distributed("gloo")
    else:
        torch.distributed.init_process_group("gloo")
    return torch.nn.parallel.DistributedDataParallel(model)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("launcher")
    parser.add_argument("notes")
    args, _ = parser.parse_known_args()
    import torch
    import holdfast
    model = torch_model()
    wrapped = wrap(args.launcher, model)
    rank = int(os.environ["RANK"])
    loader = torch.utils.data.DataLoader(
        torch.utils.data.TensorDataset(*torch_data()), batch_size=4, num_workers=2,
        persistent_workers=True, worker_init_fn=functools.partial(watch_signals, args.notes))

    def batches():
        while True:
            yield from loader

    run = holdfast.init(framework="torch", save_dir="out")
    begin = run.resume(lambda path: model.load_state_dict(
        torch.load(os.path.join(path, "model.pt"), weights_only=True)))
    tell(args.notes, f"rank.{rank}", f"begin {begin}")
    for step, (x, y) in enumerate(batches(), begin):
        torch.nn.functional.cross_entropy(wrapped(x), y).backward()
        with torch.no_grad():
            for p in model.parameters():
                p -= 0.01 * p.grad
                p.grad = None
        time.sleep(0.02)
        if run.step(step):
            path = run.path(step)
            if rank == 0:
                torch.save(model.state_dict(), os.path.join(path, "model.pt"))
            else:
                torch.save(torch.get_rng_state(), os.path.join(path, f"rng-{rank}.pt"))
            time.sleep(1)  # long enough for a signal to come between
            tell(args.notes, f"rank.{rank}", f"saved {step} {len(torch_arrays(model))}")
            run.saved()


main()
