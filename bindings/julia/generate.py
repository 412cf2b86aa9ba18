"""Write src/low.jl: the public header as Julia sees it, from SWIG's parse tree. No declaration is copied by hand.

    python3 bindings/julia/generate.py [FILE]

SWIG has no Julia target, but writes what it understood of a header as XML. Of that tree this takes everything below the public headers:
constants, enumerators, handles, structs, the signatures of callbacks and one ccall for each function, with its comment as docstring.
The same header gives the same file, with every SWIG 4. Tested by tests/bindings/generated_test.py.
"""
import os
import re
import subprocess
import sys
import tempfile
import textwrap
import xml.etree.ElementTree

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
RESERVED = {"baremodule", "begin", "break", "catch", "const", "continue", "do", "else", "elseif", "end", "export", "false", "finally", "for", "function",
            "global", "if", "import", "let", "local", "macro", "module", "quote", "return", "struct", "true", "try", "using", "while"}
PLAIN = {"void": "Cvoid", "int32_t": "Int32", "int64_t": "Int64", "int": "Int32", "float": "Float32", "double": "Float64", "char": "UInt8"}

HEAD = '''# Written by generate.py from include/ddp/*.h; do not change it by hand.
"""
    Low

The C functions of libddp as they are: codes instead of exceptions, pointers instead of arrays. Names, arguments and comments are those
of the C header. What a program needs is in LibDDP itself.
"""
module Low

# LibDDP opened the library before; the system finds it again by this name.
const libddp = "libddp.so.0.1"
'''


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


def declarations(root):
    """What stands in a public header itself, in order, as (tag, attributes, node)."""
    for include in root.iter("include"):
        name = (attributes(include).get("name") or "").replace(os.sep, "/")
        if re.search(r"/ddp/\w+\.h$", name):
            for node in include:
                if node.tag != "include":
                    yield node.tag, attributes(node), node


def julia_type(text, known):
    """SWIG writes types from right to left: p.q(const).char is a const char *."""
    text = text.replace("q(const).", "").replace("enum ", "").replace("struct ", "")
    array = re.match(r"a\((\d+)\)\.(.*)", text)
    if array:
        return f"NTuple{{{array.group(1)},{julia_type(array.group(2), known)}}}"
    if text.startswith("p.f("):
        return "Ptr{Cvoid}"
    if text.startswith("p."):
        return f"Ptr{{{julia_type(text[2:], known)}}}"
    return PLAIN.get(text) or known[text]


def julia_name(name):
    """A word that Julia keeps for itself gets an underscore behind it."""
    return name + "_" if name in RESERVED else name


def docstring(comment, head=""):
    """A doxygen comment as a docstring."""
    lines = [re.sub(r"^\s*\* ?", "", line).rstrip() for line in (comment or "").strip().splitlines()]
    lines = [re.sub(r"^\s*<\s*", "", line) for line in lines if not line.startswith("@file")]
    text = "\n".join(lines).strip()
    text = re.sub(r"@param(\[\w+\])? ([\w,]+)", lambda m: "- `" + m.group(2).replace(",", "`, `") + "`:", text)
    text = text.replace("@return", "Returns")
    if head:
        text = f"    {head}\n\n{text}"
    return f'@doc raw"""\n{text}\n"""\n'


def parameters(node):
    """(name, type) of each parameter of a function."""
    listing = node.find("attributelist/parmlist")
    result = []
    for parameter in [] if listing is None else listing.findall("parm"):
        found = attributes(parameter)
        if found.get("type") != "void":
            result.append((julia_name(found["name"]), found["type"]))
    return result


def types_tuple(types):
    return "(" + ", ".join(types) + ("," if len(types) == 1 else "") + ")"


