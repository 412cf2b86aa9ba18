# SPDX-License-Identifier: Apache-2.0
"""Programs compiled yesterday run with the library of today: sizes and offsets of every public struct and the number behind every
name equal the golden file. After an intended change (members at the tail of a growing struct, new names):
  python3 tests/abi/layout_test.py --write, and a line in include/CHANGES.md."""
import os
import sys
import tempfile

os.environ.setdefault("DDP_LIBRARY", "")
from common import HERE, build, declarations, run, tree  # noqa: E402

GOLDEN = os.path.join(HERE, "layout_lp64.txt")


def program():
    api = declarations.load()
    lines = ["#include <ddp/experimental.h>", "#include <stddef.h>", "#include <stdio.h>", "int main(void) {"]
    for struct in sorted(api.structs, key=lambda each: each.name):
        lines.append(f'  printf("{struct.name} %zu bytes\\n", sizeof({struct.name}));')
        for member in struct.members:
            lines.append(f'  printf("{struct.name}.{member.name} at %zu, %zu bytes\\n", offsetof({struct.name}, {member.name}), '
                         f"sizeof((({struct.name} *)0)->{member.name}));")
    for enum in sorted(api.enums, key=lambda each: each.name):
        lines.append(f'  printf("{enum.name} %zu bytes\\n", sizeof({enum.name}));')
        for name, _ in enum.values:
            lines.append(f'  printf("{name} = %d\\n", (int){name});')
    lines.append('  printf("DDP_MAX_DIMENSIONS = %d\\n", DDP_MAX_DIMENSIONS);')
    return "\n".join([*lines, "  return 0;", "}", ""])


with tempfile.TemporaryDirectory() as work:
    now = run([build(work, "layout", program(), link=False)])
if "--write" in sys.argv:
    with open(GOLDEN, "w", encoding="utf-8") as file:
        file.write(now)
with open(GOLDEN, encoding="utf-8") as file:
    golden = file.read()
problems = [f"was: {line}" for line in golden.splitlines() if line not in now.splitlines()]
problems += [f"is:  {line}" for line in now.splitlines() if line not in golden.splitlines()]
tree.verdict(problems, f"{len(golden.splitlines())} lines of layout")
