# SPDX-License-Identifier: Apache-2.0
"""One idea a file: at most 400 lines, at most 60 a function. The aims are 150 and 25; how close we are is printed."""
import re

import tree

FILE_CAP, FUNCTION_CAP = 400, 60
FILE_AIM, FUNCTION_AIM = 150, 25
SCOPE = re.compile(r"^(inline\s+)?(namespace|extern\b)|^(typedef\s+)?(class|struct|union|enum)\b(?![^{]*\)\s*(const|noexcept)?\s*$)")


def functions(text):
    """(name, first line, last line) of each function at file, namespace or class level: a counter of braces, no parser."""
    text = re.sub(r"^[ \t]*#(?:\\\n|[^\n])*", lambda m: re.sub(r"[^\n]", " ", m.group(0)), tree.strip(text), flags=re.M)
    start = 0  # of the declaration that is being read
    position = 0
    while position < len(text):
        char = text[position]
        if char in ";}":
            start = position + 1
        elif char == "{":
            head = re.sub(r"\s+", " ", text[start:position]).strip()
            head = re.sub(r"^(public|private|protected) ?: ?", "", head)
            head = re.sub(r"^template ?<(?:[^<>]|<[^<>]*>)*> ?(requires [^{]*? )?", "", head)
            if SCOPE.search(head):
                start = position + 1
            else:
                end = closing(text, position)
                initializer = re.search(r"\) ?(noexcept ?)?: ?[^:]", head) and re.search(r"[\w>]$", head)
                if not initializer:
                    name = re.search(r"([~\w:]+|operator ?\S+?) ?\(", head)
                    if name and not head.endswith("="):
                        offset = len(text[start:position]) - len(text[start:position].lstrip())
                        first = text.count("\n", 0, start + offset) + 1
                        yield name.group(1), first, text.count("\n", 0, end) + 1
                    start = end + 1
                position = end
        position += 1


def closing(text, opening):
    depth = 0
    for position in range(opening, len(text)):
        depth += {"{": 1, "}": -1}.get(text[position], 0)
        if depth == 0:
            return position
    return len(text) - 1


def main():
    problems, long_files, long_functions, total = [], [], [], 0
    sources = tree.sources("src/", "include/", "tests/", "examples/", "bindings/")
    sources = [path for path in sources if not re.search(r"_wrap\.(c|cpp|cxx|h)$", path)]  # written by SWIG
    for path in sources:
        lines = tree.read(path).count("\n") - 1  # without the line of the licence (spdx_test.py)
        if lines > FILE_CAP:
            problems.append(f"{path}: {lines} lines, at most {FILE_CAP}: which two ideas are in it?")
        elif lines > FILE_AIM:
            long_files.append((lines, path))
        for name, first, last in functions(tree.read(path)):
            total += 1
            size = last - first + 1
            if size > FUNCTION_CAP:
                problems.append(f"{path}:{first}: {name} has {size} lines, at most {FUNCTION_CAP}")
            elif size > FUNCTION_AIM:
                long_functions.append((size, f"{path}:{first} {name}"))
    print(f"above the aim: {len(long_files)} of {len(sources)} files, {len(long_functions)} of {total} functions; the longest:")
    for size, what in sorted(long_files, reverse=True)[:5] + sorted(long_functions, reverse=True)[:5]:
        print(f"  {size:4} {what}")
    tree.verdict(problems, f"{len(sources)} files, {total} functions")


if __name__ == "__main__":
    main()
