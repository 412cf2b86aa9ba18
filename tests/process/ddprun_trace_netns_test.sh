# SPDX-License-Identifier: Apache-2.0
# ddprun --trace over hosts that are network namespaces: one file, with clocks that were compared. Skipped unless root may make namespaces, and
# without the module for several hosts.
worker=$DDP_BUILD_DIR/bin/ddprun
. "$DDP_SOURCE_DIR/tests/process/netns_support.sh"
. "$DDP_SOURCE_DIR/tests/process/trace_support.sh" || exit 1
unset MASTER_ADDR DDP_TOKEN
printf '#!/bin/sh\nexec ip netns exec "$ID-${1##*.}" env DDP_TEST_HOST="$1" sh -c "$2"\n' >"$work/shell"
chmod +x "$work/shell"
export ID=$id

hosts() { # arguments; output in rank-0
  timeout -s KILL 60 "$worker" --ssh "$work/shell" --hosts 10.77.0.1:2,10.77.0.2:2 --trace "$work/trace.json" "$@" >"$work/rank-0" 2>&1
}
same() { [ "$1" = "$2" ] || { echo "got $1, expected $2"; false; }; }
clocks() { # hosts, and how far their clocks may be wrong, in microseconds
  python3 - "$work/trace.json" <<'READER'
import json, sys
ranks = json.load(open(sys.argv[1]))["otherData"]["ranks"]
print(len({rank["host"] for rank in ranks}), all(0 <= rank["clock_error_us"] < 20000 for rank in ranks), ranks[0]["clock_error_us"], ranks[3]["clock_error_us"] > 0)
READER
}

hosts "$work/train"
code=$?
if grep "libddp_gloo" "$work/rank-0"; then exit 77; fi
check "the job succeeds" [ "$code" = 0 ]
check "all ranks are in one file" same "$(for rank in 0 1 2 3; do count "$rank" weight; done | tr '\n' ' ')" "3 3 3 3 "
check "nothing of it is misunderstood" sound
check "calls stand in their order" in_order 1
check "their clocks are compared" same "$(clocks | sed 's/^[0-9]* //')" "True 0.0 True"
hosts "$work/train" 3
check "a rank that died on another host is in it" same "$(count 3 weight) $(count 3 ddp_model_end_backward)" "3 2"
check "the others, too" [ "$(count 0 weight)" -ge 2 ]
exit $((failures > 0))
