# SPDX-License-Identifier: Apache-2.0
"""Passes, collectives, optimizers, averages, checkpoints and samplers do on several ranks what a naive computation says."""
import io
import json
import os
import tempfile
from array import array

import libddp
from support import Test, main, ranks


def zeros(count):
    return array("f", bytes(4 * count))


class Collectives(Test):
    def test_all_of_them(self):
        def run(group):
            rank, size = group.rank, group.size
            summed = array("f", [rank, 1])
            self.assertIs(group.all_reduce(summed, "sum"), summed)
            gathered = group.all_gather(array("q", [rank, 10 * rank]), array("q", [0] * 2 * size))
            part = group.reduce_scatter(array("d", range(size)), array("d", [0]), libddp.Reduce.SUM)
            sent = group.broadcast(array("i", [rank]), root=2)
            group.barrier()
            return list(summed), list(gathered), list(part), list(sent), group.reduce_metrics({"most": rank}, "max")

        for rank, found in enumerate(ranks(3, run)):
            self.assertEqual(found, ([3, 3], [0, 0, 1, 10, 2, 20], [3 * rank], [2], {"most": 2.0}))


class Traces(Test):
    def test_a_block_is_traced(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "trace.json")

            def run(group):
                with group.trace(path, capacity=128):
                    group.barrier()
                group.barrier()
                with self.assertRaises(libddp.InvalidStateError):
                    group.stop_trace()

            ranks(2, run)
            with open(path, encoding="utf-8") as file:
                events = json.load(file)["traceEvents"]
            self.assertEqual(sorted(event["pid"] for event in events if event["name"] == "ddp_group_barrier"), [0, 1])


class OwnNumbers(Test):
    def test_they_are_checked(self):
        def run(group):
            group.log_metric("python/loss", 0.5)
            with self.assertRaisesRegex(libddp.InvalidArgumentError, 'name is "my loss"'):
                group.log_metric("my loss", 1)

        ranks(2, run)


class OwnValues(Test):
    def test_the_library_keeps_them(self):
        def run(group):
            model = libddp.Model(group, own_values=True)
            weight = array("d", [1, 2, 3])
            model.add_parameter("weight", weight)
            self.assertIs(model.value("weight"), weight)
            model.commit()
            weight[:] = array("d", [9, 9, 9])
            kept = model.value(0).buffer()
            sgd = libddp.SGD(model, rate=1.0)
            for _ in range(2):
                model.zero_grad()
                with model.backward():
                    model.grad(0).buffer()[:] = array("d", [group.rank] * 3)
                    model.mark_ready(0)
                sgd.step()
            return kept.tolist()

        self.assertEqual(ranks(2, run), [[0, 1, 2]] * 2)


