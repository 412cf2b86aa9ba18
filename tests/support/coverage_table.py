# SPDX-License-Identifier: Apache-2.0
"""The tables of tests/coverage.sh, from gcovr's summary: coverage_table.py FILE."""

import collections
import json
import pathlib
import sys

LEAST = 0.8


def share(part, whole):
    return f"{100 * part / whole:.0f} %" if whole else "-"


def main():
    files = json.loads(pathlib.Path(sys.argv[1]).read_text())["files"]
    folders = collections.defaultdict(lambda: [0, 0, 0, 0])
    for each in files:
        counts = [each[key] for key in ("line_covered", "line_total", "branch_covered", "branch_total")]
        for folder in (str(pathlib.PurePath(each["filename"]).parent), "all"):
            folders[folder] = [a + b for a, b in zip(folders[folder], counts)]
    print("| folder | lines | of | branches | of |\n| --- | --- | --- | --- | --- |")
    for folder, (lines, of_lines, branches, of_branches) in sorted(folders.items()):
        print(f"| {folder} | {share(lines, of_lines)} | {of_lines:,} | {share(branches, of_branches)} | {of_branches:,} |")
    print(f"\nbelow {100 * LEAST:.0f} % of the lines:")
    for each in sorted(files, key=lambda each: each["filename"]):
        if each["line_total"] and each["line_covered"] < LEAST * each["line_total"]:
            print(f"  {each['filename']}: {each['line_covered']} of {each['line_total']} lines")


main()
