# SPDX-License-Identifier: Apache-2.0
"""What the headers promise to programs that were compiled before, types and all: libabigail compares it with the declarations that
are kept here, in C and without comments. Each is compiled as a small library whose functions do nothing, which stands for the real
one, whose sources the compiler holds to the same declarations; so the build under test needs no debug information. After an
intended change:
  python3 tests/abi/types_test.py --write, and a line in include/CHANGES.md."""
import os
import re
import shutil
import subprocess
import sys
import tempfile

os.environ.setdefault("DDP_LIBRARY", "")
from common import HERE, declarations, run, tree  # noqa: E402

GOLDEN = os.path.join(HERE, "declarations.txt")
CHANGED, UNUSABLE = 4 | 8, 1 | 2  # bits of abidiff's exit status
COMPILER, INCLUDE = os.environ.get("CC", "cc"), os.path.join(tree.ROOT, "include")


def declared():
    """What libddp's own headers declare; a function on one line, with an empty body."""
    lines, is_ours = [], False
    for line in run([COMPILER, "-E", "-I" + INCLUDE, os.path.join(INCLUDE, "ddp/experimental.h")]).splitlines():
        if marker := re.match(r'# \d+ "(.*?)"', line):
            is_ours = marker[1].startswith(INCLUDE)
        elif is_ours and line.strip():
            lines.append(line)
    return re.sub(r'__attribute__\(\(visibility\("default"\)\)\) ([^;]*);', lambda match: " ".join(match[1].split()) + " {}",
                  "\n".join([*lines, ""]))


def describe(work, name, text):
    source, library, description = (os.path.join(work, name + ending) for ending in (".c", ".so", ".abi"))
    with open(source, "w", encoding="utf-8") as file:
        file.write("#include <stddef.h>\n#include <stdint.h>\n" + text)
    run([COMPILER, "-g", "-O0", "-shared", "-fPIC", "-w", "-fvisibility=default", "-Wl,-soname,libddp.so.0.1",
         "-Wl,--version-script=" + os.path.join(tree.ROOT, "src/capi/exports.map"), source, "-o", library])
    run(["abidw", "--no-corpus-path", "--no-comp-dir-path", "--no-show-locs", "--out-file", description, library])
    return description


if shutil.which("abidw") is None or shutil.which("abidiff") is None:
    print("libabigail is not installed (abidw, abidiff; Debian's package abigail-tools)")
    sys.exit(77)
if "--write" in sys.argv:
    with open(GOLDEN, "w", encoding="utf-8") as file:
        file.write(declared())
with open(GOLDEN, encoding="utf-8") as file:
    golden = file.read()
with tempfile.TemporaryDirectory() as work:
    compared = subprocess.run(["abidiff", "--no-show-locs", describe(work, "golden", golden), describe(work, "now", declared())],
                              capture_output=True, text=True, check=False, timeout=100)
count = len(re.findall(r"^.*\) \{\}$", declared(), flags=re.M))
problems = []
if count != len(declarations.load().functions):
    problems.append(f"{count} functions are compared, {len(declarations.load().functions)} declared")
if compared.returncode & UNUSABLE:
    problems.append(f"abidiff ended with {compared.returncode}: {compared.stdout}{compared.stderr}")
elif compared.returncode & CHANGED:
    problems += [line for line in compared.stdout.splitlines() if line.strip()]
tree.verdict(problems, f"{count} functions with their types")
