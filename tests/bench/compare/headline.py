# SPDX-License-Identifier: Apache-2.0
"""The picture at the head of README.md, of the figures that tests/bench/README.md holds: headline.py writes tests/bench/headline.svg.
Dark where the reader's system is."""
import os
import re

BENCH = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
OURS, THEIRS = "ours", "theirs"


def table(text, heading, first_cell):
    """Rows of the first table behind the heading whose head begins so, by their first cell (and second, where that is a number)."""
    part = text[text.index(heading):]
    lines = part[part.index(f"| {first_cell}"):].splitlines()
    rows = []
    for line in lines:
        if not line.startswith("|"):
            break
        rows.append([cell.strip() for cell in line.strip("|").split("|")])
    return rows


def number(cell):
    return float(re.match(r"~?([\d,.]+)", cell)[1].replace(",", ""))


RANKS = 4


def read():
    with open(os.path.join(BENCH, "README.md"), encoding="utf-8") as file:
        text = file.read()
    rows = {row[0]: row for row in table(text, "### All-reduce of an array that each rank has just written", f"{RANKS} ranks, microseconds")}
    column = rows[f"{RANKS} ranks, microseconds"].index("25 MiB")
    best_mpi = min(number(rows[name][column]) for name in ("Open MPI", "MPICH"))
    sums = [("libddp, its memory", number(rows["libddp, zero-copy"][column]) / 1000, OURS),
            ("libddp, your memory", number(rows["libddp, staged"][column]) / 1000, OURS),
            ("best MPI", best_mpi / 1000, THEIRS), ("Gloo", number(rows["Gloo"][column]) / 1000, THEIRS),
            ("PyTorch", number(rows["PyTorch (Gloo)"][column]) / 1000, THEIRS)]
    steps = {row[1]: row for row in table(text, "### Training steps", "ranks | MLP") if row[0] in (str(RANKS), "ranks")}
    head = next(row for row in steps.values() if row[0] == "ranks")
    column = head.index("step less that, ms")
    costs = [("libddp, its memory", number(steps["libddp, gradients in library memory"][column]), OURS),
             ("libddp, your memory", number(steps["libddp, gradients in the program's memory"][column]), OURS),
             ("PyTorch DDP (Gloo)", number(steps["PyTorch DDP (Gloo), fused AdamW"][column]), THEIRS)]
    machine = re.search(r"^(\d{4}-\d\d-\d\d), commit (\w+)\. (Virtual machine with \d+ cores of an [^(]+)", text, re.M)
    where = machine[3].strip().replace("Virtual", "virtual")
    return sums, costs, f"Measured {machine[1]} at commit {machine[2]}; {where}; medians; commands: tests/bench/README.md"


def short(value):
    return f"{value:.0f}" if value >= 10 else f"{value:.1f}"


def bars(title, what, values, left, width, name_width):
    longest = max(value for _, value, _ in values)
    lines = [f'<text class="title" x="{left}" y="22">{title}</text>', f'<text class="soft" x="{left}" y="39">{what}</text>']
    for index, (name, value, kind) in enumerate(values):
        y = 52 + 30 * index
        length = (width - name_width - 70) * value / longest
        lines += [f'<text class="text" x="{left + name_width - 8}" y="{y + 15}" text-anchor="end">{name}</text>',
                  f'<rect class="{kind}" x="{left + name_width}" y="{y}" width="{length:.1f}" height="21" rx="3"/>',
                  f'<text class="text" x="{left + name_width + length + 7:.1f}" y="{y + 15}">{short(value)} ms</text>']
    return lines


def main():
    sums, costs, source = read()
    lines = ['<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 860 230" width="860" height="230" font-family="system-ui, sans-serif" '
             'font-size="14" role="img" aria-labelledby="headline-title">',
             '<title id="headline-title">' + "; ".join(f"{name} {short(value)} ms" for name, value, _ in sums) +
             f" for an all-reduce of 25 MiB that each of {RANKS} ranks has just written. " + "; ".join(f"{name} {short(value)} ms" for name, value, _ in costs) +
             f" for averaging and AdamW in a training step on {RANKS} ranks.</title>",
             "<style>.title { font-weight: 600 } .title, .text { fill: #1f2933 } .soft { fill: #616e7c; font-size: 11px } .ours { fill: #2f7ed8 } "
             ".theirs { fill: #9aa5b1 } @media (prefers-color-scheme: dark) { .title, .text { fill: #e4e7eb } .soft { fill: #9aa5b1 } "
             ".ours { fill: #4f9cf0 } .theirs { fill: #616e7c } }</style>"]
    lines += bars("All-reduce of 25 MiB", f"that each of {RANKS} ranks of one host has just written; CPU; lower is better", sums, 10, 400, 145)
    lines += bars("Averaging and AdamW in a training step", f"MLP, time above forward and backward; {RANKS} ranks; CPU; lower is better",
                  costs, 440, 410, 145)
    lines += [f'<text class="soft" x="10" y="220">{source}</text>', "</svg>", ""]
    with open(os.path.join(BENCH, "headline.svg"), "w", encoding="utf-8") as file:
        file.write("\n".join(lines))


main()
