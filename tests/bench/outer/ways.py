# SPDX-License-Identifier: Apache-2.0
"""The ways that are compared."""

from typing import NamedTuple


class Way(NamedTuple):
    label: str
    arguments: list  # of bench.outer
    colour: str  # light
    dark: str


MORE = ["steps=3120", "momentum=0.5"]  # steps of a DiLoCo cost a hundredth of the bytes, so it makes half as many again
WAYS = {
    "ddp": Way("plain DDP", ["ddp"], "#616e7c", "#9aa5b1"),
    "bf16": Way("DDP, BF16 travels", ["bf16"], "#b3541e", "#e08a4f"),
    "powersgd": Way("PowerSGD, rank 2", ["powersgd"], "#7a4fa3", "#b48ad8"),
    "diloco-8": Way("DiLoCo, 8 bits, every 40 steps", ["diloco", "bits=8", "every=40", "evaluate=240", *MORE], "#2f7ed8", "#4f9cf0"),
    "diloco-4": Way("DiLoCo, 4 bits, every 26 steps", ["diloco", "bits=4", "every=26", "evaluate=260", *MORE], "#0b6e4f", "#3aa17e"),
}
