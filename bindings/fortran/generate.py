# SPDX-License-Identifier: Apache-2.0
"""Write ddp.f90: the public header as a Fortran module. No declaration is copied by hand.

    python3 bindings/fortran/generate.py [FILE] [--check]

../swig/header.py reads the header. Each function becomes a procedure of the same name that takes Fortran's strings, optional arguments
and handles, and turns a status into `stat`, as `allocate` does; by_hand.f90, which the module ends with, has what they share.
Tested by tests/bindings/generated_test.py.
"""
import os
import re
import sys
import textwrap

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "../swig"))
import header  # noqa: E402

NUMBERS = {"int32_t": "integer(c_int32_t)", "int": "integer(c_int)", "int64_t": "integer(c_int64_t)", "float": "real(c_float)",
           "double": "real(c_double)"}
ZERO = {"integer(c_int32_t)": "0", "integer(c_int64_t)": "0", "real(c_double)": "0", "type(c_ptr)": "c_null_ptr", "type(c_funptr)": "c_null_funptr"}
# Fortran makes no difference between DDP_VERSION and ddp_version.
RENAMED = {"DDP_VERSION": "DDP_HEADER_VERSION", "DDP_VERSION_STRING": "DDP_HEADER_VERSION_STRING",
           "DDP_EXPERIMENTAL_VERSION": "DDP_HEADER_EXPERIMENTAL_VERSION"}
# In by_hand.f90, or without a use there: arrays say their size, the text of an error has a function already.
BY_HAND = {"ddp_model_add_array", "ddp_copy_last_error", "ddp_model_describe_plan"}
ARRAYS = {"out_indices"}  # of the results, those that are more than one number
STAT = "integer(c_int32_t), intent(out), optional :: stat"

HEAD = """! SPDX-License-Identifier: Apache-2.0
! Written by generate.py from the headers in include/ddp and by_hand.f90; do not change it by hand.
!
! libddp for Fortran. Procedures have the names of the C functions, and their comments. What Fortran changes:
!  - a result of type ddp_status is the argument `stat`. Without it a call that fails writes why and ends the program;
!  - where C allows NULL an argument is optional, and comes behind those that are not;
!  - strings are Fortran's; handles have types; structs begin with all 0 and their struct_size;
!  - parameters are counted from 0, as in the texts of errors;
!  - arrays that are lent have the attribute `target`, and stay where they are.
module ddp
  use, intrinsic :: iso_c_binding
  implicit none
"""


def wrapped(line, indent):
    """A statement in lines of at most 132 characters."""
    parts = textwrap.wrap(line, 128 - len(indent), break_long_words=False, break_on_hyphens=False, subsequent_indent="    ")
    return " &\n".join(indent + part for part in parts)


def comment(text, indent):
    return "".join(f"{indent}! {line}".rstrip() + "\n" for line in header.plain(text))


def remark(text, indent):
    """The comment of a field, in lines of its own."""
    return "\n".join(textwrap.wrap(" ".join(" ".join(header.plain(text)).split()), 120, initial_indent=indent + "! ", subsequent_indent=indent + "! "))


def said_of(found):
    """What the comment says of each parameter: (name, text)."""
    for names, text in re.findall(r"@param(?:\[\w+\])? ([\w,]+)((?:(?!@param|@return).)*)", " ".join(header.plain(found.comment))):
        for name in names.split(","):
            yield name, re.split(r" (?:Local|Collective)\b", text)[0]


def optional_parameters(found, functions):
    """Those that may be NULL: by their comment, by that of the function or parameter that they are "as", or because they always may."""
    allowed = {"stream", "user_data", "release"} if found.result.name == "ddp_status" else set()
    for name, text in said_of(found):
        like = re.search(r"\b(?:as|if) (\w+)", text)
        if re.search(r"NULL", text) and not re.search(r"(?<!if )not NULL", text) or like and like.group(1) in allowed:
            allowed.add(name)
    for name in re.findall(r"\bAs (ddp_\w+)", " ".join(header.plain(found.comment))):
        allowed |= optional_parameters(functions[name], functions)
    allowed |= {name for name, kind in found.parameters if kind.const and kind.pointers and kind.name.endswith("_options")}
    return allowed - {name for name, kind in found.parameters if kind.pointers == 2}


