# SPDX-License-Identifier: Apache-2.0
"""libddp.jax with arrays on a GPU: the gradients go to the host, libddp sums there, and the means come back.

    ddprun -n RANKS python3 jax_gpu.py

Ranks may share a GPU. Prints a line for each case. Exits with 77 and a reason where JAX, libddp's Python package or a GPU is missing.
"""
import os
import sys

os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")  # ranks may share a GPU
HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(HERE, "bench")]  # as they lie in a kit, and here
from packed import import_libddp, skip  # noqa: E402

RANK, SIZE = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
try:
    import jax
    import jax.numpy as jnp
    import numpy as np
except Exception as error:  # whatever a broken installation raises
    skip(f"JAX cannot be imported ({error})")
ours = import_libddp("jax")
import libddp  # noqa: E402

ON_GPU = jax.default_backend() == "gpu"
if not ON_GPU and sys.argv[1:] != ["--device", "cpu"]:
    skip(f"JAX sees no GPU ({jax.default_backend()})")


def loss(params, batch):
    hidden = jnp.tanh(batch[0] @ params["in"] + params["bias"])
    return jnp.mean((hidden @ params["out"] - batch[1]) ** 2)


def batch(of, step):
    made = np.random.RandomState(100 * step + of)
    return jnp.asarray(made.randn(32, 24), jnp.float32), jnp.asarray(made.randn(32, 3), jnp.float32)


def begin():
    made = np.random.RandomState(7)
    return {"in": jnp.asarray(made.randn(24, 64), jnp.float32), "bias": jnp.zeros(64), "out": jnp.asarray(made.randn(64, 3), jnp.float32)}


def wanted(steps):
    """One process with the samples of all ranks."""
    params = begin()
    for step in range(steps):
        grads = [jax.grad(loss)(params, batch(of, step)) for of in range(SIZE)]
        params = jax.tree_util.tree_map(lambda p, *g: p - 0.05 * sum(g) / SIZE, params, *grads)
    return params


def near(found, right, what):
    for name in right:
        one, other = np.asarray(found[name]), np.asarray(right[name])
        if not np.allclose(one, other, rtol=1e-4, atol=1e-5):
            raise AssertionError(f"{what}: {name} apart by {np.abs(one - other).max()}")


def main():
    with libddp.Group(timeout_ms=30000) as group:
        params = begin() if RANK == 0 else jax.tree_util.tree_map(lambda p: p + 1, begin())
        sync = ours.DataParallel(params, group)
        first = sync.broadcast(params)
        params = first
        for step in range(4):
            params = jax.tree_util.tree_map(lambda p, g: p - 0.05 * g, params, sync.average(jax.grad(loss)(params, batch(RANK, step))))
        near(params, wanted(4), "average() after grad")
        if ON_GPU and {device.platform for leaf in jax.tree_util.tree_leaves(params) for device in leaf.devices()} != {"gpu"}:
            raise AssertionError("the parameters have left the GPU")
        print("PASS average() after grad", flush=True)

        @jax.jit
        def step_in_jit(params, given):
            return jax.tree_util.tree_map(lambda p, g: p - 0.05 * g, params, sync.average(jax.grad(loss)(params, given)))

        params = first
        for step in range(4):
            params = step_in_jit(params, batch(RANK, step))
        near(params, wanted(4), "average() in jit")
        print("PASS average() in jit", flush=True)


if __name__ == "__main__":
    main()
