"""What the tests share: ranks as threads, ranks as processes under ddprun, and the end of a test program."""
import importlib.util
import os
import subprocess
import sys
import tempfile
import threading
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
        command = [sys.executable, "-B", "-W", "error::ResourceWarning", path, *map(str, arguments)]
        if size is not None:
            command = [os.path.join(BUILD, "bin/ddprun"), "--no-prefix", "-n", str(size), *command]
        return subprocess.run(command, capture_output=True, text=True, timeout=limit, cwd=folder, check=False, **options)


class Test(unittest.TestCase):
    def ends_well(self, done):
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        return done.stdout


def main():
    unittest.main(verbosity=1)
