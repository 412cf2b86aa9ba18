# SPDX-License-Identifier: Apache-2.0
# ddprun --hosts over real connections: an sshd in each of two network namespaces. A job starts, trains and ends, and however it ends nothing
# stays on any host. The same by hand with --nnodes. Skipped unless root may make namespaces and there is an sshd.
. "$DDP_SOURCE_DIR/tests/process/sshd_support.sh"
two=10.77.0.1:1,10.77.0.2:1

# A training of two ranks on each host.
check "a training over ssh ends well" over 0 --hosts 10.77.0.1:2,10.77.0.2:2 "$worker" --epochs 2
check "all ranks have the same weights" said 'all equal'
check "each rank is heard" [ "$(grep -c 'weights of rank' "$work/rank-out")" = 4 ]
check "the token is in no list of arguments" over 0 --hosts $two sh -c 'echo "${#DDP_TOKEN} $(ps -eo args | awk "index(\$0, ENVIRON[\"DDP_TOKEN\"])" | wc -l)"'
check "although there is one" [ "$(sort "$work/rank-out")" = $'[0] 64 0\n[1] 64 0' ]
check "a failure is the exit code" over 7 --hosts $two --grace 1 sh -c '[ $RANK = 1 ] && exit 7; exec sleep 60'
check "the host is named" said 'host 10.77.0.2 failed first: exit code 7'
check "the same with addresses of IPv6" over 0 --hosts '[fd77::1]:1,[fd77::2]:1' "$worker" --epochs 1
check "which are used" over 0 --hosts '[fd77::1]:1,[fd77::2]:1' sh -c '[ "$MASTER_ADDR" = fd77::1 ]'
check "a host where nobody listens ends the job" eval 'ssh="$ssh -o ConnectionAttempts=1" over 255 --hosts 10.77.0.1:1,10.77.0.3:1 --grace 1 sleep 60'
check "what ssh said is there" said 'ssh: connect to host 10.77.0.3'

# By hand: the same line on each host.
export DDP_TOKEN=0123456789abcdef0123456789abcdef
for host in 2 1; do
  DDP_TEST_HOST=$host on $host timeout 60 "$ddprun" --nnodes 2 --node-rank $((host - 1)) --rendezvous 10.77.0.1:29500 -n 2 "$worker" --epochs 2 \
    >"$work/rank-hand$host" 2>&1 &
  hand[host]=$!
done
check "by hand the first host succeeds" wait "${hand[1]}"
check "by hand the second host succeeds" wait "${hand[2]}"
check "they have trained together" grep -q 'all equal' "$work/rank-hand1"
unset DDP_TOKEN

# However it ends, nothing stays. Each rank writes its own number and that of ddprun on its host.
sleepers() { # arguments
  rm -f "$work/numbers"
  begin --hosts $two --grace 1 "$@" sh -c 'echo $RANK $$ $PPID >>'"$work/numbers"'; exec sleep 100'
  within 20 lines "$work/numbers" 2
}
ranks() { cut -d' ' -f2 "$work/numbers"; }
launcher_of() { sed -n "s/^$1 [0-9]* //p" "$work/numbers"; }
nothing_stays() { gone $(cut -d' ' -f2,3 "$work/numbers"); }

check "both hosts run" sleepers
kill -INT "$job"
check "Ctrl-C is the exit code" ended 130
check "Ctrl-C ends the ranks" within 5 nothing_stays
rm -f "$work/numbers"
begin --hosts $two --grace 50 sh -c 'trap "" INT; echo $RANK $$ $PPID >>'"$work/numbers"'; while :; do sleep 0.1; done'
within 20 lines "$work/numbers" 2
kill -INT "$job"
check "ranks may ignore one Ctrl-C" within 5 eval 'sleep 0.3; ! gone $(ranks)'
kill -INT "$job"
check "the second one is the exit code" ended 130
check "and ends them" within 5 nothing_stays

check "both hosts run once more" sleepers
kill -KILL "$job"
check "ranks end when ddprun is killed" within 10 nothing_stays
check "they run for the next" sleepers
kill -KILL "$(launcher_of 1)"
check "ddprun that is killed on a host ends the job" ended 255
check "and all ranks" within 10 nothing_stays
check "it is explained" said 'or when ddprun is killed there'
check "they run for the connection" sleepers
kill -KILL "$(ps -o ppid= -p "$(launcher_of 1)" | tr -d ' ')"
check "a connection whose sshd is killed ends the job" ended 255
check "and the ranks there" within 10 nothing_stays

# The host is cut off: neither side receives a byte about it.
check "they run for the cut" sleepers --silence 3
ip -n "$id-net" link set to2 down
cut_at=$SECONDS
check "a host that is cut off ends the job" ended 255
check "its ranks end themselves" within 12 nothing_stays
check "after the silence, not before" [ $((SECONDS - cut_at)) -ge 3 ]
ip -n "$id-net" link set to2 up
exit $((failures > 0))
