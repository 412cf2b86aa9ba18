# SPDX-License-Identifier: Apache-2.0
"""What a training step costs above forward and backward: PyTorch's DistributedDataParallel with its fused AdamW, and libddp.torch's, in turn in
the same processes:

    PYTHONPATH=build/tests/bindings/python ddprun -n 2 --no-prefix python3 tests/bench/torch_step_bench.py

An MLP of 24 million parameters, 32 samples a rank, one thread a rank. Prints medians in milliseconds over all rounds; of the ranks the slowest
counts. Needs PyTorch. Built with `ninja -C build/tests ddp_python ddprun`; for figures, in a tree made with -DCMAKE_BUILD_TYPE=Release.
"""
import copy
import time

import libddp.torch
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.optim import ZeroRedundancyOptimizer

ROUNDS, STEPS = 12, 3


def stepper(net, optimizer, batch):
    def step():
        if optimizer is not None:
            optimizer.zero_grad()
        net(batch).pow(2).mean().backward()
        if optimizer is not None:
            optimizer.step()

    return step


def ways(module, batch):
    """The name of each way, and its step."""
    alone = copy.deepcopy(module)

    def forward_and_backward():
        alone.zero_grad()
        alone(batch).pow(2).mean().backward()

    theirs, divided = (nn.parallel.DistributedDataParallel(copy.deepcopy(module)) for _ in range(2))
    zero = ZeroRedundancyOptimizer(divided.parameters(), torch.optim.AdamW, fused=True)
    found = {"forward and backward alone": forward_and_backward,
             "PyTorch, fused AdamW": stepper(theirs, torch.optim.AdamW(theirs.parameters(), fused=True), batch),
             "PyTorch, ZeroRedundancyOptimizer of fused AdamW": stepper(divided, zero, batch)}
    for name, own in (("libddp, PyTorch's fused AdamW", None), ("libddp, AdamW", {}), ("libddp, AdamW(shard)", {"shard": True}),
                      ("libddp, AdamW(in_backward)", {"in_backward": True}),
                      ("libddp, AdamW(in_backward, undo=False)", {"in_backward": True, "undo": False}),
                      ("libddp, AdamW(shard, in_backward)", {"shard": True, "in_backward": True}),
                      ("libddp(own_values), AdamW(shard)", {"shard": True})):
        net = libddp.torch.DistributedDataParallel(copy.deepcopy(module), own_values="own_values" in name)
        optimizer = torch.optim.AdamW(net.parameters(), fused=True) if own is None else libddp.torch.AdamW(net.parameters(), **own)
        found[name] = stepper(net, optimizer, batch)
    return found


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    torch.manual_seed(dist.get_rank())
    module = nn.Sequential(nn.Linear(1024, 2800), nn.ReLU(), nn.Linear(2800, 2800), nn.ReLU(), nn.Linear(2800, 2800), nn.ReLU(), nn.Linear(2800, 1800))
    steps = ways(module, torch.randn(32, 1024))
    times = {name: [] for name in steps}
    for turn in range(ROUNDS + 1):
        for name, step in steps.items():
            dist.barrier()
            for _ in range(STEPS):
                begun = time.perf_counter()
                step()
                if turn:  # the first is for warming up
                    times[name].append((time.perf_counter() - begun) * 1e3)
    mine = torch.tensor([[sorted(found)[len(found) // 2], sorted(found)[len(found) // 10]] for found in times.values()])
    dist.all_reduce(mine, dist.ReduceOp.MAX)
    if dist.get_rank() == 0:
        base, fast = mine[0].tolist()
        print(f"{sum(p.numel() for p in module.parameters()) / 1e6:.1f} M parameters, {dist.get_world_size()} ranks")
        print("| | step, ms | above forward and backward, ms | tenth fastest, ms | above, ms |\n| --- | --- | --- | --- | --- |")
        for name, (middle, low) in zip(times, mine.tolist()):
            print(f"| {name} | {middle:.0f} | {middle - base:.0f} | {low:.0f} | {low - fast:.0f} |")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
