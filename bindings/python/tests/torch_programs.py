# SPDX-License-Identifier: Apache-2.0
"""What the tests of whole programs share. A program prints losses of every rank: with PyTorch's wrapper over Gloo, with PyTorch's wrapper on the
backend libddp, and with libddp's wrapper and optimizers. They are the same to the last bit, as a sum of two ranks has one order only."""
from support import Test, forked

COMMON = """
import contextlib, copy, hashlib, math, os, warnings, libddp.c10d, libddp.torch, torch, torch.distributed as dist
from functools import partial
from torch import nn
from torch.nn import functional as F
rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
warnings.simplefilter("ignore")
torch.set_num_threads(1)
dist.init_process_group("libddp" if way == "backend" else "gloo")
DDP = libddp.torch.DistributedDataParallel if way in ("wrapper", "kernels") else nn.parallel.DistributedDataParallel
# libddp's optimizers make the steps of PyTorch's fused kernels.
SGD, Adam, AdamW = (getattr(libddp.torch, name) if way in ("wrapper", "kernels") else partial(getattr(torch.optim, name), fused=True)
                    for name in ("SGD", "Adam", "AdamW"))
if way == "wide":
    torch.set_default_dtype(torch.float64)
def say(what, value):
    print("loss", what, repr(float(value)))
def say_all(module):
    '''The bits of all parameters.'''
    print("loss", hashlib.sha256(b"".join(p.detach().contiguous().flatten().view(torch.uint8).numpy().tobytes() for p in module.parameters())).hexdigest())
def noise(*shape, seed):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(1000 * seed + rank))
"""


class Programs(Test):
    def losses(self, program, way, limit=120):
        done = forked(f"way = {way!r}\n" + COMMON + program, size=2, limit=limit)
        return [line for line in self.ends_well(done).splitlines() if line[4:].startswith("loss ")]

    def run_ways(self, program, ways=("backend", "wrapper"), **keywords):
        wanted = self.losses(program, "gloo", **keywords)
        self.assertGreater(len(wanted), 8)
        self.assertFalse([line for line in wanted if line.endswith((" nan", " inf"))])
        for way in ways:
            self.assertEqual(wanted, self.losses(program, way, **keywords), way)
