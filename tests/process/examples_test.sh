# SPDX-License-Identifier: Apache-2.0
# The examples run on 1 to 4 ranks and print the lines of examples/README.md; training reaches its accuracy and resumes.
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
  run 0 -n $ranks "$examples/11_cpp"
  check "every_rank_of_$ranks in_C++_finds_the_line" [ "$(grep -c 'y = 3.00 x -1.00' "$work/out")" = "$ranks" ]
done

# The network of one process learns the same on several: losses are printed with four digits, and the last may be rounded otherwise.
close_to() { # file with the losses of one process, file with those of all ranks: each line of the second has the loss of its epoch
  awk 'NR == FNR { loss[$2] = $4; next } { for (i = 1; i < NF; ++i) if ($i == "epoch") { ++lines; d = loss[$(i + 1)] - $(i + 3); if (d < 0) d = -d; if (d > 0.0051) exit 1 } }
    END { exit lines < 3 }' "$1" "$2"
}
"$examples/one_to_four_before" "$DDP_SOURCE_DIR/examples/data/digits.csv" >"$work/one"
for ranks in 1 2 4; do
  run 0 -n $ranks "$examples/one_to_four_after" "$DDP_SOURCE_DIR/examples/data/digits.csv"
  check "12_lines_later_$ranks ranks_learn_what_one_process_learns" close_to "$work/one" "$work/out"
  check "and_rank_0_prints_it" [ "$(grep -c 'epoch 30' "$work/out")" = 1 ]
done
changes() { diff -U0 "$DDP_SOURCE_DIR/examples/one_to_four/before.c" "$DDP_SOURCE_DIR/examples/one_to_four/after.c" | grep '^[-+]' | grep -v -e '^---' -e '^+++' -e '^.\(/\*\| \*\)'; }
check it_takes_12_lines [ "$(changes | grep -c '^+')" = 12 ]
check README_shows_them same "$(awk '/^```diff/ { inside = 1; next } /^```/ { inside = 0 } inside' "$DDP_SOURCE_DIR/examples/README.md")" "$(changes)"

# Two runs are the same to the bit; so is a run that was interrupted and resumed on as many ranks.
weights() { grep -o 'weights of rank 0: .*' "$work/out"; }
run 0 -n 2 "$examples/02_train"
expected=$(weights)
run 0 -n 2 "$examples/02_train"
check two_runs_give_the_same_bits same "$(weights)" "$expected"
run 0 -n 4 "$examples/02_train" --checkpoint digits.2 --resume --epochs 22
check training_resumes_on_another_number_of_ranks grep -q 'resumed after epoch 20' "$work/out"

# Parts of a batch: the same weights and loss at any number of ranks, and without parts not.
result() { sed -n 's/^.*\(weights [0-9a-f]*, loss .*\)/\1/p' "$work/out"; }
run 0 -n 1 "$examples/10_same_bits"
expected=$(result)
check it_says_what_came_out [ -n "$expected" ]
for ranks in 2 3; do
  run 0 -n $ranks "$examples/10_same_bits"
  check "$ranks ranks_have_the_bits_of_one" same "$(result)" "$expected"
  run 0 -n $ranks "$examples/10_same_bits" --parts 0
  check "without_parts_$ranks ranks_have_others" [ "$(result)" != "$expected" ]
done

# Without a launcher a program gets an error that names the missing variable, or is the only rank; it never hangs.
code=0
env -u RANK -u WORLD_SIZE timeout 60 "$examples/01_all_reduce" >"$work/out" 2>"$work/err" || code=$?
check alone_it_ends [ "$code" -lt 2 ]
check alone_it_says_something [ -s "$work/out" -o -s "$work/err" ]

run 1 -n 2 "$examples/02_train" --data no-such-file
check missing_data_is_named grep -q 'no-such-file cannot be opened' "$work/err"
run 1 -n 2 "$examples/02_train" --resume --checkpoint no-such-file
check missing_checkpoint_is_named grep -q 'no-such-file' "$work/err"

# The example for GPUs, where it was built and the machine has none.
if [ -x "$examples/07_cuda" ] && [ ! -e /dev/nvidiactl ]; then
  run 1 -n 2 "$examples/07_cuda"
  check what_a_gpu_program_misses_is_said grep -q 'DDP_ERROR_NOT_SUPPORTED' "$work/err"
fi

