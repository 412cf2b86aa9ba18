# SPDX-License-Identifier: Apache-2.0
# tests/support/debian_packages.sh: its installations and messages, with apt-get, dpkg-query and id replaced by fakes.
set -u
. "$DDP_SOURCE_DIR/tests/support/debian_packages.sh"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fails=0
check() { # name, then a command that must succeed
  local name=$1
  shift
  if "$@"; then echo "ok   $name"; else echo "FAIL $name"; fails=$((fails + 1)); fi
}

user=0 lists=yes broken_installs=0
dpkg-query() { [ "${!#}" = present ] && echo installed || return 1; }
id() { echo "$user"; }
apt-get() {
  echo "apt-get $*" >>"$work/log"
  if [ "$1" = install ]; then printf '%s\n' dlstatus:1:0:x dlstatus:1:9.9:x dlstatus:1:12.5:x pmstatus:absent:50.0:y:z pmexec:a:1:b odd >&3; fi
  if [ "$1" = install ] && [ "$(grep -c '^apt-get install' "$work/log")" -le "$broken_installs" ]; then return 100; fi
}
ddp_have_package_lists() { [ "$lists" = yes ]; }
call() { : >"$work/log"; ddp_install_packages "$@" >"$work/out" 2>&1; }
log_is() { diff <(printf "$1") "$work/log"; }

call present
check nothing_missing_means_no_apt [ ! -s "$work/log" ]
call present absent other
check only_what_is_missing_is_installed log_is 'apt-get install -y --no-install-recommends -o APT::Status-Fd=3 absent other\n'
check an_installation_shows_each_tenth [ "$(sed -n 's/^  //p' "$work/out" | tr '\n' ,)" = 'downloading 0 %,downloading 10 %,installing 50 %,' ]
lists=no
call absent
check missing_lists_are_fetched_first log_is 'apt-get update\napt-get install -y --no-install-recommends -o APT::Status-Fd=3 absent\n'
lists=yes broken_installs=1
call absent
check old_lists_are_fetched_again [ "$(grep -c . "$work/log")" = 3 ]
broken_installs=9
check failure_is_returned eval '! call absent'
check failure_names_the_packages grep -q 'could not install: absent' "$work/out"
# Another apt-get holds the lock twice.
sleep() { echo "sleep $1" >>"$work/log"; }
apt-get() {
  echo "apt-get $*" >>"$work/log"
  if [ "$(grep -c '^apt-get' "$work/log")" -le 2 ]; then echo "E: Could not get lock /var/lib/apt/lists/lock."; return 100; fi
}
check a_lock_is_waited_for call absent
check it_waits_between_tries [ "$(grep -c '^sleep' "$work/log")" = 2 ]
check waiting_is_told grep -q 'Waiting for another apt-get' "$work/out"
user=1000 broken_installs=0
check without_root_it_fails eval '! call absent'
check without_root_the_command_is_printed grep -q 'sudo apt-get install -y --no-install-recommends absent' "$work/out"
check without_root_nothing_runs [ ! -s "$work/log" ]
exit $((fails > 0))
