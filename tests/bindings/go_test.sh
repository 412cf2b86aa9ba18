# SPDX-License-Identifier: Apache-2.0
# The Go module: its own tests, go vet, the format, and the example on 1 and 2 ranks.
. "$(dirname "${BASH_SOURCE[0]}")/go_support.sh"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
unformatted=$(find . -name '*.go' ! -name low.go -exec gofmt -l {} +)
[ -z "$unformatted" ] || { echo "gofmt would change: $unformatted"; exit 1; }
go vet . ./internal/samebits ./examples/... # not ./internal/low, of which SWIG wrote the most
go test -count=1 -timeout 100s .

# The program of the README, in a module of its own, without SWIG.
mkdir "$work/line"
awk '/^```go$/ { inside = 1; next } /^```$/ { inside = 0 } inside' README.md >"$work/line/main.go"
printf 'module line\n\ngo 1.19\n\nrequire %s v0.0.0\n\nreplace %s => %s\n' "$(go list .)" "$(go list .)" "$module" >"$work/line/go.mod"
(cd "$work/line" && go build -o line .)
timeout 60 "$DDP_BUILD_DIR/bin/ddprun" -n 2 "$work/line/line" >"$work/output"
[ "$(grep -c 'of 2: y = 3.00 x -1.00' "$work/output")" = 2 ] || { cat "$work/output"; exit 1; }

ddprun=$DDP_BUILD_DIR/bin/ddprun
data=$DDP_SOURCE_DIR/examples/data/digits.csv
train() {
  timeout 60 "$ddprun" "$@" -data "$data" -checkpoint "$work/digits" >"$work/output" || { cat "$work/output"; exit 1; }
  grep -q 'all equal' "$work/output"
  awk '/test accuracy/ { for (i = 1; i < NF; ++i) if ($i == "accuracy") found = $(i + 1) >= 96 } END { exit !found }' "$work/output" ||
    { cat "$work/output"; exit 1; }
}
train -n 1 "$build/digits"
train -n 2 go run ./examples/digits
train -n 3 "$build/digits" -resume -epochs 22
