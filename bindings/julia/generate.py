# SPDX-License-Identifier: Apache-2.0
"""Write src/low.jl: the public header as Julia sees it. No declaration is copied by hand.

    python3 bindings/julia/generate.py [FILE] [--check]

../swig/header.py reads the header. This writes constants, enumerators, handles, structs, the signatures of callbacks and one ccall for
each function, with its comment as docstring. Tested by tests/bindings/generated_test.py.
"""
import os
import re
import sys
import textwrap

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "../swig"))
import header  # noqa: E402

RESERVED = {"baremodule", "begin", "break", "catch", "const", "continue", "do", "else", "elseif", "end", "export", "false", "finally", "for", "function",
            "global", "if", "import", "let", "local", "macro", "module", "quote", "return", "struct", "true", "try", "using", "while"}
PLAIN = {"void": "Cvoid", "int32_t": "Int32", "int64_t": "Int64", "int": "Int32", "float": "Float32", "double": "Float64", "char": "UInt8"}

HEAD = '''# SPDX-License-Identifier: Apache-2.0
# Written by generate.py from include/ddp/*.h; do not change it by hand.
"""
    Low

The C functions of libddp as they are: codes instead of exceptions, pointers instead of arrays. Names, arguments and comments are those
of the C header. What a program needs is in LibDDP itself.
"""
module Low

# LibDDP opened the library before; the system finds it again by this name.
const libddp = "libddp.so.0.1"
'''


def julia_type(kind, known):
    if kind.array:
        return f"NTuple{{{kind.array},{julia_type(header.Type(kind.name, kind.pointers), known)}}}"
    name = PLAIN.get(kind.name) or known[kind.name]
    return "Ptr{" * kind.pointers + name + "}" * kind.pointers


def julia_name(name):
    """A word that Julia keeps for itself gets an underscore behind it."""
    return name + "_" if name in RESERVED else name


def docstring(comment, head=""):
    """A doxygen comment as a docstring."""
    text = "\n".join(header.plain(comment))
    text = re.sub(r"@param(\[\w+\])? ([\w,]+)", lambda m: "- `" + m.group(2).replace(",", "`, `") + "`:", text)
    text = text.replace("@return", "Returns")
    if head:
        text = f"    {head}\n\n{text}"
    return f'@doc raw"""\n{text}\n"""\n'


def described(fields):
    """What the header says of each field, as a list for Julia's help."""
    lines = [(name, " ".join(" ".join(header.plain(comment)).split())) for name, _, comment in fields if comment and name != "struct_size"]
    return "".join(f"\n{'' if i else chr(10)}- `{julia_name(name)}`: {text}" for i, (name, text) in enumerate(lines))


def types_tuple(types):
    return "(" + ", ".join(types) + ("," if len(types) == 1 else "") + ")"


class Writer:
    def __init__(self, declarations):
        # C name -> Julia type; names of structs may be used before they are described
        self.known = {each.name: each.name for each in declarations if isinstance(each, (header.Struct, header.Enum))}
        self.known.update({each.name: "Ptr{Cvoid}" for each in declarations if isinstance(each, header.Callback)})
        self.parts = [HEAD]

    def add(self, text):
        self.parts.append(text + "\n")

    def constant(self, found):
        value = f'"{found.value}"' if found.is_text else found.value
        self.add(f"const {found.name} = {value}")

    def enum(self, found):  # a number, not an @enum: a newer library may answer with one that is not known here
        self.parts.append(f"# {found.name}: " + " ".join(found.comment.split()) + f"\nconst {found.name} = Int32\n")
        self.parts.append("".join(f"const {name} = Int32({value})\n" for name, value in found.items))

    def struct(self, found):
        if not found.fields:
            self.add(docstring(found.comment) + f"struct {found.name} end")
            return
        fields = [f"    {julia_name(name)}::{julia_type(kind, self.known)}" for name, kind, _ in found.fields]
        self.add(docstring(found.comment + described(found.fields)) + "\n".join([f"struct {found.name}", *fields, "end"]))

    def callback(self, found):
        types = [julia_type(kind, self.known) for _, kind in found.parameters]
        shown = types_tuple([re.sub(r"\bddp_\w+", lambda m: "$" + m.group(0), kind) for kind in types])
        body = f"    return esc(:(@cfunction($f, {julia_type(found.result, self.known)}, {shown})))"
        self.add(docstring(found.comment, f"@{found.name}(f)") + f"macro {found.name}(f)\n{body}\nend")

    def function(self, found):
        names = [julia_name(name) for name, _ in found.parameters]
        # a text that is given must not hold a NUL, which Cstring looks for
        types = ["Cstring" if kind == header.Type("char", 1, True) else julia_type(kind, self.known) for _, kind in found.parameters]
        result = julia_type(found.result, self.known)
        call = f"ccall((:{found.name}, libddp), {result}, {types_tuple(types)}" + "".join(", " + name for name in names) + ")"
        body = textwrap.wrap(call, 126, initial_indent="    return ", subsequent_indent="        ", break_long_words=False)
        signature = f"{found.name}({', '.join(names)})"
        self.add(docstring(found.comment, signature) + f"function {signature}\n" + "\n".join(body) + "\nend")


def write():
    declarations = header.read()
    writer = Writer(declarations)
    for each in declarations:
        getattr(writer, type(each).__name__.lower())(each)
    writer.add("end")
    return "\n".join(writer.parts)


if __name__ == "__main__":
    header.main(os.path.join(HERE, "src/low.jl"), write())
