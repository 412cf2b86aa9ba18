# SPDX-License-Identifier: Apache-2.0
"""What `run.sh --all` measures beside the comparison: programs that print a table or lines, each with the command that a reader types."""

import os
import shutil
import subprocess
import sys
import textwrap
from dataclasses import dataclass

from launches import Failed, launch, step_figures
from programs import BENCH, ROOT, say
from report import command_lines, markdown as markdown_of_comparison
from statistics_of import quantile

LIMIT, NETWORK_LIMIT = 600, 5400  # seconds of a section
LINKS = "libddp,libddp-plain"
PAGES = ("FIGURES.md", "figures.json", "figures.svg", "headline.svg")  # that --all writes
HEAD = """# Figures

Written by [`run.sh --all`](README.md); nothing is typed by hand. [figures.json](figures.json) has the same figures as data,
[HISTORY.md](HISTORY.md) those of other days and machines.

![All-reduce times over sizes, and training steps](figures.svg)

%s"""
HOSTS = ("Each host is a network namespace with 500 Mbit/s; 0.1 ms is a LAN. All ranks share this machine's cores. libddp's links are encrypted, the "
         "others' are plain.")
STEPS = "4 hosts: a bucket of 25 MiB with each way of the optimizer; a pass over 48 MiB with 600 ms of computation; `ddp_group_create`."
SUMS = ("--hosts", "2,4,8", "--sizes", "4KiB,1MiB,25MiB", "--only", "libddp,gloo-ring,gloo-hd,openmpi,torch")
BUCKETS = ("--hosts", "4", "--only", LINKS, "--tasks", "bucket-plain,bucket-adam,bucket-shard,bucket-inbackward,passes=600,create")


@dataclass
class Section:
    title: str
    note: str
    program: str  # bench.NAME, or a script of this folder
    arguments: tuple = ()
    ranks: int = 0  # under ddprun; 0: without
    needs: str = ""  # torch, root
    quick: tuple = ()  # arguments behind the others with --quick

    def command(self, programs, quick):
        arguments = [*self.arguments, *(self.quick if quick else ())]
        if self.program.endswith(".sh"):
            run = [os.path.join(BENCH, self.program), *arguments, "--build", programs.build, "--out", os.path.join(programs.build, "network-results")]
        elif self.program.endswith(".py"):
            run = ["python3", os.path.join(BENCH, self.program), *arguments] + (["--build", programs.build] if self.program == "size.py" else [])
        else:
            run = [programs.ours(self.program), *arguments]
        return [programs.ours("ddprun"), "-n", str(self.ranks), "--no-prefix", *run] if self.ranks else run


def network(title, note, *arguments, quick=()):
    return Section(title, note, "network.sh", arguments, needs="root", quick=("--rounds", "1", "--calls", "3", *quick))


SECTIONS = [
    Section("Marks and a pass", "The times of a mark and of a pass over 1,000 small parameters, and the share of communication that computation hides.",
            "bench.pass"),
    Section("Marks and a pass, 2 ranks", "", "bench.pass", ranks=2),
    Section("A posted call", "An all-reduce of 1 KiB that blocks, and one that is posted and waited for.", "bench.request", ranks=2),
    Section("Keeping state", "Steps without and with `ddp_state_keep` after each step and after each tenth, in "
            "turn; local is forward and backward alone.", "bench.step", ("mlp", "sharded,sharded-kept1,sharded-kept10"), ranks=2),
    Section("A trace", "", "bench.trace", ("mlp",), ranks=2),
    Section("Hooks", "A pass over one gradient of 25 MiB with each hook, over sockets.", "bench.hook", ("staged", "gloo"), ranks=2),
    Section("Parts of the global batch", "", "bench.parts", ranks=1),
    Section("The loops of sums", "One thread.", "bench.kernels"),
    Section("Gloo's links and Gloo's ring", "", "bench.gloo"),
    Section("As groups grow: shared memory", "Processes on this machine, most of them waiting for a core. Each group is created, adds 4 KiB, meets in "
            "barriers, loses its last rank by SIGKILL, and recovers. The worst rank's numbers.", "size.py", ("2", "4", "8", "16", "32", "64"),
            quick=("--runs", "1")),
    Section("As groups grow: sockets", "", "size.py", ("--backend", "gloo", "2", "4", "8", "16"), quick=("--runs", "1")),
    Section("The control plane", "Counted, not timed.", "bench.control_size"),
    Section("torch.distributed", "", "c10d_bench.py", ranks=2, needs="torch"),
    Section("Steps in PyTorch", "", "torch_step_bench.py", ranks=2, needs="torch"),
    Section("10,000 small parameters in PyTorch", "", "torch_parameters_bench.py", ranks=2, needs="torch"),
    network("Sums between hosts on a LAN", HOSTS, *SUMS, "--delay", "0.1", quick=("--hosts", "2")),
    network("Encrypted and plain links at 500 Mbit/s", "libddp-plain has `DDP_LINKS=plain`.", "--hosts", "2,4,8", "--delay", "0.1,20",
            "--sizes", "4KiB,1MiB,25MiB", "--only", LINKS, "--tasks", "sums,create"),
    network("Encrypted and plain links, without a limit of rate", "The emulated network has no limit, so these cores are measured.",
            "--hosts", "2", "--delay", "0.1", "--rate", "100000", "--sizes", "4KiB,1MiB,25MiB", "--only", LINKS, "--tasks", "sums,create"),
    network("Buckets and passes between hosts on a LAN", STEPS, *BUCKETS, "--delay", "0.1"),
    network("Sums between hosts, 20 ms apart", HOSTS, *SUMS, "--delay", "20", quick=("--hosts", "2")),
    network("Buckets and passes between hosts, 20 ms apart", STEPS, *BUCKETS, "--delay", "20"),
]


