# SPDX-License-Identifier: Apache-2.0
# The tests of this folder with the compiler that the library was not built with (clang++, or g++), as C++17 and as C++20. They meet in
# the C API alone, so the two may be mixed.
set -euo pipefail
if [ -n "${DDP_SANITIZE:-}" ]; then
  echo "skipped: a program of another compiler has other sanitizers" >&2
  exit 77
fi
other=clang++
if "${CXX:-g++}" --version | grep -qi clang; then other=g++; fi
command -v "$other" >/dev/null || { echo "skipped: $other is not installed" >&2; exit 77; }
folder=$(dirname "$DDP_LIBRARY")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
for standard in c++17 c++20; do
  for source in "$DDP_SOURCE_DIR"/tests/cpp/*_test.cpp; do
    "$other" "-std=$standard" -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Werror "-I$DDP_SOURCE_DIR/include" "-I$DDP_SOURCE_DIR/tests" \
      "$source" -o "$work/test" "-L$folder" -lddp -lcmocka -pthread "-Wl,-rpath,$folder"
    timeout 60 "$work/test" >"$work/log" 2>&1 || { cat "$work/log"; exit 1; }
  done
done
echo "with $other"
