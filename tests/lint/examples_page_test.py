# SPDX-License-Identifier: Apache-2.0
"""The lines that examples/README.md shows side by side, in C and in Python, are lines of the programs "after"; they may be broken there."""
import re

import tree

PROGRAMS = {"c": "examples/one_to_four/after.c", "python": "examples/python/one_to_four/after.py"}


def squeezed(text):
    return re.sub(r"\s", "", text)


problems, count = [], 0
page = re.search(r"(?s)^<table class=\"side\">.*?^</table>", tree.read("examples/README.md"), re.M)
for language, block in re.findall(r"^```(\w+)\n(.*?)^```", page[0] if page else "", re.M | re.S):
    program = squeezed(tree.read(PROGRAMS[language]))
    for line in block.splitlines():
        count += 1
        # A bracket that only holds a broken line together is not in the program.
        if squeezed(line) not in program and squeezed(line).rstrip("()") not in program:
            problems.append(f"examples/README.md: {PROGRAMS[language]} has no {line.strip()}")
if count < 20:
    problems.append("examples/README.md has no programs side by side")
tree.verdict(problems, f"{count} lines")
