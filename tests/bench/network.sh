#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# libddp and its rivals between hosts that are made on this machine, in one command: tests/bench/network.sh --help
exec python3 -B "$(dirname "${BASH_SOURCE[0]}")/network" "$@"
