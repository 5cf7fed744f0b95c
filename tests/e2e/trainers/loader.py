# SPDX-License-Identifier: Apache-2.0
"""Ranks over gloo whose batches come from PyTorch's own data-loader worker processes. SIGTERM to
a worker is the end of its rank."""
import os
import sys

import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, Dataset

import holdfast


class Numbers(Dataset):
    def __len__(self):
        return 1000000

    def __getitem__(self, i):
        return float(i)


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    total = torch.zeros(1, dtype=torch.float64)

    def load(path):
        total.copy_(torch.load(os.path.join(path, "%d.pt" % rank)))

    run = holdfast.init()
    start = run.resume(load)
    print("start %d" % start, flush=True)
    loader = DataLoader(Numbers(), batch_size=2, num_workers=1, prefetch_factor=2)
    for step, batch in enumerate(loader, start):
        part = batch.double().sum().reshape(1)
        dist.all_reduce(part)
        total += part
        if run.step(step):
            path = run.path(step)
            tmp = os.path.join(path, "%d.tmp" % rank)
            torch.save(total, tmp)
            os.rename(tmp, os.path.join(path, "%d.pt" % rank))
            run.saved()


if __name__ == "__main__":
    sys.exit(main())
