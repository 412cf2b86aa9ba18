# SPDX-License-Identifier: Apache-2.0
# The program of the Julia README, and its example: it learns the digits on 2 ranks, and continues from its checkpoint on 1. Without optimisation: most of it is compiling.
. "$(dirname "${BASH_SOURCE[0]}")/julia_support.sh"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# The program of the README.
awk '/^```julia$/ { inside = 1; next } /^```$/ { inside = 0 } inside' "$package/README.md" | sed '/^pkg>/d' >"$work/line.jl"
timeout 100 "$DDP_BUILD_DIR/bin/ddprun" -n 2 "$julia" -O0 "$work/line.jl" >"$work/output"
[ "$(grep -c 'of 2: y = 3.0 x + -1.0' "$work/output")" = 2 ] || { cat "$work/output"; exit 1; }

train() {
  timeout 100 "$DDP_BUILD_DIR/bin/ddprun" "$@" --checkpoint "$work/digits" >"$work/output" || { cat "$work/output"; exit 1; }
  grep -q 'all equal' "$work/output"
  awk '/test accuracy/ { for (i = 1; i < NF; ++i) if ($i == "accuracy") found = $(i + 1) >= 96 } END { exit !found }' "$work/output" ||
    { cat "$work/output"; exit 1; }
}
train -n 2 "$julia" -O0 "$package/examples/digits.jl" --epochs 12
train -n 1 "$julia" -O0 "$package/examples/digits.jl" --resume --epochs 13
