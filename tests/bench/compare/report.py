# SPDX-License-Identifier: Apache-2.0
"""The tables, in Markdown."""

import textwrap

from results import Lookup
from statistics_of import median  # noqa: F401  (used by __main__)
from ways import ALL_REDUCE, MODELS, SIZES, SIZE_NAMES, STEP_VARIANTS, Way, adamw_ours, adamw_torch

ADAMW = [Way("adamw", "libddp", "", adamw_ours), Way("torch", "PyTorch, fused", "torch", adamw_torch)]
MPI = ("openmpi", "mpich", "openmpi-i", "mpich-i")
STEP_LABELS = dict(STEP_VARIANTS, torch="PyTorch DDP (Gloo), fused AdamW")


def figure(value):
    if value is None:
        return ""
    return "%.1f" % value if abs(value) < 10 else "{:,.0f}".format(value)


def cell(row):
    if row is None:
        return ""
    return "%s [%s-%s]%s" % (figure(row["median"]), figure(row["low"]), figure(row["high"]), "~" if row["disturbed"] else "")


def ratio(over, under):
    return "" if over is None or not under else "%.*f" % (1 if over / under >= 10 else 2, over / under)


def table(head, rows):
    lines = ["| " + " | ".join(head) + " |", "| " + " | ".join(["---"] * len(head)) + " |"]
    return lines + ["| " + " | ".join(row) + " |" for row in rows] + [""]


def all_reduce(look, ranks, kind):
    sizes = [size for size in SIZES if kind == "again" or size >= 64 << 10]
    rows = []
    for way in ALL_REDUCE:
        cells = [look.row("all_reduce", "all_reduce", way.name, ranks, "%d/%s" % (size, kind)) for size in sizes]
        if any(cells):
            rows.append([way.label] + [cell(each) for each in cells])
    return table(["%d ranks, microseconds" % ranks] + [SIZE_NAMES[size] for size in sizes], rows) if rows else []


def best_mpi(look, ranks, what):
    found = [value for value in (look.median("all_reduce", "all_reduce", way, ranks, what) for way in MPI) if value]
    return min(found) if found else None


def ratios(look, ranks, kind):
    def value(way, what):
        return look.median("all_reduce", "all_reduce", way, ranks, what)

    sizes = [size for size in SIZES if kind == "again" or size >= 64 << 10]
    wanted = [
        ("best MPI / zero-copy", lambda what: (best_mpi(look, ranks, what), value("zero-copy", what))),
        ("best MPI / staged", lambda what: (best_mpi(look, ranks, what), value("staged", what))),
        ("Gloo / zero-copy", lambda what: (value("gloo", what), value("zero-copy", what))),
        ("PyTorch / zero-copy", lambda what: (value("torch", what), value("zero-copy", what))),
        ("zero-copy / bound", lambda what: (value("zero-copy", what), value("bound", what))),
        ("libddp over Gloo's links / Gloo", lambda what: (value("over-gloo", what), value("gloo", what))),
    ]
    rows = [[label] + [ratio(*pair("%d/%s" % (size, kind))) for size in sizes] for label, pair in wanted]
    rows = [row for row in rows if any(row[1:])]
    return table(["%d ranks, ratio" % ranks] + [SIZE_NAMES[size] for size in sizes], rows) if rows else []


def steps(look, model):
    rows = []
    for ranks in look.ranks("step", model):
        for way, label in STEP_LABELS.items():
            found = {what: look.row("step", model, way, ranks, what) for what in ("local", "step", "cost", "ratio")}
            if found["step"]:
                rows.append([str(ranks), label, cell(found["local"]), cell(found["step"]), cell(found["cost"]),
                             "%.2f" % found["ratio"]["median"] if found["ratio"] else ""])
    if not rows:
        return []
    head = ["ranks", MODELS[model], "forward and backward alone, ms", "whole step, ms", "step less that, ms", "ratio"]
    return table(head, rows)


def memory(look):
    rows = []
    for model in MODELS:
        for ranks in look.ranks("memory", model):
            for way, label in STEP_LABELS.items():
                found = [look.median("memory", model, way, ranks, what) for what in ("resident", "share")]
                if found[0] is not None:
                    rows.append([model, str(ranks), label] + [figure(each) for each in found])
    return table(["model", "ranks", "MiB a rank above parameters, gradients, moments", "resident, at the most", "its share"], rows) if rows else []


def adamw(look):
    rows = []
    for way in ADAMW:
        found = [look.row("adamw", "adamw", way.name, 1, what) for what in ("adamw", "loop")]
        if any(found):
            rows.append([way.label] + [cell(each) for each in found])
    return table(["AdamW, 25.1 M parameters, one thread, ms", "update", "a loop that touches the same bytes"], rows) if rows else []


def crowded(look, cores):
    pairs = [(cores, 2 * cores)] if {cores, 2 * cores} <= set(look.ranks("all_reduce")) else []
    rows = []
    for few, many in pairs:
        for way in ("zero-copy", "staged"):
            what = ["%d/again" % size for size in SIZES]
            rows.append(["all-reduce, " + way] + [
                ratio(look.median("all_reduce", "all_reduce", way, many, each), 2 * (look.median("all_reduce", "all_reduce", way, few, each) or 0))
                for each in what])
        for way in ("user", "library"):
            more, less = (look.median("step", "mlp", way, ranks, "step") for ranks in (many, few))
            if more and less:
                rows.append(["MLP step, " + way, ratio(more, 2 * less)] + [""] * (len(SIZES) - 1))
    if not pairs:
        return []
    few, many = pairs[0]
    return table(["time of %d ranks over twice that of %d" % (many, few)] + [SIZE_NAMES[size] for size in SIZES], rows)


def command_lines(command):
    return textwrap.wrap(command, 118, subsequent_indent="    ", break_long_words=False, break_on_hyphens=False)


def markdown(data):
    look = Lookup(data)
    lines = ["%s, commit %s. %s." % (data["date"], data["commit"], data["host"]), "", "```", *command_lines(data["command"]), "```", ""]
    lines.append("Versions: " + (", ".join("%s %s" % pair for pair in data["versions"].items()) or "no peers") + ".")
    lines += ["Skipped: %s: %s." % pair for pair in data["skipped"].items()]
    lines += ["Medians [middle half]. ~: fewer than two launches found the machine quiet; the figure is from all launches.", ""]
    ranks = [each for each in look.ranks("all_reduce")]
    for kind, title in (("again", "All-reduce, one call after the other on the same array"),
                        ("fresh", "All-reduce of an array that each rank has just written")):
        if ranks:
            lines += ["## " + title, ""]
        for each in ranks:
            lines += all_reduce(look, each, kind) + ratios(look, each, kind)
    for title, part in (("Training steps", [line for model in MODELS for line in steps(look, model)]), ("Memory", memory(look)),
                        ("AdamW", adamw(look)), ("More ranks than cores", crowded(look, data["cores"]))):
        if part:
            lines += ["## " + title, ""] + part
    return "\n".join(lines)
