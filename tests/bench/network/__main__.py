# SPDX-License-Identifier: Apache-2.0
"""libddp beside Gloo, the MPIs and PyTorch between hosts made on this machine.

Every configuration (hosts, ranks a host, delay) is a network of its own; all programs run in it one after the other, in a new random
order each round. Writes results.json and results.md into --out. Needs root, ip, tc and a kernel with TAP and tbf."""

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile

from hosts import Network
from peers import ALL, OURS, Peers, say

SIZES = {"barrier": 0, "1KiB": 1 << 10, "4KiB": 1 << 12, "64KiB": 1 << 16, "256KiB": 1 << 18, "1MiB": 1 << 20, "4MiB": 4 << 20, "8MiB": 8 << 20, "25MiB": 25 << 20}
WAYS = ["plain", "adam", "shard", "inbackward"]
OURS_ALONE = ["bucket-" + way for way in WAYS] + ["create"]


def parse():
    numbers = lambda kind: lambda text: [kind(each) for each in text.split(",")]
    parser = argparse.ArgumentParser(prog="tests/bench/network.sh", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hosts", type=numbers(int), default=[2, 4, 8], help="numbers of hosts (2,4,8)")
    parser.add_argument("--ranks", type=numbers(int), default=[1], help="ranks on each host (1)")
    parser.add_argument("--delay", type=numbers(float), default=[0.1, 1.0, 20.0], help="one-way delays in ms (0.1,1,20)")
    parser.add_argument("--rate", type=float, default=500, help="Mbit/s of each host, up and down (500)")
    parser.add_argument("--buffer", type=float, default=1024, help="KiB of buffer for each port of the switch (1024)")
    parser.add_argument("--sizes", type=numbers(str), default=list(SIZES), help="of %s" % ",".join(SIZES))
    parser.add_argument("--only", type=numbers(str), default=ALL, help="of %s" % ",".join(ALL))
    parser.add_argument("--tasks", type=numbers(str), default=["sums"], help="of sums,%s,passes=MS,passes=MS-WAY (sleep in a pass, in ms)" % ",".join(OURS_ALONE))
    parser.add_argument("--rounds", type=int, default=3, help="times that everything is repeated (3)")
    parser.add_argument("--calls", type=int, default=9, help="calls measured in one run of a program, at most 64 (9)")
    parser.add_argument("--build", default="build/bench", help="build folder (build/bench)")
    parser.add_argument("--out", default="build/network", help="folder of the results (build/network)")
    parser.add_argument("--limit", type=float, default=120, help="seconds that one run may take (120)")
    return parser.parse_args()


def launch(peers, name, net, ranks, task, options):
    """{label: (microseconds of each call, bytes of the busiest host, drops)}"""
    with tempfile.TemporaryDirectory(prefix="ddp-bench-") as folder:
        meeting = os.path.join(folder, "meeting")
        with open(meeting, "wb") as file:
            file.truncate(65536)
        arguments = ["sums"] if task == "sums" else task.replace("passes=", "passes-").split("-")
        extra = {"BENCH_MEETING": meeting, "BENCH_CALLS": str(options.calls),
                 "BENCH_SIZES": ",".join(str(SIZES[size]) for size in options.sizes)}
        meet = os.path.join(folder, "meet")
        os.mkdir(meet)
        return collect(peers.commands(name, net, ranks, meet, arguments), extra, options.limit)


def collect(commands, extra, limit):
    processes = [subprocess.Popen(command, env=dict(os.environ, **dict(environment, **extra)), stdout=subprocess.PIPE,
                                  stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True) for command, environment in commands]
    text, why = "", None
    for process in processes:
        try:
            out, error = process.communicate(timeout=limit)
            text += out
            if process.returncode != 0 and why is None:
                why = "ended with %d: %s" % (process.returncode, error.strip()[-300:])
        except subprocess.TimeoutExpired:
            why = why or "took longer than %g s" % limit
            for each in processes:
                each.kill()
    if why:
        raise RuntimeError(why)
    figures = {}
    for line in text.splitlines():
        if line.startswith("N "):
            _, label, sent, drops, *us = line.split()
            figures[label] = ([float(each) for each in us], float(sent), int(drops))
    return figures


def tasks_of(name, options):
    for task in options.tasks:
        if task == "sums" or name in OURS or (name == "torch" and task.startswith("passes") and "-" not in task):
            yield task


def measure(peers, options):
    rows = {}
    for hosts in options.hosts:
        for ranks in options.ranks:
            for delay in options.delay:
                with Network(peers.path("switch"), hosts, options.rate, delay, options.buffer) as net:
                    for turn in range(options.rounds):
                        work = [(name, task) for name in peers.found for task in tasks_of(name, options)]
                        random.shuffle(work)
                        for name, task in work:
                            say("%d hosts x %d, %g ms, round %d of %d: %s %s" % (hosts, ranks, delay, turn + 1, options.rounds, name, task))
                            try:
                                figures = launch(peers, name, net, ranks, task, options)
                            except RuntimeError as error:
                                say("  failed: %s" % error)
                                continue
                            for label, figure in figures.items():
                                key = task if task != "sums" else next(k for k, v in SIZES.items() if str(v) == label)
                                rows.setdefault((hosts, ranks, delay, key), {}).setdefault(name, []).append(figure)
    return rows


def ideal_ms(hosts, delay, what, rate):
    """What the wire allows: 2 (n - 1) / n of the bytes at the rate and two delays; of a barrier one delay. None: no such bound."""
    if what == "create":
        return None
    size = SIZES.get(what, 48 << 20 if what.startswith("passes") else 25 << 20)
    if size <= 4096:
        return delay
    return 2 * (hosts - 1) / hosts * size * 8 / (rate * 1e3) + 2 * delay


def summarize(rows, options):
    result = []
    for (hosts, ranks, delay, what), peers in rows.items():
        every = {name: sorted(us / 1e3 for figure in figures for us in figure[0]) for name, figures in peers.items()}
        medians = {name: statistics.median(ms) for name, ms in every.items()}
        halves = {name: [ms[len(ms) // 4], ms[-1 - len(ms) // 4]] for name, ms in every.items()}
        sent = {name: statistics.median([figure[1] for figure in figures]) for name, figures in peers.items()}
        drops = {name: sum(figure[2] for figure in figures) for name, figures in peers.items()}
        result.append({"hosts": hosts, "ranks": ranks, "delay_ms": delay, "what": what, "ms": medians, "middle_half": halves, "sent_bytes": sent, "drops": drops,
                       "ideal_ms": ideal_ms(hosts, delay, what, options.rate), "runs": {name: len(f) for name, f in peers.items()}})
    return result


def table(summary, names):
    lines = ["| hosts x ranks, delay | what | ideal | %s | libddp / best rival | encrypted / plain |" % " | ".join(names), "| --- " * (len(names) + 5) + "|"]
    for row in summary:
        rivals = {name: ms for name, ms in row["ms"].items() if name not in OURS}
        best = min(rivals, key=rivals.get) if rivals else None
        plain = row["ms"].get("libddp-plain")
        cells = []
        for name in names:
            text = "%.3g [%.3g-%.3g]" % (row["ms"][name], *row["middle_half"][name]) if name in row["ms"] else ""
            cells.append("**%s**" % text if name == best else text)
        ratio = "%.2f" % (row["ms"]["libddp"] / rivals[best]) if best and "libddp" in row["ms"] else ""
        links = "%.2f" % (row["ms"]["libddp"] / plain) if plain and "libddp" in row["ms"] else ""
        ideal = "" if row["ideal_ms"] is None else "%.3g" % row["ideal_ms"]
        lines.append("| %d x %d, %g ms | %s | %s | %s | %s | %s |" % (
            row["hosts"], row["ranks"], row["delay_ms"], row["what"], ideal, " | ".join(cells), ratio, links))
    return "\n".join(lines) + "\n"


def main():
    options = parse()
    if os.geteuid() != 0:
        sys.exit("network namespaces need root")
    options.build, options.out = os.path.abspath(options.build), os.path.abspath(options.out)
    os.makedirs(options.out, exist_ok=True)
    peers = Peers(options.build, options.only)
    peers.prepare()
    summary = summarize(measure(peers, options), options)
    with open(os.path.join(options.out, "results.json"), "w", encoding="utf-8") as file:
        json.dump({"rate_mbit": options.rate, "buffer_kib": options.buffer, "skipped": peers.skipped, "rows": summary}, file, indent=1)
    text = table(summary, [name for name in options.only if name in peers.found])
    with open(os.path.join(options.out, "results.md"), "w", encoding="utf-8") as file:
        file.write("Milliseconds, medians [middle half]; %g Mbit/s, %g KiB of buffer a port.\n\n%s" % (options.rate, options.buffer, text))
    print("Milliseconds, medians [middle half].\n\n" + text)


main()
