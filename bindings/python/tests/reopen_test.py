# SPDX-License-Identifier: Apache-2.0
"""A model that is reopened keeps what stays: values, gradients, averages and steps; names and numbers follow."""
from array import array

import libddp
from support import Test, main, ranks


def train(group):
    stays, gone, added = (array("f", [1, 2]) for _ in range(3))
    with libddp.Model(group) as model:
        model.add_parameter("gone", gone)
        model.add_parameter("stays", stays)
        buffer = model.add_buffer("table", array("f", [1.0]))
        sgd = libddp.SGD(model, rate=0.5, momentum=0.5, shard=True, in_backward=True)
        model.commit()

        def step(names):
            with model.backward():
                for name in names:
                    view = model.grad(name).buffer()
                    for i in range(2):
                        view[i] = 2 * group.rank
                    model.mark_ready(name)
            sgd.step()

        step(["stays", "gone"])
        model.reopen()
        model.remove_parameter("gone")
        model.remove_buffer(buffer)
        number = model.add_parameter("gone", added)
        names = model.names
        model.commit()
        step(["gone", "stays"])
        return number, names, list(stays), list(gone), list(added)


class Reopen(Test):
    def test_what_stays_goes_on(self):
        for found in ranks(2, train):  # the mean of the gradients is 1
            self.assertEqual(found, (2, ("stays", "gone"), [-0.25, 0.75], [0.5, 1.5], [0.5, 1.5]))


main()
