# SPDX-License-Identifier: Apache-2.0
"""Links between the documents lead somewhere: to a file or folder of the repository, and to a heading that exists. The pages of the site too: their
links, lists and includes name other pages, or files by their path from the root. And comments, messages and pages that write `include/GPU.md, "CUDA
graphs"` name a page and a heading of it."""
import os
import re
import urllib.parse

import tree


def without_code(text):
    return re.sub(r"^```.*?^```[^\n]*$|`[^`\n]+`", "", text, flags=re.S | re.M)


def anchors(path):
    """Of the headings, as GitHub makes them."""
    text = re.sub(r"^```.*?^```[^\n]*$", "", tree.read(path), flags=re.S | re.M)
    found = set()
    for heading in re.findall(r"^#+ +(.*)$", text, re.M):
        plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).strip().lower()
        found.add(re.sub(r"[^\w\- ]", "", plain).replace(" ", "-"))
    return found


PAGES = ".github/site/pages"


def targets(path, text):
    """What a document refers to: links, and in a page of the site the files that it includes and the lists of pages."""
    found = re.findall(r"\]\(([^)\s]+)\)", without_code(text))
    if path.startswith(PAGES):
        found += re.findall(r"^```{include} (\S+)", text, re.M)
        for block in re.findall(r"^```{toctree}(.*?)^```", text, re.M | re.S):
            found += [name + ".md" for name in re.findall(r"^(?:.*<)?([\w./]+)>?$", block, re.M)]
    return [each for each in found if not re.match(r"[a-z]+:", each)]


def place(path, name):
    """The file that a link of a document leads to."""
    if not path.startswith(PAGES):
        return os.path.normpath(os.path.join(os.path.dirname(path), name))
    if name.startswith("api/"):  # .github/site/make.py makes a page of each header
        return re.sub(r"^api/(\w+)\.md$", lambda of: "include/ddp" if of[1] == "index" else f"include/ddp/{of[1]}.h", name)
    if os.path.exists(os.path.join(tree.ROOT, PAGES, os.path.basename(name))) and "/" not in name:
        return f"{PAGES}/{name}"
    return re.sub("^github/", ".github/", os.path.normpath(name))


problems, count = [], 0
for path in tree.files():
    if not path.endswith(".md"):
        continue
    for target in targets(path, tree.read(path)):
        count += 1
        name, _, anchor = target.partition("#")
        whole = place(path, urllib.parse.unquote(name)) if name else path
        if not os.path.exists(os.path.join(tree.ROOT, whole)):
            problems.append(f"{path}: {target} leads nowhere")
        elif anchor and whole.endswith(".md") and anchor not in anchors(whole):
            problems.append(f"{path}: {target} names no heading of {whole}")
# `FOLDER/PAGE.md`, with or without a heading in quotation marks behind it; a comment may continue in the next line.
NAMED = re.compile(r'(?<![\w./-])((?:include|src|tests|bindings|examples|pkgconfig)/(?:[\w-]+/)*[\w-]+\.md)(?:`?,? \\?"([^"\\]{3,80})\\?")?')
for path in tree.files():
    if not path.endswith(tree.SOURCE_ENDINGS + (".py", ".sh", ".md", ".txt")) or path.startswith(("tests/lint/", "bindings/")):
        continue
    text = re.sub(r"\s*\n\s*(?:///?<?|\*|#)? ?", " ", tree.read(path))
    for name, heading in NAMED.findall(text):
        count += 1
        wanted = re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-")
        if not tree.exists(name):
            problems.append(f"{path}: there is no {name}")
        elif heading and heading[0].isupper() and wanted not in anchors(name) and f"**{heading}" not in tree.read(name):
            problems.append(f'{path}: {name} has no heading "{heading}"')
tree.verdict(problems, f"{count} links")
