# SPDX-License-Identifier: Apache-2.0
"""Sparse gradients stay sparse, and are those of PyTorch's wrapper over Gloo. Buffers are sent once a step."""
from support import Test, forked, main, need

need("torch", "numpy")
import libddp.torch  # noqa: E402, F401
import torch._dynamo  # noqa: E402, F401  forks have it at once, and what the first step of an optimizer imports

COMMON = """
import copy, libddp, torch
import torch.distributed as dist
from libddp.torch import DistributedDataParallel as DDP, AdamW, group
from torch import nn
class Table(nn.Module):
    def __init__(self, kind=nn.Embedding):
        super().__init__()
        self.table, self.linear, self.other = kind(50, 3, sparse=True), nn.Linear(3, 1), nn.Linear(3, 1)
    def forward(self, index, uses_table=True, uses_other=True):
        rows = self.table(index) if uses_table else torch.ones(2, 3)
        return self.linear(rows) + (self.other(rows) if uses_other else 0)
torch.manual_seed(1)
def rows(step, of):
    \"\"\"Other numbers of rows on each rank, with repetitions and with some that several ranks have.\"\"\"
    return torch.randint(0, 12 if step % 2 else 50, (1 + 3 * of + step,), generator=torch.Generator().manual_seed(10 * step + of))
def optimizers_of(module):
    return torch.optim.SparseAdam(module.table.parameters(), lr=0.1), torch.optim.Adam([*module.linear.parameters(), *module.other.parameters()], lr=0.01)
def same(a, b):
    a, b = (each.coalesce() if each.is_sparse else each for each in (a, b))
    assert a.is_sparse == b.is_sparse
    return torch.equal(a.indices(), b.indices()) and torch.equal(a.values(), b.values()) if a.is_sparse else torch.equal(a, b)
def fails(kind, text, call):
    try:
        call()
    except kind as error:
        assert text in str(error), error
    else:
        raise SystemExit("no error")
def average_of(module, gradients):
    \"\"\"Of sparse gradients by rank, as a dense tensor.\"\"\"
    return sum(each.to_dense() for each in gradients) / size
"""
GLOO = COMMON + """
dist.init_process_group("gloo")
rank, size = group().rank, group().size
Theirs = nn.parallel.DistributedDataParallel
"""
ALONE = COMMON + """
rank, size = group().rank, group().size
"""


