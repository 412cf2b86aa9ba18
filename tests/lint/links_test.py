# SPDX-License-Identifier: Apache-2.0
"""Links between the documents lead somewhere: to a file or folder of the repository, and to a heading that exists."""
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


problems, count = [], 0
for path in tree.files():
    if not path.endswith(".md") or path.startswith(".site/pages/"):  # .site/make.py checks these
        continue
    for target in re.findall(r"\]\(([^)\s]+)\)", without_code(tree.read(path))):
        if re.match(r"[a-z]+:", target):
            continue
        count += 1
        name, _, anchor = target.partition("#")
        whole = os.path.normpath(os.path.join(os.path.dirname(path), urllib.parse.unquote(name))) if name else path
        if not os.path.exists(os.path.join(tree.ROOT, whole)):
            problems.append(f"{path}: {target} leads nowhere")
        elif anchor and whole.endswith(".md") and anchor not in anchors(whole):
            problems.append(f"{path}: {target} names no heading of {whole}")
tree.verdict(problems, f"{count} links")
