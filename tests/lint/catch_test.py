# SPDX-License-Identifier: Apache-2.0
"""Errors are thrown where they happen and caught in few places: tests/lint/catch_allowed.txt, each with its reason."""
import re

import tree

MOST = 9

allowed = {}
problems = []
for line in tree.read("tests/lint/catch_allowed.txt").splitlines():
    if line and not line.startswith("#"):
        path, _, reason = line.partition(":")
        allowed[path.strip()] = reason.strip()
        if not reason.strip():
            problems.append(f"tests/lint/catch_allowed.txt: {path} has no reason")

catching = set()
sources = tree.sources("src/")
for path in sources:
    text = tree.strip(tree.read(path))
    for match in re.finditer(r"\bcatch\s*\(", text):
        catching.add(path)
        if path not in allowed:
            line = text.count("\n", 0, match.start()) + 1
            problems.append(f"{path}:{line}: catch; let it pass to capi/guard.hpp, or give the file a line with a reason "
                            "in tests/lint/catch_allowed.txt")
problems += [f"tests/lint/catch_allowed.txt: {path} catches nothing; remove its line" for path in allowed if path not in catching]
if len(allowed) > MOST:
    problems.append(f"tests/lint/catch_allowed.txt: {len(allowed)} files, at most {MOST}")
tree.verdict(problems, f"{len(sources)} sources, {len(catching)} of them catch")
