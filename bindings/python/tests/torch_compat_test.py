# SPDX-License-Identifier: Apache-2.0
"""What programs for torch.nn.parallel.DistributedDataParallel do with it beside training: hooks, copies, join, ignored parameters, keywords."""
from support import Test, forked, main, need

need("torch", "numpy")
import libddp.torch  # noqa: E402, F401
import torch._dynamo  # noqa: E402, F401  forks have it at once, and what the first step of an optimizer imports

COMMON = """
import contextlib, copy, os, pickle, libddp, torch, torch.distributed as dist
from torch import nn
from libddp.torch import DistributedDataParallel as DDP
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook
rank = int(os.environ["RANK_OF_TEST"])
dist.init_process_group("gloo", init_method=f"file://{os.getcwd()}/meet", rank=rank, world_size=2)
def fails(kind, text, call):
    try:
        call()
    except kind as error:
        assert text in str(error), error
    else:
        raise SystemExit("no error")
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(3, 5), nn.Linear(5, 2)
        self.register_buffer("seen", torch.zeros(2) + rank)
    def forward(self, x):
        return self.last(torch.relu(self.first(x)))
def x(of=rank, step=0):
    return torch.randn(4, 3, generator=torch.Generator().manual_seed(10 * step + of))
def mean_gradients(net, step=0, ranks=(0, 1), divisor=2):
    alone = copy.deepcopy(net.module)
    alone.zero_grad()
    for of in ranks:
        (alone(x(of, step)).pow(2).mean() / divisor).backward()
    return [p.grad for p in alone.parameters()]
def train(net, step=0):
    net.zero_grad()
    net(x(step=step)).pow(2).mean().backward()
def is_mean(net, tolerance=1e-6, **how):
    return all(torch.allclose(p.grad, g, atol=tolerance) for p, g in zip(net.module.parameters(), mean_gradients(net, **how)))
"""


