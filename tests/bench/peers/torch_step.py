# SPDX-License-Identifier: Apache-2.0
"""A training step by PyTorch: DistributedDataParallel over Gloo and the fused AdamW, beside forward and backward alone.
torch_step.py RANK SIZE FILE (mlp | gpt)      The models are those of models/, prints as step_bench.c does."""

import os
import sys
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel

ITERATIONS, WARM_UP = 8, 3
MIB = 1 << 20


class Mlp(nn.Module):
    def __init__(self):
        super().__init__()
        sizes = [1024] + [2048] * 6 + [1000]
        self.layers = nn.ModuleList(nn.Linear(*pair) for pair in zip(sizes, sizes[1:]))

    def forward(self, x, wanted):
        for layer in self.layers[:-1]:
            x = functional.relu(layer(x))
        return functional.cross_entropy(self.layers[-1](x), wanted)

    @staticmethod
    def batch():
        return torch.randn(32, 1024), torch.randint(0, 1000, (32,))


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.project = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        batch, length, width = x.shape
        parts = self.qkv(self.norm1(x)).view(batch, length, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4)
        mixed = functional.scaled_dot_product_attention(*parts, is_causal=True)
        x = x + self.project(mixed.transpose(1, 2).reshape(batch, length, width))
        return x + self.down(functional.gelu(self.up(self.norm2(x)), approximate="tanh"))


class Gpt(nn.Module):
    def __init__(self, words=8192, width=384, layers=6, heads=6, length=64):
        super().__init__()
        self.tokens, self.positions = nn.Embedding(words, width), nn.Embedding(length, width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.norm = nn.LayerNorm(width)

    def forward(self, x, wanted):
        hidden = self.tokens(x) + self.positions.weight[: x.shape[1]]
        for block in self.blocks:
            hidden = block(hidden)
        return functional.cross_entropy(functional.linear(self.norm(hidden), self.tokens.weight).flatten(0, 1), wanted.flatten())

    @staticmethod
    def batch():
        return torch.randint(0, 8192, (2, 64)), torch.randint(0, 8192, (2, 64))


def memory(path, field):
    with open(path, encoding="ascii") as file:
        return next(int(line.split()[1]) / 1024 for line in file if line.startswith(field))


def timed(what):
    dist.barrier()
    begin = time.perf_counter()
    what()
    return (time.perf_counter() - begin) * 1e3


def main():
    rank, ranks, place, kind = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], sys.argv[4]
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method="file://" + place, rank=rank, world_size=ranks)
    torch.manual_seed(0)
    plain = {"mlp": Mlp, "gpt": Gpt}[kind]()
    torch.manual_seed(rank)
    batch = plain.batch()
    plain(*batch).backward()  # touches all that the model itself needs
    share, resident = memory("/proc/self/smaps_rollup", "Pss:"), memory("/proc/self/status", "VmRSS:")
    with open("/proc/self/clear_refs", "w", encoding="ascii") as file:
        file.write("5")
    model = DistributedDataParallel(plain, gradient_as_bucket_view=True)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)

    def step():
        optimizer.zero_grad()
        model(*batch).backward()
        optimizer.step()

    def local():
        optimizer.zero_grad()
        with model.no_sync():
            model(*batch).backward()

    for _ in range(WARM_UP):
        step()
    dist.barrier()
    needed = 2 * 4 * sum(each.numel() for each in plain.parameters()) / MIB
    extra = {"resident": memory("/proc/self/status", "VmHWM:") - resident - needed,
             "share": memory("/proc/self/smaps_rollup", "Pss:") - share - needed}  # before no_sync, whose gradients are elsewhere
    times = {"local": [], "step": []}
    for _ in range(ITERATIONS):
        times["local"].append(timed(local))
        times["step"].append(timed(step))
    for what, values in times.items():
        sys.stdout.write("T %d %s %s\n" % (rank, what, " ".join("%.3f" % each for each in values)))
    for what, mib in extra.items():
        sys.stdout.write("M %d %s %.1f\n" % (rank, what, mib))
    sys.stdout.flush()
    dist.barrier()
    os._exit(0)


main()
