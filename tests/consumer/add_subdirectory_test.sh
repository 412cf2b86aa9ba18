# SPDX-License-Identifier: Apache-2.0
# A CMake project that carries libddp's sources, as in README.md: it gets the target ddp::ddp, no tests, no examples, no flags of ours
# on its own code, no build type forced on it. With --build the library is built there too, which takes minutes, and the program runs.
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"
mkdir "$work/project"
cd "$work/project"
readme_block cmake add_subdirectory >CMakeLists.txt
readme_program >program.c
ln -s "$DDP_SOURCE_DIR" libddp
cat >>CMakeLists.txt <<'TXT'
if(TARGET ddp_test_support OR DDP_BUILD_TESTS OR DDP_BUILD_EXAMPLES)
  message(FATAL_ERROR "libddp brings its tests or examples along")
endif()
TXT
export CMAKE_GENERATOR=Ninja CMAKE_EXPORT_COMPILE_COMMANDS=ON
unset DDP_MODULE_PATH
# As it is typed, but without the build type, so that it would be seen if libddp chose one, and without the GPU module.
commands=$(readme_block sh 'build/libddp/bin/ddprun')
case $commands in
  *' -DCMAKE_BUILD_TYPE=Release '*) commands=${commands/ -DCMAKE_BUILD_TYPE=Release/ -DDDP_CUDA=OFF} ;;
  *) echo "README.md chooses no build type" >&2; exit 1 ;;
esac
if [ "${1:-}" = --build ]; then
  bash -ec "$commands" >"$work/output" 2>&1 || { cat "$work/output"; exit 1; }
  learned 2
else
  bash -ec "${commands%%&&*}" >"$work/output" 2>&1 || { cat "$work/output"; exit 1; }
  ninja -C build -t commands all >"$work/plan"
  for product in 'libddp\.so[.0-9]*' bin/ddprun; do
    grep -q -e "-o libddp/[a-z/]*$product " "$work/plan" || { echo "$product would not be built" >&2; exit 1; }
  done
fi
if grep -q 'CMAKE_BUILD_TYPE:STRING=.' build/CMakeCache.txt; then
  echo "libddp chose a build type for the project that contains it" >&2
  exit 1
fi
if grep -A1 '"command"' build/compile_commands.json | grep 'program\.c"' | grep -e '-Wall' -e '-fsanitize' -e '-ffp-contract'; then
  echo "libddp's own flags reach the project that contains it" >&2
  exit 1
fi
