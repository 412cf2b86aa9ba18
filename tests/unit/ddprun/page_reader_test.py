# SPDX-License-Identifier: Apache-2.0
"""Pages and JSON of reports. The page as it is written: nothing is loaded from elsewhere, and its object is that of the file.
The page as its script draws it, under node in a tiny document, as Python's own parser reads it: each element is closed,
tables are whole, charts have the values of the JSON."""
import html.parser
import json
import os
import pathlib
import re
import shutil
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

    def handle_endtag(self, tag):
        expect(self.open and self.open[-1] == tag, f"{self.name}: </{tag}> closes {self.open[-1:]}")
        if self.open:
            self.open.pop()

    def handle_data(self, data):
        self.text.append(data)
        if self.open and self.open[-1] in ("td", "th"):
            self.tables[-1][1][-1][-1] += data


def check_file(folder, name):
    """What can be seen without running the script."""
    text = (folder / f"{name}.html").read_text()
    object_text = re.search(r'<script type="application/json" id="run">(.*?)</script>', text, re.S).group(1)
    rest = text.replace(object_text, "").replace("http://www.w3.org/2000/svg", "")
    for part in ("http", "@import", "url(", "src=", "href=", "fetch(", "@RUN@"):
        expect(part not in rest.replace("it says @RUN@", ""), f"{name}: the page has {part}")
    expect("<" not in object_text, f"{name}: an element can begin in the numbers")
    numbers, shown = json.loads((folder / f"{name}.json").read_text()), json.loads(object_text)
    expect(shown.pop("page")["numbers"] == f"{name}.json", f"{name}: where the numbers are")
    expect(shown == {key: value for key, value in numbers.items() if key != "samples"}, f"{name}: the page has other numbers")
    return numbers


def draw(folder, name, *more):
    tiny_dom = pathlib.Path(__file__).with_name("tiny_dom.js")
    return subprocess.run(["node", tiny_dom, folder / f"{name}.html", *more], check=True, capture_output=True, text=True).stdout


def read(folder, name):
    page = Page(name)
    page.feed(draw(folder, name))
    page.close()
    expect(not page.open, f"{name}: not closed: {page.open}")
    expect(len(page.ids) == len(set(page.ids)), f"{name}: an id stands twice")
    expect(page.loads == [f"{name}.json"], f"{name}: loads {page.loads}")
    for place, rows in page.tables:
        expect(len(rows) > 1 and len({len(row) for row in rows}) == 1, f"{name}: the table of {place} is not whole")
    return page


def check_keys(folder, name):
    """Each plot reads its first and its last value by the keys, and nothing after Escape."""
    plots = [json.loads(line) for line in draw(folder, name, "keys").splitlines()]
    expect(len(plots) == 3 * 3, f"{name}: {len(plots)} keys were read")
    for first, last, none in zip(plots[::3], plots[1::3], plots[2::3]):
        expect(not first["hidden"] and ": " in first["words"] and first["at"] != last["at"], f"{name}: {first}")
        expect(not last["hidden"] and last["words"].split()[0] != first["words"].split()[0], f"{name}: {last}")
        expect(none["hidden"], f"{name}: Escape")


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


def check_width(folder, name):
    """The page and its table of ranks fit into 1100 pixels, as Chromium lays them out."""
    page = (folder / f"{name}.html").read_text()
    page += """<script>document.title = [document.documentElement, document.querySelector("#ranks .scroll")].map(
        part => part.scrollWidth - part.clientWidth).join(" ")</script>"""
    (folder / "measured.html").write_text(page)
    seen = subprocess.run(["chromium", "--headless", "--no-sandbox", "--disable-gpu", "--window-size=1100,900", "--dump-dom",
                           f"file://{folder}/measured.html"], capture_output=True, text=True, timeout=120).stdout
    title = re.search("<title>(.*?)</title>", seen)
    expect(title is not None and title.group(1) == "0 0", f"{name}: too wide by {title and title.group(1)} pixels")


def main():
    program = pathlib.Path(os.environ["DDP_BUILD_DIR"]) / "tests/test.unit.ddprun.page"
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        subprocess.run([program, "--write", folder], check=True)
        numbers = {run: check_file(folder, run) for run in ("good", "failed", "empty")}
        expect(numbers["empty"]["samples"] == [] and numbers["empty"]["figures"]["per_second"] is None, "empty")
        drawn = shutil.which("node") is not None
        for run in ("good", "failed") if drawn else ():
            page = read(folder, run)
            check_figures(page, numbers[run])
            text = "".join(page.text)
            expect(numbers[run]["command"][3] == "--name=<b>\"it's\" & more</b>", f"{run}: the command")
            expect("--name=<b>\"it'\\''s\" & more</b>" in text, f"{run}: the command as a shell takes it")
            for finding in numbers[run]["figures"]["findings"]:
                expect(finding["text"] in text, f"{run}: {finding} is not shown")
            ticks = sum(finding["kind"] == "good" for finding in numbers[run]["figures"]["findings"])
            expect(text.count("✓") == (ticks + 1 if run == "good" else 0), f"{run}: {text.count('✓')} ticks")
            for part in ("throughput", "communication", "waiting", "buckets", "memory", "story", "ranks"):
                expect(part in page.ids, f"{run}: no {part}")
            check_keys(folder, run)
        if drawn and shutil.which("chromium"):
            check_width(folder, "failed")
        if drawn:
            expect("no_pass" in re.findall('id="(.*?)"', draw(folder, "empty")), "empty: it does not say that there was no pass")
    for problem in problems:
        print(problem)
    if not problems and not drawn:
        print("the script of the pages was not run: node is not installed")
        return 77
    return bool(problems)


sys.exit(main())
