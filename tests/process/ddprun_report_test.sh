# SPDX-License-Identifier: Apache-2.0
# ddprun --report: the report of a real job, also of one that was started again and of one on two hosts, as JSON and as Chromium
# shows it. The line of progress on a terminal.
. "$DDP_SOURCE_DIR/tests/process/ddprun_support.sh" || exit 1
need_python "reads the reports"
unset DDP_WATCH_DIR
export TMPDIR="$work"  # the folders of jobs of other tests are not looked at

# A number of steps; the last rank begins each 20 ms late. With "die" rank 1 exits after the first steps of its first start, with
# "crash" in its first pass. With "gloo" the ranks use sockets.
cat >"$work/train.c" <<'C'
#include <ddp/ddp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
/* Late enough that ddprun, which reads ends that come at once in the order of ranks, has seen the rank that died. */
static int follow(int code) {
  fprintf(stderr, "%s\n", ddp_last_error());
  usleep(500000);
  return code;
}
int main(int argc, char** argv) {
  static float w[100000], grad[100000];
  const int steps = atoi(argv[1]), dies = argc > 2 && strcmp(argv[2], "die") == 0 && getenv("DDP_RESTARTS") == NULL;
  ddp_group* group;
  ddp_model* model;
  ddp_optimizer* sgd;
  ddp_group_options options;
  ddp_group_options_init(&options, sizeof options);
  if (argc > 2 && strcmp(argv[2], "gloo") == 0) options.backend = DDP_BACKEND_GLOO;
  if (ddp_group_create(NULL, &options, &group) != DDP_OK) return fprintf(stderr, "%s\n", ddp_last_error()), 1;
  const int rank = ddp_group_get_rank(group), last = rank == ddp_group_get_size(group) - 1;
  if (ddp_model_create(group, NULL, &model) != DDP_OK) return 1;
  if (ddp_model_add_array(model, "w", w, grad, 100000, NULL) != DDP_OK) return 1;
  if (ddp_model_commit(model, NULL) != DDP_OK) return 1;
  if (ddp_optimizer_create_sgd(model, NULL, NULL, &sgd) != DDP_OK) return 1;
  for (int step = 0; step < steps; ++step) {
    if (dies && step == 5 && ddp_group_barrier(group) == DDP_OK && rank == 1) _exit(3); /* all have made 5 steps */
    if (ddp_model_begin_backward(model, DDP_PASS_REDUCE) != DDP_OK) return follow(4);
    if (argc > 2 && strcmp(argv[2], "crash") == 0 && rank == 1) usleep(300000), _exit(5);
    if (last) usleep(20000);
    if (ddp_model_mark_ready(model, 0, NULL) != DDP_OK) return follow(4);
    if (ddp_model_end_backward(model, NULL) != DDP_OK) return follow(4);
    if (ddp_optimizer_step(sgd, NULL) != DDP_OK) return 1;
  }
  ddp_optimizer_destroy(sgd), ddp_model_destroy(model), ddp_group_destroy(group);
  return 0;
}
C
"${CC:-cc}" ${DDP_SANITIZE:+-fsanitize=$DDP_SANITIZE} -I "$DDP_SOURCE_DIR/include" -I "$DDP_BUILD_DIR/include" -o "$work/train" \
  "$work/train.c" "$DDP_LIBRARY" -Wl,-rpath,"$(dirname "$DDP_LIBRARY")" || exit 1

is() { # a Python expression over the report `r`
  python3 -c 'import json, sys
r = json.load(open(sys.argv[1]))
ranks = r["ranks"]
if not eval(sys.argv[2]): sys.exit("false: %s of %s" % (sys.argv[2], {k: v for k, v in r.items() if k != "samples"}))' "$work/r.json" "$1"
}
total='[x["counts"]["steps"] for x in ranks]'

