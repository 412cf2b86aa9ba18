# SPDX-License-Identifier: Apache-2.0
"""Prose stays as plain as it has become: words.txt holds a number for each area, and none may rise. Pages that are read first stay short:
pages.txt holds the most words of each.

  python3 tests/lint/words_test.py                     # compare
  python3 tests/lint/words_test.py --list FILE ...     # the lines of these files that count
  python3 tests/lint/words_test.py --write             # lower the numbers of words.txt to what is reached; it raises none"""
import os
import sys

import tree
import words

TABLE = "tests/lint/words.txt"
PAGES = "tests/lint/pages.txt"
FREE = 0.5  # per 1,000: a word may be the right one; good projects have this many
CODE = tree.SOURCE_ENDINGS

AREAS = {
    "README.md": lambda path: path == "README.md",
    "include/*.md": lambda path: path.startswith("include/") and path.endswith(".md"),
    "headers": lambda path: path.startswith("include/") and path.endswith((".h", ".hpp")),
    "src pages": lambda path: path.startswith("src/") and path.endswith(".md"),
    "src comments": lambda path: path.startswith("src/") and path.endswith(CODE),
    "bindings pages": lambda path: path.startswith("bindings/") and path.endswith(".md"),
    "examples": lambda path: path.startswith("examples/") and path.endswith(CODE + (".md",)),
    "tests pages": lambda path: path.startswith("tests/") and path.endswith(".md"),
    "tests comments": lambda path: path.startswith("tests/") and path.endswith(CODE),
    "other pages": lambda path: path.startswith((".github/", "pkgconfig/")) and path.endswith(".md"),
}


def measure(paths):
    count, marked, built, broad = 0, 0, 0, 0
    for path in paths:
        text = tree.read(path)
        prose = words.prose_of(path, text)
        count += words.size(prose)
        marked += len(words.WORDS.findall(prose))
        built += len(words.constructions(prose))
        broad += len(list(words.wide(text))) if path.endswith(".md") else 0
    return round(1000 * marked / max(count, 1), 1), round(1000 * built / max(count, 1), 1), broad


def measured():
    files = tree.files()
    return {area: measure([path for path in files if belongs(path)]) for area, belongs in AREAS.items()}


def recorded():
    rows = [line.rsplit(None, 3) for line in tree.read(TABLE).splitlines() if line.strip() and not line.startswith("#")]
    return {area.strip(): (float(marked), float(built), int(broad)) for area, marked, built, broad in rows}


def too_long():
    """Pages that have more words than pages.txt allows, and pages of the guide that it does not have."""
    budgets = dict(line.rsplit(None, 1) for line in tree.read(PAGES).splitlines() if line.strip() and not line.startswith("#"))
    for page, most in budgets.items():
        if not tree.exists(page):
            yield f"{PAGES}: there is no page {page}"
        elif words.length(tree.read(page)) > int(most):
            yield f"{page}: {words.length(tree.read(page))} words outside code, at most {most}: shorten it, or give a topic its own page"
    for page in tree.files():
        if page.startswith("include/") and page.endswith(".md") and page not in budgets:
            yield f"{PAGES} has no number of words for {page}"


def show(paths):
    for path in paths:
        text = tree.read(path)
        for number, line in enumerate(words.prose_of(path, text).split("\n"), 1):
            for match in list(words.WORDS.finditer(line)) + words.constructions(line):
                print(f"{path}:{number}: \"{match.group(0).strip()}\" in: {line.strip()}")
        for number, what in words.wide(text) if path.endswith(".md") else ():
            print(f"{path}:{number}: {what}")


def write(now, before):
    with open(os.path.join(tree.ROOT, TABLE), encoding="utf-8") as file:
        head = [line for line in file.read().splitlines() if line.startswith("#")]
    with open(os.path.join(tree.ROOT, TABLE), "w", encoding="utf-8") as file:
        file.write("\n".join(head) + "\n")
        for area, reached in now.items():
            marked, built, broad = (min(pair) for pair in zip(reached, before.get(area, reached)))
            file.write(f"{area:16} {marked:6.1f} {built:6.1f} {broad:6d}\n")


def check_the_measure():
    """Each kind of finding is found in a sentence that has it, and not in one that has not."""
    plain = "libddp sends the bucket when all of its gradients are marked. Other ranks get the reason, or they wait for it.\n"
    counted = {"It travels when nobody reads it. ": (2, 0), "A copy of what is left stays. ": (0, 1), "Waits. Not while a pass is open. ": (0, 1),
               "No rank may call it but rank 0. ": (0, 1)}
    problems = []
    for text, expected in {**counted, plain: (0, 0)}.items():
        for path, written in {"a.md": text, "a.cpp": "  // " + text}.items():
            prose = words.prose_of(path, written)
            found = len(words.WORDS.findall(prose)), len(words.constructions(prose))
            if found != expected:
                problems.append(f"{path}: {text.strip()}: found {found}, not {expected}")
    quoted = "See `nobody said so`, \"is gone: its connection closed\".\n```\nnobody\n```\n"
    if words.WORDS.findall(words.prose_of("a.md", quoted)) or words.WORDS.findall(words.prose_of("a.cpp", "f(\"gone\"); // \"gone\"")):
        problems.append("quoted text is counted")
    if words.length("Two words.\n\n```\nnot these\n```\n\n| a cell |\n| --- |\n") != 4:
        problems.append("words of a page are counted wrongly")
    if [what for _, what in words.wide("a " * 80 + "\n| " + "b" * 130 + " | c |\n")] != ["a line of 160 columns", "a cell of 130 characters"]:
        problems.append("wide lines or cells are not found")
    return problems


def main():
    if sys.argv[1:2] == ["--list"]:
        show(sys.argv[2:])
        return
    now, before, problems = measured(), recorded() if tree.exists(TABLE) else {}, check_the_measure()
    if sys.argv[1:2] == ["--write"]:
        write(now, before)
        return
    for area, reached in now.items():
        print(f"{area:16} {reached[0]:6.1f} {reached[1]:6.1f} {reached[2]:6d}")
        if area not in before:
            problems.append(f"{TABLE} has no area {area}")
            continue
        for name, value, limit, free in zip(("words", "constructions", "wide lines and cells"), reached, before[area], (FREE, FREE, 0)):
            if value > max(limit, free):
                problems.append(f"{area}: {name}: {value}, at most {max(limit, free)}: see them with --list")
    problems += [f"{TABLE}: there is no area {area}" for area in before if area not in now]
    problems += too_long()
    tree.verdict(problems, f"{len(now)} areas")


if __name__ == "__main__":
    main()
