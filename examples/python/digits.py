# SPDX-License-Identifier: Apache-2.0
"""Train a network on handwritten digits with NumPy, on any number of ranks: the network and the numbers of examples/02_train.c.

    ddprun -n 4 python3 digits.py

The global batch has 64 samples whatever the number of ranks, so 1, 2 or 4 ranks learn the same.
"""
import argparse

import libddp
import libddp.numpy
import numpy as np
from digits_data import load, rate_at

WIDTHS = (64, 128, 64, 10)
GLOBAL_BATCH = 64


def start():
    """Small random numbers (He's initialisation). Ranks need not agree on them: rank 0's values go to everybody."""
    state, weights = 1, {}
    for layer, (inputs, outputs) in enumerate(zip(WIDTHS, WIDTHS[1:]), 1):
        numbers = []
        for _ in range(inputs * outputs):
            state = (state * 6364136223846793005 + 1442695040888963407) % 2**64
            numbers.append((state >> 40) / 2**23 - 1)
        weights[f"layer{layer}.weight"] = np.float32(np.sqrt(6 / inputs)) * np.array(numbers, np.float32).reshape(outputs, inputs)
        weights[f"layer{layer}.bias"] = np.zeros(outputs, np.float32)
    return weights


def forward(weights, x):
    """The inputs of every layer, then the values of the last."""
    values = [x]
    for layer in (1, 2, 3):
        y = values[-1] @ weights[f"layer{layer}.weight"].T + weights[f"layer{layer}.bias"]
        values.append(np.maximum(y, 0) if layer < 3 else y)
    return values


def train_step(model, optimizer, weights, grads, x, labels):
    """Forward, backward, update. Returns the sum of losses and the number of right answers."""
    *inputs, logits = forward(weights, x)
    shifted = logits - logits.max(axis=1, keepdims=True)
    odds = np.exp(shifted)
    delta = odds / odds.sum(axis=1, keepdims=True)
    rows = np.arange(len(labels))
    loss = np.log(odds.sum(axis=1)).sum() - shifted[rows, labels].sum()
    delta[rows, labels] -= 1
    delta /= len(labels)  # the mean over this rank's samples; libddp takes the mean over the ranks
    with model.backward():
        for layer in (3, 2, 1):
            weight = f"layer{layer}.weight"
            np.sum(delta, axis=0, out=grads[f"layer{layer}.bias"])
            np.matmul(delta.T, inputs[layer - 1], out=grads[weight])
            model.mark_ready(f"layer{layer}.bias")  # from here on they travel, while we compute the layers below
            model.mark_ready(weight)
            if layer > 1:
                delta = (delta @ weights[weight]) * (inputs[layer - 1] > 0)
    optimizer.step()  # the same gradients everywhere, so the same step everywhere
    return float(loss), int((logits.argmax(axis=1) == labels).sum())


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--checkpoint", default="digits.safetensors", help="where to save; the C example can load it")
    parser.add_argument("--resume", action="store_true", help="continue from the checkpoint, on any number of ranks")
    options = parser.parse_args()
    (pixels, labels), (test_pixels, test_labels) = load()

    group = libddp.Group()  # started alone, a group of one, and no line changes
    model = libddp.Model(group, first_bucket_bytes=4096, bucket_bytes=32768)  # tiny network; real ones are well served by the defaults
    weights = start()
    grads = libddp.numpy.lend(model, weights)
    optimizer = libddp.Adam(model)
    state = libddp.State(model, optimizer)
    if options.resume:
        state.load(options.checkpoint)
    sampler = libddp.Sampler(len(labels), group)
    batch = GLOBAL_BATCH // group.size
    steps = options.epochs * -(-len(sampler) // batch)
    while state.epoch < options.epochs:
        sums = {"loss": 0.0, "right": 0, "seen": 0, "test right": 0, "tested": 0}
        for chosen in sampler.batches(state.epoch, batch):
            optimizer.rate = rate_at(state.step, steps)
            loss, right = train_step(model, optimizer, weights, grads, pixels[chosen], labels[chosen])
            sums["loss"] += loss
            sums["right"] += right
            sums["seen"] += len(chosen)
            state.step += 1
        state.epoch += 1
        mine = slice(group.rank, None, group.size)  # each rank tests its share
        sums["test right"] = int((forward(weights, test_pixels[mine])[-1].argmax(axis=1) == test_labels[mine]).sum())
        sums["tested"] = len(test_labels[mine])
        sums = group.reduce_metrics(sums)  # sum first, divide afterwards
        if group.rank == 0:
            print(f"epoch {state.epoch:2}  loss {sums['loss'] / sums['seen']:.4f}  train {100 * sums['right'] / sums['seen']:6.2f} %  "
                  f"test {100 * sums['test right'] / sums['tested']:6.2f} %", flush=True)
    state.save(options.checkpoint)  # every rank calls; rank 0 writes
    model.check_replicas()
    if group.rank == 0:
        print(f"all ranks hold {model.hash():016x}; checkpoint: {options.checkpoint}")


if __name__ == "__main__":
    main()