says 0 where_it_is_is_said "the report is in $work/r.html, its numbers are in $work/r.json" -n 3 --report "$work/r.html" "$work/train" 40
check each_rank_made_all_steps is "$total == [40] * 3 and r['samples'][-1]['steps'] == 40"
check the_bytes_of_the_gradient_are_there is "ranks[1]['buckets']['gradient_bytes'] == 400000 and ranks[1]['buckets']['count'] == 1"
check the_rate_is_what_the_slow_rank_allows is "5 < r['figures']['per_second'] < 50"
check times_are_possible is "all(0 <= x['counts']['exposed_ns'] <= x['counts']['comm_ns'] <= r['seconds'] * 1e9 for x in ranks)"
check the_fast_ranks_waited is "ranks[0]['counts']['exposed_ns'] > 0.3e9"
check the_late_rank_is_the_straggler is "r['figures']['straggler'] == 2"
check memory_was_seen is "all(x['peak_memory_kib'] > 500 for x in ranks)"
check all_ended_well is "r['exit_code'] == 0 and [x['end'] for x in ranks] == ['exit code 0'] * 3 and r['world_size'] == 3"
check the_machine_is_named is "r['machine']['name'] == '$(hostname)' and ranks[1]['cores'] == r['machine']['cores'] >= 1"
check the_transport_is_named is "r['transport'] == 'shared memory' and ranks[2]['transport'] == 'shared memory'"
check the_page_names_it grep -q "shared memory" "$work/r.html"
check the_folder_of_the_job_is_gone eval '! ls -d "${TMPDIR:-/tmp}"/ddprun-*/rank-0.live 2>/dev/null'
if command -v chromium >/dev/null; then
  timeout 60 chromium --headless --no-sandbox --disable-gpu --dump-dom "file://$work/r.html" >"$work/dom" 2>/dev/null
  rate=$(python3 -c 'import json, sys
rate = json.load(open(sys.argv[1]))["figures"]["per_second"]
print("%.3g" % rate)' "$work/r.json")
  check a_browser_shows_the_rate grep -q "<dd>$rate</dd>" "$work/dom"
  check a_browser_shows_the_charts eval 'for id in throughput communication buckets memory ranks; do grep -q "id=\"$id\"" "$work/dom" || exit 1; done'
  check a_browser_draws_lines grep -q '<path class="line c0" d="M' "$work/dom"
else
  echo "not looked at in a browser: chromium is not installed"
fi

# Started again: work before the restart counts.
run 0 -n 2 --max-restarts 1 --min-ranks 2 --report "$work/r.html" "$work/train" 20 die
check both_lives_count is "$total == [25, 25] and [x['starts'] for x in ranks] == [2, 2] and r['restarts'] == 1"
check the_story_is_told is "any('rank 1 failed (exit code 3)' in e['text'] for e in r['events']) and len(r['events']) >= 2"
check the_page_tells_it grep -q 'starting ranks 0, 1 again' "$work/r.html"
run 3 -n 2 --report "$work/r.html" "$work/train" 20 die
check a_failure_has_a_report is "r['exit_code'] == 3 and ranks[1]['end'] == 'exit code 3' and ranks[1]['failed']"
run 0 -n 2 --report "$work/r.html" true
check a_program_without_libddp_has_one is "$total == [0, 0] and r['figures']['per_second'] is None"
check it_made_no_group is "r['figures']['no_pass'] == 'No rank made a group of libddp.'"
run 5 -n 2 --report "$work/r.html" "$work/train" 20 crash
check a_crash_in_the_first_pass_is_told_apart is "'ended before the end of its first pass' in r['figures']['no_pass']"
run 0 -n 2 --report "$work/r.html" "$work/train" 20 gloo
check gloo_is_named is "r['transport'] == 'Gloo'"

# Hosts, led as a whole and rank by rank.
make_ssh
run 0 --ssh "$work/shell" --hosts 127.0.0.1:2,localhost:1 --report "$work/r.html" "$work/train" 40
check ranks_of_hosts_are_in_it is "$total == [40] * 3 and [x['host'] for x in ranks] == ['127.0.0.1'] * 2 + ['localhost']"
check their_ends_are_known is "[x['end'] for x in ranks] == ['exit code 0'] * 3 and all(x['peak_memory_kib'] > 500 for x in ranks)"
check nothing_of_it_is_in_the_output same "$(grep -v 'the report is in\|OMP_NUM' "$work/err")$(cat "$work/out")" ''
run 0 --ssh "$work/shell" --hosts 127.0.0.1:2,localhost:1 --max-restarts 1 --min-ranks 3 --report "$work/r.html" "$work/train" 20 die
check both_lives_on_hosts_count is "$total == [25] * 3 and [x['starts'] for x in ranks] == [2] * 3"

# Refused before the job starts.
refused_file() { # pattern, file
  refused "$1" -n 1 --report "$2" touch "$work/started"
  check the_job_was_not_started [ ! -e "$work/started" ]
}
refused_file 'cannot be written: No such file' "$work/nowhere/r.html"
refused_file 'needs a file, not' "$work"
mkdir "$work/taken.json"
refused_file 'needs a file, not' "$work/taken.html"
echo old >"$work/old.html"
run 127 -n 1 --report "$work/old.html" "$work/no-such-program"
check an_old_report_stays_until_there_is_a_new_one same "$(cat "$work/old.html")" old

# While the last output waits for a reader, ddprun sleeps: looking at ranks is over.
mkfifo "$work/fifo"
{ sleep 4; cat; } <"$work/fifo" >/dev/null &
"$ddprun" -n 1 --report "$work/r.html" sh -c "head -c 300000 /dev/zero; : >$work/written" >"$work/fifo" 2>"$work/err" &
pid=$!
check the_rank_ends within 20 test -e "$work/written"
ticks() { cut -d' ' -f14,15 "/proc/$pid/stat" | tr ' ' +; }
sleep 0.5
before=$(($(ticks)))
sleep 1.5
check it_sleeps_until_the_reader_reads [ "$(($(ticks) - before))" -lt 20 ]
check and_ends ended 0

# On a terminal.
shown() { TERM=xterm terminal copy "$@"; }
late=', waiting for rank 1 ([0-9.]* %)'
progress="[0-9.]* steps/s, [0-9.]* % hidden\\($late\\)\\?, [0-9]* steps in [0-9.]* s"
check it_runs_on_a_terminal shown -n 2 "$work/train" 40
check progress_is_shown grep -q "$progress" "$work/out"
check the_late_rank_is_named grep -q "$late" "$work/out"
check nothing_of_it_stays eval '[ "$(tail -c 4 "$work/out" | od -An -c | tr -d " \n")" = "\\r033[K" ]'
check it_runs_quietly shown -n 2 --quiet "$work/train" 40
check quiet_leaves_it_out eval '! grep -q "steps/s" "$work/out"'
OUT=$work/file check it_runs_with_a_file shown -n 2 "$work/train" 40
check a_file_as_output_leaves_the_terminal_to_it grep -q "$progress" "$work/out"
OUT='|' check it_runs_with_a_pipe shown -n 2 "$work/train" 40
check behind_a_pipe_there_may_be_a_program_that_writes_there eval '! grep -q "steps/s" "$work/out"'
check it_runs_with_lines shown -n 2 sh -c "$work/train 40; echo done"
check lines_of_ranks_stand_alone eval '[ "$(tr -d "\r" <"$work/out" | sed "s/.*.\[K//" | grep -c "^.\[3[0-9]m\[[01]\].\[0m done$")" = 2 ]'
run 0 -n 2 "$work/train" 5
check without_a_terminal_there_is_none eval '! grep -q "steps/s" "$work/err" "$work/out"'
finish
