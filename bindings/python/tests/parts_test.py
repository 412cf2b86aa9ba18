# SPDX-License-Identifier: Apache-2.0
"""Parts of the global batch: who has which, their metrics and keys, and a training on 1, 2 and 3 ranks with the same bits."""
from array import array

import libddp
from support import Test, main, ranks

PARTS, STEPS, COUNT = 3, 4, 50


def train(group):
    """Gradients that depend on the part, the step and the weights. Returns the weights and the last loss."""
    value, grad = array("f", [1] * COUNT), array("f", bytes(4 * COUNT))
    with libddp.Model(group) as model:
        model.add_parameter("w", value, grad)
        model.commit()
        sgd = libddp.SGD(model, rate=0.05, momentum=0.5)
        samplers = {part: libddp.Sampler(60, group, part=part) for part in group.parts}
        for step in range(STEPS):
            losses = []
            for part, sampler in samplers.items():
                sample = sampler.indices(0, step, 1)[0]
                with model.backward(part=part):
                    for i in range(COUNT):
                        grad[i] = value[i] / (3 + sample + i) + part / 7
                    losses.append({"loss": sample / 3, "seen": 1})
                    model.mark_ready("w")
            sgd.step()
            total = group.reduce_part_metrics(losses)
        return value.tobytes(), total


class Parts(Test):
    def test_any_number_of_ranks_gives_the_same_bits(self):
        wanted = ranks(PARTS, train)[0]
        self.assertEqual(wanted[1]["seen"], PARTS)
        for size in (1, 2, 3):
            for found in ranks(size, train, virtual_ranks=PARTS):
                self.assertEqual(found, wanted)

    def test_a_rank_knows_its_parts(self):
        self.assertEqual(ranks(2, lambda group: (group.parts, group.total_parts), virtual_ranks=3), [(range(0, 2), 3), (range(2, 3), 3)])
        self.assertEqual(ranks(2, lambda group: (group.parts, group.total_parts)), [(range(0, 1), 2), (range(1, 2), 2)])

    def test_an_exception_in_a_part_voids_the_step(self):
        def run(group):
            grad = array("f", [1.0])
            with libddp.Model(group) as model:
                model.add_parameter("w", array("f", [1.0]), grad)
                model.commit()
                with self.assertRaisesRegex(KeyError, "gone"):
                    with model.backward(part=0):
                        raise KeyError("gone")
                with self.assertRaisesRegex(libddp.InvalidStateError, r"virtual rank 0\) abandoned the pass: KeyError: 'gone'"):
                    with model.backward(part=1):
                        model.mark_ready("w")
                for part in group.parts:
                    grad[0] = 2 + part
                    with model.backward(part=part):
                        model.mark_ready("w")
                return grad[0]

        self.assertEqual(ranks(1, run, virtual_ranks=2), [2.5])

    def test_wrong_arguments(self):
        def run(group):
            with self.assertRaisesRegex(ValueError, "this rank has 2 parts"):
                group.reduce_part_metrics([[1.0]])
            with self.assertRaisesRegex(ValueError, "3 numbers are not as many for each of this rank's 2 parts"):
                libddp.low.ddp_group_reduce_part_metrics(group._raw, [1.0, 2.0, 3.0], libddp.low.DDP_SUM)
            self.assertEqual(group.reduce_part_metrics([[1.0, 2.0], [3.0, 5.0]], "average"), [2.0, 3.5])

        ranks(1, run, virtual_ranks=2)
        with self.assertRaises(TypeError):
            libddp.Sampler(3, part=1)
        with self.assertRaises(libddp.InvalidArgumentError):
            libddp.part_key(1, -1, 0)
        self.assertEqual(libddp.part_key(1, 2, 3), 7367606758917324626)


main()
