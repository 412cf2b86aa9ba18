# SPDX-License-Identifier: Apache-2.0
"""Operations of torch.distributed on libddp and on Gloo, in turn, in the same processes:

    PYTHONPATH=build/tests/bindings/python ddprun -n 2 --no-prefix python3 tests/bench/c10d_bench.py [--tenth] [operation ...]

Prints medians in microseconds, with --tenth the tenth fastest, which says more on a busy machine; of the ranks the slowest counts. Needs
PyTorch. Built with `ninja -C build/tests ddp_python ddp_gloo ddprun`; for figures, in a tree made with
-DCMAKE_BUILD_TYPE=Release.
"""
import sys
import time

import libddp.c10d  # noqa: F401
import torch
import torch.distributed as dist

SIZES = (1 << 10, 16 << 10, 64 << 10, 1 << 20, 25 << 20)
ROUNDS = 6


def operations(count, rank, size):
    one, part = torch.ones(count), torch.ones(count)
    many, whole = [torch.ones(count) for _ in range(size)], torch.ones(count * size)
    rows, taken = torch.ones(count // size * size), torch.ones(count // size * size)

    def there_and_back(group):
        if rank == 0:
            dist.send(one, 1, group), dist.recv(one, 1, group)
        elif rank == 1:
            dist.recv(one, 0, group), dist.send(one, 0, group)

    return {
        "all_reduce": lambda group: dist.all_reduce(one, group=group),
        "all_reduce, product": lambda group: dist.all_reduce(one, dist.ReduceOp.PRODUCT, group),
        "reduce": lambda group: dist.reduce(one, 0, group=group),
        "broadcast": lambda group: dist.broadcast(one, 0, group),
        "all_gather": lambda group: dist.all_gather(many, one, group),
        "all_gather_into_tensor": lambda group: dist.all_gather_into_tensor(whole, one, group),
        "reduce_scatter": lambda group: dist.reduce_scatter(part, many, group=group),
        "reduce_scatter_tensor": lambda group: dist.reduce_scatter_tensor(part, whole, group=group),
        "gather": lambda group: dist.gather(one, many if rank == 0 else None, 0, group),
        "scatter": lambda group: dist.scatter(part, many if rank == 0 else None, 0, group),
        "all_to_all_single": lambda group: dist.all_to_all_single(taken, rows, group=group),
        "send and recv, there and back": there_and_back,
    }


def time_of(operation, groups, repeats, part):
    """The time of each group, in microseconds, below which this part of the calls stays."""
    times = {name: [] for name in groups}
    for _ in range(ROUNDS):
        for name, group in groups.items():
            operation(group), dist.barrier(group)
            for _ in range(repeats):
                begun = time.perf_counter()
                operation(group)
                times[name].append(time.perf_counter() - begun)
    mine = torch.tensor([sorted(found)[int(len(found) * part)] * 1e6 for found in times.values()])
    dist.all_reduce(mine, dist.ReduceOp.MAX)
    return mine.tolist()


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, size = dist.get_rank(), dist.get_world_size()
    groups = {"gloo": dist.group.WORLD, "libddp": dist.new_group(backend="libddp")}
    names = [name for name in sys.argv[1:] if name != "--tenth"]
    part = 0.1 if "--tenth" in sys.argv else 0.5
    found = {}
    for length in SIZES:
        for name, operation in operations(length // 4, rank, size).items():
            if not names or name in names:
                found[name, length] = time_of(operation, groups, 40 if length <= 64 << 10 else 8 if length <= 1 << 20 else 2, part)
    if rank == 0:
        units = ["1 KiB", "16 KiB", "64 KiB", "1 MiB", "25 MiB"]
        print(f"| {size} ranks, Gloo / libddp in us (ratio) | " + " | ".join(units) + " |\n|" + " --- |" * (len(units) + 1))
        for name in dict.fromkeys(name for name, _ in found):
            cells = [found[name, length] for length in SIZES]
            print(f"| {name} | " + " | ".join(f"{gloo:,.0f} / {ours:,.0f} ({gloo / ours:.2f})" for gloo, ours in cells) + " |")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
