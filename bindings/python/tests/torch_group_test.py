# SPDX-License-Identifier: Apache-2.0
"""With torch.distributed initialised, groups have its ranks, whoever started the processes; what disagrees is an error."""
import os

from support import Test, forked, main, need, python

need("torch", "numpy")
import libddp.torch  # noqa: E402, F401
import torch._dynamo  # noqa: E402, F401  forks have it at once, and what the first step of an optimizer imports

COMMON = """
import os, libddp, torch, torch.distributed as dist
from libddp.torch import DistributedDataParallel as DDP, group
rank = int(os.environ["RANK_OF_TEST"])
def init(size, name="meet", rank=rank):
    dist.init_process_group("gloo", init_method=f"file://{os.getcwd()}/{name}", rank=rank, world_size=size)
def fails(kind, *words):
    class Fails:
        def __enter__(self): pass
        def __exit__(self, found, error, traceback):
            assert found is not None and issubclass(found, kind), f"{found}: {error}"
            for word in words:
                assert word in str(error), error
            return True
    return Fails()
def trains(net, size, x=rank + 1.0):
    net.zero_grad()
    net(torch.full((1, 3), x)).sum().backward()
    mean = sum(range(1, size + 1)) / size
    assert net.module.weight.grad.tolist() == [[mean] * 3] * 2, net.module.weight.grad
"""


