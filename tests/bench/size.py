#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What a rank costs as groups grow: a table for 8 to 128 processes on this machine.

size.py [--build FOLDER] [--backend shm|gloo] [--runs 3] [ranks ...]
Each group is created, killed by its last rank's death, and recovers. All numbers are of the rank that is worst.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))


def run(build, ranks, backend):
    with tempfile.TemporaryDirectory() as folder:
        env = {**os.environ, "SIZE_BENCH_DIR": folder, "DDP_MODULE_PATH": os.path.join(build, "src/ddp")}
        if backend:
            env["SIZE_BENCH_BACKEND"] = backend
        done = subprocess.run([os.path.join(build, "bin/ddprun"), "-n", str(ranks), "--bind", "none", "--keep-going", "--no-prefix",
                               os.path.join(build, "tests/bench/bench.size")], env=env, capture_output=True, text=True, timeout=600, check=False)
        found = []
        for rank in range(ranks - 1):
            path = os.path.join(folder, f"rank-{rank}")
            if not os.path.exists(path):
                sys.exit(f"rank {rank} of {ranks} says nothing:\n{done.stdout[-2000:]}{done.stderr[-4000:]}")
            with open(path, encoding="utf-8") as file:
                found.append(json.load(file))
        with open(os.path.join(folder, "death"), encoding="utf-8") as file:
            death = float(file.read())
    worst = {key: max(each[key] for each in found) for key in found[0]}
    worst["known_us"] = worst.pop("known_at_us") - death
    worst["root_descriptors"] = found[0]["descriptors"]
    worst["descriptors"] = max(each["descriptors"] for each in found[1:])
    return worst


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", default=os.path.join(HERE, "../../build/tests"))
    parser.add_argument("--backend", choices=["shm", "gloo"])
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("ranks", type=int, nargs="*", default=[8, 16, 32, 64, 128])
    options = parser.parse_args()
    print("| ranks | create, ms | barrier, ms | descriptors: rank 0 | another rank | memory of a rank, KiB | death known everywhere, ms | recovered, ms |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- |")
    for ranks in options.ranks:
        runs = [run(os.path.abspath(options.build), ranks, options.backend) for _ in range(options.runs)]
        middle = {key: statistics.median(each[key] for each in runs) for key in runs[0]}
        print(f"| {ranks} | {middle['created_us'] / 1e3:.0f} | {middle['barrier_us'] / 1e3:.2f} | {middle['root_descriptors']:.0f} "
              f"| {middle['descriptors']:.0f} | {middle['memory_kib']:.0f} | {middle['known_us'] / 1e3:.0f} | {middle['recovered_us'] / 1e3:.0f} |", flush=True)


if __name__ == "__main__":
    main()
