# SPDX-License-Identifier: Apache-2.0
"""The PyTorch adapter does what torch.nn.parallel.DistributedDataParallel does."""
import os

from support import SOURCE, Test, forked, main, need, python

need("torch", "numpy")
import torch._dynamo  # noqa: E402, F401  forks have it at once, and what the first step of an optimizer imports

COMMON = """
import libddp, torch
from libddp.torch import DistributedDataParallel as DDP, group
from torch import nn
torch.manual_seed(group().rank)          # so that only the broadcast makes replicas equal
rank, size = group().rank, group().size
def batch(step, of):
    generator = torch.Generator().manual_seed(1000 * step + of)
    return torch.randn(4, 6, generator=generator), torch.randn(4, 2, generator=generator)
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.norm, self.last = nn.Linear(6, 5), nn.BatchNorm1d(5, track_running_stats=True), nn.Linear(5, 2)
        self.register_buffer("flag", torch.tensor([True, False]))
    def forward(self, x):
        return self.last(torch.relu(self.first(x)))
def loss_of(net, step, of):
    x, y = batch(step, of)
    return ((net(x) - y) ** 2).mean()
"""


class Wrapper(Test):
    def run_ranks(self, program, size=2):
        return self.ends_well(forked(COMMON + program, size=size, limit=120))

    def test_it_trains_as_one_process_with_all_batches_does(self):
        self.run_ranks("""
net = DDP(Net(), bucket_cap_mb=0.0001, find_unused_parameters=True)
import copy
alone = copy.deepcopy(net.module)
optimizers = [torch.optim.SGD(m.parameters(), lr=0.1, momentum=0.9) for m in (net, alone)]
for step in range(5):
    for optimizer in optimizers:
        optimizer.zero_grad(set_to_none=step % 2 == 0)
    loss_of(net, step, rank).backward()
    (sum(loss_of(alone, step, of) for of in range(size)) / size).backward()
    for ours, theirs in zip(net.parameters(), alone.parameters()):
        assert (ours.grad is None) == (theirs.grad is None)
        assert ours.grad is None or torch.allclose(ours.grad, theirs.grad, atol=1e-6)
    for optimizer in optimizers:
        optimizer.step()
net.model.check_replicas()
assert net.model.stats()["buckets"] > 1
assert net.module.norm.weight.grad is None
""")

    def test_gradients_are_the_buckets_memory(self):
        self.run_ranks("""
net = DDP(nn.Linear(6, 2), gradient_as_bucket_view=True)
for _ in range(2):
    for set_to_none in (True, False):
        net.zero_grad(set_to_none=set_to_none)
        loss_of(net, 0, rank).backward()
        for index, p in enumerate(net.parameters()):       # one memory, at two addresses
            p.grad[0] = 7
            assert torch.equal(p.grad, torch.from_dlpack(net.model.grad(index)).view(p.shape))
kept = net.module.weight.grad
net.close()
kept.fill_(3)                                              # it is this process's own now, and what lives in libddp's memory is another's
other = DDP(nn.Linear(6, 2))
loss_of(other, 0, rank).backward()
assert kept.eq(3).all()
""")

    def test_no_sync_accumulates(self):
        self.run_ranks("""
net = DDP(nn.Linear(6, 2))
import copy
alone = copy.deepcopy(net.module)
with net.no_sync():
    loss_of(net, 0, rank).backward()
    loss_of(net, 1, rank).backward()
loss_of(net, 2, rank).backward()
sum(loss_of(alone, step, of) / size for step in range(3) for of in range(size)).backward()
for ours, theirs in zip(net.parameters(), alone.parameters()):
    assert torch.allclose(ours.grad, theirs.grad, atol=1e-6)
assert net.model.stats()["passes"] == 1
""")

    def test_unused_parameters_are_named(self):
        self.run_ranks("""
import warnings
net, other = DDP(Net()), nn.Linear(2, 2)
optimizers = [torch.optim.SGD(net.parameters(), lr=1.0), libddp.SGD(net.model, rate=1.0)]
before = [p.detach().clone() for p in net.parameters()]
calls = [optimizers[0].step, lambda: net(batch(0, rank)[0]), optimizers[1].step]
for call in calls:                                   # what would use the gradients of this rank alone
    net.zero_grad()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        loss_of(net, 0, rank).backward()
    assert [w.category for w in caught] == [RuntimeWarning] and "norm.weight" in str(caught[0].message), caught
    other(torch.ones(1, 2)).sum().backward()
    torch.optim.SGD(other.parameters(), lr=1.0).step()
    try:
        call()
    except libddp.InvalidStateError as error:
        assert call is calls[2] or 'rank 1 did not mark "norm.weight"' in str(error), error
    else:
        raise SystemExit("no error")
    assert all(torch.equal(a, b) for a, b in zip(before, net.parameters()))
    net._unreduced = None
net.zero_grad()
(loss_of(net, 0, rank) + net.module.norm.weight.sum() + net.module.norm.bias.sum()).backward()
optimizers[0].step()                                 # said once; training goes on
net.model.check_replicas()
""")

    def test_a_static_graph(self):
        """Buckets do not wait for parameters that were unused in the first pass, parameters may come several times, and a change is an error."""
        self.run_ranks("""
import copy
from torch.utils.checkpoint import checkpoint
class Static(nn.Module):
    def __init__(self):
        super().__init__()
        self.shared, self.unused, self.last, self.reentrant = nn.Linear(6, 6), nn.Linear(6, 6), nn.Linear(6, 2), True
    def forward(self, x, more=False, less=False):
        for _ in range(2):
            x = torch.tanh(checkpoint(self.shared, x, use_reentrant=self.reentrant))
        return self.last(self.unused(x) if more else x) if not less else x.sum(1, keepdim=True)
torch.manual_seed(2)
alone = Static()
net = DDP(copy.deepcopy(alone), static_graph=True, bucket_cap_mb=0.0001)
alone.reentrant = False
x, y = batch(0, rank)
x.requires_grad_()
for step in range(4):
    net.zero_grad(), alone.zero_grad()
    if step in (0, 2):
        with net.no_sync():
            ((net(x) - y) ** 2).mean().backward()
    ((net(x) - y) ** 2).mean().backward()
    (sum(((alone(batch(0, of)[0]) - batch(0, of)[1]) ** 2).mean() for of in range(size)) / size * (2 if step in (0, 2) else 1)).backward()
    for (name, ours), theirs in zip(net.module.named_parameters(), alone.parameters()):
        assert (ours.grad is None) == (theirs.grad is None), name
        assert ours.grad is None or torch.allclose(ours.grad, theirs.grad, atol=1e-6), (step, name)
def fails(text, call):
    try:
        call()
    except (libddp.InvalidStateError, RuntimeError) as error:
        assert text in str(error), error
    else:
        raise SystemExit("no error")
import warnings
warnings.simplefilter("ignore")
if rank:
    net(x, less=True).sum().backward()
    fails("indices which did not receive grad for rank 1: 4 5", lambda: net(x))
else:
    fails("abandoned the pass: its training graph", lambda: net(x).sum().backward())
net.zero_grad()
net(x).sum().backward()
""")

    def test_a_parameter_that_only_another_rank_used(self):
        self.run_ranks("""
class Part(Net):
    def forward(self, x):
        return self.first(x) if rank else super().forward(x)
net = DDP(Part(), find_unused_parameters=True, broadcast_buffers=False)
for step in range(2):
    net.zero_grad()
    net(batch(step, rank)[0]).sum().backward()
    assert net.module.last.weight.grad is not None and net.module.norm.weight.grad is None
net.model.check_replicas()
""")

    def test_names_and_states(self):
        self.run_ranks("""
net = DDP(Net())
state = net.state_dict()
assert list(state) == list(net.module.state_dict()) and "first.weight" in state
net.load_state_dict({"module." + name: value + 0 if value.dtype != torch.bool else value for name, value in state.items()})
net.load_state_dict(state)
libddp.State(net.model).save("here.safetensors")
assert net.model.names == tuple(name for name, _ in net.module.named_parameters())
""")

    def test_buffers_follow_rank_0_in_training_alone(self):
        self.run_ranks("""
class Counting(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(6, 2)
        self.register_buffer("seen", torch.zeros(1))
    def forward(self, x):
        self.seen += rank + 1
        return self.linear(x)
net = DDP(Counting())
net(batch(0, rank)[0])
net(batch(0, rank)[0])
assert net.module.seen.item() == 1 + rank + 1, net.module.seen   # rank 0's 1 was sent before the second
net.eval()
if rank == 0:
    net(batch(0, rank)[0])                                        # nobody else comes
""")

    def test_a_parameter_that_was_moved_is_lent_again(self):
        self.run_ranks("""
net = DDP(nn.Linear(6, 2))
loss_of(net, 0, rank).backward()
with torch.no_grad():
    net.module.weight.data = torch.full((2, 6), float(rank))
net.zero_grad()
loss_of(net, 0, rank).backward()
assert net.module.weight.eq(0).all() and net.module.weight.grad.ne(0).any()
net.double()
net(batch(0, rank)[0].double()).sum().backward()
assert net.module.weight.grad.dtype == torch.float64
net.model.check_replicas()
""")

    def test_a_parameter_that_was_moved_under_an_optimizer_of_libddp(self):
        self.run_ranks("""
net = DDP(nn.Linear(6, 2))
optimizer = libddp.SGD(net.model)
net.module.weight.data = torch.zeros(2, 6)
try:
    loss_of(net, 0, rank).backward()
except libddp.TensorError as error:
    assert "parameter 'weight' was moved" in str(error), error
else:
    raise SystemExit("no error")
""")

    def test_an_exception_in_backward_reaches_the_other_ranks(self):
        self.run_ranks("""
class Fails(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.clone()
    @staticmethod
    def backward(ctx, grad):
        if rank == 1 and failing:
            raise ZeroDivisionError("here")
        return grad
class Failing(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(6, 2), nn.Linear(2, 2)
    def forward(self, x):
        x = Fails.apply(self.first(x)) if early else self.first(x)
        return self.last(x) if early else Fails.apply(self.last(x))
for early in (True, False):                # after some gradients, and before the first one
    for bucket in (0.00001, 1):
        net = DDP(Failing(), bucket_cap_mb=bucket)
        for turn in range(2):
            failing = True
            try:
                net(batch(0, rank)[0]).sum().backward()
                raise SystemExit("no error")
            except ZeroDivisionError:
                assert rank == 1
                failing = False
                net.forward(batch(0, rank)[0])         # the next forward leaves the open pass
            except libddp.InvalidStateError as error:
                assert rank == 0 and "rank 1" in str(error), error
            failing = False
            net.zero_grad()
            loss_of(net, 1, rank).backward()           # and training goes on
            mine = net.module.last.weight.grad.clone()
            assert torch.equal(mine, group().broadcast(mine.clone()))
""")

    def test_unequal_data(self):
        self.run_ranks("""
net = DDP(nn.Linear(6, 2), uneven_inputs=True)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
with net.join():
    for step in range(2 + rank):
        optimizer.zero_grad()
        loss_of(net, step, rank).backward()
        optimizer.step()
net.model.check_replicas()
""")

    def test_closing_leaves_the_module_whole(self):
        self.run_ranks("""
module = nn.Linear(6, 2)
net = DDP(module)
loss_of(net, 0, rank).backward()
before = [p.grad.clone() for p in module.parameters()]
net.close()
assert all(torch.equal(p.grad, g) for p, g in zip(module.parameters(), before))
loss_of(module, 0, rank).backward()
""")

    def test_bfloat16(self):
        self.run_ranks("""
net = DDP(nn.Linear(6, 2).to(torch.bfloat16))
net(torch.full((1, 6), float(rank), dtype=torch.bfloat16)).sum().backward()
assert net.module.weight.grad.tolist() == [[0.5] * 6] * 2
""")

    def test_batch_normalisation_over_all_ranks(self):
        self.run_ranks("""
import copy
from libddp.torch import SyncBatchNorm
torch.manual_seed(3)
alone = nn.Sequential(nn.Conv1d(2, 3, 1), nn.BatchNorm1d(3), nn.ReLU(), nn.Conv1d(3, 1, 1), nn.BatchNorm1d(1, momentum=None))
net = DDP(SyncBatchNorm.convert_sync_batchnorm(copy.deepcopy(alone)))
assert list(net.state_dict()) == list(alone.state_dict())
for step in range(3):
    whole = torch.randn(4, 2, 5, generator=torch.Generator().manual_seed(step))
    for module, x in ((net, whole[2 * rank:2 * rank + 2]), (alone, whole)):
        module.zero_grad()
        module(x).pow(3).mean().backward()
    for (name, ours), theirs in zip(net.module.named_parameters(), alone.parameters()):
        assert torch.allclose(ours.grad, theirs.grad, atol=1e-5), (name, ours.grad, theirs.grad)
for (name, ours), theirs in zip(net.module.named_buffers(), alone.buffers()):
    assert torch.allclose(ours, theirs, atol=1e-6), (name, ours, theirs)
net.eval(), alone.eval()
assert torch.allclose(net(whole), alone(whole), atol=1e-5)
""")

    def test_a_data_loader(self):
        self.run_ranks("""
from libddp.torch import DistributedSampler
from torch.utils.data import DataLoader, TensorDataset
data = TensorDataset(torch.arange(10.0))
sampler = DistributedSampler(data, seed=3)
seen = torch.zeros(10)
for epoch in range(2):
    sampler.set_epoch(epoch)
    for (part,) in DataLoader(data, batch_size=2, sampler=sampler, num_workers=1):   # workers are forked
        seen[part.long()] += 1
group().all_reduce(seen, "sum")
assert seen.tolist() == [2] * 10, seen
sampler.set_epoch(0, start=3)
assert len(sampler) == 2 == len(list(sampler))
""")

    def test_16_bits_on_the_wire(self):
        self.run_ranks("""
net = DDP(nn.Linear(6, 2), wire="bf16")
net(torch.full((1, 6), float(rank))).sum().backward()
assert net.module.weight.grad.tolist() == [[0.5] * 6] * 2
""")

    def test_the_digits(self):
        out = self.ends_well(python(os.path.join(SOURCE, "examples/python/digits_torch.py"), size=2, limit=200))
        self.assertRegex(out, r"test accuracy 9[6-9]\.")


if __name__ == "__main__":
    main()
