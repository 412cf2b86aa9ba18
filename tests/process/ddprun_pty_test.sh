# SPDX-License-Identifier: Apache-2.0
# ddprun shows the lines of an unchanged program as a terminal would: at once, also a line without end, and none is lost when the
# program is killed. Needs no library.
. "$DDP_SOURCE_DIR/tests/process/ddprun_support.sh" || exit 1

shows() { grep -q -- "$1" "$work/out"; } # a pattern

# A program in C without changes: no fflush, no setvbuf.
cat >"$work/speak.c" <<'C'
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
int main(int argc, char** argv) {
  const char* what = argc > 1 ? argv[1] : "";
  printf("before the end\n");
  if (strcmp(what, "kill") == 0) raise(SIGKILL);
  if (strcmp(what, "segv") == 0) raise(SIGSEGV);
  if (strcmp(what, "wait") == 0) sleep(60);
  printf("ready\n");
  sleep(60);
}
C
"${CC:-cc}" -o "$work/speak" "$work/speak.c" || exit 1
ulimit -c 0

run 137 -n 2 --grace 0.1 "$work/speak" kill
check last_words_before_sigkill same "$(sort "$work/out")" $'[0] before the end\n[1] before the end'
run 139 -n 1 "$work/speak" segv
check last_words_before_sigsegv same "$(cat "$work/out")" '[0] before the end'
check they_are_in_the_report grep -q '  | before the end' "$work/err"
run 124 -n 1 --timeout 0.5 "$work/speak" wait
check last_words_before_the_timeout same "$(cat "$work/out")" '[0] before the end'
start -n 1 "$work/speak"
check lines_come_at_once within 20 shows '^\[0\] ready$'
kill -INT "$pid"
check an_interrupt_ends_it ended 130
start -n 1 --output-dir "$work/files" "$work/speak"
check lines_reach_files_at_once within 20 grep -qs ready "$work/files/rank-0/stdout.txt"
kill -TERM "$pid"
check sigterm_ends_it ended 143
start -n 1 --no-pty "$work/speak"
sleep 0.5
check no_pty_leaves_a_program_its_buffer same "$(cat "$work/out")" ''
kill -TERM "$pid"
check sigterm_ends_it_too ended 143

# What a rank finds.
run 0 -n 1 sh -c 'test -t 1 && test -t 2 && ! test -t 0 && stty -a <&1'
check outputs_are_terminals_that_change_nothing eval 'grep -q -- "-opost" "$work/out" && grep -q -- "-echo " "$work/out"'
run 0 -n 1 --no-pty sh -c '! test -t 1 && ! test -t 2'
if unshare -m true 2>/dev/null; then # a system without pseudo-terminals
  unshare -m sh -c "mount -t tmpfs none /dev/pts && exec '$ddprun' -n 1 sh -c 'test -t 1 || echo pipe'" >"$work/out" 2>"$work/err"
  check without_pseudo_terminals_there_are_pipes same "$(cat "$work/out")" '[0] pipe'
fi
TERM=xterm prints programs_learn_that_the_output_is_a_file '[0] dumb 1 cat' -n 1 sh -c 'echo "$TERM $NO_COLOR $PAGER"'
TERM=xterm FORCE_COLOR=1 prints colours_may_be_forced '[0] xterm' -n 1 sh -c 'echo "$TERM"'
prints env_may_choose_them '[0] vt100 more' -n 1 --env TERM=vt100 --env PAGER=more sh -c 'echo "$TERM $PAGER"'
run 0 -n 12 sh -c 'stty size <&1'
check a_program_knows_the_width_that_is_left same "$(sort -u -k2 "$work/out" | cut -d' ' -f2-)" '24 75'
run 0 -n 1 sh -c 'setsid sh -c "echo x >/dev/stdout; ps -o tty= -p \$\$ || echo \"?\""'
check outputs_become_nobodys_controlling_terminal same "$(tr -d ' ' <"$work/out")" $'[0]x\n[0]?'

