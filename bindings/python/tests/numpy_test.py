# SPDX-License-Identifier: Apache-2.0
"""The NumPy adapter: arrays of every dtype in and out without a copy, and the digits example learns."""
import gc
import os

from support import BUILD, SOURCE, Test, main, need, python, ranks

need("numpy")
import libddp  # noqa: E402
import libddp.numpy  # noqa: E402
import numpy as np  # noqa: E402
from libddp._tensor import lend  # noqa: E402


class Arrays(Test):
    def test_every_dtype_goes_round(self):
        group = libddp.Group()
        for name in ("float32", "float64", "float16", "int32", "int64", "uint8", "complex64", "complex128"):
            array = libddp.numpy.alloc(group, (3, 2), name)
            self.assertEqual((array.dtype.name, array.shape, array.any()), (name, (3, 2), False))
            self.assertEqual(lend(array).tensor[0], array.ctypes.data)

    def test_what_cannot_be_read_is_refused(self):
        base = np.zeros((4, 4), np.float32)
        locked = np.zeros(3)
        locked.flags.writeable = False
        for bad, cause in ((base.T[1:], "not dense"), (base[:, ::2], "not dense"), (np.asfortranarray(base), "Fortran"),
                           (base.astype(">f4"), "byte order"), (locked, "read-only"), (np.zeros(2, "i2"), "element type"),
                           (np.zeros(2, bool), "element type"), (np.array(["a"]), "element type"),
                           (np.zeros(2, object), "element type object"), (np.frombuffer(bytearray(9), "f4", 2, 1), "multiple of 4")):
            with self.assertRaisesRegex(libddp.TensorError, cause):
                lend(bad)

    def test_a_lent_array_is_not_copied_and_not_resized(self):
        value = np.zeros(4, np.float32)
        model = libddp.Model(libddp.Group())
        grads = libddp.numpy.lend(model, {"w": value})
        grads["w"][:] = 1
        libddp.SGD(model, rate=2.0).step()
        self.assertEqual(value.tolist(), [-2] * 4)
        with self.assertRaises(ValueError):
            value.resize(9)

    def test_memory_cannot_be_moved(self):
        base = np.zeros(8, np.float32)
        model = libddp.Model(libddp.Group())
        grads = libddp.numpy.lend(model, {"whole": np.zeros(4), "part": base[2:4]})
        value = model._lent[("value", 0)].value
        for array in (value, base):
            for size in (2, 9, 1 << 20):
                with self.assertRaisesRegex(ValueError, "cannot resize"):
                    array.resize(size, refcheck=False)
        del grads
        model.close()
        base.resize(9, refcheck=False)  # and then it is the program's own again

    def test_zero_elements_and_no_axes(self):
        model = libddp.Model(libddp.Group())
        grads = libddp.numpy.lend(model, {"nothing": np.zeros((0, 3)), "one": np.zeros(())})
        self.assertEqual([grads[name].shape for name in ("nothing", "one")], [(0, 3), ()])
        with model.backward():
            grads["one"][()] = 2
            model.mark_ready("one"), model.mark_ready("nothing")
        self.assertEqual(grads["one"], 2)

    def test_a_gradient_is_assigned(self):
        """grads["w"] = value writes into the lent memory, as grads["w"][:] = value does; a dictionary would have kept the name alone."""
        model = libddp.Model(libddp.Group())
        value = np.zeros(3, np.float32)
        grads = libddp.numpy.lend(model, {"w": value, "b": np.zeros((), np.float32)})
        mine, sgd = grads["w"], libddp.SGD(model, rate=1.0)
        with model.backward():
            grads["w"] = np.full(3, 1.0)
            grads["w"] += 0.5
            grads.update(b=2.0)
            model.mark_ready("w"), model.mark_ready("b")
        sgd.step()
        self.assertIs(grads["w"], mine)
        self.assertEqual((value.tolist(), float(grads["b"]), list(grads)), ([-1.5] * 3, 2.0, ["w", "b"]))
        for name, wrong in (("w", np.zeros(4)), ("w", np.zeros((1, 3))), ("w", np.zeros(3, complex)), ("other", np.zeros(3))):
            with self.assertRaisesRegex(libddp.TensorError, "must be alike|no parameter 'other'"):
                grads[name] = wrong
        with self.assertRaises(libddp.TensorError):
            del grads["w"]

    def test_a_scalar_is_no_parameter(self):
        model = libddp.Model(libddp.Group())
        for scalar in (np.float32(3), np.zeros(3)[1], np.float64(2)):
            with self.assertRaisesRegex(libddp.TensorError, r"parameter 'w' is a NumPy scalar \(float(32|64)\).*numpy.array"):
                model.add_parameter("w", scalar)
        with self.assertRaisesRegex(libddp.TensorError, "scalar"):
            libddp.Group().all_reduce(np.float32(3))

    def test_a_view_lives_as_long_as_any_slice_of_it(self):
        model = libddp.Model(libddp.Group())
        part = libddp.numpy.lend(model, {"w": np.zeros(4, np.float32)})["w"][1:3]
        del model
        gc.collect()
        part += 1
        self.assertEqual(np.from_dlpack(part).tolist(), [1, 1])

    def test_dlpack(self):
        view = libddp.Group().alloc((2, 2))
        np.asarray(view)[1, 1] = 5
        self.assertEqual(np.from_dlpack(view).tolist(), [[0, 0], [0, 5]])

    def test_collectives(self):
        self.assertEqual([found.tolist() for found in ranks(2, lambda group: group.all_reduce(np.full(2, group.rank + 1.0)))],
                         [[1.5, 1.5]] * 2)


class Readme(Test):
    def test_its_program_finds_the_weights(self):
        with open(os.path.join(SOURCE, "bindings/python/README.md"), encoding="utf-8") as file:
            program = file.read().split("```python\n", 1)[1].split("```", 1)[0]
        out = self.ends_well(python(program, size=2))
        lines = sorted(out.splitlines())
        self.assertEqual([line.split()[0] for line in lines], ["0", "1"])
        for line in lines:
            w = [float(word) for word in line[line.index("[") + 1: line.index("]")].split()]
            self.assertTrue(all(abs(found - wanted) < 0.1 for found, wanted in zip(w, (1, -2, 3))), line)


class Digits(Test):
    def test_it_learns_as_the_c_example_does(self):
        out = self.ends_well(python(os.path.join(SOURCE, "examples/python/digits.py"), "--checkpoint", "d.st", size=2, limit=200))
        self.assertRegex(out, r"epoch 20 .*test  9[78]\.")
        self.assertIn("all ranks hold", out)

    def test_the_program_of_one_to_four_learns_as_before(self):
        out = self.ends_well(python(os.path.join(SOURCE, ".github/site/one_to_four.py"), os.path.join(BUILD, "bin/ddprun"), limit=200))
        self.assertRegex(out, r"4 process\(es\): 300 steps")


if __name__ == "__main__":
    main()
