# SPDX-License-Identifier: Apache-2.0
"""The benchmark of the GPU side in one table: bench.gpu, its overlap with the simulated wire, and PyTorch where it is installed, in the same run.

    compare.py --bin DIR --lib DIR --out DIR [--quick]

Writes benchmark.json and benchmark.md, anew after every part, so that a run that is killed leaves what it had. tests/gpu/run.sh calls it.
"""
import argparse
import json
import os
import subprocess
import sys

# What PyTorch's figure of the same name is compared with: libddp's value must be at most `factor` times it.
BESIDE_TORCH = {
    "pack.25MiB": (1.0, "us", "not slower than _foreach_copy_"),
    "pack.256MiB": (1.0, "us", "not slower than _foreach_copy_"),
    "unpack.25MiB": (1.0, "us", "not slower than _foreach_copy_"),
    "unpack.256MiB": (1.0, "us", "not slower than _foreach_copy_"),
    "adamw.gpt2": (1.0, "ms", "not slower than PyTorch's fused AdamW; aim at 0.8"),
    "adamw.small": (0.5, "ms", "at most half of PyTorch's fused AdamW"),
    "step.view": (1.0, "%", "adds no more than PyTorch's DDP with views"),
    "step.copy": (1.0, "%", "adds no more than PyTorch's DDP without views"),
}
NOT_HERE = [
    ("host: mark that closes a bucket, at least 2 ranks", "at most 40 us", "bench.gpu_ranks, on two GPUs: ranks that share one take turns, so no time means anything"),
    ("allocations and host synchronisations in a step", "0 and 0", "counted on the fake GPU, in the tests that run everywhere"),
]


def run(command, log, limit, environment=None):
    """Exit status, or a reason."""
    with open(log, "w", encoding="utf-8") as file:
        try:
            return subprocess.run(command, stdout=file, stderr=subprocess.STDOUT, timeout=limit, env=environment, check=False).returncode
        except subprocess.TimeoutExpired:
            return f"not done after {limit} s"
        except OSError as error:
            return str(error)


def load(file):
    try:
        with open(file, encoding="utf-8") as stream:
            return json.load(stream)
    except (OSError, ValueError):
        return None


def last_line(log):
    try:
        with open(log, encoding="utf-8", errors="replace") as file:
            return ([line.strip() for line in file if line.strip()] or ["nothing was printed"])[-1]
    except OSError as error:
        return str(error)


def microseconds_of(row):
    """bench.gpu gives packing as a share of a copy, and the time in its note: "12.3 us; ..."."""
    return float(row["note"].split(" ")[0])


def beside_torch(rows, torch):
    table = []
    for row in rows:
        known = BESIDE_TORCH.get(row["id"])
        if known is None or row["id"] not in torch:
            continue
        factor, unit, target = known
        packing = "pack." in row["id"]
        ours = microseconds_of(row) if packing else row["value"]
        theirs = torch[row["id"]] * (1000 if packing else 1)
        table.append({"id": row["id"], "what": row["what"], "ours": ours, "theirs": theirs, "unit": unit, "target": target,
                      "met": ours <= factor * max(theirs, 0.0)})
    return table


def verdict(met):
    return {True: "yes", False: "**no**", None: ""}[met]


def write(out, rows, torch, notes):
    compared = beside_torch(rows, torch or {})
    with open(os.path.join(out, "benchmark.json"), "w", encoding="utf-8") as file:
        json.dump({"libddp": rows, "torch": torch, "beside_torch": compared, "notes": notes}, file, indent=1)
    lines = ["| what | measured | target | met | |", "| --- | --- | --- | --- | --- |"]
    lines += [f"| {r['what']} | {r['value']:.4g} {r['unit']} | {r['target']} | {verdict(r['met'])} | {r['note']} |" for r in rows]
    lines += [f"| {what} | | {target} | open | {why} |" for what, target, why in NOT_HERE]
    if compared:
        lines += ["", f"Beside {torch['versions']}:", "", "| what | libddp | PyTorch | target | met |", "| --- | --- | --- | --- | --- |"]
        lines += [f"| {r['what']} | {r['ours']:.4g} {r['unit']} | {r['theirs']:.4g} {r['unit']} | {r['target']} | {verdict(r['met'])} |" for r in compared]
    lines += [""] + [f"- {note}" for note in notes]
    with open(os.path.join(out, "benchmark.md"), "w", encoding="utf-8") as file:
        file.write("\n".join(lines) + "\n")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--bin", required=True)
    parser.add_argument("--lib", required=True)
    parser.add_argument("--out", required=True)
    parser.add_argument("--quick", action="store_true")
    options = parser.parse_args()
    quick = ["--quick"] if options.quick else []
    program, here = os.path.join(options.bin, "bench.gpu"), os.path.dirname(os.path.abspath(__file__))
    wire = dict(os.environ, DDP_MODULE_PATH=os.path.join(options.lib, "wire"), DDP_WIRE_REAL=os.path.join(options.lib, "ddp", "libddp_cuda.so"))
    jobs = [("bench.copies", [program, "--part", "copies"], None), ("bench.updates", [program, "--part", "updates"], None),
            ("torch", [sys.executable, "-B", os.path.join(here, "torch_bench.py")], None), ("bench.steps", [program, "--part", "steps"], None),
            ("bench.host", [program, "--part", "host"], None), ("bench.overlap", [program, "--part", "overlap"], wire)]
    rows, torch, notes, failed = [], None, [], 0
    for name, command, environment in jobs:
        file, log = os.path.join(options.out, name + ".json"), os.path.join(options.out, name + ".log")
        code = run(command + quick + ["--json", file], log, 20 if options.quick else 60, environment)
        found = load(file)
        if name == "torch":
            torch = found
            notes += [f"PyTorch: {key.split('.')[1]} failed: {text}" for key, text in (found or {}).items() if key.startswith("failed.")]
        else:
            rows += found or []
        if code == 77:
            notes.append(f"{name}: {last_line(log)}")
        elif code != 0:
            failed += 1
            notes.append(f"{name} failed ({code}): {last_line(log)}")
        write(options.out, rows, torch, notes)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
