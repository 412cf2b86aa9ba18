#!/usr/bin/env bash
# From a fresh clone to a training on four ranks, in one command:
#
#   examples/quickstart.sh
#
# Installs what is missing (as root, on Debian and its relatives; otherwise it says what to run), builds into build/quickstart, and
# trains a small network. When everything is installed already it needs neither root nor a network.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
build=build/quickstart
say() { printf '\n== %s\n' "$*"; }

say "1/3 Packages"
. tests/support/debian_packages.sh
ddp_install_packages build-essential cmake ninja-build pkg-config \
  libgloo-dev libasio-dev nlohmann-json3-dev libsodium-dev libcli11-dev libxxhash-dev
echo "everything is installed"

say "2/3 Build (into $build)"
cmake -S . -B "$build" -G Ninja -DCMAKE_BUILD_TYPE=Release -DDDP_BUILD_TESTS=OFF >/dev/null
cmake --build "$build" --parallel "$(nproc)"

say "3/3 Train on 4 ranks: ddprun -n 4 02_train"
"$build/bin/ddprun" -n 4 "$build/examples/02_train" --checkpoint "$build/digits.safetensors"

say "Done"
here=$(printf %q "$PWD")
cat <<END
The library   $here/$build/src/libddp.so, headers in $here/include/ddp
The launcher  $here/$build/bin/ddprun (--help)
The examples  $here/$build/examples, sources in $here/examples

Read next: examples/README.md (the examples in order), README.md (how to install and use the library), and examples/02_train.c, whose
train_step() is all that a program of your own needs. To run the tests: tests/run.sh

Train again, from any folder:
$here/$build/bin/ddprun -n 4 $here/$build/examples/02_train
END