class Compatible(Test):
    def run_ranks(self, program):
        return self.ends_well(forked(COMMON + program, size=2))

    def test_hooks_of_pytorch(self):
        self.run_ranks("""
for hook, state, tolerance in ((default_hooks.allreduce_hook, None, 1e-6), (default_hooks.fp16_compress_hook, None, 1e-3),
                               (powerSGD_hook.powerSGD_hook, powerSGD_hook.PowerSGDState(None, start_powerSGD_iter=2), 1e-6)):
    net = DDP(Net(), bucket_cap_mb=0.0001)
    net.register_comm_hook(state, hook)
    train(net)
    assert is_mean(net, tolerance), hook
    fails(RuntimeError, "can only be called once", lambda: net.register_comm_hook(state, hook))
net = DDP(Net())
def largest(state, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
    assert [p.shape for p in bucket.parameters()] == [g.shape for g in bucket.gradients()] and bucket.index() == 0 and bucket.is_last()
    state.append(sum(g.numel() for g in bucket.gradients()))
    return dist.all_reduce(bucket.buffer(), op=dist.ReduceOp.MAX, async_op=True).get_future().then(lambda f: f.value()[0])
counts = []
net.register_comm_hook(counts, largest)
net.zero_grad()
net(x(0)).sum().mul(rank + 1).backward()
alone = copy.deepcopy(net.module)
alone.zero_grad()
alone(x(0)).sum().backward()
assert counts == [32]
for p, g in zip(net.module.parameters(), alone.parameters()):
    assert torch.allclose(p.grad, torch.maximum(g.grad, 2 * g.grad), atol=1e-6)
def tired(state, bucket):
    raise ZeroDivisionError("tired")
net = DDP(Net())
net.register_comm_hook(None, tired)
fails(ZeroDivisionError, "tired", lambda: train(net))
fails(TypeError, "must be callable", lambda: DDP(Net()).register_comm_hook(None, 3))
held = DDP(Net())
optimizer = libddp.SGD(held.model)
fails(libddp.InvalidStateError, "afterwards", lambda: held.register_comm_hook(None, default_hooks.allreduce_hook))
dist.barrier()
""")

    def test_copies(self):
        self.run_ranks("""
net = DDP(nn.Sequential(nn.Linear(3, 5), nn.ReLU(), nn.Linear(5, 2)), find_unused_parameters=True, bucket_cap_mb=1)
train(net)
for other in (copy.deepcopy(net), pickle.loads(pickle.dumps(net))):
    assert all(torch.equal(a, b) and a is not b for a, b in zip(net.parameters(), other.parameters()))
    assert other.find_unused_parameters and other.model is not net.model
    train(other, 1)
    assert is_mean(other, step=1)
train(net)
assert is_mean(net)
part = DDP(Net(), process_group=dist.new_group([0, 1]))
fails(RuntimeError, "default process group", lambda: pickle.dumps(part))
dist.barrier()
""")

    def test_join(self):
        self.run_ranks("""
for divide in (True, False):
    net = DDP(Net())
    net.module.seen += 1
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    with net.join(divide_by_initial_world_size=divide):
        for step in range(2 + rank):
            train(net, step)
            assert is_mean(net, step=step, ranks=(0, 1) if step < 2 else (1,), divisor=2 if step < 2 or divide else 1), step
            optimizer.step()
    net.model.check_replicas()
net = DDP(Net())
steps = 0
def all_or_none():
    global steps
    with net.join(throw_on_early_termination=True):
        for step in range(2 + rank):
            train(net, step)
            steps += 1
fails(RuntimeError, "exhausted", all_or_none)
assert steps == 2
with net.join(enable=False):
    train(net)
from torch.distributed.algorithms.join import Join
two = [DDP(Net()), DDP(Net())]
with Join(two):
    for step in range(2 + 4 * rank):
        for each in two:
            with contextlib.nullcontext() if step % 2 else each.no_sync():
                each(x(step=step)).pow(2).mean().backward()
for each in two:
    each.model.check_replicas()
""")

    def test_ignored_parameters_and_buffers(self):
        self.run_ranks("""
module = Net()
with torch.no_grad():
    module.first.weight.fill_(rank + 1)
DDP._set_params_and_buffers_to_ignore_for_model(module, ["first.weight", "seen"])
net = DDP(module)
train(net)
assert net.model.names == ("first.bias", "last.weight", "last.bias") and module.first.weight.eq(rank + 1).all() and module.seen.eq(rank).all()
net.model.check_replicas()
""")

    def test_keywords(self):
        self.run_ranks("""
fails(RuntimeError, "doesn't have any parameter that requires a gradient", lambda: DDP(nn.ReLU()))
fails(ValueError, "can only be None or contain a single element", lambda: DDP(Net(), [0, 1]))
fails(ValueError, "only work with", lambda: DDP(Net(), [0]))
fails(libddp.NotSupportedError, "mixed_precision", lambda: DDP(Net(), mixed_precision=1))
fails(ValueError, "at the same time", lambda: DDP(Net(), delay_all_reduce_named_params=[]))
fails(libddp.NotSupportedError, "delay_all_reduce", lambda: DDP(Net(), delay_all_reduce_named_params=[], param_to_hook_all_reduce=1))
fails(libddp.NotSupportedError, "bucket_cap_mb", lambda: DDP(Net(), bucket_bytes=1 << 20))
fails(TypeError, "unknown option 'buckets'", lambda: DDP(Net(), buckets=1))
fails(TypeError, "positional", lambda: DDP(Net(), *[None] * 30))
assert DDP(Net(), None, None, 0, None, True, None, 3.0).bucket_bytes_cap == 3 << 20        # in PyTorch's order
from torch.distributed.device_mesh import init_device_mesh
mesh = init_device_mesh("cpu", (2,))
net = DDP(Net(), device_mesh=mesh)
train(net)
assert is_mean(net) and net.process_group is not None
fails(RuntimeError, "both", lambda: DDP(Net(), process_group=dist.group.WORLD, device_mesh=mesh))
module = Net()
with torch.no_grad():
    module.last.bias.fill_(rank)
kept = DDP(module, init_sync=False)
assert module.last.bias.eq(rank).all()
assert DDP(Net(), broadcast_buffers=False).module.seen.eq(rank).all()
import inspect
known = inspect.signature(nn.parallel.DistributedDataParallel.__init__).parameters
if "forward_sync_buffers" in known:                       # newer releases
    assert DDP(Net(), forward_sync_buffers=False).module.seen.eq(0).all()
else:
    fails(TypeError, "forward_sync_buffers", lambda: DDP(Net(), forward_sync_buffers=False))
net = DDP(Net(), static_graph=True, **{"bucket_cap_mb_list": [1, 2]} if "bucket_cap_mb_list" in known else {})
assert "bucket_cap_mb_list" not in known or net.bucket_bytes_cap_list == [1 << 20, 2 << 20]
net.zero_grad()
net.module.first(x()).sum().backward()                    # static_graph: parameters may be unused
assert net.module.last.weight.grad is None
net = DDP(Net())
net._set_static_graph()
train(net)
fails(RuntimeError, "before training loop starts", lambda: (setattr(net, "static_graph", False), net._set_static_graph()))
dist.barrier()
""")

    def test_hooks_on_buffers(self):
        self.run_ranks("""
net = DDP(Net())
def add_up(state, buffers):
    return [dist.all_reduce(buffers["seen"], async_op=True).get_future()]
net._register_buffer_comm_hook(None, add_up)
net.module.seen.fill_(rank + 1)
train(net)
assert net.module.seen.eq(3).all()
""")

    def test_parameters_lent_for_one_call(self):
        self.run_ranks("""
net = DDP(Net())
others = {"module." + name: value.detach().clone().requires_grad_() for name, value in net.module.named_parameters()}
torch.func.functional_call(net, others, x()).sum().backward()
assert all(other.grad is not None for other in others.values()) and all(p.grad is None for p in net.parameters())
train(net)
assert is_mean(net)
""")


if __name__ == "__main__":
    main()
