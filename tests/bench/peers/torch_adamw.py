# SPDX-License-Identifier: Apache-2.0
"""PyTorch's fused AdamW over 25.1 M F32 parameters in one tensor, one thread; prints as adamw_bench.cpp does."""

import time

import torch

ROUNDS = 15


def main():
    torch.set_num_threads(1)
    values = torch.nn.Parameter(torch.full((25_100_000,), 0.01))
    values.grad = torch.full_like(values, 0.01)
    optimizer = torch.optim.AdamW([values], lr=1e-4, fused=True)
    ms = []
    for number in range(ROUNDS + 2):
        begin = time.perf_counter()
        optimizer.step()
        if number >= 2:
            ms.append((time.perf_counter() - begin) * 1e3)
    print("T 0 adamw " + " ".join("%.3f" % each for each in ms))


main()
