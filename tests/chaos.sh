#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Random faults for as long as you like: tests/chaos.sh [rounds [first seed [memory | sockets | hosts | network | joiners]]]. Each round is a training of
# 2 to 8 ranks that are killed, stopped, cut off and joined by others at random (tests/chaos/kills.cpp); its weights must be those of a replay.
# Builds what it needs first, in DDP_CHAOS_BUILD (build/tests). Each round prints its seed, and `chaos.kills 1 SEED` repeats it. About one fault a
# second on two idle cores. As root networks are cut too.
set -eu
cd "$(dirname "$0")/.."
rounds=${1:-1000} seed=${2:-1} place=${3:-} build=${DDP_CHAOS_BUILD:-build/tests}
[ -f "$build/build.ninja" ] || cmake --preset dev -B "$build"
cmake --build "$build" --target ddp ddp_gloo chaos.kills >/dev/null
DDP_MODULE_PATH=$PWD/$build/src/ddp exec "$build/tests/chaos/chaos.kills" "$rounds" "$seed" $place
