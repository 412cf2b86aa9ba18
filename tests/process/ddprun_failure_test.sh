# SPDX-License-Identifier: Apache-2.0
# ddprun when ranks fail: the rank that is named, the lines that are shown, the ends of the others. Needs no library.
. "$DDP_SOURCE_DIR/tests/process/ddprun_support.sh" || exit 1

export OMP_NUM_THREADS=1 # then ddprun prints nothing about it
run 7 -n 3 sh -c 'for i in $(seq 30); do echo "line $i of $RANK"; done
  [ $RANK = 1 ] && { echo "the reason" >&2; exit 7; }; [ $RANK = 0 ] && sleep 0.6; [ $RANK = 2 ] && sleep 0.4; exit 1'
grep '^ddprun' "$work/err" >"$work/report"
check first_failure_is_blamed grep -Eq '^ddprun: rank 1 failed first: exit code 7 after [0-9.]+ s, peak memory [0-9]+ MiB' "$work/report"
check its_last_lines_are_shown grep -q '^ddprun:   | the reason' "$work/report"
check twenty_lines_are_enough [ "$(grep -c '^ddprun:   | ' "$work/report")" = 20 ]
check the_others_are_told grep -q '^ddprun: rank 1 failed (exit code 7); ranks 0, 2 must exit within 5 s (--grace)$' "$work/report"
check the_report_begins_with_the_first_failure eval 'sed -n 2p "$work/report" | grep -q "rank 1 failed first"'
check the_others_are_named grep -q '^ddprun: then ranks 0, 2: exit code 1' "$work/report"

# A rank that crashes makes its peers exit with a code, perhaps before its own end is known.
peer_file=$work/peer run 139 -n 2 sh -c 'ulimit -c 0
  [ $RANK = 1 ] && { echo $$ >$peer_file.new; mv $peer_file.new $peer_file; exit 1; }
  until [ -e $peer_file ] && grep -q "^State:.Z" /proc/$(cat $peer_file)/status; do :; done
  kill -SEGV $$'
check a_signal_is_blamed_before_an_exit_code grep -q 'rank 0 failed first: killed by signal 11 (Segmentation fault, SIGSEGV)' "$work/err"

run 137 -n 2 sh -c '[ $RANK = 1 ] && kill -9 $$; exit 0'
check sigkill_speaks_of_memory grep -Eq "out-of-memory|memory ran out" "$work/err"
check silent_rank_is_said_to_be_silent grep -q 'rank 1 printed nothing' "$work/err"
says 5 the_report_does_not_control_the_terminal '  | \.\[2Jodd' -n 1 sh -c 'printf "\033[2Jodd\n"; exit 5'

# The others: grace, SIGTERM, SIGKILL.
SECONDS=0
run 4 -n 2 sh -c '[ $RANK = 0 ] && exit 4; sleep 0.5; echo ended by myself; exit 0'
check the_others_may_end_by_themselves grep -q '\[1\] ended by myself' "$work/out"
run 4 -n 3 --grace 0.2 sh -c '[ $RANK = 0 ] && exit 4; trap "echo got term; exit 9" TERM; sleep 60 & wait'
check after_the_grace_they_get_sigterm [ "$(grep -c 'got term' "$work/out")" = 2 ]
check ended_by_ddprun_is_said grep -q 'then ranks 1, 2: exit code 9 by ddprun' "$work/err"
check failing_jobs_end_soon [ "$SECONDS" -lt 15 ]
SECONDS=0
run 4 -n 2 --grace 0.1 sh -c '[ $RANK = 0 ] && exit 4; trap "" TERM; while :; do sleep 0.1; done'
check five_seconds_later_they_get_sigkill eval '[ "$SECONDS" -ge 4 ] && [ "$SECONDS" -le 9 ]'
check sigkill_is_said grep -q 'rank 1 did not exit after SIGTERM: sending SIGKILL' "$work/err"

# With --keep-going they have all the time they need.
run 0 -n 3 --grace 0.1 --keep-going sh -c '[ $RANK = 1 ] && kill -9 $$; sleep 0.5; echo finished'
check survivors_may_finish [ "$(grep -c finished "$work/out")" = 2 ]
check the_failure_is_reported_all_the_same grep -q 'rank 1 failed first: killed by signal 9' "$work/err"
check who_succeeded_is_said grep -q '^ddprun: ranks 0, 2 succeeded (--keep-going)' "$work/err"
run 137 -n 3 --keep-going sh -c '[ $RANK = 1 ] && kill -9 $$; sleep 0.5; exit 3'

# What a rank leaves behind ends with the job.
run 0 -n 2 sh -c 'sleep 60 >/dev/null 2>&1 & echo $!'
check nothing_is_left_running within 5 gone $(cut -d' ' -f2 "$work/out")
finish
