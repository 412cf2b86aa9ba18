# SPDX-License-Identifier: Apache-2.0
"""The same program on any number of processes: ddprun -n 4 python3 after.py"""
import os
import sys

import libddp
import libddp.numpy
import numpy as np

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from digits_data import load  # noqa: E402

BATCH, STEPS, RATE = 64, 300, 0.2
(pixels, labels), (test_pixels, test_labels) = load()
random = np.random.default_rng(1)
weights = {"hidden": random.normal(0, 0.18, (64, 128)).astype(np.float32), "output": random.normal(0, 0.09, (128, 10)).astype(np.float32)}
group = libddp.Group()
model = libddp.Model(group)
grads = libddp.numpy.lend(model, weights)
sgd = libddp.SGD(model, rate=RATE)

for step in range(STEPS):
    chosen = np.arange(step * BATCH, (step + 1) * BATCH) % len(labels)
    chosen = chosen[group.rank::group.size]
    x, wanted = pixels[chosen], labels[chosen]
    rows = np.arange(len(wanted))
    hidden = np.maximum(x @ weights["hidden"], 0)
    odds = np.exp(hidden @ weights["output"])
    odds /= odds.sum(axis=1, keepdims=True)
    loss = -np.log(odds[rows, wanted]).mean()

    odds[rows, wanted] -= 1
    delta = odds / len(wanted)
    with model.backward():
        grads["output"][:] = hidden.T @ delta
        model.mark_ready("output")
        grads["hidden"][:] = x.T @ ((delta @ weights["output"].T) * (hidden > 0))
        model.mark_ready("hidden")
    sgd.step()
    loss = group.reduce_metrics([loss])[0] / group.size
    if group.rank == 0:
        print(f"step {step} loss {loss:.9f}")

right = np.argmax(np.maximum(test_pixels @ weights["hidden"], 0) @ weights["output"], axis=1) == test_labels
if group.rank == 0:
    print(f"test {100 * right.mean():.1f} %")
