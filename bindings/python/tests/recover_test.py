# SPDX-License-Identifier: Apache-2.0
"""Ranks are killed and the others go on in their processes: the weights are those of a replay of who took part in which step."""
import os
import signal
import subprocess
import sys
import tempfile
from array import array

import libddp
from support import Test, main, ranks

RATE, MOMENTUM, STEPS, COUNT = 0.0625, 0.5, 12, 2000

# What every rank runs, until STEPS are made, or a multiple of them with WANTED ranks. Gradients are
# multiples of 6 and all factors powers of two, so means of 1, 2 or 3 ranks are exact and each sum is rounded once.
PROGRAM = f"""
import sys
import time
from array import array

import libddp

PLACE, ID, SIZE, KIND, WANTED = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4], int(sys.argv[5])
RATE, MOMENTUM, STEPS, COUNT = {RATE}, {MOMENTUM}, {STEPS}, {COUNT}


def gradient(step):
    return array("f", [6 * ((7 * ID + 3 * step + i) % 11 - 5) for i in range(COUNT)])


class Training:
    def __init__(self):
        who = dict(join=True) if ID >= SIZE else dict(rank=ID, world_size=SIZE)
        self.group = libddp.Group(PLACE, **who, recoverable=True, heartbeat_ms=100, dead_after_ms=1000)
        self.value, self.momentum, self.made = array("f", [1] * COUNT), array("f", [0] * COUNT), array("q", [0])
        self.kept = self.group.alloc(3).buffer()  # within reach of the others
        self.kept[0] = ID
        self.model = libddp.Model(self.group, bucket_bytes=8000)
        self.model.add_parameter("w", self.value)
        self.sgd, self.count = None, 0
        if KIND == "own":
            self.model.add_buffer("momentum", self.momentum)  # what a recovery takes along
            self.model.add_buffer("made", self.made)
            self.model.mirror(self)  # which keeps the count elsewhere, as an adapter does
        else:
            self.sgd = libddp.SGD(self.model, rate=RATE, momentum=MOMENTUM, shard=KIND == "kept")
        self.model.commit()
        assert (self.group.rank in self.group.joined) == (ID >= SIZE), self.group.joined
        self.ids = None
        self.members = [[]] * self.step  # by step; of those before it joined a rank knows nothing
        self.look_around()

    @property
    def step(self):
        return self.sgd.step_count if self.sgd else self.count

    def take(self):
        self.made[0] = self.count

    def give(self):
        self.count = self.made[0]

    def check_in_place(self):
        pass

    def train_step(self):
        with self.model.backward():
            view = self.model.grad("w").buffer()
            view[:] = gradient(self.step)
            time.sleep(0.02)
            self.model.mark_ready("w")
        if self.sgd:
            self.sgd.step()
            self.keep()
            return
        for i, slope in enumerate(view):
            self.momentum[i] = MOMENTUM * self.momentum[i] + slope
            self.value[i] -= RATE * self.momentum[i]
        self.count += 1

    def keep(self):
        if KIND == "kept" and self.step % 2 == 0:
            libddp.keep(libddp.State(self.model, self.sgd, epoch=7, step=self.step), own=b"step %d" % self.step)

    def recover(self, **options):
        failed, size, before = self.group.failed, self.group.size, self.group.rank
        assert before not in failed and failed == tuple(sorted(set(failed))), failed
        for rank in range(size):
            seen = self.group.progress(rank)
            assert seen.pass_index is None or 0 <= seen.pass_index <= self.step + 1, seen
            assert seen.bucket is None or seen.bucket >= 0, seen
            assert 0 <= seen.silent < 60, seen
            assert not seen.in_call if seen.call is None else seen.call.startswith("ddp_"), seen
        mine = self.group.progress(before)
        assert mine.call is not None and not mine.in_call, mine
        ids = self.ids
        found = self.group.recover(**options)
        assert (found.rank, found.size) == (self.group.rank, self.group.size), found
        assert (found.previous_rank, found.previous_size) == (before, size), found
        assert found.source is None or 0 <= found.source < found.size, found
        assert self.group.failed == ()
        assert found.step == (self.step if self.sgd else None), found
        if KIND == "kept":
            assert (found.kept_epoch, found.kept_step, found.own) == (7, self.step, b"step %d" % self.step), found
            assert self.step % 2 == 0 and found.went_back <= 2, found
        else:
            assert (found.kept_epoch, found.kept_step, found.went_back, found.own) == (None, None, 0, b""), found
        print("failed", list(failed))
        print("recovered", found.generation, found.size, flush=True)
        self.ids = None
        self.look_around()
        if ids is not None:  # what the ranks have told each other
            assert found.renumbered == tuple(self.ids.index(i) if i in self.ids else None for i in ids), (found, ids, self.ids)
            assert found.gone == tuple(rank for rank, i in enumerate(ids) if i not in self.ids), (found, ids, self.ids)
            assert found.joined == tuple(rank for rank, i in enumerate(self.ids) if i not in ids), (found, ids, self.ids)
            assert self.group.joined == found.joined

    def look_around(self):
        self.ids = list(self.group.all_gather(array("q", [ID]), array("q", [0] * self.group.size)))
        self.is_new = True  # no step with these ranks yet
        assert list(self.kept) == [ID, 0, 0], list(self.kept)
        self.group.all_reduce(self.kept, "max")
        assert list(self.kept) == [max(self.ids), 0, 0], list(self.kept)
        self.kept[0] = ID

    def run(self):
        while self.is_new or self.step % STEPS or self.group.size < WANTED:
            try:
                self.train_step()
                self.members[self.step - 1:] = [self.ids]
                self.is_new = False
                print("step", self.step, flush=True)
            except libddp.BrokenGroupError:
                while True:
                    try:
                        self.recover()
                        break
                    except libddp.BrokenGroupError:
                        pass  # one more is dead
        self.group.barrier()
        self.model.check_replicas()
        print("members", self.members)
        print("weights", list(self.value), flush=True)
"""

