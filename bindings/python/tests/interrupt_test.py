# SPDX-License-Identifier: Apache-2.0
"""Calls that wait let the rest of Python run: other threads, signal handlers, Ctrl-C."""
import signal
import subprocess
import sys
import tempfile
import threading
import time

import libddp
from support import Test, main, python, ranks

WAITING = """
import libddp, os, sys, signal, time
group = libddp.Group(sys.argv[1], rank=int(sys.argv[2]), world_size=2)
group.barrier()
"""


def start(program, *arguments):
    return subprocess.Popen([sys.executable, "-B", "-c", program, *map(str, arguments)], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                            stderr=subprocess.PIPE, text=True)


class Interrupts(Test):
    def pair(self, folder, first, second):
        place = f"file://{folder}/meet"
        return start(WAITING + first, place, 0), start(WAITING + second, place, 1)

    def test_ctrl_c_in_a_collective(self):
        with tempfile.TemporaryDirectory() as folder:
            first, second = self.pair(folder, """
print("waiting", flush=True)
try:
    group.barrier()
except KeyboardInterrupt:
    print("interrupted", flush=True)
""", """
sys.stdin.readline()
try:
    group.barrier()
except libddp.BrokenGroupError as error:
    print(error, flush=True)
""")
            self.assertEqual(first.stdout.readline(), "waiting\n", first.poll())
            time.sleep(0.1)  # so that it is likely inside the call; correct whatever the moment
            begun = time.monotonic()
            first.send_signal(signal.SIGINT)
            out, err = first.communicate(timeout=20)
            self.assertLess(time.monotonic() - begun, 5)
            self.assertIn("interrupted", out, err)
            out, err = second.communicate(timeout=20)
            self.assertIn("rank 0", out, err)

    def test_ctrl_c_while_meeting(self):
        first = start("""
import libddp
print("meeting", flush=True)
try:
    libddp.Group("local://nobody", rank=0, world_size=2)
except KeyboardInterrupt:
    print("interrupted", flush=True)
""")
        self.assertEqual(first.stdout.readline(), "meeting\n")
        time.sleep(0.3)
        first.send_signal(signal.SIGINT)
        out, err = first.communicate(timeout=20)
        self.assertIn("interrupted", out, err)
        self.assertEqual(first.returncode, 0, err)

    def test_a_handler_that_does_not_raise_lets_the_call_go_on(self):
        self.ends_well(python("""
import libddp, os, signal, threading
seen = []
signal.signal(signal.SIGUSR1, lambda *_: seen.append(1))
group = libddp.Group()
group.barrier()
if group.rank == 0:
    threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGUSR1)).start()
else:
    import time
    time.sleep(0.6)
group.barrier()
assert group.rank == 1 or seen, "the handler ran while the call waited"
""", size=2))

    def test_other_threads_run_while_one_waits(self):
        """With the interpreter lock held this would never end: the ranks are threads of one interpreter."""
        def run(group):
            for _ in range(50):
                group.barrier()
            return group.reduce_metrics({"ranks": 1})

        self.assertEqual(ranks(3, run), [{"ranks": 3.0}] * 3)

    def test_waiting_on_the_main_thread_beside_a_rank_on_another(self):
        results = []

        def other():
            with libddp.Group("local://pair", rank=1, world_size=2) as group:
                group.barrier()
                results.append(group.reduce_metrics([1]))

        thread = threading.Thread(target=other, daemon=True)
        thread.start()
        with libddp.Group("local://pair", rank=0, world_size=2) as group:
            group.barrier()
            self.assertEqual(group.reduce_metrics([2]), [3.0])
        thread.join(30)
        self.assertEqual(results, [[3.0]])

    def test_a_fork_has_a_helper_of_its_own(self):
        self.ends_well(python("""
import libddp, os, sys
from libddp._wait import call
assert call(None, lambda: 1) == 1
child = os.fork()
if child == 0:
    os._exit(call(None, lambda: 7))
assert os.WEXITSTATUS(os.waitpid(child, 0)[1]) == 7
"""))


if __name__ == "__main__":
    main()
