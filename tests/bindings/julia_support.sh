# SPDX-License-Identifier: Apache-2.0
# What the tests of the Julia package share. Sourced; leaves $julia, which starts Julia with this tree's library.
set -euo pipefail
julia=$DDP_BUILD_DIR/bindings/julia/julia
package=$DDP_SOURCE_DIR/bindings/julia
if [ ! -x "$julia" ]; then
  echo "skipped: the Julia package is not tested in this build (no julia 1.5, a sanitizer, or -DDDP_JULIA=OFF; cmake said which)"
  exit 77
fi
