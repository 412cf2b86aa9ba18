# SPDX-License-Identifier: Apache-2.0
"""Train a network on handwritten digits with PyTorch, on any number of ranks.

    ddprun -n 4 python3 digits_torch.py

The lines that know about several ranks are marked with "<-"; the rest is a script for one.
"""
import libddp
import torch
from digits_data import load, rate_at
from libddp.torch import DistributedDataParallel
from torch import nn

EPOCHS, GLOBAL_BATCH = 20, 64


def main():
    (pixels, labels), (test_pixels, test_labels) = (tuple(map(torch.from_numpy, part)) for part in load())
    torch.manual_seed(1)
    net = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 64), nn.ReLU(), nn.Linear(64, 10))
    net = DistributedDataParallel(net)  # <-
    group = net.group  # <-
    optimizer = torch.optim.AdamW(net.parameters(), lr=0.004)
    sampler = libddp.Sampler(len(labels), group)  # <-
    batch = GLOBAL_BATCH // group.size  # <-
    step, steps = 0, EPOCHS * -(-len(sampler) // batch)
    for epoch in range(EPOCHS):
        for chosen in sampler.batches(epoch, batch):
            for part in optimizer.param_groups:
                part["lr"] = float(rate_at(step, steps))
            chosen = torch.tensor(chosen)
            optimizer.zero_grad()
            nn.functional.cross_entropy(net(pixels[chosen]), labels[chosen]).backward()
            optimizer.step()
            step += 1
    mine = slice(group.rank, None, group.size)  # <-
    with torch.no_grad():
        right = (net(test_pixels[mine]).argmax(dim=1) == test_labels[mine]).sum().item()
    right, tested = group.reduce_metrics([right, len(test_labels[mine])])  # <-
    net.model.check_replicas()  # <- the same bits on every rank
    if group.rank == 0:
        print(f"test accuracy {100 * right / tested:.2f} %")


if __name__ == "__main__":
    main()
