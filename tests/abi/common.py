# SPDX-License-Identifier: Apache-2.0
"""What the ABI tests share: the headers as data, and small C programs built against the library under test."""
import os
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(os.path.dirname(HERE), "lint"))

import declarations  # noqa: E402,F401
import tree  # noqa: E402

LIBRARY = os.environ["DDP_LIBRARY"]  # libddp.so.x.y.z of the build under test
SANITIZE = os.environ.get("DDP_SANITIZE", "")


def run(command, **options):
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=100, **options)
    if done.returncode:
        print(" ".join(command))
        print(done.stdout + done.stderr)
        print(f"ended with {done.returncode}")
        sys.exit(1)
    return done.stdout


def build(work, name, source, link=True, language="c", flags=()):
    """Compile and run a program; gives what it printed."""
    path, program = os.path.join(work, f"{name}.{language}"), os.path.join(work, name)
    with open(path, "w", encoding="utf-8") as file:
        file.write(source)
    compiler = os.environ.get("CC", "cc") if language == "c" else os.environ.get("CXX", "c++")
    command = [compiler, "-I" + os.path.join(tree.ROOT, "include"), *flags, path, "-o", program]
    if link:
        command += [LIBRARY, "-Wl,-rpath," + os.path.dirname(LIBRARY)]
    if SANITIZE:
        command.append("-fsanitize=" + SANITIZE)
    run([*command, "-ldl", "-lpthread"])
    return program
