# SPDX-License-Identifier: Apache-2.0
"""The same measurements in PyTorch, on the same GPU: DistributedDataParallel at one rank with and without views, _foreach_copy_, fused AdamW.

    torch_bench.py [--quick] --json FILE

Prints and writes rows as bench.gpu does. Exits with 77 and a reason where PyTorch or its CUDA part is missing.
"""
import argparse
import json
import os
import statistics
import sys

MIB = 1 << 20


def skip(why):
    print("skipped:", why)
    sys.exit(77)


def import_torch():
    try:
        import torch
    except Exception as error:  # whatever a broken installation raises
        skip(f"PyTorch cannot be imported ({error})")
    if not torch.cuda.is_available():
        skip("this PyTorch sees no GPU")
    return torch


def time_in_turn(torch, works, repetitions, ahead=False):
    """Median milliseconds of each of the works, which are done in turn; with `ahead` without what the host needs to enqueue them."""
    times = [[] for _ in works]
    for k in range(-5, repetitions):
        for which, work in enumerate(works):
            begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            torch.cuda.synchronize()
            if ahead:
                torch.cuda._sleep(600_000)  # cycles: longer than enqueuing takes
            begin.record()
            work(k)
            end.record()
            end.synchronize()
            if k >= 0:
                times[which].append(begin.elapsed_time(end))
    return [statistics.median(each) for each in times]


def sizes(tensors, size):
    mean = size // 4 // tensors
    return [mean // 2 + mean * t // (tensors - 1) for t in range(tensors)]


def copies(torch, rows, repetitions):
    for name, tensors, size in (("25MiB", 64, 25 * MIB), ("256MiB", 300, 256 * MIB)):
        sets = max(2, 400 * MIB // (2 * size))
        counts = sizes(tensors, size)
        sources = [[torch.randn(count, device="cuda") for count in counts] for _ in range(sets)]
        targets = []
        for _ in range(sets):
            flat = torch.empty(sum(counts), device="cuda")
            targets.append(list(flat.split(counts)))
        pack, unpack = time_in_turn(torch, [lambda k: torch._foreach_copy_(targets[k % sets], sources[k % sets]),
                                            lambda k: torch._foreach_copy_(sources[k % sets], targets[k % sets])], repetitions, ahead=True)
        rows[f"pack.{name}"] = pack
        rows[f"unpack.{name}"] = unpack


def gpt2_counts():
    width = 768
    layer = [width, width, width * 3 * width, 3 * width, width * width, width, width, width, width * 4 * width, 4 * width,
             4 * width * width, width]
    return [50257 * width, 1024 * width] + layer * 12 + [width, width]


def updates(torch, rows, repetitions):
    for name, counts in (("adamw.gpt2", gpt2_counts()), ("adamw.small", [1000] * 10_000)):
        parameters = [torch.nn.Parameter(torch.randn(count, device="cuda")) for count in counts]
        for parameter in parameters:
            parameter.grad = torch.randn_like(parameter)
        optimizer = torch.optim.AdamW(parameters, lr=1e-3, fused=True)
        optimizer.step()
        rows[name] = time_in_turn(torch, [lambda k: optimizer.step()], repetitions)[0]
        del optimizer, parameters


def steps(torch, rows, repetitions):
    import torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel
    os.environ.setdefault("MASTER_ADDR", "127.0.0.1")
    os.environ.setdefault("MASTER_PORT", "29533")
    torch.cuda.set_device(0)
    dist.init_process_group("nccl", rank=0, world_size=1)
    torch.backends.cuda.matmul.allow_tf32 = False
    batch = torch.randn(512, 1024, device="cuda")

    def network():
        return torch.nn.Sequential(*[torch.nn.Linear(1024, 1024) for _ in range(24)]).cuda()

    models = [network(), DistributedDataParallel(network(), device_ids=[0]),
              DistributedDataParallel(network(), device_ids=[0], gradient_as_bucket_view=True)]

    def step(model):
        model.zero_grad(set_to_none=False)
        model(batch).square().mean().backward()

    none, copy, view = time_in_turn(torch, [lambda k, m=m: step(m) for m in models], repetitions)
    rows["step.none"] = none
    rows["step.copy"] = 100 * (copy / none - 1)
    rows["step.view"] = 100 * (view / none - 1)
    dist.destroy_process_group()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--json", required=True)
    options = parser.parse_args()
    torch = import_torch()
    rows = {"versions": f"PyTorch {torch.__version__}, NCCL {'.'.join(map(str, torch.cuda.nccl.version()))}, {torch.cuda.get_device_name()}"}
    print(rows["versions"])
    for part in (copies, updates, steps):
        try:
            part(torch, rows, 20 if options.quick else 100)
        except Exception as error:  # a part that fails leaves the others
            rows[f"failed.{part.__name__}"] = str(error).splitlines()[0]
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump(rows, file, indent=1)
    print(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
