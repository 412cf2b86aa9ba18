# SPDX-License-Identifier: Apache-2.0
"""One launch of a program of ranks: its output, and how quiet the machine was meanwhile."""

import os
import subprocess
import tempfile

from machine import Watch
from statistics_of import slowest


class Failed(Exception):
    pass


def launch(commands, environment, limit, errors=subprocess.PIPE):
    """Start all commands at once; all their lines, and the cores that others used. Raises Failed."""
    watch = Watch()
    processes = [subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, stdin=subprocess.DEVNULL, text=True,
                                  env=dict(os.environ, **environment)) for command in commands]
    lines, failure = [], None
    for process in processes:
        try:
            out, err = process.communicate(timeout=limit)
            lines += out.splitlines()
            if process.returncode != 0 and failure is None:
                failure = "ended with %d: %s" % (process.returncode, ((err or "").strip().splitlines() or ["no message"])[-1])
        except subprocess.TimeoutExpired:
            failure = failure or "took longer than %d s" % limit
            process.kill()
            process.communicate()
    if failure:
        raise Failed(failure)
    return lines, watch.others()


def meeting_place():
    return tempfile.TemporaryDirectory(prefix="ddp-bench-")


def all_reduce_figures(lines):
    """(bytes, kind) -> microseconds of each block's slowest rank."""
    by_rank = {}
    for line in lines:
        if line.startswith("R "):
            _, _rank, size, kind, *us = line.split()
            by_rank.setdefault((int(size), kind), []).append([float(each) for each in us])
    return {key: slowest(values) for key, values in by_rank.items()}


def step_figures(lines):
    """what -> milliseconds of each iteration's slowest rank; and what -> the most of any rank, in MiB."""
    times, memory = {}, {}
    for line in lines:
        kind, *fields = line.split() or [""]
        if kind == "T":
            times.setdefault(fields[1], []).append([float(each) for each in fields[2:]])
        if kind == "M":
            memory[fields[1]] = max(memory.get(fields[1], float("-inf")), float(fields[2]))
    return {what: slowest(values) for what, values in times.items()}, memory