TRAIN = PROGRAM + """
Training().run()
"""

UNTIL_BROKEN = PROGRAM + """
training = Training()
print("step 0", flush=True)
try:
    while True:
        training.group.barrier()
except libddp.BrokenGroupError:
    pass
"""

PATIENT = UNTIL_BROKEN + """
try:
    training.recover(min_ranks=3)
except libddp.TooFewRanksError as error:
    print("refused", error.status.name, "min_ranks is 3" in str(error), flush=True)
training.recover(min_ranks=2)
training.run()
"""

STOPPED = UNTIL_BROKEN + """
try:
    print("size", training.group.recover().size, flush=True)
    sys.stdin.readline()  # the others are there when the one that was stopped comes
except (libddp.FencedError, libddp.NoMajorityError) as error:  # the others have gone on, or may have
    print("refused", error, flush=True)
"""


class Ranks:
    """Processes of their own, which outlive each other."""

    def __init__(self, program, size, *arguments):
        self.folder = tempfile.TemporaryDirectory()
        path = os.path.join(self.folder.name, "program.py")
        with open(path, "w", encoding="utf-8") as file:
            file.write(program)
        place = "file://" + os.path.join(self.folder.name, "meet")
        self.command, self.arguments = [sys.executable, "-B", path, place], [str(size), *map(str, arguments)]
        self.processes, self.said = [], []
        for _ in range(size):
            self.start()

    def start(self):
        """One more; beyond the size it joins the others."""
        self.processes.append(subprocess.Popen([*self.command, str(len(self.processes)), *self.arguments], stdin=subprocess.PIPE,
                                               stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True))
        self.said.append("")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for process in self.processes:
            process.kill()
            process.communicate()
        self.folder.cleanup()

    def wait_for(self, rank, line):
        while not self.said[rank].endswith(line + "\n"):
            more = self.processes[rank].stdout.readline()
            if not more:
                raise AssertionError(f"rank {rank} ended before {line!r}:\n{self.said[rank]}")
            self.said[rank] += more

    def kill(self, rank):
        self.processes[rank].send_signal(signal.SIGKILL)
        self.processes[rank].wait()

    def end(self, rank):
        """What a rank said until it ended well."""
        out, _ = self.processes[rank].communicate(timeout=60)
        self.said[rank] += out
        if self.processes[rank].returncode != 0:
            raise AssertionError(f"rank {rank} ended with {self.processes[rank].returncode}:\n{self.said[rank]}")
        return self.said[rank]


def replay(members):
    """What the weights must be."""
    value, momentum = array("f", [1] * COUNT), array("f", [0] * COUNT)
    for step, ids in enumerate(members):
        for i in range(COUNT):
            momentum[i] = MOMENTUM * momentum[i] + sum(6 * ((7 * rank + 3 * step + i) % 11 - 5) for rank in ids) / len(ids)
            value[i] -= RATE * momentum[i]
    return list(value)


def told(text, what):
    return next(eval(line[len(what):]) for line in text.splitlines() if line.startswith(what + " "))  # a list of numbers


