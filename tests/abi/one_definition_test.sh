#!/usr/bin/env bash
# Two types of one name (ddp::Span here and there) are undefined behaviour that no single file shows. GCC compares the types of all files when it
# links with -flto: the preset lto makes a difference an error. Built without optimisation, which the comparison does not need; the folder is
# kept, so that the next run is quick.
set -euo pipefail
[ -z "$DDP_SANITIZE" ] || { echo "skipped: the comparison is made without sanitizers"; exit 77; }
if "$CXX" -dM -E -x c++ /dev/null | grep -q __clang__; then
  echo "skipped: $CXX is Clang, and only GCC compares types when it links"
  exit 77
fi

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# The check itself: it must see two types of one name.
flags=(-flto -Wodr -Werror=odr -Werror=lto-type-mismatch)
echo 'namespace ddp { struct Span { long count; virtual ~Span() {} }; } long a(ddp::Span& s) { return s.count; }' >"$work/a.cpp"
echo 'namespace ddp { struct Span { short count[9]; virtual ~Span() {} }; } long a(ddp::Span&); int main() { ddp::Span s; return a(s); }' >"$work/b.cpp"
if "$CXX" "${flags[@]}" "$work/a.cpp" "$work/b.cpp" -o "$work/two" >"$work/log" 2>&1; then
  echo "-Wodr does not see two types named ddp::Span"
  exit 1
fi
grep -q "one definition rule\|Wodr\|=odr" "$work/log" || { cat "$work/log"; exit 1; }

build=$DDP_BUILD_DIR/lto
cd "$DDP_SOURCE_DIR"
cmake --preset lto -B "$build" -DCMAKE_BUILD_TYPE=Debug -DCMAKE_CXX_FLAGS_DEBUG=-O0 -DCMAKE_C_FLAGS_DEBUG=-O0 -DDDP_DEVELOPER=OFF -DDDP_CUDA=OFF \
  -DCMAKE_C_COMPILER="$CC" -DCMAKE_CXX_COMPILER="$CXX" >"$work/configure" 2>&1 || { cat "$work/configure"; exit 1; }
cmake --build "$build" --parallel "$(nproc)" >"$work/build" 2>&1 || { grep -E "error|warning|note" "$work/build" | head -40; exit 1; }
echo "no two types share a name in the library and its Gloo module"
