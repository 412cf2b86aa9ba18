# SPDX-License-Identifier: Apache-2.0
"""What is lent stays alive as long as libddp may touch it, and no longer; what libddp lends keeps its owner."""
import gc
import threading
import weakref
from array import array

import libddp
from libddp import low
from support import Test, main, python


class Lender:
    """Memory that can be watched."""

    def __init__(self, count=4):
        self.values = array("f", [0] * count)
        self.__array_interface__ = {"version": 3, "typestr": "<f4", "shape": (count,), "data": (self.values.buffer_info()[0], False)}


def model_of(*lent):
    model = libddp.Model(libddp.Group())
    for index, (value, grad) in enumerate(lent):
        model.add_parameter(f"p{index}", value, grad)
    model.commit()
    return model


class Lifetime(Test):
    def test_lent_tensors_live_until_the_model_is_closed(self):
        value, grad = Lender(), Lender()
        watched = weakref.ref(value), weakref.ref(grad)
        model = model_of((value, grad))
        del value, grad
        gc.collect()
        self.assertTrue(all(ref() for ref in watched))
        watched[1]().values[:] = array("f", [1, 2, 3, 4])
        with model.backward():
            model.mark_ready("p0")
        libddp.SGD(model, rate=1.0).step()
        self.assertEqual(list(watched[0]().values), [-1, -2, -3, -4])
        model.close()
        self.assertFalse(any(ref() for ref in watched))

    def test_lent_tensors_go_with_a_forgotten_model(self):
        value = Lender()
        watched = weakref.ref(value)
        model = model_of((value, None))
        del value, model
        gc.collect()
        self.assertIsNone(watched())

    def test_a_new_gradient_replaces_the_former(self):
        first, second = Lender(), Lender()
        watched = weakref.ref(first), weakref.ref(second)
        model = model_of((Lender(), first))
        model.set_grad("p0", second)
        del first, second
        gc.collect()
        self.assertIsNone(watched[0]())
        self.assertIsNotNone(watched[1]())

    def test_a_view_keeps_the_model(self):
        model = model_of((Lender(), None))
        view = model.grad("p0")
        del model
        gc.collect()
        memory = view.buffer()
        del view
        gc.collect()
        memory[2] = 5.0
        self.assertEqual(list(memory), [0, 0, 5, 0])

    def test_a_model_in_use_is_not_closed(self):
        model = model_of((Lender(), None))
        memory = model.grad("p0").buffer()
        with self.assertRaisesRegex(libddp.InvalidStateError, "still in use"):
            model.close()
        del memory
        gc.collect()
        model.close()

    def test_memory_of_a_group(self):
        group = libddp.Group()
        view = group.alloc((2, 3), "f64")
        self.assertEqual((view.shape, view.dtype, view.nbytes), ((2, 3), libddp.DType.F64, 48))
        memory = view.buffer()
        self.assertEqual(memory.tolist(), [[0, 0, 0], [0, 0, 0]])
        del view
        with self.assertRaisesRegex(libddp.InvalidStateError, "still in use"):
            group.close()
        del memory
        gc.collect()
        group.close()

    def test_an_unused_capsule_lets_go(self):
        model = model_of((Lender(), None))
        capsule = model.grad("p0").__dlpack__()
        with self.assertRaises(libddp.InvalidStateError):
            model.close()
        del capsule
        gc.collect()
        model.close()

    def test_any_order_of_closing(self):
        group = libddp.Group()
        model = libddp.Model(group)
        model.add_parameter("w", Lender())
        model.commit()
        optimizer, ema = libddp.Adam(model), libddp.Ema(model, 0.5)
        group.close()
        model.close()
        with self.assertRaises(libddp.InvalidStateError):
            optimizer.step()
        optimizer.close()
        ema.close()
        ema.close()

    def test_the_user_data_of_an_update_is_released(self):
        def update(*_):
            pass

        watched = weakref.ref(update)
        model = model_of((Lender(), None))
        optimizer = libddp.CustomOptimizer(model, update)
        del update
        gc.collect()
        self.assertIsNotNone(watched())
        optimizer.close()
        gc.collect()
        self.assertIsNone(watched())


