# SPDX-License-Identifier: Apache-2.0
# Signals to ddprun: passed on, second interrupt, ignored ones, stop and continue. Needs no library.
. "$DDP_SOURCE_DIR/tests/process/ddprun_support.sh" || exit 1

for signal in INT TERM HUP QUIT USR1 USR2; do
  case $signal in USR*) code=0 ;; *) code=$((128 + $(kill -l $signal))) ;; esac
  start -n 3 sh -c "trap 'echo got $signal; exit 0' $signal; echo ready; sleep 60 & wait"
  within 20 lines "$work/out" 3
  kill -$signal "$pid"
  check "a_job_stopped_by_${signal}_says_so_even_if_its_ranks_end_well" ended $code
  check "${signal}_reaches_every_rank" [ "$(grep -c "got $signal" "$work/out")" = 3 ]
done

start -n 2 sh -c 'echo ready; exec sleep 60'
within 20 lines "$work/out" 2
kill -TERM "$pid"
check ranks_that_die_of_it_give_its_code ended 143
check the_report_says_that_a_signal_stopped_the_job grep -q 'stopped by SIGTERM; rank [01] ended first: killed by signal 15' "$work/err"

start -n 2 --grace 0.5 sh -c 'trap "" TERM; echo ready; while :; do sleep 0.05; done'
within 20 lines "$work/out" 2
SECONDS=0
kill -TERM "$pid"
check ranks_that_ignore_sigterm_are_killed_after_the_grace ended 143
check and_not_much_later [ "$SECONDS" -le 4 ]
check what_comes_is_said grep -q 'SIGTERM: sent on to ranks 0, 1; SIGKILL follows after 0.5 s (--grace)' "$work/err"
start -n 2 sh -c 'trap "sleep 1; echo saved; exit 0" TERM; echo ready; while :; do sleep 0.05; done'
within 20 lines "$work/out" 2
kill -TERM "$pid"
check ranks_may_save_in_the_grace ended 143
check they_have_saved [ "$(grep -c saved "$work/out")" = 2 ]
start -n 2 sh -c '[ $RANK = 1 ] && exit 7; trap "exit 0" INT; echo ready; while :; do sleep 0.05; done'
within 20 grep -q 'rank 1 failed' "$work/err"
within 20 lines "$work/out" 1
kill -INT "$pid"
check a_failure_before_the_signal_gives_its_own_code ended 7

start -n 2 sh -c 'trap "" INT; echo ready; while :; do sleep 0.05; done'
within 20 lines "$work/out" 2
kill -INT "$pid"
sleep 0.3
check ranks_may_ignore_an_interrupt eval '! gone "$pid"'
kill -INT "$pid"
check a_second_interrupt_kills ended 130

start -n 2 --grace 0.5 sh -c '[ $RANK = 1 ] && trap "" TERM; echo ready; while :; do sleep 0.05; done'
within 20 lines "$work/out" 2
kill -TERM "$pid"
check a_rank_that_ignores_the_end_is_killed_after_the_grace ended 143

# A reader that takes nothing (a pager that is not scrolled) does not delay the end of the job.
mkfifo "$work/fifo"
sleep 60 <"$work/fifo" &
reader=$!
env --default-signal=INT,QUIT "$ddprun" -n 2 sh -c "touch $work/runs.\$RANK; exec yes" >"$work/fifo" 2>"$work/err" &
pid=$!
within 20 test -e "$work/runs.0" -a -e "$work/runs.1"
sleep 0.3 # the pipe fills
kill -TERM "$pid"
check a_reader_that_takes_nothing_does_not_hold_the_end ended 143
kill "$reader"

# nohup: SIGHUP stays ignored.
(trap '' HUP; exec "$ddprun" -n 1 env --default-signal=HUP sh -c 'echo ready; sleep 0.5; echo done' >"$work/out" 2>"$work/err") &
pid=$!
within 20 lines "$work/out" 1
kill -HUP "$pid"
check an_ignored_hangup_stays_ignored ended 0

# Stopped and continued.
start -n 2 --env GO="$work/go" sh -c 'echo $$; until [ -e "$GO" ]; do sleep 0.05; done' # so no rank ends before it is stopped
within 20 lines "$work/out" 2
ranks=$(cut -d' ' -f2 "$work/out")
kill -TSTP "$pid"
stopped() { # process ids
  local each
  for each in "$@"; do grep -q '^State:.T' "/proc/$each/status" 2>/dev/null || return 1; done
}
check stop_stops_launcher_and_ranks within 10 stopped "$pid" $ranks
kill -CONT "$pid"
touch "$work/go"
check they_go_on_together ended 0
finish
