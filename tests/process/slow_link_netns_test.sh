# SPDX-License-Identifier: Apache-2.0
# A slow link is not a dead one: the ranks of four hosts add up 4 MiB while one host's link takes far longer than timeout_ms for each message
# and for the whole, and none gives up. Skipped unless root may make namespaces.
worker=$DDP_BUILD_DIR/tests/test.process.hierarchy
. "$DDP_SOURCE_DIR/tests/process/netns_support.sh"
port=29800

add_up() { # leaves good, how many ranks ended well
  port=$((port + 1))
  good=0
  pids=()
  rm -f "$work"/rank-*
  for host in 1 2 3 4; do
    WORLD_SIZE=4 RANK=$((host - 1)) MASTER_PORT=$port DDP_TEST_HOST=$host timeout -s KILL 60 ip netns exec "$id-$host" "$worker" --worker 1000 \
      >"$work/rank-$((host - 1))" 2>&1 </dev/null &
    pids+=($!)
  done
  for pid in "${pids[@]}"; do wait "$pid" && good=$((good + 1)); done
  pids=()
  if grep '^skipped' "$work/rank-0"; then exit 77; fi # no Gloo module
}

tc -n "$id-4" qdisc replace dev eth0 root tbf rate 16mbit burst 16kb latency 200ms || {
  echo "this kernel has no tbf"
  exit 77
}
begin=$(date +%s%N)
add_up
took=$((($(date +%s%N) - begin) / 1000000))
check "all ranks wait for the slow link ($took ms)" [ "$good" = 4 ]
check "which took longer than their patience" [ "$took" -gt 3000 ]
exit $((failures > 0))
