# SPDX-License-Identifier: Apache-2.0
"""A module's tensors are looked up at each use: buffers that were replaced are still equal on all ranks, and what cannot be reduced any
more is an error. Gradients of every kind arrive."""
from support import Test, forked, main, need

need("torch", "numpy")
import libddp.torch  # noqa: E402, F401
import torch._dynamo  # noqa: E402, F401  forks have it at once, and what the first step of an optimizer imports

COMMON = """
import copy, libddp, torch
from libddp.torch import DistributedDataParallel as DDP, group
from torch import nn
rank, size = group().rank, group().size
def fails(kind, *words):
    class Fails:
        def __enter__(self): pass
        def __exit__(self, found, error, traceback):
            assert found is not None and issubclass(found, kind), f"{found}: {error}"
            for word in words:
                assert word in str(error), error
            return True
    return Fails()
class Net(nn.Module):
    def __init__(self, **buffers):
        super().__init__()
        self.linear = nn.Linear(3, 2)
        for name, buffer in buffers.items():
            self.register_buffer(name, buffer)
    def forward(self, x):
        return self.linear(x)
x = torch.ones(1, 3)
def equal_on_all_ranks(*tensors):
    for tensor in tensors:
        mine = tensor.detach().to(torch.float64).contiguous().clone()
        theirs = group().broadcast(mine.clone())
        assert torch.equal(mine, theirs), (rank, mine, theirs)
"""


class Tensors(Test):
    def run_ranks(self, program, size=2):
        return self.ends_well(forked(COMMON + program, size=size))


