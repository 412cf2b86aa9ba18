# SPDX-License-Identifier: Apache-2.0
# What a network does to a training besides a cut: packets that are lost one way only, a link that is slow, queues and drops,
# connections that are reset. Ranks in network namespaces of their own. Skipped unless root may make them.
worker=$DDP_BUILD_DIR/tests/chaos/chaos.survivor
. "$DDP_SOURCE_DIR/tests/process/netns_support.sh"
port=29700

start() { # ranks, steps
  local rank
  port=$((port + 1))
  ranks=$1
  pids=()
  rm -f "$work"/rank-*
  for ((rank = 0; rank < $1; ++rank)); do
    DDP_TEST_HOST=$rank RANK=$rank LOCAL_RANK=0 WORLD_SIZE=$1 MASTER_PORT=$port timeout -s KILL 90 ip netns exec "$id-$((rank + 1))" \
      "$worker" env:// - - "$2" >"$work/rank-$rank" 2>&1 &
    pids+=($!)
  done
}
await() { # rank, text
  for _ in $(seq 600); do grep -q "$2" "$work/rank-$1" && return || sleep 0.1; done
}
ended() { # rank, text in its last line
  tail -n 1 "$work/rank-$1" | grep -q "$2"
}
stories() { # ranks that agree, members at the end
  local all=()
  for rank in $1; do all+=("$(sed -n 's/^story //p' "$work/rank-$rank")"); done
  "$worker" check "${all[@]}" | grep -q "members at the end: $2$"
}

# what rank 2 sends vanishes, what is sent to it arrives
start 4 80
await 0 "step 10"
tc -n "$id-3" qdisc replace dev eth0 root blackhole
wait "${pids[@]}"
tc -n "$id-3" qdisc del dev eth0 root
check "of four ranks three go on without the one that is not heard" stories "0 1 3" 11
check "the one that is not heard ends" ended 2 NO_MAJORITY

# 4 Mbit/s with a queue of up to 200 ms, which drops what does not fit: slow is not dead
for host in 1 2 3; do tc -n "$id-$host" qdisc replace dev eth0 root tbf rate 4mbit burst 5kb latency 200ms || exit 1; done
start 3 6
wait "${pids[@]}"
for host in 1 2 3; do tc -n "$id-$host" qdisc del dev eth0 root; done
check "a slow network loses nobody" stories "0 1 2" 7
check "and nothing had to recover" eval '! grep -q recovered "$work"/rank-*'

# a middlebox forgets the connections of rank 1, and resets them
start 3 80
await 0 "step 10"
if ip netns exec "$id-2" ss -K -t dst 10.77.0.1 >/dev/null 2>&1 && [ -n "$(ip netns exec "$id-2" ss -K -t dst 10.77.0.3 2>&1)" ]; then
  wait "${pids[@]}"
  for rank in 0 1 2; do ended $rank story || ended $rank "FENCED\|NO_MAJ\|PEER" || check "rank $rank says what has happened" false; done
  check "who is left has the weights of the replay" eval 'stories "0 1 2" 7 || stories "0 2" 5'
else
  wait "${pids[@]}"
  echo "skipped: this kernel cannot reset connections (ss -K)"
fi
[ "$failures" = 0 ]
