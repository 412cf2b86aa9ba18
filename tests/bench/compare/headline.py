# SPDX-License-Identifier: Apache-2.0
"""The picture at the head of README.md, of the figures of a run. Dark where the reader's system is."""

from results import Lookup

OURS, THEIRS = "ours", "theirs"
SUMS = (("libddp, its memory", ("zero-copy",), OURS), ("libddp, your memory", ("staged",), OURS), ("best MPI", ("openmpi", "mpich"), THEIRS),
        ("Gloo", ("gloo",), THEIRS), ("PyTorch", ("torch",), THEIRS))
STEPS = (("libddp, its memory", "library", OURS), ("libddp, your memory", "user", OURS), ("PyTorch DDP (Gloo)", "torch", THEIRS))


def read(data):
    """The number of ranks (the most that have a core each), and both rows of bars. Who was not measured has no bar."""
    look = Lookup(data)
    ranks = max((each for each in look.ranks("all_reduce") if each <= data["cores"]), default=0)
    sums, costs = [], []
    for name, ways, kind in SUMS:
        found = [value for value in (look.median("all_reduce", "all_reduce", way, ranks, "%d/fresh" % (25 << 20)) for way in ways) if value]
        if found:
            sums.append((name, min(found) / 1000, kind))
    for name, way, kind in STEPS:
        value = look.median("step", "mlp", way, ranks, "cost")
        if value:
            costs.append((name, value, kind))
    source = f"Measured {data['date']} at commit {data['commit']}; {data['host']}; medians; commands: tests/bench/FIGURES.md"
    return ranks, sums, costs, source


def short(value):
    return f"{value:.0f}" if value >= 10 else f"{value:.1f}"


def bars(title, what, values, left, width, name_width):
    longest = max((value for _, value, _ in values), default=1)
    lines = [f'<text class="title" x="{left}" y="22">{title}</text>', f'<text class="soft" x="{left}" y="39">{what}</text>']
    for index, (name, value, kind) in enumerate(values):
        y = 52 + 30 * index
        length = (width - name_width - 70) * value / longest
        lines += [f'<text class="text" x="{left + name_width - 8}" y="{y + 15}" text-anchor="end">{name}</text>',
                  f'<rect class="{kind}" x="{left + name_width}" y="{y}" width="{length:.1f}" height="21" rx="3"/>',
                  f'<text class="text" x="{left + name_width + length + 7:.1f}" y="{y + 15}">{short(value)} ms</text>']
    return lines


def draw(data):
    ranks, sums, costs, source = read(data)
    lines = ['<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 860 230" width="860" height="230" font-family="system-ui, sans-serif" '
             'font-size="14" role="img" aria-labelledby="headline-title">',
             '<title id="headline-title">' + "; ".join(f"{name} {short(value)} ms" for name, value, _ in sums) +
             f" for an all-reduce of 25 MiB that each of {ranks} ranks has just written. " + "; ".join(f"{name} {short(value)} ms" for name, value, _ in costs) +
             f" for averaging and AdamW in a training step on {ranks} ranks.</title>",
             "<style>.title { font-weight: 600 } .title, .text { fill: #1f2933 } .soft { fill: #616e7c; font-size: 11px } .ours { fill: #2f7ed8 } "
             ".theirs { fill: #9aa5b1 } @media (prefers-color-scheme: dark) { .title, .text { fill: #e4e7eb } .soft { fill: #9aa5b1 } "
             ".ours { fill: #4f9cf0 } .theirs { fill: #616e7c } }</style>"]
    lines += bars("All-reduce of 25 MiB", f"that each of {ranks} ranks of one host has just written; CPU; lower is better", sums, 10, 400, 145)
    lines += bars("Averaging and AdamW in a training step", f"MLP, time above forward and backward; {ranks} ranks; CPU; lower is better",
                  costs, 440, 410, 145)
    lines += [f'<text class="soft" x="10" y="220">{source}</text>', "</svg>", ""]
    return "\n".join(lines)
