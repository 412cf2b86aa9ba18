# SPDX-License-Identifier: Apache-2.0
# Hosts of netns_support.sh with an sshd in each, for the tests that source this; leaves what that leaves, $ddprun, $ssh (for --ssh) and some
# words. The hosts have the addresses 10.77.0.N and fd77::N, and call
# each other a and b. Skips where there is no sshd; DDP_SSHD names one that is not in PATH.
ddprun=$DDP_BUILD_DIR/bin/ddprun
worker=$DDP_BUILD_DIR/examples/02_train
sshd=${DDP_SSHD:-$(PATH=$PATH:/usr/sbin command -v sshd || true)}
if [ -z "$sshd" ] || ! command -v ssh >/dev/null || ! command -v ssh-keygen >/dev/null || ! id sshd >/dev/null 2>&1; then
  echo "no sshd with its user, ssh and ssh-keygen here (Debian: openssh-server)"
  exit 77
fi
. "$DDP_SOURCE_DIR/tests/process/netns_support.sh"
unset MASTER_ADDR DDP_TOKEN OMP_NUM_THREADS

start_sshd() { # host
  printf '%s\n' "HostKey $work/host" "AuthorizedKeysFile $work/keys" "StrictModes no" "PermitRootLogin yes" "PidFile none" "UsePAM no" \
    "SetEnv DDP_TEST_HOST=$1${TSAN_OPTIONS:+ TSAN_OPTIONS=$TSAN_OPTIONS}" >"$work/sshd$1"
  ip netns exec "$id-$1" "$sshd" -D -e -f "$work/sshd$1" 2>"$work/rank-sshd$1" &
  pids+=($!)
}
mkdir -p /run/sshd
ssh-keygen -q -t ed25519 -N '' -f "$work/host" && ssh-keygen -q -t ed25519 -N '' -f "$work/user" && cp "$work/user.pub" "$work/keys" || exit 1
printf '%s\n' "IdentityFile $work/user" "StrictHostKeyChecking no" "UserKnownHostsFile /dev/null" "LogLevel ERROR" "ConnectionAttempts 20" \
  >"$work/config"
ssh="ssh -F $work/config"
trap 'clean; rm -rf /etc/netns/"$id"-1 /etc/netns/"$id"-2' EXIT
for host in 1 2; do
  mkdir -p "/etc/netns/$id-$host" # what ip netns exec puts in the place of /etc/hosts
  printf '127.0.0.1 localhost\n10.77.0.1 a\n10.77.0.2 b\n' >"/etc/netns/$id-$host/hosts"
  ip -n "$id-$host" address add "fd77::$host/64" dev eth0 nodad && start_sshd "$host" || exit 1
done

on() { # host, command...
  local host=$1
  shift
  ip netns exec "$id-$host" "$@"
}
within() { # seconds, command...
  local end=$((SECONDS + $1))
  shift
  until "$@"; do
    [ "$SECONDS" -lt "$end" ] || return 1
    sleep 0.05
  done
}
gone() { # process numbers: has every one ended?
  local pid
  for pid in "$@"; do
    if [ -e "/proc/$pid/stat" ] && ! grep -q '^State:.Z' "/proc/$pid/status" 2>/dev/null; then return 1; fi
  done
}
lines() { # file, number: does it have at least this many lines?
  [ "$(cat "$1" 2>/dev/null | wc -l)" -ge "$2" ]
}
# ddprun on host 1, in the background, its number in $job; output in rank-out.
begin() {
  # A shell starts what it does not wait for with SIGINT ignored, and ddprun leaves that as it is.
  ip netns exec "$id-1" env --default-signal=INT "$ddprun" --ssh "$ssh" "$@" >"$work/rank-out" 2>&1 &
  job=$!
}
ended() { # expected exit code of the job
  local code=0
  wait "$job" || code=$?
  [ "$code" = "$1" ] || {
    echo "exit code $code, not $1"
    return 1
  }
}
over() { # expected exit code, arguments: run to the end, at most a minute
  local code=$1
  shift
  begin "$@"
  within 60 gone "$job" || kill -KILL "$job"
  ended "$code"
}
said() { grep -q -e "$1" "$work/rank-out"; }
