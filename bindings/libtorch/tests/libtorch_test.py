# SPDX-License-Identifier: Apache-2.0
"""<ddp/torch.hpp> with the LibTorch that is here: its own test, and the example, whose losses and weights are those of the same training in
Python, bit for bit, and which learns with libddp's optimizer too. Skipped, with the reason, where there is no LibTorch."""
import importlib.util
import os
import re
import subprocess
import sys
import tempfile

SOURCE, BUILD, LIBRARY = (os.environ[name] for name in ("DDP_SOURCE_DIR", "DDP_BUILD_DIR", "DDP_LIBRARY"))
HERE = os.path.join(SOURCE, "bindings", "libtorch")


def skip(reason):
    print(f"skipped: {reason}")
    sys.exit(77)


def find_libtorch():
    given = os.environ.get("DDP_LIBTORCH")
    if given:
        return given
    package = importlib.util.find_spec("torch")
    if package is None:
        skip("LibTorch is not here: pip install torch, or -DDDP_LIBTORCH=FOLDER")
    return os.path.dirname(package.origin)


def say(command, environment=None, limit=400):
    run = subprocess.run(command, env=dict(os.environ, **environment or {}), capture_output=True, text=True, timeout=limit, check=False)
    if run.returncode:
        sys.exit(f"{' '.join(command)} ended with {run.returncode}:\n{run.stdout}{run.stderr}")
    return run.stdout


def compile_program(torch, source, program):
    include, lib = os.path.join(torch, "include"), os.path.join(torch, "lib")
    ours = os.path.dirname(LIBRARY)
    say([os.environ.get("CXX", "c++"), "-std=c++20", "-O1", "-Wall", "-Wextra", "-isystem", include, "-isystem",
         os.path.join(include, "torch", "csrc", "api", "include"), f"-I{SOURCE}/include", f"-I{HERE}/include",
         f'-DDIGITS_CSV="{SOURCE}/examples/data/digits.csv"', source, "-o", program, f"-L{ours}", "-lddp", f"-L{lib}", "-ltorch", "-ltorch_cpu",
         "-lc10", "-pthread", f"-Wl,-rpath,{ours}:{lib}"])


def results(output):
    return re.findall(r"epoch \d+  loss [\d.]+|weights [0-9a-f]{16}", output)


def main():
    if os.environ.get("DDP_SANITIZE"):
        skip("LibTorch is built without sanitizers")
    torch = find_libtorch()
    ddprun = os.path.join(BUILD, "bin", "ddprun")
    with tempfile.TemporaryDirectory() as work:
        test, digits = os.path.join(work, "torch_test"), os.path.join(work, "digits")
        compile_program(torch, os.path.join(HERE, "tests", "torch_test.cpp"), test)
        print(say([test], limit=100))
        compile_program(torch, os.path.join(SOURCE, "examples", "libtorch", "digits.cpp"), digits)
        one_thread = {"OMP_NUM_THREADS": "1"}
        theirs = say([ddprun, "-n", "2", digits], one_thread)
        print(theirs)
        own = say([ddprun, "-n", "2", digits, "--ours"], one_thread)
        for output in (theirs, own):
            accuracy = float(re.search(r"test accuracy ([\d.]+)", output).group(1))
            assert accuracy > 96, output
        package = os.path.join(BUILD, "bindings", "python")
        if not os.path.exists(os.path.join(package, "libddp", "low.py")) or importlib.util.find_spec("torch") is None:
            print("not compared with Python: the package libddp, or torch, is not here")
            return
        twin = say([ddprun, "-n", "2", sys.executable, "-B", os.path.join(HERE, "tests", "digits_twin.py")],
                   dict(one_thread, PYTHONPATH=package))
        assert len(results(twin)) == 9 and results(twin) == results(theirs), f"C++:\n{theirs}\nPython:\n{twin}"
        print("the same losses and weights as in Python")


main()
