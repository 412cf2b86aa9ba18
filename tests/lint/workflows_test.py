# SPDX-License-Identifier: Apache-2.0
"""The workflows of the public repository call scripts of the project, which run by hand too: each `run:` of .github/workflows is one
of them, or prepares the machine for a checkout. An action has its version, a job its limit of time, and no workflow more rights than it
says. .github/check.sh has actionlint and GitHub's schemas look at them too."""
import re

import tree

PREPARES = ("apt-get update && apt-get install -y --no-install-recommends git ca-certificates",
            'git config --global --add safe.directory "$GITHUB_WORKSPACE"')
problems, calls = [], 0
workflows = [path for path in tree.files() if re.fullmatch(r"\.github/workflows/[\w-]+\.yml", path)]
for path in workflows:
    text = tree.read(path)
    if not re.search(r"^permissions:\n  contents: read$", text, re.M):
        problems.append(f"{path}: no permissions at its top, where they are to read the contents and nothing else")
    for job in re.split(r"^  (?=[\w-]+:$)", text.split("\njobs:\n", 1)[1], flags=re.M):
        if "runs-on:" in job and not re.search(r"^    timeout-minutes: \d+$", job, re.M):
            problems.append(f"{path}: the job {job.split(':')[0]} has no timeout-minutes")
    for action in re.findall(r"^ *(?:- )?uses: *(\S+)", text, re.M):
        if not action.startswith("./") and not re.fullmatch(r"[\w./-]+@(v\d+(\.\d+)*|[0-9a-f]{40})", action):
            problems.append(f"{path}: {action} has no version")
    for number, line in enumerate(text.splitlines(), 1):
        command = re.match(r"\s*(?:- )?run: *(.*)", line)
        if not command or command.group(1).startswith(PREPARES):
            continue
        calls += 1
        if not tree.exists(command.group(1).split()[0]):
            problems.append(f"{path}:{number}: {command.group(1)!r} calls no script of the project")
if not workflows:
    problems.append("there are no workflows")
tree.verdict(problems, f"{len(workflows)} workflows, {calls} calls")
