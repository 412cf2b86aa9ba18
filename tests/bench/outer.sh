#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# A model learns a text over a slow link, with plain DDP, bf16, PowerSGD and DiLoCo, in one command: tests/bench/outer.sh --help
exec python3 -B "$(dirname "${BASH_SOURCE[0]}")/outer" "$@"
