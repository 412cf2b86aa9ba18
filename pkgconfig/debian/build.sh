#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Debian packages, and the source package, of what is committed:
#
#   pkgconfig/debian/build.sh FOLDER             writes libddp0.1, libddp-dev, libddp-gloo, ddprun and python3-libddp into it, and libddp-cuda
#                                       where a CUDA compiler is found: CUDACXX, nvcc in PATH, or /usr/local/cuda/bin/nvcc
#   pkgconfig/debian/build.sh --cuda FOLDER      ... or ends where none is
#   pkgconfig/debian/build.sh --no-cuda FOLDER   without libddp-cuda
#
# DDP_CUDA_ARCHITECTURES=90 compiles the kernels for one kind of GPU only, which is quicker: to try, not to give away.
# As root on Debian it installs what is missing.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

cuda=auto
case ${1:-} in
  --cuda | --no-cuda)
    cuda=$1
    shift
    ;;
esac
if [ $# -ne 1 ]; then
  echo "usage: pkgconfig/debian/build.sh [--cuda|--no-cuda] FOLDER" >&2
  exit 2
fi
profiles=""
if [ "$cuda" != --no-cuda ]; then
  if nvcc=$(command -v "${CUDACXX:-nvcc}" || command -v /usr/local/cuda/bin/nvcc || command -v "$PWD/build/cuda-12/bin/nvcc"); then
    profiles=pkg.libddp.cuda
    export CUDACXX=$nvcc
  elif [ "$cuda" = --cuda ]; then
    echo "no CUDA compiler: nvcc is searched in CUDACXX, PATH, /usr/local/cuda and build/cuda-12" >&2
    exit 1
  else
    echo "No CUDA compiler: libddp-cuda is left out."
  fi
fi
mkdir -p "$1"
out=$(cd "$1" && pwd)

. tests/support/debian_packages.sh
ddp_install_packages build-essential debhelper dh-python doxygen help2man cmake ninja-build pkg-config git python3-dev swig \
  libgloo-dev libssl-dev libasio-dev nlohmann-json3-dev libsodium-dev libcli11-dev libxxhash-dev

version=$(dpkg-parsechangelog -l pkgconfig/debian/changelog -S Version)
upstream=${version%-*}
# nvcc makes names of functions from the folder in which it works, so it is always the same one.
work=${TMPDIR:-/tmp}/libddp-$upstream-packages
mkdir "$work" || { echo "another build is at work in $work, or was ended; then remove it" >&2; exit 1; }
trap 'rm -rf "$work"' EXIT
tree=$work/libddp-$upstream
git archive --prefix="libddp-$upstream/" HEAD | tar -x -C "$work"
tar -C "$work" --sort=name --owner=0 --group=0 --mtime="@$(git log -1 --format=%ct)" -cJf "$work/libddp_$upstream.orig.tar.xz" \
  "libddp-$upstream"
cp -R "$tree/pkgconfig/debian" "$tree/debian"
rm -f "$tree"/debian/*.sh
# Each function with the version that brought it. dh_makeshlibs compares with what the library has.
{
  echo "libddp.so.0.1 libddp0.1 #MINVER#"
  awk 'NF && !/^#/ { print " " $1 "@Base " $2 }' src/capi/exports.txt
} >"$tree/debian/libddp0.1.symbols"

# debhelper gives the build another home folder.
if command -v ccache >/dev/null && [ -z "${CMAKE_CXX_COMPILER_LAUNCHER:-}" ]; then
  export CMAKE_C_COMPILER_LAUNCHER=ccache CMAKE_CXX_COMPILER_LAUNCHER=ccache CCACHE_DIR=${CCACHE_DIR:-$(ccache --get-config cache_dir)}
  export CCACHE_BASEDIR=$work CCACHE_NOHASHDIR=1 # the folder has another name in every run
fi
(cd "$tree" && DEB_BUILD_PROFILES=$profiles dpkg-buildpackage -us -uc)
find "$work" -maxdepth 1 -type f -exec cp -t "$out" {} +
ls -l "$out"
