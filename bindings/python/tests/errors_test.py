# SPDX-License-Identifier: Apache-2.0
"""A failed call is an exception with its status and the library's sentence, on the thread that made it."""
import io
import threading
from array import array

import libddp
from libddp import Status, low
from support import Test, main, python, ranks


def one_parameter(group, **options):
    model = libddp.Model(group, **options)
    model.add_parameter("w", array("f", [0, 0]))
    model.commit()
    return model


class Errors(Test):
    def test_classes_and_statuses(self):
        with self.assertRaises(libddp.InvalidArgumentError) as caught:
            libddp.Group("nonsense://")
        self.assertEqual(caught.exception.status, Status.INVALID_ARGUMENT)
        self.assertIn("nonsense", str(caught.exception))
        model = one_parameter(libddp.Group())
        with self.assertRaises(libddp.InvalidStateError):
            model.commit()
        with self.assertRaises(libddp.FileError) as caught:
            libddp.State(model).load("/there/is/no/such.file")
        self.assertEqual(caught.exception.status, Status.IO)
        self.assertTrue(issubclass(libddp.PeerFailedError, libddp.BrokenGroupError))

    def test_every_status_has_a_class_and_a_name(self):
        for status in Status:
            name = low.ddp_status_name(int(status))
            self.assertTrue(name.endswith(status.name), name)

    def test_unknown_options_and_choices(self):
        group = libddp.Group()
        with self.assertRaisesRegex(TypeError, "unknown option 'bucket_size'.*bucket_bytes"):
            libddp.Model(group, bucket_size=1)
        with self.assertRaisesRegex(ValueError, "'mean' is none of average, sum"):
            libddp.Model(group, reduce="mean")

    def test_closed_objects(self):
        group = libddp.Group()
        model = one_parameter(group)
        group.close()
        group.close()
        self.assertTrue(group.closed)
        with self.assertRaisesRegex(libddp.InvalidStateError, "the group is closed"):
            group.barrier()
        model.close()
        with self.assertRaisesRegex(libddp.InvalidStateError, "the model is closed"):
            model.zero_grad()

    def test_texts_are_the_threads_own(self):
        model = one_parameter(libddp.Group())
        wrong = []

        def ask(key):
            for _ in range(2000):
                try:
                    low.ddp_model_get_grad(model._raw, key)
                except libddp.Error as error:
                    if str(key) not in str(error):
                        wrong.append(str(error))

        threads = [threading.Thread(target=ask, args=(key,)) for key in (101, 202, 303)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(wrong, [])

    def test_a_rank_that_disagrees(self):
        def run(group):
            with self.assertRaises(libddp.MismatchError) as caught:
                model = libddp.Model(group)
                model.add_parameter(f"w{group.rank}", array("f", [0]))
                model.commit()
            return str(caught.exception)

        texts = ranks(2, run)
        self.assertEqual(texts[0], texts[1])
        self.assertIn("w1", texts[0])

    def test_ranks_in_different_calls(self):
        def run(group):
            with self.assertRaises(libddp.DifferentCallsError) as caught:
                group.barrier() if group.rank else group.reduce_metrics([1.0])
            self.assertIsInstance(caught.exception, libddp.BrokenGroupError)
            with self.assertRaises(libddp.DifferentCallsError):
                group.check()
            details = caught.exception.details
            self.assertEqual((details.ranks, details.rank_count, details.parameters), ((0, 1), 2, ()))
            self.assertEqual((details.call, details.other_call), ("ddp_group_reduce_metrics", "ddp_group_barrier"))
            self.assertEqual((details.bytes_expected, details.bytes_got), (-1, -1))
            return caught.exception.status

        self.assertEqual(ranks(2, run), [Status.DIFFERENT_CALLS] * 2)

    def test_a_gradient_that_comes_later(self):
        def run(group):
            model = libddp.Model(group)
            model.add_parameter_without_grad("later", array("f", [0, 0]))
            model.commit()
            for turn in range(3):
                grad = array("f", [turn, 2 * group.rank])
                with self.assertRaises(libddp.InvalidStateError) as caught, model.backward():
                    model.mark_ready("later")
                self.assertEqual((caught.exception.details.parameters, caught.exception.details.ranks), ((0,), ()))
                with model.backward():
                    model.set_grad("later", grad)
                    model.mark_ready("later")
                self.assertEqual(list(grad), [turn, 1])
                model.set_grad("later", None)
            return True

        self.assertEqual(ranks(2, run), [True] * 2)

    def test_listeners_are_told_of_the_group(self):
        first, second = [], []
        with libddp.LogListener(first.append), libddp.LogListener(second.append, "debug"), libddp.Group() as group:
            libddp.Model(group).commit()
            number = group.number
        count = len(second)
        libddp.Model(libddp.Group()).commit()
        self.assertEqual([(each.level, each.group, each.rank, each.status) for each in first], [(libddp.LogLevel.WARNING, number, 0, 0)])
        self.assertIn("no parameters", first[0].text)
        self.assertGreater(count, 1)
        self.assertEqual(len(second), count)

    def test_a_failing_update_comes_out_as_itself(self):
        model = one_parameter(libddp.Group())

        def update(*_):
            raise KeyError("mine")

        with self.assertRaises(KeyError) as caught:
            libddp.CustomOptimizer(model, update).step()
        self.assertIsInstance(caught.exception.__cause__, libddp.CallbackError)

    def test_a_failing_writer_comes_out_as_itself(self):
        class Full(io.RawIOBase):
            def write(self, data):
                raise OSError(28, "no space")

        with self.assertRaises(OSError) as caught:
            libddp.State(one_parameter(libddp.Group())).save(Full())
        self.assertEqual(caught.exception.errno, 28)

    def test_a_save_that_one_rank_alone_calls(self):
        """It says for which ranks it waits; and with another call on these ranks the error says that all make this one."""
        done = python("""
import array, libddp, libddp._together as together, sys, time
together.WARN_AFTER = 0.3
group = libddp.Group()
model = libddp.Model(group)
model.add_parameter("w", array.array("f", [0, 0]))
model.commit()
state = libddp.State(model)
if group.rank == 1:
    group.barrier(), time.sleep(1.5)
else:
    group.barrier()
state.save("here.safetensors")
try:
    state.load("here.safetensors") if group.rank == 0 else group.barrier()
except libddp.DifferentCallsError as error:
    assert ("State.load() is collective: all ranks call it" in str(error)) == (group.rank == 0), error
    assert error.details.call and error.details.other_call
else:
    sys.exit("no error")
""", size=2)
        self.ends_well(done)
        self.assertRegex(done.stderr, r"rank 0 has waited 0\.3 s in State\.save\(\) for rank 1( \(last in ddp_\w+\))?\. State\.save\(\) is collective")

    def test_an_exception_in_a_pass_reaches_the_other_ranks(self):
        def run(group):
            model = one_parameter(group)
            try:
                with model.backward():
                    if group.rank == 1:
                        raise ZeroDivisionError("loss")
                    model.mark_ready("w")
            except (ZeroDivisionError, libddp.Error) as error:
                return error

        first, second = ranks(2, run)
        self.assertIsInstance(second, ZeroDivisionError)
        self.assertIsInstance(first, libddp.InvalidStateError)
        self.assertIn("ZeroDivisionError: loss", str(first))

    def test_a_dead_peer_is_named(self):
        done = python("""
import libddp, os
group = libddp.Group()
group.barrier()
if group.rank == 1:
    os._exit(0)
try:
    group.barrier()
except libddp.BrokenGroupError as error:
    print(type(error).__name__, error.status.name, error)
try:
    group.check()
except libddp.BrokenGroupError as error:
    print("again", error)
""", size=2)
        self.ends_well(done)
        self.assertRegex(done.stdout, "(PeerFailedError PEER_FAILED|AbortedError ABORTED).*rank 1")
        self.assertRegex(done.stdout, "again .*rank 1")

    def test_an_exception_that_ends_a_rank_reaches_the_others(self):
        for kind, program in {"a with statement": """
try:
    with libddp.Group() as group:
        group.barrier()
        if group.rank == 1:
            raise ZeroDivisionError("the reader failed")
        wait(group)
except ZeroDivisionError:
    pass
""", "the program's end": """
def train():
    group = libddp.Group()
    group.barrier()
    if group.rank == 1:
        raise ZeroDivisionError("the reader failed")
    wait(group)
train()
"""}.items():
            done = python("""
import libddp, os
def wait(group):
    try:
        group.barrier()
    except libddp.BrokenGroupError as error:
        print("told:", error, flush=True)
""" + program, size=2)
            self.assertRegex(done.stdout, "told: .*rank 1.*ZeroDivisionError: the reader failed", kind + done.stderr)

    def test_a_rank_that_ends_well_only_leaves(self):
        out = self.ends_well(python("""
import libddp, os, sys
with libddp.Group() as group:
    try:
        raise ValueError("caught")
    except ValueError:
        pass
    if group.rank == 1:
        sys.exit(0)
    try:
        group.barrier()
    except libddp.BrokenGroupError as error:
        print("told:", error, flush=True)
""", size=2))
        self.assertRegex(out, "told: .*rank 1.*left")

    def test_the_log(self):
        lines = []
        libddp.set_log("debug", lambda level, text: lines.append((level, text)))
        try:
            ranks(2, lambda group: group.barrier())
        finally:
            libddp.set_log()
        self.assertTrue(all(isinstance(level, libddp.LogLevel) and isinstance(text, str) for level, text in lines))

    def test_an_own_store(self):
        kept, arrived = {}, threading.Condition()

        def put(key, value):
            with arrived:
                kept[key] = value
                arrived.notify_all()

        def get(key, seconds):
            with arrived:
                return kept.get(key) if arrived.wait_for(lambda: key in kept, seconds) else None

        store, sums = libddp.Store(put, get), [None, None]

        def run(rank):
            with libddp.Group("store://", rank=rank, world_size=2, store=store) as group:
                sums[rank] = group.reduce_metrics([rank + 1.0])

        threads = [threading.Thread(target=run, args=(rank,), daemon=True) for rank in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        self.assertEqual(sums, [[3.0], [3.0]])
        self.assertTrue(kept)

    def test_a_failing_store_comes_out_as_itself(self):
        def put(key, value):
            raise PermissionError("store")

        with self.assertRaises(PermissionError):
            libddp.Group("store://", rank=0, world_size=2, store=libddp.Store(put, lambda key, seconds: None), rendezvous_timeout_ms=2000)


if __name__ == "__main__":
    main()
