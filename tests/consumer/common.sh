# SPDX-License-Identifier: Apache-2.0
# What the consumer tests share. Sourced; leaves $work (removed at the end), $cc, and functions.
set -euo pipefail
if [ -n "${DDP_SANITIZE:-}" ]; then
  echo "skipped: a library with sanitizers is not what is installed" >&2
  exit 77
fi
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cc=${CC:-cc}

# Install to one prefix, then move the tree: a user's build must not depend on the first place.
install_library() {
  cmake --install "$DDP_BUILD_DIR" --prefix "$work/first" >"$work/install.log"
  mv "$work/first" "$work/moved"
  prefix=$work/moved
}

# run_train PROGRAM: alone, and two ranks that meet at a file.
run_train() {
  "$1" "file://$work/alone" 0 1
  timeout 60 "$1" "file://$work/pair" 0 2 &
  local first=$!
  timeout 60 "$1" "file://$work/pair" 1 2
  wait "$first"
}

# readme_block LANGUAGE PATTERN: the block of README.md or pkgconfig/README.md in this language that has a line with this pattern
readme_block() {
  awk -v language="$1" -v pattern="$2" '
    inside && $0 == "```" { if (found) printf "%s", block; inside = 0 }
    inside { block = block $0 "\n"; if ($0 ~ pattern) found = 1 }
    $0 == "```" language { inside = 1; block = ""; found = 0 }' "$DDP_SOURCE_DIR/README.md" "$DDP_SOURCE_DIR/pkgconfig/README.md"
}
readme_program() { readme_block c '^int main'; }

# learned RANKS: every rank printed into $work/output what was to be learned
learned() {
  local found
  found=$(grep -c "rank [0-9] of $1: y = 3.00 x -1.00" "$work/output" || true)
  [ "$found" -eq "$1" ] || { cat "$work/output" >&2; echo "expected $1 lines with y = 3.00 x -1.00" >&2; return 1; }
}