class Argument:
    """One parameter: how the wrapper declares it (`outer`), how the C function does (`inner`), and what is handed on."""

    def __init__(self, name, kind, writer, is_optional):
        self.name, self.optional, self.before, self.after, self.locals = name, is_optional, [], [], []
        self.inner_name, self.passed = name, name
        maybe = ", optional" if is_optional else ""
        if kind.name in writer.callbacks:
            self.callback(kind, maybe)
        elif kind.name == "char":
            self.text(kind, maybe)
        elif kind.name in writer.handles:
            self.handle(kind, maybe)
        elif kind.name == "void":
            self.address(kind, maybe)
        elif kind.name in writer.structs:
            self.outer = self.inner = f"type({kind.name}), intent({'in' if kind.const else 'out'}){maybe} :: {name}"
        elif kind.pointers:
            array = not name.startswith("out_") or name in ARRAYS
            intent = "in" if kind.const else "out" if name.startswith("out_") else "inout"
            self.outer = self.inner = f"{writer.number(kind)}, intent({intent}){maybe} :: {name}{'(*)' if array else ''}"
        else:
            self.outer, self.inner = f"{writer.number(kind)}, intent(in) :: {name}", f"{writer.number(kind)}, value :: {name}"

    def callback(self, kind, maybe):
        self.outer, self.inner = f"procedure({kind.name}){maybe} :: {self.name}", f"type(c_funptr), value :: {self.name}"
        self.passed = f"c_funloc({self.name})"
        if maybe:
            self.passed = f"c_{self.name}"
            self.locals = [f"type(c_funptr) :: c_{self.name}"]
            self.before = [f"c_{self.name} = c_null_funptr", f"if (present({self.name})) c_{self.name} = c_funloc({self.name})"]

    def text(self, kind, maybe):
        if kind.pointers == 2:
            self.outer, self.inner = f"character(:), allocatable, intent(out) :: {self.name}", f"type(c_ptr), intent(out) :: {self.name}"
            self.passed, self.locals, self.before = f"c_{self.name}", [f"type(c_ptr) :: c_{self.name}"], [f"c_{self.name} = c_null_ptr"]
            self.after = [f"if (c_associated(c_{self.name})) {self.name} = ddp_text(c_{self.name})"]
            return
        self.outer = f"character(*), intent(in){maybe} :: {self.name}"
        self.inner = f"character(kind=c_char), intent(in){maybe} :: {self.name}(*)"
        self.passed = f"c_{self.name}"
        self.locals, self.before = [f"character(kind=c_char), allocatable :: c_{self.name}(:)"], [f"call for_c({self.name}, c_{self.name})"]

    def handle(self, kind, maybe):
        if kind.pointers == 2:
            self.outer = f"type({kind.name}), intent(out){maybe} :: {self.name}"
            self.inner, self.passed = f"type(c_ptr), intent(out) :: {self.name}", f"{self.name}%handle"
        else:
            self.outer, self.inner = f"type({kind.name}), intent(in) :: {self.name}", f"type(c_ptr), value :: {self.name}"
            self.passed = f"{self.name}%handle"

    def address(self, kind, maybe):
        if kind.pointers == 2:
            self.outer = self.inner = f"type(c_ptr), intent(out){maybe} :: {self.name}"
        else:
            self.outer, self.inner = f"type(c_ptr), intent(in){maybe} :: {self.name}", f"type(c_ptr), value :: {self.name}"
            self.passed = f"address({self.name})" if maybe else self.name


