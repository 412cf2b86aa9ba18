#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# From a fresh clone to a training on four ranks, in one command:
#
#   examples/quickstart.sh
#
# Installs what is missing (as root, on Debian and its relatives; otherwise it prints what to run), builds into build/quickstart, and
# trains a small network and writes a report and a trace of that. When everything is installed already it needs neither root nor a network.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
build=build/quickstart
say() { printf '\n== %s\n' "$*"; }

# Each tenth of a build in the place of each file, and everything else as it is. A terminal has ninja's own line.
tenths() {
  local line last=0 tenth
  while IFS= read -r line; do
    if [[ ! $line =~ ^\[([0-9]+)/([0-9]+)\] ]]; then
      printf '%s\n' "$line"
      continue
    fi
    tenth=$((10 * BASH_REMATCH[1] / BASH_REMATCH[2]))
    if [ $tenth -gt $last ]; then printf '  %d %%\n' $((10 * tenth)); fi
    last=$tenth
  done
}

say "1/3 Packages"
. tests/support/debian_packages.sh
ddp_install_packages build-essential cmake ninja-build pkg-config \
  libgloo-dev libssl-dev libasio-dev nlohmann-json3-dev libsodium-dev libcli11-dev libxxhash-dev
echo "everything is installed"

say "2/3 Build (into $build)"
# The library, its launcher and the examples, without the packages of other languages; the GPU module where there is a GPU.
targets=(examples)
cuda=OFF
if nvidia-smi >/dev/null 2>&1; then cuda=AUTO; fi
cmake -S . -B "$build" -G Ninja -DCMAKE_BUILD_TYPE=Release -DDDP_BUILD_TESTS=OFF -DDDP_CUDA=$cuda >/dev/null
if cmake --build "$build" --target help | grep -q '^ddp_cuda:'; then targets+=(ddp_cuda); fi
make=(cmake --build "$build" --parallel "$(nproc)" --target "${targets[@]}")
if [ -t 1 ]; then "${make[@]}"; else "${make[@]}" 2>&1 | tenths; fi

say "3/3 Train on 4 ranks: ddprun -n 4 02_train"
"$build/bin/ddprun" -n 4 --report "$build/report.html" --trace "$build/trace.json" "$build/examples/02_train" --checkpoint "$build/digits.safetensors"

say "Done"
here=$(printf %q "$PWD")
cat <<END
The report    $here/$build/report.html
              Open it in a browser (xdg-open $here/$build/report.html): throughput, communication, memory and ranks of this
              training; the numbers are beside it, in report.json. ddprun --report FILE.html writes one for every job.
The trace     $here/$build/trace.json
              Open it in https://ui.perfetto.dev or chrome://tracing: what each rank did, and when. ddprun --trace FILE.
The library   $here/$build/src/libddp.so, headers in $here/include/ddp
The launcher  $here/$build/bin/ddprun (--help; --check says what is right and wrong with this machine)
The examples  $here/$build/examples, sources in $here/examples

"communication hidden" is the share of the communication that went on while gradients were still computed. It is small here because the network is:
there is little backward pass to hide behind, and the ranks may have to share cores. tests/bench/README.md has larger ones.

Read next: examples/README.md (the examples in order), README.md (how to install and use the library), and examples/02_train.c, whose
train_step() is all that a program of your own needs. To run the tests: tests/run.sh

Train again, from any folder:
$here/$build/bin/ddprun -n 4 $here/$build/examples/02_train
END
