# SPDX-License-Identifier: Apache-2.0
"""Pages and JSON of reports, as Python's own parsers read them: each element is closed, tables are whole, charts have the
values of the JSON, and nothing is loaded from elsewhere."""
import html.parser
import json
import os
import pathlib
import subprocess
import sys
import tempfile

VOID = {"meta", "link", "br", "img", "input", "hr"}
problems = []


def expect(holds, text):
    if not holds:
        problems.append(text)


class Page(html.parser.HTMLParser):
    def __init__(self, name):
        super().__init__()
        self.name, self.open, self.tables, self.text, self.ids, self.loads = name, [], [], [], [], []

    def handle_starttag(self, tag, attributes):
        attributes = dict(attributes)
        self.loads += [attributes[key] for key in ("src", "srcset", "data", "poster") if key in attributes]
        if tag == "a":
            self.loads.append(attributes["href"])
        if "id" in attributes:
            self.ids.append(attributes["id"])
        if tag == "table":
            self.tables.append((self.ids[-1], []))
        if tag == "tr":
            self.tables[-1][1].append([])
        if tag in ("td", "th"):
            self.tables[-1][1][-1].append("")
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        expect("svg" in self.open, f"{self.name}: {tag} is closed at once outside an SVG")

    def handle_endtag(self, tag):
        expect(self.open and self.open[-1] == tag, f"{self.name}: </{tag}> closes {self.open[-1:]}")
        if self.open:
            self.open.pop()

    def handle_data(self, data):
        if "style" in self.open or "script" in self.open:
            expect("http" not in data and "@import" not in data and "url(" not in data, f"{self.name}: loads something")
            return
        self.text.append(data)
        if self.open and self.open[-1] in ("td", "th"):
            self.tables[-1][1][-1][-1] += data


def read(folder, name):
    page = Page(name)
    page.feed((folder / f"{name}.html").read_text())
    page.close()
    expect(not page.open, f"{name}: not closed: {page.open}")
    expect(len(page.ids) == len(set(page.ids)), f"{name}: an id stands twice")
    expect(page.loads == [f"{name}.json"], f"{name}: loads {page.loads}")
    for place, rows in page.tables:
        expect(len(rows) > 1 and len({len(row) for row in rows}) == 1, f"{name}: the table of {place} is not whole")
    return page, json.loads((folder / f"{name}.json").read_text())


def check_figures(page, numbers):
    """Computed anew from the samples."""
    samples = numbers["samples"]
    tables = dict(page.tables)
    rates = sorted((b["steps"] - a["steps"]) / (b["seconds"] - a["seconds"]) for a, b in zip(samples, samples[1:])
                   if b["steps"] > a["steps"])
    figures = numbers["figures"]
    expect(rates[0] <= figures["per_second"] <= rates[-1], f"{page.name}: {figures['per_second']} steps a second")
    comm = sum(rank["counts"]["comm_ns"] for rank in numbers["ranks"])
    exposed = sum(rank["counts"]["exposed_ns"] for rank in numbers["ranks"])
    expect(abs(figures["share_hidden"] - (1 - exposed / comm)) < 1e-9, f"{page.name}: share hidden")
    expect(f"{100 * (1 - exposed / comm):.0f} %" in "".join(page.text), f"{page.name}: the share is not in the page")
    expect(len(tables["ranks"]) == len(numbers["ranks"]) + 1, f"{page.name}: ranks")
    waited = {rank["rank"]: rank["awaited_ns"] for rank in numbers["ranks"]}
    expect(figures["straggler"] == max(waited, key=waited.get), f"{page.name}: straggler")
    first = tables["throughput"][1:]
    expect(len(first) <= 240 and abs(float(first[0][1]) - rates[len(rates) // 2]) < 5, f"{page.name}: throughput")


def main():
    program = pathlib.Path(os.environ["DDP_BUILD_DIR"]) / "tests/test.unit.ddprun.page"
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        subprocess.run([program, "--write", folder], check=True)
        for run in ("good", "failed"):
            page, numbers = read(folder, run)
            check_figures(page, numbers)
            expect(numbers["command"][3] == "--name=<b>\"it's\" & more</b>", f"{run}: the command")
            expect("--name=<b>\"it'\\''s\" & more</b>" in "".join(page.text), f"{run}: the command as a shell takes it")
            for part in ("throughput", "communication", "waiting", "buckets", "memory", "story", "ranks"):
                expect(part in page.ids, f"{run}: no {part}")
        numbers = json.loads((folder / "empty.json").read_text())
        expect(numbers["samples"] == [] and numbers["figures"]["per_second"] is None, "empty")
    for problem in problems:
        print(problem)
    return bool(problems)


sys.exit(main())
