# SPDX-License-Identifier: Apache-2.0
# libddp.a: what `pkg-config --static` and ddp::static say is enough for a C program, nothing of the inside has a name in it, and modules are
# opened as with the shared library. A program that is static as a whole works on one host, and its error has the reason why it cannot have modules.
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"
install_library
archive=$(find "$prefix" -name libddp.a)
strange=$(nm --defined-only --extern-only "$archive" 2>/dev/null | awk 'NF == 3 && $3 !~ /^ddp_/' || true)
[ -z "$strange" ] || { echo "libddp.a has names that are not of the API: $(head -n 5 <<<"$strange")" >&2; exit 1; }

mkdir "$work/project"
cat >"$work/project/CMakeLists.txt" <<'TXT'
cmake_minimum_required(VERSION 3.16)
project(consumer C)
find_package(ddp 0.1 REQUIRED)
add_executable(train ${TRAIN_SOURCE})
target_link_libraries(train PRIVATE ddp::static m)
TXT
cmake -S "$work/project" -B "$work/build" -DCMAKE_PREFIX_PATH="$prefix" -DTRAIN_SOURCE="$here/train.c" >"$work/configure.log"
cmake --build "$work/build" >"$work/build.log" || { cat "$work/build.log"; exit 1; }
run_train "$work/build/train"

# As where only libddp.a was built: a name of the program's own that the library has inside too does not matter.
rm "$(dirname "$archive")"/libddp.so*
sed 's/where.world_size = .*/& where.backend = DDP_BACKEND_GLOO;/' "$here/train.c" >"$work/gloo.c"
echo 'int sodium_init(void); int sodium_init(void) { return -1; }' >>"$work/gloo.c"
PKG_CONFIG_PATH=$(dirname "$(find "$prefix" -name ddp.pc)")
export PKG_CONFIG_PATH
# shellcheck disable=SC2046 # flags are several words
link() { "$cc" -std=c99 "$work/gloo.c" -o "$work/$1" $(pkg-config --cflags --libs --static ddp) -lm "${@:2}" 2>"$work/link.log" || { cat "$work/link.log" >&2; exit 1; }; }
link gloo
if ldd "$work/gloo" | grep libddp; then exit 1; fi
modules=$(pkg-config --variable=plugindir ddp)
unset DDP_MODULE_PATH
if [ -e "$modules/libddp_gloo.so" ]; then
  DDP_MODULE_PATH=$modules run_train "$work/gloo"
  mkdir "$work/ddp"
  cp "$modules/libddp_gloo.so" "$work/ddp" # next to the program
  run_train "$work/gloo"
  link whole -static
  pids=()
  for rank in 0 1; do
    timeout 60 "$work/whole" "file://$work/never" "$rank" 2 2>>"$work/said" & pids+=($!)
  done
  for pid in "${pids[@]}"; do
    status=0
    wait "$pid" || status=$?
    [ "$status" -eq 1 ] || { cat "$work/said" >&2; echo "a static program with a module ended with $status" >&2; exit 1; }
  done
  grep -q 'the Gloo module cannot be loaded: this program is linked with -static; link it without' "$work/said" || { cat "$work/said" >&2; exit 1; }
fi
sed -i 's/DDP_BACKEND_GLOO/DDP_BACKEND_SHM/' "$work/gloo.c"
link alone -static
run_train "$work/alone"

# Where it is built in the place of libddp.so, all that is exported is there.
cmake -S "$DDP_SOURCE_DIR" -B "$work/instead" -G Ninja -DBUILD_SHARED_LIBS=OFF -DDDP_DEVELOPER=OFF -DDDP_CUDA=OFF >"$work/configure.log" 2>&1 ||
  { cat "$work/configure.log" >&2; exit 1; }
grep -q -x 'Libs: .* -lddp -lstdc++ .*' "$work/instead/pkgconfig/ddp.pc" || { cat "$work/instead/pkgconfig/ddp.pc" >&2; exit 1; }

# The Python package loads libddp.so, so both cannot be had.
if cmake -S "$DDP_SOURCE_DIR" -B "$work/instead" -DDDP_PYTHON=ON >"$work/configure.log" 2>&1; then
  echo "a Python package was configured that has no libddp.so" >&2
  exit 1
fi
tr -s ' \n' ' ' <"$work/configure.log" | grep -q 'DDP_PYTHON is ON, but this is missing: .*libddp.so, which the package loads' ||
  { cat "$work/configure.log" >&2; exit 1; }
