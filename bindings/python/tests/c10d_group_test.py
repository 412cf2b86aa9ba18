# SPDX-License-Identifier: Apache-2.0
"""Process groups of the backend libddp: DDP as on gloo, asynchronous work, parts of the ranks, and ranks that fail. Tested: libddp.c10d."""
import os

from c10d_test import COMMON
from support import SOURCE, Test, forked, main, need, python

need("torch", "numpy")
import libddp.c10d  # noqa: E402, F401  forks have it at once
import torch  # noqa: E402, F401
import torch.distributed.checkpoint  # noqa: E402, F401
import torch.nn.parallel  # noqa: E402, F401


# PyTorch 2.7 refuses split_group and monitored_barrier of backends that are not its own.
KNOWS_OTHERS = tuple(int(part) for part in torch.__version__.split(".")[:2]) > (2, 7)


class Groups(Test):
    def run_ranks(self, program, size=2, limit=120):
        return self.ends_well(forked(f"{COMMON}\nKNOWS_OTHERS = {KNOWS_OTHERS}\n{program}", size=size, limit=limit))

    def test_ddp_trains_as_on_gloo_bit_for_bit(self):
        self.run_ranks("""
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
init("gloo")
ours = dist.new_group(backend="libddp")
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.norm, self.last, self.spare = nn.Linear(6, 50), nn.BatchNorm1d(50), nn.Linear(50, 2), nn.Linear(6, 2)
    def forward(self, x, spare=False):
        out = self.last(torch.relu(self.norm(self.first(x))))
        return out + self.spare(x) if spare else out
def train(group, hook=None, **keywords):
    torch.manual_seed(3 + rank)                          # DDP makes the replicas equal
    net = DDP(Net(), process_group=group, bucket_cap_mb=0.0005, **keywords)
    if hook is not None:
        net.register_comm_hook(group, hook)
    optimizer, losses = torch.optim.AdamW(net.parameters(), lr=0.05), []
    for step in range(8):
        x = torch.randn(5, 6, generator=torch.Generator().manual_seed(10 * step + rank))
        unused = keywords.get("find_unused_parameters") and step % 3 == rank
        with net.no_sync() if step % 4 == 1 else contextlib.nullcontext():
            loss = net(x, spare=not unused).square().mean()
            loss.backward()
        if step % 4 != 1:
            optimizer.step(), optimizer.zero_grad()
        losses.append(loss.item())
    return losses, [parameter.detach().clone() for parameter in net.parameters()]
for keywords in ({}, {"find_unused_parameters": True}, {"static_graph": True, "gradient_as_bucket_view": True},
                 {"hook": default_hooks.fp16_compress_hook}):
    found, wanted = train(ours, **keywords), train(dist.group.WORLD, **keywords)
    assert found[0] == wanted[0], (keywords, found[0], wanted[0])
    assert all(map(torch.equal, found[1], wanted[1])), keywords
net = DDP(nn.Linear(3, 1), process_group=ours)
from torch.distributed.algorithms.join import Join
for fixed in (True, False):
    with Join([net], divide_by_initial_world_size=fixed):
        for _ in range(2 + rank):
            net(torch.ones(1, 3)).sum().backward()
""")

    def test_work_is_asynchronous_and_ends_once(self):
        self.run_ranks("""
init()
turn = torch.zeros(1)
if rank == 1:
    time.sleep(0.5)
work = dist.all_reduce(torch.ones(3), async_op=True)
if rank == 0:
    assert not work.is_completed()
    with raises(libddp.Error, "all_reduce has not ended within the 0.05 s"):
        work.wait(timedelta(seconds=0.05))
assert work.wait() and work.is_completed() and work.is_success() and work.result()[0].tolist() == [2.0] * 3
work.synchronize()
many = [torch.full((100,), float(number)) for number in range(50)]
works = [dist.all_reduce(one, async_op=True) for one in many]        # in the order of the calls
assert works[-1].get_future().wait()[0].tolist() == [98.0] * 100
assert all(work.is_completed() for work in works)
def again(future):                                                    # a collective in what waits for one
    value = future.value()[0]
    dist.all_reduce(value)
    return value + 1
value = torch.ones(1)
assert dist.all_reduce(value, async_op=True).get_future().then(again).wait().tolist() == [5.0]
with raises(libddp.NotSupportedError, "meta"):
    dist.all_reduce(torch.ones(2, device="meta"))
def wait_and_fail():
    works = [dist.all_reduce(torch.ones(3 + rank), async_op=True) for _ in range(2)]
    future = works[0].get_future()
    with raises(libddp.DifferentCallsError, "rank 0", "rank 1"):
        works[0].wait()
    assert isinstance(works[0].exception(), libddp.DifferentCallsError) and not works[0].is_success()
    with raises(RuntimeError, "rank 1"):
        future.wait()
    with raises(libddp.DifferentCallsError):
        works[1].wait()
wait_and_fail()
""")

    def test_parts_of_the_ranks(self):
        self.run_ranks("""
init()
from torch.distributed.device_mesh import init_device_mesh
part = dist.new_group([1, 2])
if rank in (1, 2):
    found = torch.tensor([rank])
    dist.all_reduce(found, group=part)
    assert found.item() == 3 and dist.get_rank(part) == rank - 1
    dist.broadcast(found, 2, group=part)
    work = dist.all_reduce(torch.ones(rank), group=part, async_op=True)
    with raises(libddp.DifferentCallsError, "0 is 1, 1 is 2"):
        work.wait()
mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("rows", "columns"))
for name, peers in (("rows", [rank % 2, rank % 2 + 2]), ("columns", [rank - rank % 2, rank - rank % 2 + 1])):
    found = torch.tensor([1 << rank])
    dist.all_reduce(found, group=mesh.get_group(name))
    assert found.item() == sum(1 << peer for peer in peers)
if KNOWS_OTHERS:
    half = dist.split_group(split_ranks=[[0, 2], [3]])
    if rank == 1:
        assert half == dist.GroupMember.NON_GROUP_MEMBER
    else:
        found = torch.tensor([1 << rank])
        dist.all_reduce(found, group=half)
        assert found.item() == (8 if rank == 3 else 5)
        if rank != 3:
            other = 2 - rank
            dist.batch_isend_irecv([dist.P2POp(dist.isend, found, other, half), dist.P2POp(dist.irecv, torch.zeros_like(found), other, half)])[1].wait()
dist.barrier()
if rank in (1, 2):
    dist.destroy_process_group(part)
dist.destroy_process_group()
""", size=4)

    def test_the_end_and_another_beginning(self):
        self.run_ranks("""
for turn in range(3):
    init(init_method=f"file://{os.getcwd()}/meet{turn}", rank=rank, world_size=size)
    value = torch.full((4,), rank + 1.0)
    pending = dist.all_reduce(value, async_op=True)                  # nobody waits for it, but it is made
    group = dist.group.WORLD
    dist.destroy_process_group()
    assert value.tolist() == [3.0] * 4
    with raises(libddp.InvalidStateError, "destroyed"):
        group.allreduce([value])
init(init_method=f"file://{os.getcwd()}/last", rank=rank, world_size=size, pg_options={"dead_after_ms": 5000})
if rank == 0:
    time.sleep(0.3)
    dist.distributed_c10d._abort_process_group()
else:
    with raises(libddp.AbortedError, "rank 0"):
        dist.all_reduce(torch.ones(1))
    with raises(libddp.BrokenGroupError, "rank 0"):
        dist.recv(torch.ones(1), 0)
""")

    def test_who_does_not_come_is_named(self):
        self.run_ranks("""
init(timeout=timedelta(seconds=20))
small = dist.new_group(timeout=timedelta(seconds=0.5))
def until(stage):                                                       # the other rank has reached it
    while not os.path.exists(stage):
        time.sleep(0.01)
if rank == 1:
    until("tried")
else:
    begun = time.monotonic()
    with raises(libddp.TimedOutError, "rank 1"):
        dist.recv(torch.zeros(1), 1, group=small)
    with raises(libddp.TimedOutError, "rank 1"):
        dist.all_reduce(torch.zeros(1), group=small)
    took = time.monotonic() - begun
    assert 1 <= took < 15, took
    open("tried", "w").close()
dist.barrier()
if rank == 0 and KNOWS_OTHERS:
    with raises(libddp.TimedOutError, "Rank 1 failed to pass monitoredBarrier in 300 ms"):
        dist.monitored_barrier(timeout=timedelta(seconds=0.3))
dist.barrier()                                                        # the group is whole
shorter = dist.AllreduceOptions()
shorter.timeout = timedelta(seconds=0.4)
if rank == 0:
    with raises(libddp.TimedOutError, "all_reduce did not end within its timeout"):
        dist.group.WORLD.allreduce([torch.zeros(1)], shorter).wait()
    open("ended", "w").close()
else:
    until("ended")
    with raises(libddp.AbortedError, "rank 0"):
        dist.barrier()
""")

    def test_a_dead_rank_is_named_within_seconds(self):
        for program in ("dist.all_reduce(torch.ones(1 << 20))", "dist.recv(torch.ones(4), 1)", "dist.send(torch.ones(1 << 20), 1)",
                        "dist.recv(torch.ones(4))",
                        "torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(3, 2))(torch.ones(1, 3)).sum().backward()"):
            done = forked(COMMON + f"""
import signal
init()
dist.barrier()
if rank == 1:
    os.kill(os.getpid(), signal.SIGKILL)
begun = time.monotonic()
with raises(RuntimeError, "rank 1"):
    {program}
assert time.monotonic() - begun < 20  # and not the half hour of timeout_ms; a busy machine imports for seconds
print("named")
""", size=2)
            self.assertIn("[0] named", done.stdout, program + done.stderr)

    def test_a_rank_that_dies_before_it_joins_a_part(self):
        for known, how in ((False, "while the others wait for it"), (True, "before they do")):
            done = forked(COMMON + f"""
init(init_method=f"file://{{os.getcwd()}}/meet", rank=rank, world_size=size)   # a store that outlives every rank
dist.barrier()
if rank == 2:
    os._exit(3)
if {known}:
    with raises(libddp.BrokenGroupError, "rank 2"):
        dist.barrier()
with raises(libddp.BrokenGroupError, "rank 2"):
    dist.new_group([0, 2] if rank == 0 else [1, 2])
print("named")
""", size=3, limit=20)
            for rank in (0, 1):
                self.assertIn(f"[{rank}] named", done.stdout, f"{how}: {done.stderr}")

    def test_the_others_go_on_without_a_dead_rank(self):
        done = forked(COMMON + """
init(init_method=f"file://{os.getcwd()}/meet", rank=rank, world_size=size)
dist.barrier()
if rank == 1:
    os._exit(3)
with raises(libddp.BrokenGroupError, "rank 1"):
    dist.barrier()
rest = dist.new_group([0, 2], use_local_synchronization=True)
value = torch.full((4,), rank + 1.0)
dist.all_reduce(value, group=rest)
assert value.tolist() == [4.0] * 4
print("went on")
""", size=3, limit=20)
        for rank in (0, 2):
            self.assertIn(f"[{rank}] went on", done.stdout, done.stdout + done.stderr)

    def test_a_rank_that_leaves_early_disturbs_no_messages_of_the_others(self):
        self.run_ranks("""
init(init_method=f"file://{os.getcwd()}/meet", rank=rank, world_size=size)
dist.barrier()
if rank == 0:
    dist.destroy_process_group()
else:
    time.sleep(0.4 + 0.4 * rank)
    found, other = torch.zeros(3), 3 - rank
    work = dist.irecv(found, other)
    time.sleep(0.4 * (rank - 1))
    dist.send(torch.full((3,), float(rank)), other)
    work.wait()
    assert found[0] == other
    with raises(libddp.BrokenGroupError, "rank 0"):
        dist.recv(found, 0)
    if rank == 1:
        dist.recv(found, 2)
        with raises(libddp.BrokenGroupError, "rank"):
            dist.recv(found)                                          # from any, where all have left
    else:
        dist.send(found, 1)
    dist.destroy_process_group()
""", size=3, limit=30)

    def test_an_exception_ends_what_waits_for_a_message_of_another_rank(self):
        done = forked(COMMON + """
init(init_method=f"file://{os.getcwd()}/meet", rank=rank, world_size=size)
if rank == 0:
    time.sleep(0.3)
    raise ValueError("no number")
if rank == 1:
    begun = time.monotonic()
    with raises(libddp.AbortedError, "ValueError: no number"):
        dist.recv(torch.ones(1), 2)
    assert time.monotonic() - begun < 3
    print("told")
else:
    time.sleep(4)
""", size=3, limit=30)
        self.assertIn("[1] told", done.stdout, done.stderr)

    def test_an_exception_is_told_to_the_others(self):
        done = forked(COMMON + """
init()
if rank == 1:
    raise ValueError("the loss of rank 1 is no number")
with raises(libddp.AbortedError, "ValueError: the loss of rank 1 is no number"):
    dist.all_reduce(torch.ones(1))
print("told")
""", size=2)
        self.assertIn("[0] told", done.stdout)

    def test_ranks_of_several_hosts(self):
        self.run_ranks("""
os.environ["DDP_TEST_HOST"] = str(rank // 2)                          # ranks 0 and 1 on one host, 2 on another
init()
for count in (10, 1 << 18):
    found = torch.zeros(count)
    works = [dist.isend(torch.full((count,), float(rank)), (rank + 1) % size), dist.irecv(found, (rank - 1) % size)]
    for work in works:
        work.wait()
    assert found.sum().item() == count * ((rank - 1) % size)
dist.all_to_all_single(torch.zeros(size * 100000), torch.ones(size * 100000))
dist.destroy_process_group()
""", size=3)

    def test_a_fork_leaves_the_group_alone(self):
        self.run_ranks("""
init()
dist.all_reduce(torch.ones(1))
child = os.fork()
if child == 0:
    try:
        with raises(libddp.InvalidStateError, "fork"):
            dist.all_reduce(torch.ones(1))
        with raises(libddp.InvalidStateError, "fork"):
            dist.isend(torch.ones(1), 1 - rank)
        os._exit(0)
    finally:
        os._exit(1)
assert os.waitpid(child, 0)[1] == 0
found = torch.ones(1)
dist.all_reduce(found)
assert found.item() == 2
""")

    def test_checkpoints_and_sharded_modules(self):
        self.run_ranks("""
import torch.distributed.checkpoint as dcp
from torch.distributed.fsdp import fully_shard
from torch import nn
init()
torch.manual_seed(0)
plain = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))
import copy
sharded = copy.deepcopy(plain)
fully_shard(sharded, mesh=dist.device_mesh.init_device_mesh("cpu", (size,)))
x = torch.randn(6, 8, generator=torch.Generator().manual_seed(rank))
sharded(x).square().mean().backward()
total = sum(plain(torch.randn(6, 8, generator=torch.Generator().manual_seed(who))).square().mean() for who in range(size)) / size
total.backward()
for found, wanted in zip(sharded.parameters(), plain.parameters()):
    assert torch.allclose(found.grad.full_tensor(), wanted.grad, atol=1e-6)
folder = os.path.join(os.getcwd(), "checkpoint")
dcp.save(sharded.state_dict(), checkpoint_id=folder)
loaded = copy.deepcopy(plain)
with torch.no_grad():
    for parameter in loaded.parameters():
        parameter.zero_()
state = loaded.state_dict()
dcp.load(state, checkpoint_id=folder)
for found, wanted in zip(state.values(), plain.state_dict().values()):
    assert torch.equal(found, wanted)
dist.destroy_process_group()
""")

    def test_the_digits(self):
        out = self.ends_well(python(os.path.join(SOURCE, "examples/python/digits_c10d.py"), size=2, limit=200))
        self.assertRegex(out, r"test accuracy 9[6-9]\.")


if __name__ == "__main__":
    main()
