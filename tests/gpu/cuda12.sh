#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Builds the GPU module with CUDA 12, for drivers 535 to 575, and checks the result. Needs no GPU.
#
#   tests/gpu/cuda12.sh [--toolkit DIR] [--fetch] [--build DIR] [--programs]
#
#   --toolkit DIR  a toolkit of CUDA 12.1 to 12.9: DIR/bin/nvcc. Without it: CUDA12_HOME, /usr/local/cuda-12*, build/cuda-12, an nvcc 12 in PATH
#   --fetch        where there is none, take it from Debian 13 (nvidia-cuda-toolkit, non-free) into build/cuda-12, through apt, without installing
#                  CUDA; 1 GB is fetched, 200 MB stay. What else is missing to build is installed (as root, on Debian)
#   --build DIR    build folder (default build/cuda12)
#   --programs     the tests, the benchmark and the example too, as tests/gpu/run.sh --pack needs them
#
# Exit status: 0 built and right, 1 not, 77 there is no CUDA 12 here.
set -uo pipefail
source_dir=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
toolkit=${CUDA12_HOME:-} fetch='' build=$source_dir/build/cuda12 programs=''
fetched=$source_dir/build/cuda-12

fail() {
  echo "$1" >&2
  exit "${2:-1}"
}
while [ $# -gt 0 ]; do
  case $1 in
    --fetch) fetch=1 ;;
    --programs) programs=1 ;;
    --toolkit | --build)
      [ $# -gt 1 ] || fail "$1 needs a value"
      declare "${1#--}=$2"
      shift
      ;;
    -h | --help)
      sed -n '3,/^set /{/^#/s/^# \{0,1\}//p}' "${BASH_SOURCE[0]}"
      exit 0
      ;;
    *) fail "$1 is not understood: see $0 --help" ;;
  esac
  shift
done

version_of() { "$1" --version 2>/dev/null | sed -n 's/.*release \([0-9.]*\),.*/\1/p'; }

