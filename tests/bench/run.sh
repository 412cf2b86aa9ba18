#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The proof of speed on one host, in one command: tests/bench/run.sh --help
exec python3 -B "$(dirname "${BASH_SOURCE[0]}")/compare" "$@"
