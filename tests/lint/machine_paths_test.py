# SPDX-License-Identifier: Apache-2.0
"""No file names a folder of the machine that it was written on."""
import re

import tree

# Written in pieces, or this file would find itself.
PATTERN = re.compile(r"(?<![\w.$}])/(?:" + "|".join(["wo" + "rk", "ro" + "ot", "home/" + r"[a-z]\w*", "Us" + r"ers/\w+"]) + r")(?:/|\b(?![\w-]))")
problems = []
paths = tree.files()
for path in paths:
    for number, line in enumerate(tree.read(path).splitlines(), 1):
        match = PATTERN.search(line)
        if match:
            problems.append(f"{path}:{number}: {match.group(0)}")
tree.verdict(problems, f"{len(paths)} files")
