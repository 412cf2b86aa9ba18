# Network namespaces as hosts, joined by a bridge: groups choose shared memory inside a "host" and rails over the virtual network between
# them, wherever the ranks are placed, or sockets alone where ranks share nothing. The hosts are told apart by DDP_TEST_HOST, because all
# namespaces run on one kernel. Skipped unless root may make namespaces.
worker=$DDP_BUILD_DIR/tests/test.process.hierarchy
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

unset LOCAL_RANK LOCAL_WORLD_SIZE RANK WORLD_SIZE DDP_SOCKET_IFNAME
export MASTER_ADDR=10.77.0.1 DDP_TOKEN=a-token-of-this-test-only DDP_LOG=info WORLD_SIZE
port=29500
failures=0
check() { # what, command...
  if "${@:2}"; then echo "ok: $1"; else
    echo "FAILED: $1"
    failures=$((failures + 1))
    cat "$work"/rank-*
  fi
}

train() { # the host of each rank, then what rank 0 must log
  local placement=$1 wanted=$2 rank=0 good=0
  WORLD_SIZE=${#placement}
  port=$((port + 1)) # the last group's port may be in its final wait
  pids=()
  rm -f "$work"/rank-*
  while [ "$rank" -lt "$WORLD_SIZE" ]; do
    local host=${placement:rank:1}
    RANK=$rank MASTER_PORT=$port DDP_TEST_HOST=$host timeout -s KILL 60 ip netns exec "$id-$host" "$worker" --worker \
      >"$work/rank-$rank" 2>&1 </dev/null &
    pids+=($!)
    rank=$((rank + 1))
  done
  for pid in "${pids[@]}"; do wait "$pid" && good=$((good + 1)); done
  pids=()
  if grep '^skipped' "$work/rank-0"; then exit 77; fi # no Gloo module
  check "$placement: all ranks succeed" [ "$good" = "$WORLD_SIZE" ]
  check "$placement: sums agree over Gloo" [ "$(grep -c 'sums agree over GLOO' "$work"/rank-* | grep -c ':1$')" = "$WORLD_SIZE" ]
  check "$placement: $wanted" grep -q "$wanted" "$work/rank-0"
}

train 1122 "shared memory inside 2 hosts, 2 rails over Gloo between them"
train 1112 "shared memory inside 2 hosts, 1 rail over Gloo between them"
train 1234 "Gloo between all ranks, 4 hosts with one rank each"
train 1212 "shared memory inside 2 hosts, 2 rails"
exit $((failures > 0))
