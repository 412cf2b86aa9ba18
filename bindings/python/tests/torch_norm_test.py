# SPDX-License-Identifier: Apache-2.0
"""libddp.torch.SyncBatchNorm beside torch.nn.BatchNorm1d with the samples of all ranks: derivatives of every order, copies, groups of its own,
and what autograd checks of it. And libddp.torch.DistributedSampler beside PyTorch's."""
from support import Test, forked, main, need

need("torch", "numpy")
import libddp.torch  # noqa: E402, F401
import torch  # noqa: E402, F401  forks have it at once

COMMON = """
import copy, io, libddp, torch
from torch import nn
from libddp.torch import DistributedDataParallel as DDP, SyncBatchNorm, group
rank, size = group().rank, group().size
torch.manual_seed(3)
whole = torch.randn(4 * size, 3, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
mine = whole[4 * rank:4 * rank + 4]
def network(norm):
    torch.manual_seed(7)
    return nn.Sequential(nn.Linear(3, 4), norm(4), nn.Tanh(), nn.Linear(4, 2), norm(2), nn.Tanh(), nn.Linear(2, 1)).double()
def fails(kind, text, call):
    try:
        call()
    except kind as error:
        assert text in str(error), error
    else:
        raise SystemExit("no error")
def same_gradients(ours, theirs):
    for (name, a), b in zip(ours.named_parameters(), theirs.parameters()):
        total = group().all_reduce(a.grad.clone(), "sum")
        assert torch.allclose(total, b.grad, rtol=1e-7, atol=1e-10), (name, total, b.grad)
"""


class Norms(Test):
    def run_ranks(self, program, size=2):
        return self.ends_well(forked(COMMON + program, size=size, limit=120))

    def test_derivatives_of_every_order(self):
        """A gradient penalty differentiates the gradient; torch.autograd.grad can go on from there."""
        program = """
def penalty(net, x, order):
    x = x.clone().requires_grad_()
    value = net(x).pow(2).sum()
    for _ in range(order):
        gradient, = torch.autograd.grad(value, x, create_graph=True)
        value = value + gradient.pow(2).sum()
    value.backward()
class ByOperations(nn.BatchNorm1d):                     # PyTorch's own has two derivatives
    def forward(self, x):
        return (x - x.mean(0)) * (x.var(0, unbiased=False) + self.eps).rsqrt() * self.weight + self.bias
for order in (0, 1, 2):
    ours, theirs = network(SyncBatchNorm), network(ByOperations if order == 2 else nn.BatchNorm1d)
    penalty(ours, mine, order), penalty(theirs, whole, order)
    same_gradients(ours, theirs)
    assert order == 2 or all(torch.allclose(a, b) for a, b in zip(ours.buffers(), theirs.buffers()))
ours, theirs = (network(lambda n: norm(n, affine=False)) for norm in (SyncBatchNorm, nn.BatchNorm1d))
penalty(ours, mine, 1), penalty(theirs, whole, 1)
same_gradients(ours, theirs)
"""
        self.run_ranks(program)
        self.run_ranks(program, size=3)

    def test_what_autograd_checks(self):
        self.run_ranks("""
from torch.utils.checkpoint import checkpoint
ours, theirs = network(SyncBatchNorm), network(nn.BatchNorm1d)
checkpoint(ours, mine, use_reentrant=False).sum().backward(), theirs(whole).sum().backward()
same_gradients(ours, theirs)
layer, x = SyncBatchNorm(3).double(), mine.clone().requires_grad_()
seen = []
with torch.autograd.graph.saved_tensors_hooks(lambda t: (seen.append(t.shape), t)[1], lambda t: t):
    y = layer(x)
assert torch.Size([4, 3]) in seen
y = layer(x * 1)
with torch.no_grad():
    layer.weight.mul_(2)
fails(RuntimeError, "modified by an inplace operation", y.sum().backward)
group().barrier()
inner = mine.clone().requires_grad_()
hidden = inner * 1
y = layer(hidden)
hidden.add_(1)
fails(RuntimeError, "modified by an inplace operation", y.sum().backward)
# Running statistics were written too: what needs their old values is an error.
kept = (layer.running_mean * torch.ones(3, dtype=torch.float64, requires_grad=True)).sum()
layer(x)
fails(RuntimeError, "modified by an inplace operation", kept.backward)
""")

    def test_copies(self):
        self.run_ranks("""
net = network(SyncBatchNorm)
file = io.BytesIO()
torch.save(net, file)
file.seek(0)
averaged = torch.optim.swa_utils.AveragedModel(net)
averaged.update_parameters(net)
for other in (copy.deepcopy(net), torch.load(file, weights_only=False), averaged.module, copy.deepcopy(DDP(net)).module):
    other.train()
    assert other[1].ranks is net[1].ranks
    assert torch.equal(other(mine), net(mine))
halves = [libddp.Group(f"env://#half{of}", rank=0, world_size=1) for of in range(size)]
layer = SyncBatchNorm(3, process_group=halves[rank])
assert copy.deepcopy(layer).ranks is halves[rank]
""")

    def test_evaluation_is_local(self):
        self.run_ranks("""
for tracks in (True, False):
    layer = SyncBatchNorm(3, track_running_stats=tracks).double().eval()
    if rank == 0:
        plain = nn.BatchNorm1d(3, track_running_stats=tracks).double().eval()
        assert torch.equal(layer(mine), plain(mine))
group().barrier()
assert layer.ranks.progress(0).call != "ddp_batch_norm_forward"
""")

    def test_arguments_of_pytorch(self):
        self.run_ranks("""
import torch.distributed as dist
dist.init_process_group("gloo")
half = [dist.new_group([0]), dist.new_group([1])][rank]
for layer in (SyncBatchNorm.convert_sync_batchnorm(nn.BatchNorm1d(3), half), SyncBatchNorm(3, process_group=half),
              SyncBatchNorm.convert_sync_batchnorm(module=nn.BatchNorm1d(3), process_group=half)):
    plain = nn.BatchNorm1d(3)
    assert layer.ranks.size == 1
    assert torch.allclose(layer(mine.float()), plain(mine.float()), atol=1e-6) and torch.allclose(layer.running_mean, plain.running_mean)
layer = SyncBatchNorm(3, 1e-3, 0.5, True, True, None, "cpu", torch.float64, bias=False)
assert layer.ranks.size == 2 and layer.bias is None and layer.weight.dtype == torch.float64
layer(mine).sum().backward()
for wrong in (torch.ones(3),):
    fails(ValueError, "dimensions", lambda: layer(wrong.double()))
net = DDP(SyncBatchNorm.convert_sync_batchnorm(nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3)), half), process_group=half)
if rank == 0:                                           # the other rank makes no call at all
    net(mine.float()).sum().backward()
""")


