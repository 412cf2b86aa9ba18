# SPDX-License-Identifier: Apache-2.0
"""A rank that trains with libddp.torch is killed in its backward pass; the others go on, ddprun starts it again and it joins: the
parameters are those of one process of PyTorch that has the samples of all ranks of each step."""
import os
import subprocess
import sys
import tempfile

from support import BUILD, Test, main, need

need("torch")
import torch  # noqa: E402

# What all run: steps until the killed rank is back and has made three.
PROGRAM = """
import os, signal, sys, time
import torch, libddp, libddp.torch
from shared import batch, loss, make

way, rank, joins = sys.argv[1], int(os.environ["RANK"]), "DDP_JOIN" in os.environ
torch.set_num_threads(1)
group = libddp.Group(recoverable=True, heartbeat_ms=100, dead_after_ms=2000)
net = make(7 + rank)                                    # rank 0's values, or the others', go to all
ddp = libddp.torch.DistributedDataParallel(net, process_group=group)
sgd = libddp.torch.SGD(net.parameters(), lr=0.125, momentum=0.5, in_backward=way == "in backward")
step = sgd.own.step_count
assert (step > 0) == joins, step
sizes = []                                              # ranks of each step, from the first of this process on
while group.size < 3 or step < 4 or not (joins or len(sizes) > 3 and 2 in sizes) or sizes[-3:] != [3] * 3:
    try:
        if step == 4 and rank == 1 and not joins:
            list(net.parameters())[0].register_hook(lambda gradient: os.kill(os.getpid(), signal.SIGKILL))
        time.sleep(0.01)
        sgd.zero_grad()
        loss(ddp, step, group.rank).backward()
        sgd.step()
        step += 1
        sizes.append(group.size)
    except libddp.BrokenGroupError:
        found = group.recover()
        assert found.step == sgd.own.step_count and found.step in (step, step + 1), (found, step)
        sizes += [found.previous_size] * (found.step - step)
        step = found.step
ddp.model.check_replicas()
if group.rank == 0:
    torch.save((sizes, net.state_dict()), sys.argv[2])
group.barrier()
"""

SHARED = """
import torch

def make(seed):
    torch.manual_seed(seed)
    return torch.nn.Sequential(torch.nn.Linear(20, 50), torch.nn.Tanh(), torch.nn.Linear(50, 3))

def batch(step, rank):
    made = torch.Generator().manual_seed(1000 * step + rank)
    return torch.randn(16, 20, generator=made), torch.randn(16, 3, generator=made)

def loss(net, step, rank):
    x, y = batch(step, rank)
    return torch.nn.functional.mse_loss(net(x), y)
"""


class TorchRecoverTest(Test):
    def train(self, way):
        with tempfile.TemporaryDirectory() as folder:
            for name, text in (("program.py", PROGRAM), ("shared.py", SHARED)):
                with open(os.path.join(folder, name), "w", encoding="utf-8") as file:
                    file.write(text)
            end = os.path.join(folder, "end.pt")
            done = subprocess.run([os.path.join(BUILD, "bin/ddprun"), "-n", "3", "--min-ranks", "1", "--max-restarts", "1", "--no-prefix",
                                   sys.executable, "-B", os.path.join(folder, "program.py"), way, end],
                                  capture_output=True, text=True, timeout=150, check=False, env={"OMP_NUM_THREADS": "1", **os.environ})
            self.ends_well(done)
            self.assertIn("starting rank 1 again, to join ranks 0, 2", done.stderr)
            sizes, found = torch.load(end)
        self.assertEqual((sizes[0], sizes[4], sizes[-1]), (3, 2, 3), sizes)
        shared = {}
        exec(SHARED, shared)
        net = shared["make"](7)
        sgd = torch.optim.SGD(net.parameters(), lr=0.125, momentum=0.5)
        for step, size in enumerate(sizes):
            sgd.zero_grad()
            for rank in range(size):
                (shared["loss"](net, step, rank) / size).backward()
            sgd.step()
        for name, wanted in net.state_dict().items():
            torch.testing.assert_close(found[name], wanted, rtol=1e-4, atol=1e-5, msg=lambda text: f"{way}, {len(sizes)} steps, {name}: {text}")

    def test_killed_and_back(self):
        self.train("at the step")

    def test_killed_and_back_in_backward(self):
        self.train("in backward")


if __name__ == "__main__":
    main()
