# SPDX-License-Identifier: Apache-2.0
"""Training steps of PyTorch's DistributedDataParallel and of libddp's, on two or more GPUs over NCCL, in the same processes, in turn.

    ddprun -n GPUS python3 torch_ranks.py [--quick] [--json FILE] [--device cpu] [--alone]

Two models, an MLP of 25 M parameters and a GPT-2 of 124 M; each with PyTorch's fused AdamW, as a step without any reduction, with PyTorch's wrapper
(views and copies) and with libddp's. All begin with the same parameters and see the same batches, so the first gradients of both wrappers must agree
but for rounding (later ones need not: Adam makes steps of rounding errors where a gradient is 0).
Of a step the slowest rank counts; the figures are medians. --device cpu is a try without GPUs, over Gloo and shared memory: small models, and
its figures mean nothing. --alone allows one rank: then nothing is sent, and what is left is what the wrappers themselves cost.

Exits with 77 and a reason where PyTorch, libddp's Python package or the GPUs are missing.
"""
import argparse
import copy
import json
import os
import statistics
import sys
import time

from packed import import_libddp, skip


def import_all():
    try:
        import torch
        import torch.distributed as dist
    except Exception as error:  # whatever a broken installation raises
        skip(f"PyTorch cannot be imported ({error})")
    return torch, dist, import_libddp("torch")


def models(torch, small):
    nn, functional = torch.nn, torch.nn.functional

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
        def __init__(self, words, width, layers, heads, length):
            super().__init__()
            self.tokens, self.positions = nn.Embedding(words, width), nn.Embedding(length, width)
            self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))
            self.norm, self.out = nn.LayerNorm(width), nn.Linear(width, words, bias=False)
            self.out.weight = self.tokens.weight  # shared, as in GPT-2

        def forward(self, x):
            y = self.tokens(x) + self.positions.weight[: x.shape[1]]
            for block in self.blocks:
                y = block(y)
            return functional.cross_entropy(self.out(self.norm(y)).flatten(0, 1), x.roll(-1, 1).flatten())

    class Mlp(nn.Module):
        def __init__(self, width, layers):
            super().__init__()
            self.layers = nn.ModuleList(nn.Linear(width, width) for _ in range(layers))

        def forward(self, x):
            for layer in self.layers:
                x = functional.relu(layer(x))
            return x.square().mean()

    if small:
        return {"mlp": (lambda: Mlp(64, 4), lambda: torch.randn(8, 64)),
                "gpt": (lambda: Gpt(101, 32, 2, 2, 16), lambda: torch.randint(0, 101, (2, 16)))}
    return {"mlp": (lambda: Mlp(1024, 24), lambda: torch.randn(512, 1024)),
            "gpt": (lambda: Gpt(50257, 768, 12, 12, 512), lambda: torch.randint(0, 50257, (4, 512)))}


def measure(torch, dist, ours, name, make, batch, options, device):
    """Milliseconds of a step by way, and how far the first gradients of the wrappers are apart."""
    torch.manual_seed(1)
    first = make().to(device)
    theirs = torch.nn.parallel.DistributedDataParallel
    ids = [device.index] if device.type == "cuda" else None
    wrapped = {"none": first, "torch_views": theirs(copy.deepcopy(first), device_ids=ids, gradient_as_bucket_view=True),
               "torch_copies": theirs(copy.deepcopy(first), device_ids=ids), "libddp": ours.DistributedDataParallel(copy.deepcopy(first))}
    optimizers = {way: torch.optim.AdamW(model.parameters(), lr=1e-4, fused=device.type == "cuda") for way, model in wrapped.items()}
    torch.manual_seed(100 + dist.get_rank())
    times, gradients = {way: [] for way in wrapped}, {}
    wait = torch.cuda.synchronize if device.type == "cuda" else lambda: None
    for step in range(-5, options.steps):
        x = batch().to(device)
        for way, model in wrapped.items():
            dist.barrier()
            wait()
            begin = time.perf_counter()
            optimizers[way].zero_grad(set_to_none=False)
            model(x).backward()
            if step == -5:
                gradients[way] = torch.cat([p.grad.flatten() for p in model.parameters()]).cpu()
            optimizers[way].step()
            wait()
            if step >= 0:
                times[way].append(1e3 * (time.perf_counter() - begin))
    slowest = torch.tensor([times[way] for way in wrapped], dtype=torch.float64, device=device)
    dist.all_reduce(slowest, op=dist.ReduceOp.MAX)
    row = {way: statistics.median(each) for way, each in zip(wrapped, slowest.tolist())}
    apart = float((gradients["libddp"] - gradients["torch_views"]).norm() / gradients["torch_views"].norm())
    row.update(model=name, apart=apart, parameters=sum(p.numel() for p in first.parameters()),
               met=row["libddp"] <= 1.01 * min(row["torch_views"], row["torch_copies"]))
    return row


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--json")
    parser.add_argument("--alone", action="store_true")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    options = parser.parse_args()
    options.steps = 10 if options.quick else 50
    size, local = int(os.environ.get("WORLD_SIZE", 1)), int(os.environ.get("LOCAL_RANK", 0))
    if size < 2 and not options.alone:
        skip("start it with ddprun -n GPUS")
    torch, dist, ours = import_all()
    if options.device == "cuda" and torch.cuda.device_count() < max(1 if options.alone else 2, int(os.environ.get("LOCAL_WORLD_SIZE", size))):
        skip(f"{size} ranks need as many GPUs, PyTorch sees {torch.cuda.device_count()}")
    device = torch.device("cuda", local) if options.device == "cuda" else torch.device("cpu")
    if device.type == "cuda":
        torch.cuda.set_device(device)
    dist.init_process_group("nccl" if device.type == "cuda" else "gloo")
    rows, failed = [], False
    for name, (make, batch) in models(torch, device.type == "cpu").items():
        row = measure(torch, dist, ours, name, make, batch, options, device)
        rows.append(row)
        failed = failed or row["apart"] > 1e-3
        if dist.get_rank() == 0:
            print(f"{name}: {size} ranks, {row['parameters'] / 1e6:.1f} M parameters, ms a step: without reduction {row['none']:.3f}, "
                  f"PyTorch DDP with views {row['torch_views']:.3f}, with copies {row['torch_copies']:.3f}, libddp {row['libddp']:.3f}; not slower: "
                  f"{'yes' if row['met'] else 'NO'}; first gradients of both apart by {row['apart']:.1e}", flush=True)
            if options.json:
                with open(options.json, "w", encoding="utf-8") as file:
                    json.dump({"versions": torch.__version__, "ranks": size, "steps": rows}, file, indent=1)
    dist.barrier()
    sys.stdout.flush()
    os._exit(1 if failed else 0)  # neither library's threads are waited for


if __name__ == "__main__":
    main()
