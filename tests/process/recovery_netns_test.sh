# A network that is cut: ranks in network namespaces of their own, on two bridges after the cut. The side with the majority goes on; of two
# halves the one with rank 0, if that was allowed; never both. Skipped unless root may make namespaces.
worker=$DDP_BUILD_DIR/tests/chaos/chaos.survivor
[ -x "$worker" ] || {
  echo "$worker is not built"
  exit 77
}
if [ "$(id -u)" != 0 ] || ! command -v ip >/dev/null; then
  echo "network namespaces need root and the program ip"
  exit 77
fi
id=ddpr$$
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
  ip netns add "$id-net" || return 1
  for bridge in bridge other; do ip -n "$id-net" link add "$bridge" type bridge && ip -n "$id-net" link set "$bridge" up || return 1; done
  for host in $(seq "$1"); do
    ip netns add "$id-$host" &&
      ip link add "eth0" netns "$id-$host" type veth peer name "to$host" netns "$id-net" &&
      ip -n "$id-net" link set "to$host" master bridge up &&
      ip -n "$id-$host" address add "10.78.0.$host/24" dev eth0 &&
      ip -n "$id-$host" link set eth0 up && ip -n "$id-$host" link set lo up || return 1
  done
}
if ! make_hosts 4 2>"$work/why"; then
  echo "network namespaces cannot be made here: $(head -1 "$work/why")"
  exit 77
fi

unset LOCAL_RANK LOCAL_WORLD_SIZE RANK WORLD_SIZE DDP_SOCKET_IFNAME DDP_JOIN DDP_JOIN_FILE
export DDP_TOKEN=a-token-of-this-test-only MASTER_ADDR=10.78.0.1
port=29600
failures=0
check() { # what, command...
  if "${@:2}"; then echo "ok: $1"; else
    echo "FAILED: $1"
    failures=$((failures + 1))
    tail -n 5 "$work"/rank-*
  fi
}

cut() { # ranks, those that lose the network, "half" or ""; waits for the end
  local ranks=$1 away=$2 half=$3 rank
  port=$((port + 1))
  pids=()
  rm -f "$work"/rank-*
  for host in 1 2 3 4; do ip -n "$id-net" link set "to$host" master bridge; done
  for ((rank = 0; rank < ranks; ++rank)); do
    DDP_TEST_HOST=$rank RANK=$rank LOCAL_RANK=0 WORLD_SIZE=$ranks MASTER_PORT=$port timeout -s KILL 60 ip netns exec "$id-$((rank + 1))" \
      "$worker" env:// - - 80 $half >"$work/rank-$rank" 2>&1 &
    pids+=($!)
  done
  for _ in $(seq 300); do grep -q "step 10" "$work/rank-0" && break || sleep 0.1; done
  for rank in $away; do ip -n "$id-net" link set "to$((rank + 1))" master other; done
  wait "${pids[@]}"
}
ended() { # rank, text in its last line
  tail -n 1 "$work/rank-$1" | grep -q "$2"
}
stories() { # ranks that agree, members at the end
  local all=()
  for rank in $1; do all+=("$(sed -n 's/^story //p' "$work/rank-$rank")"); done
  "$worker" check "${all[@]}" | grep -q "members at the end: $2$"
}

cut 4 "3" ""
check "three of four go on" stories "0 1 2" 7
check "the one that is cut off ends" ended 3 TOO_FEW_RANKS
cut 4 "0" ""
check "three of four go on without rank 0" stories "1 2 3" 14
check "rank 0 ends" ended 0 TOO_FEW_RANKS
cut 4 "2 3" half
check "of two halves the one with rank 0 goes on" stories "0 1" 3
check "the other half ends" eval 'ended 2 TOO_FEW_RANKS && ended 3 TOO_FEW_RANKS'
cut 4 "2 3" ""
check "without leave no half goes on" eval 'ended 0 TOO_FEW_RANKS && ended 1 TOO_FEW_RANKS && ended 2 TOO_FEW_RANKS && ended 3 TOO_FEW_RANKS'
cut 2 "1" half
check "of two ranks rank 0 goes on" eval 'stories 0 1 && ended 1 TOO_FEW_RANKS'
[ "$failures" = 0 ]