class Sparse(Test):
    def run_ranks(self, program, size=2, common=GLOO):
        return self.ends_well(forked(common + program, size=size, limit=120))

    def test_bits_of_gloo_with_sparse_adam(self):
        self.run_ranks("""
net = DDP(Table())
theirs = Theirs(copy.deepcopy(net.module))
pairs = [(net, optimizers_of(net.module)), (theirs, optimizers_of(theirs.module))]
for step in range(6):
    for wrapper, optimizers in pairs:
        for optimizer in optimizers:
            optimizer.zero_grad(set_to_none=step != 3)
        if step % 3 == 1:
            with wrapper.no_sync():
                wrapper(rows(step + 20, rank)).pow(2).mean().backward()
        wrapper(rows(step, rank)).pow(2).mean().backward()
    for mine, wanted in zip(net.module.parameters(), theirs.module.parameters()):
        assert same(mine.grad, wanted.grad), step
    for wrapper, optimizers in pairs:
        for optimizer in optimizers:
            optimizer.step()
    assert all(map(torch.equal, net.module.parameters(), theirs.module.parameters())), step
assert net.module.table.weight.grad.is_sparse
net.model.check_replicas()
assert net.model.stats()["gradient_bytes"] < net.module.table.weight.nbytes, "the table has no dense gradient"
""")

    def test_three_ranks_and_bags(self):
        self.run_ranks("""
net = DDP(Table(lambda *a, **k: nn.EmbeddingBag(*a, mode="sum", **k)))
theirs = Theirs(copy.deepcopy(net.module))
for step in range(3):
    for wrapper in (net, theirs):
        wrapper.zero_grad()
        wrapper(rows(step, rank)[None].expand(2, -1)).pow(2).mean().backward()
    mine, wanted = (each.module.table.weight.grad for each in (net, theirs))
    assert mine.is_sparse and torch.allclose(mine.to_dense(), wanted.to_dense(), rtol=1e-6, atol=1e-7)
""", size=3)

    def test_a_rank_without_rows(self):
        """It, or all, may leave the table out; the oracle has the dense gradients of all ranks."""
        self.run_ranks("""
net, alone = DDP(Table(), find_unused_parameters=True), Table()
for step, users in enumerate(([0], [], [1], [0, 1])):
    alone.load_state_dict(net.state_dict())
    net.zero_grad(), alone.zero_grad()
    net(rows(step, rank), rank in users).pow(2).mean().backward()
    for of in range(size):
        (alone(rows(step, of), of in users).pow(2).mean() / size).backward()
    mine, wanted = net.module.table.weight.grad, alone.table.weight.grad
    assert (mine is None) == (wanted is None) == (not users), step
    if users:
        assert mine.is_sparse and torch.allclose(mine.to_dense(), wanted.to_dense(), atol=1e-7), step
    torch.optim.SGD(net.parameters(), lr=0.1).step()
net.model.check_replicas()
# without find_unused_parameters it is an error on all ranks, and the next pass is a good one
net = DDP(Table())
import warnings
warnings.simplefilter("ignore")
for leaves in ({"uses_table": rank != 0}, {"uses_other": rank != 0}):
    net.zero_grad()
    net(rows(1, rank), **leaves).sum().backward()
    fails(libddp.InvalidStateError, "table.weight (sparse gradient)" if "uses_table" in leaves else "other.weight", lambda: net(rows(1, rank)))
    net.zero_grad()
    net(rows(1, rank)).sum().backward()
    everybody = [torch.zeros(50, 3) for _ in range(size)]
    mine = net.module.table.weight.grad.to_dense()
    assert torch.equal(mine, group().broadcast(mine.clone()))
""", common=ALONE)

    def test_ranks_that_run_out_of_data(self):
        self.run_ranks("""
for by_world in (True, False):
    net = DDP(Table())
    theirs = Theirs(copy.deepcopy(net.module))
    for wrapper in (net, theirs):
        optimizers = optimizers_of(wrapper.module)
        with wrapper.join(divide_by_initial_world_size=by_world):
            for step in range(2 + 2 * rank):
                wrapper.zero_grad()
                wrapper(rows(step, rank)).pow(2).mean().backward()
                for optimizer in optimizers:
                    optimizer.step()
    # Gloo's sums of sparse tensors leave PyTorch's wrapper divided by the whole world
    for mine, wanted in zip(net.module.parameters(), theirs.module.parameters()):
        assert torch.equal(mine, group().broadcast(mine.detach().clone()))
        assert not by_world or torch.allclose(mine, wanted, atol=1e-6), by_world
    net.model.check_replicas()
""")

    def test_two_wrappers_in_one_pass(self):
        """As of a generator and a discriminator: what follows a pass waits for the end of both."""
        self.run_ranks("""
class First(nn.Module):
    def __init__(self):
        super().__init__()
        self.table, self.norm = nn.Embedding(10, 3, sparse=True), nn.BatchNorm1d(3)
    def forward(self, index):
        return self.norm(self.table(index))
first, second = DDP(First()), DDP(nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3)))
alone = copy.deepcopy(first.module), copy.deepcopy(second.module)
for step in range(3):
    for module in (first, second, *alone):
        module.zero_grad()
    second(first(rows(1, rank) % 10)).pow(2).sum().backward()
    for of in range(size):
        (alone[1](alone[0](rows(1, of) % 10)).pow(2).sum() / size).backward()
    mine, wanted = first.module.table.weight.grad, alone[0].table.weight.grad
    assert mine.is_sparse and torch.allclose(mine.to_dense(), wanted.to_dense(), atol=1e-5), step
    for buffer in (*first.module.buffers(), *second.module.buffers()):
        assert torch.equal(buffer, group().broadcast(buffer.clone())), step
""", common=ALONE)

    def test_what_does_not_go_together(self):
        self.run_ranks("""
fails(libddp.NotSupportedError, "uneven_inputs does not work with sparse gradients", lambda: DDP(Table(), uneven_inputs=True))
net = DDP(Table())
fails(libddp.NotSupportedError, "SparseAdam", lambda: AdamW(net.parameters(), shard=True))
for make in (libddp.Adam, libddp.SGD, lambda model: libddp.Ema(model, 0.9)):
    fails(libddp.NotSupportedError, "'table.weight', whose gradient is sparse", lambda: make(net.model))
# libddp's optimizer for the dense ones, PyTorch's for the table
optimizers = AdamW(net.module.linear.parameters(), lr=0.01), torch.optim.SparseAdam(net.module.table.parameters(), lr=0.1)
before = [p.detach().clone() for p in net.module.parameters()]
net(rows(1, rank)).pow(2).mean().backward()
for optimizer in optimizers:
    optimizer.step()
changed = [not torch.equal(was, p) for was, p in zip(before, net.module.parameters())]
assert changed == [True, True, True, False, False], changed
net.model.check_replicas()
# a table that is used as a dense one too
class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(6, 3, sparse=True)
    def forward(self, index):
        return self.table(index) @ self.table.weight.t()
net, alone = DDP(Tied()), Tied()
alone.load_state_dict(net.state_dict())
net(torch.tensor([rank, 3])).pow(2).sum().backward()
for of in range(size):
    (alone(torch.tensor([of, 3])).pow(2).sum() / size).backward()
mine, wanted = net.module.table.weight.grad, alone.table.weight.grad
assert not mine.is_sparse and torch.allclose(mine, wanted, atol=1e-5)
""", common=ALONE)


class Buffers(Test):
    def test_one_message_a_step(self):
        self.ends_well(forked(ALONE + """
sent, send = [], libddp.Group.broadcast
def counted(self, tensor, *arguments, **keywords):
    sent.append(tensor.nbytes)
    return send(self, tensor, *arguments, **keywords)
libddp.Group.broadcast = counted
net = DDP(nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4)))
size_of_all = sum(buffer.nbytes for buffer in net.module.buffers())
x = torch.randn(6, 3) + rank
assert sent == []
for step in range(5):
    net(x).sum().backward()
    mine = torch.cat([buffer.double().reshape(-1) for buffer in net.module.buffers()])
    assert torch.equal(mine, send(group(), mine.clone())), "an evaluation or file of any rank has the same"
    if rank == 1:
        net.eval(), net(x), net.train()                 # alone
assert sent == [size_of_all] * (5 + 1), sent            # before the first computation, and at the end of each pass
sent.clear()
first = net(x)                                          # nothing was computed since the pass ended
(first.sum() + net(x).sum()).backward()                 # before the second one, as with PyTorch's wrapper; and at the end
assert sent == [size_of_all] * 2, sent
sent.clear()
with net.no_sync():
    net(x).sum().backward()
assert sent == [], sent
net(x).sum().backward()
assert sent == [size_of_all], sent
libddp.State(net.model).save("here.st")
net.module[1].running_mean += rank
libddp.State(net.model).load("here.st")
sent.clear()
net(x)                                                  # a load may have changed them
assert sent == [size_of_all], sent
""", size=2))


if __name__ == "__main__":
    main()
