# SPDX-License-Identifier: Apache-2.0
"""libddp.torch.SGD, Adam and AdamW without libddp's kernels are PyTorch's classes: in each case the same program runs with PyTorch's wrapper over Gloo
and PyTorch's optimizer, and with libddp's, and the parameters are the same after each step. One rank and two."""
from support import Test, forked, main, need

need("torch", "numpy")
import libddp.torch  # noqa: E402, F401
import torch._dynamo  # noqa: E402, F401  forks have it at once, and what the first step of an optimizer imports

try:
    from torch.testing._internal.common_optimizers import optim_db  # PyTorch's own table of arguments
except ImportError:
    optim_db = None

COMMON = """
import copy, io, os, warnings, libddp, libddp.torch, torch, torch.distributed as dist
from torch import nn
rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
dist.init_process_group("gloo")
warnings.simplefilter("ignore")
lrs = torch.optim.lr_scheduler
CLASSES = [("SGD", dict(lr=0.1, momentum=0.9)), ("SGD", dict(lr=0.1)), ("Adam", dict(lr=0.02)), ("AdamW", dict(lr=0.02))]
class Side:
    def __init__(self, kind, module, keywords, optimizer=None, **how):
        self.kind, self.net = kind, kind.DistributedDataParallel(copy.deepcopy(module), find_unused_parameters=True, **how)
        self.parameters = list(self.net.module.parameters())
        self.optimizer = None if optimizer is None else getattr(kind, optimizer)(self.net.parameters(), **keywords)
    def backward(self, step, zero=True):
        if zero:
            self.optimizer.zero_grad()
        x = torch.randn(5, 3, generator=torch.Generator().manual_seed(10 * step + rank))
        loss = self.net(x).pow(2).mean()
        loss.backward()
        return loss
class Theirs:
    DistributedDataParallel, SGD, Adam, AdamW = nn.parallel.DistributedDataParallel, torch.optim.SGD, torch.optim.Adam, torch.optim.AdamW
def module():
    torch.manual_seed(5)
    return nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))
def same(sides, what):
    for a, b in zip(*(side.parameters for side in sides)):
        assert torch.allclose(a, b, rtol=1e-5, atol=1e-6), (what, a, b)
        assert (a.grad is None) == (b.grad is None), what
        assert a.grad is None or torch.allclose(a.grad, b.grad, rtol=1e-5, atol=1e-6), (what, a.grad, b.grad)
def both(make, keywords, do, steps=4):
    sides = [Side(kind, module(), keywords, make) for kind in (libddp.torch, Theirs)]
    for step in range(steps):
        for side in sides:
            do(side, step)
        same(sides, (make, keywords, do.__name__, step))
    sides[0].net.model.check_replicas()
    return sides
def fails(kind, text, call):
    try:
        call()
    except kind as error:
        assert text in str(error), error
    else:
        raise SystemExit("no error")
"""


