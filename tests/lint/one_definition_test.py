# SPDX-License-Identifier: Apache-2.0
"""One name, one type: in the whole library, and in all tests, a class, struct, union, enum or alias of a namespace is defined in one place. C++
demands it (the one-definition rule) and neither compiler nor linker says so; with whole-program optimisation the program may then use the wrong
layout. Two headers of tests with one name do not compile together.
The preset `lto` lets the compiler check the same, and functions too, but takes minutes."""
import collections
import re

import tree

HEAD = re.compile(r"(?:^|[;{}])\s*(?:template\s*<[^;{}]*>\s*)?"
                  r"(?P<key>namespace|class|struct|union|enum(?:\s+(?:class|struct))?)\b(?P<rest>[^;{}()=]*)$")
ALIAS = re.compile(r"(?:^|[;{}])\s*using\s+(?P<name>\w+)\s*$")


def name_of(rest):
    """The name in what stands between the keyword and the brace: attributes, `alignas`, `final`, bases and underlying types are not part of it."""
    rest = re.sub(r"\[\[.*?\]\]|alignas\s*$|\bDDP_\w+\b(?!\s*$)", " ", rest)
    words = re.sub(r"(?<!:):(?!:).*", "", rest, flags=re.S).replace(" final", " ").split()
    return words[-1] if words else ""


def definitions(text):
    """(qualified name, line) of each type at namespace or class level with linkage."""
    text = re.sub(r"^[ \t]*#[^\n]*(\\\n[^\n]*)*", lambda m: re.sub(r"[^\n]", " ", m.group(0)), tree.strip(text), flags=re.M)
    scopes = []  # a name; None: not seen from other files, or a function
    start = 0
    for match in re.finditer(r"[{};=]", text):
        at, mark = match.start(), match.group(0)
        before = text[start:at]
        if mark == "=":
            if (alias := ALIAS.search(";" + before)) and None not in scopes:
                yield "::".join(scopes + [alias.group("name")]), text.count("\n", 0, at) + 1
            continue
        start = at + 1
        if mark == "}":
            if scopes:
                scopes.pop()
        elif mark == "{":
            head = HEAD.search(";" + before)
            # An initialiser, a function, an anonymous namespace or type: nothing in it has linkage that matters here.
            name = name_of(head.group("rest")) if head else ""
            if name and "<" not in name and "<" not in head.group("rest").split(":")[0] and None not in scopes:
                if head.group("key") != "namespace":
                    yield "::".join(scopes + [name]), text.count("\n", 0, at) + 1
                scopes.append(name)
            else:
                scopes.append(None)


def problems(sources, read):
    places = collections.defaultdict(list)
    for path in sources:
        for name, line in dict(reversed(list(definitions(read(path))))).items():  # in one file, behind another #if, it is the compiler's affair
            places[name].append(f"{path}:{line}")
    for name, where in sorted(places.items()):
        if len(where) > 1:
            yield f"{where[1]}: `{name}` is also defined in {where[0]}; give one of them another name"


def self_test():
    """The lint itself: what it must find, and what is not the same type."""
    code = {
        "a.hpp": "namespace ddp {\nstruct Span {\n  int64_t first = 0;\n};\nclass X final : public Y {};\nenum class Lane : uint64_t { kA = 1 };\n}",
        "b.hpp": "namespace ddp {\nstruct Span {\n  size_t tensor;\n};\n}",
        "c.cpp": "namespace ddp {\nnamespace {\nstruct X {};\n}\nvoid f() {\n  struct Span {};\n}\nnamespace rail {\nstruct Span {};\n}\nclass Lane;\n}",
        "d.hpp": "namespace ddp {\nclass Lane {\n  struct X {};\n};\nusing Span = int;\n}",
    }
    found = [problem.split(":")[0] for problem in problems(sorted(code), code.get)]
    assert found == ["d.hpp", "b.hpp"], found


self_test()
# Modules that are linked apart from the core see its types too. Kernels for GPUs are compiled by another compiler, in one program with the rest.
checked = [path for path in tree.sources("src/") if not path.startswith("src/ddprun/")]
# Every benchmark is one program.
tests = [path for path in tree.sources("tests/") if not path.startswith("tests/bench/")]
# What support/together.py joins is in a namespace without a name.
unnamed = re.compile(r"^tests/(?!cpp/|gpu/).*_test\.cpp$")
linked = [path for path in tests if not unnamed.search(path) or re.search(r"^namespace {$", tree.read(path), re.M)]
tree.verdict(list(problems(checked, tree.read)) + list(problems(linked, tree.read)),
             f"{len(checked)} files of the library and {len(tests)} of the tests, one type for each name")
