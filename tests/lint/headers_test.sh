# SPDX-License-Identifier: Apache-2.0
# Every public header compiles alone, as strict C99 and as every C++ from 11 on (the layer for C++ from 17 on), without a warning, with each
# compiler that is here (gcc must be, clang if installed).
set -euo pipefail
include=$DDP_SOURCE_DIR/include
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
warnings=(-Wall -Wextra -Wpedantic -Wshadow -Wconversion -Werror -fsyntax-only "-I$include")
count=0

# compile COMPILER LANGUAGE STANDARD FLAGS...: every header alone, and each twice for its guard
compile() {
  local compiler=$1 suffix=$2 standard=$3 header name
  shift 3
  rm -f "$work"/*
  for header in "${headers[@]}"; do
    name=${header#"$include/"}
    printf '#include "%s"\n#include <%s>\nextern int a_file_is_not_empty;\n' "$name" "$name" >"$work/${name//[\/]/_}.$suffix"
  done
  "$compiler" "-std=$standard" "${warnings[@]}" "$@" "$work"/*."$suffix" || {
    echo "the public headers do not compile with $compiler -std=$standard $*" >&2
    exit 1
  }
  count=$((count + 1))
}

for compilers in "gcc g++" "clang clang++"; do
  read -r c cxx <<<"$compilers"
  if ! command -v "$c" >/dev/null; then
    echo "$c is not installed: not checked with it"
    continue
  fi
  headers=("$include"/ddp/*.h)
  documentation=()
  [ "$c" = clang ] && documentation=(-Wdocumentation) # every @param names a parameter
  compile "$c" c c99 -pedantic-errors -Wstrict-prototypes "${documentation[@]}"
  compile "$c" c c11 -pedantic-errors -Wstrict-prototypes "${documentation[@]}"
  for standard in c++11 c++14 c++17 c++20; do
    compile "$cxx" cpp "$standard" -pedantic-errors -Wold-style-cast
  done
  headers=("$include"/ddp/*.hpp)
  for standard in c++17 c++20; do
    compile "$cxx" cpp "$standard" -pedantic-errors -Wold-style-cast
  done
done
headers=("$include"/ddp/cpp/*.hpp)
compile g++ cpp c++17
[ "$count" -ge 6 ] || { echo "no compiler found" >&2; exit 1; }
echo "$count combinations of compiler and standard"
