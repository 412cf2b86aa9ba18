# SPDX-License-Identifier: Apache-2.0
"""libddp.torch.SGD, Adam and AdamW with libddp's kernels, beside torch.optim's: steps, groups, schedulers, GradScaler, what comes too late, and states
that go to torch.optim and back. torch_steps_test.py has those without them."""
from support import Test, forked, main, need

need("torch", "numpy")
import libddp.torch  # noqa: E402, F401
import torch._dynamo  # noqa: E402, F401  forks have it at once, and what the first step of an optimizer imports

COMMON = """
import copy, io, libddp, torch
from torch import nn
from libddp.torch import DistributedDataParallel as DDP, Adam, AdamW, SGD, group
rank, size = group().rank, group().size
torch.manual_seed(3)
def pair(make_ours, make_theirs, **how):
    net = DDP(nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2)), **how)
    alone = copy.deepcopy(net.module)
    return net, alone, make_ours(net), make_theirs(alone)
def x(of, step):
    return torch.randn(5, 3, generator=torch.Generator().manual_seed(10 * step + of))
def step_both(net, alone, ours, theirs, step, between=lambda parameters: None):
    ours.zero_grad(), theirs.zero_grad()
    net(x(rank, step)).pow(2).mean().backward()
    for of in range(size):
        (alone(x(of, step)).pow(2).mean() / size).backward()
    between(list(net.parameters())), between(list(alone.parameters()))
    ours.step(), theirs.step()
def close(net, alone):
    return all(torch.allclose(a, b, atol=1e-6) for a, b in zip(net.module.parameters(), alone.parameters()))
def fails(kind, text, call):
    try:
        call()
    except kind as error:
        assert text in str(error), error
    else:
        raise SystemExit("no error")
"""


