# SPDX-License-Identifier: Apache-2.0
"""libddp.jax with parameters on a GPU, where there is none: what the wrapper makes, on the fake GPU, and what programs become. That the operation
itself is right average_gpu_test.cpp shows, and tests/gpu/jax_gpu.py on real ones."""
import os
import tempfile
import threading
import unittest.mock
import warnings

from support import BUILD, Test, main, need, python, ranks

need("jax", "numpy")
os.environ.update(DDP_MODULE_PATH=os.path.join(BUILD, "tests/fake_cuda"), DDP_FAKE_GPU_STRICT="1")

import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402

import libddp  # noqa: E402
import libddp._jax_gpu as way  # noqa: E402
import libddp.jax  # noqa: E402
from libddp import _xla_average  # noqa: E402

HERE = threading.local()  # the group of a rank
PARAMS = {"a": np.arange(15, dtype=np.float32).reshape(3, 5), "b": [np.zeros(7, np.float32), np.zeros((0, 2), np.float32), np.float32(3)]}


class FakeMemory:
    """Memory of the fake GPU in the place of JAX's."""

    def __init__(self, like):
        array = np.asarray(like)
        self.view = HERE.group.alloc(array.shape) if array.size else None
        address = self.view.__libddp_tensor__[0] if array.size else 0
        self.__libddp_tensor__ = (address, int(libddp.DType.F32), way.CUDA, HERE.group.rank, array.shape)


class NoMemory(FakeMemory):
    """As FakeMemory on rank 0, and there is none on rank 1."""

    def __init__(self, like):
        if HERE.group.rank == 1:
            raise RuntimeError("RESOURCE_EXHAUSTED")
        super().__init__(like)


def each_rank(body, memory=FakeMemory, **options):
    def run(group):
        HERE.group = group
        body(group)

    with unittest.mock.patch.object(way, "is_on_gpu", lambda leaves: True), unittest.mock.patch.object(way, "Memory", memory):
        ranks(2, run, **options)


def equal(one, other):
    return all(map(np.array_equal, jax.tree_util.tree_leaves(one), jax.tree_util.tree_leaves(other)))


class OnTheGpu(Test):
    def setUp(self):
        if _xla_average.module() is None:
            self.skipTest("no module for XLA in this build")

    def test_a_program_has_the_operation_twice_and_in_order(self):
        def body(group):
            sync = libddp.jax.DataParallel(PARAMS, group)
            assert type(sync.model) is way.OnGpu

            def twice(grads):
                first = sync.average(grads)
                return first, sync.average(jax.tree_util.tree_map(lambda g: 2 * g, grads), after=first)

            text = jax.jit(twice).trace(PARAMS).lower(lowering_platforms=("cuda",)).as_text()
            assert text.count("@libddp_average") == 2 and "callback" not in text, text
            assert text.count("output_operand_alias") >= 2 * 4, text
            assert "has_side_effect = true" in text, text

        each_rank(body, backend="nccl")

    def test_values_go_through_host_memory(self):
        def body(group):
            state = {"count": np.int32(group.rank)}
            sync = libddp.jax.DataParallel(PARAMS, group, state=state)
            mine = jax.tree_util.tree_map(lambda p: p + group.rank, PARAMS)
            params = sync.broadcast(mine)
            assert equal(params, PARAMS)
            sync.check(params)
            try:
                sync.check(mine)
            except libddp.MismatchError:
                pass
            else:
                raise AssertionError("no error")
            sync.model.metadata["note"] = "kept"
            path = os.path.join(folder, "now.st")
            sync.save(path, params, state, step=7)
            other = libddp.jax.DataParallel(mine, group, state=state)
            found = other.load(path)
            assert equal(found.params, params) and found.step == 7 and other.model.metadata["note"] == "kept"

        with tempfile.TemporaryDirectory() as folder:
            each_rank(body, backend="nccl")

    def test_the_model_has_no_gradients_between_averages(self):
        def body(group):
            sync = libddp.jax.DataParallel(PARAMS, group)
            model = sync.model
            assert model.stats()["parameters"] == 4 and "bucket" in model.plan()
            for wrong in (lambda: model.grad(0), model.zero_grad, model.grad_norm, lambda: model.scale_grad(0.5), model.begin_backward,
                          lambda: model.mark_ready(0), lambda: libddp.SGD(model), lambda: libddp.State(model).save(None), model.check_replicas):
                try:
                    wrong()
                except libddp.InvalidStateError as error:
                    assert "libddp.jax.DataParallel" in str(error), error
                else:
                    raise AssertionError("no error")

        each_rank(body, backend="nccl")

    def test_errors_outside_of_programs(self):
        def body(group):
            sync = libddp.jax.DataParallel(PARAMS, group)
            wrong = jax.tree_util.tree_map(lambda p: p.astype(np.int32), PARAMS)
            for grads, cause, text in ((wrong, TypeError, "the parameter float32"), (PARAMS, RuntimeError, "this program runs on the CPU")):
                try:
                    sync.average(grads)
                except cause as error:
                    assert text in str(error), error
                else:
                    raise AssertionError("no error")
            group.barrier()
            if group.rank == 0:
                group.abort("enough of it")
            try:
                sync.average(PARAMS)
            except libddp.AbortedError as error:
                assert "enough of it" in str(error), error
            except RuntimeError as error:
                assert "this program runs on the CPU" in str(error), error  # the abort has not come yet

        each_rank(body, backend="nccl")


class ThroughTheHost(Test):
    """The callback, on all ranks alike."""

    def goes(self, memory, warned, wrapper=None, group=None):
        def body(group):
            sync = libddp.jax.DataParallel(PARAMS, group, **(wrapper or {}))
            assert type(sync.model) is libddp.Model
            grads = jax.tree_util.tree_map(lambda p: p + 2 * group.rank, PARAMS)
            wanted = jax.tree_util.tree_map(lambda p: p + 1, PARAMS)
            assert equal(sync.average(grads), wanted)

        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            each_rank(body, memory, **(group or {}))
        texts = [str(warning.message) for warning in caught if "through host memory" in str(warning.message)]
        self.assertEqual(len(texts), warned and 2, texts)
        return texts

    def test_one_rank_cannot(self):
        texts = self.goes(NoMemory, True, group={"backend": "nccl"})
        self.assertEqual(sum("RESOURCE_EXHAUSTED" in text for text in texts), 1, texts)
        self.assertEqual(sum("another rank must" in text for text in texts), 1, texts)

    def test_it_is_asked_for(self):
        self.goes(None, False, wrapper={"through_host": True})

    def test_the_group_can_recover(self):
        self.ends_well(python("""
import numpy as np, libddp, libddp.jax, libddp._jax_gpu as way
way.is_on_gpu = lambda leaves: True
with libddp.Group(recoverable=True) as group:
    sync = libddp.jax.DataParallel({"a": np.zeros(3, np.float32)}, group)
    assert type(sync.model) is libddp.Model
    assert sync.average({"a": np.full(3, group.rank, np.float32)})["a"].tolist() == [0.5] * 3
""", size=2, limit=120))

    def test_an_option_that_gpus_have_not(self):
        texts = self.goes(FakeMemory, True, group={"backend": "nccl", "virtual_ranks": 2})
        self.assertIn("virtual_ranks", texts[0])

    def test_no_module_of_xla(self):
        with unittest.mock.patch.object(_xla_average, "module", lambda: None):
            texts = self.goes(FakeMemory, True)
        self.assertIn("without XLA's headers", texts[0])


if __name__ == "__main__":
    main()
