# SPDX-License-Identifier: Apache-2.0
"""The training of digits_torch.py with nothing of libddp but its transport: PyTorch's own wrapper and sampler, on the backend "libddp".

    ddprun -n 4 python3 digits_c10d.py         (or torchrun --nproc-per-node 4 digits_c10d.py)

With "gloo" in the place of "libddp", and without the import, it is the same program on Gloo.
"""
import libddp.c10d  # noqa: F401  registers the backend
import torch
import torch.distributed as dist
from digits_data import load, rate_at
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

EPOCHS, GLOBAL_BATCH = 20, 64


def main():
    dist.init_process_group("libddp")
    training, (test_pixels, test_labels) = (tuple(map(torch.from_numpy, part)) for part in load())
    torch.manual_seed(1)
    net = DistributedDataParallel(nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 64), nn.ReLU(), nn.Linear(64, 10)))
    optimizer = torch.optim.AdamW(net.parameters(), lr=0.004)
    data = TensorDataset(*training)
    sampler = DistributedSampler(data)
    batches = DataLoader(data, GLOBAL_BATCH // dist.get_world_size(), sampler=sampler)
    step, steps = 0, EPOCHS * len(batches)
    for epoch in range(EPOCHS):
        sampler.set_epoch(epoch)
        for pixels, labels in batches:
            for part in optimizer.param_groups:
                part["lr"] = float(rate_at(step, steps))
            optimizer.zero_grad()
            nn.functional.cross_entropy(net(pixels), labels).backward()
            optimizer.step()
            step += 1
    mine = slice(dist.get_rank(), None, dist.get_world_size())
    with torch.no_grad():
        right = (net(test_pixels[mine]).argmax(dim=1) == test_labels[mine]).sum()
    counts = torch.stack([right, torch.tensor(len(test_labels[mine]))])
    dist.all_reduce(counts)
    if dist.get_rank() == 0:
        print(f"test accuracy {100 * counts[0].item() / counts[1].item():.2f} %")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
