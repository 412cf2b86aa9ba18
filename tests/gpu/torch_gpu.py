# SPDX-License-Identifier: Apache-2.0
"""libddp.torch on GPUs: what tests/bindings look at in host memory, once more where autograd has streams, and NCCL sums.

    ddprun -n RANKS python3 torch_gpu.py [--device cpu] [NAME ...]      the cases of these names; default all

Every rank trains a wrapped copy of a model on its own samples, and PyTorch trains another copy on the samples of all ranks; both must agree but for
rounding. Where there are fewer GPUs than ranks, these share one, and NCCL is told that each is a host of its own: for correctness, not for speed.
--device cpu is a try without a GPU, over shared memory. Prints a line for each case. Exits with 77 and a reason where PyTorch, libddp's Python package or a GPU is missing.
"""
import argparse
import contextlib
import copy
import io
import os
import sys
import traceback

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(HERE, "bench")]  # as they are in a kit, and here
from packed import import_libddp, let_ranks_share, skip  # noqa: E402

RANK, SIZE = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
CASES = []


def case(function):
    CASES.append(function)
    return function


try:
    import torch
except Exception as error:  # whatever a broken installation raises
    skip(f"PyTorch cannot be imported ({error})")
parser = argparse.ArgumentParser()
parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
parser.add_argument("names", nargs="*")
OPTIONS = parser.parse_args()
ON_GPU = OPTIONS.device == "cuda"
if ON_GPU and not torch.cuda.is_available():
    skip("PyTorch sees no GPU")
if ON_GPU:
    let_ranks_share(torch.cuda.device_count())
DEVICE = torch.device("cuda", int(os.environ.get("LOCAL_RANK", 0)) % torch.cuda.device_count()) if ON_GPU else torch.device("cpu")
if ON_GPU:
    torch.cuda.set_device(DEVICE)
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.allow_tf32 = False
ours = import_libddp("torch")
import libddp  # noqa: E402

nn = torch.nn


def stream():
    """PyTorch's current stream, for calls that take one."""
    return torch.cuda.current_stream().cuda_stream if ON_GPU else None


def finish():
    if ON_GPU:
        torch.cuda.synchronize()


def expect(condition, text):
    if not condition:
        raise AssertionError(text)


def x(of, step, features=48, samples=32):
    """The samples of a rank in a step, which every rank can make."""
    return torch.randn(samples, features, generator=torch.Generator().manual_seed(1000 * step + of)).to(DEVICE)


def make(width=96, seed=3):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(48, width), nn.GELU(), nn.Linear(width, width), nn.LayerNorm(width), nn.Linear(width, 8)).to(DEVICE)


def far(one, other):
    """How far two lists of tensors are apart, over the second's size."""
    one, other = (torch.cat([t.detach().double().flatten() for t in ts]) for ts in (one, other))
    return float((one - other).norm() / other.norm().clamp_min(1e-30))


def near(one, other, what, most=2e-5):
    apart = far(one, other)
    expect(apart <= most, f"{what}: apart by {apart:.2e}, at most {most:.0e}")


def backward(net, step):
    net(x(RANK, step)).square().mean().backward()


def backward_alone(alone, step):
    for of in range(SIZE):
        (alone(x(of, step)).square().mean() / SIZE).backward()


def grads(module):
    return [p.grad for p in module.parameters()]


@case
def gradients():
    """However the gradients of a step before are put away, and on whatever stream."""
    for to_none in (True, False):
        for other in (None, torch.cuda.Stream() if ON_GPU else None):
            net = ours.DistributedDataParallel(make(), bucket_cap_mb=0.02)
            alone = make()
            with torch.cuda.stream(other) if other else contextlib.nullcontext():
                if other:
                    other.wait_stream(torch.cuda.default_stream())
                for step in range(4):
                    net.zero_grad(set_to_none=to_none), alone.zero_grad()
                    backward(net, step), backward_alone(alone, step)
                    near(grads(net), grads(alone), f"gradients of step {step}, set_to_none={to_none}, own stream={other is not None}")
            finish()
            net.model.check_replicas()
            net.close()


