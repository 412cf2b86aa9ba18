#!/usr/bin/env bash
# libddp and its rivals between hosts that are made on this machine, in one command: tests/bench/network.sh --help
exec python3 -B "$(dirname "${BASH_SOURCE[0]}")/network" "$@"
