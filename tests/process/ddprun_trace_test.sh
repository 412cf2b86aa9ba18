# SPDX-License-Identifier: Apache-2.0
# ddprun --trace: the file of all ranks, with those that were killed, and with both processes of a place that was started again.
. "$DDP_SOURCE_DIR/tests/process/ddprun_support.sh"

cat >"$work/train.c" <<'PROGRAM'
#include <ddp/experimental.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>

/* Three passes; rank `argv[1]` kills itself behind the mark of the third, unless it was started again. */
int main(int argc, char **argv) {
  const int dies = argc > 1 && getenv("DDP_RESTARTS") == NULL ? atoi(argv[1]) : -1;
  float w[2] = {0}, g[2] = {1, 2};
  ddp_group_options options;
  ddp_group *group;
  ddp_model *model;
  ddp_group_options_init(&options, sizeof options);
  options.recoverable = argc > 2;
  if (ddp_group_create(NULL, &options, &group) != DDP_OK) return fprintf(stderr, "%s\n", ddp_last_error()), 1;
  ddp_model_create(group, NULL, &model);
  ddp_model_add_array(model, "weight", w, g, 2, NULL);
  if (ddp_model_commit(model, NULL) != DDP_OK) return fprintf(stderr, "%s\n", ddp_last_error()), 1;
  for (int pass = 0; pass < 3; pass++) {
    ddp_model_begin_backward(model, DDP_PASS_REDUCE);
    ddp_model_mark_ready(model, 0, NULL);
    if (pass == 2 && ddp_group_rank(group) == dies) raise(SIGKILL);
    if (ddp_model_end_backward(model, NULL) != DDP_OK) return argc > 1 ? 0 : 1;
  }
  ddp_model_destroy(model);
  ddp_group_destroy(group);
  return 0;
}
PROGRAM
"$CC" -std=c99 -I"$DDP_SOURCE_DIR/include" "$work/train.c" "$DDP_LIBRARY" -Wl,-rpath,"$(dirname "$DDP_LIBRARY")" \
  ${DDP_SANITIZE:+-fsanitize=$DDP_SANITIZE} -o "$work/train" || exit 1

count() { # how many events of a rank have this name
  python3 - "$work/trace.json" "$1" "$2" <<'READER'
import json, sys
trace = json.load(open(sys.argv[1]))
print(sum(e["ph"] != "M" and e["pid"] == int(sys.argv[2]) and e["name"] == sys.argv[3] for e in trace["traceEvents"]))
READER
}

mkdir "$work/tmp"
export TMPDIR=$work/tmp
run 0 -n 2 --trace "$work/trace.json" "$work/train"
check "both ranks made three passes" same "$(count 0 weight) $(count 1 weight)" "3 3"
check "calls are named" same "$(count 1 ddp_model_commit)" 1
check "it is said" grep -q "the trace of 2 ranks is in $work/trace.json" "$work/err"
check "no folder is left" same "$(ls "$work/tmp")" ""

run 137 -n 2 --trace "$work/trace.json" "$work/train" 1
check "the last mark of the dead is there" same "$(count 1 weight)" 3
check "and that it was in no call" same "$(count 1 ddp_model_end_backward)" 2

run 0 -n 2 --trace "$work/trace.json" true
check "without a group it is empty" grep -q "no rank has made a group" "$work/err"
run 2 -n 2 --trace "$work/none/trace.json" true
check "a file that cannot be written is refused at once" grep -q "cannot be written" "$work/err"
run 2 --hosts a:1,b:1 --trace "$work/trace.json" true
run 2 -n 2 --env DDP_TRACE=x true

# Without ddprun's folder: the ranks write it themselves when they end.
rm -f "$work/trace.json"
run 0 -n 2 sh -c 'DDP_TRACE='"$work"'/trace.json exec '"$work"'/train'
check "DDP_TRACE alone" same "$(count 0 weight) $(count 1 weight)" "3 3"
check "no rings are left" [ ! -e "$work/trace.json.ranks" ]

finish
