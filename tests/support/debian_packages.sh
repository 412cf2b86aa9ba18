# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# What a machine lacks, installed in one step. Sourced by examples/quickstart.sh and tests/run.sh.
#
#   . tests/support/debian_packages.sh
#   ddp_install_packages build-essential cmake || exit 1
#
# Promises: nothing missing means no network and no root. As root, what is missing is installed with apt-get, with as few
# packages as possible. Otherwise the exact command to run is printed and 1 is returned. On a system without dpkg nothing
# is checked: CMake names what it cannot find.
# Tested by process/debian_packages_test.sh.

# Print those of the packages that are not installed, on one line.
ddp_missing_packages() {
  local package missing=()
  for package in "$@"; do
    # Several lines come back where a package is installed for several architectures.
    dpkg-query -W -f='${db:Status-Status}\n' "$package" 2>/dev/null | grep -qx installed || missing+=("$package")
  done
  echo "${missing[*]}"
}

# Has apt ever fetched its lists of packages? A fresh container has none.
ddp_have_package_lists() {
  compgen -G '/var/lib/apt/lists/*_Packages*' >/dev/null
}

ddp_install_packages() {
  if ! command -v dpkg-query >/dev/null || ! command -v apt-get >/dev/null; then
    echo "This is not a Debian-like system. Needed, under its Debian names: $*" >&2
    return 0
  fi
  local missing
  missing=$(ddp_missing_packages "$@")
  [ -n "$missing" ] || return 0
  if [ "$(id -u)" -ne 0 ]; then
    echo "Packages are missing. Please run this, then start again:" >&2
    echo "  sudo apt-get update && sudo apt-get install -y --no-install-recommends $missing" >&2
    return 1
  fi
  echo "Installing: $missing"
  # Lists can be there and too old to find a package: then fetch them and try once more.
  # shellcheck disable=SC2086 # $missing is a list
  if ddp_have_package_lists && ddp_apt_get install $missing; then
    return 0
  fi
  # shellcheck disable=SC2086
  if ddp_apt_get update && ddp_apt_get install $missing; then
    return 0
  fi
  echo "apt-get could not install: $missing. Is there a network, and a mirror in /etc/apt/sources.list?" >&2
  return 1
}

# apt's status lines as a line for each tenth; on a terminal all in one row.
ddp_apt_progress() {
  local kind percent shown=""
  while IFS=: read -r kind _ percent _; do
    case $kind in
    dlstatus) kind=downloading ;;
    pmstatus) kind=installing ;;
    *) continue ;;
    esac
    percent=${percent%%.*}
    [[ $percent =~ ^[0-9]+$ && "$kind $((percent / 10))" != "$shown" ]] || continue
    shown="$kind $((percent / 10))"
    if [ -t 1 ]; then printf '\r\033[K  %s %d %%' "$kind" "$percent"; else printf '  %s %d %%\n' "$kind" $((percent / 10 * 10)); fi
  done
  if [ -t 1 ] && [ -n "$shown" ]; then printf '\r\033[K'; fi
}

# How far an installation is, nothing else when it works, the whole output when it does not. Waits up to five minutes while another apt-get is at work.
ddp_apt_get() {
  local command=$1 log status=0 waited=0
  shift
  local options=()
  [ "$command" != install ] || options=(-y --no-install-recommends -o APT::Status-Fd=3)
  log=$(mktemp) || return 1
  while true; do
    status=0
    (
      set -o pipefail
      LC_ALL=C DEBIAN_FRONTEND=noninteractive apt-get "$command" "${options[@]}" "$@" 3>&1 >"$log" 2>&1 </dev/null | ddp_apt_progress
    ) || status=$?
    if [ "$status" -eq 0 ] || [ "$waited" -ge 300 ] || ! grep -Eq 'Could not get lock|Unable to acquire the dpkg' "$log"; then break; fi
    [ "$waited" -gt 0 ] || echo "Waiting for another apt-get to end"
    sleep 5
    waited=$((waited + 5))
  done
  [ "$status" -eq 0 ] || cat "$log" >&2
  rm -f "$log"
  return "$status"
}
