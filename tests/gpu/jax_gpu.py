# SPDX-License-Identifier: Apache-2.0
"""libddp.jax with arrays on a GPU: the average is an operation of XLA, on XLA's stream, and NCCL sums.

    ddprun -n RANKS python3 jax_gpu.py [--device cpu] [NAME ...]      the cases of these names; default all

Every rank trains on its own samples, and one process with the samples of all ranks says what must come out, but for rounding. Ranks may share a
GPU: for correctness, not for speed. --device cpu is a try without a GPU. Prints a line for each case. Exits with 77 and a reason where JAX,
libddp's Python package or a GPU is missing.
"""
import argparse
import io
import os
import sys
import time
import traceback

os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")  # ranks may share a GPU
HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(HERE, "bench")]  # as they are in a kit, and here
from packed import import_libddp, let_ranks_share, skip  # noqa: E402

RANK, SIZE = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
parser = argparse.ArgumentParser()
parser.add_argument("--device", choices=("gpu", "cpu"), default="gpu")
parser.add_argument("names", nargs="*")
OPTIONS = parser.parse_args()
try:
    import jax
    import jax.numpy as jnp
    import numpy as np

    BACKEND = jax.default_backend()
except Exception as error:  # whatever a broken installation raises
    skip(f"JAX cannot be imported ({error})")
ours = import_libddp("jax")
import libddp  # noqa: E402
from libddp import _xla_average  # noqa: E402

ON_GPU = OPTIONS.device == "gpu"
if ON_GPU and BACKEND not in ("gpu", "cuda"):
    skip(f"JAX sees no GPU ({BACKEND})")
if ON_GPU and _xla_average.module() is None:
    skip("libddp's Python package has no _xla.so: it was built without the headers of jaxlib (CMake option DDP_JAX_INCLUDE)")
DEVICE = jax.local_devices()[int(os.environ.get("LOCAL_RANK", 0)) % jax.local_device_count()]
SHARES = ON_GPU and let_ranks_share(jax.local_device_count())
if ON_GPU:
    jax.config.update("jax_default_device", DEVICE)
    jax.config.update("jax_default_matmul_precision", "highest")
CASES = []
leaves, tree_map = jax.tree_util.tree_leaves, jax.tree_util.tree_map


def case(function):
    CASES.append(function)
    return function


def expect(condition, text):
    if not condition:
        raise AssertionError(text)


def loss(params, batch):
    hidden = jnp.tanh(batch[0] @ params["in"] + params["bias"])
    return jnp.mean((hidden @ params["out"] - batch[1]) ** 2)


def batch(of, step):
    """The samples of a rank in a step, which every rank can make."""
    made = np.random.RandomState(100 * step + of)
    return jnp.asarray(made.randn(32, 24), jnp.float32), jnp.asarray(made.randn(32, 3), jnp.float32)


def begin():
    made = np.random.RandomState(7)
    return {"in": jnp.asarray(made.randn(24, 64), jnp.float32), "bias": jnp.zeros(64), "out": jnp.asarray(made.randn(64, 3), jnp.float32)}


def update(params, grads):
    return tree_map(lambda p, g: p - 0.05 * g, params, grads)


def wanted(steps):
    """One process with the samples of all ranks."""
    params = begin()
    for step in range(steps):
        grads = [jax.grad(loss)(params, batch(of, step)) for of in range(SIZE)]
        params = update(params, tree_map(lambda *g: sum(g) / SIZE, *grads))
    return params


def near(found, right, what):
    for one, other in zip(leaves(found), leaves(right)):
        one, other = np.asarray(one), np.asarray(other)
        if not np.allclose(one, other, rtol=1e-4, atol=1e-5):
            raise AssertionError(f"{what}: apart by {np.abs(one - other).max()}")


def wrap(group, **options):
    sync = ours.DataParallel(begin(), group, **options)
    on_gpu = type(sync.model).__name__ == "OnGpu"
    expect(on_gpu == (ON_GPU and not options.get("through_host")), f"the model is a {type(sync.model).__name__}")
    return sync


def expect_operation(text, count=1):
    """In a program as it goes to XLA."""
    expect(text.count("@libddp_average") == count and "callback" not in text, f"the program has not our operation {count} times: {text}")


def has_operation():
    return ON_GPU or _xla_average.module() is not None


@case
def after_grad(group):
    """average() outside of a program."""
    sync = wrap(group)
    params = sync.broadcast(begin() if RANK == 0 else tree_map(lambda p: p + 1, begin()))
    for step in range(4):
        params = update(params, sync.average(jax.grad(loss)(params, batch(RANK, step))))
    near(params, wanted(4), "parameters")
    sync.check(params)
    if ON_GPU:
        expect({device for leaf in leaves(params) for device in leaf.devices()} == {DEVICE}, "the parameters have left the GPU")
        expect(sync.model.stats()["passes"] == 4, "passes of the model")


@case
def in_jit(group):
    """The whole step is one program, which gives its memory back: addresses change."""
    sync = wrap(group)

    def step(params, given):
        return update(params, sync.average(jax.grad(loss)(params, given)))

    if has_operation():
        expect_operation(jax.jit(step).lower(begin(), batch(RANK, 0)).as_text())
    for program in (jax.jit(step), jax.jit(step, donate_argnums=0)):
        params = begin()
        for number in range(12):
            params = program(params, batch(RANK, number))
        near(params, wanted(12), "parameters")
        sync.check(params)