class Rows(Test):
    def test_sub_groups(self):
        def run(group):
            half, turned = group.split(group.rank // 2), group.split(0, -group.rank, timeout_ms=5000)
            alone = group.split(None if group.rank else 3)
            total = array("d", [2.0 ** group.rank])
            half.all_reduce(total, "sum")
            return half.size, total[0], turned.rank, None if alone is None else alone.size

        self.assertEqual(ranks(4, run), [(2, 3.0, 3, 1), (2, 3.0, 2, None), (2, 12.0, 1, None), (2, 12.0, 0, None)])

    def test_rows_of_a_table(self):
        def run(group):
            rows = memoryview(array("f", [1, 2, 3, 4])).cast("B").cast("f", (2, 2))
            found = group.all_reduce_rows(array("q", [7, 2 + group.rank]), rows, "sum")
            return found.indices.buffer().tolist(), found.rows.buffer().tolist()

        self.assertEqual(ranks(2, run), [([2, 3, 7], [[3, 4], [3, 4], [2, 4]])] * 2)


class Passes(Test):
    def test_gradients_become_the_mean(self):
        def run(group):
            own, grad = zeros(3), zeros(3)
            model = libddp.Model(group, bucket_bytes=64, first_bucket_bytes=64)
            model.add_parameter("theirs", zeros(2))
            model.add_parameter("own", own, grad)
            model.commit()
            self.assertEqual((model.names, len(model)), (("theirs", "own"), 2))
            view = model.grad("theirs").buffer()
            with model.backward():
                grad[:] = array("f", [group.rank, 2 * group.rank, 3])
                model.mark_ready("own")
                view[0] = 4.0 * group.rank
                model.mark_ready(0)
            self.assertTrue(model.was_used("own"))
            norm = model.clip_grad_norm(1.0)
            model.clip_grad_value(0.75)
            return list(view), list(grad), norm, model.grad_norm()

        for found in ranks(2, run):
            view, grad, norm, clipped = found
            self.assertAlmostEqual(norm, (2**2 + 0.5**2 + 1 + 3**2) ** 0.5, places=6)
            self.assertAlmostEqual(view[0] * norm, 2.0, places=4)
            self.assertAlmostEqual(grad[1] * norm, 1.0, places=4)
            self.assertEqual(grad[2], 0.75)
            self.assertLess(clipped, 1.0)

    def test_accumulation_sends_once(self):
        def run(group):
            grad = zeros(1)
            model = libddp.Model(group)
            model.add_parameter("w", zeros(1), grad)
            model.commit()
            for opened in (model.accumulate, model.accumulate, model.backward):
                with opened():
                    grad[0] += group.rank + 1
                    model.mark_ready("w")
            stats = model.stats()
            return grad[0], stats["passes"], stats["parameters"]

        self.assertEqual(ranks(2, run), [(4.5, 1, 1)] * 2)

    def test_local_steps_and_their_mean(self):
        def run(group):
            value, grad = zeros(1), zeros(1)
            model = libddp.Model(group)
            model.add_parameter("w", value, grad)
            model.commit()
            sgd = libddp.SGD(model, rate=1.0)
            with model.local_backward():
                grad[0] = -4.0 * group.rank
                model.mark_ready("w")
            sgd.step()
            before = value[0]
            model.average_parameters()
            return before, value[0]

        self.assertEqual(ranks(2, run), [(0, 2), (4, 2)])

    def test_unused_parameters(self):
        def run(group):
            model = libddp.Model(group, unused="allow")
            for name in ("everywhere", "somewhere", "nowhere"):
                model.add_parameter(name, zeros(1), zeros(1))
            model.commit()
            with model.backward():
                model.mark_ready("everywhere")
                (model.mark_ready if group.rank else model.mark_unused)("somewhere")
                model.mark_unused("nowhere")
            return [model.was_used(name) for name in model.names]

        self.assertEqual(ranks(2, run), [[True, True, False]] * 2)

    def test_a_moving_gradient(self):
        def run(group):
            model = libddp.Model(group)
            model.add_parameter("w", zeros(2), zeros(2))
            model.commit()
            for turn in range(3):
                grad = array("f", [turn, group.rank])
                with model.backward():
                    model.set_grad("w", grad)
                    model.mark_ready("w")
            return list(grad)

        self.assertEqual(ranks(2, run), [[2, 0.5]] * 2)

    def test_a_step_without_a_pass(self):
        def run(group):
            value, grad = zeros(2), array("f", [0, 0])
            model = libddp.Model(group)
            model.add_parameter("w", value, grad)
            model.commit()
            sgd = libddp.SGD(model, rate=1)
            for _ in range(2):
                grad[0] = 1 + group.rank
                with self.assertRaisesRegex(libddp.InvalidStateError, "no pass has reduced"):
                    sgd.step()
            group.all_reduce(grad, libddp.Reduce.SUM)
            model.mark_reduced()
            sgd.step()
            with self.assertRaises(libddp.InvalidStateError):
                sgd.step()
            return value[0], sgd.step_count

        self.assertEqual(ranks(2, run), [(-3, 1)] * 2)

    def test_replicas_are_compared(self):
        def run(group):
            value, buffer = zeros(2), array("q", [group.rank])
            model = libddp.Model(group)
            model.add_parameter("w", value)
            model.add_buffer("seen", buffer)
            model.commit()
            model.check_replicas()
            before = buffer[0]
            buffer[0] = group.rank + 5
            model.sync_buffers(1)
            value[0] = group.rank
            with self.assertRaisesRegex(libddp.MismatchError, "w"):
                model.check_replicas()
            return before, buffer[0], model.plan().count("w"), model.hash() >= 0

        self.assertEqual(ranks(2, run), [(0, 6, 1, True)] * 2)


class UnequalData(Test):
    def test_weights_and_the_last_pass(self):
        def run(group):
            grad = array("f", [0.0])
            model = libddp.Model(group, divisor="weights")
            model.add_parameter("w", zeros(1), grad)
            model.commit()
            model.set_weight(1 + 2 * group.rank)
            with model.backward():
                if group.rank == 1:
                    model.set_last_pass()
                grad[0] = 4.0 * group.rank
                model.mark_ready("w")
            return grad[0], model.pass_report()

        self.assertEqual(ranks(2, run), [(3.0, libddp.PassReport(2, 4.0, True, ()))] * 2)

    def test_skipping(self):
        def run(group):
            grad = array("f", [0.0])
            model = libddp.Model(group)
            model.add_parameter("w", zeros(1), grad)
            model.commit()
            if group.rank == 0:
                model.skip_backward()
            else:
                with model.backward():
                    grad[0] = 4.0
                    model.mark_ready("w")
            return grad[0], model.pass_report().contributors, model.pass_report().absent

        self.assertEqual(ranks(2, run), [(2.0, 1, (0,))] * 2)

    def test_joining(self):
        def run(group):
            value, grad = zeros(1), zeros(1)
            model = libddp.Model(group, uneven_inputs=True, divisor="weights")
            model.add_parameter("w", value, grad)
            model.commit()
            sgd = libddp.SGD(model, rate=1.0)
            for _ in range(1 + 2 * group.rank):
                with model.backward():
                    grad[0] = -1.0
                    model.mark_ready("w")
                sgd.step()
            model.join()
            return value[0], sgd.step_count

        self.assertEqual(ranks(2, run), [(3.0, 3)] * 2)


class Updates(Test):
    def model(self):
        self.value, self.grad = array("d", [1.0, 2.0]), array("d", [0.5, 0.25])
        model = libddp.Model(libddp.Group())
        model.add_parameter("w", self.value, self.grad)
        model.commit()
        return model

    def test_several(self):
        value = {name: array("f", [1.0, 2.0]) for name in ("w", "b", "v")}
        model = libddp.Model(libddp.Group())
        for name, of in value.items():
            model.add_parameter(name, of, array("f", [0.5, 0.25]))
        sgd = libddp.SGD(model, parameters=["w", 2], rate=1.0)
        adam = libddp.Adam(model, rate=0.5, weight_decay=0, epsilon=1e-30)
        model.commit()
        with self.assertRaisesRegex(libddp.InvalidStateError, 'parameter "b", which optimizer 1 .adam. has'):
            libddp.SGD(model, parameters=["b"])
        with self.assertRaises(ValueError):
            libddp.SGD(model, parameters=[])
        sgd.step(), adam.step()
        self.assertEqual([list(of) for of in value.values()], [[0.5, 1.75], [0.5, 1.5], [0.5, 1.75]])
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "both.safetensors")
            libddp.State(model, [sgd, adam]).save(path)
            sgd.rate = adam.rate = 9
            libddp.State(model, [sgd, adam]).load(path)
            self.assertEqual((sgd.rate, adam.rate), (1.0, 0.5))
            with self.assertRaisesRegex(libddp.MismatchError, "as number 0"):
                libddp.State(model, [adam, sgd]).load(path)

    def test_sgd(self):
        model = self.model()
        sgd = libddp.SGD(model, rate=0.5, momentum=0.5, nesterov=False)
        sgd.step()
        sgd.step()
        self.assertEqual(list(self.value), [1 - 0.25 - 0.375, 2 - 0.125 - 0.1875])
        self.assertEqual((sgd.rate, sgd.step_count), (0.5, 2))
        sgd.rate = 0.25
        self.assertEqual(sgd.rate, 0.25)

    def test_adam(self):
        model = self.model()
        adam = libddp.Adam(model, rate=0.1, weight_decay=0, epsilon=1e-30)
        adam.set_parameter_options("w", weight_decay=0, rate_scale=2.0)
        adam.step()
        for found, wanted in zip(self.value, (0.8, 1.8)):
            self.assertAlmostEqual(found, wanted, places=12)

    def test_sharded_and_fused_updates(self):
        for options in ({"shard": True}, {"in_backward": True}, {"shard": True, "in_backward": True}):
            def run(group):
                value, grad = zeros(100), zeros(100)
                model = libddp.Model(group)
                model.add_parameter("w", value, grad)
                model.commit()
                adam = libddp.SGD(model, rate=0.5, momentum=0.5, **options)
                for _ in range(2):
                    with model.backward():
                        grad[:] = array("f", [2.0 * group.rank] * 100)
                        model.mark_ready("w")
                    norm = model.grad_norm()
                    adam.step()
                model.check_replicas()
                return value[0], value[99], round(norm, 6)

            self.assertEqual(ranks(2, run), [(-1.25, -1.25, 10.0)] * 2)

    def test_a_loss_scale(self):
        model = self.model()
        sgd = libddp.SGD(model, rate=1.0, nonfinite="skip")
        self.assertIsNone(sgd.grad_norm)
        sgd.set_loss_scale(initial=2.0, interval=0)
        self.grad[0] = float("inf")
        sgd.step()
        self.assertEqual((sgd.skipped_count, sgd.loss_scale, list(self.value)), (1, 2.0, [1, 2]))
        self.grad[0] = 0.5
        sgd.step()
        self.assertEqual(list(self.value), [0.75, 1.875])
        self.assertAlmostEqual(sgd.grad_norm, 0.3125 ** 0.5 / 2)

    def test_an_own_update(self):
        seen = []

        def update(part):
            seen.append((part.index, part.value.shape, part.first, part.count, part.step, part.rate, part.weight_decay, part.stream))
            for i, g in enumerate(part.grad.buffer()):
                part.state[1].buffer()[i] += 1
                part.value.buffer()[i] -= part.rate * g * part.state[1].buffer()[i]

        model = self.model()
        optimizer = libddp.CustomOptimizer(model, update, states=["unused", "count"], rate=2.0, weight_decay=0.5, clip_value=0.25)
        optimizer.step()
        self.assertEqual((list(self.value), seen), ([0.5, 1.5], [(0, (2,), 0, 2, 1, 2.0, 0.5, 0)]))

    def test_an_own_update_in_a_pass(self):
        def update(part):
            for i, g in enumerate(part.grad.buffer()):
                part.value.buffer()[i] -= g
            if part.step == 2:
                raise KeyError("mine")

        model = self.model()
        optimizer = libddp.CustomOptimizer(model, update, in_backward=True)
        before = list(self.value)
        with model.backward():
            model.mark_range_ready("w", 0, 1)
            with self.assertRaises(libddp.InvalidStateError):
                model.mark_ready("w")
            model.mark_range_ready("w", 1, 1)
        optimizer.step()
        after = list(self.value)
        self.assertEqual(after, [v - g for v, g in zip(before, self.grad)])
        with self.assertRaises(KeyError):
            with model.backward():
                model.mark_ready("w")
        self.assertEqual(list(self.value), after)

    def test_averages(self):
        ema = libddp.Ema(self.model(), [0.5, 0.75])
        ema.update()
        self.value[0] = 3.0
        ema.update()
        with ema.average(0):
            self.assertEqual(self.value[0], 2.0)
        with ema.average(1):
            self.assertEqual(self.value[0], 1.5)
        self.assertEqual(self.value[0], 3.0)