class Buffers(Tensors):
    def test_one_that_is_replaced_in_each_step(self):
        self.run_ranks("""
class Averaging(Net):
    def forward(self, x):
        self.avg = 0.5 * self.avg + 0.5 * x.mean(0) * (rank + 1)
        return self.linear(x)
net = DDP(Averaging(avg=torch.zeros(3)))
first, wanted = net.module.avg, torch.zeros(3)
for step in range(4):
    loss = net(x).sum()
    before = wanted                                   # rank 0's value, which all have at the start of a step
    wanted = 0.5 * before + 0.5
    assert torch.equal(net.module.avg, 0.5 * before + 0.5 * (rank + 1)), (step, net.module.avg)
    loss.backward()
    assert torch.equal(net.module.avg, wanted), (step, net.module.avg)
assert torch.equal(first, torch.zeros(3)), "what the program keeps of it is not written to"
net.model.sync_buffers()
assert torch.equal(net.module.avg, wanted)
net.model.check_replicas()
if rank == 1:
    net.module.avg = net.module.avg + 1
with fails(libddp.MismatchError, "avg"):
    net.model.check_replicas()
""")

    def test_their_data_replaced(self):
        self.run_ranks("""
net = DDP(Net(avg=torch.zeros(3)))
net.module.avg.data = torch.full((3,), rank + 1.0)
net(x)
assert net.module.avg.tolist() == [1.0] * 3
""")

    def test_registered_later_and_grown(self):
        self.run_ranks("""
net = DDP(Net(table=torch.zeros(2)))
net.module.register_buffer("late", torch.full((2, 2), float(rank)), persistent=False)
net.module.table = torch.arange(5.0) + rank
net(x)
assert net.module.late.tolist() == [[0, 0], [0, 0]] and net.module.table.tolist() == [0, 1, 2, 3, 4]
net.module.table = net.module.table.double() + rank
net(x)
assert net.module.table.dtype == torch.float64 and net.module.table.tolist() == [0, 1, 2, 3, 4]
with fails(libddp.InvalidStateError, "'table'", "float64 [5]", "float32 [2]"):
    libddp.State(net.model).save("here.st")
net.module.table = torch.ones(2)
libddp.State(net.model).save("here.st")
net.module.register_buffer("kept", torch.zeros(1))
with fails(libddp.InvalidStateError, "'kept'", "after the module was wrapped"):
    libddp.State(net.model).save("here.st")
del net.module.late, net.module.kept
net(x)
""")

    def test_every_shape_and_element_type(self):
        self.run_ranks("""
base = torch.zeros(6)
odd = dict(flag=torch.tensor([True, False]), small=torch.zeros(3, dtype=torch.int16), columns=torch.zeros(4, 4)[:, ::2], turned=torch.zeros(2, 3).t(),
           first=base[:4], last=base[2:], scalar=torch.tensor(0.0), empty=torch.zeros(0), wide=torch.zeros(3, 1).expand(3, 4),
           flags=torch.zeros(3, 4, dtype=torch.bool).t(), conjugate=torch.zeros(2, dtype=torch.complex64).conj(),
           large=torch.zeros(100000), brief=torch.zeros(3, dtype=torch.bfloat16), none=None)
net = DDP(Net(**odd))
def all_of():
    return {name: value for name, value in net.module.named_buffers()}
for turn in range(3):
    for name, value in all_of().items():
        if name == "wide":
            value[:, :1].copy_(torch.full((3, 1), rank + turn + 1.0))
        elif name != "conjugate":
            value.copy_(torch.full(value.shape, rank + turn + 1).to(value.dtype))
    net.module.conjugate = torch.full((2,), complex(rank, rank + turn + 1)).conj()
    net(x)
    for name, value in all_of().items():
        wanted = complex(0, -(turn + 1)) if name == "conjugate" else True if value.dtype == torch.bool else turn + 1
        assert bool((value == wanted).all()), (turn, name, value)
net.model.check_replicas()
libddp.State(net.model).save("odd.st")
for value in all_of().values():
    value[:, :1].zero_() if value.shape == (3, 4) and value.stride(1) == 0 else value.zero_()
libddp.State(net.model).load("odd.st")
assert net.module.turned.tolist() == [[3.0] * 2] * 3 and net.module.wide.tolist() == [[3.0] * 4] * 3
assert net.module.last.tolist() == [3] * 4 and net.module.flags.all() and net.module.conjugate[0] == complex(0, -3)
""")

    def test_frozen_parameters_of_every_element_type(self):
        """The base weights of a quantised network, beside trained ones: rank 0's bytes go to all, as those of buffers do."""
        self.run_ranks("""
dtypes = [torch.bool, torch.int8, torch.int16, torch.uint16, torch.uint32, torch.uint64, torch.float8_e4m3fn, torch.float8_e5m2]
dtypes += [found for found in (getattr(torch, name, None) for name in ("float8_e8m0fnu", "float4_e2m1fn_x2")) if found is not None]
for dtype in dtypes:
    for kind in ("parameter", "buffer"):
        net = Net()
        wanted = torch.arange(32, dtype=torch.uint8).view(4, 8) % (2 if dtype == torch.bool else 255)
        raw = (wanted + rank) % 2 if dtype == torch.bool else wanted + rank
        value = raw.bool() if dtype == torch.bool else raw.view(dtype)
        if kind == "parameter":
            net.base = nn.Parameter(value, requires_grad=False)
        else:
            net.register_buffer("base", value)
        wrapped = DDP(net)
        assert net.base.dtype == dtype and torch.equal(net.base.detach().contiguous().view(torch.uint8), wanted), (dtype, kind)
        wrapped(x).sum().backward()
        wrapped.model.check_replicas()
        wrapped.close()
""")

    def test_frozen_parameters_whose_data_are_replaced(self):
        """In each forward, as the second encoder of MoCo; also beside libddp's kernels, and with axes in another order."""
        self.run_ranks("""
class Second(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(rank)
        self.linear, self.key = nn.Linear(3, 2), nn.Linear(3, 2).requires_grad_(False)
    def forward(self, x):
        for p, q in zip(self.linear.parameters(), self.key.parameters()):
            q.data = q.data * 0.5 + p.data * 0.5
        return self.linear(x) - self.key(x)
for options in (None, dict(), dict(shard=True)):
    net = DDP(Second())
    if options is None:
        optimizer = libddp.torch.AdamW(net.parameters(), lr=0.1)
    else:
        optimizer = libddp.torch.AdamW(net.parameters(), lr=0.1, **options)
        optimizer.own
    for step in range(3):
        optimizer.zero_grad()
        net(x).pow(2).sum().backward()
        optimizer.step()
    net.model.check_replicas()
    equal_on_all_ranks(*net.module.parameters())
    value = net.module.key.weight.detach().clone()
    libddp.State(net.model).save("second.st")
    net.module.key.weight.data = torch.zeros(2, 3)
    libddp.State(net.model).load("second.st")
    assert torch.equal(net.module.key.weight, value)
    net.module.key.weight.data = torch.zeros(5)
    with fails(libddp.InvalidStateError, "parameter 'key.weight' is float32 [5] now and was float32 [2, 3]"):
        libddp.State(net.model).save("second.st")
    net.close()
module = nn.Sequential(nn.Conv2d(2, 3, 2), nn.Conv2d(3, 1, 2)).to(memory_format=torch.channels_last)
module[0].requires_grad_(False)
net = DDP(module)
for step in range(2):
    module[0].weight.data = torch.full_like(module[0].weight, step + 1.0)
    net(torch.ones(1, 2, 4, 4)).sum().backward()
net.model.check_replicas()
assert module[0].weight.eq(2).all()
""")

    def test_a_checkpoint_holds_the_values_of_now(self):
        self.run_ranks("""
net = DDP(Net(avg=torch.zeros(3), seen=torch.zeros((), dtype=torch.int64)))
net.module.avg = torch.full((3,), 7.0)
net.module.seen += 5
libddp.State(net.model).save("now.st")
net.module.avg, net.module.seen = torch.zeros(3), torch.zeros((), dtype=torch.int64)
libddp.State(net.model).load("now.st")
assert net.module.avg.tolist() == [7] * 3 and net.module.seen.item() == 5
""")

    def test_ranks_that_hold_different_buffers_learn_it_at_once(self):
        self.run_ranks("""
net = DDP(Net(avg=torch.zeros(3)))
if rank:
    net.module.avg = torch.zeros(4)
with fails(libddp.DifferentCallsError, "rank 0", "rank 1", "12 U8", "16 U8"):
    net(x)
""")

    def test_a_rank_that_is_out_of_data_follows_the_others(self):
        self.run_ranks("""
class Counting(Net):
    def forward(self, x):
        self.seen = self.seen + 1
        return self.linear(x)
net = DDP(Counting(seen=torch.zeros(1)), uneven_inputs=True)
with net.join():
    for step in range(5 if rank == 0 else 2):
        net.zero_grad()
        net(x).sum().backward()
assert net.module.seen.item() == 5, net.module.seen
net.model.check_replicas()
""")

    def test_they_are_the_same_after_a_repair(self):
        self.run_ranks("""
net = DDP(Net(avg=torch.zeros(3)), broadcast_buffers=False, check_every=1, drift="resend")
net(x).sum().backward()
if rank == 2:
    net.module.avg = torch.full((3,), 5.0)
    net.module.linear.weight.data[0, 0] += 1
net.zero_grad()
net(x).sum().backward()
assert net.model.stats()["repairs"] == 1
net.model.check_replicas()
equal_on_all_ranks(net.module.avg, net.module.linear.weight)
""", size=3)

    def test_running_statistics_are_equal_after_each_step(self):
        """So that any rank may evaluate or save."""
        self.run_ranks("""
net = DDP(nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3)))
generator = torch.Generator().manual_seed(rank)
for step in range(2):
    net(torch.randn(4, 3, generator=generator)).sum().backward()
    equal_on_all_ranks(*net.module.buffers())
assert net.module[1].running_mean.ne(0).all()
with net.no_sync():
    net(torch.randn(4, 3, generator=generator)).sum().backward()
assert len({str(group().broadcast(net.module[1].running_mean.clone(), of).tolist()) for of in range(size)}) == size
""")

    def test_frozen_parameters_do_not_travel_in_each_step(self):
        self.run_ranks("""
module = nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3))
module[0].weight.requires_grad_(False)
net = DDP(module)
if rank:
    module[0].weight.zero_()
net(torch.randn(4, 3)).sum().backward()
assert (module[0].weight == 0).all().item() == bool(rank)
""")