# Lines without end.
start -n 1 sh -c 'printf "name? "; exec sleep 60'
check a_prompt_is_shown within 20 shows '^\[0\] name? $'
kill -KILL "$pid"
wait "$pid" 2>/dev/null
start -n 1 sh -c "printf 'one '; until [ -e $work/go ]; do sleep 0.05; done; echo two; echo three"
check a_part_is_shown within 20 shows '^\[0\] one $'
touch "$work/go"
check and_it_ends ended 0
check and_continued_in_place same "$(cat "$work/out")" $'[0] one two\n[0] three'
rm "$work/go"
start -n 2 sh -c "printf \"one\$RANK \"; until [ -e $work/go ]; do sleep 0.05; done; echo two"
check parts_of_two_ranks_are_shown within 20 eval 'shows "^\[0\] one0 $" && shows "^\[1\] one1 $"'
touch "$work/go"
check and_they_end ended 0
check an_interrupted_line_comes_whole_at_its_end eval 'shows "^\[0\] one0 two$" && shows "^\[1\] one1 two$"'
check nothing_else_is_shown eval '! grep -Evq "^\[([01])\] one\1 (two)?$" "$work/out"'
start -n 2 --no-prefix sh -c 'printf one; sleep 0.9; echo two'
check without_prefixes_lines_stay_whole_for_others ended 0
check whole_they_are same "$(cat "$work/out")" $'onetwo\nonetwo'
run 0 -n 2 sh -c 'i=0; while [ $i -lt 1500 ]; do printf x; i=$((i+1)); [ $((i % 500)) != 0 ] || sleep 0.9; done; echo'
check a_long_line_is_continued_not_repeated [ "$(tr -dc x <"$work/out" | wc -c)" = 3000 ]
prints a_last_line_without_end_gets_one '[0] no end' -n 1 printf 'no end'

# Progress bars.
bar='for i in 1 2 3 4 5 6; do printf "\r$RANK: $i of 6 "; sleep 0.1; done; [ "$1" = kill ] && kill -9 $$; echo'
run 0 -n 2 sh -c "$bar"
check a_bar_begins_with_its_rank eval '! grep -Evq "^\[([01])\] \1: [1-6] of 6 $" "$work/out"'
check a_bar_shows_its_last_state_once eval '[ "$(grep -c "6 of 6" "$work/out")" = 2 ]'
check a_bar_does_not_fill_a_file eval '[ "$(wc -l <"$work/out")" -le 6 ]'
run 137 -n 1 sh -c "$bar" sh kill
check a_killed_bar_shows_its_last_state grep -q '^\[0\] 0: 6 of 6 $' "$work/out"
run 0 -n 1 --no-prefix sh -c "$bar"
check without_prefixes_a_bar_passes_unchanged same "$(tr '\r' '|' <"$work/out")" '|0: 1 of 6 |0: 2 of 6 |0: 3 of 6 |0: 4 of 6 |0: 5 of 6 |0: 6 of 6 '
prints a_line_is_what_a_terminal_would_show $'[0] dos\n[0] over\n[0] end' -n 1 printf 'dos\r\nlong line\rover\nend\r\n'

# A terminal: its text at the end, and how many rows were ever written.
command -v python3 >/dev/null || finish
on_screen() { TERM=xterm NO_COLOR=1 OMP_NUM_THREADS=1 terminal screen "$@"; }
on_screen -n 3 sh -c "$bar"
check bars_of_many_ranks_take_one_row same "$(sort "$work/out")" $'[0] 0: 6 of 6 \n[1] 1: 6 of 6 \n[2] 2: 6 of 6 '
on_screen -n 2 sh -c 'printf "part$RANK "; sleep 0.6; echo end$RANK'
check a_part_leaves_no_trace_on_a_terminal same "$(sort "$work/out")" $'[0] part0 end0\n[1] part1 end1'
on_screen -n 1 sh -c 'echo $TERM'
check ranks_know_the_terminal same "$(cat "$work/out")" '[0] xterm'
finish
