# SPDX-License-Identifier: Apache-2.0
"""What the headers promise to programs that were compiled before, types and all: libabigail compares it with the description that
is kept here. A small library with the headers' functions and without their bodies stands for the real one, whose sources the
compiler holds to the same declarations; so the build under test needs no debug information. After an intended change:
  python3 tests/abi/types_test.py --write, and a line in include/CHANGES.md."""
import os
import platform
import shutil
import subprocess
import sys
import tempfile

os.environ.setdefault("DDP_LIBRARY", "")
from common import HERE, declarations, run, tree  # noqa: E402

GOLDEN = os.path.join(HERE, "libddp-0.1.abi")
CHANGED, UNUSABLE = 4 | 8, 1 | 2  # bits of abidiff's exit status


def stand_in():
    lines = ["#include <ddp/experimental.h>"]
    for function in declarations.load().functions:
        parameters = ", ".join(f"{each.type} {each.name}" if "[" not in each.type else
                               f"{each.type.split('[')[0]} {each.name}[{each.type.split('[')[1]}"
                               for each in function.parameters)
        body = "{}" if function.returns == "void" else f"{{ {function.returns} nothing = 0; return nothing; }}"
        lines.append(f"{function.returns} {function.name}({parameters or 'void'}) {body}")
    return "\n".join([*lines, ""])


def describe(work, name):
    source, library, description = (os.path.join(work, name + ending) for ending in (".c", ".so", ".abi"))
    with open(source, "w", encoding="utf-8") as file:
        file.write(stand_in())
    include = os.path.join(tree.ROOT, "include")
    run([os.environ.get("CC", "cc"), "-g", "-O0", "-shared", "-fPIC", "-w", "-fvisibility=default", "-I" + include,
         "-Wl,-soname,libddp.so.0.1", "-Wl,--version-script=" + os.path.join(tree.ROOT, "src/capi/exports.map"),
         f"-ffile-prefix-map={tree.ROOT}=.", f"-fdebug-prefix-map={work}=.", source, "-o", library])
    run(["abidw", "--no-corpus-path", "--no-comp-dir-path", "--no-show-locs", "--headers-dir", include, "--out-file",
         description, library])
    return description


if shutil.which("abidw") is None or shutil.which("abidiff") is None:
    print("libabigail is not installed (abidw, abidiff; Debian's package abigail-tools)")
    sys.exit(77)
if platform.machine() != "x86_64":
    print(f"the description is that of x86_64, and this machine is {platform.machine()}")
    sys.exit(77)
with tempfile.TemporaryDirectory() as work:
    now = describe(work, "now")
    if "--write" in sys.argv:
        shutil.copyfile(now, GOLDEN)
    compared = subprocess.run(["abidiff", "--no-show-locs", GOLDEN, now], capture_output=True, text=True, check=False,
                              timeout=100)
problems = []
if compared.returncode & UNUSABLE:
    problems.append(f"abidiff ended with {compared.returncode}: {compared.stdout}{compared.stderr}")
elif compared.returncode & CHANGED:
    problems = [line for line in compared.stdout.splitlines() if line.strip()]
tree.verdict(problems, f"{len(declarations.load().functions)} functions with their types")