# Files of Debian packages, put together as the toolkit that NVIDIA installs: nvcc finds its parts by its own place.
fetch_toolkit() { # into $1
  local to=$1 work option mirror
  command -v apt-get >/dev/null && command -v dpkg >/dev/null || fail "--fetch needs apt-get and dpkg" 77
  work=$(mktemp -d) && mkdir -p "$work"/{lists/partial,cache/archives/partial,debs,files} || return 1
  # The mirror that this machine's apt uses for Debian; its own release need not be the one that has CUDA 12.
  mirror=$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' | grep -m1 '/debian/\?$')
  [ -n "$mirror" ] || fail "--fetch needs a machine whose apt knows a mirror of Debian" 77
  echo "deb $mirror trixie main non-free" >"$work/sources.list"
  option=(-o Dir::Etc::sourcelist="$work/sources.list" -o Dir::Etc::sourceparts=- -o Dir::State::Lists="$work/lists" -o Dir::Cache="$work/cache"
    -o APT::Sandbox::User=root)
  apt-get "${option[@]}" update >"$work/log" 2>&1 && (cd "$work/debs" && apt-get "${option[@]}" download nvidia-cuda-toolkit nvidia-cuda-dev libcu++-dev) >>"$work/log" 2>&1 || {
    tail -5 "$work/log"
    rm -rf "$work"
    echo "CUDA 12 could not be fetched from $mirror (Debian's keys, /usr/share/keyrings, are needed too)"
    exit 77
  }
  dpkg --fsys-tarfile "$work"/debs/nvidia-cuda-toolkit_*.deb | tar -x -C "$work/files" ./usr/bin ./usr/lib/nvidia-cuda-toolkit &&
    dpkg --fsys-tarfile "$work"/debs/nvidia-cuda-dev_*.deb | tar -x -C "$work/files" ./usr/include ./usr/lib/x86_64-linux-gnu/lib{cudart_static,cudadevrt,culibos}.a ||
    return 1
  dpkg --fsys-tarfile "$work"/debs/libcu++-dev_*.deb | tar -x -C "$work/files" ./usr/include || return 1 # NCCL's header for kernels wants it
  rm -rf "$to" && mkdir -p "$to/bin" "$to/nvvm/bin" "$to/lib64" && cd "$work/files/usr" &&
    mv lib/nvidia-cuda-toolkit/bin/{nvcc,crt} bin/{cudafe++,ptxas,fatbinary,nvlink,bin2c,cuobjdump} "$to/bin/" &&
    mv lib/nvidia-cuda-toolkit/bin/cicc "$to/nvvm/bin/" && mv lib/nvidia-cuda-toolkit/libdevice "$to/nvvm/" &&
    mv include "$to/" && mv lib/x86_64-linux-gnu/*.a "$to/lib64/" &&
    cat >"$to/bin/nvcc.profile" <<'PROFILE' || return 1
TOP              = $(_HERE_)/..
NVVMIR_LIBRARY_DIR = $(TOP)/nvvm/libdevice
PATH            += $(TOP)/nvvm/bin:$(_HERE_):
INCLUDES        +=  "-I$(TOP)/include" $(_SPACE_)
LIBRARIES       =+ $(_SPACE_) "-L$(TOP)/lib64"
PROFILE
  cd "$source_dir" && rm -rf "$work"
}

if [ -n "$fetch" ]; then
  . "$source_dir/tests/support/debian_packages.sh"
  ddp_install_packages build-essential cmake ninja-build pkg-config python3 libasio-dev nlohmann-json3-dev libsodium-dev libcli11-dev libxxhash-dev || exit 1
fi
nvcc=''
for place in ${toolkit:+"$toolkit"} /usr/local/cuda-12* /usr/local/cuda "$fetched"; do
  case $(version_of "$place/bin/nvcc") in
    12.[1-9]*)
      nvcc=$place/bin/nvcc
      break
      ;;
  esac
  [ "$place" != "$toolkit" ] || fail "$toolkit has no nvcc of CUDA 12.1 or later"
done
if [ -z "$nvcc" ]; then
  case $(version_of nvcc) in 12.[1-9]*) nvcc=$(command -v nvcc) ;; esac
fi
if [ -z "$nvcc" ] && [ -n "$fetch" ]; then
  fetch_toolkit "$fetched" || fail "The toolkit could not be put together in $fetched"
  nvcc=$fetched/bin/nvcc
fi
if [ -z "$nvcc" ]; then
  echo "skipped: there is no CUDA 12 compiler here (searched: CUDA12_HOME, /usr/local/cuda-12*, build/cuda-12, PATH); tests/gpu/cuda12.sh --fetch gets one"
  exit 77
fi

# --- Building: all of src/modules/cuda, for all GPUs that are shipped, warnings as errors ---

version=$(version_of "$nvcc")
echo "CUDA $version ($nvcc)"
mkdir -p "$build"
CUDACXX=$nvcc cmake -S "$source_dir" -B "$build" -G "${CMAKE_GENERATOR:-Ninja}" -DCMAKE_BUILD_TYPE=RelWithDebInfo -DDDP_DEVELOPER="${programs:-0}" \
  -DDDP_CUDA=ON -DDDP_CUDA_ARCHITECTURES=shipped -DDDP_GLOO=OFF -DDDP_WARNINGS_AS_ERRORS=ON >"$build/log" 2>&1 &&
  nice cmake --build "$build" --parallel "$(nproc)" --target ${programs:+gpu_programs} ddp_cuda >>"$build/log" 2>&1 || {
  tail -30 "$build/log"
  fail "The module does not build with CUDA $version ($build/log)"
}

# --- What was built ---

module=$build/src/ddp/libddp_cuda.so
failures=0
check() { # sentence, got, wanted
  if [ "$2" = "$3" ]; then
    echo "ok   $1: $2"
  else
    echo "FAIL $1: got \"$2\", wanted \"$3\""
    failures=$((failures + 1))
  fi
}
version_of_table=$(sed -n 's/^#define DDP_GPU_VERSION \([0-9]*\).*/\1/p' "$source_dir/src/device/gpu/gpu_abi.h")
check "the module opens without a driver and has its name" "$(python3 -B - "$module" "$version_of_table" <<'PYTHON'
import ctypes, sys
query = ctypes.CDLL(sys.argv[1]).ddp_gpu_query
query.restype = ctypes.POINTER(ctypes.c_void_p)
table = query(int(sys.argv[2]))
print(ctypes.c_char_p(table[2]).value.decode())  # struct_size, then version and reserved, then the name
PYTHON
)" "CUDA $version"
check "its exports" "$(nm -D --defined-only "$module" | awk '$2 == "T" { print $3 }' | tr '\n' ' ')" "ddp_gpu_query "
wanted=''
for each in 70 75 80 86 89 90 100 120; do
  ! "$nvcc" --list-gpu-code | grep -qx "sm_$each" || wanted+="sm_$each "
done
cuobjdump=$(dirname "$nvcc")/cuobjdump
if [ -x "$cuobjdump" ]; then
  check "its GPUs" "$("$cuobjdump" --list-elf "$module" | grep -oE 'sm_[0-9]+' | sort -Vu | tr '\n' ' ')" "$wanted"
  check "its PTX" "$("$cuobjdump" --list-ptx "$module" | grep -oE 'sm_[0-9]+' | sort -Vu | tr '\n' ' ')" "$(awk '{ print $NF }' <<<"$wanted") "
fi
[ "$failures" = 0 ]
