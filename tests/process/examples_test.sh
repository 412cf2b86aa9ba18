# The examples run on 1 to 4 ranks and print what examples/README.md says; training reaches its accuracy and resumes.
. "$DDP_SOURCE_DIR/tests/process/ddprun_support.sh" || exit 1
examples=$DDP_BUILD_DIR/examples
[ -x "$examples/02_train" ] || {
  echo "the examples are not built"
  exit 77
}
cd "$work" || exit 1

accurate() { # is the accuracy on the last line but one at least 96 %?
  awk '/test accuracy/ { for (i = 1; i <= NF; ++i) if ($i == "accuracy") found = $(i + 1) >= 96 } END { exit !found }' "$work/out"
}

for ranks in 1 2 3 4; do
  run 0 -n $ranks "$examples/01_all_reduce"
  sum=$((ranks * (ranks + 1) / 2))
  check sums_are_right [ "$(grep -c "the sums are $sum and ${sum}0" "$work/out")" = "$ranks" ]
  run 0 -n $ranks "$examples/02_train" --checkpoint digits.$ranks
  check "training_on_$ranks ranks_reaches_96_percent" accurate
  check every_rank_has_the_same_weights grep -q 'all equal' "$work/out"
  check every_rank_shows_its_hash [ "$(grep -c 'weights of rank' "$work/out")" = "$ranks" ]
  check a_checkpoint_is_written [ -s digits.$ranks ]
  run 0 -n $ranks "$examples/03_accumulate"
  check parts_equal_the_whole grep -q 'equal to the gradient at once' "$work/out"
  check only_last_parts_communicate grep -q '300 passes were opened, 120 of them communicated' "$work/out"
  run 0 -n $ranks "$examples/04_uneven"
  check "unequal_data_on_$ranks ranks_give_the_result_of_one_process" grep -q 'equal to one process with all samples' "$work/out"
  run 0 -n $ranks "$examples/05_schedule"
  check "linear_scaling_on_$ranks ranks_finds_the_weights" grep -Eq 'mean mistake of the weights: 0\.0[0-4]' "$work/out"
  run 0 -n $ranks "$examples/06_checkpoint" state.$ranks
  check resuming_changes_no_bit grep -q 'equal to the bit' "$work/out"
  run 0 -n $ranks "$examples/08_own_optimizer" own.$ranks
  check "own_rules_on_$ranks ranks_give_the_same_bits_divided_and_resumed" [ "$(grep -c 'equal to the bit' "$work/out")" = 2 ]
  check "own_rules_on_$ranks ranks_arrive" [ "$(grep -Ec 'mean distance 0\.0[0-4]' "$work/out")" = 2 ]
done

# Two runs are the same to the bit; so is a run that was interrupted and resumed on as many ranks.
weights() { grep -o 'weights of rank 0: .*' "$work/out"; }
run 0 -n 2 "$examples/02_train"
expected=$(weights)
run 0 -n 2 "$examples/02_train"
check two_runs_give_the_same_bits same "$(weights)" "$expected"
run 0 -n 4 "$examples/02_train" --checkpoint digits.2 --resume --epochs 22
check training_resumes_on_another_number_of_ranks grep -q 'resumed after epoch 20' "$work/out"

# Without a launcher a program is told what is missing, or is the only rank; never a hang.
code=0
env -u RANK -u WORLD_SIZE timeout 60 "$examples/01_all_reduce" >"$work/out" 2>"$work/err" || code=$?
check alone_it_ends [ "$code" -lt 2 ]
check alone_it_says_something [ -s "$work/out" -o -s "$work/err" ]

run 1 -n 2 "$examples/02_train" --data no-such-file
check missing_data_is_named grep -q 'no-such-file cannot be opened' "$work/err"
run 1 -n 2 "$examples/02_train" --resume --checkpoint no-such-file
check missing_checkpoint_is_named grep -q 'no-such-file' "$work/err"

# The example for GPUs, where it was built and there is none.
if [ -x "$examples/07_cuda" ] && [ ! -e /dev/nvidiactl ]; then
  run 1 -n 2 "$examples/07_cuda"
  check what_a_gpu_program_misses_is_said grep -q 'DDP_ERROR_NOT_SUPPORTED' "$work/err"
fi

# Example 9 goes on when rank 0 is killed, and then alone.
survive() { # rank
  exec timeout -s KILL 60 "$examples/09_survive" --meet "file://$work/meet" --rank "$1" --ranks 3 --epochs 40 --pause 3
}
(survive 0 >out.0 2>&1) & first=$!
(survive 1 >out.1 2>&1) & second=$!
(survive 2 >out.2 2>&1) & third=$!
of_rank() { awk -v field=$((6 + $1)) '/^epoch/ { print $field; exit }' out.0; } # its process
within 30 grep -q '^epoch   5' out.0
kill -9 "$(of_rank 0)"
within 30 grep -q '^epoch  20' out.1
kill -9 "$(of_rank 2)"
code=0
wait "$second" || code=$?
wait "$first" "$third"
cat out.1 >"$work/out"
check the_rank_that_is_left_ends_well [ "$code" = 0 ]
check it_went_on_as_two_and_alone grep -q 'rank 0 of 2, which was rank 1 of 3, goes on' out.1
check and_alone grep -q 'rank 0 of 1, which was rank 0 of 2, goes on' out.1
check it_is_equal_to_itself grep -q 'ranks that are left: 1, all equal' out.1
check the_last_epoch_is_reached grep -q '^epoch  40' out.1
check no_epoch_is_left_out_but_where_a_report_failed [ "$(sort -u out.0 out.1 | grep -c '^epoch')" -ge 38 ]
losses() { grep -h '^epoch' out.0 out.1 | sort -k2n | awk '{ print $4 }'; }
check the_loss_falls awk '{ if (NR == 1) first = $1; last = $1; if ($1 > 1.1 * before && NR > 1) rose = 1; before = $1 } END { exit !(last < 0.6 * first && !rose) }' <(losses)

# A killed rank ends the job soon, with the reason from the library on the others.
SECONDS=0
timeout -s KILL 60 "$ddprun" -n 3 sh -c 'echo "pid $$"; exec "$0" --epochs 100000' "$examples/02_train" >"$work/out" 2>"$work/err" &
pid=$!
within 20 grep -q 'epoch  2' "$work/out"
kill -9 "$(sed -n 's/^\[1\] pid //p' "$work/out")"
code=0
wait "$pid" || code=$?
check a_killed_rank_gives_the_exit_code [ "$code" = 137 ]
check the_killed_rank_is_blamed grep -q 'rank 1 failed first: killed by signal 9' "$work/err"
check the_library_names_it_too grep -Eq '^\[[02]\] .*DDP_ERROR_PEER_FAILED.*rank 1' "$work/err"
finish