class Steps(Test):
    def run_ranks(self, program, sizes=(1, 2)):
        for size in sizes:
            with self.subTest(size=size):
                self.ends_well(forked(COMMON + program, size=size, limit=200))

    def test_the_arguments_that_pytorch_tests(self):
        if optim_db is None:
            self.skipTest("this PyTorch has no torch.testing._internal.common_optimizers, or lacks what it imports")
        self.run_ranks("""
from torch.testing._internal.common_optimizers import optim_db
def plain(side, step):
    side.backward(step), side.optimizer.step()
seen = 0
for info in optim_db:
    name = info.optim_cls.__name__
    if name not in ("SGD", "Adam", "AdamW"):
        continue
    for given in info.optim_inputs_func(device="cpu"):
        for more in ({}, {"fused": True}, {"foreach": True}, {"foreach": False}):
            keywords = {**given.kwargs, **more}
            try:
                getattr(torch.optim, name)([nn.Parameter(torch.ones(1))], **keywords)
                both(name, copy.deepcopy(keywords), plain, 3)
            except (RuntimeError, ValueError) as error:
                seen += 1
                theirs, ours = error, None
                try:
                    side = Side(libddp.torch, module(), copy.deepcopy(keywords), name)
                    plain(side, 0)
                except type(error) as other:
                    ours = other
                assert str(ours) == str(theirs), (name, keywords, theirs, ours)
    for wrong in info.optim_error_inputs_func(device="cpu", dtype=torch.float32):
        given = wrong.optimizer_error_input
        if given.params is None:
            continue
        found = []
        for kind in (libddp.torch, torch.optim):
            with warnings.catch_warnings():
                warnings.simplefilter("error", UserWarning)
                try:
                    getattr(kind, name)(given.params, **given.kwargs)
                    found.append(None)
                except Exception as error:
                    found.append((type(error), str(error)))
        assert found[0] == found[1], (name, given, found)
""")

    def test_gradients_as_they_are_at_the_step(self):
        self.run_ranks("""
def sign(p): p.grad = p.grad.sign()
def none(p): p.grad = None
def data(p): p.grad.data = torch.zeros_like(p)
def scaled_data(p): p.grad.data = p.grad.data * 0.5
def place(p): p.grad.mul_(0.5)
def noise(p): p.grad = p.grad + 1
def clipped(p): nn.utils.clip_grad_norm_([p], 0.01)
for name, keywords in CLASSES:
    for change in (sign, none, data, scaled_data, place, noise, clipped):
        for zero in (True, False):
            def do(side, step):
                side.backward(step, zero)
                change(side.parameters[step % 2])
                side.optimizer.step()
            both(name, keywords, do)
    def projected(side, step):                          # gradient surgery: gradients of two losses are kept
        kept = []
        for task in range(2):
            side.backward(10 * step + task)
            kept.append([p.grad for p in side.parameters])
        for p, first, second in zip(side.parameters, *kept):
            p.grad = first - (first * second).sum() / (second * second).sum() * second
        side.optimizer.step()
    def given_by_hand(side, step):                      # no backward at all
        for p in side.parameters:
            p.grad = torch.full_like(p, 0.1 * step)
        side.optimizer.step()
    def again(side, step):
        if step != 1:
            side.backward(step)
        side.optimizer.step(), side.optimizer.step()
    def skipped(side, step):
        side.optimizer.zero_grad(set_to_none=step % 2 == 0)
        if step != 1:
            side.backward(step)
        side.optimizer.step()
    def closure(side, step):
        loss = side.optimizer.step(lambda: side.backward(step))
        assert loss.requires_grad
    def accumulated(side, step):
        side.optimizer.zero_grad()
        with side.net.no_sync():
            side.backward(step, False)
        side.backward(step + 50, False)
        side.optimizer.step()
    for do in (projected, given_by_hand, again, skipped, closure, accumulated):
        both(name, keywords, do)
""")

    def test_what_groups_say_now(self):
        self.run_ranks("""
def frozen_for_a_while(side, step):
    side.net.module[0].requires_grad_(step not in (0, 1))
    side.optimizer.param_groups[0]["lr"] = 0.1 if step == 0 else 0.05
    side.backward(step), side.optimizer.step()
def frozen_between(side, step):
    side.net.module[0].requires_grad_(True)
    side.backward(step)
    side.net.module[0].requires_grad_(step != 1)
    side.optimizer.step()
def other_constants(side, step):
    group = side.optimizer.param_groups[0]
    group["momentum" if "momentum" in group else "betas"] = 0.1 * step if "momentum" in group else (0.5 + 0.1 * step, 0.99)
    group["weight_decay"] = 0.01 * step
    side.backward(step), side.optimizer.step()
def a_group_more(side, step):
    if step == 0:
        side.extra = nn.Parameter(torch.ones(3))
        side.optimizer.add_param_group({"params": [side.extra], "lr": 0.5})
    side.backward(step)
    side.extra.grad = torch.full((3,), float(step))
    side.optimizer.step()
    side.parameters = [*side.net.module.parameters(), side.extra]
for name, keywords in CLASSES:
    for do in (frozen_for_a_while, frozen_between, other_constants, a_group_more):
        both(name, keywords, do, 5)
    makes = [lambda o: lrs.OneCycleLR(o, 0.1, total_steps=9), lambda o: lrs.CyclicLR(o, 0.01, 0.1, step_size_up=2), lambda o: lrs.StepLR(o, 2),
             lambda o: lrs.CosineAnnealingLR(o, 5), lambda o: lrs.ExponentialLR(o, 0.9), lambda o: lrs.LinearLR(o),
             lambda o: lrs.SequentialLR(o, [lrs.ConstantLR(o), lrs.ExponentialLR(o, 0.5)], [2]), lambda o: lrs.CosineAnnealingWarmRestarts(o, 2)]
    for make in makes:
        if "momentum" not in keywords and name == "SGD" and make in makes[:2]:
            continue
        def scheduled(side, step):
            if step == 0:
                side.scheduler = make(side.optimizer)
            side.backward(step), side.optimizer.step(), side.scheduler.step()
        both(name, keywords, scheduled, 6)
    def plateau(side, step):
        side.scheduler = getattr(side, "scheduler", None) or lrs.ReduceLROnPlateau(side.optimizer, patience=0)
        side.backward(step), side.optimizer.step(), side.scheduler.step(1.0)
    both(name, keywords, plateau, 6)
""")

    def test_state_copies_and_hooks(self):
        self.run_ranks("""
def plain(side, step):
    side.backward(step), side.optimizer.step()
for name, keywords in CLASSES:
    ours, theirs = both(name, keywords, plain)
    assert isinstance(ours.optimizer, getattr(torch.optim, name))
    fields = [[{key: value for key, value in side.optimizer.state[p].items()} for p in side.parameters] for side in (ours, theirs)]
    for mine, wanted in zip(*fields):
        assert mine.keys() == wanted.keys() and all(mine[k] is wanted[k] or torch.allclose(mine[k], wanted[k], atol=1e-6) for k in mine)
    file = io.BytesIO()
    torch.save((ours.optimizer.state_dict(), theirs.optimizer.state_dict()), file)
    file.seek(0)
    saved = torch.load(file)
    assert saved[0]["param_groups"] == saved[1]["param_groups"]
    for side, state in zip((ours, theirs), reversed(saved)):         # crosswise
        side.optimizer.load_state_dict(state)
    for step in range(4, 6):
        plain(ours, step), plain(theirs, step)
        same((ours, theirs), (name, step))
    copies = [copy.deepcopy(side.optimizer) for side in (ours, theirs)]
    file = io.BytesIO()
    torch.save(ours.optimizer, file)
    file.seek(0)
    copies.append(torch.load(file, weights_only=False))
    for copied in copies:
        for p in copied.param_groups[0]["params"]:
            p.grad = torch.ones_like(p)
        copied.step()
    for a, b, c in zip(*(copied.param_groups[0]["params"] for copied in copies)):
        assert torch.allclose(a, b, atol=1e-6) and torch.equal(a, c) and not any(a is p for p in ours.parameters)
    seen = []
    for side in (ours, theirs):                                      # PyTorch's class has been made, so its step has hooks of its own
        side.optimizer.register_step_pre_hook(lambda *_: seen.append("pre"))
        side.optimizer.register_step_post_hook(lambda *_: seen.append("post"))
        side.optimizer.register_state_dict_post_hook(lambda o, d: seen.append(len(d["state"])))
        plain(side, 7), side.optimizer.state_dict()
    assert seen[:3] == seen[3:] and seen[:2] == ["pre", "post"], seen
# Before the module is wrapped, and without any wrapper.
alone, early = module(), module()
optimizer, other = libddp.torch.AdamW(early.parameters(), lr=0.1), torch.optim.AdamW(alone.parameters(), lr=0.1)
net = libddp.torch.DistributedDataParallel(early)
for step in range(3):
    x = torch.full((2, 3), float(step))
    for each, o in ((net, optimizer), (alone, other)):
        o.zero_grad(), each(x).sum().backward(), o.step()
    assert all(torch.allclose(a, b, atol=1e-6) for a, b in zip(early.parameters(), alone.parameters()))
fails(libddp.InvalidStateError, "before the first one", lambda: optimizer.own)
fresh = libddp.torch.AdamW(net.parameters())
assert fresh.own.step_count == 0                                     # from here on libddp's kernels make the steps
net(x).sum().backward(), fresh.step()
assert fresh.own.step_count == 1
""")

    def test_scaler_and_swa(self):
        self.run_ranks("""
def scaled(side, step):
    side.scaler = getattr(side, "scaler", None) or torch.amp.GradScaler("cpu", init_scale=8.0)
    side.optimizer.zero_grad()
    x = torch.randn(5, 3, generator=torch.Generator().manual_seed(10 * step + rank))
    side.scaler.scale(side.net(x).pow(2).mean() * (float("inf") if step == 1 and rank == 0 else 1)).backward()
    if step == 2:
        side.scaler.unscale_(side.optimizer)
        nn.utils.clip_grad_norm_(side.parameters, 0.1)
    side.scaler.step(side.optimizer)
    side.scaler.update()
    for p in side.parameters:
        p.grad = None                                                # infinite ones are not compared
    assert side.scaler.get_scale() == (8.0 if step < 1 else 4.0)
for name, keywords in CLASSES:
    for more in ({}, {"fused": True}):
        both(name, {**keywords, **more}, scaled)
""")

    def test_many_parameters(self):
        """A scheduler, a state and a step cost what they cost per parameter, not its square."""
        self.run_ranks("""
import time
def seconds(count, **more):
    net = nn.Module()
    net.p = nn.ParameterList(nn.Parameter(torch.zeros(4)) for _ in range(count))
    net.forward = lambda x: torch.stack(list(net.p)).sum() * x
    wrapped = libddp.torch.DistributedDataParallel(net)
    optimizer = libddp.torch.AdamW(wrapped.parameters(), 1e-3, **more)
    best = 1e9
    for step in range(4):
        wrapped(1.0).backward()
        begin = time.process_time()
        optimizer.param_groups[0]["lr"] = 1e-3 / (1 + step)
        optimizer.step(), optimizer.state_dict(), optimizer.zero_grad()
        best = min(best, time.process_time() - begin)
    return best
for more in ({}, {"max_norm": 1.0}, {"in_backward": True}):
    few, many = seconds(200, **more), seconds(1600, **more)
    assert many < 32 * few, (more, few, many)                        # 8 if linear, 64 if quadratic
""", sizes=(1,))


if __name__ == "__main__":
    main()
