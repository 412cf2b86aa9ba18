# SPDX-License-Identifier: Apache-2.0
"""Every source is as .clang-format would write it, and no line is longer than it says."""
import re
import shutil
import subprocess
import sys

import tree

VERSION = "14"  # that of Debian 12; another version breaks lines elsewhere
LEFT_ALONE = re.compile(r"_wrap\.(c|cpp|cxx|h)$|^tests/support/host_cuda/")  # written by SWIG; headers that stand for CUDA's


def formatter():
    for name in (f"clang-format-{VERSION}", "clang-format"):
        if shutil.which(name):
            said = subprocess.run([name, "--version"], capture_output=True, text=True, check=True).stdout
            if f"version {VERSION}." in said:
                return name
    return None


program = formatter()
if program is None:
    print(f"skipped: clang-format {VERSION} not found (Debian: clang-format-{VERSION})")
    sys.exit(77)
sources = [path for path in tree.sources("src/", "include/", "tests/", "examples/", "bindings/") if not LEFT_ALONE.search(path)]
problems = []
for first in range(0, len(sources), 100):
    done = subprocess.run([program, "--dry-run", "-ferror-limit=1", "-Werror", *sources[first:first + 100]], cwd=tree.ROOT,
                          capture_output=True, text=True, check=False)
    problems += [f"{match}: run {program} -i on it" for match in
                 sorted(set(re.findall(r"^(\S+?):\d+:\d+: error", done.stderr, re.M)))]
tree.verdict(problems, f"{len(sources)} sources against .clang-format")
