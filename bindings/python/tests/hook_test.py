# SPDX-License-Identifier: Apache-2.0
"""Hooks in Python: built in, called on a library thread, and pulled on the program's own."""
import threading
import weakref
from array import array

import libddp
from support import Test, main, ranks


def model_of(group, prepare, **options):
    model = libddp.Model(group, first_bucket_bytes=64, bucket_bytes=64, **options)
    prepare(model)
    grads = [array("f", [0.0] * 3) for _ in range(3)]
    for index, grad in enumerate(grads):
        model.add_parameter(f"w{index}", array("f", [0.0] * 3), grad)
    model.commit()
    return model, grads


def one_pass(group, model, grads, pull=None):
    with model.backward():
        for index in (2, 1, 0):
            grads[index][:] = array("f", [group.rank + index] * 3)
            model.mark_ready(index)
        if pull is not None:
            pull(model)


class Hooks(Test):
    def test_a_hook_on_a_library_thread(self):
        """With the interpreter lock held in a call this would never end."""
        def run(group):
            seen = []

            def hook(bucket):
                seen.append((bucket.index, [p.index for p in bucket.parameters], threading.current_thread() is threading.main_thread()))
                bucket.all_reduce(op="sum")
                first = bucket.parameters[0].grad.buffer()
                first[0] += 100

            model, grads = model_of(group, lambda model: model.set_hook(hook), progress="thread")
            for _ in range(20):
                one_pass(group, model, grads)
            return [list(grad) for grad in grads], seen[:3], len(seen)

        for grads, seen, count in ranks(2, run):
            self.assertEqual(grads, [[101, 1, 1], [103, 3, 3], [105, 5, 5]])
            self.assertEqual((seen, count), ([(0, [2], False), (1, [1], False), (2, [0], False)], 60))

    def test_every_way_of_progress(self):
        for progress in ("auto", "caller", "thread"):
            def run(group):
                model, grads = model_of(group, lambda model: model.set_hook(lambda bucket: bucket.all_reduce()), progress=progress)
                one_pass(group, model, grads)
                return [grad[0] for grad in grads]

            self.assertEqual(ranks(2, run), [[0.5, 1.5, 2.5]] * 2)

    def test_what_a_hook_raises_comes_out_there_and_is_told_to_the_others(self):
        def run(group):
            def hook(bucket):
                if group.rank == 1 and bucket.index == 1:
                    raise ZeroDivisionError("in a hook")
                bucket.all_reduce()

            model, grads = model_of(group, lambda model: model.set_hook(hook))
            try:
                one_pass(group, model, grads)
            except (ZeroDivisionError, libddp.Error) as error:
                group.barrier()  # the group is whole
                return error

        first, second = ranks(2, run)
        self.assertIsInstance(second, ZeroDivisionError)
        self.assertIsInstance(second.__cause__, libddp.CallbackError)
        self.assertIsInstance(first, libddp.CallbackError)
        self.assertIn("ZeroDivisionError: in a hook", str(first))

    def test_16_bits_on_the_wire(self):
        for wire in ("f16", "bf16"):
            def run(group):
                model, grads = model_of(group, lambda model: None, wire=wire)
                one_pass(group, model, grads)
                return [grad[0] for grad in grads]

            self.assertEqual(ranks(2, run), [[0.5, 1.5, 2.5]] * 2)
        with self.assertRaisesRegex(libddp.InvalidArgumentError, "wire is 2"):
            libddp.Model(libddp.Group(), wire="f64")
        with self.assertRaisesRegex(TypeError, "PowerSGD"):
            libddp.Model(libddp.Group()).set_hook("bf16")

    def test_powersgd(self):
        def run(group):
            grad = memoryview(array("f", [0.0] * 64)).cast("B").cast("f", (8, 8))
            seen = []

            def hook(bucket):
                seen.append(bucket.parameters[0].used)
                bucket.reduce_as(libddp.PowerSGD(start_pass=0))

            found = []
            for chosen in (libddp.PowerSGD(rank=2, start_pass=0), hook):
                model = libddp.Model(group)
                model.set_hook(chosen)
                model.add_parameter("w", memoryview(array("f", [0.0] * 64)).cast("B").cast("f", (8, 8)), grad)
                model.commit()
                with model.backward():
                    for i in range(8):
                        for j in range(8):
                            grad[i, j] = (i + 1.0) * (j + 1.0) * group.rank  # of rank 1, so nothing is lost
                    model.mark_ready("w")
                found.append((round(grad[0, 0], 3), round(grad[7, 7], 3)))
            return found, seen

        self.assertEqual(ranks(2, run), [([(0.5, 32.0)] * 2, [True])] * 2)

    def test_pulling(self):
        def run(group):
            model, grads = model_of(group, lambda model: model.set_pulled_hook())
            seen = []

            def pull(model):
                for bucket in model.buckets():
                    gathered = array("f", [0.0] * 2 * len(bucket.contents))
                    bucket.all_gather(bucket.contents, gathered)
                    bucket.broadcast(bucket.contents, root=1)
                    seen.append((bucket.index, bucket.is_last, gathered[0], gathered[len(bucket.contents)]))

            one_pass(group, model, grads, pull)
            return [grad[0] for grad in grads], seen

        self.assertEqual(ranks(2, run), [([1, 2, 3], [(0, False, 2, 3), (1, False, 1, 2), (2, True, 0, 1)])] * 2)

    def test_leaving_the_loop_fails_the_pass(self):
        def run(group):
            model, grads = model_of(group, lambda model: model.set_pulled_hook())

            def pull(model):
                for bucket in model.buckets():
                    if group.rank == 0:
                        break
                    bucket.all_reduce()

            try:
                one_pass(group, model, grads, pull)
            except libddp.Error as error:
                return str(error)

        for text in ranks(2, run):
            self.assertIsNotNone(text)

    def test_a_hook_is_released(self):
        def hook(bucket):
            pass

        watched = weakref.ref(hook)
        model = libddp.Model(libddp.Group())
        model.set_hook(hook)
        del hook
        self.assertIsNotNone(watched())
        model.close()
        self.assertIsNone(watched())


if __name__ == "__main__":
    main()
