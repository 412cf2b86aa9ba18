# SPDX-License-Identifier: Apache-2.0
# Network namespaces as hosts, joined by a bridge: groups choose shared memory inside a "host" and rails over the virtual network between
# them, wherever the ranks are placed, or sockets alone where ranks share nothing. Links are encrypted where the group has a token. The hosts
# are distinguished by DDP_TEST_HOST, because all namespaces run on one kernel. Skipped unless root may make namespaces.
worker=$DDP_BUILD_DIR/tests/test.process.hierarchy
. "$DDP_SOURCE_DIR/tests/process/netns_support.sh"
export DDP_LOG=info WORLD_SIZE
port=29500

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

train 1122 "shared memory inside 2 hosts, 2 rails over Gloo between them, encrypted"
train 1112 "shared memory inside 2 hosts, 1 rail over Gloo between them, encrypted"
train 1234 "Gloo between all ranks, 4 hosts with one rank each, encrypted"
train 1212 "shared memory inside 2 hosts, 2 rails"
DDP_LINKS=plain train 1122 "2 rails over Gloo between them, plain"
export DDP_INSECURE=1
unset DDP_TOKEN
train 1122 "2 rails over Gloo between them, plain"
check "a group without a token says that nothing is encrypted" grep -q 'without a token nothing is encrypted' "$work/rank-0"
exit $((failures > 0))
