# SPDX-License-Identifier: Apache-2.0
"""Why tests were skipped: CTest runs this after every run (CTestCustom.cmake) and shows what it prints behind its summary.

CTest itself says only "Skipped". The reason is what the test printed; CTest keeps it in Testing/Temporary of the build folder.
Argument: the build folder. Never fails, because that would change CTest's exit status.
Tested by lint/skip_reasons_test.py.
"""
import os
import re
import sys
import time


def began(folder):
    """The minute in which this run began, as seconds since the epoch."""
    for name in ("LastTest.log.tmp", "LastTest.log"):
        path = os.path.join(folder, name)
        if os.path.exists(path):
            with open(path, encoding="utf-8", errors="replace") as file:
                minute = re.match(r"Start testing: (\w+ +\d+ \d+:\d+)", file.readline()).group(1)
            return time.mktime(time.strptime(f"{time.localtime(os.path.getmtime(path)).tm_year} {minute}", "%Y %b %d %H:%M"))
    return 0.0


def skipped_names(folder):
    """CTest's list of tests that did not run: "number:name" lines. CTest leaves that of an earlier run if this one skips none."""
    path = os.path.join(folder, "LastTestsDisabled.log")
    try:
        if os.path.getmtime(path) < began(folder):
            return []
        with open(path, encoding="utf-8") as file:
            return [line.strip().partition(":")[2] for line in file if ":" in line]
    except OSError:
        return []


def read_log(folder):
    """What each test of this run printed, and whether CTest counts it as passed. The log gets its name at CTest's end."""
    for name in ("LastTest.log.tmp", "LastTest.log"):
        try:
            with open(os.path.join(folder, name), encoding="utf-8", errors="replace") as file:
                text = file.read()
        except OSError:
            continue
        pattern = (r"^\d+/\d+ Test: (.*)\n(?:(?!\d+/\d+ Test: ).*\n)*?"
                   r"Output:\n-+\n((?:.*\n)*?)<end of output>\n.*\n-+\nTest (.*)\.$")
        return {name: (output, verdict == "Passed") for name, output, verdict in re.findall(pattern, text, re.MULTILINE)}
    return {}


def reason(output):
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    said = [line for line in lines if re.search(r"\bskip", line, re.IGNORECASE)]
    line = (said or lines or ["it printed no reason"])[-1]
    return re.sub(r"^skipped: ", "", line)


def main():
    folder = os.path.join(sys.argv[1], "Testing", "Temporary")
    tests = read_log(folder)
    skipped = [name for name in skipped_names(folder) if name in tests]  # the list may be of an earlier run in this minute
    if not skipped:
        return
    print(f"\nWhy {len(skipped)} {'test was' if len(skipped) == 1 else 'tests were'} skipped:")
    for name in skipped:
        print(f"\t{name}: {reason(tests[name][0])}")
    passed = sum(good for _, good in tests.values()) - len(skipped)
    print(f"\n{passed} tests passed, {len(skipped)} skipped, {len(tests) - passed - len(skipped)} failed")
    sys.stdout.flush()


if __name__ == "__main__":
    try:
        main()
    except Exception as error:  # pylint: disable=broad-except
        print("skip_reasons.py:", error)
