# SPDX-License-Identifier: Apache-2.0
"""Messages of torch.distributed on libddp's requests. Tested: libddp.c10d."""
from c10d_test import COMMON
from support import Test, forked, main, need

need("torch", "numpy")
import libddp.c10d  # noqa: E402, F401  forks have it at once
import torch  # noqa: E402, F401

# Each rank has sent to the other, so that there are connections, and nobody has waited for a while or just before.
LINKED = COMMON + """
import signal, threading
init()
other = 1 - rank
def there_and_back(count=3):
    one = torch.full((count,), float(rank))
    for _ in range(3):
        if rank == 0:
            dist.send(one, other), dist.recv(one, other)
        else:
            dist.recv(one, other), dist.send(one, other)
there_and_back()
"""


class Messages(Test):
    def run_ranks(self, program, size=2, limit=60):
        return self.ends_well(forked(LINKED + program, size=size, limit=limit))

    def test_many_at_once_of_all_sizes_in_order(self):
        self.run_ranks("""
counts = [0, 1, 5, 4095, 4096, 4097, 16383, 65536, 3, 20000, 0, 60000, 2] * 3
if rank == 0:
    dist.barrier()
    sends = [dist.isend(torch.full((count,), float(number)), 1, tag=number % 2) for number, count in enumerate(counts)]
    dist.barrier()
    for work in sends:
        work.wait()
    works = [dist.irecv(torch.zeros(count), 1, tag=7) for count in counts]
    for number in reversed(range(len(counts))):
        works[number].wait()
        assert works[number].result()[0].tolist()[:1] == [float(number)] * min(1, counts[number])
else:
    first = torch.full((1,), -1.0)
    waiting = dist.irecv(first, 0, tag=9)                        # called first, and its message comes last
    dist.barrier()
    for parity in (1, 0):
        for number, count in enumerate(counts):
            if number % 2 == parity:
                value = torch.full((count,), -1.0)
                dist.recv(value, 0, tag=parity)
                assert torch.equal(value, torch.full((count,), float(number))), number
    dist.barrier()
    for number, count in enumerate(counts):
        dist.send(torch.full((count,), float(number)), 0, tag=7)
    assert not waiting.is_completed()
dist.barrier()
if rank == 0:
    dist.send(torch.full((1,), 5.0), 1, tag=9)
else:
    assert waiting.wait(timedelta(seconds=20)) and first.item() == 5
""")

    def test_what_nobody_waits_for_goes_on(self):
        self.run_ranks("""
for turn in range(3):
    large, small = torch.full((1 << 18,), float(rank)), torch.zeros(1)
    if rank == 0:
        work = dist.irecv(large, 1)
        dist.recv(small, 1, tag=1)                               # the connection is this thread's
        dist.barrier()                                           # which rank 1 reaches when its large message is taken
        assert work.wait(timedelta(seconds=20)) and large[0] == 1
    else:
        dist.send(small, 0, tag=1), dist.send(large, 0), dist.barrier()
begun = time.monotonic()
if rank == 0:
    work = dist.irecv(small, 1, tag=5)
    there_and_back()
    while not work.is_completed():
        assert time.monotonic() - begun < 10
        time.sleep(0.001)
    assert small.item() == 3
else:
    there_and_back()
    time.sleep(0.1)
    dist.send(torch.full((1,), 3.0), 0, tag=5)
""")

    def test_several_threads_wait_for_one_rank(self):
        self.run_ranks("""
if rank == 0:
    found, failed = {}, []
    def receive(tag):
        try:
            for turn in range(20):
                value = torch.zeros(100 * tag + 1)
                dist.recv(value, 1, tag=tag)
                assert value[-1] == 1000 * tag + turn, (tag, turn, value[-1])
        except BaseException as error:
            failed.append(error)
    threads = [threading.Thread(target=receive, args=(tag,)) for tag in range(1, 5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
        assert not thread.is_alive()
    assert not failed, failed
else:
    for turn in range(20):
        for tag in (3, 1, 4, 2):
            dist.send(torch.full((100 * tag + 1,), 1000.0 * tag + turn), 0, tag=tag)
            time.sleep(0.002 if turn % 5 == 0 else 0)
""")

    def test_a_wait_ends_and_the_receive_goes_on(self):
        self.run_ranks("""
value = torch.zeros(2)
if rank == 0:
    work = dist.irecv(value, 1)
    begun = time.monotonic()
    with raises(libddp.Error, "receive from rank 1", "0.1 s"):
        work.wait(timedelta(seconds=0.1))
    assert 0.05 < time.monotonic() - begun < 1
    dist.barrier()
    assert work.wait(timedelta(seconds=20)) and value.tolist() == [4, 4]
    assert dist.recv(value) == 1                                  # from any rank
else:
    dist.barrier()
    dist.send(torch.full((2,), 4.0), 0), dist.send(value, 0)
""")

    def test_ends_reach_who_reads(self):
        for program, words in (("os.kill(os.getpid(), signal.SIGKILL)", "rank 1"), ("os._exit(0)", "rank 1"),
                               ("raise ValueError('no number')", "ValueError: no number")):
            done = forked(LINKED + f"""
if rank == 1:
    time.sleep(0.2)
    {program}
begun = time.monotonic()
with raises(libddp.BrokenGroupError, "{words}"):
    dist.recv(torch.ones(4), 1)
assert time.monotonic() - begun < 3
print("told")
""", size=2, limit=30)
            self.assertIn("[0] told", done.stdout, program + done.stderr)

    def test_this_rank_ends_what_reads(self):
        self.run_ranks("""
if rank == 0:
    pause = threading.Timer(0.2, dist.group.WORLD.abort)
    pause.start()
begun = time.monotonic()
with raises(libddp.AbortedError):
    dist.recv(torch.ones(4), other)
assert time.monotonic() - begun < 5
""")

    def test_a_signal_ends_a_receive(self):
        done = forked(LINKED + """
if rank == 0:
    threading.Timer(0.3, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
    with raises(KeyboardInterrupt):
        dist.recv(torch.ones(4), 1)
else:
    with raises(libddp.AbortedError, "KeyboardInterrupt on a rank that was waiting for receive from rank 1"):
        dist.recv(torch.ones(4), 0)
print("ended")
""", size=2, limit=30)
        for rank in (0, 1):
            self.assertIn(f"[{rank}] ended", done.stdout, done.stderr)


if __name__ == "__main__":
    main()
