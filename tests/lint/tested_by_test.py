# SPDX-License-Identifier: Apache-2.0
"""`Tested by <file>` at the head of a source is a promise: the file exists."""
import glob
import os
import re

import tree

problems = []
promises = 0
for path in tree.files():
    if not re.match(r"(src|tests)/.*\.(hpp|cpp|h|c|cu|cuh)$", path):
        continue
    for match in re.finditer(r"Tested by ([^\n]*(?:\n//[^\n]*)?)", tree.read(path)):
        for test in re.findall(r"([a-z_]+/[a-z_/*]*(?:\.cpp|\.c|\.sh|\.py|/))", match.group(1)):
            promises += 1
            if not glob.glob(os.path.join(tree.ROOT, "tests", test)):
                problems.append(f"{path}: tests/{test} does not exist")
tree.verdict(problems, f"{promises} promises")
