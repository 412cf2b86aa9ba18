# SPDX-License-Identifier: Apache-2.0
"""A small GPT learns the project's own documents over a slow link, in several ways: loss, bytes and time.

The first seed is trained by two hosts that are made on this machine, with a link of --rate and --delay between them (needs root, ip, tc
and a kernel with TAP and tbf). The other seeds are trained on this host alone: the link changes no bit of a loss, which is looked at. Each
run is added to results.json in --out when it ends, and a run that is there is not made again. Writes results.md and results.svg as well."""

import argparse
import datetime
import json
import os
import sys

import figures
import picture
from runs import Runs, say
from ways import WAYS


def parse():
    words = lambda text: text.split(",")
    parser = argparse.ArgumentParser(prog="tests/bench/outer.sh", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", type=words, default=list(WAYS), help="of %s" % ",".join(WAYS))
    parser.add_argument("--seeds", type=lambda text: [int(each) for each in text.split(",")], default=[1, 2, 3], help="(1,2,3)")
    parser.add_argument("--rate", type=float, default=100, help="Mbit/s of each host, up and down (100)")
    parser.add_argument("--delay", type=float, default=20, help="one-way delay in ms (20)")
    parser.add_argument("--buffer", type=float, default=1024, help="KiB of buffer for each port of the switch (1024)")
    parser.add_argument("--no-link", action="store_true", help="train all seeds on this host alone: no times and bytes")
    parser.add_argument("--set", action="append", default=[], metavar="NAME=NUMBER", help="a setting of bench.outer, for all ways")
    parser.add_argument("--build", default="build/bench", help="build folder (build/bench)")
    parser.add_argument("--no-build", action="store_true", help="what is in the build folder is taken as it is")
    parser.add_argument("--out", default="build/outer", help="folder of the results (build/outer)")
    parser.add_argument("--limit", type=float, default=1800, help="seconds that one run may take (1800)")
    return parser.parse_args()


def load(path, options):
    conditions = {"rate_mbit": options.rate, "delay_ms": options.delay, "set": options.set}
    if os.path.exists(path):
        with open(path, encoding="utf-8") as file:
            data = json.load(file)
        if {key: data[key] for key in conditions} != conditions:
            sys.exit("%s holds runs under other conditions; give another --out" % path)
        return data
    return dict(conditions, runs=[])


def main():
    options = parse()
    if os.geteuid() != 0 and not options.no_link:
        sys.exit("network namespaces need root; --no-link does without them")
    options.build, options.out = os.path.abspath(options.build), os.path.abspath(options.out)
    os.makedirs(options.out, exist_ok=True)
    path = os.path.join(options.out, "results.json")
    data, runs = load(path, options), Runs(options)
    runs.prepare()
    for seed in options.seeds:
        for way in options.only:
            over_link = seed == options.seeds[0] and not options.no_link
            if any((run["way"], run["seed"], run["over_link"]) == (way, seed, over_link) for run in data["runs"]):
                continue
            say("%s, seed %d%s" % (way, seed, ", over the link" if over_link else ""))
            run = runs.train(way, seed, over_link)
            data["runs"].append(dict(run, way=way, seed=seed, over_link=over_link))
            data.update(date=datetime.date.today().isoformat(), text_bytes=runs.text_bytes)
            with open(path, "w", encoding="utf-8") as file:
                json.dump(data, file, indent=1)
    for name, text in (("results.md", figures.table(data)), ("results.svg", picture.draw(data))):
        with open(os.path.join(options.out, name), "w", encoding="utf-8") as file:
            file.write(text)
    print(figures.table(data))


main()
