# A CMake project that carries libddp's sources gets the target ddp::ddp: no tests, no examples, no flags of ours on its own
# code, no build type forced on it.
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"
mkdir "$work/project"
cat >"$work/project/CMakeLists.txt" <<'TXT'
cmake_minimum_required(VERSION 3.25)
project(consumer C CXX)
add_subdirectory(${DDP_SOURCE} ddp)
add_executable(train ${TRAIN_SOURCE})
target_link_libraries(train PRIVATE ddp::ddp m)
if(TARGET ddp_test_support OR DDP_BUILD_TESTS OR DDP_BUILD_EXAMPLES)
  message(FATAL_ERROR "libddp brings its tests or examples along")
endif()
TXT
if command -v ccache >/dev/null; then
  export CMAKE_C_COMPILER_LAUNCHER=ccache CMAKE_CXX_COMPILER_LAUNCHER=ccache
fi
cmake -S "$work/project" -B "$work/build" -G Ninja -DDDP_SOURCE="$DDP_SOURCE_DIR" -DTRAIN_SOURCE="$here/train.c" \
  -DCMAKE_EXPORT_COMPILE_COMMANDS=ON >"$work/configure.log"
if grep -q 'CMAKE_BUILD_TYPE:STRING=.' "$work/build/CMakeCache.txt"; then
  echo "libddp chose a build type for the project that contains it" >&2
  exit 1
fi
if grep -A1 '"command"' "$work/build/compile_commands.json" | grep 'train\.c' | grep -e '-Wall' -e '-fsanitize' -e '-ffp-contract'; then
  echo "libddp's own flags reach the project that contains it" >&2
  exit 1
fi
cmake --build "$work/build" --target train >"$work/build.log" || { cat "$work/build.log"; exit 1; }
run_train "$work/build/train"