class Checkpoints(Test):
    def test_a_file_and_a_stream(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "model.safetensors")

            def run(group):
                value = array("f", [7, 8])
                model = libddp.Model(group)
                model.add_parameter("w", value)
                model.commit()
                model.metadata["note"] = "ä"
                sgd, ema = libddp.SGD(model, rate=0.125, momentum=0.5), libddp.Ema(model, 0.5)
                ema.update()
                state = libddp.State(model, sgd, ema, epoch=3, step=44)
                state.save(path)
                stream = io.BytesIO()
                state.save(stream if group.rank == 0 else None)
                stream.seek(0)
                found = []
                for place in (path, stream if group.rank == 0 else None):
                    value[0], model.metadata["note"], state.epoch, state.step, sgd.rate = 0, "x", 0, 0, 1.0
                    state.load(place)
                    found.append((list(value), model.metadata["note"], state.epoch, state.step, sgd.rate))
                return found

            self.assertEqual(ranks(2, run), [[([7, 8], "ä", 3, 44, 0.125)] * 2] * 2)

    def test_the_newest_valid_checkpoint_of_a_folder(self):
        with tempfile.TemporaryDirectory() as folder:
            def run(group):
                value = array("f", [0])
                model = libddp.Model(group)
                model.add_parameter("w", value)
                state = libddp.State(model)
                with self.assertRaisesRegex(libddp.NoCheckpointError, "has no checkpoint"):
                    state.load_latest(folder)
                for step in (1, 2, 3):
                    value[0], state.step = step, step
                    state.save_latest(folder, keep=2)
                newest = os.path.join(folder, "step-000000000003.safetensors")
                if group.rank == 0:
                    os.truncate(newest, 50)
                group.barrier()
                loaded = state.load_latest(folder)
                return value[0], state.step, os.path.basename(state.file), [newest in why for why in state.skipped], loaded

            self.assertEqual(ranks(2, run), [(2.0, 2, "step-000000000002.safetensors", [True], ([], []))] * 2)
            self.assertEqual(sorted(os.listdir(folder)),
                             [".ddp-folder.lock", "step-000000000002.safetensors", "step-000000000003.safetensors"])

    def test_a_part_of_a_checkpoint(self):
        def run(group):
            stream = io.BytesIO()
            old, new = libddp.Model(group), libddp.Model(group)
            old.add_parameter("both", array("f", [5]))
            old.add_parameter("old", array("f", [6]))
            value = zeros(1)
            new.add_parameter("both", value)
            new.add_parameter("new", zeros(1))
            old.commit()
            new.commit()
            libddp.State(old).save(stream if group.rank == 0 else None)
            stream.seek(0)
            return value, libddp.State(new).load(stream if group.rank == 0 else None, partial=True)

        self.assertEqual([(v[0], *loaded) for v, loaded in ranks(2, run)], [(5.0, ["new"], ["old"])] * 2)

    def test_texts(self):
        model = libddp.Model(libddp.Group())
        self.assertNotIn("note", model.metadata)
        with self.assertRaises(KeyError):
            model.metadata["note"]
        model.metadata["note"] = "text"
        self.assertEqual(model.metadata.get("note"), "text")
        del model.metadata["note"]
        self.assertNotIn("note", model.metadata)


