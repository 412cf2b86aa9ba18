# SPDX-License-Identifier: Apache-2.0
"""The public headers as plain values, from SWIG's parse tree: what the generators of Julia, Fortran and Rust share.

    for declaration in header.read():
        if isinstance(declaration, header.Function): ...

SWIG has no target for these languages, but writes what it understood of a header as XML. Of that tree this takes everything below the
public headers, in their order. The same header gives the same values, with every SWIG 4.
"""
import dataclasses
import difflib
import functools
import os
import re
import subprocess
import sys
import tempfile
import xml.etree.ElementTree

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


@dataclasses.dataclass(frozen=True)
class Type:
    """`const char **` is Type("char", pointers=2, const=True): const is said of what the pointers lead to."""
    name: str  # void, char, int32_t, int64_t, float, double, or the name of a declaration
    pointers: int = 0
    const: bool = False
    array: int = 0  # elements, of a field that is an array


@dataclasses.dataclass
class Constant:
    name: str
    value: str  # a number, or a text without quotes
    is_text: bool


@dataclasses.dataclass
class Enum:
    name: str
    comment: str
    items: list  # (name, number as text)


@dataclasses.dataclass
class Struct:
    """A handle if it has no fields."""
    name: str
    comment: str
    fields: list  # (name, Type, comment)


@dataclasses.dataclass
class Callback:
    name: str
    comment: str
    result: Type
    parameters: list  # (name, Type)


@dataclasses.dataclass
class Function:
    name: str
    comment: str
    result: Type
    parameters: list  # (name, Type)


def tree():
    """SWIG's tree of the public headers."""
    with tempfile.TemporaryDirectory() as work:
        interface = os.path.join(work, "ddp.i")
        with open(interface, "w", encoding="utf-8") as file:
            file.write('%module ddp\n%include "ddp_common.i"\n%include <ddp/experimental.h>\n')
        # The language only decides what SWIG would write besides; -doxygen, which keeps the comments, wants Python.
        subprocess.run([os.environ.get("SWIG", "swig"), "-python", "-doxygen", "-includeall", "-I" + os.path.join(ROOT, "include"),
                        "-I" + os.path.join(ROOT, "bindings/swig"), "-outdir", work, "-xmlout", os.path.join(work, "ddp.xml"),
                        "-o", os.path.join(work, "ddp_wrap.c"), interface], check=True)
        return xml.etree.ElementTree.parse(os.path.join(work, "ddp.xml")).getroot()


def attributes(node):
    listing = node.find("attributelist")
    return {} if listing is None else {item.get("name"): item.get("value") for item in listing.findall("attribute")}


def nodes(root):
    """What stands in a public header itself, in order, as (tag, attributes, node)."""
    for include in root.iter("include"):
        name = (attributes(include).get("name") or "").replace(os.sep, "/")
        if re.search(r"/ddp/\w+\.h$", name):
            for node in include:
                if node.tag != "include":
                    yield node.tag, attributes(node), node


def type_of(text):
    """SWIG writes types from right to left: p.q(const).char is a const char *."""
    array = re.match(r"a\((\d+)\)\.", text)
    rest = text[array.end():] if array else text
    rest = rest.replace("enum ", "").replace("struct ", "")
    name = rest.rsplit(".", 1)[-1]
    return Type(name, rest.count("p."), rest.endswith("q(const)." + name), int(array.group(1)) if array else 0)


def parameters(node):
    listing = node.find("attributelist/parmlist")
    found = [attributes(parameter) for parameter in ([] if listing is None else listing.findall("parm"))]
    return [(each["name"], type_of(each["type"])) for each in found if each.get("type") != "void"]


def closing(text, opening):
    depth = 0
    for position in range(opening, len(text)):
        depth += {"(": 1, ")": -1}.get(text[position], 0)
        if depth == 0:
            return position
    raise ValueError(text)


def function_of(node, found):
    declaration = found["decl"]
    pointers = declaration[closing(declaration, declaration.index("f(") + 1) + 2:]  # what follows f(...).
    return Function(found["sym_name"], found.get("doxygen") or "", type_of(pointers + found["type"]), parameters(node))


def struct_of(node, found):
    fields = [attributes(child) for child in node.findall("cdecl")]
    return Struct(found["sym_name"], found.get("doxygen") or "",
                  [(each["sym_name"], type_of(each["decl"] + each["type"]), each.get("doxygen") or "") for each in fields])


@functools.lru_cache(maxsize=None)
def read():
    """All declarations of the public headers, in order."""
    found = list(nodes(tree()))
    named = {each["sym_name"] for tag, each, _ in found if tag == "class"}
    result = []
    for tag, each, node in found:
        comment = each.get("doxygen") or ""
        if tag == "constant":
            is_text = each.get("type", "").endswith("char")  # from SWIG 4.3 on the quotes are there
            result.append(Constant(each["sym_name"], each["value"].strip('"') if is_text else each["value"], is_text))
        elif tag == "enum":
            items = [attributes(item) for item in node.findall("enumitem")]
            result.append(Enum(each["sym_name"], comment, [(item["sym_name"], item["enumvalue"]) for item in items]))
        elif tag == "class":
            result.append(struct_of(node, each))
        elif tag == "cdecl" and each.get("kind") == "function":
            result.append(function_of(node, each))
        elif tag == "cdecl" and each.get("storage") == "typedef":
            if each["decl"].startswith("p.f("):
                result.append(Callback(each["name"], comment, type_of(each["type"]), parameters(node)))
            elif each["decl"] == "" and each["type"] == f"struct {each['name']}" and each["name"] not in named:
                result.append(Struct(each["name"], comment, []))
    return result


def plain(comment):
    """Lines of a doxygen comment without its marks."""
    lines = [re.sub(r"^\s*\* ?", "", line).rstrip() for line in (comment or "").strip().splitlines()]
    lines = [re.sub(r"^\s*<\s*", "", line) for line in lines if not line.startswith("@file")]
    return "\n".join(lines).strip().splitlines()


SIZES = {"int32_t": 4, "int": 4, "int64_t": 8, "float": 4, "double": 8}


def layout(declarations):
    """Struct name -> [(field, offset, bytes)] and, under None, its size: where int64_t and pointers have 8 bytes and their natural place."""
    enums = {each.name for each in declarations if isinstance(each, Enum)}
    result = {}
    for struct in (each for each in declarations if isinstance(each, Struct) and each.fields):
        places, end, most = [], 0, 1
        for name, kind, _ in struct.fields:
            one = 8 if kind.pointers or kind.name.endswith("_fn") else 4 if kind.name in enums else SIZES[kind.name]
            end = -(-end // one) * one
            places.append((name, end, one * (kind.array or 1)))
            end, most = end + one * (kind.array or 1), max(most, one)
        result[struct.name] = {None: -(-end // most) * most, "fields": places}
    return result


def main(target, text):
    """What every generator does with its text: write it to the file, or with --check say whether the file is up to date."""
    arguments = [each for each in sys.argv[1:] if each != "--check"]
    path = arguments[0] if arguments else target
    if "--check" in sys.argv:
        with open(path, encoding="utf-8") as file:
            difference = list(difflib.unified_diff(file.read().splitlines(), text.splitlines(), path, "as it would be written", lineterm=""))
        print("\n".join(difference[:40]) if difference else f"{path}: up to date")
        sys.exit(1 if difference else 0)
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)
