# SPDX-License-Identifier: Apache-2.0
"""PyTorch's Reducer decides what a pass is: programs whose gradients come in unusual ways have with libddp.torch what they have with PyTorch's own
wrapper over Gloo, which runs beside it."""
from support import Test, forked, main, need

need("torch", "numpy")
import libddp.torch  # noqa: E402, F401
import torch._dynamo  # noqa: E402, F401  forks have it at once, and what the first step of an optimizer imports

COMMON = """
import copy, os, warnings, libddp, libddp.torch, torch, torch.distributed as dist
from torch import nn
from torch.utils.checkpoint import checkpoint
rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
dist.init_process_group("gloo")
warnings.simplefilter("ignore")
Ours, Theirs = libddp.torch.DistributedDataParallel, nn.parallel.DistributedDataParallel
WAYS = [dict(), dict(gradient_as_bucket_view=True), dict(bucket_cap_mb=0.0001), dict(find_unused_parameters=True), dict(static_graph=True)]
def x(step=0, of=rank, width=3):
    return torch.randn(4, width, generator=torch.Generator().manual_seed(10 * step + of))
def same(mine, wanted, what):
    for a, b in zip(mine.parameters(), wanted.parameters(), strict=True):
        assert (a.grad is None) == (b.grad is None), what
        assert a.grad is None or torch.allclose(a.grad, b.grad, rtol=1e-5, atol=1e-6), (what, a.grad, b.grad)
def equal_on_all_ranks(module):
    for p in module.parameters():
        if p.grad is not None:
            first = p.grad.clone()
            dist.broadcast(first, 0)
            assert torch.equal(first, p.grad)
def net():
    torch.manual_seed(5)
    return nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))
def both(make, do, ways=WAYS, steps=3):
    '''`do(wrappers, step)` with the modules of make(), wrapped by libddp's and by PyTorch's class.'''
    for way in ways:
        sides = [[kind(module, **way) for module in make()] for kind in (Ours, Theirs)]
        for step in range(steps):
            for side in sides:
                for wrapper in side:
                    wrapper.zero_grad()
                do(side, step)
            for ours, theirs in zip(*sides):
                same(ours.module, theirs.module, (do.__name__, way, step))
                equal_on_all_ranks(ours.module)
        for ours in sides[0]:
            ours.close()
"""


