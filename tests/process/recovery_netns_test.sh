# SPDX-License-Identifier: Apache-2.0
# A network that is cut: ranks in network namespaces of their own, on two bridges after the cut. The side with the majority continues; of two
# halves the one with rank 0, if that was allowed; never both. Skipped unless root may make namespaces.
worker=$DDP_BUILD_DIR/tests/chaos/chaos.survivor
. "$DDP_SOURCE_DIR/tests/process/netns_support.sh"
ip -n "$id-net" link add other type bridge && ip -n "$id-net" link set other up || exit 1
port=29600

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
check "the one that is cut off ends" ended 3 NO_MAJORITY
cut 4 "0" ""
check "three of four go on without rank 0" stories "1 2 3" 14
check "rank 0 ends" ended 0 NO_MAJORITY
cut 4 "2 3" half
check "of two halves the one with rank 0 goes on" stories "0 1" 3
check "the other half ends" eval 'ended 2 NO_MAJORITY && ended 3 NO_MAJORITY'
cut 4 "2 3" ""
check "without leave no half goes on" eval 'ended 0 NO_MAJORITY && ended 1 NO_MAJORITY && ended 2 NO_MAJORITY && ended 3 NO_MAJORITY'
cut 2 "1" half
check "of two ranks rank 0 goes on" eval 'stories 0 1 && ended 1 NO_MAJORITY'
[ "$failures" = 0 ]
