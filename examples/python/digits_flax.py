# SPDX-License-Identifier: Apache-2.0
"""Train a network on handwritten digits with Flax and Optax, on any number of ranks: a step is one compiled program, average and all.

    ddprun -n 4 python3 digits_flax.py
"""
import flax.linen as nn
import jax
import libddp
import libddp.jax
import numpy as np
import optax
from digits_data import load

EPOCHS, GLOBAL_BATCH = 20, 64


class Network(nn.Module):
    @nn.compact
    def __call__(self, x):
        for width in (128, 64):
            x = nn.relu(nn.Dense(width)(x))
        return nn.Dense(10)(x)


def main():
    (pixels, labels), (test_pixels, test_labels) = load()
    with libddp.Group() as group:
        network = Network()
        params = network.init(jax.random.PRNGKey(group.rank), pixels[:1])  # ranks need not agree: rank 0's values go to everybody
        sampler = libddp.Sampler(len(labels), group, drop_last=True)
        batch = GLOBAL_BATCH // group.size
        optimizer = optax.adamw(optax.cosine_decay_schedule(0.004, EPOCHS * (len(sampler) // batch)))
        state = optimizer.init(params)
        sync = libddp.jax.DataParallel(params, group, state=state)
        params = sync.broadcast(params)

        @jax.jit
        def step(params, state, x, labels):
            def loss_of(params):
                return optax.softmax_cross_entropy_with_integer_labels(network.apply(params, x), labels).mean()

            loss, grads = jax.value_and_grad(loss_of)(params)
            updates, state = optimizer.update(sync.average(grads), state, params)  # the mean over all ranks, the same bits everywhere
            return optax.apply_updates(params, updates), state, loss

        for epoch in range(EPOCHS):
            losses = []
            for chosen in sampler.batches(epoch, batch):
                chosen = np.asarray(chosen)
                if len(chosen) == batch:  # another shape would be another program
                    params, state, loss = step(params, state, pixels[chosen], labels[chosen])
                    losses.append(loss)
            total, count = group.reduce_metrics([float(sum(losses)), len(losses)])
            if group.rank == 0:
                print(f"epoch {epoch + 1:2}  loss {total / count:.4f}")
        mine = slice(group.rank, None, group.size)
        right = int((network.apply(params, test_pixels[mine]).argmax(axis=1) == test_labels[mine]).sum())
        right, tested = group.reduce_metrics([right, len(test_labels[mine])])
        sync.check(params)
        sync.save("digits_flax.safetensors", params, state, epoch=EPOCHS)
        if group.rank == 0:
            print(f"test accuracy {100 * right / tested:.2f} %")


if __name__ == "__main__":
    main()