class Collector(Test):
    def test_a_group_forgotten_in_a_hook_is_destroyed_elsewhere(self):
        """Its own thread cannot wait for itself: this would never end."""
        def run(place, rank):
            group = libddp.Group(place, rank=rank, world_size=2)
            model = libddp.Model(group, progress="thread")
            holder = [model]
            model.set_hook(lambda bucket: (holder.clear(), gc.collect(), bucket.all_reduce()))
            model.add_parameter("w", Lender(), Lender())
            model.commit()
            handle = weakref.ref(model._handle)
            raw, low_end = model._raw, low.ddp_model_end_backward
            low.ddp_model_begin_backward(raw, low.DDP_PASS_REDUCE)
            low.ddp_model_mark_ready(raw, 0, None)
            low_end(raw, None)
            del model, group
            return handle

        results = [None, None]

        def keep(rank):
            results[rank] = run("local://forgotten", rank)

        threads = [threading.Thread(target=keep, args=(rank,), daemon=True) for rank in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
            self.assertFalse(thread.is_alive())
        gc.collect()

    def test_nothing_is_destroyed_on_the_thread_of_a_callback(self):
        from libddp._handle import Handle, inside_callback

        where, done = [], threading.Event()

        def destroy(raw):
            where.append(threading.current_thread())
            done.set()

        handle = Handle(1, destroy)
        with inside_callback():
            del handle
        self.assertTrue(done.wait(30))
        self.assertIsNot(where[0], threading.current_thread())


class Exit(Test):
    def test_a_forked_child_that_ends_takes_nothing_along(self):
        self.ends_well(python("""
import libddp, os, sys
from array import array
group = libddp.Group()
model = libddp.Model(group)
model.add_parameter("w", array("f", [0] * 1000))
model.commit()
child = os.fork()
if child == 0:
    assert (group.rank, group.size) == (int(os.environ["RANK"]), 2)
    try:
        group.barrier()
    except libddp.InvalidStateError as error:
        assert "fork()" in str(error)
        del model, group
        sys.exit(0)
    sys.exit(1)
assert os.waitpid(child, 0)[1] == 0
group.barrier()
with model.backward():
    model.mark_ready("w")
group.barrier()
""", size=2))

    def test_a_forked_child_is_silent_and_quick_whatever_it_inherits(self):
        for ending in ("sys.exit(0)", "os._exit(0)", "raise SystemExit"):
            done = python("""
import gc, libddp, os, sys, time
from array import array
group = libddp.Group()
memory = group.alloc(16)
model = libddp.Model(group, progress="thread")
model.add_parameter("w", array("f", [0] * 1000))
model.add_parameter("own", memory, array("f", [0] * 16))
model.commit()
adam, ema, view = libddp.Adam(model), libddp.Ema(model, 0.5), model.grad("w").buffer()
sampler = libddp.Sampler(100, group)
model.begin_backward()
child = os.fork()
if child == 0:
    begun = time.monotonic()
    assert len(sampler.indices(1)) == 50
    for call in (group.barrier, model.check_replicas, adam.step, lambda: group.all_reduce(array("f", [1])), lambda: libddp.State(model).save("x")):
        try:
            call()
        except libddp.Error:
            pass
        else:
            raise SystemExit("a call on the parent's group in a fork succeeded")
    del view, adam, ema, model, memory, group
    gc.collect()
    assert time.monotonic() - begun < 5
    ENDING
assert os.waitpid(child, 0)[1] == 0
model.mark_ready("w"), model.mark_ready("own")
model.end_backward()
group.barrier()
""".replace("ENDING", ending), size=2)
            self.ends_well(done)
            self.assertEqual((done.stdout, done.stderr), ("", ""))

    def test_workers_of_multiprocessing_with_a_sampler(self):
        done = python("""
import libddp, multiprocessing
group = libddp.Group()
sampler = libddp.Sampler(100, group)
def work(epoch):
    return list(sampler.indices(epoch))
if __name__ == "__main__":
    with multiprocessing.get_context("fork").Pool(2) as pool:
        assert pool.map(work, range(4)) == [work(epoch) for epoch in range(4)]
        pool.close()
        pool.join()
    assert group.reduce_metrics([1]) == [2]
""", size=2)
        self.ends_well(done)
        self.assertEqual((done.stdout, done.stderr), ("", ""))

    def test_exit_with_hooks_in_flight(self):
        self.ends_well(python("""
import libddp
from array import array
group = libddp.Group()
model = libddp.Model(group, first_bucket_bytes=64, bucket_bytes=64, progress="thread")
model.set_hook(lambda bucket: bucket.all_reduce())
for index in range(50):
    model.add_parameter(f"w{index}", array("f", [0] * 16))
model.commit()
with model.backward():
    for index in range(50):
        model.mark_ready(index)
group.barrier()
try:
    model.begin_backward()
    for index in range(50):
        model.mark_ready(index)
except libddp.AbortedError:
    pass  # the other rank has gone first
""", size=2))

    def test_exit_with_everything_open(self):
        self.ends_well(python("""
import libddp, threading
from array import array
libddp.set_log("debug", lambda level, text: None)
group = libddp.Group()
model = libddp.Model(group)
model.add_parameter("w", array("f", [0] * 1000))
model.commit()
optimizer = libddp.CustomOptimizer(model, lambda *a: None)
view = model.grad("w").buffer()
model.begin_backward()
"""))

    def test_exit_while_other_ranks_and_threads_wait(self):
        done = python("""
import libddp, threading
group = libddp.Group()
if group.rank == 0:
    threading.Thread(target=group.barrier, daemon=True).start()  # nobody else comes
    import time
    time.sleep(0.2)
print("the end", flush=True)
""", size=2)
        self.assertEqual(done.stdout.count("the end"), 2, done.stdout + done.stderr)
        self.assertNotIn("Fatal", done.stderr)
        self.assertNotIn("signal", done.stderr)


if __name__ == "__main__":
    main()
