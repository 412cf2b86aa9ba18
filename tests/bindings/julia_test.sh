# SPDX-License-Identifier: Apache-2.0
# The Julia package: its own tests, with four Julia threads. Without optimisation, because most of the time is compiling.
. "$(dirname "${BASH_SOURCE[0]}")/julia_support.sh"
JULIA_NUM_THREADS=4 "$julia" -O0 "$package/test/runtests.jl"

# What Pkg.add(subdir = ...) installs is this folder alone; its tests must not look for more.
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cp -r "$package" "$work/alone"
"$julia" -O0 -e 'using LibDDP, LibDDP.All, Test; const Low = LibDDP.Low; include(ARGS[1])' "$work/alone/test/generated.jl"
