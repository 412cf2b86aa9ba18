# SPDX-License-Identifier: Apache-2.0
"""What SWIG and our generator wrote is what they would write today, and every public function can be reached in every language.

low.jl is the same with every SWIG from 4.0 on. SWIG's own output differs from version to version: with another version than the one that wrote
low.go and low_wrap.c, what they declare and call is compared. each_swig.sh runs this with many versions.
"""
import filecmp
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tempfile

ROOT = os.environ.get("DDP_SOURCE_DIR") or os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BINDINGS = os.path.join(ROOT, "bindings")
# The error's text and numbers leave C together with the status, so these have no place of their own in a language with errors.
INSIDE_ERRORS = {"ddp_last_error", "ddp_copy_last_error", "ddp_get_error_details", "ddp_get_error_ranks", "ddp_get_error_parameters"}
SHORTCUTS = {"ddp_model_add_array"}  # a language's own arrays say their size
NOT_IN_JULIA = {"ddp_bucket_set_error"}  # its hooks are pulled, and give their text to ddp_model_finish_bucket
GENERATED = {  # language: its generated file, and the words that declare a function there
    "julia": ("src/low.jl", r"^function {}\("),
    "rust": ("ddp-sys/src/lib.rs", r"^ +pub fn {}\("),
    "fortran": ("ddp.f90", r"^ +(?:subroutine|function) {}\("),
}
NOT_IN_FORTRAN = {"ddp_copy_last_error", "ddp_model_add_array"}  # ddp_last_error() and ddp_tensor_of() are as short
problems = []


def read(*path):
    with open(os.path.join(BINDINGS, *path), encoding="utf-8") as file:
        return file.read()


def hand_written(folder, ending, generated):
    """The text of the files by hand in a language's folder, without tests."""
    texts = []
    for place, _, names in os.walk(os.path.join(BINDINGS, folder)):
        texts += [read(place, name) for name in names
                  if name.endswith(ending) and name != generated and "test" not in os.path.join(place, name)[len(BINDINGS):]]
    return "\n".join(texts)


def public_functions():
    with open(os.path.join(ROOT, "src/capi/exports.txt"), encoding="utf-8") as file:
        return sorted({line.split()[0] for line in file if line.startswith("ddp_")})


def compare(folder, names):
    for name in names:
        committed = os.path.join(BINDINGS, folder, os.path.basename(name))
        if not filecmp.cmp(name, committed, shallow=False):
            problems.append(f"{os.path.relpath(committed, ROOT)} is not what its generator writes today: see bindings/README.md")


def outline(text):
    """What does not depend on SWIG's version: the functions of Go with their types, constants, and the calls of C."""
    text = re.sub(r"_low_[0-9a-f]{8,}", "", text)
    lines = {line.strip() for line in text.splitlines() if re.match(r"func (\(|[A-Z])|var DDP_|const DDP_", line)}
    return lines | set(re.findall(r"\bddp_\w+\([^;{]*\);", text)) | set(re.findall(r"\bresult = DDP_\w+;", text))


def compare_outlines(folder, names):
    for name in names:
        committed = os.path.join(BINDINGS, folder, os.path.basename(name))
        with open(name, encoding="utf-8") as new, open(committed, encoding="utf-8") as old:
            wanted, found = outline(new.read()), outline(old.read())
        if len(wanted) < 100:
            problems.append(f"{name}: only {len(wanted)} declarations were recognised")
        for line in sorted(wanted ^ found)[:10]:
            problems.append(f"{os.path.relpath(committed, ROOT)} {'lacks' if line in wanted else 'has, and its generator does not write'}: {line}")


def regenerate_go(work, comparison):
    folder = os.path.join(BINDINGS, "go/internal/low")
    command = re.search(r"//go:generate (swig .*)", read("go/internal/low/cgo.go")).group(1).split()
    command[command.index("-o") + 1] = os.path.join(work, "low_wrap.c")
    subprocess.run(command[:1] + ["-outdir", work] + command[1:], cwd=folder, check=True)
    comparison("go/internal/low", [os.path.join(work, name) for name in ("low.go", "low_wrap.c")])


