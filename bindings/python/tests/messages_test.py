# SPDX-License-Identifier: Apache-2.0
"""Messages from one rank to one other, and collectives in which ranks give or get different parts."""
import array
import threading

import libddp
from support import Test, main, ranks


def floats(*values):
    return array.array("f", values)


class Messages(Test):
    def test_ring(self):
        def turn(group):
            got = floats(*[0] * 50_000)
            after, before = (group.rank + 1) % group.size, (group.rank - 1) % group.size
            sender = threading.Thread(target=group.send, args=(floats(*[group.rank] * 50_000), after, 3))  # one sends while another receives
            sender.start()
            source = group.receive(got, before, 3)
            sender.join()
            group.barrier()  # a rank that leaves ends what others still wait for
            return source, got[0], got[-1]

        self.assertEqual(ranks(3, turn), [(2, 2, 2), (0, 0, 0), (1, 1, 1)])

    def test_any_source(self):
        def send_or_receive(group):
            got = floats(0)
            if group.rank:
                group.send(floats(group.rank), 0)
                group.barrier()
                return None
            received = sorted((group.receive(got), got[0]) for _ in range(2))
            group.barrier()
            return received

        self.assertEqual(ranks(3, send_or_receive)[0], [(1, 1), (2, 2)])

    def test_wrong_size(self):
        def mismatch(group):
            if group.rank == 0:
                group.send(floats(1, 2), 1, 5)
                group.barrier()
                return ""
            try:
                group.receive(floats(0), 0, 5)
            except libddp.MismatchError as error:
                group.barrier()
                return str(error)

        self.assertIn("rank 0 sends 2 F32 elements with tag 5", ranks(2, mismatch)[1])

    def test_parts(self):
        def parts(group):
            rank, size = group.rank, group.size
            all_of = floats(*[-1] * size) if rank == 1 else None
            group.gather(floats(rank), all_of, 1)
            part = floats(-1)
            group.scatter(all_of, part, 1)
            swapped = group.all_to_all(floats(*(10 * rank + other for other in range(size))), floats(*[-1] * size))
            some = group.all_to_all(floats(*[rank] * 3), floats(*[-1] * 3 * rank), [0, 1, 2], [rank] * 3)
            joined = group.all_gather_counts(floats(*[rank] * (rank + 1)), floats(*[-1] * 6), [1, 2, 3])
            product = group.reduce(floats(rank + 2), "product", 2)
            with self.assertRaises(ValueError):
                group.all_gather_counts(floats(0), floats(0), [1])
            return list(all_of or ()), part[0], list(swapped), list(some), list(joined), product[0] if rank == 2 else None

        found = ranks(3, parts)
        self.assertEqual([each[0] for each in found], [[], [0, 1, 2], []])
        self.assertEqual([each[1] for each in found], [0, 1, 2])
        self.assertEqual([each[2] for each in found], [[0, 10, 20], [1, 11, 21], [2, 12, 22]])
        self.assertEqual([each[3] for each in found], [[], [0, 1, 2], [0, 0, 1, 1, 2, 2]])
        self.assertEqual([each[4] for each in found], [[0, 1, 1, 2, 2, 2]] * 3)
        self.assertEqual(found[2][5], 24)


if __name__ == "__main__":
    main()
