# SPDX-License-Identifier: Apache-2.0
"""What the tests share: ranks as threads, ranks as processes under ddprun, and the end of a test program."""
import atexit
import contextlib
import importlib.util
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import traceback
import unittest

BUILD = os.environ["DDP_BUILD_DIR"]
SOURCE = os.environ["DDP_SOURCE_DIR"]
_names = iter(range(1000000))


def need(*modules):
    """End the test program with "skipped" and the reason where a module is missing."""
    for module in modules:
        if importlib.util.find_spec(module) is None:
            print(f"skipped: the module {module} is not installed")
            sys.exit(77)


def ranks(size, function, limit=60, **options):
    """`function(group)` on `size` threads, which are the ranks of one group. Returns what they returned, or raises the first error."""
    import libddp

    place, results, errors = f"local://test{os.getpid()}-{next(_names)}", [None] * size, []

    def run(rank):
        try:
            with libddp.Group(place, rank=rank, world_size=size, **options) as group:
                results[rank] = function(group)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(rank,), daemon=True) for rank in range(size)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(limit)
        if thread.is_alive():
            raise AssertionError(f"a rank did not end within {limit} s") from (errors[0] if errors else None)
    if errors:
        raise errors[0]
    return results


def python(program, *arguments, size=None, limit=60, **options):
    """Run a program text (or a file) in a new interpreter, or in `size` of them under ddprun. Returns what subprocess.run does."""
    with tempfile.TemporaryDirectory() as folder:
        path = program
        if not program.endswith(".py"):
            path = os.path.join(folder, "program.py")
            with open(path, "w", encoding="utf-8") as file:
                file.write(program)
        # Python 3.12 warns of each fork of a process with threads, as libddp's are.
        filters = ["-W", "error::ResourceWarning", "-W", "ignore:This process:DeprecationWarning"]
        command = [sys.executable, "-B", *filters, path, *map(str, arguments)]
        if size is not None:
            command = [os.path.join(BUILD, "bin/ddprun"), "--no-prefix", "-n", str(size), *command]
        return subprocess.run(command, capture_output=True, text=True, timeout=limit, cwd=folder, check=False,
                              env={"OMP_NUM_THREADS": "1", **os.environ, **options.pop("env", {})}, **options)


def forked(program, size=2, limit=60, launcher=True):
    """Run a program text in `size` forks of this process, so that each has what was imported here. They are the ranks of one start, or,
    without `launcher`, know nothing of each other but RANK_OF_TEST. Returns what subprocess.run does, of all of them."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
    folder = tempfile.mkdtemp()  # no TemporaryDirectory: the forks would clean it up at their exit
    pids, codes = {}, {}
    for rank in range(size):
        pid = os.fork()
        if pid == 0:
            _be_rank(program, folder, rank, size, port, launcher)
        pids[pid] = rank
    end = time.monotonic() + limit
    while pids:
        for pid in list(pids):
            found, status = os.waitpid(pid, os.WNOHANG)
            if found:
                codes[pids.pop(pid)] = os.waitstatus_to_exitcode(status)
        if pids and time.monotonic() > end:
            for pid in pids:
                os.kill(pid, signal.SIGKILL)
            end += limit
        time.sleep(0.005)
    out = ""
    for rank in range(size):
        with open(os.path.join(folder, f"out{rank}"), encoding="utf-8") as file:
            out += "".join(f"[{rank}] {line}" for line in file)
    shutil.rmtree(folder)
    worst = next((codes[rank] for rank in range(size) if codes[rank] != 0), 0)
    return subprocess.CompletedProcess([], worst, out, f"exit codes {codes}")


def _be_rank(program, folder, rank, size, port, launcher):
    """In the child: never returns."""
    code = 1
    try:
        file = os.open(os.path.join(folder, f"out{rank}"), os.O_WRONLY | os.O_CREAT)
        os.dup2(file, 1), os.dup2(file, 2)
        sys.stdout, sys.stderr = os.fdopen(1, "w", 1), os.fdopen(2, "w", 1)
        os.chdir(folder)
        os.environ.update(RANK_OF_TEST=str(rank))
        if launcher:
            os.environ.update(RANK=str(rank), WORLD_SIZE=str(size), LOCAL_RANK=str(rank), LOCAL_WORLD_SIZE=str(size),
                              MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
        try:
            exec(compile(program, "program", "exec"), {"__name__": "__main__"})
            code = 0
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else int(end.code is not None)
            if code and not isinstance(end.code, int):
                print(end.code, file=sys.stderr)
        except BaseException as error:
            sys.last_value = error  # as the interpreter does
            traceback.print_exc()
        atexit._run_exitfuncs()
    finally:
        with contextlib.suppress(Exception):
            sys.stdout.flush(), sys.stderr.flush()
        os._exit(code)


class Test(unittest.TestCase):
    def ends_well(self, done):
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        return done.stdout


def main():
    unittest.main(verbosity=1)
