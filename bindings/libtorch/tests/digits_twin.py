# SPDX-License-Identifier: Apache-2.0
"""examples/libtorch/digits.cpp in Python, line for line, with libddp's wrapper for PyTorch: the same losses, bit for bit."""
import os
import sys

import libddp
import torch
from libddp.torch import DistributedDataParallel
from torch import nn

sys.path.insert(0, os.path.join(os.environ["DDP_SOURCE_DIR"], "examples", "python"))
from digits_data import load  # noqa: E402


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Conv2d(1, 16, 3, padding=1)
        self.norm = nn.BatchNorm2d(16)
        self.second = nn.Conv2d(16, 32, 3, padding=1)
        self.last = nn.Linear(128, 10)

    def forward(self, x):
        x = nn.functional.max_pool2d(torch.relu(self.norm(self.first(x))), 2)
        x = nn.functional.max_pool2d(torch.relu(self.second(x)), 2)
        return self.last(x.flatten(1))


def rate_at(step, steps):
    return 0.1 * ((step + 1) / 20 if step < 20 else 1 - step / steps)


def main():
    (pixels, labels), _ = (tuple(map(torch.from_numpy, part)) for part in load())
    pixels = pixels.view(-1, 1, 8, 8)
    torch.manual_seed(1)
    net = DistributedDataParallel(Net())
    group = net.group
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
    sampler = libddp.Sampler(len(labels), group)
    epochs, batch = 8, 64 // group.size
    batches = -(-len(sampler) // batch)
    for epoch in range(epochs):
        total = 0.0
        for i in range(batches):
            optimizer.param_groups[0]["lr"] = rate_at(epoch * batches + i, epochs * batches)
            chosen = torch.tensor(sampler.indices(epoch, i * batch, min(batch, len(sampler) - i * batch)))
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(net(pixels[chosen]), labels[chosen])
            loss.backward()
            optimizer.step()
            total += loss.item()
        total, count = group.reduce_metrics([total, batches])
        if group.rank == 0:
            print(f"epoch {epoch + 1}  loss {total / count:.9f}")
    if group.rank == 0:
        print(f"weights {net.model.hash() % 2**64:016x}")


if __name__ == "__main__":
    main()
