# SPDX-License-Identifier: Apache-2.0
# Hosts as network namespaces on one bridge, for the tests that source this: needs `worker`, the program that is tried; leaves `id`, `work` (a
# folder of the test), `pids` (what clean-up kills) and the hosts $id-1 ... $id-4 with the addresses 10.77.0.1 ... 10.77.0.4, joined in $id-net by
# the ends to1 ... to4. Skips the test where namespaces cannot be made.
[ -x "$worker" ] || {
  echo "$worker is not built"
  exit 77
}
if [ "$(id -u)" != 0 ] || ! command -v ip >/dev/null; then
  echo "network namespaces need root and the program ip"
  exit 77
fi
id=ddp$$
work=$(mktemp -d)
pids=()
clean() {
  for pid in "${pids[@]}"; do kill -KILL "$pid" 2>/dev/null; done
  wait
  for host in 1 2 3 4; do ip netns del "$id-$host" 2>/dev/null; done
  ip netns del "$id-net" 2>/dev/null
  rm -rf "$work"
}
trap clean EXIT
trap 'exit 1' INT TERM

make_hosts() { # number
  ip netns add "$id-net" && ip -n "$id-net" link add bridge type bridge && ip -n "$id-net" link set bridge up || return 1
  for host in $(seq "$1"); do
    ip netns add "$id-$host" &&
      ip link add "eth0" netns "$id-$host" type veth peer name "to$host" netns "$id-net" &&
      ip -n "$id-net" link set "to$host" master bridge up &&
      ip -n "$id-$host" address add "10.77.0.$host/24" dev eth0 &&
      ip -n "$id-$host" link set eth0 up && ip -n "$id-$host" link set lo up || return 1
  done
}
if ! make_hosts 4 2>"$work/why"; then
  echo "network namespaces cannot be made here: $(head -1 "$work/why")"
  exit 77
fi

unset LOCAL_RANK LOCAL_WORLD_SIZE RANK WORLD_SIZE DDP_SOCKET_IFNAME DDP_JOIN DDP_JOIN_FILE
export DDP_TOKEN=a-token-of-this-test-only MASTER_ADDR=10.77.0.1
failures=0
check() { # what, command...
  if "${@:2}"; then echo "ok: $1"; else
    echo "FAILED: $1"
    failures=$((failures + 1))
    tail -n 30 "$work"/rank-*
  fi
}