class Writer:
    def __init__(self):
        self.known = {}  # C name -> Julia type
        self.parts = [HEAD]

    def add(self, text):
        self.parts.append(text + "\n")

    def constant(self, _, found):
        value = found["value"]
        if found.get("type", "").endswith("char"):
            value = '"' + value.strip('"') + '"'  # from SWIG 4.3 on the quotes are there
        self.add(f"const {found['sym_name']} = {value}")

    def enum(self, node, found):
        name = found["sym_name"]
        self.known[name] = name  # a number, not an @enum: a newer library may answer with one that is not known here
        items = [attributes(item) for item in node.findall("enumitem")]
        self.parts.append(f"# {name}: " + " ".join((found.get("doxygen") or "").split()) + f"\nconst {name} = Int32\n")
        self.parts.append("".join(f"const {item['sym_name']} = Int32({item['enumvalue']})\n" for item in items))

    def struct(self, node, found):
        name = found["sym_name"]
        self.known[name] = name
        fields = []
        for child in node.findall("cdecl"):
            field = attributes(child)
            fields.append(f"    {julia_name(field['sym_name'])}::{julia_type(field['decl'] + field['type'], self.known)}")
        self.add(docstring(found.get("doxygen")) + "\n".join([f"struct {name}", *fields, "end"]))

    def typedef(self, node, found):
        name, declaration, kind = found["name"], found["decl"], found["type"]
        if declaration.startswith("p.f("):
            types = [julia_type(kind, self.known) for _, kind in parameters(node)]
            shown = types_tuple([re.sub(r"\bddp_\w+", lambda m: "$" + m.group(0), kind) for kind in types])
            self.known[name] = "Ptr{Cvoid}"
            body = f"    return esc(:(@cfunction($f, {julia_type(kind, self.known)}, {shown})))"
            self.add(docstring(found.get("doxygen"), f"@{name}(f)") + f"macro {name}(f)\n{body}\nend")
        elif declaration == "" and kind == f"struct {name}" and name not in self.known:
            self.known[name] = name
            self.add(docstring(found.get("doxygen")) + f"struct {name} end")

    def function(self, node, found):
        name, declaration = found["sym_name"], found["decl"]
        pointers = declaration[closing(declaration, declaration.index("f(") + 1) + 2:]  # what follows f(...).
        result = julia_type(pointers + found["type"], self.known)
        given = parameters(node)
        names = [name for name, _ in given]  # a text that is given must not hold a NUL, which Cstring looks for
        types = ["Cstring" if kind == "p.q(const).char" else julia_type(kind, self.known) for _, kind in given]
        call = f"ccall((:{name}, libddp), {result}, {types_tuple(types)}" + "".join(", " + name for name in names) + ")"
        body = textwrap.wrap(call, 126, initial_indent="    return ", subsequent_indent="        ", break_long_words=False)
        signature = f"{name}({', '.join(names)})"
        self.add(docstring(found.get("doxygen"), signature) + f"function {signature}\n" + "\n".join(body) + "\nend")


def closing(text, opening):
    depth = 0
    for position in range(opening, len(text)):
        depth += {"(": 1, ")": -1}.get(text[position], 0)
        if depth == 0:
            return position
    raise ValueError(text)


def write():
    writer = Writer()
    found = list(declarations(tree()))
    for _, attributes_, _ in found:  # names of structs may be used before they are described
        if attributes_.get("kind") == "struct":
            writer.known.setdefault(attributes_["sym_name"], attributes_["sym_name"])
    for tag, attributes_, node in found:
        if tag == "constant":
            writer.constant(node, attributes_)
        elif tag == "enum":
            writer.enum(node, attributes_)
        elif tag == "class":
            writer.struct(node, attributes_)
        elif tag == "cdecl" and attributes_.get("kind") == "function":
            writer.function(node, attributes_)
        elif tag == "cdecl" and attributes_.get("storage") == "typedef":
            writer.typedef(node, attributes_)
    writer.add("end")
    return "\n".join(writer.parts)


if __name__ == "__main__":
    target = sys.argv[1] if len(sys.argv) > 1 else os.path.join(HERE, "src/low.jl")
    text = write()
    with open(target, "w", encoding="utf-8") as output:
        output.write(text)
