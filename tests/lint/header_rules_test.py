# SPDX-License-Identifier: Apache-2.0
"""The public headers keep to what every language can read (bindings are made from them): types of fixed width, opaque handles,
enums with explicit values, no struct by value, results through trailing out_ pointers, names that are no keyword anywhere."""
import os
import re
import shutil
import subprocess
import tempfile
from xml.etree import ElementTree

import declarations
import tree

api = declarations.load()
problems = []
ENUMS = {enum.name for enum in api.enums}
STRUCTS = {struct.name for struct in api.structs}
HANDLES = set(api.handles)
CALLBACKS = {callback.name for callback in api.callbacks}
SCALARS = {"int32_t", "int64_t", "float", "double"} | ENUMS
POINTED = SCALARS | STRUCTS | HANDLES | {"void", "char"}
# Functions whose answer is their value; everything else returns ddp_status, or nothing and cannot fail.
ANSWERS = {"int32_t", "int64_t", "const char *", "ddp_backend"}
BAD_NAMES = set("""result self args type range len func in from to end begin lambda module string object fixed ref out
    default function local global let map chan select go package var import interface defer def class del is not or and None True
    False yield with pass raise try finally except nothing using quote struct mutable abstract primitive new delete this operator
    template private public protected virtual friend typename namespace export base checked event params readonly sealed""".split())


def bad(where, text):
    problems.append(f"{where.header}:{where.line}: {where.name}: {text}")


def check_type(where, text, as_parameter):
    base = declarations.squeeze(re.sub(r"\bconst\b|\*|\[\w+\]", " ", text))
    stars = text.count("*")
    if stars == 0 and base not in SCALARS | (CALLBACKS if as_parameter else SCALARS | CALLBACKS):
        bad(where, f"'{text}' by value; only fixed-width numbers and enums are")
    elif stars and base not in POINTED:
        bad(where, f"'{text}' points to something that not every language has")
    elif not as_parameter and base in HANDLES and declarations.squeeze(text).endswith("*const *"):
        pass  # an array of handles
    elif stars > 1 and (stars > 2 or not as_parameter or base not in HANDLES | {"void", "char"}):
        bad(where, f"'{text}' has too many stars")


def check_call(function, is_callback):
    names = [parameter.name for parameter in function.parameters]
    for parameter in function.parameters:
        check_type(function, parameter.type, True)
        if parameter.name in BAD_NAMES:
            bad(function, f"'{parameter.name}' is a keyword in some language")
        if not parameter.name:
            bad(function, "a parameter without a name")
        if parameter.type.count("*") == 2 and not parameter.name.startswith("out_"):
            bad(function, f"'{parameter.name}' is an output, so its name starts with out_")
    outputs = [index for index, name in enumerate(names) if name.startswith("out_")]
    last = len(names) - (1 if names and names[-1] == "stream" else 0)
    if outputs and outputs != list(range(outputs[0], last)):
        bad(function, "outputs come last (but for the stream)")
    if "stream" in names[:-1]:
        bad(function, "the stream comes last")
    if is_callback:
        if function.returns not in ("int32_t", "int64_t", "void"):
            bad(function, "a callback returns a number or nothing")
        if names[0] != "user_data":
            bad(function, "a callback takes user_data first")
    elif function.returns == "void" and not function.name.endswith("_destroy"):
        bad(function, "returns nothing; only destroy may")
    elif function.returns not in {"ddp_status", "void"} | ANSWERS:
        bad(function, f"returns '{function.returns}'")
    elif function.returns in ANSWERS and outputs:
        bad(function, "an answer by value and by pointer at once")


def check_structs():
    for struct in api.structs:
        if struct.name == "ddp_tensor":
            continue  # frozen
        first = struct.members[0]
        if (first.type, first.name) != ("int64_t", "struct_size"):
            bad(struct, "grows, so it starts with int64_t struct_size")
        init = [function for function in api.functions if function.name == struct.name + "_init"]
        wanted = bool(re.search(r"_options$|^ddp_(state|sampler)$", struct.name))
        if bool(init) != wanted:
            bad(struct, "options, ddp_state and ddp_sampler have an _init function; of all others the caller sets struct_size")
        for function in init:
            if [parameter.type for parameter in function.parameters] != [struct.name + " *", "int64_t"]:
                bad(function, "takes the struct and its size")
        for member in struct.members:
            if "char" in member.type:
                bad(struct, f"'{member.name}' is text; strings are arguments, never members")
            check_type(struct, member.type, False)


