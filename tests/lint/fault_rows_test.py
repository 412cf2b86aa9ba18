# SPDX-License-Identifier: Apache-2.0
"""tests/FAULTS.md has an entry for each row of the table of faults, and the tests that an entry names exist: the file, and in it the function or
the line in brackets, or in the helpers that it includes."""
import glob
import os
import re

import tree

ROWS = [(1, 8), (10, 14), (20, 30), (35, 38), (40, 56), (60, 67), (70, 80), (82, 83), (85, 87), (90, 96)]
WANTED = {f"F{row:02}" for first, last in ROWS for row in range(first, last + 1)}


def sources(name):
    """Text of the test `folder/name`, with the helpers that it includes; None if there is none."""
    found = []
    if name.endswith(".py"):
        found = glob.glob(os.path.join(tree.ROOT, name))
    for pattern in (f"tests/{name}_test.*", f"tests/{name}_fuzz.cpp", f"tests/{name}.cpp"):
        found += glob.glob(os.path.join(tree.ROOT, pattern))
    if not found:
        return None
    text = ""
    for path in found:
        text += open(path, encoding="utf-8").read()
        for header in re.findall(r'#include "((?:conformance|chaos|support)/[a-z_]+\.hpp)"|#include "([a-z_]+\.hpp)"', text):
            for candidate in (os.path.join(tree.ROOT, "tests", header[0] or header[1]), os.path.join(os.path.dirname(path), header[0] or header[1])):
                if os.path.isfile(candidate):
                    text += open(candidate, encoding="utf-8").read()
    return text


problems = []
seen = set()
names = 0
for entry in re.findall(r"^- \*\*(.*(?:\n  .*)*)", tree.read("tests/FAULTS.md"), re.M):
    entry = re.sub(r"\s+", " ", entry)
    row = re.match(r"F\d\d(?=\. )", entry)
    name = row[0] if row else entry[:40]
    seen.add(name)
    if row and not re.match(r"F\d\d\. [^*]+\.\*\* Asserts: .*\. Tests: .*\.$", entry):
        problems.append(f"tests/FAULTS.md: {name} is not a fault, \"Asserts:\" and \"Tests:\"")
    tests = re.findall(r"`([a-z_]+/[a-z_0-9/.]+)`(?: \(((?:`[^`]+`(?:, )?)+)\))?", entry.partition("Tests: ")[2])
    if not tests:
        problems.append(f"tests/FAULTS.md: {name} names no test")
    for test, inside in tests:
        names += 1
        text = sources(test)
        if text is None:
            problems.append(f"tests/FAULTS.md: {name}: there is no test {test}")
            continue
        for each in re.findall(r"`([^`]+)`", inside):
            if each not in text:
                problems.append(f"tests/FAULTS.md: {name}: {test} has no {each}")
problems += [f"tests/FAULTS.md: row {row} of the table of faults is missing" for row in sorted(WANTED - seen)]
tree.verdict(problems, f"{len(seen)} faults, {names} tests")
