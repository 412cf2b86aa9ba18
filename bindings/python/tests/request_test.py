# SPDX-License-Identifier: Apache-2.0
"""Requests: posted collectives and messages, awaited in each way. Tested: libddp._request."""
import array
import asyncio

import libddp
from support import Test, main, ranks


def floats(*values):
    return array.array("f", values)


async def _of(request):
    return await request


class Requests(Test):
    def test_every_collective(self):
        def post(group):
            rank, size = group.rank, group.size
            total, whole, part = floats(rank, 1), floats(*[-1] * size), floats(-1)
            requests = [group.post_barrier(), group.post_all_reduce(total, "sum"), group.post_all_gather(floats(rank), whole),
                        group.post_reduce_scatter(floats(*range(size)), part, "sum")]
            told = floats(rank)
            requests.append(group.post_broadcast(told, 2))
            reduced, gathered, scattered = floats(rank), floats(*[-1] * size), floats(-1)
            requests.append(group.post_reduce(reduced, "max", 0))
            requests.append(group.post_gather(floats(rank), gathered if rank == 1 else None, 1))
            requests.append(group.post_scatter(floats(4, 5, 6), scattered, 0))
            swapped, counted = floats(*[-1] * size), floats(*[-1] * 6)
            requests.append(group.post_all_to_all(floats(*[rank] * size), swapped))
            requests.append(group.post_all_gather_counts(floats(*[rank] * (rank + 1)), counted, [1, 2, 3]))
            for request in reversed(requests):
                request.wait()
            self.assertTrue(all(request.done() for request in requests))
            if rank == 1:
                self.assertEqual(list(gathered), [0, 1, 2])
            return list(total), list(whole), part[0], told[0], scattered[0], list(swapped), list(counted)

        for rank, found in enumerate(ranks(3, post)):
            self.assertEqual(found, ([3, 3], [0, 1, 2], 3 * rank, 2, 4 + rank, [0, 1, 2], [0, 1, 1, 2, 2, 2]))

    def test_messages_and_the_first_of_several(self):
        def post(group):
            other, got = 1 - group.rank, [floats(0), floats(0)]
            receives = [group.post_receive(got[tag], None, tag) for tag in (0, 1)]
            with self.assertRaises(TimeoutError):
                libddp.wait_any(receives, timeout=0.02)
            with self.assertRaises(TimeoutError):
                receives[0].wait(timeout=0.01)
            group.barrier()
            group.post_send(floats(7), other, 1).wait()
            first = libddp.wait_any(receives)
            group.barrier()
            group.post_send(floats(8), other, 0).wait()
            sources = [request.wait() for request in receives]
            group.barrier()
            return first, sources, got[0][0], got[1][0]

        self.assertEqual(ranks(2, post), [(1, [1, 1], 8, 7), (1, [0, 0], 8, 7)])

    def test_awaited(self):
        def post(group):
            async def both():
                values = floats(group.rank), floats(1)
                requests = [group.post_all_reduce(value, "sum") for value in values]
                done = await asyncio.gather(*[_of(request) for request in requests])
                return [value[0] for value in done]

            return asyncio.run(both())

        self.assertEqual(ranks(2, post), [[1, 2], [1, 2]])

    def test_errors_and_the_end(self):
        def post(group):
            group.post_barrier().wait()
            with self.assertRaises(libddp.InvalidArgumentError):
                group.post_broadcast(floats(1), 9)
            request = group.post_receive(floats(0), 1 - group.rank)
            request.close()  # withdrawn
            with self.assertRaises(libddp.InvalidStateError):
                request.wait()
            wrong = group.post_all_reduce(floats(*[1] * (1 + group.rank)))
            with self.assertRaises(libddp.DifferentCallsError):
                wrong.wait()
            return True

        self.assertEqual(ranks(2, post), [True, True])


if __name__ == "__main__":
    main()