def chosen(words):
    """The sections whose titles have one of these words; all without words."""
    return [section for section in SECTIONS if not words or any(word.lower() in section.title.lower() for word in words)]


def targets():
    return sorted({section.program for section in SECTIONS if section.program.startswith("bench.")} | {"bench.size", "bench.network"})


def missing(section, programs):
    """Why a section cannot be measured here; None if it can."""
    if section.needs == "torch" and "torch" not in programs.peers:
        return programs.skipped.get("torch", "no PyTorch")
    if section.needs == "torch" and not os.path.isdir(programs.python_path()):
        return "the Python binding was not built (SWIG is missing)"
    if section.needs == "root" and (os.geteuid() != 0 or shutil.which("ip") is None):
        return "network namespaces need root and iproute2"
    if section.program.startswith("bench.") and not programs.has(section.program):
        return "%s was not built" % section.program
    return None


def shown(command, programs):
    """A command as it is typed in the repository's root, with build/bench on PATH of programs."""
    words = []
    for word in command:
        if word.startswith(programs.build):
            word = os.path.basename(word) if os.access(word, os.X_OK) and os.path.isfile(word) else os.path.relpath(word, ROOT)
        words.append(os.path.relpath(word, ROOT) if word.startswith(ROOT) else word)
    return " ".join(words)


def step_table(lines):
    times, _ = step_figures(lines)
    rows = ["| %s | %.1f [%.1f-%.1f] |" % (what, *(quantile(ms, part) for part in (0.5, 0.25, 0.75))) for what, ms in times.items()]
    return ["| what | ms, median [middle half] |", "| --- | --- |", *rows]


def page(data):
    """All of a run in Markdown."""
    left_out = [section.title for section in SECTIONS if section.title not in {each["title"] for each in data["sections"]}]
    lines = markdown_of_comparison(data).splitlines() + [""]
    if left_out:
        lines += [*textwrap.wrap("Not measured in this run: %s." % "; ".join(left_out), 120), ""]
    return (HEAD % "\n".join(lines + [line for each in data["sections"] for line in markdown(each)])).rstrip() + "\n"


def measure(section, programs, quick):
    """The section as plain data: its lines, or why there are none."""
    reason = missing(section, programs)
    result = {"title": section.title, "note": section.note, "lines": [], "others": 0.0}
    if reason:
        return dict(result, skipped=reason)
    command = section.command(programs, quick)
    result["command"] = shown(command, programs)
    say("%s: %s" % (section.title, result["command"]))
    limit = NETWORK_LIMIT if section.program == "network.sh" else LIMIT
    try:
        lines, others = launch([command], dict(programs.environment(), PYTHONPATH=programs.python_path()), limit, errors=sys.stderr)
    except Failed as failure:
        say("  skipped: %s" % failure)
        return dict(result, skipped=str(failure))
    if section.program == "bench.step":
        lines = step_table(lines)
    return dict(result, lines=[line.rstrip() for line in lines if line.strip()], others=round(others, 2))


def markdown(section):
    lines = ["## " + section["title"], ""]
    if section["note"]:
        lines += [*textwrap.wrap(section["note"], 120), ""]
    if "skipped" in section:
        return lines + ["Skipped: %s." % section["skipped"].rstrip("."), ""]
    lines += ["```", *command_lines(section["command"]), "```", ""]
    if section["others"] > 0.35:
        lines += ["Not quiet: others used %.1f cores." % section["others"], ""]
    block = []
    for line in section["lines"] + [None]:
        if line is None or line.startswith("|"):
            if block:
                lines += ["```", *block, "```", ""]
            block = []
            if line is not None:
                lines += [""] * (lines[-1] != "" and not lines[-1].startswith("|")) + [line]
        else:
            if lines[-1].startswith("|"):
                lines.append("")
            block.append(line)
    return lines + [""] * (lines[-1] != "")


def commit():
    def git(*words):
        return subprocess.run(["git", "-C", ROOT, *words], capture_output=True, text=True, check=False).stdout.strip()

    changed = [line for line in git("status", "--porcelain").splitlines() if not line.endswith(PAGES)]
    return (git("rev-parse", "--short=8", "HEAD") or "unknown") + (" with changes" if changed else "")
