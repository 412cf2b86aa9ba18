# SPDX-License-Identifier: Apache-2.0
"""An outer optimizer over ranks that make steps on their own, beside the formulas in plain Python."""
from array import array

import libddp
from support import Test, main, ranks

STEPS, EVERY, RATE, MOMENTUM = 6, 3, 0.5, 0.5


def gradient(rank, step):
    return float((rank * 3 + step) % 5)


def train(group):
    value, grad = array("f", [8.0]), array("f", [0.0])
    with libddp.Model(group) as model:
        model.add_parameter("w", value, grad)
        model.commit()
        sgd = libddp.SGD(model, rate=0.5)
        with libddp.Outer(model, every=EVERY, rate=RATE, momentum=MOMENTUM) as outer:
            for step in range(STEPS):
                with model.local_backward():
                    grad[0] = gradient(group.rank, step)
                    model.mark_ready("w")
                sgd.step()
                outer.step()
            stats = outer.stats
            outer.sync()
            model.check_replicas()
        return value[0], stats["steps"], stats["exchanges"], stats["under_way"]


def formulas(size):
    own, everywhere, moved = [8.0] * size, 8.0, 0.0

    def exchange():
        nonlocal own, everywhere, moved
        d = sum(everywhere - each for each in own) / size
        moved = MOMENTUM * moved + d
        everywhere -= RATE * (d + MOMENTUM * moved)
        own = [everywhere] * size

    for step in range(STEPS):
        own = [each - 0.5 * gradient(rank, step) for rank, each in enumerate(own)]
        if (step + 1) % EVERY == 0:
            exchange()
    exchange()  # sync
    return own[0]


class Outer(Test):
    def test_it_follows_the_formulas(self):
        for size in (1, 2):  # numbers that F32 holds exactly
            for found in ranks(size, train):
                self.assertEqual(found, (formulas(size), STEPS, STEPS // EVERY, 0))

    def test_wrong_options_are_refused(self):
        def run(group):
            with libddp.Model(group) as model:
                model.add_parameter("w", array("f", [1.0]))
                model.commit()
                with self.assertRaisesRegex(libddp.InvalidArgumentError, "bits is 3"):
                    libddp.Outer(model, bits=3)
                with self.assertRaisesRegex(TypeError, "speed"):
                    libddp.Outer(model, speed=1)

        ranks(1, run)


main()
