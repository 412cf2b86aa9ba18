// SPDX-License-Identifier: Apache-2.0
//! Tests and examples find libddp.so where it was linked. A program's own build.rs can do the same with DEP_DDP_RUST_LIBDIR.
fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    if let Ok(folder) = std::env::var("DEP_DDP_LIBDIR") {
        println!("cargo:libdir={}", folder);
        for what in ["tests", "examples"] {
            println!("cargo:rustc-link-arg-{}=-Wl,-rpath,{}", what, folder);
        }
    }
}