def check_enums():
    for enum in api.enums:
        numbers = []
        for name, value in enum.values:
            if value is None or not re.fullmatch(r"-?\d+", value):
                bad(enum, f"{name} needs a plain number")
            else:
                numbers.append(int(value))
        if len(set(numbers)) != len(numbers):
            bad(enum, "two names for one value")


def check_macros():
    for header in declarations.HEADERS:
        text = tree.strip(tree.read(header))
        for match in re.finditer(r"^[ \t]*#[ \t]*define[ \t]+(\w+)(\(?)[ \t]*(.*)", text, re.M):
            name, call, value = match.group(1), match.group(2), match.group(3).strip()
            if call and value != "":
                problems.append(f"{header}: {name} is a function-like macro, or its value is no plain literal")
            elif not re.fullmatch(r'|-?\d+|"[^"]*"|__attribute__.*|: int32_t', value):
                problems.append(f"{header}: {name} must be a plain literal, not {value}")


def check_tiers():
    """No option of a stable struct belongs to an experimental part."""
    part_of = lambda umbrella: re.findall(r'#include "(ddp/\w+\.h)"', tree.read(umbrella))
    stable = part_of("include/ddp/ddp.h")
    parts = [header for header in part_of("include/ddp/experimental.h") if header not in ["ddp/ddp.h", *stable]]
    names = {function.name for function in api.functions if function.header.removeprefix("include/") in parts}
    for header in stable:
        for body, struct in re.findall(r"^typedef (?:struct|enum) \w+ (?:DDP_INT32 )?\{(.*?)^\} (\w+);", tree.read("include/" + header), re.S | re.M):
            found = [word for word in re.findall(r"\bddp_\w+|ddp/\w+\.h|xperimental", body) if word in names or word in [*parts, "xperimental"]]
            problems.extend(f"include/{header}: {struct} is stable and has an option of {word}, which may change" for word in sorted(set(found)))


def attributes(node):
    return {child.get("name"): child.get("value") for child in node.findall("attributelist/attribute")}


def check_with_swig():
    """SWIG reads the same functions as declarations.py, without a warning."""
    if not shutil.which("swig"):
        return "swig not found: rules checked with patterns alone"
    with tempfile.TemporaryDirectory() as work:
        interface, xml = os.path.join(work, "ddp.i"), os.path.join(work, "ddp.xml")
        with open(interface, "w", encoding="utf-8") as file:
            file.write("%module ddp\n%include <stdint.i>\n")
            order = re.findall(r'#include "(ddp/\w+\.h)"', tree.read("include/ddp/ddp.h") + tree.read("include/ddp/experimental.h"))
            file.writelines(f'%include "{header}"\n' for header in order)
        done = subprocess.run(["swig", "-Wall", "-Werror", "-xml", "-o", xml, "-I" + os.path.join(tree.ROOT, "include"), interface],
                              capture_output=True, text=True, check=False)
        if done.returncode or "Warning" in done.stderr:
            problems.append("swig complains:\n" + done.stderr)
            return "swig failed"
        root = ElementTree.parse(xml).getroot()
    seen = {}
    for node in root.iter("cdecl"):
        about = attributes(node)
        if about.get("kind") == "function" and about["name"].startswith("ddp_"):
            named = [attributes(parameter).get("name") for parameter in node.findall("attributelist/parmlist/parm")]
            seen[about["name"]] = [name for name in named if name]
    mine = {function.name: [parameter.name for parameter in function.parameters] for function in api.functions}
    for name in sorted(seen.keys() | mine.keys()):
        if seen.get(name) != mine.get(name):
            problems.append(f"{name}: swig reads {seen.get(name)}, the patterns read {mine.get(name)}")
    return f"swig sees the same {len(seen)} functions"


for function in api.functions:
    check_call(function, False)
for callback in api.callbacks:
    check_call(callback, True)
for header, line, text in api.rest:
    problems.append(f"{header}:{line}: neither function, struct, enum, callback nor handle: {text}")
problems.extend(f"a handle is typedef struct ddp_x ddp_x: {handle}" for handle in api.handles if " " in handle)
check_structs()
check_enums()
check_tiers()
check_macros()
print(check_with_swig())
tree.verdict(problems, f"{len(api.functions)} functions, {len(api.structs)} structs, {len(api.enums)} enums, {len(api.callbacks)} callbacks")
