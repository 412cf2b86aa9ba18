# SPDX-License-Identifier: Apache-2.0
"""Each source file names its licence in its head, as LICENSE has it: `SPDX-License-Identifier: Apache-2.0` in a comment.

    python3 tests/lint/spdx_test.py --write     adds the lines that are missing

Files written by a generator get the line from it, behind what the generator says of itself.
"""
import os
import re
import sys

import tree

LINE = "SPDX-License-Identifier: Apache-2.0"
COMMENT = {"/* {} */": (".c", ".h", ".i"), "// {}": (".cpp", ".hpp", ".cu", ".cuh", ".cc", ".go", ".java", ".rs"), "! {}": (".f90",),
           "# {}": (".py", ".pyi", ".jl", ".sh", ".pl", ".tcl", ".cmake", "cmakelists.txt", ".sbatch", ".pbs", ".yml", ".yaml", ".toml")}
HEAD = 16  # lines in which a reader, and a tool, looks for it


def comment_of(path):
    """The comment with the line as it is written in this file; None if the file is no source."""
    for comment, endings in COMMENT.items():
        if path.lower().endswith(endings):
            return comment.format(LINE)
    return "# " + LINE if tree.read(path).startswith("#!") else None


def with_line(path, comment):
    lines = tree.read(path).splitlines(keepends=True)
    first = 1 if lines and lines[0].startswith("#!") else 0
    gap = ["\n"] if path.endswith(".go") else []  # else it would be a part of the package's comment
    return "".join(lines[:first] + [comment + "\n"] + gap + lines[first:])


def main():
    licence = tree.read("LICENSE")
    problems, count = [], 0
    if not re.search(r"Apache License\s+Version 2\.0", licence):
        problems.append(f"LICENSE is not the one that {LINE} names")
    for path in tree.files():
        comment = comment_of(path)
        if comment is None or path.startswith("tests/fuzz/corpus/"):
            continue
        count += 1
        if any(line.strip() == comment for line in tree.read(path).splitlines()[:HEAD]):
            continue
        if "--write" in sys.argv[1:]:
            text = with_line(path, comment)
            with open(os.path.join(tree.ROOT, path), "w", encoding="utf-8") as file:
                file.write(text)
        else:
            problems.append(f"{path}: no line {comment!r} in its first {HEAD} lines")
    if count < 500:
        problems.append(f"only {count} sources were found")
    tree.verdict(problems, f"{count} files name the licence")


if __name__ == "__main__":
    main()