@case
def large_in_many_buckets():
    """Gradients of 40 MB, so that buckets are in flight while autograd goes on."""
    torch.manual_seed(5)
    net = ours.DistributedDataParallel(nn.Sequential(*(nn.Linear(1024, 1024) for _ in range(10))).to(DEVICE), bucket_cap_mb=5)
    alone = copy.deepcopy(net.module)
    for step in range(3):
        net.zero_grad(), alone.zero_grad()
        net(x(RANK, step, 1024)).square().mean().backward()
        for of in range(SIZE):
            (alone(x(of, step, 1024)).square().mean() / SIZE).backward()
        near(grads(net), grads(alone), f"gradients of step {step}")
    net.close()


@case
def no_sync():
    net = ours.DistributedDataParallel(make())
    alone = make()
    with net.no_sync():
        backward(net, 0)
    backward(net, 1)
    backward_alone(alone, 0), backward_alone(alone, 1)
    near(grads(net), grads(alone), "the sum of two passes")
    net.close()


@case
def optimizers():
    cases = [(ours.AdamW, torch.optim.AdamW, {"lr": 0.01, "betas": (0.8, 0.99)}), (ours.SGD, torch.optim.SGD, {"lr": 0.05, "momentum": 0.9, "nesterov": True})]
    for own, original, keywords in cases:
        for more in ({}, {"in_backward": True}, {"shard": True}, {"shard": True, "in_backward": True}, {"divide_in_step": True}):
            net, alone = ours.DistributedDataParallel(make()), make()
            mine, theirs = own(net.parameters(), **keywords, **more), original(alone.parameters(), **keywords)
            schedulers = [torch.optim.lr_scheduler.StepLR(each, 2) for each in (mine, theirs)]
            for step in range(6):
                mine.zero_grad(), theirs.zero_grad()
                backward(net, step), backward_alone(alone, step)
                mine.step(), theirs.step()
                for scheduler in schedulers:
                    scheduler.step()
            near(net.parameters(), alone.parameters(), f"{own.__name__} with {more}", 2e-4)
            net.model.check_replicas()
            net.close()


@case
def states():
    """torch.optim's state goes on in libddp's optimizer, and back; and a checkpoint of libddp brings the same bits."""
    for more in ({}, {"shard": True}):
        net, alone = ours.DistributedDataParallel(make()), make()
        mine, theirs = ours.AdamW(net.parameters(), lr=0.01, **more), torch.optim.AdamW(alone.parameters(), lr=0.01)
        for step in range(3):
            mine.zero_grad(), theirs.zero_grad()
            backward(net, step), backward_alone(alone, step)
            mine.step(), theirs.step()
        state = mine.state_dict()
        for index, wanted in theirs.state_dict()["state"].items():
            for key in ("exp_avg", "exp_avg_sq"):
                near([state["state"][index][key]], [wanted[key]], f"{key} with {more}", 1e-3)
        file = io.BytesIO()
        libddp.State(net.model, mine.own).save(file if RANK == 0 else None)
        saved = [p.detach().clone() for p in net.parameters()]
        mine.zero_grad(), backward(net, 7), mine.step()
        after = [p.detach().clone() for p in net.parameters()]
        file.seek(0)
        libddp.State(net.model, mine.own).load(file if RANK == 0 else None)
        expect(all(map(torch.equal, net.parameters(), saved)), "the values are those of the checkpoint")
        mine.zero_grad(), backward(net, 7), mine.step()
        expect(all(map(torch.equal, net.parameters(), after)), "the step after the load has the bits that it had before")
        net.close()


