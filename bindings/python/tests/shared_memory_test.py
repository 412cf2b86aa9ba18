# SPDX-License-Identifier: Apache-2.0
"""Memory of the program that the ranks of a host share where it is."""
import array
import gc

import libddp
from support import Test, main, ranks

COUNT = 600_000  # floats: more than 2 MiB


class SharedMemory(Test):
    def test_sums_have_the_bits_of_private_memory(self):
        def reduce(group):
            values = array.array("f", [1 / (1 + i % 97 + group.rank) for i in range(COUNT)])
            private = array.array("f", values)
            group.share(values)
            group.all_reduce(values)
            group.all_reduce(private)
            same = values == private
            group.unshare(values)
            return same, values == private

        self.assertEqual(ranks(2, reduce), [(True, True)] * 2)

    def test_the_group_keeps_what_it_shares(self):
        def keep(group):
            group.share(array.array("f", [group.rank]) * COUNT)
            gc.collect()
            group.barrier()
            group.close()
            return group.closed

        self.assertEqual(ranks(2, keep), [True, True])

    def test_refusals(self):
        def refuse(group):
            with self.assertRaisesRegex(libddp.NotSupportedError, "1 MiB"):
                group.share(array.array("f", [0] * 100))
            with self.assertRaisesRegex(libddp.InvalidArgumentError, "ddp_group_unshare"):
                group.unshare(array.array("f", [0] * COUNT))
            with self.assertRaises(libddp.TensorError):
                group.share("text")
            group.barrier()

        ranks(2, refuse)
        with libddp.Group("local://one", rank=0, world_size=1) as alone:
            with self.assertRaisesRegex(libddp.NotSupportedError, "share no memory"):
                alone.share(array.array("f", [0] * COUNT))


if __name__ == "__main__":
    main()