class Writer:
    def __init__(self, declarations):
        self.layout = header.layout(declarations)
        self.enums = {each.name for each in declarations if isinstance(each, header.Enum)}
        self.handles = {each.name for each in declarations if isinstance(each, header.Struct) and not each.fields}
        self.structs = {each.name for each in declarations if isinstance(each, header.Struct) and each.fields}
        self.callbacks = {each.name for each in declarations if isinstance(each, header.Callback)}
        self.functions = {each.name: each for each in declarations if isinstance(each, header.Function)}
        self.types, self.procedures = [HEAD], []

    def number(self, kind):
        return "integer(c_int32_t)" if kind.name in self.enums else NUMBERS[kind.name]

    def constant(self, found):
        name = RENAMED.get(found.name, found.name)
        kind, value = ("character(*)", f"'{found.value}'") if found.is_text else ("integer(c_int32_t)", found.value)
        self.types.append(f"  {kind}, parameter :: {name} = {value}\n")

    def enum(self, found):
        lines = "".join(f"  integer(c_int32_t), parameter :: {name} = {value}\n" for name, value in found.items)
        self.types.append(comment(found.comment, "  ") + lines)

    def field(self, struct, name, kind):
        if kind.name in self.callbacks:
            return "type(c_funptr) :: " + name + " = c_null_funptr"
        if kind.pointers == 1 and kind.name in self.handles:
            return f"type({kind.name}) :: {name}"
        declared = "type(c_ptr)" if kind.pointers else self.number(kind)
        value = str(self.layout[struct][None]) if name == "struct_size" else ZERO[declared]
        return f"{declared} :: {name}{f'({kind.array})' if kind.array else ''} = {value}"

    def struct(self, found):
        fields = ["type(c_ptr) :: handle = c_null_ptr"]
        if found.fields:
            fields = [(self.field(found.name, name, kind), text) for name, kind, text in found.fields]
            fields = [declared + ("\n" + remark(text, "      ") if text else "") for declared, text in fields]
        body = "".join(f"    {field}\n" for field in fields)
        self.types.append(f"{comment(found.comment, '  ')}  type, bind(c) :: {found.name}\n{body}  end type\n")

    def callback_argument(self, name, kind):
        """A handle comes as its address: `bucket = ddp_bucket(handle)`."""
        if kind.name in self.structs:
            return f"type({kind.name}), intent(in) :: {name}"
        if kind.pointers and kind.name in NUMBERS:
            return f"{NUMBERS[kind.name]}, intent(out) :: {name}"
        return f"{'type(c_ptr)' if kind.pointers else self.number(kind)}, value :: {name}"

    def interface(self, name, result, arguments, indent, bind):
        """The interface of a C function, or of a function that C calls."""
        what = "subroutine" if result is None else "function"
        names = ", ".join(argument.split(" :: ")[1].split("(")[0] for argument in arguments)
        lines = [wrapped(f"{what} {name}({names}) bind(c{bind})" + ("" if result is None else " result(answer)"), indent), f"{indent}  import"]
        lines += [wrapped(argument, indent + "  ") for argument in arguments]
        lines += [] if result is None else [f"{indent}  {result} :: answer"]
        return "\n".join(lines + [f"{indent}end {what}"]) + "\n"

    def result(self, kind):
        if kind.pointers:
            return "type(c_ptr)"
        return None if kind.name == "void" else self.number(kind)

    def callback(self, found):
        arguments = [self.callback_argument(name, kind) for name, kind in found.parameters]
        text = self.interface(found.name, self.result(found.result), arguments, "    ", "")
        self.types.append(f"{comment(found.comment, '  ')}  abstract interface\n{text}  end interface\n")

    def function(self, found):
        if found.name in BY_HAND:
            return
        if found.parameters and found.parameters[0][0] == "user_data":  # it is a callback itself
            arguments = [self.callback_argument(name, kind) for name, kind in found.parameters]
            text = self.interface(found.name, self.result(found.result), arguments, "    ", f", name='{found.name}'")
            self.types.append(f"{comment(found.comment, '  ')}  interface\n{text}  end interface\n")
            return
        optional = optional_parameters(found, self.functions)
        arguments = [Argument(name, kind, self, name in optional) for name, kind in found.parameters]
        inner = self.interface(f"c_{found.name}", self.result(found.result), [each.inner for each in arguments], "      ", f", name='{found.name}'")
        self.procedures.append(comment(found.comment, "  ") + self.procedure(found, arguments, inner))

    def procedure(self, found, arguments, inner):
        sized = [each for each in arguments if each.name == "struct_size"]  # of an _init: nobody but us knows better
        for each in sized:
            each.passed = f"c_sizeof({arguments[0].name})"
        outer = [each for each in arguments if each not in sized]
        outer = [each for each in outer if not each.optional] + [each for each in outer if each.optional]
        names, declared = [each.name for each in outer], [each.outer for each in outer]
        call = f"c_{found.name}({', '.join(each.passed for each in arguments)})"
        before = [line for each in arguments for line in each.before]
        after = [line for each in arguments for line in each.after]
        local = [line for each in arguments for line in each.locals]
        what, result = "subroutine", ""
        if found.result.name == "ddp_status":
            names, declared = names + ["stat"], declared + [STAT]
            local.append("integer(c_int32_t) :: answer")
            body = before + [f"answer = {call}"] + after + ["call finish(answer, stat)"]
        elif found.result.name == "void":
            declared = [each.replace("intent(in)", "intent(inout)") for each in declared]
            body = [f"call {call}", f"{arguments[0].name}%handle = c_null_ptr"]
        else:
            what, result = "function", " result(answer)"
            is_text = found.result.pointers
            local.append("character(:), allocatable :: answer" if is_text else f"{self.result(found.result)} :: answer")
            body = [f"answer = ddp_text({call})" if is_text else f"answer = {call}"]
        lines = [wrapped(f"{what} {found.name}({', '.join(names)}){result}", "  ")]
        lines += [wrapped(line, "    ") for line in declared + local]
        lines += ["    interface\n" + inner.rstrip("\n") + "\n    end interface"] + [wrapped(line, "    ") for line in body]
        return "\n".join(lines + [f"  end {what}"]) + "\n"


def write():
    declarations = header.read()
    writer = Writer(declarations)
    for each in declarations:
        getattr(writer, type(each).__name__.lower())(each)
    with open(os.path.join(HERE, "by_hand.f90"), encoding="utf-8") as file:
        file.readline()  # the licence, which HEAD has
        interfaces, procedures = file.read().split("contains\n")
    return "\n".join(writer.types + [interfaces, "contains\n"] + writer.procedures + [procedures.lstrip("\n") + "end module"]) + "\n"


if __name__ == "__main__":
    header.main(os.path.join(HERE, "ddp.f90"), write())
