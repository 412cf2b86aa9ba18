# SPDX-License-Identifier: Apache-2.0
"""The JAX adapter: gradients in, their mean out, in the same structure."""
import importlib.util
import os

from support import SOURCE, Test, main, need, python

need("jax", "numpy")


IN_JIT = """
import sys, jax, jax.numpy as jnp, numpy as np, libddp, libddp.jax, libddp._xla_average as way
if sys.argv[1] == "callback":
    way._MODULE = "/none"
elif way.module() is None:
    print("as numpy has it: no module for it in this build")
    sys.exit(0)
def tree(make):
    return {"a": make(0), "b": [make(1), make(2)]}
def given(rank, step):  # what each rank contributes, known to all
    return tree(lambda i: np.random.RandomState(100 * rank + 10 * step + i).randn(15)[:[15, 7, 1][i]].reshape([(3, 5), (7,), ()][i]).astype(np.float32))
def equal(found, wanted):
    return all(np.array_equal(np.asarray(f), w) for f, w in zip(jax.tree_util.tree_leaves(found), jax.tree_util.tree_leaves(wanted)))
def mean(step):
    return jax.tree_util.tree_map(lambda x, y: (x + y) / np.float32(2), given(0, step), given(1, step))
group = libddp.Group(timeout_ms=20000)
sync = libddp.jax.DataParallel(given(0, 0), group)
average = jax.jit(sync.average)
for step in range(3):
    mine = given(group.rank, step)
    assert equal(average(mine), mean(step)), step
    assert equal(mine, given(group.rank, step))

@jax.jit
def twice(grads):
    first = sync.average(grads)
    return first, sync.average(jax.tree_util.tree_map(lambda g: 4 * g, grads), after=first)
first, second = twice(given(group.rank, 5))
assert equal(first, mean(5)) and equal(second, jax.tree_util.tree_map(lambda g: 4 * g, mean(5)))

@jax.jit
def loop(grads):  # four averages of one program, in the order of the loop
    return jax.lax.scan(lambda carried, _: (sync.average(jax.tree_util.tree_map(lambda g: g + group.rank, carried)), ()), grads, length=4)[0]
wanted = mean(6)
for turn in range(4):
    wanted = given(0, 6) if turn == 0 else wanted
    wanted = jax.tree_util.tree_map(lambda x, y: (x + (y + np.float32(1))) / np.float32(2), wanted, given(1, 6) if turn == 0 else wanted)
assert equal(loop(given(group.rank, 6)), wanted)
assert sync.model.stats()["passes"] == 9

for wrong, cause in ((jax.tree_util.tree_map(lambda g: g.astype(np.int32), given(0, 0)), TypeError), ({"a": np.zeros(3)}, ValueError)):
    try:
        average(wrong)
    except cause:
        continue
    raise SystemExit(f"no {cause}")
if group.rank == 0:
    group.abort("enough of it")
try:
    jax.block_until_ready(average(given(group.rank, 0)))
except Exception as error:
    assert "enough of it" in str(error), error
else:
    raise SystemExit("no error")
try:
    group.check()
except libddp.AbortedError:
    pass
print("as numpy has it")
"""


