# SPDX-License-Identifier: Apache-2.0
"""The workflows of the public repository call scripts of the project, which run by hand too: each `run:` of .github/workflows is one
of them, or prepares the machine for a checkout."""
import re

import tree

PREPARES = ("apt-get update && apt-get install -y --no-install-recommends git ca-certificates",
            'git config --global --add safe.directory "$GITHUB_WORKSPACE"',
            "gh release create ")
problems, calls = [], 0
workflows = [path for path in tree.files() if re.fullmatch(r"\.github/workflows/[\w-]+\.yml", path)]
for path in workflows:
    for number, line in enumerate(tree.read(path).splitlines(), 1):
        command = re.match(r"\s*(?:- )?run: *(.*)", line)
        if not command or command.group(1).startswith(PREPARES):
            continue
        calls += 1
        if not tree.exists(command.group(1).split()[0]):
            problems.append(f"{path}:{number}: {command.group(1)!r} calls no script of the project")
if not workflows:
    problems.append("there are no workflows")
tree.verdict(problems, f"{len(workflows)} workflows, {calls} calls")
