# What the consumer tests share. Sourced; leaves $work (removed at the end), install_library and run_train.
set -euo pipefail
if [ -n "${DDP_SANITIZE:-}" ]; then
  echo "skipped: a library with sanitizers is not what is installed" >&2
  exit 77
fi
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# Install to one prefix, then move the tree: what a user finds must not depend on where it was installed.
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