class Ranks(Test):
    def run_ranks(self, program, size=2, launcher=False):
        return self.ends_well(forked(COMMON + program, size=size, launcher=launcher))

    def test_they_are_those_of_the_process_group(self):
        self.run_ranks("""
init(2)
net = DDP(torch.nn.Linear(3, 2))
assert (group().rank, group().size) == (rank, 2) and net.group is group()
trains(net, 2)
net.model.check_replicas()
second = DDP(torch.nn.Linear(3, 2))              # several models share the group
assert second.group is net.group
trains(second, 2), trains(net, 2)
for plain in (libddp.Group(), libddp.Group("env://#other")):
    assert (plain.rank, plain.size) == (rank, 2) and plain.reduce_metrics([1]) == [2]
assert libddp.torch.SyncBatchNorm(3).ranks.size == 2
assert len(libddp.torch.DistributedSampler(range(10))) == 5
""")

    def test_started_by_spawn_and_tcp(self):
        self.ends_well(python("""
import libddp, torch, torch.distributed as dist, torch.multiprocessing as mp
from libddp.torch import DistributedDataParallel as DDP
def run(rank, port):
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=2)
    net = DDP(torch.nn.Linear(3, 2))
    net(torch.full((1, 3), rank + 1.0)).sum().backward()
    assert net.module.weight.grad.tolist() == [[1.5] * 3] * 2
if __name__ == "__main__":
    import socket
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
    mp.spawn(run, (port,), nprocs=2)
""", limit=280))

    def test_a_process_group_that_is_destroyed_and_made_again(self):
        self.run_ranks("""
groups = []
for turn in range(4):
    init(2, f"meet{turn}", (rank + turn) % 2)
    groups.append(group())
    assert (groups[-1].rank, groups[-1].size) == ((rank + turn) % 2, 2)
    if turn % 2:
        groups[-1].close()
        assert group() is not groups[-1]
    assert group().reduce_metrics([turn]) == [2 * turn]
    dist.destroy_process_group()
assert group().reduce_metrics([7]) == [14], "the last one is still there"
""")

    def test_a_rank_that_comes_late_or_left_early_meets_the_right_note(self):
        self.run_ranks("""
import time
init(2)
for turn in range(3):
    if rank != turn % 2:
        time.sleep(0.3)
    with libddp.Group() as short:
        assert short.reduce_metrics([turn]) == [2 * turn]
try:
    lonely = libddp.Group(rendezvous_timeout_ms=300) if rank == 0 else time.sleep(0.8)
except libddp.TimedOutError:
    assert rank == 0
assert libddp.Group().reduce_metrics([1]) == [2]
""")

    def test_a_part_of_the_ranks(self):
        self.run_ranks("""
init(3)
part = dist.new_group([0, 2])
if rank == 1:
    with fails(libddp.InvalidArgumentError, "not in that process group"):
        DDP(torch.nn.Linear(3, 2), process_group=part)
else:
    net = DDP(torch.nn.Linear(3, 2), process_group=part)
    assert (net.group.rank, net.group.size) == (rank // 2, 2) and group(part) is net.group
    trains(net, 2, rank // 2 + 1.0)
whole = DDP(torch.nn.Linear(3, 2), process_group=dist.group.WORLD)
trains(whole, 3)
with fails(TypeError, "process_group"):
    group("world")
""", size=3)

    def test_a_launcher_that_disagrees(self):
        self.run_ranks("""
init(1, f"alone{rank}", rank=0)
with fails(libddp.InvalidArgumentError, f"torch.distributed says rank 0 of 1, the launcher (RANK={rank}, WORLD_SIZE=2)", "process_group="):
    DDP(torch.nn.Linear(3, 2))
with fails(libddp.InvalidArgumentError, "which ranks train together"):
    libddp.Group()
assert DDP(torch.nn.Linear(3, 2), process_group=dist.group.WORLD).group.size == 1
assert group().size == libddp.Group().size == libddp.torch.SyncBatchNorm(3).ranks.size == 1, "chosen once, it is not asked again"
""", launcher=True)

    def test_a_launcher_that_agrees(self):
        self.run_ranks("""
before = group()                                 # from the launcher
init(2)
assert group() is before, "the same ranks: nothing is made again"
trains(DDP(torch.nn.Linear(3, 2)), 2)
assert libddp.Group().reduce_metrics([1]) == [2]
""", launcher=True)

    def test_initialised_after_libddp_was_used(self):
        self.run_ranks("""
alone, plain, layer = DDP(torch.nn.Linear(3, 2)), libddp.Group(), libddp.torch.SyncBatchNorm(3)
trains(alone, 1, 1.0)
layer(torch.ones(2, 3))
init(2)
with fails(libddp.InvalidArgumentError, f"torch.distributed says rank {rank} of 2", "would train alone", "initialise that first"):
    alone(torch.zeros(1, 3))
with fails(libddp.InvalidArgumentError, "would train alone"):
    DDP(torch.nn.Linear(3, 2))
with fails(libddp.InvalidArgumentError, "would train alone"):
    layer(torch.ones(2, 3))
model = libddp.Model(plain)
model.add_parameter("w", torch.zeros(2))
with fails(libddp.InvalidArgumentError, "would train alone"):
    model.commit()
trains(DDP(torch.nn.Linear(3, 2), process_group=dist.group.WORLD), 2)
chosen = libddp.Group(rank=0, world_size=1)      # said in words, it is no mistake
trains(DDP(torch.nn.Linear(3, 2), process_group=chosen), 1, 1.0)
""")

    def test_a_fork_does_not_take_its_parents_group(self):
        self.run_ranks("""
import torch.multiprocessing as mp
assert group().size == 1                          # here no rank knows of others
def child(index):
    dist.init_process_group("gloo", init_method=f"file://{os.getcwd()}/children{rank}", rank=index, world_size=2)
    assert (group().rank, group().size) == (index, 2)
    assert group().reduce_metrics([1]) == [2]
mp.start_processes(child, nprocs=2, start_method="fork")
assert group().reduce_metrics([1]) == [1]
""", size=1)

    def test_a_rank_that_ends_with_an_exception_says_why(self):
        done = forked(COMMON + """
init(2)
net = DDP(torch.nn.Linear(3, 2))
if rank == 1:
    raise ZeroDivisionError("the reader of the data failed")
with fails(libddp.BrokenGroupError, "rank 1", "ZeroDivisionError: the reader of the data failed"):
    trains(net, 2)
print("told")
""", launcher=False)
        self.assertIn("[0] told", done.stdout, done.stderr)

    def test_ctrl_c_while_meeting(self):
        self.run_ranks("""
import signal, threading, time
init(2)
if rank == 0:
    time.sleep(1.5)
else:
    threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
    with fails(KeyboardInterrupt):
        libddp.Group()
begun = time.monotonic()
assert libddp.Group().reduce_metrics([1]) == [2]
""")


if __name__ == "__main__":
    os.environ.pop("RANK", None)
    main()
