# SPDX-License-Identifier: Apache-2.0
"""Messages with tensors on a GPU, where there is none: values and streams reach the library, on the fake GPU."""
import array
import ctypes
import os

from support import BUILD, Test, main, ranks

os.environ.update(DDP_MODULE_PATH=os.path.join(BUILD, "tests/fake_cuda"), DDP_FAKE_GPU_STRICT="1")

import libddp  # noqa: E402
from libddp._tensor import CUDA  # noqa: E402

FAKE = ctypes.CDLL(os.path.join(BUILD, "tests/fake_cuda/libddp_cuda.so"))
NO_STREAM = 4711  # an address that is no stream


class OnGpu:
    """Numbers in memory of the group, which is the fake GPU's."""

    def __init__(self, group, *numbers):
        self.memory = group.alloc((len(numbers),))
        self.address = self.memory.__libddp_tensor__[0]
        self.__libddp_tensor__ = (self.address, int(libddp.DType.F32), CUDA, group.rank, (len(numbers),))
        given = array.array("f", numbers)
        assert FAKE.ddp_fake_gpu_poke(ctypes.c_void_p(self.address), ctypes.c_void_p(given.buffer_info()[0]), ctypes.c_int64(4 * len(given))) == 1

    def numbers(self):
        """What it holds when the GPU is idle."""
        assert FAKE.ddp_fake_gpu_wait_idle(ctypes.c_int64(10_000)) == 1
        got = array.array("f", [0] * self.__libddp_tensor__[4][0])
        assert FAKE.ddp_fake_gpu_peek(ctypes.c_void_p(got.buffer_info()[0]), ctypes.c_void_p(self.address), ctypes.c_int64(4 * len(got))) == 1
        return list(got)


def calls(group, one, two, four, stream):
    """(how to call, by name) of everything that takes a stream, on two ranks: one, two and four numbers."""
    other, root = 1 - group.rank, group.rank == 0
    return {
        "send": lambda: group.send(two, other, 1, stream=stream),
        "receive": lambda: group.receive(two, other, 1, stream=stream),
        "gather": lambda: group.gather(two, four if root else None, 0, stream=stream),
        "scatter": lambda: group.scatter(four if root else None, two, 0, stream=stream),
        "all_to_all": lambda: group.all_to_all(two, two, stream=stream),
        "all_gather_counts": lambda: group.all_gather_counts(one, two, [1, 1], stream=stream),
        "post_send": lambda: group.post_send(two, other, 1, stream=stream),
        "post_receive": lambda: group.post_receive(two, other, 1, stream=stream),
        "post_gather": lambda: group.post_gather(two, four if root else None, 0, stream=stream),
        "post_scatter": lambda: group.post_scatter(four if root else None, two, 0, stream=stream),
        "post_all_to_all": lambda: group.post_all_to_all(two, two, stream=stream),
        "post_all_gather_counts": lambda: group.post_all_gather_counts(one, two, [1, 1], stream=stream),
    }


class OnTheGpu(Test):
    def test_values(self):
        def exchange(group):
            other = 1 - group.rank
            mine, got = OnGpu(group, group.rank, 5), OnGpu(group, -1, -1)
            received = group.post_receive(got, other, 1)
            sent = group.post_send(mine, other, 1)
            self.assertEqual(received.wait(), other)
            self.assertEqual(got.numbers(), [other, 5])
            sent.wait()
            group.all_to_all(mine, got)
            self.assertEqual(got.numbers(), [0, 1] if group.rank == 0 else [5, 5])
            group.barrier()

        ranks(2, exchange, backend="nccl")

    def test_streams(self):
        def refuse(group):
            group.post_barrier().wait()  # opens the channel of requests
            for name, call in calls(group, OnGpu(group, 1), OnGpu(group, 1, 2), OnGpu(group, 1, 2, 3, 4), NO_STREAM).items():
                with self.assertRaises(libddp.InvalidArgumentError, msg=name) as caught:
                    call()
                self.assertIn("streams and tensors must belong to this device", str(caught.exception), name)
            group.barrier()

        ranks(2, refuse, backend="nccl")


if __name__ == "__main__":
    main()
