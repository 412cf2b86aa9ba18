# SPDX-License-Identifier: Apache-2.0
"""The handwritten digits for the examples of this folder: every fifth line is for testing, the others for training."""
import os

import numpy as np

PLACE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "data", "digits.csv")


def load(path=PLACE):
    """((training pixels, labels), (test pixels, labels)); pixels are float32 from 0 to 1, 64 a digit."""
    table = np.loadtxt(path, delimiter=",", dtype=np.int64)
    pixels, labels = (table[:, :64] / 16).astype(np.float32), table[:, 64]
    test = np.arange(len(table)) % 5 == 0
    return (pixels[~test], labels[~test]), (pixels[test], labels[test])


def rate_at(step, steps, top=0.004, warm_up=50):
    """A short linear warm-up, then down along a cosine. Every rank computes the same."""
    if step < warm_up:
        return top * (step + 1) / warm_up
    return 0.02 * top + 0.98 * top * 0.5 * (1 + np.cos(np.pi * step / steps))