class Optimizers(Test):
    def run_ranks(self, program, size=2):
        return self.ends_well(forked(COMMON + program, size=size, limit=120))

    def test_steps_groups_and_schedulers(self):
        self.run_ranks("""
def groups(module):
    return [{"params": [module[0].weight], "weight_decay": 0.1}, {"params": [module[0].bias], "lr": 0.002, "weight_decay": 0},
            {"params": [module[2].weight], "lr": 0.0}]
cases = [(AdamW, torch.optim.AdamW, dict(lr=0.01, betas=(0.8, 0.99))), (Adam, torch.optim.Adam, dict(lr=0.01, weight_decay=0.1)), (SGD, torch.optim.SGD, dict(lr=0.05, momentum=0.9, nesterov=True)),
         (SGD, torch.optim.SGD, dict(lr=0.05, weight_decay=0.01))]
for own, original, keywords in cases:
    for more in ({}, {"max_norm": 1e9}, {"in_backward": True}, {"shard": True}, {"shard": True, "in_backward": True}):
        net, alone, ours, theirs = pair(lambda n: own(groups(n.module), **keywords, **more), lambda m: original(groups(m), **keywords))
        assert isinstance(ours, torch.optim.Optimizer)
        schedulers = [torch.optim.lr_scheduler.LambdaLR(o, lambda e: (0.0, 1.0, 0.5, 0.25, 0.1)[e]) for o in (ours, theirs)]
        before = net.module[2].bias.clone()
        for step in range(5):
            step_both(net, alone, ours, theirs, step)
            assert close(net, alone), (own, more, step)
            if step < 4:
                for scheduler in schedulers:
                    scheduler.step()
        assert torch.equal(before, net.module[2].bias)        # in no group
        net.model.check_replicas()
        net.close()
""")

    def test_states_go_to_torch_and_back(self):
        self.run_ranks("""
for own, original, keywords in ((AdamW, torch.optim.AdamW, dict(lr=0.01)), (SGD, torch.optim.SGD, dict(lr=0.05, momentum=0.9))):
    for more in ({}, {"nonfinite": "skip"}, {"shard": True}):
        net, alone, ours, theirs = pair(lambda n: own(n.parameters(), **keywords, **more), lambda m: original(m.parameters(), **keywords))
        assert not ours.state_dict()["state"]
        for step in range(3):
            step_both(net, alone, ours, theirs, step)
        mine, original_state = ours.state_dict(), theirs.state_dict()
        assert mine["state"].keys() == original_state["state"].keys()
        for index, wanted in original_state["state"].items():
            assert mine["state"][index].keys() == wanted.keys()
            for key in wanted:
                assert torch.allclose(mine["state"][index][key], wanted[key], atol=1e-6), key
        file = io.BytesIO()
        torch.save(mine, file)
        file.seek(0)
        third = copy.deepcopy(alone)
        crossed = original(third.parameters(), lr=1)
        crossed.load_state_dict(torch.load(file))              # ours into torch's
        theirs_again = copy.deepcopy(net.module)
        other = DDP(theirs_again)
        back = own(other.parameters(), **keywords, **more)
        back.load_state_dict(copy.deepcopy(original_state))    # torch's into ours
        copied = copy.deepcopy(ours) if not more.get("shard") else None
        for step in range(3, 5):
            step_both(net, alone, ours, theirs, step)
            step_both(other, third, back, crossed, step)
        assert close(net, alone) and close(other, third) and close(other, alone), own
        if own is AdamW and more:
            assert back.own.step_count == 5
        if copied is not None:                                 # a copy has parameters and state of its own, and PyTorch's kernels
            first = copied.param_groups[0]["params"][0]
            assert first is not net.module[0].weight and type(copied) is own and len(copied.state) == 4
            first.grad = torch.ones_like(first)
            copied.step()
        net.close(), other.close()
""")

    def test_scaling_clipping_and_refusals(self):
        self.run_ranks("""
keywords = dict(lr=0.01)
net, alone, ours, theirs = pair(lambda n: AdamW(n.parameters(), **keywords), lambda m: torch.optim.AdamW(m.parameters(), **keywords))
for step in range(3):
    step_both(net, alone, ours, theirs, step, lambda parameters: torch.nn.utils.clip_grad_norm_(parameters, 0.01))
assert close(net, alone)
scaler = torch.amp.GradScaler("cpu", init_scale=8.0)
ours.zero_grad()
scaler.scale(net(x(rank, 9)).pow(2).mean()).backward()
scaler.step(ours)
scaler.update()
theirs.zero_grad()
for of in range(size):
    (alone(x(of, 9)).pow(2).mean() / size).backward()
theirs.step()
assert close(net, alone)
fresh = DDP(nn.Linear(3, 2))
idle = AdamW(fresh.parameters())
before = fresh.module.weight.clone()
idle.step()
assert torch.equal(before, fresh.module.weight)                 # no gradients, no step
fails(libddp.InvalidArgumentError, "wrap the module first", lambda: AdamW(nn.Linear(3, 2).parameters(), shard=True))
fails(libddp.NotSupportedError, "amsgrad", lambda: AdamW(fresh.parameters(), amsgrad=True, in_backward=True))
halves = [{"params": [fresh.module.weight]}, {"params": [fresh.module.bias], "betas": (0.5, 0.5)}]
fails(libddp.NotSupportedError, "betas", lambda: AdamW(halves, shard=True))
""")

    def test_a_state_that_one_rank_alone_asks_for(self):
        """Rank 0 saves and the others wait elsewhere: it says so, and then all have an error in the place of standing still."""
        out = self.run_ranks("""
import libddp._together as together, os, time
together.WARN_AFTER, together.GIVE_UP_AFTER = 1.0, 3.0
net = DDP(nn.Linear(3, 2))
optimizer = AdamW(net.parameters(), shard=True)
if rank == 0:
    try:
        fails(libddp.TimedOutError, "rank 0 waited 3 s in AdamW.state_dict() for rank 1 (last in ddp_", optimizer.state_dict)
    finally:
        open("over", "w").close()
else:
    while not os.path.exists("over"):
        time.sleep(0.05)
    fails(libddp.AbortedError, "AdamW.state_dict() is collective: all ranks call it", group().barrier)
""")
        self.assertIn("rank 0 has waited 1 s in AdamW.state_dict() for rank 1", out)
        self.run_ranks("""
net = DDP(nn.Linear(3, 2))
optimizer = AdamW(net.parameters(), max_norm=1.0)
net(torch.ones(1, 3)).sum().backward()
if rank == 0:
    fails(libddp.DifferentCallsError, "AdamW.load_state_dict() is collective: all ranks call it", lambda: optimizer.load_state_dict(optimizer.state_dict()))
else:
    fails(libddp.DifferentCallsError, "ddp_state_load", lambda: net(torch.ones(1, 3)).sum().backward())
""")

    def test_parameters_in_memory_of_libddp(self):
        """With own_values a sharded step writes the values of all ranks in place; they move back when the wrapper is closed."""
        self.run_ranks("""
for more in ({"shard": True}, {"shard": True, "in_backward": True}, {}):
    net, alone, ours, theirs = pair(lambda n: AdamW(n.parameters(), lr=0.01, **more), lambda m: torch.optim.AdamW(m.parameters(), lr=0.01), own_values=True)
    other = copy.deepcopy(net)
    for step in range(4):
        step_both(net, alone, ours, theirs, step)
        assert close(net, alone), (more, step)
    net.model.check_replicas()
    libddp.State(net.model).save("here.st")
    assert not close(other, alone)
    values = [p.detach().clone() for p in net.parameters()]
    net.close(), other.close()
    assert all(map(torch.equal, values, net.module.parameters()))
    net.module(x(0, 0)).sum().backward()
    torch.optim.SGD(net.module.parameters(), lr=1.0).step()
    assert not torch.equal(values[0], net.module[0].weight)
net = DDP(nn.Linear(3, 2), own_values=True)
net.double()                                            # lent again, with rank 0's values
net.module.weight.data += rank
net(torch.ones(1, 3).double()).sum().backward()
torch.optim.SGD(net.parameters(), lr=0.1).step()
net.model.check_replicas()
""")

    def test_one_rank_saves_alone(self):
        """As most programs do: the others make no call, and training goes on."""
        self.run_ranks("""
for own, original, keywords in ((AdamW, torch.optim.AdamW, dict(lr=0.01)), (SGD, torch.optim.SGD, dict(lr=0.05, momentum=0.9))):
    for more in ({}, {"max_norm": 1e9}, {"in_backward": True}):
        net, alone, ours, theirs = pair(lambda n: own(n.parameters(), **keywords, **more), lambda m: original(m.parameters(), **keywords))
        for step in range(4):
            step_both(net, alone, ours, theirs, step)
            if rank == step % size:
                file = io.BytesIO()
                torch.save((net.state_dict(), ours.state_dict()), file)
                file.seek(0)
                values, state = torch.load(file)
                assert all(torch.equal(values[name], value) for name, value in net.module.state_dict().items())
                wanted = theirs.state_dict()["state"]
                assert state["state"].keys() == wanted.keys()
                assert all(torch.allclose(state["state"][i][key], wanted[i][key], atol=1e-6) for i in wanted for key in wanted[i])
        assert close(net, alone)
        net.model.check_replicas()
        net.close()
""")

    def test_gradients_given_between_backward_and_step(self):
        """Where each rank has the whole mean, p.grad as it is at step() counts; with shard and in_backward what comes too late is an error."""
        self.run_ranks("""
def none(p): p.grad = None
def other(p): p.grad = p.grad * 0.5
def data(p): p.grad.data = p.grad.data * 0.5
def place(p): p.grad.mul_(0.5)
for own, original in ((SGD, torch.optim.SGD), (AdamW, torch.optim.AdamW)):
    for change in (none, other, data, place):
        net, alone, ours, theirs = pair(lambda n: own(n.parameters(), lr=0.1, max_norm=1e9), lambda m: original(m.parameters(), lr=0.1))
        for step in range(3):
            step_both(net, alone, ours, theirs, step, lambda parameters: change(parameters[1 if step == 1 else 0]))
            assert close(net, alone), (own, change, step)
        net.model.check_replicas()
        net.close()
        for more in ({"shard": True}, {"in_backward": True}):
            net = DDP(nn.Linear(3, 2))
            late = own(net.parameters(), lr=0.1, **more)
            net(x(rank, 0)).sum().backward()
            late.step(), late.zero_grad()
            net(x(rank, 1)).sum().backward()
            change(net.module.weight)
            fails(libddp.InvalidStateError, "between backward() and step()", late.step)
            group().barrier()
net = DDP(nn.Linear(3, 2))
late = AdamW(net.parameters(), shard=True)
net(x(rank, 0)).sum().backward()
torch.nn.utils.clip_grad_norm_(net.parameters(), 0.01)
fails(libddp.InvalidStateError, "max_norm", late.step)
plain = SGD(net.parameters(), lr=0.1)                     # of which the gradients are not whole
fails(libddp.InvalidStateError, "slice", plain.step)
""")

    def test_steps_without_a_pass(self):
        self.run_ranks("""
for more in ({"shard": True}, {"in_backward": True}, {"max_norm": 1.0}):
    net = DDP(nn.Linear(3, 2))
    optimizer = AdamW(net.parameters(), **more)
    optimizer.step()                                      # a batch that all ranks skip, before the first one and later
    net(x(rank, 0)).sum().backward()
    optimizer.step()
    fails(libddp.InvalidStateError, "no backward() has reduced gradients since the last step", optimizer.step)
    optimizer.zero_grad()
    optimizer.step()
    assert optimizer.own.step_count == 1
    net(x(rank, 1)).sum().backward()
    optimizer.step()
    net.model.check_replicas()
    net.close()
""")

    def test_state_to_look_at(self):
        self.run_ranks("""
for own, original, keywords in ((AdamW, torch.optim.AdamW, dict(lr=0.01)), (SGD, torch.optim.SGD, dict(lr=0.05, momentum=0.9))):
    for more in ({"max_norm": 1e9}, {"in_backward": True}):
        net, alone, ours, theirs = pair(lambda n: own(n.parameters(), **keywords, **more), lambda m: original(m.parameters(), **keywords))
        assert not ours.state[net.module[0].weight]
        for step in range(3):
            step_both(net, alone, ours, theirs, step)
            for mine, wanted in zip(net.module.parameters(), alone.parameters()):
                assert ours.state[mine].keys() == theirs.state[wanted].keys()
                assert all(torch.allclose(ours.state[mine][key], value, atol=1e-6) for key, value in theirs.state[wanted].items())
        ours.state[net.module[0].weight]["exp_avg" if own is AdamW else "momentum_buffer"].zero_()
        fails(libddp.InvalidStateError, "it is a copy", ours.step)
        net.close()
net = DDP(nn.Linear(3, 2))
sharded = AdamW(net.parameters(), shard=True)
fails(libddp.NotSupportedError, "state_dict()", lambda: sharded.state[net.module.weight])
""")

    def test_what_changes_at_a_constant_rate(self):
        """Frozen and unfrozen, betas and momentum: looked at in each step, not when the rate changes."""
        self.run_ranks("""
for more in ({"shard": True}, {"in_backward": True}, {"max_norm": 1e9}):
    net, alone, ours, theirs = pair(lambda n: SGD(n.parameters(), lr=0.1, **more), lambda m: torch.optim.SGD(m.parameters(), lr=0.1),
                                    find_unused_parameters=True)
    for step in range(5):
        for module in (net.module, alone):
            module[0].requires_grad_(step not in (0, 1))
        for optimizer in (ours, theirs):
            optimizer.param_groups[0]["lr"] = 0.1 if step == 0 else 0.05
        step_both(net, alone, ours, theirs, step)
        assert close(net, alone), (more, step)
    net.close()
    net = DDP(nn.Linear(3, 2))
    for own, key, value in ((SGD, "momentum", 0.9), (AdamW, "betas", (0.5, 0.9)), (Adam, "eps", 1e-4)):
        optimizer = own(net.parameters(), **more)
        optimizer.param_groups[0][key] = value
        fails(libddp.NotSupportedError, key, lambda: (net(x(rank, 0)).sum().backward(), optimizer.step()))
        break                                             # its model has had a pass, of which the step was refused
""")

    def test_a_group_that_can_recover(self):
        """libddp's kernels make the steps, because Group.recover() brings along what they keep; also of an optimizer that was made before the
        wrapper. Where they cannot, PyTorch's do, with a warning."""
        self.run_ranks("""
import warnings
ranks = libddp.Group("env://#recovers", recoverable=True)
early = nn.Linear(3, 2)
before = AdamW([early.weight], lr=0.1)
net = DDP(early, process_group=ranks)
behind = SGD([net.module.bias], lr=0.1)
assert behind._kernels is not None and before._kernels is None
net(x(rank, 0)).sum().backward()
before.step(), behind.step()
assert before.own.step_count == behind.own.step_count == 1
with warnings.catch_warnings(record=True) as seen:
    warnings.simplefilter("always")
    other = Adam(net.parameters(), amsgrad=True)
    assert any("amsgrad" in str(found.message) and "recover" in str(found.message) for found in seen), seen
other.step()
assert len(other.state) == 2
net.model.check_replicas()
""")

    def test_grad_scaler_with_shard(self):
        """An overflow in the slice of one rank: all ranks leave the step out and lower the scale, and unscale_() may come before."""
        self.run_ranks("""
for explicit in (False, True):
    for own, original in ((AdamW, torch.optim.AdamW), (SGD, torch.optim.SGD)):
        net, alone, ours, theirs = pair(lambda n: own(n.parameters(), lr=0.1, shard=True), lambda m: original(m.parameters(), lr=0.1))
        scaler = torch.amp.GradScaler("cpu", init_scale=8.0)
        for step in range(6):
            overflows = step == 2 and rank == 0 or step == 4 and rank == size - 1
            ours.zero_grad(), theirs.zero_grad()
            scaler.scale(net(x(rank, step)).pow(2).mean()).backward() if not overflows else scaler.scale((net(x(rank, step)) * float("inf")).sum()).backward()
            if explicit:
                scaler.unscale_(ours)
            scaler.step(ours)
            scaler.update()
            if step not in (2, 4):
                for of in range(size):
                    (alone(x(of, step)).pow(2).mean() / size).backward()
                theirs.step()
            assert scaler.get_scale() == (8.0 if step < 2 else 4.0 if step < 4 else 2.0), (step, scaler.get_scale())
            assert close(net, alone), (explicit, own, step)
        assert ours.own.step_count == 4
        net.model.check_replicas()
        net.close()
net = DDP(nn.Linear(3, 2))
late = AdamW(net.parameters(), in_backward=True)
scaler = torch.amp.GradScaler("cpu", init_scale=8.0)
scaler.scale(net(x(rank, 0)).sum()).backward()
fails(libddp.NotSupportedError, "in_backward", lambda: scaler.step(late))
""")

    def test_several_optimizers_with_a_frozen_parameter(self):
        self.run_ranks("""
module = nn.Sequential(nn.Linear(3, 2), nn.Linear(2, 1))
module[0].bias.requires_grad_(False)
net = DDP(module)
before = [p.detach().clone() for p in module.parameters()]
optimizers = [SGD(part.parameters(), lr=0.1, max_norm=1e9) for part in module]
net(x(rank, 0)).pow(2).sum().backward()
for optimizer in optimizers:
    optimizer.step()
assert [torch.equal(was, p) for was, p in zip(before, module.parameters())] == [False, True, False, False]
net.model.check_replicas()
""")

    def test_autograd_is_told(self):
        """A loss that was computed before the step cannot go backward after it."""
        self.run_ranks("""
for make in (lambda p: SGD(p, lr=1.0), lambda p: AdamW(p, lr=1.0), lambda p: Adam(p, max_norm=1e9), lambda p: AdamW(p, shard=True),
             lambda p: SGD(p, lr=1.0, in_backward=True)):
    net = DDP(nn.Sequential(nn.Linear(2, 2, bias=False), nn.Linear(2, 1, bias=False)))
    optimizer, given = make(net.parameters()), torch.ones(1, 2, requires_grad=True)
    kept = net.module(given).sum()
    net(torch.ones(1, 2)).sum().backward()
    optimizer.step()
    fails(RuntimeError, "modified by an inplace operation", kept.backward)
    net.close()
net = DDP(nn.Linear(2, 1))
state, average = libddp.State(net.model), libddp.Ema(net.model, 0.5)
state.save("here.st"), average.update()
for write in (lambda: state.load("here.st"), average.swap, average.swap, net.model.average_parameters):
    kept = net.module(torch.ones(1, 2, requires_grad=True)).sum()
    write()
    fails(RuntimeError, "modified by an inplace operation", kept.backward)
# Two optimizers of one module: what one leaves alone can go backward after a step of the other.
net = DDP(nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 1)), find_unused_parameters=True)
first, second = (SGD(part.parameters(), lr=0.1, max_norm=1e9) for part in net.module)
given = torch.ones(1, 2, requires_grad=True)
kept = net.module[1](given).sum()
net(torch.ones(1, 2)).sum().backward()
first.step()
kept.backward()
second.step()
fails(libddp.InvalidStateError, "several optimizers", lambda: (first.add_param_group({"params": [net.module[1].bias]}), first.zero_grad(),
                                                               net(torch.ones(1, 2)).sum().backward(), first.step()))
""")


if __name__ == "__main__":
    main()