class Parameters(Tensors):
    def test_moved_or_of_another_type(self):
        """Lent again at the next forward; refused where an optimizer of libddp holds the old place, and by what reads it before."""
        self.run_ranks("""
for change in (lambda m: setattr(m.linear.weight, "data", torch.zeros(2, 3)), lambda m: m.double(), lambda m: m.half()):
    net = DDP(Net())
    change(net.module)
    with fails(libddp.TensorError, "was moved"):
        libddp.State(net.model).save("moved.st")
    net(x.to(net.module.linear.weight.dtype)).sum().backward()
    assert net.module.linear.weight.grad.ne(0).any() and net.module.linear.weight.grad.dtype == net.module.linear.weight.dtype
    net.model.check_replicas()
    optimizer = libddp.SGD(net.model)
    net.module.linear.weight.data = torch.zeros(2, 3, dtype=net.module.linear.weight.dtype)
    with fails(libddp.TensorError, "parameter 'linear.weight' was moved"):
        net(x.to(net.module.linear.weight.dtype)).sum().backward()
    group().close()
net = DDP(Net())
net.module.to("cpu").float()                          # changes nothing
net(x).sum().backward()
whole = net.module.linear.weight.data
for odd, words in ((whole.view(-1), ("float32 [6]", "float32 [2, 3]")), (whole[:, :2], ("not dense",))):
    net.module.linear.weight.data = odd                # at the same place
    with fails(libddp.TensorError, "'linear.weight'", *words):
        libddp.State(net.model).save("odd.st")
""")

    def test_moved_within_a_forward(self):
        """No error, unless libddp's kernels or check_every read the values; and State has what is there now, or says why not."""
        self.run_ranks("""
class Bounded(nn.Linear):
    def forward(self, x):
        self.weight.data = torch.renorm(self.weight.data, 2, 0, 0.5)
        return super().forward(x)
torch.manual_seed(3)
net = DDP(Bounded(3, 2))
for step in range(3):
    net.zero_grad()
    net(x).sum().backward()
    with torch.no_grad():
        net.module.weight -= net.module.weight.grad
equal_on_all_ranks(net.module.weight)
with fails(libddp.TensorError, "was moved"):
    libddp.State(net.model).save("bounded.st")
for make in (lambda: DDP(Bounded(3, 2), check_every=1), lambda: (net := DDP(Bounded(3, 2)), libddp.torch.SGD(net.parameters(), lr=0.1).own)[0]):
    net = make()
    with fails(libddp.TensorError, "was moved"):
        net(x).sum().backward()
""")

    def test_replaced_added_or_unfrozen(self):
        self.run_ranks("""
def new(module):
    module.linear = nn.Linear(3, 2)
def later(module):
    module.more = nn.Linear(2, 2)
def unfreeze(module):
    module.linear.weight.requires_grad_(True)
for change, name in ((new, "linear.weight"), (later, "more.weight"), (unfreeze, "linear.weight")):
    module = Net()
    module.linear.weight.requires_grad_(change is not unfreeze)
    net = DDP(module, find_unused_parameters=True)
    net(x).sum().backward()
    change(module)
    with fails(libddp.TensorError, name, "wrap the module again"):
        net(x)
    with torch.no_grad():
        net(x)                                        # evaluation goes on
    net.close()
    DDP(module)(x).sum().backward()
""")


