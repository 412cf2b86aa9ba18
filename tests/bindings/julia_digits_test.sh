# The Julia example learns the digits on 2 ranks, and goes on from its checkpoint on 1. Without optimisation: most of it is compiling.
. "$(dirname "${BASH_SOURCE[0]}")/julia_support.sh"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
train() {
  timeout 100 "$DDP_BUILD_DIR/bin/ddprun" "$@" --checkpoint "$work/digits" >"$work/output" || { cat "$work/output"; exit 1; }
  grep -q 'all equal' "$work/output"
  awk '/test accuracy/ { for (i = 1; i < NF; ++i) if ($i == "accuracy") found = $(i + 1) >= 96 } END { exit !found }' "$work/output" ||
    { cat "$work/output"; exit 1; }
}
train -n 2 "$julia" -O0 "$package/examples/digits.jl" --epochs 12
train -n 1 "$julia" -O0 "$package/examples/digits.jl" --resume --epochs 13