class Reducer(Test):
    def run_ranks(self, program, size=2):
        return self.ends_well(forked(COMMON + program, size=size, limit=120))

    def test_layers_that_several_wrappers_have(self):
        self.run_ranks("""
def heads():
    torch.manual_seed(1)
    shared = nn.Linear(3, 3)
    return [nn.Sequential(shared, nn.Linear(3, 1)) for _ in range(2)]
def one_after_the_other(wrappers, step):
    for wrapper in wrappers:
        wrapper(x(step)).pow(2).sum().backward()
def together(wrappers, step):
    sum(wrapper(x(step)).pow(2).sum() for wrapper in wrappers).backward()
def one_of_them(wrappers, step):
    wrappers[step % 2](x(step)).pow(2).sum().backward()
usual = [way for way in WAYS if "static_graph" not in way and "gradient_as_bucket_view" not in way]  # with these PyTorch's two views of a gradient differ
for do in (one_after_the_other, together, one_of_them):
    both(heads, do, usual)
def twice():
    module = net()
    return [module, module]                              # a module that is wrapped twice
both(twice, lambda wrappers, step: wrappers[0](x(step)).pow(2).sum().backward(), usual)
""")

    def test_gradients_that_the_program_keeps_or_changes(self):
        self.run_ranks("""
def kept(wrappers, step):
    wrapper, = wrappers
    lists = []
    for task in range(2):
        wrapper.zero_grad()
        wrapper(x(10 * step + task)).pow(2).mean().backward()
        lists.append([p.grad for p in wrapper.module.parameters()])
    for p, first, second in zip(wrapper.module.parameters(), *lists):
        p.grad = first - 0.5 * second
def replaced(wrappers, step):
    wrapper, = wrappers
    wrapper(x(step)).pow(2).mean().backward()
    p, q = list(wrapper.module.parameters())[:2]
    p.grad, q.grad = p.grad.sign(), None
def accumulated(wrappers, step):
    wrapper, = wrappers
    with wrapper.no_sync():
        wrapper(x(step + 30)).pow(2).mean().backward()
    wrapper(x(step)).pow(2).mean().backward()
def forward_decides(wrappers, step):
    wrapper, = wrappers
    out = wrapper(x(step))
    with wrapper.no_sync():
        out.pow(2).mean().backward()
plain = [way for way in WAYS if "static_graph" not in way]
for do in (kept, replaced, accumulated, forward_decides):
    both(lambda: [net()], do, plain[:1] + plain[2:] if do is kept else plain)
""")

    def test_several_forwards_and_other_ways_through_the_graph(self):
        self.run_ranks("""
def two_forwards(wrappers, step):
    wrapper, = wrappers
    (wrapper(x(step)).pow(2).mean() + wrapper(x(step + 9)).pow(2).mean()).backward()
def penalty(wrappers, step):
    wrapper, = wrappers
    given = x(step).requires_grad_()
    out = wrapper(given).pow(2).sum()
    slope, = torch.autograd.grad(out, given, create_graph=True)
    (out + slope.pow(2).sum()).backward()
def attack(wrappers, step):
    wrapper, = wrappers
    given = x(step).requires_grad_()
    slope, = torch.autograd.grad(wrapper(given).sum(), given)
    wrapper(given.detach() + 0.1 * slope.sign()).pow(2).mean().backward()
def generator_and_discriminator(wrappers, step):
    generator, discriminator = wrappers
    fake = generator(x(step))
    discriminator(fake.detach()).pow(2).mean().backward()
    discriminator(fake).sum().backward()
def pair():
    torch.manual_seed(2)
    return [nn.Linear(3, 3), nn.Linear(3, 2)]
plain = [way for way in WAYS if "static_graph" not in way]
for do in (two_forwards, penalty, attack):
    both(lambda: [net()], do, plain)
both(pair, generator_and_discriminator, plain)
""")

    def test_backward_within_forward(self):
        """As Lightning does with manual optimization: the program prepares the Reducer, for any number of passes in one forward()."""
        self.run_ranks("""
class Steps(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(6)
        self.parts, self.wrapper, self.passes, self.is_first = nn.ModuleList(nn.Linear(3, 3) for _ in range(3)), [], 3, True
    def forward(self, x):
        wrapper, = self.wrapper
        for turn in range(self.passes):
            hidden = x
            for part in self.parts[:2] if wrapper.find_unused_parameters and turn == 1 else self.parts:
                hidden = torch.tanh(part(hidden))
            loss = hidden.pow(2).mean() * (turn + 1)
            wrapper.reducer._rebuild_buckets()
            wrapper.reducer.prepare_for_backward([loss] if wrapper.find_unused_parameters and not wrapper.static_graph else [])
            wrapper.require_forward_param_sync = True
            loss.backward()
            if wrapper.static_graph and self.is_first:
                wrapper.reducer._delay_all_reduce()
                self.is_first = False
        wrapper.require_backward_grad_sync = False
        return loss
def train(wrappers, step):
    wrapper, = wrappers
    wrapper.module.wrapper = wrappers
    wrapper(x(step))
    wrapper.require_backward_grad_sync = True
both(lambda: [Steps()], train, WAYS[:4])
def with_static_graph(wrappers, step):
    wrapper, = wrappers
    wrapper.module.passes = 1
    train(wrappers, step)
both(lambda: [Steps()], with_static_graph, WAYS[4:])
""")

    def test_outputs_and_checkpoints(self):
        self.run_ranks("""
import dataclasses
@dataclasses.dataclass
class Answer:
    loss: object
class Blocks(nn.Module):
    def __init__(self, kind, reentrant):
        super().__init__()
        torch.manual_seed(1)
        self.blocks, self.kind, self.reentrant = nn.ModuleList(nn.Linear(3, 3) for _ in range(3)), kind, reentrant
    def forward(self, x):
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=self.reentrant)
        self.loss = x.pow(2).mean()
        return {"tensor": self.loss, "tree": {"a": [self.loss]}, "object": Answer(self.loss), "attribute": None}[self.kind]
def loss_of(wrapper, x):
    out = wrapper(x)
    return wrapper.module.loss if out is None else out.loss if isinstance(out, Answer) else out["a"][0] if isinstance(out, dict) else out
for kind in ("tensor", "tree", "object", "attribute"):
    for reentrant in (True, False):
        both(lambda: [Blocks(kind, reentrant)], lambda wrappers, step: loss_of(wrappers[0], x(step).requires_grad_()).backward(), WAYS[:3])
""")

    def test_reentrant_checkpoints_with_unused_parameters(self):
        """With find_unused_parameters PyTorch's wrapper raises, because each checkpoint ends a pass; with static_graph, and without reentrant
        checkpoints, it trains. The same here, and the error ends the pass on both ranks."""
        self.run_ranks("""
class Some(nn.Module):
    def __init__(self, reentrant):
        super().__init__()
        torch.manual_seed(3)
        self.blocks, self.unused, self.reentrant = nn.ModuleList(nn.Linear(3, 3) for _ in range(3)), nn.Linear(3, 3), reentrant
    def forward(self, x):
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=self.reentrant)
        return x
def train(wrappers, step):
    wrappers[0](x(step).requires_grad_()).pow(2).mean().backward()
both(lambda: [Some(True)], train, [dict(static_graph=True), dict(static_graph=True, find_unused_parameters=True)])
both(lambda: [Some(False)], train, [dict(find_unused_parameters=True), dict(static_graph=True)])
for kind in (Ours, Theirs):
    wrapper = kind(Some(True), find_unused_parameters=True)
    try:
        train([wrapper], 0)
        raise SystemExit("no error")
    except RuntimeError as error:
        assert "marked as ready twice" in str(error), error
    if kind is Ours:
        wrapper.module.reentrant = False                 # another pass is as good as the first
        wrapper.zero_grad()
        train([wrapper], 1)
        alone = Some(False)
        for of in range(size):
            (alone(x(1, of)).pow(2).mean() / size).backward()
        same(wrapper.module, alone, "after the error")
""")

    def test_parameters_of_several_kinds_and_unused_ones(self):
        self.run_ranks("""
class Mixed(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(4)
        self.a, self.b = nn.Linear(3, 3), nn.Linear(3, 2).double()
        self.scalar, self.empty, self.unused = nn.Parameter(torch.tensor(2.0)), nn.Parameter(torch.zeros(0)), nn.Linear(2, 2)
        self.turned = nn.Parameter(torch.randn(4, 3).t())
    def forward(self, x, step=0):
        y = self.b(self.a(x).double()).float() * self.scalar + self.empty.sum() + self.turned.sum()
        return y + self.unused(y).sum() if step == 1 and rank == 1 else y
both(lambda: [Mixed()], lambda wrappers, step: wrappers[0](x(step)).pow(2).mean().backward(), [dict(find_unused_parameters=True), dict(static_graph=True)])
both(lambda: [Mixed()], lambda wrappers, step: wrappers[0](x(step), step).pow(2).mean().backward(),
     [dict(find_unused_parameters=True), dict(find_unused_parameters=True, bucket_cap_mb=0.0001)])
""")

    def test_buckets_that_pytorch_makes_anew(self):
        """After an exception PyTorch has other tensors for its buckets; what is shared with the other ranks must be these."""
        self.run_ranks("""
def stop(gradient):
    raise ZeroDivisionError("here")
for way in (dict(), dict(gradient_as_bucket_view=True), dict(bucket_cap_mb=0.0001), dict(find_unused_parameters=True), dict(static_graph=True)):
    ours, alone = Ours(net(), **way), net()
    for step in range(6):
        if step in (1, 3):
            handle = ours.module[0].weight.register_hook(stop)
            try:
                ours(x(step)).sum().backward()
                raise SystemExit("no error")
            except ZeroDivisionError:
                handle.remove()
        if step == 4:
            ours.reducer._reset_state()                  # without libddp's knowledge
        ours.zero_grad(), alone.zero_grad()
        ours(x(step)).pow(2).mean().backward()
        for of in range(size):
            (alone(x(step, of)).pow(2).mean() / size).backward()
        same(ours.module, alone, (way, step))
        equal_on_all_ranks(ours.module)
""")

    def test_buckets_that_change_places(self):
        """Buckets of one size, which the allocator may give each other's memory when PyTorch makes them anew after an exception: the gradients of
        the model are those of the same parameters."""
        self.run_ranks("""
def stop(gradient):
    raise ZeroDivisionError("here")
layers = nn.Sequential(*(nn.Linear(4, 4, bias=False) for _ in range(12)))
ours = Ours(layers, bucket_cap_mb=0.00001, process_group=libddp.Group("local://" + str(rank), rank=0, world_size=1))
assert ours.model.stats()["buckets"] == 12
places = set()
for step in range(12):
    ours.zero_grad()
    if step % 2:
        handle = layers[0].weight.register_hook(stop)
        try:
            ours(x(step, rank, 4)).sum().backward()
            raise SystemExit("no error")
        except ZeroDivisionError:
            handle.remove()
            ours.zero_grad()
    ours(x(step, rank, 4)).pow(2).mean().backward()
    for name, p in layers.named_parameters():
        assert torch.equal(torch.from_dlpack(ours.model.grad(name)).view_as(p), p.grad), (step, name)
""")

    def test_what_is_not_reduced_is_said(self):
        self.run_ranks("""
wrapper = Ours(net())
def warns(text, call):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        call()
    assert any(text in str(each.message) for each in caught), [str(each.message) for each in caught]
out = wrapper(x()).pow(2).mean()
out.backward(retain_graph=True)
warns("second backward", out.backward)
hooked = Ours(net())
list(hooked.parameters())[0].register_post_accumulate_grad_hook(lambda p: None)
warns("register_post_accumulate_grad_hook", lambda: hooked(x()))
""")


if __name__ == "__main__":
    main()
