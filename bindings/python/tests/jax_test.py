"""The JAX adapter: gradients in, their mean out, in the same structure."""
import os

from support import SOURCE, Test, main, need, python

need("jax", "numpy")


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


if __name__ == "__main__":
    main()
