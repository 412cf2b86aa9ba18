#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# clang-tidy over the library's sources and the headers that they include, with the checks of .clang-tidy; a finding is an error.
#
#   tests/tidy.sh                        all of src, a quarter of an hour on 2 cores
#   tests/tidy.sh src/group/group.cpp    these files alone
#   DDP_JOBS=1 tests/tidy.sh             one at a time; as many as cores are the default
#
# As root on Debian it installs missing packages. Nothing is built: build/tidy has the command of each source.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
. tests/support/debian_packages.sh
ddp_install_packages build-essential cmake ninja-build pkg-config git python3 clang-tidy-14 \
  libgloo-dev libssl-dev libasio-dev nlohmann-json3-dev libsodium-dev libcli11-dev libxxhash-dev

build=build/tidy
cmake --preset dev -B "$build" -DCMAKE_EXPORT_COMPILE_COMMANDS=ON -DDDP_UNITY=OFF -DDDP_BUILD_TESTS=OFF -DDDP_BUILD_EXAMPLES=OFF \
  -DDDP_BUILD_BENCH=OFF -DDDP_PYTHON=OFF -DDDP_GO=OFF -DDDP_JULIA=OFF -DDDP_FORTRAN=OFF -DDDP_RUST=OFF >/dev/null
# Sources for another processor, or for CUDA without a CUDA toolkit, have no command here. CUDA's compiler has flags that clang-tidy does not know.
python3 - "$build/compile_commands.json" "$@" >"$build/sources" <<'PY'
import json, os, sys
with open(sys.argv[1]) as file:
    entries = json.load(file)
for entry in entries:
    entry["command"] = entry["command"].replace(" -fno-ipa-ra", "")  # GCC's alone
with open(sys.argv[1], "w") as file:
    json.dump(entries, file)
known = {os.path.relpath(entry["file"]) for entry in entries}
chosen = [os.path.relpath(path) for path in sys.argv[2:]]
for path in chosen:
    if path not in known:
        sys.exit(f"{path} is not compiled here")
print("\n".join(chosen or sorted(path for path in known if path.startswith("src/") and path.endswith(".cpp"))))
PY

# The findings of a source in one piece, with GCC's idea of -Wconversion; a source for which there is no verdict is one too.
tidy() {
  local found
  found=$(clang-tidy-14 -p "$build" --extra-arg=-Wno-unknown-warning-option --extra-arg=-Wno-sign-conversion --quiet "$1" 2>/dev/null) ||
    found+=$(printf '\n%s:1:1: error: clang-tidy ended with an error [no-verdict]' "$PWD/$1")
  [ -z "$found" ] || printf '%s\n' "$found"
}
export build
export -f tidy
xargs -a "$build/sources" -P "${DDP_JOBS:-$(nproc)}" -n 1 bash -c 'tidy "$1"' tidy >"$build/findings"
# A finding in a header is printed once for each source that includes it. strerror has a buffer for each thread (glibc since 2.32, musl), which
# clang-tidy 14 does not know.
awk '
  function say() { if (held != "") { if (!seen[held]++) { print held more; count++ } held = more = "" } }
  /^\/.*: (warning|error): .*\[/ { say(); held = $0; next }
  held ~ /concurrency-mt-unsafe/ && /strerror\(/ { held = "" }
  held != "" { more = more "\n" $0 }
  END { say(); exit count > 0 }' "$build/findings" && failed=0 || failed=1
[ "$failed" = 1 ] || echo "clang-tidy: $(wc -l <"$build/sources") sources, nothing found"
exit "$failed"
