#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# What a user does with a wheel: install it into an empty environment, without a compiler and without this tree, and train on 2 ranks.
#
#   pkgconfig/wheels/check.sh WHEEL|FOLDER [PYTHON...]
#
# Each PYTHON (default: python3) gets an environment of its own, and of a folder the wheel that fits it. Needs no index of packages.
set -euo pipefail
[ $# -ge 1 ] || { echo "usage: pkgconfig/wheels/check.sh WHEEL|FOLDER [PYTHON...]" >&2; exit 2; }
wheel=$(realpath "$1")
from=("$wheel")
[ ! -d "$wheel" ] || from=(--find-links "$wheel" libddp)
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
        model.check_replicas()
    place = libddp.__file__
    print(f"rank {group.rank} of {group.size} with {group.backend.name}: {w[0]:.2f} {w[1]:.2f} {place}")
PY
# What a program learns that has memory of a GPU: with the module inside, that there is no driver here, or that this address is none.
cat >"$work/gpu.py" <<'PY'
import os

import libddp

print(libddp.build_info())
class Array:
    __cuda_array_interface__ = {"shape": (4,), "typestr": "<f4", "data": (4096, False), "version": 3}
try:
    with libddp.Group() as group:
        group.all_reduce(Array(), "sum")
except libddp.Error as error:
    print(error)
    inside = os.path.exists(os.path.join(os.path.dirname(libddp.__file__), "ddp/libddp_cuda.so"))
    assert inside != ("not installed" in str(error)), error
    print("the CUDA module is", "inside" if inside else "not inside")
PY
for python in "$@"; do
  version=$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
  place=$work/$version
  "$python" -m venv "$place"
  "$place/bin/pip" install --quiet --no-index --no-deps "${from[@]}" 2>&1 | grep -v -i 'notice' || true
  for backend in auto gloo; do
    # Nothing else is on the path: no compiler, no ddprun of a build.
    (cd "$work" && env -i PATH="$place/bin" HOME="$work" "$place/bin/ddprun" -n 2 "$place/bin/python" line.py "$backend") >"$work/output" 2>&1 ||
      { cat "$work/output"; exit 1; }
    [ "$(grep -c "of 2 with .*: 3.00 -1.00 $place" "$work/output")" = 2 ] || { cat "$work/output"; exit 1; }
    grep 'rank 0 of 2' "$work/output" | sed "s|$work/||; s/^/Python $version: /"
  done
  (cd "$work" && env -i PATH="$place/bin" HOME="$work" "$place/bin/python" gpu.py) >"$work/output" 2>&1 || { cat "$work/output"; exit 1; }
  tail -n 1 "$work/output" | sed "s/^/Python $version: /"
done
