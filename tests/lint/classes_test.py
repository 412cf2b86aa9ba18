# SPDX-License-Identifier: Apache-2.0
"""One idea a class: at most 25 public functions and 15 members. classes_allowed.txt has the ones that are larger, with their numbers:
they may shrink and must not grow."""
import os
import re

import tree

MOST_FUNCTIONS, MOST_MEMBERS = 25, 15
ALLOWED = "tests/lint/classes_allowed.txt"
HEAD = re.compile(r"^([ \t]*)(?:template ?<[^{;]*>\s*)?(class|struct) (?:\[\[\w+\]\] )?(\w+(?:::\w+)*)(?: final)?(?: ?: [^{;]*)? ?\{", re.M)


def closing(text, opening):
    depth = 0
    for position in range(opening, len(text)):
        depth += {"{": 1, "}": -1}.get(text[position], 0)
        if depth == 0:
            return position
    return len(text)


def declarations(body):
    """The statements of a class at its own level: nested braces and what is in them become one blank."""
    text, depth = "", 0
    for char in body:
        depth += char == "{"
        if depth == 0:
            text += char
        depth -= char == "}"
        if char == "}" and depth == 0:
            text += " ;"
    return [re.sub(r"\s+", " ", each).strip() for each in re.split(r";", text)]


def measure(kind, body):
    """(public functions, members) of a class; constructors, destructors and what is deleted or defaulted count for nothing."""
    functions, members, access = 0, 0, "private" if kind == "class" else "public"
    for each in declarations(body):
        while label := re.match(r"(public|private|protected) ?: ?", each):
            access, each = label.group(1), each[label.end():]
        each = re.sub(r"^(\[\[\w+(\([^)]*\))?\]\] ?)+", "", each)
        if not each or re.match(r"(class|struct|enum|union|using|friend|typedef|static constexpr|static_assert|template ?<.*> ?(class|struct|using))\b", each):
            continue
        plain = re.sub(r"<[^<>]*>", "", re.sub(r"<[^<>]*(<[^<>]*>)?[^<>]*>", "", each))
        plain = plain.split(" = ")[0] if "(" not in plain.split(" = ")[0] else plain
        if "(" in plain and not re.match(r"(std::)?(atomic|function)\b", plain):
            special = re.search(r"= (delete|default)$|^(explicit |constexpr )*~?[A-Z]\w*\(", plain)
            functions += access == "public" and not special
        elif access != "public" or kind == "struct" or re.match(r"[\w:*& ]+ \w+_?$", plain):
            members += 1
    return functions, members


def classes():
    for path in tree.sources("src/"):
        text = re.sub(r"^[ \t]*#(?:\\\n|[^\n])*", "", tree.strip(tree.read(path)), flags=re.M)
        for match in HEAD.finditer(text):
            opening = match.end() - 1
            functions, members = measure(match.group(2), text[opening + 1:closing(text, opening)])
            yield path, match.group(3), functions, members


def self_test():
    body = "\n public:\n  X();\n  ~X() override;\n  [[nodiscard]] int f() const noexcept { return g(); }\n  void g(std::function<void(int)> h);\n" \
           "  X(const X&) = delete;\n\n private:\n  void hidden();\n  std::map<int, std::vector<int>> a_;\n  int b_ = f(), c_{0};\n  std::atomic<int> d_{0};\n"
    assert measure("class", body) == (2, 3), measure("class", body)


self_test()
allowed = {}
for line in tree.read(ALLOWED).splitlines():
    entry = re.match(r"(\S+) (\S+): (\d+) functions, (\d+) members", line)
    if entry:
        allowed[entry.group(1), entry.group(2)] = (int(entry.group(3)), int(entry.group(4)))
problems, seen, total = [], set(), 0
for path, name, functions, members in classes():
    total += 1
    most = allowed.get((path, name), (MOST_FUNCTIONS, MOST_MEMBERS))
    if functions > most[0] or members > most[1]:
        problems.append(f"{path}: {name} has {functions} public functions and {members} members, at most {most[0]} and {most[1]}")
    if (path, name) in allowed:
        seen.add((path, name))
        if functions <= MOST_FUNCTIONS and members <= MOST_MEMBERS:
            problems.append(f"{ALLOWED}: {name} is small enough now: take it out")
        elif (functions, members) < most and functions <= most[0] and members <= most[1]:
            problems.append(f"{ALLOWED}: {name} has {functions} functions, {members} members now: write that")
problems += [f"{ALLOWED}: {path} has no {name}" for path, name in set(allowed) - seen]
if os.environ.get("DDP_LINT_SHOW"):
    print("\n".join(f"{p} {n}: {f} functions, {m} members" for p, n, f, m in classes() if f > MOST_FUNCTIONS or m > MOST_MEMBERS))
tree.verdict(problems, f"{total} classes")