def check_generated():
    """What our own generators write from SWIG's tree."""
    for language, (path, _) in GENERATED.items():
        found = importlib.util.spec_from_file_location(f"generate_{language}", os.path.join(BINDINGS, language, "generate.py"))
        generator = importlib.util.module_from_spec(found)
        found.loader.exec_module(generator)
        if generator.write() != read(language, path):
            problems.append(f"bindings/{language}/{path} is not what its generator writes today: see bindings/README.md")


def check_layout():
    """The sizes and places of fields that generators count with are those that a C compiler wrote down."""
    import header  # pylint: disable=import-outside-toplevel  # the generators made it known
    counted = set()
    for name, places in header.layout(header.read()).items():
        counted.add(f"{name} {places[None]} bytes")
        counted |= {f"{name}.{field} at {offset}, {size} bytes" for field, offset, size in places["fields"]}
    with open(os.path.join(ROOT, "tests/abi/layout_lp64.txt"), encoding="utf-8") as file:
        compiled = {line for line in file.read().splitlines() if " at " in line}
    for line in sorted(compiled ^ {line for line in counted if " at " in line})[:10]:
        problems.append(f"{line}: {'not as header.layout counts' if line in compiled else 'header.layout counts so, the compiler does not'}")


def reach():
    functions = public_functions()
    files = {language: read(language, path) for language, (path, _) in GENERATED.items()}
    go, julia = hand_written("go", ".go", "low.go"), hand_written("julia/src", ".jl", "low.jl")
    for name in functions:
        if f"func {name[0].upper()}{name[1:]}(" not in read("go/internal/low/low.go"):
            problems.append(f"{name} is missing in go/internal/low/low.go")
        for language, (path, declaration) in GENERATED.items():
            if not re.search(declaration.format(name), files[language], re.M) and not (language == "fortran" and name in NOT_IN_FORTRAN):
                problems.append(f"{name} is missing in {language}/{path}")
        if name in INSIDE_ERRORS | SHORTCUTS:
            continue
        if not re.search(rf"\blow\.{name[0].upper()}{name[1:]}\b", go):
            problems.append(f"{name} cannot be reached from Go")
        if name not in NOT_IN_JULIA and not re.search(rf"\bLow\.{name}\b", julia):
            problems.append(f"{name} cannot be reached from Julia")
    for owner, verb, field in re.findall(r"func \(arg1 SwigcptrDdp_(\w+)\) (Set|Get)(\w+)\(", read("go/internal/low/low.go")):
        # Julia takes fields by their names; in Go each option has a place by hand. Tensors are filled by ddp_tensor_init.
        wanted = "Get" if owner.endswith(("_stats", "_report", "_slice", "recovery", "_progress", "_ranks", "_message")) else "Set"
        if verb == wanted and owner not in ("tensor", "error_details") and field not in ("Struct_size", "Reserved") and not re.search(rf"\.{verb}{field}\b", go):
            problems.append(f"{field.lower()} of ddp_{owner} cannot be reached from Go")
    return len(functions)


def check_licences():
    """What a package manager takes is one folder, so each of these has a copy of the licence."""
    for folder in ("go", "julia", "rust/ddp", "rust/ddp-sys"):
        if read(folder, "LICENSE") != read(ROOT, "LICENSE"):
            problems.append(f"bindings/{folder}/LICENSE is not a copy of LICENSE")


def main():
    swig = shutil.which("swig")
    written_by = re.search(r"Version (\S+)", read("go/internal/low/low.go")).group(1)
    here = swig and re.search(r"SWIG Version (\S+)", subprocess.run([swig, "-version"], capture_output=True, text=True, check=True).stdout)
    count = reach()
    check_licences()
    if here:
        with tempfile.TemporaryDirectory() as work:
            regenerate_go(work, compare if here.group(1) == written_by else compare_outlines)
        check_generated()
        check_layout()
    elif not problems:
        print(f"skipped: swig is not installed, so the generated files are not compared; all {count} functions can be reached")
        sys.exit(77)
    print("\n".join(problems) if problems else f"{count} functions in every language, generated files as SWIG {here.group(1)} writes them")
    sys.exit(1 if problems else 0)


if __name__ == "__main__":
    main()
