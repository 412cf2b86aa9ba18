# SPDX-License-Identifier: Apache-2.0
# Restarts of torchrun on two hosts, as its agents make them: when a rank dies, both agents end their ranks and start them again, but only the
# agent of the one that died counts that. So the ranks of one start have different numbers of restarts, and the same port. The hosts are
# network namespaces; skipped unless root may make them.
worker=$DDP_BUILD_DIR/examples/02_train
. "$DDP_SOURCE_DIR/tests/process/netns_support.sh"

start() { # restarts that the agents of host 0 and of host 1 have counted, arguments: a round of four ranks, in pids
  local counts=("$1" "$2") rank host
  shift 2
  pids=()
  for rank in 0 1 2 3; do
    host=$((rank / 2))
    RANK=$rank LOCAL_RANK=$((rank % 2)) WORLD_SIZE=4 LOCAL_WORLD_SIZE=2 GROUP_RANK=$host MASTER_PORT=29500 \
      TORCHELASTIC_RUN_ID=job TORCHELASTIC_RESTART_COUNT=${counts[host]} TORCHELASTIC_USE_AGENT_STORE=False DDP_TEST_HOST=$host \
      OMP_NUM_THREADS=1 ip netns exec "$id-$((host + 1))" "$worker" "$@" >"$work/rank-$rank" 2>&1 &
    pids+=($!)
  done
}
all_end_well() {
  local pid code=0
  for pid in "${pids[@]}"; do wait "$pid" || code=1; done
  return "$code"
}
within() { # seconds, command...
  local end=$((SECONDS + $1))
  shift
  until "$@"; do
    [ "$SECONDS" -lt "$end" ] || return 1
    sleep 0.05
  done
}

start 0 0 --epochs 4000 --checkpoint "$work/first"
check "the first round trains" within 30 grep -qs 'epoch  2' "$work/rank-0"
kill -KILL "${pids[3]}"
check "its death is named" within 10 grep -q 'rank 3 .* is gone' "$work/rank-0"
kill -KILL "${pids[@]}" 2>/dev/null # agents end their ranks before they meet for the next round
wait "${pids[@]}" 2>/dev/null
for round in "0 1" "1 1" "1 2"; do
  # shellcheck disable=SC2086 # two numbers
  start $round --epochs 3 --checkpoint "$work/next"
  check "a round with $round restarts ends well" all_end_well
  check "all ranks are equal" grep -q 'all equal' "$work/rank-0"
done
exit $((failures > 0))
