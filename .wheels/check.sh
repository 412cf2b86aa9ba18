#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# What a user does with a wheel: install it into an empty environment, without a compiler and without this tree, and train on 2 ranks.
#
#   .wheels/check.sh WHEEL [PYTHON...]
#
# Each PYTHON (default: python3) gets an environment of its own. Needs no index of packages.
set -euo pipefail
[ $# -ge 1 ] || { echo "usage: .wheels/check.sh WHEEL [PYTHON...]" >&2; exit 2; }
wheel=$(realpath "$1")
shift
[ $# -gt 0 ] || set -- python3
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cat >"$work/line.py" <<'PY'
import array
import sys

import libddp

with libddp.Group(backend=sys.argv[1]) as group:
    w, grad = array.array("f", [group.rank, 0]), array.array("f", [0, 0])  # rank 0's values go to everybody
    with libddp.Model(group) as model:
        model.add_parameter("line", w, grad)
        model.commit()
        sgd = libddp.SGD(model, rate=0.5)
        for step in range(300):
            x = (step * 7 + group.rank * 3) % 10 / 5 - 1
            with model.backward():
                miss = w[0] * x + w[1] - (3 * x - 1)
                grad[0], grad[1] = miss * x, miss
                model.mark_ready(0)
            sgd.step()
        model.check()
    place = libddp.__file__
    print(f"rank {group.rank} of {group.size} with {group.backend.name}: {w[0]:.2f} {w[1]:.2f} {place}")
PY
for python in "$@"; do
  version=$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
  place=$work/$version
  "$python" -m venv "$place"
  "$place/bin/pip" install --quiet --no-index --no-deps "$wheel" 2>&1 | grep -v -i 'notice' || true
  for backend in auto gloo; do
    # Nothing else is on the path: no compiler, no ddprun of a build.
    (cd "$work" && env -i PATH="$place/bin" HOME="$work" "$place/bin/ddprun" -n 2 "$place/bin/python" line.py "$backend") >"$work/output" 2>&1 ||
      { cat "$work/output"; exit 1; }
    [ "$(grep -c "of 2 with .*: 3.00 -1.00 $place" "$work/output")" = 2 ] || { cat "$work/output"; exit 1; }
    grep 'rank 0 of 2' "$work/output" | sed "s|$work/||; s/^/Python $version: /"
  done
done