# Example 9 continues when rank 0 is killed, and then alone; for the launcher that is a success.
process_of() { sed -n 's/^\[0\] epoch .* processes //p' "$work/out" | head -n 1 | cut -d ' ' -f "$1"; } # 1: rank 0's
losses() { sed -n 's/^\[[012]\] epoch *\([0-9]*\)  loss \([0-9.]*\) .*/\1 \2/p' "$work/out" | sort -n; }
fall() { losses | awk '{ rose = rose || (NR > 1 && $2 > 1.1 * last); if (NR == 1) first = $2; last = $2 } END { exit !(NR >= 36 && !rose && last < 0.2 * first) }'; }
survive() { # ddprun's options
  : >"$work/out" # which is read before the shell of the background has made it anew
  timeout -s KILL 60 "$ddprun" -n 3 "$@" "$examples/09_survive" --epochs 40 --pause 3 >"$work/out" 2>"$work/err" &
  pid=$!
  within 20 grep -q '^\[0\] epoch   5' "$work/out"
}
survive --min-ranks 1
kill -9 "$(process_of 1)"
within 20 grep -q '^\[1\] epoch  20' "$work/out"
kill -9 "$(process_of 3)"
code=0
wait "$pid" || code=$?
check a_training_that_survives_two_ranks_ends_well [ "$code" = 0 ]
check it_goes_on_without_rank_0 grep -q 'rank 0 of 2, which was rank 1 of 3, continues' "$work/out"
check it_says_who_is_gone grep -q '  rank 0 of before is gone' "$work/out"
# The line depends on whether a heartbeat arrived between the rank's first pass and its death.
check it_says_where_that_rank_was grep -Eq '  rank 0 was last heard .* s ago, (in pass [0-9]+, (in|behind) ddp_|before its first pass)' "$work/out"
check it_goes_on_alone grep -q 'rank 0 of 1, which was rank 0 of 2, continues' "$work/out"
check it_makes_all_epochs grep -q '^\[1\] epoch  40' "$work/out"
check nobody_else_is_left grep -q 'ranks that are left: 1, all equal' "$work/out"
check the_loss_falls fall

# A rank that is started again joins the others.
survive --max-restarts 1
kill -9 "$(process_of 2)"
code=0
wait "$pid" || code=$?
check a_training_whose_rank_starts_again_ends_well [ "$code" = 0 ]
check it_says_who_is_new grep -q '  rank 2 is new' "$work/out"
check it_joins_the_others grep -q 'rank 0 of 3, which was rank 0 of 2, continues' "$work/out"
check all_are_there_at_the_end grep -q 'ranks that are left: 3, all equal' "$work/out"
check the_loss_falls_there_too fall

# When all are killed, the next start continues from the newest checkpoint that is whole.
mkdir "$work/saved"
: >"$work/out"
timeout -s KILL 60 "$ddprun" -n 2 "$examples/09_survive" --epochs 1000 --pause 3 --folder "$work/saved" >"$work/out" 2>"$work/err" &
pid=$!
within 20 grep -q '^\[0\] epoch   5' "$work/out"
kill -9 "$(process_of 1)" "$(process_of 2)"
wait "$pid" || true
check three_checkpoints_stay [ "$(ls "$work/saved" | grep -c '^step-.*safetensors$')" = 3 ]
newest=$(ls "$work/saved"/step-*.safetensors | tail -n 1)
before=$(ls "$work/saved"/step-*.safetensors | tail -n 2 | head -n 1)
truncate -s -1 "$newest"
run 0 -n 3 "$examples/09_survive" --epochs $(($(basename "$newest" | tr -dc 0-9 | sed 's/^0*//') + 3)) --pause 0 --folder "$work/saved"
check the_newest_whole_checkpoint_is_taken grep -q "continues from $before" "$work/out"
check what_is_damaged_is_told grep -q "skipped a newer file: checkpoint \"$newest\": it is truncated" "$work/err"
check it_ends_with_all_ranks grep -q 'ranks that are left: 3, all equal' "$work/out"

# With too few ranks left the launcher starts all again, and they load by themselves.
mkdir "$work/again"
: >"$work/out"
timeout -s KILL 60 "$ddprun" -n 3 --min-ranks 2 --max-restarts 3 "$examples/09_survive" --epochs 30 --pause 3 --folder "$work/again" >"$work/out" 2>"$work/err" &
pid=$!
within 20 grep -q '^\[0\] epoch   5' "$work/out"
kill -9 "$(process_of 1)" "$(process_of 2)"
code=0
wait "$pid" || code=$?
check a_job_that_is_started_again_ends_well [ "$code" = 0 ]
check it_goes_on_from_its_newest_checkpoint grep -q "continues from $work/again/step-0000000000" "$work/out"
check all_ranks_are_there_again grep -q 'ranks that are left: 3, all equal' "$work/out"
check no_epoch_is_made_from_the_beginning [ "$(grep -c 'epoch   2 ' "$work/out")" = 1 ]

# A killed rank ends the job soon, with the reason from the library on the others.
SECONDS=0
: >"$work/out"
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
