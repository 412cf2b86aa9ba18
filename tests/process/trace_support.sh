# SPDX-License-Identifier: Apache-2.0
# For tests of ddprun --trace, behind ddprun_support.sh or netns_support.sh: $work/train, a program of three passes; count(), how many events of
# a rank have a name; sound() and in_order(), which only the trace processor can say. count() asks Perfetto's own trace processor where there is one (TRACE_PROCESSOR, or in PATH; the Python package perfetto fetches it
# from outside), and always a reader of its own; both must say the same.
cat >"$work/train.c" <<'PROGRAM'
#include <ddp/experimental.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

/* Three passes; rank `argv[1]` kills itself behind the mark of the third, unless it was started again. With STAY it waits
 * behind them for that file to go. */
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
    if (pass == 2 && ddp_group_get_rank(group) == dies) raise(SIGKILL);
    if (ddp_model_end_backward(model, NULL) != DDP_OK) return argc > 1 ? 0 : 1;
  }
  if (getenv("STAY") != NULL) puts("made"), fflush(stdout);
  while (getenv("STAY") != NULL && access(getenv("STAY"), F_OK) == 0) usleep(20000);
  ddp_model_destroy(model);
  ddp_group_destroy(group);
  return 0;
}
PROGRAM
"$CC" -std=gnu99 -I"$DDP_SOURCE_DIR/include" "$work/train.c" "$DDP_LIBRARY" -Wl,-rpath,"$(dirname "$DDP_LIBRARY")" \
  ${DDP_SANITIZE:+-fsanitize=$DDP_SANITIZE} -o "$work/train" || exit 1

processor=${TRACE_PROCESSOR:-$(command -v trace_processor_shell || command -v trace_processor || true)}
if [ -n "$processor" ]; then
  echo "read by $processor, too"
else
  echo "there is no trace processor of Perfetto (TRACE_PROCESSOR, or trace_processor_shell in PATH): read by the test alone"
fi

ask() { # of the trace processor, a query: the rows of its answer
  echo "$1" >"$work/query.sql"
  "$processor" -q "$work/query.sql" "$work/trace.json" 2>"$work/processor" | sed 1d | tr -d '"'
}

count() { # rank, name: how many events; "?" if two readers do not agree
  local own theirs
  own=$(python3 - "$work/trace.json" "$1" "$2" <<'READER'
import json, sys
trace = json.load(open(sys.argv[1]))
print(sum(e["ph"] in "Xi" and e["pid"] == int(sys.argv[2]) and e["name"] == sys.argv[3] for e in trace["traceEvents"]))
READER
  )
  theirs=$own
  if [ -n "$processor" ]; then
    theirs=$(ask "select count(*) as n from slice join thread_track on slice.track_id = thread_track.id join thread using (utid) join process using (upid)
      where process.pid = $1 and slice.name = '$2';" | grep -x '[0-9]*')
  fi
  if [ "$own" = "$theirs" ]; then echo "$own"; else echo "? $own $theirs"; fi
}

sound() { # nothing of the trace is lost, moved or misunderstood as the trace processor reads it
  local own
  [ -n "$processor" ] || return 0
  own=$(python3 -c 'import json, sys; print(sum(e["ph"] in "Xi" for e in json.load(open(sys.argv[1]))["traceEvents"]))' "$work/trace.json")
  same "$(ask "select (select count(*) from stats where severity in ('error', 'data_loss') and value > 0) as errors, (select count(*) from slice) as slices,
    (select count(*) from slice where ts < 0 or dur < 0) as negative, (select count(*) from thread_track join thread using (utid) where thread.name is null) as unnamed;")" \
    "0,$own,0,0"
}

arrows() { # rank: how many arrows begin in a span of a mark and end in a bucket, and begin in a bucket and end in a pass
  python3 - "$work/trace.json" "$1" <<'READER'
import json, sys
events = [e for e in json.load(open(sys.argv[1]))["traceEvents"] if e["pid"] == int(sys.argv[2])]
rows = {e["tid"]: e["args"]["name"].split()[0] for e in events if e["name"] == "thread_name"}
def inside(end): # the row that has a span there; by the rules of the format an end without one is not drawn
    spans = [e for e in events if e["ph"] == "X" and e["tid"] == end["tid"] and e["ts"] - 1e-6 <= end["ts"] <= e["ts"] + e["dur"] + 1e-6]
    return rows[end["tid"]] if spans else "?"
begins = {e["id"]: inside(e) for e in events if e["ph"] == "s"}
ways = [(begins[e["id"]], inside(e)) for e in events if e["ph"] == "f"]
print(ways.count(("marks", "buckets")), ways.count(("buckets", "passes")), len(ways) - len(begins))
READER
}

in_order() { # rank: both readers find the same calls in its row, in the same order, and the same total time
  local own
  [ -n "$processor" ] || return 0
  own=$(python3 - "$work/trace.json" "$1" <<'READER'
import json, sys
events = json.load(open(sys.argv[1]))["traceEvents"]
row = next(e["tid"] for e in events if e["name"] == "thread_name" and e["pid"] == int(sys.argv[2]) and e["args"]["name"] == "calls")
calls = sorted((e for e in events if e["ph"] == "X" and (e["pid"], e["tid"]) == (int(sys.argv[2]), row)), key=lambda e: (e["ts"], -e["dur"]))
print("\n".join(e["name"] for e in calls), sum(round(e["dur"] * 1000) for e in calls), sep="\n")
READER
  )
  local here="from slice join thread_track on slice.track_id = thread_track.id join thread using (utid) join process using (upid)
    where process.pid = $1 and thread.name = 'calls'"
  same "$(ask "select slice.name $here order by slice.ts, slice.dur desc;"; ask "select sum(slice.dur) $here;")" "$own"
}