class Pytrees(Test):
    def test_values_gradients_and_structure(self):
        self.ends_well(python("""
import jax, jax.numpy as jnp, libddp, libddp.jax
with libddp.Group() as group:
    rank = group.rank
    params = {"a": jnp.full((2, 3), float(rank)), "b": [jnp.zeros(2, jnp.bfloat16), jnp.float32(rank)]}
    sync = libddp.jax.DataParallel(params, group)
    assert sync.model.names == ("['a']", "['b'][0]", "['b'][1]"), sync.model.names
    params = sync.broadcast(params)
    assert params["a"].tolist() == [[0.0] * 3] * 2 and params["b"][0].dtype == jnp.bfloat16
    sync.check(params)
    grads = jax.tree_util.tree_map(lambda leaf: jnp.full_like(leaf, 2 * rank), params)
    first = sync.average(grads)
    second = sync.average(jax.tree_util.tree_map(lambda leaf: leaf + 1, grads))
    assert first["a"].tolist() == [[1.0] * 3] * 2 and first["b"][0].tolist() == [1, 1] and first["b"][1] == 1, first
    assert second["a"][0, 0] == 2 and grads["a"][0, 0] == 2 * rank
    assert isinstance(first["a"], jax.Array)
    try:
        sync.average({"a": params["a"]})
    except ValueError as error:
        assert "structure" in str(error)
    else:
        raise SystemExit("no error")
""", size=2, limit=120))

    def test_checkpoints_hold_what_is_saved_and_give_it_back(self):
        self.ends_well(python("""
import jax, jax.numpy as jnp, libddp, libddp.jax, numpy as np
def start(rank):
    params = {"a": jnp.full((2, 3), float(rank)), "b": [jnp.zeros(2, jnp.bfloat16)]}
    state = {"count": jnp.int32(rank), "mu": jax.tree_util.tree_map(jnp.zeros_like, params), "key": jnp.zeros(2, jnp.uint32),
             "flags": np.array([True, False]), "scale": 0.5}
    return params, state
def equal(x, y):
    return all(jax.tree_util.tree_leaves(jax.tree_util.tree_map(lambda a, b: a.dtype == b.dtype and bool((a == b).all()), x, y)))
with libddp.Group() as group:
    params, state = start(group.rank)
    sync = libddp.jax.DataParallel(params, group, state=state)
    params = sync.broadcast(params)
    assert equal(params, start(0)[0])
    for step in range(3):
        grads = sync.average(jax.tree_util.tree_map(lambda p: jnp.full_like(p, group.rank), params))
        params = jax.tree_util.tree_map(lambda p, g: p - g, params, grads)
        state = {"count": jnp.int32(step + 1), "mu": grads, "key": jnp.array([7, 1 << 31], jnp.uint32), "flags": jnp.array([False, True]),
                 "scale": 0.25}
    sync.save("now.st", params, state, epoch=2, step=3)
    changed = jax.tree_util.tree_map(jnp.zeros_like, params)
    sync.broadcast(changed)
    for other in (sync, libddp.jax.DataParallel(changed, group, state=start(5)[1])):
        found = other.load("now.st")
        assert (found.epoch, found.step, found.missing, found.unexpected) == (2, 3, [], []), found
        assert equal(found.params, params) and params["a"][0, 0] == -1.5, found
        assert equal(found.state, jax.tree_util.tree_map(jnp.asarray, state)), found.state
        other.save("again.st", found.params, found.state)
    for wrong in (lambda: libddp.State(sync.model).save("old.st"), lambda: libddp.State(sync.model).load("now.st"), sync.model.check_replicas,
                  sync.model.hash, sync.model.average_parameters, lambda: libddp.Ema(sync.model, 0.5), lambda: libddp.SGD(sync.model)):
        try:
            wrong()
        except libddp.InvalidStateError as error:
            assert "libddp.jax.DataParallel" in str(error), error
        else:
            raise SystemExit("no error")
    sync.check(params)
    alone = libddp.jax.DataParallel(params, group)
    found = alone.load("now.st", partial=True)
    assert equal(found.params, params) and found.state is None and len(found.unexpected) == 6, found
""", size=2, limit=200))

    def test_typed_random_keys_are_state(self):
        self.ends_well(python("""
import jax, jax.numpy as jnp, libddp, libddp.jax
with libddp.Group() as group:
    def state(seed):
        return {"rng": jax.random.key(seed), "many": jax.random.split(jax.random.key(seed, impl="rbg"), 3), "old": jax.random.PRNGKey(seed)}
    params = {"w": jnp.ones(3)}
    sync = libddp.jax.DataParallel(params, group, state=state(group.rank))
    sync.save("keys.st", params, state(5))
    found = libddp.jax.DataParallel(params, group, state=state(1)).load("keys.st").state
    for name, wanted in state(5).items():
        assert found[name].dtype == wanted.dtype and found[name].shape == wanted.shape, name
    assert jax.random.bits(found["rng"]) == jax.random.bits(state(5)["rng"])
    assert (jax.random.key_data(found["many"]) == jax.random.key_data(state(5)["many"])).all()
    for wrong, where in (({"w": jax.random.key(0)}, "state"), ({"a": 1.0}, "jax.numpy.asarray(1.0)"), ({"a": jnp.ones(2), "b": 3}, "['b']")):
        try:
            libddp.jax.DataParallel(wrong, group)
        except TypeError as error:
            assert where in str(error), error
        else:
            raise SystemExit("no error")
    group.barrier()  # a rank that has left would be the error of the other
""", size=2, limit=120))

    def test_other_shapes_are_refused(self):
        """Outside of jit as inside: NumPy would have stretched them."""
        self.ends_well(python("""
import jax, jax.numpy as jnp, numpy as np, libddp, libddp.jax
with libddp.Group() as group:
    sync = libddp.jax.DataParallel({"w": jnp.ones(3)}, group, state={"count": jnp.zeros(2)})
    for call in (sync.average, jax.jit(sync.average), sync.check, sync.broadcast, lambda params: sync.save("no.st", params)):
        for wrong in (jnp.float32(1), jnp.ones((1, 3)), jnp.ones(1), np.ones(3), 1.0):
            if call in (sync.average, sync.check) or hasattr(wrong, "dtype") and wrong.dtype == jnp.float32:
                try:
                    call({"w": wrong})
                except TypeError as error:
                    assert "['w']" in str(error), error
                else:
                    raise SystemExit(f"no error: {call} {wrong!r}")
    try:
        sync.save("no.st", {"w": jnp.ones(3)}, {"count": jnp.float32(1)})
    except TypeError as error:
        assert "state" in str(error)
    else:
        raise SystemExit("no error")
    assert sync.average({"w": jnp.full(3, 1.0 + group.rank)})["w"].tolist() == [(1 + group.size) / 2] * 3
""", size=2, limit=120))

    def test_averages_inside_jit(self):
        for way in ("operation", "callback"):
            with self.subTest(way=way):
                out = self.ends_well(python(IN_JIT, way, size=2, limit=200))
                self.assertEqual(out.count("as numpy has it"), 2, out)

    def test_the_processes_of_jax_distributed(self):
        program = """
import os, sys, socket, subprocess
if len(sys.argv) == 1:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
    ranks = [subprocess.Popen([sys.executable, "-B", __file__, str(rank), str(port)]) for rank in range(2)]
    sys.exit(max(abs(rank.wait()) for rank in ranks))
import libddp
alone = libddp.Group()
import jax, jax.numpy as jnp, libddp.jax
rank = int(sys.argv[1])
jax.distributed.initialize(f"127.0.0.1:{sys.argv[2]}", 2, rank)
params = {"w": jnp.full(3, float(rank))}
for turn in range(2):
    sync = libddp.jax.DataParallel(params)
    assert (sync.group.rank, sync.group.size) == (rank, 2)
    assert sync.broadcast(params)["w"].tolist() == [0] * 3
    assert sync.average(params)["w"].tolist() == [0.5] * 3
assert libddp.Group("env://#other").reduce_metrics([1]) == [2]
try:
    libddp.jax.DataParallel(params, alone)
except libddp.InvalidArgumentError as error:
    assert f"jax.distributed says rank {rank} of 2" in str(error) and "would train alone" in str(error), error
else:
    raise SystemExit("no error")
os.environ.update(RANK="0", WORLD_SIZE="3", MASTER_ADDR="127.0.0.1", MASTER_PORT="1")
try:
    libddp.Group()
except libddp.InvalidArgumentError as error:
    assert "WORLD_SIZE=3" in str(error), error
else:
    raise SystemExit("no error")
"""
        self.ends_well(python(program, limit=200))

    def test_a_jax_array_is_not_lent(self):
        self.ends_well(python("""
import jax.numpy as jnp, libddp
try:
    libddp.Group().all_reduce(jnp.zeros(2))
except libddp.TensorError as error:
    assert "immutable" in str(error)
else:
    raise SystemExit("no error")
"""))

    def test_the_digits(self):
        out = self.ends_well(python(os.path.join(SOURCE, "examples/python/digits_jax.py"), size=2, limit=200))
        self.assertRegex(out, r"test accuracy 9[6-9]\.")

    def test_the_digits_with_flax_and_optax(self):
        for module in ("flax", "optax"):
            if importlib.util.find_spec(module) is None:
                self.skipTest(f"{module} is not installed")
        out = self.ends_well(python(os.path.join(SOURCE, "examples/python/digits_flax.py"), size=2, limit=200))
        self.assertRegex(out, r"test accuracy 9[6-9]\.")


if __name__ == "__main__":
    main()
