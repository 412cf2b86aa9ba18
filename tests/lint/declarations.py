# SPDX-License-Identifier: Apache-2.0
"""The public headers as data: functions, structs, enums, callbacks. They are written plainly enough for patterns; header_rules_test
compares what is found here with what SWIG sees, so that nothing is overlooked."""
import re
from dataclasses import dataclass, field

import tree

# Without what is code of its own and declares nothing of the library's.
HEADERS = [path for path in tree.files() if re.fullmatch(r"include/ddp/\w+\.h", path) and path != "include/ddp/dlpack.h"]


@dataclass
class Parameter:
    type: str
    name: str


@dataclass
class Function:
    header: str
    line: int
    returns: str
    name: str
    parameters: list
    comment: str


@dataclass
class Struct:
    header: str
    line: int
    name: str
    members: list  # of Parameter; type may end in "[N]"
    comment: str


@dataclass
class Enum:
    header: str
    line: int
    name: str
    values: list  # of (name, text of the value or None)


@dataclass
class Api:
    functions: list = field(default_factory=list)
    structs: list = field(default_factory=list)
    enums: list = field(default_factory=list)
    callbacks: list = field(default_factory=list)
    handles: list = field(default_factory=list)
    rest: list = field(default_factory=list)  # (header, line, text) of all others


def squeeze(text):
    return re.sub(r"\s+", " ", text).strip()


def split_parameter(text):
    text = squeeze(text)
    match = re.fullmatch(r"(.*?[\s*])(\w+)(\[\w+\])?", text)
    if not match:
        return Parameter(text, "")
    return Parameter(squeeze(match.group(1)) + (match.group(3) or ""), match.group(2))


def parameters(text):
    return [] if squeeze(text) in ("", "void") else [split_parameter(part) for part in text.split(",")]


def body_members(body):
    return [split_parameter(part) for part in body.split(";") if part.strip()]


def read_header(path, api):
    original = tree.read(path)
    plain = tree.strip(original)
    plain = re.sub(r"^[ \t]*#[^\n]*(\\\n[^\n]*)*", lambda m: re.sub(r"[^\n]", " ", m.group(0)), plain, flags=re.M)
    plain = re.sub(r'extern "[^"]*"\s*\{', lambda m: " " * len(m.group(0)), plain)
    position = 0
    # a declaration ends at a semicolon outside braces
    for match in re.finditer(r"[^;{]*(?:\{[^}]*\}[^;]*)?;", plain):
        text = match.group(0)
        first = match.start() + len(text) - len(text.lstrip())
        line = plain.count("\n", 0, first) + 1
        before = original[position:first]
        comments = re.findall(r"/\*\*(.*?)\*/", before, flags=re.S)
        comment = comments[-1] if comments and before.rstrip().endswith("*/") else ""
        classify(path, line, squeeze(text), comment, api)
        position = match.end()


def classify(path, line, text, comment, api):
    if match := re.fullmatch(r"DDP_API (.*?)(\w+) ?\((.*)\);", text):
        api.functions.append(Function(path, line, squeeze(match.group(1)), match.group(2), parameters(match.group(3)), comment))
    elif match := re.fullmatch(r"typedef struct (\w+) \{(.*)\} (\w+);", text):
        api.structs.append(Struct(path, line, match.group(3), body_members(match.group(2)), comment))
    elif match := re.fullmatch(r"typedef enum (\w+)(?: DDP_INT32)? \{(.*)\} (\w+);", text):
        values = [(squeeze(part.split("=")[0]), squeeze(part.split("=")[1]) if "=" in part else None)
                  for part in match.group(2).split(",") if part.strip()]
        api.enums.append(Enum(path, line, match.group(3), values))
    elif match := re.fullmatch(r"typedef (\w+(?: \*)?) ?\(\* ?(\w+)\) ?\((.*)\);", text):
        api.callbacks.append(Function(path, line, match.group(1), match.group(2), parameters(match.group(3)), comment))
    elif match := re.fullmatch(r"typedef struct (\w+) (\w+);", text):
        api.handles.append(match.group(2) if match.group(1) == match.group(2) else text)
    else:
        api.rest.append((path, line, text))


def load():
    api = Api()
    for header in HEADERS:
        read_header(header, api)
    return api