class Gradients(Tensors):
    def test_reentrant_checkpoints(self):
        self.run_ranks("""
from torch.utils.checkpoint import checkpoint
class Blocks(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList(nn.Sequential(nn.Linear(3, 3), nn.Tanh()) for _ in range(3))
        self.first, self.unused = nn.Linear(3, 3), nn.Linear(3, 3)
    def forward(self, x):
        x = self.first(x)
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=reentrant)
        return {"hidden": (x,), "out": x.sum(1)}
torch.manual_seed(1)
for reentrant in (True, False):
    for unused in (True, False):
        module = Blocks()
        if not unused:
            module.unused = None
        elif reentrant:
            continue                               # PyTorch looks for unused parameters in a graph that such a checkpoint does not show
        net, alone = DDP(module, find_unused_parameters=unused), copy.deepcopy(module)
        for step in range(3):
            net.zero_grad(), alone.zero_grad()
            batches = [torch.randn(4, 3, generator=torch.Generator().manual_seed(10 * step + of)) for of in range(size)]
            if step == 1:
                with net.no_sync():
                    net(batches[rank])["out"].sum().backward()
            net(batches[rank])["out"].sum().backward()
            (sum(alone(batch)["out"].sum() for batch in batches) * (2 if step == 1 else 1) / size).backward()
            for ours, theirs in zip(module.parameters(), alone.parameters()):
                assert (ours.grad is None) == (theirs.grad is None)
                assert ours.grad is None or torch.allclose(ours.grad, theirs.grad, atol=1e-5), (reentrant, unused, step)
        assert net.model.stats()["passes"] == 3
        net.zero_grad()
        class Stop(Exception): pass
        def stop(grad): raise Stop
        out = net(batches[rank])
        handle = module.blocks[0][0].weight.register_hook(stop)
        with fails((Stop, libddp.Error)):
            out["out"].sum().backward()
        handle.remove()
        net(batches[rank])["out"].sum().backward()     # the next one is whole
        net.close()
""")

    def test_axes_in_another_order_in_memory(self):
        self.run_ranks("""
class Odd(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3).to(memory_format=torch.channels_last)
        self.turned, self.frozen = nn.Parameter(torch.randn(4, 3).t()), nn.Parameter(torch.randn(2, 3).t(), requires_grad=False)
    def forward(self, x):
        return (self.conv(x).pow(2).mean() + (x.mean() * self.turned).pow(2).sum()) * self.frozen.sum()
torch.manual_seed(rank)
def x(of, step):
    return torch.randn(2, 3, 6, 6, generator=torch.Generator().manual_seed(10 * step + of)).add(1).to(memory_format=torch.channels_last)
def step_both(step):
    ours.zero_grad(set_to_none=step != 1), theirs.zero_grad()
    net(x(rank, step)).backward()
    (sum(alone(x(of, step)) for of in range(size)) / size).backward()
    for a, b in zip(net.parameters(), alone.parameters()):
        assert b.grad is None or shard or torch.allclose(a.grad, b.grad, atol=1e-5), (step, a.grad - b.grad)
        assert b.grad is None or a.grad.stride() == a.stride(), (a.grad.stride(), a.stride())
    ours.step(), theirs.step()
    for a, b in zip(net.parameters(), alone.parameters()):
        assert torch.allclose(a, b, atol=1e-5), (step, a - b)
for shard in (False, True):
    net = DDP(Odd())
    alone = copy.deepcopy(net.module)
    equal_on_all_ranks(*net.parameters())
    ours = libddp.torch.AdamW(net.parameters(), shard=shard)
    theirs = torch.optim.AdamW(alone.parameters())
    for step in range(3):
        step_both(step)
    mine, original = ours.state_dict(), theirs.state_dict()
    for index, wanted in original["state"].items():
        assert torch.allclose(mine["state"][index]["exp_avg"], wanted["exp_avg"], atol=1e-6)
    ours.load_state_dict(copy.deepcopy(original)), theirs.load_state_dict(original)
    step_both(3)
    net.model.check_replicas()
    with fails(libddp.NotSupportedError, "'conv.weight'", "channels_last"):
        libddp.State(net.model).save("odd.st")
other = DDP(Odd())
other.module.conv.weight.data = torch.zeros(4, 3, 3, 3).to(memory_format=torch.channels_last)
other(x(rank, 0)).backward()                         # lent again
assert other.module.conv.weight.grad.ne(0).any()
""")

    def test_wrappers_in_a_wrapper(self):
        """The parameters of the inner one are its own; both are open at once, as those of a generator and a discriminator are."""
        self.run_ranks("""
torch.manual_seed(1)
def x(of, step):
    return torch.randn(5, 3, generator=torch.Generator().manual_seed(10 * step + of))
inner = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4, track_running_stats=False, affine=False))
outer = nn.Sequential(DDP(inner), nn.Linear(4, 2))
alone = [copy.deepcopy(inner), copy.deepcopy(outer[1])]
net = DDP(outer)
for step in range(3):
    net.zero_grad(), [part.zero_grad() for part in alone]
    net(x(rank, step)).pow(2).mean().backward()
    (sum(alone[1](alone[0](x(of, step))).pow(2).mean() for of in range(size)) / size).backward()
    for ours, theirs in zip(net.parameters(), [*alone[0].parameters(), *alone[1].parameters()]):
        assert torch.allclose(ours.grad, theirs.grad, atol=1e-6)
""")

    def test_a_module_that_two_reentrant_checkpoints_use(self):
        self.run_ranks("""
from torch.utils.checkpoint import checkpoint
class Shared(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(3, 3)
    def forward(self, x):
        return checkpoint(self.linear, checkpoint(self.linear, x, use_reentrant=True), use_reentrant=True)
net = DDP(Shared())
with fails(libddp.InvalidStateError, "came twice in one pass", "static_graph=True"):
    net(torch.ones(1, 3, requires_grad=True)).sum().backward()
""")

    def test_distributed_checkpoints_of_the_module(self):
        self.run_ranks("""
import warnings
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
warnings.simplefilter("ignore")
net = DDP(nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4)))
for make in (torch.optim.AdamW, libddp.torch.AdamW):
    optimizer = make(net.parameters())
    net(torch.randn(5, 3)).sum().backward()
    optimizer.step()
    of_model, of_optimizer = copy.deepcopy(get_state_dict(net.module, optimizer))
    assert of_model.keys() == net.state_dict().keys() and "1.running_mean" in of_model
    assert of_optimizer["state"].keys() == {name for name, _ in net.module.named_parameters()}
    kept = of_optimizer["state"]["0.weight"]["exp_avg"]
    net(torch.randn(5, 3)).sum().backward()
    optimizer.step()
    set_state_dict(net.module, optimizer, model_state_dict=dict(of_model), optim_state_dict=copy.deepcopy(of_optimizer))
    assert all(torch.equal(value, of_model[name]) for name, value in net.state_dict().items())
    assert torch.equal(get_state_dict(net.module, optimizer)[1]["state"]["0.weight"]["exp_avg"], kept)
""")


if __name__ == "__main__":
    main()
