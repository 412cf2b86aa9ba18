# SPDX-License-Identifier: Apache-2.0
"""Write ddp-sys/src/lib.rs: the public header as Rust sees it. No declaration is copied by hand.

    python3 bindings/rust/generate.py [FILE] [--check]

../swig/header.py reads the header. Tested by tests/bindings/generated_test.py, and by the tests that are written with it: sizes and places
of all fields.
"""
import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "../swig"))
import header  # noqa: E402

PLAIN = {"void": "c_void", "int32_t": "i32", "int": "i32", "int64_t": "i64", "float": "f32", "double": "f64", "char": "c_char"}
KEYWORDS = {"as", "fn", "in", "loop", "match", "mod", "move", "mut", "pub", "ref", "type", "use", "where", "box", "priv", "final", "override"}

HEAD = """// SPDX-License-Identifier: Apache-2.0
// Written by generate.py from the headers in include/ddp; do not change it by hand.
//! The C functions of libddp as they are. Names, arguments and comments are those of the C header. What a program needs is in the
//! crate `ddp`.
#![no_std]
#![allow(non_camel_case_types)]
#![allow(rustdoc::broken_intra_doc_links, rustdoc::invalid_html_tags)]

use core::ffi::c_void;
use core::marker::{PhantomData, PhantomPinned};

/// As C sees a byte of a text on this machine.
pub type c_char = NATIVE_CHAR;

"""
# core::ffi::c_char is younger than the Rust of Debian 12.
HEAD = HEAD.replace("pub type c_char = NATIVE_CHAR;", """#[cfg(any(target_arch = "aarch64", target_arch = "arm", target_arch = "powerpc64", target_arch = "riscv64", target_arch = "s390x"))]
pub type c_char = u8;
/// As C sees a byte of a text on this machine.
#[cfg(not(any(target_arch = "aarch64", target_arch = "arm", target_arch = "powerpc64", target_arch = "riscv64", target_arch = "s390x")))]
pub type c_char = i8;""")


def documented(comment, indent=""):
    return "".join(f"{indent}/// {line}".rstrip() + "\n" for line in header.plain(comment))


def named(name):
    return name + "_" if name in KEYWORDS else name


def rust_type(kind):
    text = PLAIN.get(kind.name, kind.name)
    for depth in range(kind.pointers):
        text = ("*const " if kind.const and depth == 0 else "*mut ") + text
    return f"[{text}; {kind.array}]" if kind.array else text


def answer(kind):
    return "" if kind == header.Type("void") else " -> " + rust_type(kind)


def arguments(parameters):
    return ", ".join(f"{named(name)}: {rust_type(kind)}" for name, kind in parameters)


def constant(found):
    value = (f'&str = "{found.value}"' if found.is_text else f"i32 = {found.value}")
    return f"pub const {found.name}: {value};\n"


def enum(found):
    lines = "".join(f"pub const {name}: {found.name} = {value};\n" for name, value in found.items)
    return f"{documented(found.comment)}pub type {found.name} = i32;\n{lines}"


def struct(found):
    if not found.fields:
        return (f"{documented(found.comment)}#[repr(C)]\npub struct {found.name} {{\n    _private: [u8; 0],\n"
                "    _pinned: PhantomData<(*mut u8, PhantomPinned)>,\n}\n")
    fields = "".join(documented(text, "    ") + f"    pub {named(name)}: {rust_type(kind)},\n" for name, kind, text in found.fields)
    return f"{documented(found.comment)}#[repr(C)]\n#[derive(Clone, Copy, Debug)]\npub struct {found.name} {{\n{fields}}}\n"


def callback(found):
    return (f"{documented(found.comment)}pub type {found.name} = Option<unsafe extern \"C\" fn({arguments(found.parameters)})"
            f"{answer(found.result)}>;\n")


def function(found):
    return f"{documented(found.comment, '    ')}    pub fn {found.name}({arguments(found.parameters)}){answer(found.result)};\n"


def layout_tests(declarations):
    lines = []
    for name, places in header.layout(declarations).items():
        fields = ", ".join(f"{named(field)}: {offset}" for field, offset, _ in places["fields"])
        lines.append(f"        check!({name}, {places[None]}, {fields});\n")
    return """
#[cfg(test)]
mod tests {
    use super::*;
    use core::mem::{size_of, MaybeUninit};

    macro_rules! check {
        ($name:ident, $size:expr, $($field:ident: $offset:expr),*) => {
            assert_eq!(size_of::<$name>(), $size, stringify!($name));
            let whole = MaybeUninit::<$name>::uninit();
            $(
                let place = unsafe { core::ptr::addr_of!((*whole.as_ptr()).$field) } as usize - whole.as_ptr() as usize;
                assert_eq!(place, $offset, concat!(stringify!($name), ".", stringify!($field)));
            )*
        };
    }

    #[test]
    fn structs_lie_as_in_c() {
""" + "".join(lines) + "    }\n}\n"


def write():
    declarations = header.read()
    writers = {header.Constant: constant, header.Enum: enum, header.Struct: struct, header.Callback: callback}
    types = [writers[type(each)](each) for each in declarations if type(each) in writers]
    functions = [function(each) for each in declarations if isinstance(each, header.Function)]
    return HEAD + "\n".join(types) + '\nextern "C" {\n' + "\n".join(functions) + "}\n" + layout_tests(declarations)


if __name__ == "__main__":
    header.main(os.path.join(HERE, "ddp-sys/src/lib.rs"), write())
