# The program of README.md is what it claims: it compiles as strict C99 with the installed library and learns on one rank and on two.
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"
install_library
awk '/^```c$/ { inside = 1; next } /^```$/ { inside = 0 } inside' "$DDP_SOURCE_DIR/README.md" >"$work/program.c"
lines=$(wc -l <"$work/program.c")
[ "$lines" -ge 20 ] && [ "$lines" -le 40 ] || { echo "README.md has a program of $lines lines" >&2; exit 1; }
PKG_CONFIG_PATH=$(dirname "$(find "$prefix" -name ddp.pc)")
export PKG_CONFIG_PATH
# shellcheck disable=SC2046 # flags are several words
"${CC:-cc}" -std=c99 -pedantic-errors -Wall -Wextra -Werror "$work/program.c" -o "$work/program" $(pkg-config --cflags --libs ddp) \
  "-Wl,-rpath,$(pkg-config --variable=libdir ddp)"

# expect RANKS COMMAND...: every rank prints the line that was to be learned
expect() {
  local ranks=$1 found
  shift
  timeout 60 "$@" >"$work/output" || { cat "$work/output" >&2; return 1; }
  found=$(grep -c "rank [0-9] of $ranks: y = 3.00 x -1.00" "$work/output" || true)
  [ "$found" -eq "$ranks" ] || { cat "$work/output" >&2; echo "expected $ranks lines with y = 3.00 x -1.00" >&2; return 1; }
}
expect 1 "$work/program"
expect 2 "$prefix/bin/ddprun" -n 2 "$work/program"
