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


def read():
    with open(os.path.join(BENCH, "README.md"), encoding="utf-8") as file:
        text = file.read()
    rows = {row[0]: row for row in table(text, "### All-reduce, one call after the other", "4 ranks, microseconds")}
    column = rows["4 ranks, microseconds"].index("25 MiB")
    best_mpi = min(number(rows[name][column]) for name in ("Open MPI", "MPICH"))
    sums = [("libddp", number(rows["libddp, zero-copy"][column]) / 1000, OURS), ("best MPI", best_mpi / 1000, THEIRS),
            ("Gloo", number(rows["Gloo"][column]) / 1000, THEIRS), ("PyTorch", number(rows["PyTorch (Gloo)"][column]) / 1000, THEIRS)]
    steps = {row[1]: row for row in table(text, "### Training steps", "ranks | MLP") if row[0] in ("2", "ranks")}
    head = next(row for row in steps.values() if row[0] == "ranks")
    column = head.index("step less that, ms")
    costs = [("libddp, sharded, in backward", number(steps["libddp, sharded, shared, in backward"][column]), OURS),
             ("libddp", number(steps["libddp, gradients in library memory"][column]), OURS),
             ("PyTorch DDP, fused AdamW", number(steps["PyTorch DDP (Gloo), fused AdamW"][column]), THEIRS)]
    machine = re.search(r"^(\d{4}-\d\d-\d\d)\. (Virtual machine with \d+ cores of an [^(]+)", text, re.M)
    where = machine[2].strip().replace("Virtual", "virtual")
    return sums, costs, f"{machine[1]}; {where}; medians; tests/bench/README.md"


def bars(title, unit, values, left, width, name_width):
    longest = max(value for _, value, _ in values)
    lines = [f'<text class="title" x="{left}" y="30">{title}</text>']
    for index, (name, value, kind) in enumerate(values):
        y = 48 + 30 * index
        length = (width - name_width - 70) * value / longest
        lines += [f'<text class="text" x="{left + name_width - 8}" y="{y + 15}" text-anchor="end">{name}</text>',
                  f'<rect class="{kind}" x="{left + name_width}" y="{y}" width="{length:.1f}" height="21" rx="3"/>',
                  f'<text class="text" x="{left + name_width + length + 7:.1f}" y="{y + 15}">{value:.2g} {unit}</text>']
    return lines


def main():
    sums, costs, source = read()
    lines = ['<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 860 200" width="860" height="200" font-family="system-ui, sans-serif" '
             'font-size="14" role="img" aria-labelledby="headline-title">',
             '<title id="headline-title">' + "; ".join(f"{name} {value:.2g} ms" for name, value, _ in sums) +
             " for an all-reduce of 25 MiB in 4 ranks. " + "; ".join(f"{name} {value:.2g} ms" for name, value, _ in costs) +
             " above the computation of a training step on 2 ranks.</title>",
             "<style>.title { font-weight: 600 } .title, .text { fill: #1f2933 } .soft { fill: #616e7c; font-size: 11px } .ours { fill: #2f7ed8 } "
             ".theirs { fill: #9aa5b1 } @media (prefers-color-scheme: dark) { .title, .text { fill: #e4e7eb } .soft { fill: #9aa5b1 } "
             ".ours { fill: #4f9cf0 } .theirs { fill: #616e7c } }</style>"]
    lines += bars("All-reduce of 25 MiB, 4 ranks of one host", "ms", sums, 10, 400, 80)
    lines += bars("A training step above its computation, 2 ranks", "ms", costs, 440, 410, 205)
    lines += [f'<text class="soft" x="10" y="190">{source}</text>', "</svg>", ""]
    with open(os.path.join(BENCH, "headline.svg"), "w", encoding="utf-8") as file:
        file.write("\n".join(lines))


main()
