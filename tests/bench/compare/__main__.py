# SPDX-License-Identifier: Apache-2.0
"""Measures libddp beside its peers on this host: all-reduce, training steps, memory, and more ranks than cores.

Rounds are interleaved and shuffled, so that a change of the machine's speed meets everybody. Figures are medians; the
spread is the middle half. Needs what building libddp needs; peers that are missing are skipped with a reason."""

import argparse
import datetime
import json
import os
import random
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import headline  # noqa: E402
import machine  # noqa: E402
import picture  # noqa: E402
import report  # noqa: E402
import sections  # noqa: E402
from launches import Failed, all_reduce_figures, launch, meeting_place, step_figures  # noqa: E402
from programs import BENCH, ROOT, Programs, say  # noqa: E402
from results import Results  # noqa: E402
from ways import ALL_REDUCE, MODELS, step_ways  # noqa: E402

PARTS = ("all-reduce", "step", "adamw", "crowded")


def parse():
    parser = argparse.ArgumentParser(prog="tests/bench/run.sh", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="two rounds and fewer peers, about 2 minutes (default: about 15)")
    parser.add_argument("--all", action="store_true", help="the other programs too, and networks made on this machine: all figures of the project, "
                        "written as FIGURES.md, figures.json, figures.svg and headline.svg into tests/bench (with --quick into --out). About an hour")
    parser.add_argument("--sections", default="", help="with --all: words of the titles of the other programs' sections, with commas (default: all)")
    parser.add_argument("--ranks", default="2,4", help="numbers of ranks, with commas (default 2,4)")
    parser.add_argument("--rounds", type=int, help="launches of each program (default 5; quick: 2)")
    parser.add_argument("--only", default=",".join(PARTS), help="some of %s (default: all)" % ", ".join(PARTS))
    parser.add_argument("--models", default=",".join(MODELS), help="some of %s (default: all)" % ", ".join(MODELS))
    parser.add_argument("--without", default="", help="peers to leave out, such as torch,mpich")
    parser.add_argument("--build", default=os.path.join(ROOT, "build", "bench"), help="build folder (default build/bench)")
    parser.add_argument("--out", default=os.path.join(ROOT, "build", "bench", "results"), help="folder for the results")
    options = parser.parse_args()
    options.rounds = options.rounds or (2 if options.quick else 5)
    options.ranks = [int(each) for each in options.ranks.split(",")]
    options.only = options.only.split(",")
    options.pages = options.out if options.quick else BENCH
    for name, known in (("only", PARTS), ("models", MODELS)):
        value = getattr(options, name)
        for each in value if isinstance(value, list) else value.split(","):
            if each not in known:
                parser.error("--%s knows %s, not %s" % (name, ", ".join(known), each))
    options.models = options.models.split(",")
    return options


def tasks_of(options, programs):
    """(part, key, way, ranks) of every launch of one round."""
    tasks, crowd = [], 2 * machine.cores()
    usable = [way for way in ALL_REDUCE if (not way.needs or way.needs in programs.peers) and not (options.quick and way.thorough)]
    if "all-reduce" in options.only:
        tasks += [("all_reduce", "all_reduce", way, ranks) for ranks in options.ranks for way in usable]
    models = {model: [way for way in step_ways(model) if not way.needs or way.needs in programs.peers] for model in options.models}
    if "step" in options.only:
        tasks += [("step", model, way, ranks) for model, ways in models.items() for ranks in options.ranks for way in ways]
    if "adamw" in options.only:
        tasks += [("adamw", "adamw", way, 1) for way in report.ADAMW if not way.needs or way.needs in programs.peers]
    if "crowded" in options.only:
        base = machine.cores()
        for ranks in (base, crowd):
            if ranks == base and base in options.ranks and "all-reduce" in options.only and "step" in options.only:
                continue  # measured already
            tasks += [("all_reduce", "all_reduce", way, ranks) for way in usable if way.beyond_cores]
            tasks += [("step", "mlp", way, ranks) for way in models.get("mlp", []) if way.beyond_cores and way.name in ("user", "library")]
    return tasks


def run_task(task, programs, results, limit):
    part, key, way, ranks = task
    with meeting_place() as folder:
        lines, others = launch(way.command(programs, ranks, folder), programs.environment(), limit)
    if part == "all_reduce":
        for (size, kind), us in all_reduce_figures(lines).items():
            results.add(part, key, way.name, ranks, "%d/%s" % (size, kind), others, us)
    else:
        times, memory = step_figures(lines)
        for what, ms in times.items():
            results.add(part, key, way.name, ranks, what, others, ms)
        if times.get("local") and times.get("step"):
            local = report.median(times["local"])
            results.add(part, key, way.name, ranks, "cost", others, [each - local for each in times["step"]])
            results.add(part, key, way.name, ranks, "ratio", others, [each / local for each in times["step"]])
        for what, mib in memory.items():
            results.add("memory", key, way.name, ranks, what, others, [mib])
    return others


def measure(options, programs, results):
    unsupported = set()
    tasks = tasks_of(options, programs)
    begin, total, done = time.monotonic(), len(tasks) * options.rounds, 0
    for round_number in range(options.rounds):
        order = list(tasks)
        random.Random(round_number).shuffle(order)
        for task in order:
            part, key, way, ranks = task
            done += 1
            name = "%s, %s, %d ranks" % (key, way.label, ranks)
            if (part, key, way.name, ranks) in unsupported:
                continue
            try:
                others = run_task(task, programs, results, limit=120)
                note = "" if others <= 0.35 else "   not quiet: others used %.1f cores" % others
                say("[%4.0f s, %d of %d] %s%s" % (time.monotonic() - begin, done, total, name, note))
            except Failed as failure:
                say("[%4.0f s, %d of %d] %s: skipped: %s" % (time.monotonic() - begin, done, total, name, failure))
                unsupported.add((part, key, way.name, ranks))
                results.skipped["%s, %d ranks" % (name.rsplit(",", 1)[0], ranks)] = str(failure)


def write(folder, name, text):
    with open(os.path.join(folder, name), "w", encoding="utf-8") as file:
        file.write(text)


def main():
    options = parse()
    os.makedirs(options.out, exist_ok=True)
    programs = Programs(os.path.abspath(options.build), options.out, ["ddp_python", *sections.targets()] if options.all else [])
    programs.prepare()
    for peer in filter(None, options.without.split(",")):
        if programs.peers.pop(peer, None):
            programs.skip(peer, "--without")
    results = Results(machine.describe(), machine.cores(), datetime.date.today().isoformat(),
                      " ".join(["tests/bench/run.sh", *sys.argv[1:]]), programs.versions(), dict(programs.skipped), sections.commit())
    try:
        measure(options, programs, results)
        for section in sections.chosen(list(filter(None, options.sections.split(",")))) if options.all else []:
            results.sections.append(sections.measure(section, programs, options.quick))
    except KeyboardInterrupt:
        say("interrupted: writing what there is")
    data = results.as_data()
    table, numbers, drawn = report.markdown(data), json.dumps(data, indent=1) + "\n", picture.draw(data)
    if options.all:
        write(options.pages, "FIGURES.md", sections.page(data))
        write(options.pages, "figures.json", numbers)
        write(options.pages, "figures.svg", drawn)
        write(options.pages, "headline.svg", headline.draw(data))
    write(options.out, "results.md", table)
    write(options.out, "results.json", numbers)
    write(options.out, "results.svg", drawn)
    print(table)
    say("results.json, results.md and results.svg are in %s" % options.out)


main()