class Samplers(Test):
    def test_a_partition(self):
        parts = [libddp.Sampler(10, rank=rank, size=2, seed=5) for rank in range(2)]
        self.assertEqual([len(part) for part in parts], [5, 5])
        taken = [list(part.indices(1)) for part in parts]
        self.assertEqual(sorted(taken[0] + taken[1]), list(range(10)))
        self.assertEqual(list(parts[0].indices(1, 3)), taken[0][3:])
        self.assertEqual([list(batch) for batch in parts[0].batches(1, 2)], [taken[0][:2], taken[0][2:4], taken[0][4:]])

    def test_an_epoch_goes_on_with_another_number_of_ranks(self):
        def run(group):
            three = libddp.Sampler(11, rank=group.rank, size=3, seed=5)
            rest = three.resumed(group, 2)
            return list(three.indices(1, 0, 2)), list(rest.indices(1)), rest.seen

        gone = list(libddp.Sampler(11, rank=2, size=3, seed=5).indices(1, 0, 2))
        (before, after, seen), (before_1, after_1, _) = ranks(2, run)
        self.assertEqual(seen, 6)
        self.assertEqual(sorted(before + before_1 + gone + (after + after_1)[:-1]), list(range(11)))
        self.assertEqual(list(libddp.Sampler(3, shuffle=False).indices(0)), [0, 1, 2])


class BatchNorm(Test):
    def test_the_mean_over_all_ranks(self):
        def run(group):
            x = memoryview(array("d", [group.rank * 2.0, group.rank * 2.0 + 1])).cast("B").cast("d", (2, 1))
            y = memoryview(array("d", [0, 0])).cast("B").cast("d", (2, 1))
            mean, invstd = array("d", [0]), array("d", [0])
            saved = libddp.batch_norm_forward(group, x, y, saved_mean=mean, saved_invstd=invstd, epsilon=0.0)
            dx, dweight = memoryview(array("d", [0, 0])).cast("B").cast("d", (2, 1)), array("d", [0])
            libddp.batch_norm_backward(group, saved, x, dx=dx, dweight=dweight)
            return mean[0], saved.count, y[0, 0] * 1.25 ** 0.5, abs(dx[0, 0]) < 1e-12

        self.assertEqual([(m, c, round(v, 12), z) for m, c, v, z in ranks(2, run)], [(1.5, 4, -1.5, True), (1.5, 4, 0.5, True)])


if __name__ == "__main__":
    main()
