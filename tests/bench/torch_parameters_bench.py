# SPDX-License-Identifier: Apache-2.0
"""What a pass over many small parameters costs above forward and backward: PyTorch's DistributedDataParallel over Gloo with
gradient_as_bucket_view, and libddp.torch's, in turn in the same processes:

    PYTHONPATH=build/tests/bindings/python ddprun -n 2 --no-prefix python3 tests/bench/torch_parameters_bench.py [PARAMETERS]

Two modules, by default of 10,000 parameters: one layer that has them all in a list, and a chain of linear layers. Prints milliseconds of the slowest
rank: the median of a step, and the processor time of the thread that computes, of which other programs take less (lower quartile). Built as for
torch_step_bench.py.
"""
import copy
import sys
import time

import libddp.torch
import torch
import torch.distributed as dist
from torch import nn

ROUNDS, STEPS, WIDTH = 8, 3, 4
COUNT = int(sys.argv[1]) if len(sys.argv) > 1 else 10000


class Listed(nn.Module):
    def __init__(self):
        super().__init__()
        self.all = nn.ParameterList(torch.randn(16) for _ in range(COUNT))

    def forward(self, x):
        return torch.cat(list(self.all)) * x.mean()


def chain():
    return nn.Sequential(*(nn.Linear(WIDTH, WIDTH) for _ in range(COUNT // 2)))


def stepper(net, batch):
    def step():
        net.zero_grad()
        net(batch).pow(2).mean().backward()

    return step


def measure(module, batch):
    """Of each way a step's median time, and the lower quartile of its thread's, of the slowest rank."""
    ways = {"forward and backward alone": copy.deepcopy(module)}
    for name, wrapper in (("PyTorch", nn.parallel.DistributedDataParallel), ("libddp", libddp.torch.DistributedDataParallel)):
        for views in (True, False):
            ways[f"{name}, {'views' if views else 'copies'}"] = wrapper(copy.deepcopy(module), gradient_as_bucket_view=views)
    steps = {name: stepper(net, batch) for name, net in ways.items()}
    times = {name: ([], []) for name in steps}
    for turn in range(ROUNDS + 1):
        for name, step in steps.items():
            dist.barrier()
            for _ in range(STEPS):
                begun, worked = time.perf_counter(), time.thread_time()
                step()
                if turn:  # the first is for warming up
                    times[name][0].append((time.perf_counter() - begun) * 1e3)
                    times[name][1].append((time.thread_time() - worked) * 1e3)
    found = torch.tensor([[sorted(wall)[len(wall) // 2], sorted(own)[len(own) // 4]] for wall, own in times.values()])
    dist.all_reduce(found, dist.ReduceOp.MAX)
    return dict(zip(times, found.tolist()))


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    torch.manual_seed(dist.get_rank())
    for name, module in (("in a list", Listed()), ("of a chain of layers", chain())):
        found = measure(module, torch.randn(2, WIDTH))
        if dist.get_rank() == 0:
            base, base_of_thread = found["forward and backward alone"]
            print(f"{COUNT} parameters {name}, {dist.get_world_size()} ranks\n| | step, ms | above, ms | thread, ms | above, ms |\n| --- | --- | --- | --- | --- |")
            for way, (wall, own) in found.items():
                print(f"| {way} | {wall:.0f} | {wall - base:.0f} | {own:.0f} | {own - base_of_thread:.0f} |", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
