# SPDX-License-Identifier: Apache-2.0
"""Links between the documents lead somewhere: to a file or folder of the repository, and to a heading that exists. The pages of the site too: their
links, lists and includes name other pages, or files by their path from the root."""
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
tree.verdict(problems, f"{count} links")
