// SPDX-License-Identifier: Apache-2.0
//! Where libddp.so lies: DDP_LIB_DIR, or what pkg-config says, or where the system looks. Crates that depend on this one get the folder as
//! DEP_DDP_LIBDIR.
use std::process::Command;

fn library_folder() -> Option<String> {
    if let Ok(folder) = std::env::var("DDP_LIB_DIR") {
        return Some(folder);
    }
    let said = Command::new("pkg-config").args(["--variable=libdir", "ddp"]).output().ok()?;
    let folder = String::from_utf8(said.stdout).ok()?.trim().to_string();
    if said.status.success() && !folder.is_empty() {
        Some(folder)
    } else {
        None
    }
}

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    for name in ["DDP_LIB_DIR", "PKG_CONFIG_PATH"] {
        println!("cargo:rerun-if-env-changed={}", name);
    }
    println!("cargo:rustc-link-lib=dylib=ddp");
    if let Some(folder) = library_folder() {
        println!("cargo:rustc-link-search=native={}", folder);
        println!("cargo:libdir={}", folder);
    }
}
