# SPDX-License-Identifier: Apache-2.0
# ddprun --metrics: the file of a real job, read by a parser that knows nothing of ddprun, also while a rank is killed, where a process has
# several groups, and of ranks on two hosts. The program's own numbers in that file, in the report and in the line of progress.
. "$DDP_SOURCE_DIR/tests/process/ddprun_support.sh" || exit 1
need_python "reads the metrics"
unset DDP_WATCH_DIR

# Makes steps of about 5 ms for the given number of milliseconds. With "die" rank 1 kills itself halfway in its first start. With "groups" the
# process has another group, and a sub-group, which log too.
cat >"$work/train.c" <<'C'
#include <ddp/experimental.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
int main(int argc, char** argv) {
  static float w[1000], grad[1000];
  const int steps = atoi(argv[1]) / 5, dies = argc > 2 && strcmp(argv[2], "die") == 0 && getenv("DDP_RESTARTS") == NULL;
  const int several = argc > 2 && strcmp(argv[2], "groups") == 0;
  ddp_group *group, *other = NULL, *part = NULL;
  ddp_model* model;
  ddp_optimizer* sgd;
  if (ddp_group_create("env://#main", NULL, &group) != DDP_OK) return fprintf(stderr, "%s\n", ddp_last_error()), 1;
  const int rank = ddp_group_get_rank(group);
  if (several && ddp_group_create("env://#other", NULL, &other) != DDP_OK) return fprintf(stderr, "%s\n", ddp_last_error()), 1;
  if (several && ddp_group_split(group, 0, -rank, NULL, &part) != DDP_OK) return fprintf(stderr, "%s\n", ddp_last_error()), 1;
  if (ddp_model_create(group, NULL, &model) != DDP_OK) return 1;
  if (ddp_model_add_array(model, "w", w, grad, 1000, NULL) != DDP_OK) return 1;
  if (ddp_model_commit(model, NULL) != DDP_OK) return 1;
  if (ddp_optimizer_create_sgd(model, NULL, NULL, &sgd) != DDP_OK) return 1;
  for (int step = 0; step < steps; ++step) {
    usleep(5000);
    if (dies && rank == 1 && step == steps / 2) raise(SIGKILL);
    if (ddp_model_begin_backward(model, DDP_PASS_REDUCE) != DDP_OK) return 4;
    if (ddp_model_mark_ready(model, 0, NULL) != DDP_OK) return 4;
    if (ddp_model_end_backward(model, NULL) != DDP_OK) return 4;
    if (ddp_optimizer_step(sgd, NULL) != DDP_OK) return 4;
    if (ddp_group_log_metric(group, "train/loss", rank == 0 ? -step : NAN) != DDP_OK) return 5;
    if (other != NULL && ddp_group_log_metric(other, "of-other", 10 + rank) != DDP_OK) return 5;
    if (part != NULL && ddp_group_log_metric(part, "of-part", 20 + rank) != DDP_OK) return 5;
  }
  ddp_optimizer_destroy(sgd), ddp_model_destroy(model);
  if (other != NULL) ddp_group_destroy(part), ddp_group_destroy(other);
  ddp_group_destroy(group);
  return 0;
}
C
"${CC:-cc}" ${DDP_SANITIZE:+-fsanitize=$DDP_SANITIZE} -I "$DDP_SOURCE_DIR/include" -I "$DDP_BUILD_DIR/include" -o "$work/train" \
  "$work/train.c" "$DDP_LIBRARY" -lm -Wl,-rpath,"$(dirname "$DDP_LIBRARY")" || exit 1

file=$work/m.prom
is() { python3 "$DDP_SOURCE_DIR/tests/process/openmetrics.py" "$file" "$1"; } # an expression over m(name, label=value)
followed() { # expected exit code, arguments: each version of the file is well-formed, and no counter falls
  local code=$1
  shift
  rm -f "$file"
  timeout -s KILL 60 "$ddprun" "$@" >"$work/out" 2>"$work/err" &
  local job=$! found=0 ended=0
  python3 "$DDP_SOURCE_DIR/tests/process/openmetrics.py" "$file" --follow "$job" >"$work/versions" 2>&1 || found=1
  wait "$job" || ended=$?
  [ "$ended" = "$code" ] || echo "exit code $ended"
  [ "$found" = 0 ] || cat "$work/versions"
  [ "$found $ended" = "0 $code" ]
}

