# SPDX-License-Identifier: Apache-2.0
# ddprun's output: prefixes, whole lines under load, long lines, binary output, closed streams, files. Needs no library.
. "$DDP_SOURCE_DIR/tests/process/ddprun_support.sh" || exit 1
export OMP_NUM_THREADS=1 # then ddprun prints nothing about it
prints stdout_stays_stdout '[0] to stdout' -n 1 sh -c 'echo to stdout; echo to stderr >&2'
check stderr_stays_stderr same "$(cat "$work/err")" '[0] to stderr'
prints no_prefix_leaves_lines_alone $'plain\nplain' -n 2 --no-prefix echo plain
prints_sorted a_last_line_without_end_gets_one $'[0] first\n[0] no end\n[1] first\n[1] no end' -n 2 printf 'first\nno end'
check no_colours_outside_a_terminal eval '! grep -q "$(printf "\033")" "$work/out"'
prints empty_lines_are_kept $'[0] a\n[0] \n[0] b' -n 1 printf 'a\n\nb\n'

# Every line arrives whole, once, in the order of its rank, although stdout and stderr share one pipe.
timeout 60 "$ddprun" -n 8 awk 'BEGIN { for (i = 0; i < 20000; ++i) {
  printf "%d %s\n", i, substr("xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx", 1, i % 56)
  if (i % 7 == 0) printf "%d error\n", i > "/dev/stderr" } }' 2>&1 | cat >"$work/out"
check heavy_output_is_complete [ "$(wc -l <"$work/out")" = $((8 * (20000 + 2858))) ]
check heavy_output_has_only_whole_lines eval '! grep -Evq "^\[[0-7]\] [0-9]+ (x*|error)$" "$work/out"'
check lines_of_a_rank_keep_their_order eval 'grep "^\[5\] [0-9]* x*$" "$work/out" | cut -d" " -f2 | cmp -s - <(seq 0 19999)'

run 0 -n 2 awk 'BEGIN { for (i = 0; i < 300000; ++i) printf "x"; print "" }'
check long_lines_stay_whole same "$(awk '{ print length($2) }' "$work/out")" $'300000\n300000'
run 0 -n 2 sh -c 'head -c 5000000 /dev/zero | tr "\0" y'
check endless_lines_lose_nothing [ "$(tr -dc y <"$work/out" | wc -c)" = 10000000 ]
check endless_lines_are_cut_with_prefixes [ "$(grep -c '^\[[01]\] y' "$work/out")" = "$(wc -l <"$work/out")" ]
head -c 3000000 /dev/urandom >"$work/bytes"
timeout 60 "$ddprun" -n 1 --no-prefix cat "$work/bytes" >"$work/copy"
check binary_output_passes_unchanged_without_prefix cmp -s "$work/bytes" "$work/copy"
timeout 60 "$ddprun" -n 1 --no-prefix cat <"$work/bytes" | cat >"$work/copy"
check binary_output_passes_through_pipes cmp -s "$work/bytes" "$work/copy"
run 0 -n 1 printf 'a\000b\377c\n'
check prefixed_lines_keep_any_byte eval 'printf "[0] a\000b\377c\n" | cmp -s - "$work/out"'

run 0 -n 2 sh -c 'exec >&-; exec 2>&-; [ $RANK = 1 ] || sleep 0.2'
run 0 -n 64 sh -c 'echo $RANK'
check sixty_four_ranks_speak same "$(cut -d' ' -f2 "$work/out" | sort -n)" "$(seq 0 63)"

# A reader that leaves does not end the ranks.
timeout 60 "$ddprun" -n 2 sh -c "for i in 1 2 3 4 5 6 7 8 9; do seq 10000; done; touch $work/done.\$RANK" 2>"$work/err" | head -n 1 >"$work/out"
check a_reader_that_leaves_does_not_end_the_ranks [ -e "$work/done.0" -a -e "$work/done.1" ]
check a_reader_that_leaves_is_reported grep -q 'stdout takes no more output' "$work/err"
# A reader that is slow gets everything.
timeout 60 "$ddprun" -n 2 seq 200000 | { sleep 0.5; cat >"$work/out"; }
check a_slow_reader_gets_everything lines "$work/out" 400000

# Output of a process that outlives its rank (a tee in the background) is shown.
prints late_lines_are_heard '[0] late' -n 1 sh -c '(sleep 0.2; echo late) & exit 0'

run 0 -n 2 --output-dir "$work/a/b" sh -c 'echo out $RANK; echo err >&2'
check a_folder_holds_each_ranks_output same "$(cat "$work/a/b/rank-1/stdout.txt")" 'out 1'
check and_its_errors same "$(cat "$work/a/b/rank-1/stderr.txt")" 'err'
check files_replace_the_terminal same "$(cat "$work/out" "$work/err")" ''
run 0 -n 2 --output-dir "$work/a" --show all sh -c 'echo out $RANK; echo err >&2'
check files_and_terminal same "$(sort "$work/out" "$work/a/rank-0/stdout.txt")" $'[0] out 0\n[1] out 1\nout 0'
check files_and_errors_on_the_terminal same "$(sort "$work/err" "$work/a/rank-0/stderr.txt")" $'[0] err\n[1] err\nerr'
prints one_rank_can_be_shown '[0] x' -n 4 --show 0 echo x
prints_sorted some_ranks_can_be_shown $'[1] x\n[3] x\n[4] x' -n 5 --show 1,3-4 echo x
says 5 the_report_shows_a_hidden_rank '^ddprun:   | why' -n 2 --show none sh -c '[ $RANK = 0 ] || { echo why; exit 5; }'
check a_hidden_rank_is_hidden same "$(cat "$work/out")" ''
run 0 -n 2 --show 1 --no-prefix cat "$work/bytes"
check one_shown_rank_passes_its_bytes_unchanged cmp -s "$work/bytes" "$work/out"
run 0 -n 2 --output-dir "$work/a" cat "$work/bytes"
check files_hold_bytes_unchanged cmp -s "$work/bytes" "$work/a/rank-1/stdout.txt"
says 125 folder_that_cannot_be_made_is_named '/dev/null/x' -n 1 --output-dir /dev/null/x true
if [ -w /dev/full ]; then
  "$ddprun" -n 1 echo x >/dev/full 2>"$work/err"
  check full_disk_is_reported grep -q 'stdout takes no more output (No space left on device)' "$work/err"
fi
# script gives a terminal.
if command -v script >/dev/null; then
  TERM=xterm NO_COLOR='' script -qec "$ddprun -n 2 echo x" /dev/null </dev/null >"$work/out" 2>&1
  check prefixes_have_colours_on_a_terminal grep -q "$(printf '\033\[36m\[0\]\033\[0m x')" "$work/out"
  TERM=xterm NO_COLOR=1 script -qec "$ddprun -n 2 echo x" /dev/null </dev/null >"$work/out" 2>&1
  check no_color_is_respected grep -q '^\[0\] x' "$work/out"
fi
finish
