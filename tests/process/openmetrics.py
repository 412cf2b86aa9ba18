# SPDX-License-Identifier: Apache-2.0
"""A reader of OpenMetrics 1.0 text that refuses what the format forbids. It knows nothing of ddprun.

  openmetrics.py FILE EXPRESSION     the expression is true of m(metric, label=value, ...), a list of values
  openmetrics.py FILE --follow PID   reads the file until that process ends: each version is well-formed, no counter falls,
                                     and there are several versions"""
import os
import re
import sys
import time

NAME, LABEL = r"[a-zA-Z_:][a-zA-Z0-9_:]*", r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\\n]|\\["\\n])*)"'
SAMPLE = re.compile(rf"({NAME})(?:\{{({LABEL}(?:,{LABEL})*)?\}})? (NaN|[+-]Inf|[+-]?[0-9.]+(?:e[+-]?[0-9]+)?)")
SUFFIXES = {"counter": {"_total"}, "gauge": {""}, "info": {"_info"}}


def parse(text):
    """{(name, labels): value} of a whole text; raises ValueError."""
    if not text.endswith("# EOF\n"):
        raise ValueError("no # EOF at the end: " + text[-60:])
    samples, family, kind, finished = {}, None, None, set()
    for line in text[:-len("# EOF\n")].splitlines():
        if line.startswith("# "):
            word, name, rest = line[2:].split(" ", 2)
            if word == "TYPE":
                if name in finished:
                    raise ValueError("a family stands twice: " + line)
                family, kind, _ = name, rest, finished.add(name)
            if name != family or word not in ("TYPE", "UNIT", "HELP"):
                raise ValueError("not of this family: " + line)
            if word == "UNIT" and not name.endswith("_" + rest):
                raise ValueError("the name does not end with the unit: " + line)
            continue
        match = SAMPLE.fullmatch(line)
        if match is None:
            raise ValueError("no sample: " + line)
        if family is None or not match[1].startswith(family) or match[1][len(family):] not in SUFFIXES[kind]:
            raise ValueError(f"not of the family {family}, a {kind}: {line}")
        labels = re.findall(LABEL, match[2] or "")
        if len({label for label, _ in labels}) != len(labels):
            raise ValueError("a label stands twice: " + line)
        key, value = (match[1], tuple(sorted(labels))), float(match[match.lastindex])
        if key in samples:
            raise ValueError("a sample stands twice: " + line)
        if kind == "counter" and not 0 <= value < float("inf"):
            raise ValueError("no count: " + line)
        samples[key] = value
    return samples


def read(path):
    with open(path, encoding="utf-8", newline="") as file:
        return parse(file.read())


def runs(pid):
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8") as file:
            return file.read().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def follow(path, pid):
    before, versions = {}, 0
    while runs(pid):
        if os.path.exists(path):
            now = read(path)
            for key, value in now.items():
                if key[0].endswith("_total") and value < before.get(key, 0):
                    sys.exit(f"{key} fell from {before[key]} to {value}")
            versions += str(now) != str(before)  # NaN does not equal NaN
            before = now
        time.sleep(0.02)
    print(versions, "versions")
    sys.exit(versions < 3)


def main():
    path, what = sys.argv[1:3]
    if what == "--follow":
        follow(path, int(sys.argv[3]))
    samples = read(path)

    def m(metric, **labels):
        return [value for (found, of), value in samples.items() if found == metric and labels.items() <= dict(of).items()]

    if not eval(what):  # an expression of the test itself
        sys.exit(f"false: {what} of {samples}")


main()
