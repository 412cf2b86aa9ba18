# SPDX-License-Identifier: Apache-2.0
"""All-reduce of torch.distributed over Gloo between hosts, measured as protocol.h says; and DistributedDataParallel's pass.

    torch_peer.py sums                      BENCH_SIZES as in protocol.h
    torch_peer.py passes MILLISECONDS       12 layers of 4 MiB, "computation" = sleep before each gradient
"""

import ctypes
import mmap
import os
import struct
import sys
import time

import torch
import torch.distributed as dist

libc = ctypes.CDLL(None, use_errno=True)


class Meeting:
    """meeting.h, by exchanging through the process group's store: beside the network would need atomics, so ranks meet in the file by polling."""

    def __init__(self, rank, size):
        self.rank, self.size, self.turn = rank, size, 0
        path = os.environ["BENCH_MEETING"]
        with open(path, "r+b") as file:
            self.map = mmap.mmap(file.fileno(), 65536)

    def _slot(self, rank):
        return 16384 + 16 * rank

    def slowest(self, value):
        """Every rank writes its turn and value; all read all. Returns the largest."""
        self.turn += 1
        struct.pack_into("d", self.map, self._slot(self.rank) + 8, value)
        struct.pack_into("q", self.map, self._slot(self.rank), self.turn * 2 - 1)
        self._await(self.turn * 2 - 1)
        largest = max(struct.unpack_from("d", self.map, self._slot(r) + 8)[0] for r in range(self.size))
        struct.pack_into("q", self.map, self._slot(self.rank), self.turn * 2)
        self._await(self.turn * 2)
        return largest

    def _await(self, turn):
        while any(struct.unpack_from("q", self.map, self._slot(r))[0] < turn for r in range(self.size)):
            time.sleep(20e-6)


def measure(meeting, call, most):
    call()
    call()
    times, begun = [], time.monotonic()
    while meeting.slowest(float(meeting.rank == 0 and len(times) < most and time.monotonic() - begun < 3)) > 0:
        meeting.slowest(0)
        begin = time.monotonic()
        call()
        times.append(meeting.slowest((time.monotonic() - begin) * 1e6))
    return times


def show(meeting, label, times):
    if meeting.rank == 0:
        print("N %s 0 0 %s" % (label, " ".join("%.1f" % each for each in times)), flush=True)


def sums(meeting, most):
    for size in (int(each) for each in os.environ.get("BENCH_SIZES", "0").split(",")):
        data = torch.zeros(size // 4)
        show(meeting, size, measure(meeting, lambda: dist.all_reduce(data) if size else dist.barrier(), most))


class Slow(torch.autograd.Function):
    @staticmethod
    def forward(context, value, weight, seconds):
        context.save_for_backward(weight)
        context.seconds = seconds
        return value + weight[0] * 0

    @staticmethod
    def backward(context, gradient):
        time.sleep(context.seconds)
        (weight,) = context.saved_tensors
        return gradient, torch.ones_like(weight), None


class Layers(torch.nn.Module):
    def __init__(self, milliseconds, layers=12, elements=1 << 20):
        super().__init__()
        self.weights = torch.nn.ParameterList([torch.nn.Parameter(torch.zeros(elements)) for _ in range(layers)])
        self.seconds = milliseconds / 1e3 / layers

    def forward(self, value):
        for weight in self.weights:
            value = Slow.apply(value, weight, self.seconds)
        return value


def passes(meeting, most, milliseconds):
    model = torch.nn.parallel.DistributedDataParallel(Layers(milliseconds))
    show(meeting, "pass", measure(meeting, lambda: model(torch.zeros(1, requires_grad=True)).sum().backward(), most))


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    meeting = Meeting(dist.get_rank(), dist.get_world_size())
    most = int(os.environ.get("BENCH_CALLS", "9"))
    if sys.argv[1] == "sums":
        sums(meeting, most)
    else:
        passes(meeting, most, float(sys.argv[2]))


main()
