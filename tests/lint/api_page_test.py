# SPDX-License-Identifier: Apache-2.0
"""The table of functions in include/API.md has every public function once, with the first sentence of its comment and its tier, and
include/STABILITY.md names each header that may change.

  python3 tests/lint/api_page_test.py --write     # write the table anew, after a change of the headers"""
import re
import sys

import declarations
import tree

PAGE = "include/API.md"
BEGIN, END = "<!-- Written by tests/lint/api_page_test.py -->\n", "<!-- End -->\n"
WIDEST = 104
# Objects in the order in which a program meets them: how its functions begin, and the heading.
OBJECTS = [("ddp_group_", "Groups"), ("ddp_recover_|ddp_call_|ddp_trace_|ddp_virtual_", "Groups"), ("ddp_model_", "Models"),
           ("ddp_optimizer_|ddp_(?:sgd|adam|custom|loss_scale)_", "Optimizers"), ("ddp_ema_", "Averages"),
           ("ddp_outer_", "Outer optimizers"), ("ddp_(?:state|load)_", "Checkpoints"), ("ddp_sampler_", "Samplers"),
           ("ddp_(?:bucket|hook|powersgd)_", "Hooks and their buckets"), ("ddp_batch_norm_", "Batch normalisation"),
           ("ddp_(?:tensor|memory)_", "Tensors and memory"), ("ddp_", "The library")]


def heading(name):
    return next(title for start, title in OBJECTS if re.match(start, name))


def cut(text, mark):
    """The longest part of the text that ends before `mark`, outside brackets, and fits; None if there is none of use."""
    ends = [at for at in range(len(text)) if text.startswith(mark, at) and text.count("(", 0, at) == text.count(")", 0, at)]
    fitting = [at for at in ends if 12 <= at <= WIDEST]
    return text[:fitting[-1]] if fitting else None


def sentence(function):
    """The first sentence of the comment, or as much of it as fits."""
    text = re.sub(r"\s*\n\s*\*? ?", " ", function.comment).strip()
    text = re.split(r"(?<=[.?!]) (?=[A-Z`])| @", text)[0].rstrip(".").replace("|", "\\|")
    if function.name.endswith("_init") and text.startswith("Write the defaults"):
        return "write the defaults into the struct"
    if len(text) > WIDEST:
        text = next(shorter for mark in (": ", "; ", ", ", " (", " ") if (shorter := cut(text, mark)))
    text = re.sub(r"`[^`]*`|\bddp_\w+(?:\(\))?", lambda found: found[0] if found[0][0] == "`" else f"`{found[0]}`", text)
    return text if re.match(r"[A-Z][A-Z0-9]|y =", text) else text[:1].lower() + text[1:]


def table():
    tiers = {line.split()[0]: line.split()[2] for line in tree.read("src/capi/exports.txt").splitlines() if line and line[0] != "#"}
    rows = {}
    for function in declarations.load().functions:
        tier = "" if tiers[function.name] == "stable" else "may change"
        header = function.header[len("include/"):]
        rows.setdefault(heading(function.name), []).append(
            (header, function.line, f"| [`{function.name}`]({header}) | {sentence(function)} | {tier} |"))
    order = re.findall(r'#include "(ddp/\w+\.h)"', tree.read("include/ddp/ddp.h") + tree.read("include/ddp/experimental.h"))
    text = ""
    for title in dict.fromkeys(title for _, title in OBJECTS):
        found = sorted(rows.pop(title), key=lambda row: (order.index(row[0]), row[1]))
        text += f"\n### {title}\n\n| function | what it does | |\n| --- | --- | --- |\n" + "".join(row + "\n" for *_, row in found)
    return text + "\n"


def main():
    page = tree.read(PAGE)
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    wanted = before + BEGIN + table() + END + after
    if sys.argv[1:] == ["--write"]:
        with open(f"{tree.ROOT}/{PAGE}", "w", encoding="utf-8") as file:
            file.write(wanted)
        return
    have, want = page.splitlines(), wanted.splitlines()
    problems = [f"{PAGE}: missing: {line}" for line in want if line not in have]
    problems += [f"{PAGE}: not of the headers: {line}" for line in have if line not in want]
    if not problems and page != wanted:
        problems.append(f"{PAGE}: the rows have another order")
    if problems:
        problems.append("python3 tests/lint/api_page_test.py --write writes the table anew")
    may_change = re.findall(r'#include "ddp/(\w+\.h)"', tree.read("include/ddp/experimental.h"))[1:]
    promised = re.findall(r"\(`(\w+\.h)`\)", tree.read("include/STABILITY.md"))
    problems += [f"include/STABILITY.md: {name} is either here or in experimental.h, and not in both" for name in sorted(set(may_change) ^ set(promised))]
    tree.verdict(problems, f"{sum(line.startswith('| [`ddp_') for line in want)} functions")


main()
