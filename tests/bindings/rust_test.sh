#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The Rust crates: their own tests, the example on 1 and 2 ranks, and the program of the README in a crate of its own.
set -euo pipefail
cargo=$DDP_BUILD_DIR/bindings/rust/cargo
folder=$DDP_SOURCE_DIR/bindings/rust
if [ ! -x "$cargo" ]; then
  echo "skipped: the Rust crates are not tested in this build (no cargo 1.63, a sanitizer, or -DDDP_RUST=OFF; cmake said which)"
  exit 77
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
ddprun=$DDP_BUILD_DIR/bin/ddprun
cd "$folder"
export RUST_BACKTRACE=0
"$cargo" test --offline --quiet --locked 2>&1 | tee "$work/output"
[ "$(grep -c 'test result: ok' "$work/output")" -ge 3 ]

train() {
  timeout 60 "$ddprun" "$@" >"$work/output" || { cat "$work/output"; exit 1; }
  grep -q 'all equal' "$work/output"
  awk '/test accuracy/ { found = $NF >= 95 } END { exit !found }' "$work/output" || { cat "$work/output"; exit 1; }
}
digits=$DDP_BUILD_DIR/bindings/rust/target/debug/examples/digits
train -n 2 --no-prefix "$digits" "$DDP_SOURCE_DIR/examples/data/digits.csv" 8 "$work/digits"
train -n 1 --no-prefix "$digits" "$DDP_SOURCE_DIR/examples/data/digits.csv" 9 "$work/digits" resume

mkdir -p "$work/line/src"
awk '/^```rust$/ { inside = 1; next } /^```$/ { inside = 0 } inside' README.md >"$work/line/src/main.rs"
printf '[package]\nname = "line"\nversion = "1.0.0"\nedition = "2021"\n\n[dependencies]\nddp = { path = "%s/ddp" }\n' "$folder" >"$work/line/Cargo.toml"
(cd "$work/line" && RUSTFLAGS="-Clink-arg=-Wl,-rpath,$DDP_BUILD_DIR/src" "$cargo" build --offline --quiet --target-dir "$work/target")
timeout 60 "$ddprun" -n 2 "$work/target/debug/line" >"$work/output"
[ "$(grep -c 'of 2: y = 3.00 x -1.00' "$work/output")" = 2 ] || { cat "$work/output"; exit 1; }
