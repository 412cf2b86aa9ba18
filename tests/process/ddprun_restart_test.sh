# SPDX-License-Identifier: Apache-2.0
# ddprun when ranks are started again, or the others continue without them. Needs no library.
. "$DDP_SOURCE_DIR/tests/process/ddprun_support.sh" || exit 1

export OMP_NUM_THREADS=1 work # then ddprun prints nothing about it

# --min-ranks: the others continue, and the job succeeds if enough do.
run 0 -n 3 --min-ranks 2 sh -c '[ $RANK = 1 ] && kill -9 $$; sleep 0.5; echo finished'
check the_others_go_on [ "$(grep -c finished "$work/out")" = 2 ]
check it_is_said note 'ranks 0, 2 may go on without rank 1'
check who_succeeded_is_said note 'ranks 0, 2 succeeded (--min-ranks)'
run 137 -n 3 --min-ranks 3 --grace 0.2 sh -c '[ $RANK = 1 ] && kill -9 $$; sleep 5; echo finished'
check too_few_end_the_job [ "$(grep -c finished "$work/out")" = 0 ]

# --max-restarts: a rank starts again to join the others, which are not disturbed.
run 0 -n 3 --max-restarts 2 sh -c 'echo "rank $RANK joins ${DDP_JOIN:-no} restarts ${DDP_RESTARTS:-0} file $DDP_JOIN_FILE"
  [ $RANK = 1 ] && [ -z "${DDP_JOIN:-}" ] && exit 3; sleep 2.5; echo "finished $RANK"'
check it_joins grep -q '\[1\] rank 1 joins 1 restarts 1 file /' "$work/out"
check its_output_is_shown grep -q '\[1\] finished 1' "$work/out"
check the_others_were_started_once [ "$(grep -c 'joins no' "$work/out")" = 3 ]
check the_restart_is_said note 'starting rank 1 again, to join ranks 0, 2 (restart 1 of 2)'
check the_story_is_told note 'restarts: 1'
check the_folder_is_removed eval '! ls -d "$(sed -n "s/.*file \(.*\)\/join$/\1/p" "$work/out" | head -1)" 2>/dev/null'

# Ranks that fail together are one restart, and if no rank is left all start again, not to join.
run 0 -n 3 --max-restarts 1 sh -c '[ -e "$work/again$RANK" ] || { : >"$work/again$RANK"; exit 5; }; echo "second ${DDP_JOIN:-no}"'
check all_start_again [ "$(grep -c 'second no' "$work/out")" = 3 ]
check that_is_said note 'too few ranks (--min-ranks) are left: starting all again (restart 1 of 1)'
run 5 -n 2 --max-restarts 1 --grace 0.2 sh -c 'exit 5'
check it_does_not_restart_for_ever note 'restarts: 1'
run 0 -n 4 --max-restarts 1 --min-ranks 3 --grace 0.3 sh -c '[ $DDP_RESTARTS ] || { [ $RANK -lt 2 ] && exit 6; sleep 20; }; echo "again $RANK"'
check the_rest_ends_first [ "$(grep -c 'again' "$work/out")" = 4 ]

# A rank that is started again when the others have ended has no rank to join.
run 0 -n 2 --max-restarts 1 --grace 0.2 sh -c '[ $RANK = 1 ] && [ -z "${DDP_JOIN:-}" ] && exit 3; [ $RANK = 0 ] && sleep 2 || sleep 30'
check it_must_exit note 'rank 1 cannot join ranks that have ended'
run 2 -n 2 --min-ranks 3 true
run 2 -n 2 --min-ranks 1 --keep-going true
check a_signal_ends_all eval '("$ddprun" -n 2 --max-restarts 5 sh -c "sleep 30" >/dev/null 2>&1 & p=$!; sleep 0.5; kill -TERM $p; wait $p; [ $? = 143 ])'
finish