check "a job writes it again and again" followed 0 -n 2 --metrics "$file" --report "$work/r.html" "$work/train" 3000
check "steps and passes are those of the ranks" is "m('ddp_steps_total') == [600, 600] and m('ddp_passes_total', rank='1') == [600]"
check "seconds are seconds" is "0.01 < min(m('ddp_backward_seconds_total')) and max(m('ddp_backward_seconds_total')) < m('ddp_job_run_seconds')[0] < 60"
check "memory is in bytes" is "all(x > 500_000 for x in m('ddp_peak_memory_bytes'))"
check "the labels are rank, host and group" is "m('ddp_up', rank='1', host='$(hostname)', group='main') == [0]"
check "the program's numbers are there" is "m('ddp_program_value', rank='0', name='train/loss') == [-599] and m('ddp_program_values_total') == [600, 600]"
check "NaN is a value" is "str(m('ddp_program_value', rank='1', name='train/loss')) == '[nan]'"
check "the end is told" is "m('ddp_job_exit_code') == [0] and m('ddp_job_ranks') == [2] and m('ddp_job_running_ranks') == [0]"
check "no other file is left" same "$(ls "$work" | grep -c 'm\.prom')" 1
check "the report has them" python3 -c 'import json, sys
r = json.load(open(sys.argv[1]))
own = [rank["program"]["train/loss"] for rank in r["ranks"]]
assert own == [{"last": -599, "times": 600}, {"last": None, "times": 600}], own
assert all(rank["group"] == "main" for rank in r["ranks"]) and "train/loss" in r["samples"][-2]["program"], r["samples"][-2]' "$work/r.json"

check "a killed rank leaves it whole" followed 137 -n 2 --metrics "$file" "$work/train" 5000 die
check "and is counted" is "m('ddp_steps_total', rank='1')[0] >= 400 and m('ddp_job_exit_code') == [137]"
check "ranks that are started again continue their counts" followed 0 -n 2 --max-restarts 1 --min-ranks 2 --metrics "$file" "$work/train" 2000 die
check "over both starts" is "m('ddp_starts_total') == [2, 2] and m('ddp_steps_total', rank='0')[0] > 400"

check "several groups of a process" followed 0 -n 2 --metrics "$file" "$work/train" 3000 groups
check "all of them log" is "m('ddp_program_value', name='of-other') == [10, 11] and m('ddp_program_value', name='of-part') == [20, 21]"

make_ssh
check "two hosts" followed 0 --ssh "$work/shell" --hosts 127.0.0.1:2,localhost:1 --metrics "$file" "$work/train" 3000
check "have their names" is "m('ddp_steps_total', host='127.0.0.1') == [600, 600] and m('ddp_steps_total', host='localhost', rank='2') == [600]"
check "and their numbers" is "m('ddp_program_value', rank='0', name='train/loss') == [-599] and len(m('ddp_program_value')) == 3"
check "hosts that are led rank by rank" followed 0 --ssh "$work/shell" --hosts 127.0.0.1:2,localhost:1 --max-restarts 1 --min-ranks 3 \
  --metrics "$file" "$work/train" 2000 die
check "have both starts" is "m('ddp_starts_total') == [2, 2, 2]"

run 0 -n 2 --metrics "$file" true
check "a program without libddp has a file" is "m('ddp_steps_total') == [0, 0] and m('ddp_program_value') == []"
refused "--metrics: the file $work/none/m cannot be written" -n 1 --metrics "$work/none/m" touch "$work/started"
check "the job was not started" [ ! -e "$work/started" ]

check "it runs on a terminal" eval 'TERM=xterm terminal copy -n 1 "$work/train" 2000'
check "the line of progress has the number" grep -q "steps in [0-9.]* s, train/loss -[0-9]" "$work/out"
finish
