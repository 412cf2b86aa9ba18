# SPDX-License-Identifier: Apache-2.0
# New ranks come from hosts of their own (network namespaces) at each kind of rendezvous: to a group of two ranks on host 1 and one on host 2, then
# when rank 0 has died, then when no rank is left on host 1, whose address tcp:// and env:// name. There the last one gets an error with advice; a file and
# a store are found whichever ranks are left. A rank that joins at env:// has MASTER_ADDR, MASTER_PORT and the token, and nothing else. Four groups at once.
worker=$DDP_BUILD_DIR/tests/chaos/chaos.survivor
. "$DDP_SOURCE_DIR/tests/process/netns_support.sh" || exit 1
kinds="env tcp file store"
export MASTER_PORT=29640 DDP_TEST_WAIT_MS=60000
mkdir "$work/store"
declare -A started
declare -A place=([env]=env:// [tcp]=tcp://10.77.0.1:29660 [file]=file://$work/meet [store]=store://$work/store)

rank() { # kind, host, id, what else `worker` gets
  local interface=
  case $1 in file | store) interface=eth0 ;; esac # there is no default route, so rank 0 needs the interface on which others find it
  DDP_SOCKET_IFNAME=$interface DDP_TEST_HOST=$2 ip netns exec "$id-$2" "$worker" "${@:4}" >"$work/rank-$1-$3" 2>&1 &
  started[$1-$3]=$!
  pids+=($!)
}
newcomers() { # host, id, kinds
  local kind
  for kind in ${3-$kinds}; do rank "$kind" "$1" "$2" "${place[$kind]}" join "$2" "$work/end-$kind"; done
}
said() { # kind, id, text
  for _ in $(seq 300); do grep -q "$3" "$work/rank-$1-$2" && return 0 || sleep 0.1; done
  return 1
}
all_committed() { # kinds, id
  local kind
  for kind in $1; do said "$kind" "$2" committed || return 1; done
}
die() { # id
  local kind
  for kind in $kinds; do kill -KILL "${started[$kind-$1]}"; done
}
stories_agree() { # kind, ids, members at the end
  local all=() each
  for each in $2; do all+=("$(sed -n 's/^story //p' "$work/rank-$1-$each")"); done
  "$worker" check "${all[@]}" | grep -q "members at the end: $3$"
}

for kind in $kinds; do
  truncate -s 64 "$work/end-$kind"
  for each in "1 0" "1 1" "2 2"; do
    read -r host number <<<"$each"
    if [ "$kind" = env ]; then
      RANK=$number LOCAL_RANK=0 WORLD_SIZE=3 rank env "$host" "$number" env:// - - "$work/end-env"
    else
      rank "$kind" "$host" "$number" "${place[$kind]}" "$number" 3 "$work/end-$kind"
    fi
  done
done
check "the first three meet" all_committed "$kinds" 2
newcomers 3 3
check "a rank of another host joins" all_committed "$kinds" 3
die 0
newcomers 4 4
check "one more joins when rank 0 has died" all_committed "$kinds" 4
die 1
newcomers 4 5 "file store"
DDP_TEST_WAIT_MS=1000 newcomers 4 5 "env tcp"
check "a file and a store are found when nobody is left on host 1" all_committed "file store" 5
for kind in env tcp; do
  check "at $kind:// it is said that nobody is left on host 1" said "$kind" 5 "TIMED_OUT.* 10.77.0.1:296.0 .*no rank of it is left on that host"
done
for kind in $kinds; do "$worker" end "$work/end-$kind"; done
wait "${pids[@]}"
for kind in env tcp; do check "the others of $kind:// have made the same steps" stories_agree "$kind" "2 3 4" 28; done
for kind in file store; do check "all of $kind:// have made the same steps" stories_agree "$kind" "2 3 4 5" 60; done
[ "$failures" = 0 ]
