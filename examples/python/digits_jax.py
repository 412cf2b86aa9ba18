# SPDX-License-Identifier: Apache-2.0
"""Train a network on handwritten digits with JAX, on any number of ranks.

    ddprun -n 4 python3 digits_jax.py
"""
import jax
import jax.numpy as jnp
import libddp
import libddp.jax
import numpy as np
from digits_data import load, rate_at

EPOCHS, GLOBAL_BATCH, WIDTHS = 20, 64, (64, 128, 64, 10)


def start(seed):
    keys = jax.random.split(jax.random.PRNGKey(seed), 3)
    return [{"weight": jax.random.normal(key, (i, o)) * jnp.sqrt(2 / i), "bias": jnp.zeros(o)}
            for key, i, o in zip(keys, WIDTHS, WIDTHS[1:])]


def logits_of(params, x):
    for layer in params[:-1]:
        x = jax.nn.relu(x @ layer["weight"] + layer["bias"])
    return x @ params[-1]["weight"] + params[-1]["bias"]


@jax.jit
def gradient(params, x, labels):
    def loss(params):
        return -jnp.mean(jax.nn.log_softmax(logits_of(params, x))[jnp.arange(len(labels)), labels])

    return jax.grad(loss)(params)


@jax.jit
def update(params, velocity, grads, rate):
    velocity = jax.tree_util.tree_map(lambda v, g: 0.9 * v + g, velocity, grads)
    return jax.tree_util.tree_map(lambda p, v: p - rate * v, params, velocity), velocity


def main():
    (pixels, labels), (test_pixels, test_labels) = load()
    with libddp.Group() as group:
        params = start(seed=group.rank)  # ranks need not agree: rank 0's values go to everybody
        sync = libddp.jax.DataParallel(params, group)
        params = sync.broadcast(params)
        velocity = jax.tree_util.tree_map(jnp.zeros_like, params)
        sampler = libddp.Sampler(len(labels), group, drop_last=True)
        batch = GLOBAL_BATCH // group.size
        step, steps = 0, EPOCHS * -(-len(sampler) // batch)
        for epoch in range(EPOCHS):
            for chosen in sampler.batches(epoch, batch):
                chosen = np.asarray(chosen)
                grads = sync.average(gradient(params, pixels[chosen], labels[chosen]))
                params, velocity = update(params, velocity, grads, rate_at(step, steps, top=0.1))
                step += 1
        mine = slice(group.rank, None, group.size)
        right = int((logits_of(params, test_pixels[mine]).argmax(axis=1) == test_labels[mine]).sum())
        right, tested = group.reduce_metrics([right, len(test_labels[mine])])
        sync.check(params)
        if group.rank == 0:
            print(f"test accuracy {100 * right / tested:.2f} %")


if __name__ == "__main__":
    main()
