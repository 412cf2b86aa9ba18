#!/usr/bin/env bash
# Random deaths for as long as you like: tests/chaos.sh [rounds [first seed [build folder]]]. Each round is a training of 2 to 8 ranks that are
# killed or stopped at random (tests/chaos/kills.cpp); its weights must be those of a replay. Builds what it needs first. Each round prints its
# seed, and `chaos.kills 1 SEED` repeats it.
set -eu
cd "$(dirname "$0")/.."
rounds=${1:-1000} seed=${2:-1} build=${3:-build/tests}
[ -f "$build/build.ninja" ] || cmake --preset dev -B "$build"
cmake --build "$build" --target ddp ddp_gloo chaos.kills >/dev/null
DDP_MODULE_PATH=$PWD/$build/src/ddp exec "$build/tests/chaos/chaos.kills" "$rounds" "$seed"
