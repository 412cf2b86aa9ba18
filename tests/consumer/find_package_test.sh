# SPDX-License-Identifier: Apache-2.0
# A CMake project finds an installed and then moved libddp, and links ddp::ddp.
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"
install_library
mkdir "$work/project"
cat >"$work/project/CMakeLists.txt" <<'TXT'
cmake_minimum_required(VERSION 3.16)
project(consumer C)
find_package(ddp 0.1 REQUIRED)
if(NOT DDP_PLUGIN_DIR)
  message(FATAL_ERROR "ddpConfig.cmake does not say where the modules lie")
endif()
add_executable(train ${TRAIN_SOURCE})
target_link_libraries(train PRIVATE ddp::ddp m)
TXT
cmake -S "$work/project" -B "$work/build" -DCMAKE_PREFIX_PATH="$prefix" -DTRAIN_SOURCE="$here/train.c" >"$work/configure.log"
cmake --build "$work/build" >"$work/build.log" || { cat "$work/build.log"; exit 1; }
run_train "$work/build/train"

# Another minor version is another interface while the version is 0.x.
sed -i 's/find_package(ddp 0.1 /find_package(ddp 0.2 /' "$work/project/CMakeLists.txt"
if cmake -S "$work/project" -B "$work/refused" -DCMAKE_PREFIX_PATH="$prefix" -DTRAIN_SOURCE="$here/train.c" >"$work/log" 2>&1; then
  echo "find_package(ddp 0.2) accepted version 0.1" >&2
  exit 1
fi
