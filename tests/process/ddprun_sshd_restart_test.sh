# SPDX-License-Identifier: Apache-2.0
# A training on two hosts that continues when ranks, ddprun on a host, or a host's connection die, rank 0 with them: started again over ssh, they
# join the others. Skipped unless root may make namespaces and there is an sshd.
. "$DDP_SOURCE_DIR/tests/process/sshd_support.sh"
worker=$DDP_BUILD_DIR/examples/09_survive

pid_of() { # rank: the process that has it, where it leads on both hosts
  pgrep -f "^$worker --epochs 4000 " | while read -r pid; do
    tr '\0' '\n' <"/proc/$pid/environ" 2>/dev/null | grep -qx "RANK=$1" && echo "$pid"
  done | tail -n 1
}
epochs() { sed -n 's/.*epoch  *\([0-9]*\) .*/\1/p' "$work/rank-out" 2>/dev/null | tail -n 1; }
goes_on() { # with this number of processes, for five more epochs
  local from
  from=$(epochs)
  within 25 eval "[ \"\$(grep -s 'processes' $work/rank-out | tail -n 1 | sed 's/.*processes//' | wc -w)\" = $1 ] && [ \"\$(epochs)\" -gt $((${from:-0} + 4)) ]"
}

begin --hosts 10.77.0.1:2,10.77.0.2:1 --max-restarts 5 --grace 2 --silence 6 "$worker" --epochs 4000 --pause 5
check "three ranks train" goes_on 3
kill -KILL "$(pid_of 2)"
check "a rank of the other host is started again and joins" within 20 said 'starting rank 2 again, to join ranks 0, 1 (restart 1 of 5)'
check "the three go on" goes_on 3
kill -KILL "$(pid_of 0)"
check "so is rank 0, whose host it is" within 20 said 'starting rank 0 again, to join ranks 1, 2 (restart 2 of 5)'
check "the three go on, led from the other host or not" goes_on 3
kill -KILL "$(pgrep -o -f "^$ddprun --led --node-rank 1 ")" # the oldest: a child of it guards its ranks under the same name
check "a host is called again when ddprun dies there" within 30 said 'starting rank 2 again, to join ranks 0, 1 (restart 3 of 5)'
check "it rests before, because it flaps" said 'host 10.77.0.2 failed again soon after a start, and rests for 10 s'
check "the three go on once more" goes_on 3
kill -TERM "$job"
check "a signal ends all" ended 143
check "the story names who died" said 's  rank 0 (host 10.77.0.1) failed (killed by signal 9'
check "nothing stays" within 10 eval '[ -z "$(pgrep -f "^$worker --epochs 4000 ")" ]'

# A rank that is the only one of its host: that it has ended, ddprun there tells the others.
for dies in 1 0; do
  begin --hosts 10.77.0.1:1,10.77.0.2:1 --min-ranks 1 --grace 2 --silence 6 "$worker" --epochs 4000 --pause 5
  check "two ranks on two hosts train" goes_on 2
  kill -KILL "$(pid_of $dies)"
  check "of two hosts with a rank each the other one goes on" goes_on 1
  kill -TERM "$job"
  check "a signal ends all of this" ended 143
done
exit $((failures > 0))