@case
def twice_and_in_a_loop(group):
    """Two averages of one program, in order, and those of a loop of lax."""
    sync = wrap(group)
    mine = tree_map(lambda p: jnp.full_like(p, RANK), begin())
    mean = (SIZE - 1) / 2

    @jax.jit
    def twice(grads):
        first = sync.average(grads)
        return grads, first, sync.average(tree_map(lambda g: 3 * g, grads), after=first)

    given, first, second = twice(mine)
    near(given, mine, "the gradients are as they were")
    near(first, tree_map(lambda p: jnp.full_like(p, mean), mine), "the first")
    near(second, tree_map(lambda p: jnp.full_like(p, 3 * mean), mine), "the second")
    if has_operation():
        expect_operation(twice.lower(mine).as_text(), 2)

    @jax.jit
    def loop(grads):
        return jax.lax.scan(lambda carried, _: (sync.average(tree_map(lambda g: g + RANK, carried)), ()), grads, length=4)[0]

    near(loop(mine), tree_map(lambda p: jnp.full_like(p, 5 * mean), mine), "the loop")


@case
def element_types(group):
    """Numbers of 16 bits, complex ones, a scalar, and an array without elements."""
    params = {"half": jnp.zeros((5, 3), jnp.float16), "brain": jnp.zeros(7, jnp.bfloat16), "complex": jnp.zeros(4, jnp.complex64),
              "scalar": jnp.float32(0), "none": jnp.zeros((0, 3))}
    sync = ours.DataParallel(params, group)
    mine = tree_map(lambda p: jnp.full_like(p, 2 * RANK), params)
    for found in (sync.average(mine), jax.jit(sync.average)(mine)):
        near(tree_map(lambda p: p.astype(jnp.complex64), found), tree_map(lambda p: jnp.full(p.shape, SIZE - 1, jnp.complex64), params), "means")
        expect([leaf.dtype for leaf in leaves(found)] == [leaf.dtype for leaf in leaves(params)], "element types")


@case
def checkpoints(group):
    sync = wrap(group)
    params = update(begin(), sync.average(jax.grad(loss)(begin(), batch(RANK, 0))))
    file = io.BytesIO()
    sync.save(file if RANK == 0 else None, params, step=3)
    file.seek(0)
    found = sync.load(file if RANK == 0 else None)
    expect(found.step == 3 and all(map(np.array_equal, leaves(found.params), leaves(params))), "what was saved")
    if SIZE > 1:
        try:
            sync.check(tree_map(lambda p: p + RANK, params))
        except libddp.MismatchError:
            pass
        else:
            raise AssertionError("no error, though parameters differ")


@case
def through_the_host(group):
    sync = wrap(group, through_host=True)
    step = jax.jit(lambda params, given: update(params, sync.average(jax.grad(loss)(params, given))))
    params = begin()
    for number in range(4):
        params = step(params, batch(RANK, number))
    near(params, wanted(4), "parameters")


@case
def times(group):
    """A figure: the fastest of some steps of 7 layers of 1024 x 1024."""
    params = [jnp.asarray(np.random.RandomState(layer).randn(1024, 1024) / 32, jnp.float32) for layer in range(7)]
    given = jnp.asarray(np.random.RandomState(RANK).randn(256, 1024), jnp.float32)

    def deep(params, given):
        for layer in params:
            given = jnp.tanh(given @ layer)
        return jnp.mean(given ** 2)

    said = []
    ways = [("without an average", None), ("the operation" if has_operation() else "a callback", {})]
    for name, options in ways + ([("a callback, through the host", {"through_host": True})] if ON_GPU else []):
        sync = None if options is None else ours.DataParallel(params, group, **options)
        average = (lambda grads: grads) if sync is None else sync.average
        step = jax.jit(lambda now, x: update(now, average(jax.grad(deep)(now, x))))
        now, best = params, float("inf")
        for turn in range(13):
            group.barrier()
            since = time.perf_counter()
            now = jax.block_until_ready(step(now, given))
            best = min(best, time.perf_counter() - since) if turn >= 3 else best
        said.append(f"{name} {best * 1000:.2f} ms")
    return ", ".join(said) + (" (ranks share a GPU: no measure of speed)" if SHARES else "")


@case
def an_error_on_one_rank(group):
    """The last case: it breaks the group. All ranks get the text, in a program and outside of one."""
    sync = wrap(group)
    program = jax.jit(sync.average)
    jax.block_until_ready(program(begin()))
    if RANK == SIZE - 1:
        group.abort("enough of it")
    for what, function in (("in a program", program), ("outside", sync.average)):
        try:
            jax.block_until_ready(function(begin()))
        except RuntimeError as error:
            expect("enough of it" in str(error), f"{what}: {error}")
            expect(what == "in a program" or isinstance(error, libddp.AbortedError), f"{what}: {type(error)}")
        else:
            raise AssertionError(f"no error {what}")
    try:
        group.check()
    except libddp.AbortedError:
        return
    raise AssertionError("the group is whole")


def main():
    failed = 0
    with libddp.Group(timeout_ms=30000, **({"device_index": DEVICE.local_hardware_id} if ON_GPU else {})) as group:
        print(f"JAX {jax.__version__}, {SIZE} ranks, {jax.local_device_count()} devices ({BACKEND})", flush=True)
        for function in CASES:
            if OPTIONS.names and function.__name__ not in OPTIONS.names:
                continue
            try:
                said = function(group)
                print(f"PASS {function.__name__}" if said is None else f"-    {function.__name__}: {said}", flush=True)
            except BaseException as error:
                failed += 1
                traceback.print_exc()
                print(f"FAIL {function.__name__}: {' '.join(str(error).split())[:300]}", flush=True)
                if SIZE > 1:
                    break  # the ranks are no longer at the same place
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
