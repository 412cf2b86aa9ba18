# SPDX-License-Identifier: Apache-2.0
"""A program as one finds it: a small network learns digits, in one process, with NumPy alone."""
import os
import sys

import numpy as np

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from digits_data import load  # noqa: E402

BATCH, STEPS, RATE = 64, 300, 0.2
(pixels, labels), (test_pixels, test_labels) = load()
random = np.random.default_rng(1)
weights = {"hidden": random.normal(0, 0.18, (64, 128)).astype(np.float32), "output": random.normal(0, 0.09, (128, 10)).astype(np.float32)}
grads = {name: np.zeros_like(weight) for name, weight in weights.items()}

for step in range(STEPS):
    chosen = np.arange(step * BATCH, (step + 1) * BATCH) % len(labels)
    x, wanted = pixels[chosen], labels[chosen]
    rows = np.arange(len(wanted))
    hidden = np.maximum(x @ weights["hidden"], 0)
    odds = np.exp(hidden @ weights["output"])
    odds /= odds.sum(axis=1, keepdims=True)
    loss = -np.log(odds[rows, wanted]).mean()

    odds[rows, wanted] -= 1
    delta = odds / len(wanted)
    grads["output"][:] = hidden.T @ delta
    grads["hidden"][:] = x.T @ ((delta @ weights["output"].T) * (hidden > 0))
    for name, weight in weights.items():
        weight -= RATE * grads[name]
    print(f"step {step} loss {loss:.9f}")

right = np.argmax(np.maximum(test_pixels @ weights["hidden"], 0) @ weights["output"], axis=1) == test_labels
print(f"test {100 * right.mean():.1f} %")
