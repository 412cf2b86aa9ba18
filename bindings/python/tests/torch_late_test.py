# SPDX-License-Identifier: Apache-2.0
"""libddp.torch's optimizers with late_values, beside PyTorch's own wrapper and the ordinary sharded step. Pages of values that no module has waited
for have no access (DDP_GUARD_VALUES), so a missing wait ends the program."""
import os

from support import Test, forked, main, need

need("torch", "numpy")
os.environ["DDP_GUARD_VALUES"] = "1"
import libddp.torch  # noqa: E402, F401
import torch._dynamo  # noqa: E402, F401
import torch.utils.checkpoint  # noqa: E402, F401

COMMON = """
import copy, io, os, pickle, libddp, torch
import torch.distributed as dist
from torch import nn
from torch.utils.checkpoint import checkpoint
from libddp.torch import DistributedDataParallel as DDP, AdamW, group
dist.init_process_group("gloo", init_method="file://" + os.path.join(os.getcwd(), "meet"), rank=int(os.environ["RANK"]), world_size=int(os.environ["WORLD_SIZE"]))
rank, size = group().rank, group().size
W = 64  # a square of it is four pages
class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        # Without the bias of keys, whose gradient is rounding alone, which Adam makes large.
        self.into, self.attention, self.out = nn.Linear(W, W), nn.MultiheadAttention(W, 4, bias=False, batch_first=True), nn.Linear(W, W)
    def forward(self, x):
        x = self.into(x)
        return self.out(self.attention(x, x, x, need_weights=False)[0])
class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding, self.hidden, self.head = nn.Embedding(W, W), nn.Linear(W, W), nn.Linear(W, W, bias=False)
        self.head.weight = self.embedding.weight
    def forward(self, x):
        return self.head(torch.relu(self.hidden(self.embedding(x.abs().mul(10).long() % W))))
class Used(nn.Module):  # a weight that is used without a call of its module
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(W, W) for _ in range(3))
    def forward(self, x):
        for layer in self.layers:
            x = torch.relu(nn.functional.linear(x, layer.weight, layer.bias))
        return x
class Checkpointed(nn.Module):
    def __init__(self, reentrant):
        super().__init__()
        self.blocks, self.reentrant = nn.ModuleList(nn.Sequential(nn.Linear(W, W), nn.Tanh(), nn.Linear(W, W)) for _ in range(3)), reentrant
    def forward(self, x):
        x = x.requires_grad_()
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=self.reentrant)
        return x
def x(step, of):
    return torch.randn(2, 5, W, generator=torch.Generator().manual_seed(10 * step + of))
def train(make, wrap, make_optimizer, steps=5, between=lambda net: None):
    torch.manual_seed(3)
    net = wrap(make())
    optimizer = make_optimizer(net)
    for step in range(steps):
        optimizer.zero_grad()
        net(x(step, rank)).pow(2).mean().backward()
        optimizer.step()
        between(net)
    return net, optimizer
def ours(**options):
    return lambda net: AdamW(net.parameters(), lr=0.01, shard=True, **options)
def values(net):
    return {name: value.clone() for name, value in net.module.state_dict().items()}
def check(make, wrap=DDP, between=lambda net: None):
    theirs, _ = train(make, nn.parallel.DistributedDataParallel, lambda net: torch.optim.AdamW(net.parameters(), lr=0.01))
    plain, _ = train(make, wrap, ours())
    late, optimizer = train(make, wrap, ours(late_values=True), between=between)
    expected, ordinary, found = values(theirs), values(plain), values(late)
    for name in expected:
        assert torch.equal(ordinary[name], found[name]), name
        assert torch.allclose(expected[name], found[name], atol=1e-5), name
    return late, optimizer
"""


class Late(Test):
    def run_ranks(self, program, size=2):
        return self.ends_well(forked(COMMON + program, size=size, limit=120))

    def test_multihead_attention(self):
        self.run_ranks("check(Attention)\ncheck(Attention, lambda module: DDP(module, own_values=True))")

    def test_tied_weights(self):
        self.run_ranks("check(Tied)")

    def test_modules_that_are_not_called(self):
        self.run_ranks("check(Used)")

    def test_activation_checkpoints(self):
        self.run_ranks("for reentrant in (False, True): check(lambda: Checkpointed(reentrant))")

    def test_compiled(self):
        self.run_ranks("""
check(lambda: torch.compile(Attention(), backend="eager"))
check(Tied, lambda module: DDP(module), between=lambda net: net.module.compile(backend="eager") if net.module._compiled_call_impl is None else None)
""")

    def test_what_reads_values_waits(self):
        self.run_ranks("""
def read(net):
    net.module.state_dict()["into.weight"].sum()
def read_part(net):
    net.module.attention.state_dict()["out_proj.weight"].sum()
def evaluate(net):
    with torch.no_grad():
        net.module.attention(*[x(0, rank)] * 3)
        net(x(1, rank))
def load(net):
    state = {name: value.clone() for name, value in net.state_dict().items()}
    net.load_state_dict(state)
def copy_it(net):
    again = pickle.loads(pickle.dumps(net.module.into))
    again(x(0, rank)).sum()
    copy.deepcopy(net.module)(x(0, rank)).sum()
def ready(net):
    net.model.wait_value(0)
    assert net.model.value_ready(0)
    net.model.wait_values()
    sum(p.sum() for p in net.parameters())
for between in (read, read_part, evaluate, load, ready):
    check(Attention, between=between)
net, optimizer = check(Attention, between=lambda net: net.model.check_replicas())
state = optimizer.state_dict()
copy_it(net)
net.close()
""")

    def test_a_read_without_a_wait_faults(self):
        result = forked(COMMON + """
net, optimizer = train(Attention, DDP, ours(late_values=True))
net.module.into.weight.sum().item()
print("went on")
""", size=2, limit=60)
        self.assertIn("-11", result.stderr)
        self.assertNotIn("went on", result.stdout)


if __name__ == "__main__":
    main()
