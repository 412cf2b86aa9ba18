# SPDX-License-Identifier: Apache-2.0
"""All-reduce by torch.distributed over Gloo, measured as protocol.h says.  torch_all_reduce.py RANK SIZE FILE"""

import os
import sys
import time

import torch
import torch.distributed as dist

SIZES = ((1 << 10, 300), (64 << 10, 100), (1 << 20, 30), (25 << 20, 4), (100 << 20, 2))
BLOCKS = 5


def timed(calls, data):
    begin = time.perf_counter()
    for _ in range(calls):
        dist.all_reduce(data)
    return (time.perf_counter() - begin) * 1e6 / calls


def show(rank, size, kind, us):
    sys.stdout.write("R %d %d %s %s\n" % (rank, size, kind, " ".join("%.3f" % each for each in us)))
    sys.stdout.flush()


def warm_up(calls, data):
    """Until some rank says that the time is over."""
    end = time.perf_counter() + 0.05
    over = torch.zeros(1)
    while not over.item():
        timed(max(1, calls // 2), data)
        over[0] = float(time.perf_counter() > end)
        dist.all_reduce(over)


def measure(rank, ranks, size, calls):
    count = size // 4
    pattern = (torch.arange(count) % 7).float()
    data = pattern + (rank + 1)
    dist.all_reduce(data)
    if not torch.equal(data, pattern * ranks + ranks * (ranks + 1) // 2):
        sys.exit("wrong sum")
    data.zero_()
    warm_up(calls, data)
    again = []
    for _ in range(BLOCKS):
        dist.barrier()
        again.append(timed(calls, data))
    show(rank, size, "again", again)
    if size < 64 << 10:
        return
    fresh = []
    for _ in range(BLOCKS):
        data.copy_(pattern)
        dist.barrier()
        fresh.append(timed(1, data))
    show(rank, size, "fresh", fresh)


def main():
    rank, ranks, place = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method="file://" + place, rank=rank, world_size=ranks)
    for size, calls in SIZES:
        measure(rank, ranks, size, calls)
    dist.barrier()
    sys.stdout.flush()
    os._exit(0)


main()
