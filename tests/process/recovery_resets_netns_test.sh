# SPDX-License-Identifier: Apache-2.0
# A network that answers for hosts which it does not reach: every packet to them gets a reset, as from a firewall that rejects, or
# where an address has moved. Such an answer is no death: at most one part continues. Deaths that a rank of the same host has seen
# are. Ranks in network namespaces of their own, several on a host. Skipped unless root may make them.
worker=$DDP_BUILD_DIR/tests/chaos/chaos.survivor
. "$DDP_SOURCE_DIR/tests/process/netns_support.sh"
port=29800

# A host's own liar has all other addresses, and listens nowhere.
trap 'for host in 1 2 3 4; do ip netns del "$id-liar-$host" 2>/dev/null; done; clean' EXIT
for host in 1 2 3 4; do
  liar=$id-liar-$host
  ip netns add "$liar" && ip link add liar netns "$id-$host" type veth peer name back netns "$liar" &&
    ip -n "$id-$host" address add "10.78.$host.1/24" dev liar && ip -n "$liar" address add "10.78.$host.2/24" dev back &&
    ip -n "$id-$host" link set liar up && ip -n "$liar" link set back up && ip -n "$liar" link set lo up || exit 1
  ip -n "$liar" route add "10.77.0.$host/32" via "10.78.$host.1"
  for other in 1 2 3 4; do [ $other = $host ] || ip -n "$liar" address add "10.77.0.$other/32" dev lo; done
done
lie() { # hosts whose packets, hosts to which: reset from now on
  local from to
  for from in $1; do for to in $2; do ip -n "$id-$from" route add "10.77.0.$to/32" via "10.78.$from.2" src "10.77.0.$from"; done; done
}
reject() { lie "$1" "$2" && lie "$2" "$1"; }
heal() {
  local from to
  for from in 1 2 3 4; do for to in 1 2 3 4; do ip -n "$id-$from" route del "10.77.0.$to/32" via "10.78.$from.2" 2>/dev/null; done; done
}

start() { # the host of each rank, "half" or "", steps
  local rank=0 host
  heal
  port=$((port + 1))
  pids=()
  rm -f "$work"/rank-*
  for host in $1; do
    DDP_TEST_HOST=$host RANK=$rank LOCAL_RANK=0 WORLD_SIZE=$(echo "$1" | wc -w) MASTER_PORT=$port DDP_SOCKET_IFNAME=eth0 \
      timeout -s KILL 90 ip netns exec "$id-$host" "$worker" env:// - - "${3:-80}" $2 >"$work/rank-$rank" 2>&1 &
    pids+=($!)
    rank=$((rank + 1))
  done
  for _ in $(seq 600); do grep -q "step 10" "$work/rank-0" && break || sleep 0.1; done
}
finish() { wait "${pids[@]}"; }
kill_ranks() {
  local rank
  for rank in $1; do kill -KILL "$(pgrep -P "${pids[$rank]}" || echo "${pids[$rank]}")"; done
}
ended() { # ranks, text in their last lines
  local rank
  for rank in $1; do tail -n 1 "$work/rank-$rank" | grep -q "$2" || return 1; done
}
stories() { # ranks that agree, members at the end
  local all=() rank
  for rank in $1; do all+=("$(sed -n 's/^story //p' "$work/rank-$rank")"); done
  "$worker" check "${all[@]}" | grep -q "members at the end: $2$"
}

start "1 1 2 2 2" ""
reject 1 2
finish
check "three of five go on, without rank 0" stories "2 3 4" 28
check "the two with rank 0 end" ended "0 1" NO_MAJORITY

start "1 1 1 2 2" ""
reject 1 2
finish
check "three of five go on, with rank 0" stories "0 1 2" 7
check "the two without it end" ended "3 4" NO_MAJORITY

start "1 2" ""
reject 1 2
finish
check "of two hosts with a rank each none goes on" ended "0 1" NO_MAJORITY

start "1 2" half
reject 1 2
finish
check "unless half may, with rank 0" stories 0 1
check "then the other ends" ended 1 NO_MAJORITY

start "1 1 2 2 3" ""
reject 1 2
reject 1 3
reject 2 3
finish
check "of three parts none has the majority" ended "0 1 2 3 4" NO_MAJORITY

start "1 2 2 2 3" ""
reject 1 2
reject 1 3
reject 2 3
finish
check "of three parts the one with the majority goes on" stories "1 2 3" 14
check "the other two end" ended "0 4" NO_MAJORITY

start "1 2 3 4" ""
lie 4 "1 2 3"
finish
check "three of four go on without the one whose packets alone are reset" stories "0 1 2" 7
check "which ends" ended 3 NO_MAJORITY

start "1 2 2" ""
lie 1 2
finish
check "so they do without rank 0" stories "1 2" 6
check "which ends too" ended 0 NO_MAJORITY

start "1 1 2 2 2" "" 150
reject 1 2
sleep 0.4
heal
finish
check "a cut that is over at once leaves all, or the majority" eval 'stories "0 1 2 3 4" 31 || { stories "2 3 4" 28 && ended "0 1" "NO_MAJORITY\|FENCED"; }'

start "1 2 2 2" ""
kill_ranks "1 2"
finish
check "deaths that a rank of that host has seen leave any number" stories "0 3" 9

start "1 1 2 2" ""
kill_ranks "2 3"
finish
check "a host that dies as a whole is silent" ended "0 1" NO_MAJORITY

start "1 1 2 2" half
kill_ranks "2 3"
finish
check "unless half may, with rank 0" stories "0 1" 3
[ "$failures" = 0 ]