class Recover(Test):
    def ends_as_replayed(self, all_ranks, left):
        ends = [all_ranks.end(rank) for rank in left]
        members = told(ends[0], "members")
        self.assertEqual(len(members), STEPS)
        self.assertEqual(members[0], list(range(len(all_ranks.processes))))
        self.assertEqual(members[-1], left)
        for end in ends:
            self.assertEqual(told(end, "members"), members)
            self.assertTrue(told(end, "weights") == replay(members), members)  # a list of differences would take minutes
        return ends

    def test_rank_0_is_killed(self):
        with Ranks(TRAIN, 3, "sgd", 0) as all_ranks:
            all_ranks.wait_for(0, "step 5")
            all_ranks.kill(0)
            for end in self.ends_as_replayed(all_ranks, [1, 2]):
                self.assertEqual(end.count("failed [0]\nrecovered 2 2\n"), 1, end)

    def test_what_was_kept_comes_back_with_a_part_of_the_optimizer(self):
        with Ranks(TRAIN, 3, "kept", 0) as all_ranks:
            all_ranks.wait_for(0, "step 5")
            all_ranks.kill(1)
            self.ends_as_replayed(all_ranks, [0, 2])

    def test_one_after_the_other_is_killed_with_an_optimizer_of_the_programs_own(self):
        with Ranks(TRAIN, 3, "own", 0) as all_ranks:
            all_ranks.wait_for(2, "step 3")
            all_ranks.kill(2)
            all_ranks.wait_for(1, "recovered 2 2")
            all_ranks.wait_for(1, "step 7")
            all_ranks.kill(1)
            end, = self.ends_as_replayed(all_ranks, [0])
            self.assertIn("failed [1]\nrecovered 3 1\n", end)

    def test_a_rank_joins(self):
        with Ranks(TRAIN, 2, "sgd", 3) as all_ranks:
            all_ranks.wait_for(0, "step 3")
            all_ranks.start()
            ends = [all_ranks.end(rank) for rank in range(3)]
            members = told(ends[0], "members")
            self.assertEqual((members[0], members[-1]), ([0, 1], [0, 1, 2]))
            joined = told(ends[2], "members")
            self.assertEqual(joined, [[]] * joined.count([]) + members[joined.count([]):])
            for end in ends:
                self.assertTrue(told(end, "weights") == replay(members), members)  # a list of differences would take minutes

    def test_too_few_ranks_may_ask_again(self):
        with Ranks(PATIENT, 3, "sgd", 0) as all_ranks:
            for rank in range(3):
                all_ranks.wait_for(rank, "step 0")
            all_ranks.kill(1)
            for rank in (0, 2):
                end = all_ranks.end(rank)
                self.assertIn("refused TOO_FEW_RANKS True\n", end)
                self.assertTrue(told(end, "weights") == replay([[0, 2]] * STEPS), end[:1000])

    def test_a_rank_that_was_stopped_is_left_out(self):
        with Ranks(STOPPED, 3, "sgd", 0) as all_ranks:
            for rank in range(3):
                all_ranks.wait_for(rank, "step 0")
            all_ranks.processes[1].send_signal(signal.SIGSTOP)
            for rank in (0, 2):
                all_ranks.wait_for(rank, "size 2")
            all_ranks.processes[1].send_signal(signal.SIGCONT)
            self.assertRegex(all_ranks.end(1), "refused .*go(ne)? on without")
            for rank in (0, 2):
                all_ranks.processes[rank].stdin.write("\n")
                all_ranks.end(rank)

    def test_when_there_is_nothing_to_recover(self):
        whole = libddp.Group(recoverable=True)
        self.assertEqual((whole.failed, whole.joined), ((), ()))
        self.assertEqual(whole.progress(0)[:2] + whole.progress(0)[3:], (None, None, None, False))
        whole.barrier()
        self.assertEqual(whole.progress(0)[3:], ("ddp_group_barrier", False))
        with self.assertRaisesRegex(libddp.InvalidStateError, "the group is whole"):
            whole.recover()
        with self.assertRaisesRegex(TypeError, "unknown option 'wait'.*wait_ms"):
            whole.recover(wait=1)
        with self.assertRaises(libddp.InvalidArgumentError):
            whole.progress(1)
        with self.assertRaises(libddp.NotSupportedError):
            ranks(2, lambda group: None, recoverable=True)

        def broken(group):
            group.abort("enough")
            with self.assertRaisesRegex(libddp.InvalidStateError, "recoverable = 1"):
                group.recover()

        ranks(2, broken)


if __name__ == "__main__":
    main()