@case
def mixed_precision():
    """autocast in BF16, F16 with a GradScaler, and a model whose parameters are BF16."""
    for kind, scaled in ((torch.bfloat16, False), (torch.float16, True)):
        net, alone = ours.DistributedDataParallel(make()), make()
        optimizers = [torch.optim.AdamW(m.parameters(), lr=0.01, fused=ON_GPU) for m in (net, alone)]
        scalers = [torch.amp.GradScaler(DEVICE.type, enabled=scaled, init_scale=1024) for _ in range(2)]
        for step in range(3):
            for optimizer in optimizers:
                optimizer.zero_grad()
            with torch.autocast(DEVICE.type, kind):
                loss = net(x(RANK, step)).float().square().mean()
                losses = [alone(x(of, step)).float().square().mean() / SIZE for of in range(SIZE)]
            scalers[0].scale(loss).backward()
            for each in losses:
                scalers[1].scale(each).backward()
            if step == 0:
                near(grads(net), grads(alone), f"gradients under autocast {kind}", 2e-2)
            for scaler, optimizer in zip(scalers, optimizers):
                scaler.step(optimizer)
                scaler.update()
        near(net.parameters(), alone.parameters(), f"parameters under autocast {kind}", 5e-2)
        net.model.check_replicas()
        net.close()
    net, alone = ours.DistributedDataParallel(make().bfloat16()), make().bfloat16()
    net(x(RANK, 0).bfloat16()).float().square().mean().backward()
    for of in range(SIZE):
        (alone(x(of, 0).bfloat16()).float().square().mean() / SIZE).backward()
    near(grads(net), grads(alone), "BF16 gradients", 3e-2)
    net.close()


@case
def batch_norm():
    """Statistics of all ranks' samples, forward and backward, and the buffers of rank 0 for an ordinary one."""
    torch.manual_seed(9)
    plain = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 36, 4)).to(DEVICE)
    alone = copy.deepcopy(plain)
    images = [torch.randn(6, 3, 8, 8, generator=torch.Generator().manual_seed(of)).to(DEVICE) for of in range(SIZE)]
    net = ours.DistributedDataParallel(ours.SyncBatchNorm.convert_sync_batchnorm(copy.deepcopy(plain)))
    net(images[RANK]).square().mean().backward()
    alone(torch.cat(images)).square().mean().backward()
    near(grads(net), grads(alone), "gradients through the normalisation", 1e-4)
    near([net.module[1].running_mean, net.module[1].running_var], [alone[1].running_mean, alone[1].running_var], "running statistics", 1e-5)
    net.close()
    net = ours.DistributedDataParallel(plain)
    for step in range(2):
        net(images[RANK] + step).square().mean().backward()
    net.model.check_replicas()
    net.close()


@case
def clipping_and_average():
    net, alone = ours.DistributedDataParallel(make()), make()
    mine, theirs = ours.AdamW(net.parameters(), lr=0.01, max_norm=0.05), torch.optim.AdamW(alone.parameters(), lr=0.01)
    average = libddp.Ema(net.model, 0.9)
    wanted = None
    for step in range(4):
        mine.zero_grad(), theirs.zero_grad()
        backward(net, step), backward_alone(alone, step)
        nn.utils.clip_grad_norm_(alone.parameters(), 0.05)
        mine.step(), theirs.step()
        average.update(stream=stream())
        now = [p.detach().clone() for p in alone.parameters()]
        wanted = now if wanted is None else [0.9 * each + 0.1 * value for each, value in zip(wanted, now)]
    near(net.parameters(), alone.parameters(), "clipped steps", 2e-4)
    with average.average(stream=stream()):
        near(net.parameters(), wanted, "the average", 2e-4)
    near(net.parameters(), alone.parameters(), "values after the average", 2e-4)
    net.close()


