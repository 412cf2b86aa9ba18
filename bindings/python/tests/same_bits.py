# SPDX-License-Identifier: Apache-2.0
"""The program of tests/bindings/README.md without NumPy: Python's floats, rounded to F32 after each operation.

Rounding the F64 result of one + - * / of F32 numbers gives the F32 result, because F64 has more than twice the bits.
"""
import os
import struct
from array import array

import libddp

INPUTS, HIDDEN, OUTPUTS, SAMPLES, BATCH, EPOCHS = 8, 16, 4, 96, 8, 10
_single = struct.Struct("f")


def f32(value):
    return _single.unpack(_single.pack(value))[0]


class Numbers:
    def __init__(self, state):
        self.state = state

    def __call__(self):
        self.state = (self.state * 1664525 + 1013904223) & 0xFFFFFFFF
        return ((self.state >> 16) - 32768.0) / 32768.0

    def many(self, count, factor=1.0):
        return array("f", [self() * factor for _ in range(count)])


class Network:
    def __init__(self, group):
        number = Numbers(1)
        self.samples = [(number.many(INPUTS), number.many(OUTPUTS, 0.5)) for _ in range(SAMPLES)]
        number = Numbers(7 + group.rank)
        self.w1, self.w2 = number.many(HIDDEN * INPUTS, 0.5), number.many(OUTPUTS * HIDDEN, 0.5)
        self.b1, self.b2 = array("f", bytes(4 * HIDDEN)), array("f", bytes(4 * OUTPUTS))
        self.gw1, self.gw2 = array("f", bytes(4 * HIDDEN * INPUTS)), array("f", bytes(4 * OUTPUTS * HIDDEN))
        self.model = model = libddp.Model(group, first_bucket_bytes=256, bucket_bytes=512)
        model.add_parameter("w1", shaped(self.w1, HIDDEN, INPUTS), shaped(self.gw1, HIDDEN, INPUTS))
        model.add_parameter("b1", self.b1)
        model.add_parameter("w2", shaped(self.w2, OUTPUTS, HIDDEN), shaped(self.gw2, OUTPUTS, HIDDEN))
        model.add_parameter("b2", self.b2)
        model.commit()
        self.gb1, self.gb2 = model.grad("b1").buffer(), model.grad("b2").buffer()

    def learn(self, sample, scale):
        """One sample, forward and backward: adds to the gradients, returns the squared error."""
        x, t = self.samples[sample]
        w1, b1, w2, b2, gw1, gb1, gw2, gb2 = self.w1, self.b1, self.w2, self.b2, self.gw1, self.gb1, self.gw2, self.gb2
        h = []
        for i in range(HIDDEN):
            value = b1[i]
            for j in range(INPUTS):
                value = f32(value + f32(w1[i * INPUTS + j] * x[j]))
            h.append(0.0 if value < 0 else value)
        d, loss = [], 0.0
        for o in range(OUTPUTS):
            y = b2[o]
            for i in range(HIDDEN):
                y = f32(y + f32(w2[o * HIDDEN + i] * h[i]))
            error = f32(y - t[o])
            loss = loss + error * error
            d.append(f32(error * scale))
        for o in range(OUTPUTS):
            gb2[o] = gb2[o] + d[o]  # stored as F32, so rounded
            for i in range(HIDDEN):
                gw2[o * HIDDEN + i] = gw2[o * HIDDEN + i] + f32(d[o] * h[i])
        for i in range(HIDDEN):
            back = 0.0
            for o in range(OUTPUTS):
                back = f32(back + f32(w2[o * HIDDEN + i] * d[o]))
            if not h[i] > 0:
                back = 0.0
            gb1[i] = gb1[i] + back
            for j in range(INPUTS):
                gw1[i * INPUTS + j] = gw1[i * INPUTS + j] + f32(back * x[j])
        return loss

    def work(self, chosen, part):
        """The share of one part of a step, in two passes, of which only the second of the last part communicates."""
        model, half, loss = self.model, len(chosen) // 2, 0.0
        scale = f32(1.0 / len(chosen))
        for opened, some in ((model.accumulate(), chosen[:half]), (model.backward(part=part), chosen[half:])):
            with opened:
                for sample in some:
                    loss = loss + self.learn(sample, scale)
                for name in ("b2", "w2", "b1", "w1"):
                    model.mark_ready(name)
        return loss

    def finish_step(self, sgd, ema):
        norm = self.model.grad_norm()
        if norm > 0.5:
            self.model.scale_grad(0.5 / norm)
        sgd.step()
        ema.update()


def shaped(values, *shape):
    return memoryview(values).cast("B").cast("f", shape)


def bits(value):
    return struct.unpack("<Q", struct.pack("<d", value))[0]


def main():
    group = libddp.Group(virtual_ranks=int(os.environ.get("SAME_BITS_PARTS", "0")))
    net = Network(group)
    sgd = libddp.SGD(net.model, rate=0.0625, momentum=0.875)
    ema = libddp.Ema(net.model, 0.75)
    samplers = {part: libddp.Sampler(SAMPLES, group, part=part, seed=3) for part in group.parts}
    for epoch in range(EPOCHS):
        sums = {part: [0.0, 0.0] for part in group.parts}
        for step in zip(*(sampler.batches(epoch, BATCH) for sampler in samplers.values())):
            net.model.zero_grad()
            for part, chosen in zip(samplers, step):
                sums[part][0] = sums[part][0] + net.work(chosen, part)
                sums[part][1] = sums[part][1] + len(chosen)
            net.finish_step(sgd, ema)
        loss, seen = group.reduce_part_metrics(list(sums.values()))
    parameters = net.model.hash()
    with ema.average():
        averages = net.model.hash()
    print(f"rank {group.rank} of {group.size}: parameters {parameters:016x} averages {averages:016x} loss {bits(loss / seen):016x}",
          flush=True)
    group.barrier()


if __name__ == "__main__":
    main()
