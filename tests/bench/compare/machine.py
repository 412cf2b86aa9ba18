# SPDX-License-Identifier: Apache-2.0
"""What machine this is, and how much of it others use while something is measured."""

import os
import platform
import resource
import time

TICK = os.sysconf("SC_CLK_TCK")


def cores():
    return len(os.sched_getaffinity(0))


def describe():
    model = "unknown processor"
    with open("/proc/cpuinfo", encoding="ascii", errors="replace") as file:
        for line in file:
            if line.startswith(("model name", "Hardware")):
                model = line.split(":", 1)[1].strip()
                break
    with open("/proc/meminfo", encoding="ascii") as file:
        gib = int(file.readline().split()[1]) / (1 << 20)
    virtual = "hypervisor" in open("/proc/cpuinfo", encoding="ascii", errors="replace").read()
    return "%s%d cores, %s, %.0f GiB, Linux %s" % (
        "virtual machine, " if virtual else "", cores(), model, gib, platform.release())


def _busy():
    """Seconds of processor time that anybody used, and that the host of a virtual machine took away."""
    with open("/proc/stat", encoding="ascii") as file:
        fields = [int(field) for field in file.readline().split()[1:9]]
    user, nice, system, _idle, _wait, irq, softirq, stolen = fields
    return (user + nice + system + irq + softirq) / TICK, stolen / TICK


def _children():
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


class Watch:
    """From its making to others(): how many cores other programs, and the host below, used on average."""

    def __init__(self):
        self.begin, self.own = time.monotonic(), _children()
        self.busy, self.stolen = _busy()

    def others(self):
        passed = max(time.monotonic() - self.begin, 0.05)
        busy, stolen = _busy()
        used = (busy - self.busy) - (_children() - self.own) + (stolen - self.stolen)
        return max(0.0, used / passed)