@case
def unused_parameters():
    class Branches(nn.Module):
        def __init__(self):
            super().__init__()
            torch.manual_seed(4)
            self.parts = nn.ModuleList(nn.Linear(48, 48) for _ in range(3))

        def forward(self, value, which):
            return self.parts[which](value)

    net, alone = ours.DistributedDataParallel(Branches().to(DEVICE), find_unused_parameters=True), Branches().to(DEVICE)
    for step in range(3):
        net.zero_grad(), alone.zero_grad()
        net(x(RANK, step), (RANK + step) % 2).square().mean().backward()
        for of in range(SIZE):
            (alone(x(of, step), (of + step) % 2).square().mean() / SIZE).backward()
        used = [p for p in alone.parameters() if p.grad is not None]
        near([p.grad for p, q in zip(net.parameters(), alone.parameters()) if q.grad is not None], [p.grad for p in used], f"step {step}")
    net.close()


@case
def compiled():
    """torch.compile of the module, then the wrapper."""
    try:
        net, alone = ours.DistributedDataParallel(torch.compile(make())), make()
        backward(net, 0)
    except Exception as error:
        if isinstance(error, libddp.Error):
            raise
        return f"skipped: torch.compile does not work here ({str(error).splitlines()[0][:80]})"
    for step in range(2):
        net.zero_grad(), alone.zero_grad()
        backward(net, step), backward_alone(alone, step)
        near(grads(net), grads(alone), f"gradients of step {step}", 1e-4)
    net.close()
    return None


@case
def collectives():
    group = ours.group()
    value = torch.arange(1000, dtype=torch.float32, device=DEVICE) * (RANK + 1)
    group.all_reduce(value, "sum", stream=stream())
    expect(torch.equal(value, torch.arange(1000, dtype=torch.float32, device=DEVICE) * (SIZE * (SIZE + 1) // 2)), "the sum of the ranks")
    value.fill_(RANK + 5)
    group.broadcast(value, root=SIZE - 1, stream=stream())
    expect(bool((value == SIZE + 4).all()), "the last rank's values")


@case
def memory_stays():
    if not ON_GPU:
        return "skipped: PyTorch counts the memory of GPUs alone"
    net = ours.DistributedDataParallel(make(256))
    optimizer = ours.AdamW(net.parameters(), lr=1e-3)
    free = None
    for step in range(60):
        optimizer.zero_grad(), backward(net, step), optimizer.step()
        if step == 20:
            torch.cuda.synchronize()
            free = torch.cuda.memory_allocated(DEVICE)
    torch.cuda.synchronize()
    expect(torch.cuda.memory_allocated(DEVICE) <= free, "PyTorch's allocations have grown")
    net.model.check_replicas()
    net.close()
    return None


@case
def ends_with_work_pending():
    """A wrapper that goes while its last pass is under way."""
    for _ in range(3):
        net = ours.DistributedDataParallel(nn.Sequential(*(nn.Linear(512, 512) for _ in range(6))).to(DEVICE))
        net(x(RANK, 0, 512)).square().mean().backward()
        kept = list(net.parameters())
        net.close()
        del net
        expect(all(bool(p.grad.isfinite().all()) for p in kept), "gradients outlive the wrapper")


def main():
    ranks = ours.group(device_index=DEVICE.index)
    expect((ranks.rank, ranks.size) == (RANK, SIZE), f"{ranks.rank} of {ranks.size}")
    print(f"PyTorch {torch.__version__}, {SIZE} ranks, {torch.cuda.device_count()} GPU", flush=True)
    failed = 0
    for function in CASES:
        if OPTIONS.names and function.__name__ not in OPTIONS.names:
            continue
        try:
            said = function()
            print(f"PASS {function.__name__}" if said is None else f"-    {function.__name__}: {said}", flush=True)
        except BaseException as error:
            failed += 1
            traceback.print_exc()
            print(f"FAIL {function.__name__}: {' '.join(str(error).split())[:300]}", flush=True)
            if isinstance(error, libddp.Error) and SIZE > 1:
                break  # the ranks are no longer at the same place
    sys.stdout.flush()
    os._exit(1 if failed else 0)


if __name__ == "__main__":
    main()
