# SPDX-License-Identifier: Apache-2.0
"""Makes one source of several tests, each in a namespace of its own, because reading headers is most of a test's compilation.

together.py OUT NAME=PATH ...

The headers come first, so that none is read within a namespace: support/check.hpp before all, with the standard headers of most tests. The
namespace of a test is unnamed within, unless the test opens an unnamed one itself because some of it must be seen by a linker.
A test with a main() keeps it there; support/cases.cpp calls it.
"""

import pathlib
import re
import sys


def headers_of(text):
    """Those within #if are those of one processor."""
    depth = 0
    for line in text.splitlines():
        depth += line.startswith("#if") - line.startswith("#endif")
        if found := re.match(r'#include ([<"][^>"]+[>"])', line):
            yield f"#if __has_include({found[1]})\n{found[0]}\n#endif" if depth else found[0]


def joined(tests):
    headers, parts = {'#include "support/check.hpp"': None}, []
    for name, path in tests:
        text = pathlib.Path(path).read_text()
        headers.update(dict.fromkeys(headers_of(text)))
        space = "of_" + re.sub(r"\W", "_", name)
        run = f"{space}::main" if re.search(r"^int main\(", text, re.M) else "nullptr"
        opening, closing = ("", "") if re.search(r"^namespace {$", text, re.M) else ("namespace {\n", "}\n")
        parts.append(f'namespace {space} {{\n{opening}#include "{path}"\n{closing}}}  // namespace {space}\n'
                     f'static const bool {space}_is_listed = ddp::test::list_file("{name}", "{path}", {run});\n')
    return "\n".join([*headers, *parts])


def main():
    out = pathlib.Path(sys.argv[1])
    text = joined(each.split("=", 1) for each in sys.argv[2:])
    if not out.exists() or out.read_text() != text:
        out.write_text(text)


main()