class Samplers(Test):
    def test_as_pytorchs(self):
        """The same indices and attributes, and frameworks take it for a distributed sampler (they would deal out its share once more)."""
        theirs_kind = torch.utils.data.distributed.DistributedSampler
        for count in (1, 2, 10, 11, 13):
            for keywords in ({}, {"seed": 3}, {"shuffle": False}, {"drop_last": True}, {"shuffle": False, "drop_last": True}):
                if count < 3 and keywords.get("drop_last"):
                    continue
                for rank in range(3):
                    ours, theirs = (kind(range(count), 3, rank, **keywords) for kind in (libddp.torch.DistributedSampler, theirs_kind))
                    self.assertIsInstance(ours, theirs_kind)
                    self.assertEqual({name: getattr(ours, name) for name in vars(theirs)}, vars(theirs))
                    for epoch in (0, 2):
                        ours.set_epoch(epoch), theirs.set_epoch(epoch)
                        self.assertEqual((list(ours), len(ours)), (list(theirs), len(theirs)))
                    ours.set_epoch(2, start=1)
                    self.assertEqual((list(ours), len(ours)), (list(theirs)[1:], len(theirs) - 1))

    def test_the_frozen_order(self):
        for keywords in ({"shuffle": True, "seed": 5}, {"drop_last": True}):
            for rank in range(3):
                sampler = libddp.torch.DistributedSampler(range(11), 3, rank, frozen=True, **keywords)
                sampler.set_epoch(4, start=1)
                wanted = libddp.Sampler(11, rank=rank, size=3, **keywords).indices(4, 1)
                self.assertEqual(list(sampler), list(wanted))
                self.assertEqual(len(sampler), len(wanted))
        with self.assertRaises(ValueError):
            libddp.torch.DistributedSampler(range(4), 2, 2)

    def test_ranks_without_torch_distributed(self):
        self.ends_well(forked(COMMON + """
from libddp.torch import DistributedSampler
seen = torch.zeros(10)
seen[list(DistributedSampler(range(10)))] += 1
assert group().all_reduce(seen, "sum").tolist() == [1] * 10
""", limit=60))


if __name__ == "__main__":
    main()
