# SPDX-License-Identifier: Apache-2.0
"""Tests that no run has executed: not_run.py RESULTS.xml ... reads what `ctest --output-junit` wrote, one file a run. A test counts as executed
if one run executed it. The reason is of the last run that skipped it. Tested by lint/skip_reasons_test.py."""
import sys
import xml.etree.ElementTree as xml

from skip_reasons import reason


def not_executed(files):
    """(number of tests, {name: reason} of those that every run skipped)"""
    skipped, executed = {}, set()
    for path in files:
        for case in xml.parse(path).getroot().iter("testcase"):
            if case.find("skipped") is None:
                executed.add(case.get("name"))
            else:
                skipped[case.get("name")] = reason(case.findtext("system-out") or "")
    return len(executed | set(skipped)), {name: why for name, why in sorted(skipped.items()) if name not in executed}


def main():
    count, skipped = not_executed(sys.argv[1:])
    print(f"{len(skipped)} of {count} tests were executed by no run{':' if skipped else '.'}")
    for name, why in skipped.items():
        print(f"\t{name}: {why}")


if __name__ == "__main__":
    main()
