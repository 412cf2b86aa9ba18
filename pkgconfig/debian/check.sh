#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The packages as their users meet them: built, looked through by lintian, installed in a fresh root of this distribution, used
# from C through pkg-config, from Python and with ddprun, and removed without a trace.
#
#   pkgconfig/debian/check.sh FOLDER              builds into FOLDER first, which must have no packages yet
#   pkgconfig/debian/check.sh --built FOLDER      takes the packages that are there
#   pkgconfig/debian/check.sh --twice FOLDER      builds twice: the packages must be the same bytes. Set CCACHE_DISABLE=1, or the second build is
#                                        the cache's copy of the first
#
# DDP_CUDA_ARCHITECTURES is build.sh's: libddp-cuda for one kind of GPU builds in less time.
# Needs root: a fresh root is one's own system for a while.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

mode=""
case ${1:-} in
  --built | --twice)
    mode=$1
    shift
    ;;
esac
if [ $# -ne 1 ] || [ "$(id -u)" -ne 0 ]; then
  echo "usage, as root: pkgconfig/debian/check.sh [--built|--twice] FOLDER" >&2
  exit 2
fi
. tests/support/debian_packages.sh
ddp_install_packages lintian mmdebstrap
if [ "$mode" != --built ]; then
  if compgen -G "$1/*.deb" >/dev/null; then
    echo "$1 has packages already; name another folder, or say --built" >&2
    exit 2
  fi
  pkgconfig/debian/build.sh "$1"
fi
out=$(cd "$1" && pwd)
work=$(mktemp -d)
root=$work/root
trap 'umount -q "$root/dev/shm" "$root/proc" 2>/dev/null || true; rm -rf --one-file-system "$work"' EXIT

step() { echo "== $*"; }
if [ "$mode" = --twice ]; then
  step "once more: the same bytes"
  pkgconfig/debian/build.sh "$work/again" >"$work/again.log" 2>&1 || { tail -n 40 "$work/again.log" >&2; exit 1; }
  for package in "$out"/*.deb; do cmp "$package" "$work/again/$(basename "$package")"; done
fi

step "lintian"
lintian --allow-root --tag-display-limit 0 --fail-on error "$out"/*.changes

step "a fresh root, with what the packages depend on"
own=$(for package in "$out"/*.deb; do dpkg-deb --field "$package" Package; done | grep -v -e -dbgsym)
needed=$(for package in "$out"/*.deb; do dpkg-deb --field "$package" Depends; done | tr ',' '\n' | awk 'NF { print $1 }' | sed 's/:any//' |
  sort -u | grep -v -x -F "$own" | paste -sd,)
mmdebstrap --quiet --variant=apt --include="gcc,libc6-dev,pkg-config,man-db,$needed" "$(. /etc/os-release && echo "$VERSION_CODENAME")" "$root"
mount --bind /proc "$root/proc"
mkdir -p "$root/dev/shm"
mount -t tmpfs shm "$root/dev/shm"
in_root() { chroot "$root" env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C.UTF-8 DEBIAN_FRONTEND=noninteractive "$@"; }
in_root sh -c 'find / -xdev \( -path /proc -o -path /var -o -path /dev -o -path /tmp -o -path /run \) -prune -o -print | sort' >"$work/before"
mkdir "$root/packages"
cp "$out"/*.deb "$root/packages"
rm -f "$root"/packages/*-dbgsym_*
in_root sh -c 'dpkg --install /packages/*.deb' >/dev/null

step "a C program through pkg-config"
cp examples/02_train.c "$root/train.c"
cp -R examples/data "$root/data"
in_root sh -c 'cc -O2 /train.c $(pkg-config --cflags --libs ddp) -lm -o /train'
in_root ddprun -n 2 --no-pty /train --data /data/digits.csv --epochs 3 --checkpoint /tmp/digits.safetensors | tail -n 3

step "Python"
in_root ddprun -n 2 --no-pty python3 -c '
import array, libddp
with libddp.Group() as group:
    values = array.array("d", [group.rank + 1])
    group.all_reduce(values, "sum")
    print("the sum is", values[0])
    assert values[0] == 3
'

step "several hosts: the module is found"
in_root python3 -c 'import libddp; print(libddp.build_info())' | tee "$work/build_info"
grep -q 'Gloo found at ' "$work/build_info"

step "the first lines of the manual"
for page in ddprun ddp_group_create; do
  in_root man "$page" >"$work/page"
  sed -n '1,5p' "$work/page"
done

if grep -q -x libddp-cuda <<<"$own"; then
  step "GPUs: the module is opened"
  cat >"$root/gpu.c" <<'C'
#include <ddp/ddp.h>
#include <stdio.h>
int main(void) {
  float value = 1;
  const int64_t count = 1;
  ddp_group *group;
  ddp_tensor tensor;
  if (ddp_group_create(NULL, NULL, &group) != DDP_OK || ddp_tensor_init(&tensor, &value, DDP_F32, 1, &count) != DDP_OK) return 1;
  tensor.device = DDP_CUDA;
  const ddp_status status = ddp_group_all_reduce(group, &tensor, DDP_SUM, NULL);
  return printf("%d: %s\n", (int)status, ddp_last_error()) < 0;
}
C
  in_root sh -c 'cc /gpu.c $(pkg-config --cflags --libs ddp) -o /gpu && /gpu; rm /gpu /gpu.c' | tee "$work/gpu"
  if grep -q 'not installed' "$work/gpu" || ! grep -E 'driver|GPU' "$work/gpu" >/dev/null; then exit 1; fi
fi

step "removed"
# shellcheck disable=SC2086 # a list
in_root dpkg --purge $own >/dev/null
rm -r "$root/packages" "$root/train" "$root/train.c" "$root/data"
in_root sh -c 'find / -xdev \( -path /proc -o -path /var -o -path /dev -o -path /tmp -o -path /run \) -prune -o -print | sort' >"$work/after"
if left=$(comm -13 "$work/before" "$work/after" | grep -E 'ddp' || true) && [ -n "$left" ]; then
  printf 'left behind:\n%s\n' "$left" >&2
  exit 1
fi
echo "The packages are fine:" $own
