#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Cuts the power of a file system in the middle of saves, again and again: an ext4 image on a loop device is shut down without a flush of its
# journal, so all that was not synced is lost. After each cut the newest checkpoint must be whole, and of the last save that had returned or of
# the one that was under way.
#
#   tests/power_cut.sh [CUTS [BUILD]]     CUTS 200, BUILD build/tests
#   tests/power_cut.sh --without-sync     shows that the check can fail: sync does nothing, so saves are lost
#
# Needs root and loop devices; where they are missing it prints that and ends with 77.
set -u
# In a mount namespace of its own: a process elsewhere that copied the mount would keep the dead file system alive.
if [ -z "${DDP_OWN_MOUNTS:-}" ] && unshare --mount true 2>/dev/null; then
  DDP_OWN_MOUNTS=1 exec unshare --mount --propagation private sh "$0" "$@"
fi
sync_works=1
[ "${1:-}" = --without-sync ] && sync_works=0 && shift
cuts=${1:-200}
here=$(cd "$(dirname "$0")/.." && pwd)
build=${2:-$here/build/tests}
saver=$build/tests/saves/saves.power_saver
seed=${DDP_TEST_SEED:-$(date +%s)}

skip() {
  echo "$1"
  exit 77
}
[ -x "$saver" ] || skip "$saver is not built"
[ "$(id -u)" = 0 ] || skip "mounting an image needs root"
command -v mkfs.ext4 >/dev/null || skip "there is no mkfs.ext4"
work=$(mktemp -d)
place=$work/mounted
writer=
end() {
  [ -n "$writer" ] && kill -9 "$writer" 2>/dev/null
  umount "$place" 2>/dev/null
  rm -rf "$work"
}
trap end EXIT
trap 'exit 1' INT TERM
mkdir "$place"
truncate -s 48M "$work/image"
mkfs.ext4 -q -F "$work/image" || skip "mkfs.ext4 fails"
mount -o loop "$work/image" "$place" 2>"$work/why" || skip "no loop device can be mounted: $(cat "$work/why")"

preload=
if [ $sync_works = 0 ]; then
  echo 'int fsync(int fd) { (void)fd; return 0; } int fdatasync(int fd) { (void)fd; return 0; }' >"$work/nosync.c"
  "${CC:-cc}" -shared -fPIC -o "$work/nosync.so" "$work/nosync.c" || skip "no C compiler"
  preload=$work/nosync.so
fi
random() { # below $1
  seed=$(((seed * 1103515245 + 12345) % 2147483648))
  echo $((seed / 65536 % $1))
}
echo "seed $seed"
saved=0
old=0
new=0
lost=0
cut=0
for way in save save-file; do
  mkdir "$place/$way"
  sync
  promised=0
  for round in $(seq $(((cuts + 1) / 2))); do
    : >"$work/steps"
    LD_PRELOAD=$preload "$saver" "$way" "$place/$way" >"$work/steps" 2>"$work/error" &
    writer=$!
    tenths=0
    while [ ! -s "$work/steps" ] && [ $tenths -lt 300 ]; do # the first save of the round
      sleep 0.1
      tenths=$((tenths + 1))
    done
    sleep "0.$(printf %03d "$(random 300)")"
    "$saver" cut "$place" || skip "this kernel cannot shut the file system down"
    wait "$writer" 2>/dev/null
    writer=
    umount "$place" && mount -o loop "$work/image" "$place" || exit 1
    last=$(tail -n 1 "$work/steps")
    saved=$((saved + $(wc -l <"$work/steps")))
    [ -n "$last" ] && promised=$last
    cut=$((cut + 1))
    if found=$("$saver" "check${way#save}" "$place/$way" "$promised" 2>"$work/why"); then
      [ "$found" = "$promised" ] && old=$((old + 1)) || new=$((new + 1))
      promised=$found
    else
      lost=$((lost + 1))
      echo "$way, cut $round: $(cat "$work/why" "$work/error")"
      break
    fi
  done
done
echo "$cut cuts, $saved saves returned: after $old cuts the last one that had returned was there, after $new the one under way; $lost times not"
if [ $sync_works = 0 ]; then
  [ $lost -gt 0 ]
else
  [ $lost = 0 ] && [ $cut -ge "$cuts" ]
fi
