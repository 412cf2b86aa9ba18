# SPDX-License-Identifier: Apache-2.0
"""PyTorch's own tests of DistributedDataParallel on libddp. They are read from the installed package and are no part of the ordinary run.

    python3 torch_suite.py gloo               # which tests pass on PyTorch's own backend; one result a line
    python3 torch_suite.py backend [TEST...]  # PyTorch's wrapper on the backend `libddp` of torch.distributed
    python3 torch_suite.py adapter [TEST...]  # libddp.torch.DistributedDataParallel in its place

The tests mean GPUs; here a GPU is host memory. `--from FILE` runs the tests that an output of this program has as passed, `--ranks N`
takes another number of processes than 2.
"""
import argparse
import functools
import os
import re
import signal
import sys
import tempfile
import time
import unittest

os.environ["WORLD_SIZE"] = sys.argv[sys.argv.index("--ranks") + 1] if "--ranks" in sys.argv else "2"
os.environ.setdefault("BACKEND", "gloo")
os.environ.setdefault("TEMP_DIR", "/tmp")
os.environ.setdefault("INIT_METHOD", "env://")
MODE = next((word for word in sys.argv[1:] if word in ("backend", "adapter")), "gloo")
PATTERN = re.compile(r"ddp|DistributedDataParallel|SyncBatchNorm|static_graph|stateless", re.I)

import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
from torch.overrides import TorchFunctionMode  # noqa: E402


def host(value):
    """The same with host memory in the place of a GPU."""
    if isinstance(value, torch.device):
        return torch.device("cpu") if value.type == "cuda" else value
    if isinstance(value, str) and (value == "cuda" or value.startswith("cuda:")):
        return "cpu"
    return value


class HostMemory(TorchFunctionMode):
    def __torch_function__(self, function, types, args=(), kwargs=None):
        kwargs = dict(kwargs or {})
        name = getattr(function, "__name__", "")
        if name == "cuda":
            return args[0]
        args = tuple(map(host, args))
        if name == "to" and len(args) > 1 and type(args[1]) is int:
            args = (args[0], "cpu") + args[2:]
        if "device" in kwargs:
            kwargs["device"] = "cpu" if type(kwargs["device"]) is int else host(kwargs["device"])
        return function(*args, **kwargs)


def map_gpus():
    count = int(os.environ["WORLD_SIZE"])
    for name in ("set_device", "synchronize", "init", "empty_cache", "reset_peak_memory_stats"):
        setattr(torch.cuda, name, lambda *_, **__: None)
    torch.cuda.device_count = torch.accelerator.device_count = lambda: count
    torch.cuda.current_device = lambda: 0
    torch.accelerator.is_available = lambda: True
    torch.accelerator.set_device_index = lambda *_: None
    torch.nn.Module.cuda = lambda self, *_, **__: self
    move = torch.nn.Module.to
    torch.nn.Module.to = lambda self, *args, **keywords: move(
        self, *["cpu" if type(each) is int else host(each) for each in args],
        **{name: "cpu" if name == "device" else each for name, each in keywords.items()})
    leave_out_ids(torch.nn.parallel.DistributedDataParallel)
    HostMemory().__enter__()


def leave_out_ids(wrapper):
    """Host memory has no number."""
    create = wrapper.__init__

    @functools.wraps(create)
    def without_ids(self, module, device_ids=None, output_device=None, *args, **keywords):
        create(self, module, None, None, *args, **keywords)

    wrapper.__init__ = without_ids


def use_backend():
    import libddp.c10d  # noqa: F401
    for name in ("init_process_group", "new_group"):
        original = getattr(dist, name)

        def mapped(*args, original=original, **keywords):
            if keywords.get("backend") == "gloo" or (keywords.get("backend") is None and original.__name__ == "init_process_group"):
                keywords["backend"] = "libddp"
            return original(*("libddp" if each == "gloo" else each for each in args), **keywords)

        setattr(dist, name, mapped)


map_gpus()
if MODE == "backend":
    use_backend()
import torch.testing._internal.distributed.distributed_test as theirs  # noqa: E402

if MODE == "adapter":
    import libddp.torch
    leave_out_ids(libddp.torch.DistributedDataParallel)
    theirs.DistributedDataParallel = torch.nn.parallel.DistributedDataParallel = libddp.torch.DistributedDataParallel


class Suite(theirs.TestDistBackend, theirs.DistributedTest._DistTestBase):
    def setUp(self):
        super().setUp()
        self._start_processes(torch.multiprocessing.get_context("fork").Process)  # they need not import PyTorch again


def one(name, log):
    """In a child: run a test, and end."""
    os.setsid()
    os.dup2(log, 1)
    os.dup2(log, 2)
    result = unittest.TextTestRunner(verbosity=0).run(Suite(name))
    sys.stdout.flush()
    os._exit(77 if result.skipped else 0 if result.wasSuccessful() else 1)


def verdict_of(name, path, limit):
    log = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
    child = os.fork()
    if child == 0:
        one(name, log)
    os.close(log)
    end = time.monotonic() + limit
    while time.monotonic() < end:
        found, status = os.waitpid(child, os.WNOHANG)
        if found:
            return {0: "passed", 77: "skipped"}.get(os.waitstatus_to_exitcode(status), "failed")
        time.sleep(0.05)
    os.killpg(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return "late"


def names():
    return [name for name in unittest.defaultTestLoader.getTestCaseNames(Suite) if PATTERN.search(name)]


def main():
    words = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words.add_argument("mode", choices=["gloo", "backend", "adapter"])
    words.add_argument("tests", nargs="*")
    words.add_argument("--from", dest="file")
    words.add_argument("--ranks", default="2")
    words.add_argument("--limit", type=int, default=100, help="seconds for a test")
    words.add_argument("--logs", default=tempfile.gettempdir(), help="a folder for what the tests print")
    given = words.parse_intermixed_args()
    chosen = given.tests or names()
    if given.file:
        with open(given.file, encoding="utf-8") as file:
            passed = {line.split()[1] for line in file if line.startswith("passed ")}
        chosen = [name for name in chosen if name in passed]
    counts = {}
    for name in chosen:
        verdict = verdict_of(name, os.path.join(given.logs, f"{given.mode}.{name}.txt"), given.limit)
        counts[verdict] = counts.get(verdict, 0) + 1
        print(verdict, name, flush=True)
    print(", ".join(f"{count} {verdict}" for verdict, count in counts.items()))


if __name__ == "__main__":
    main()
