# SPDX-License-Identifier: Apache-2.0
# ddprun --trace: the file of all ranks, with those that were killed, and with both processes of a place that was started again.
. "$DDP_SOURCE_DIR/tests/process/ddprun_support.sh"

. "$DDP_SOURCE_DIR/tests/process/trace_support.sh" || exit 1

mkdir "$work/tmp"
export TMPDIR=$work/tmp
run 0 -n 2 --trace "$work/trace.json" "$work/train"
check "both ranks made three passes" same "$(count 0 weight) $(count 1 weight)" "3 3"
check "calls are named" same "$(count 1 ddp_model_commit)" 1
check "nothing of it is misunderstood" sound
check "arrows go from marks to buckets to the ends of passes" same "$(arrows 0) $(arrows 1)" "3 3 0 3 3 0"
check "calls stand in their order" in_order 1
check "it is said" grep -q "the trace of 2 ranks is in $work/trace.json" "$work/err"
check "no folder is left" same "$(ls "$work/tmp")" ""

run 137 -n 2 --trace "$work/trace.json" "$work/train" 1
check "the last mark of the dead is there" same "$(count 1 weight)" 3
check "an arrow of the pass that did not end has a bucket to end in, or is not there" same "$(arrows 1 | cut -d' ' -f2,3)" "2 0"
check "and that it was in no call" same "$(count 1 ddp_model_end_backward)" 2
check "nor is anything of that misunderstood" sound

run 0 -n 2 --trace "$work/trace.json" true
check "without a group it is empty" grep -q "no rank has made a group" "$work/err"
run 2 -n 2 --trace "$work/none/trace.json" true
check "a file that cannot be written is refused at once" grep -q "cannot be written" "$work/err"
check "nor leaves a folder" same "$(ls "$work/tmp")" ""
run 2 -n 2 --env DDP_TRACE=x true
check "no folder is left when there is no such program" same "$(run 127 -n 1 --trace "$work/trace.json" "$work/none" >/dev/null; ls "$work/tmp")" ""

# A ddprun inside of a rank watches its own ranks, or none.
run 0 -n 1 --trace "$work/trace.json" "$ddprun" -n 1 --no-prefix env
check "it does not write where the outer one looks" eval '! grep -q "DDP_WATCH_DIR\|DDP_TRACE" "$work/out"'
export DDP_TRACE=$work/mine.json
run 0 -n 1 env
check "what somebody else has set stays" grep -q "DDP_TRACE=$work/mine.json" "$work/out"
unset DDP_TRACE

# Of several hosts: a script takes the place of ssh.
make_ssh
hosts() { # expected exit code, arguments
  local code=$1
  shift
  : >"$work/connections"
  rm -f "$work/trace.json"
  run "$code" --ssh "$work/shell" --hosts 127.0.0.1:2,localhost:1 --trace "$work/trace.json" "$@"
}
hosts 0 "$work/train"
check "the ranks of all hosts are in one file" same "$(count 0 weight) $(count 1 weight) $(count 2 weight)" "3 3 3"
check "it is said" grep -q "the trace of 3 ranks is in $work/trace.json" "$work/err"
check "nothing of it is shown" eval '! grep -q "piece" "$work/out" "$work/err"'
check "no folder is left" same "$(ls "$work/tmp")" ""
hosts 137 "$work/train" 2
check "the last mark of a rank that died there" same "$(count 2 weight) $(count 2 ddp_model_end_backward)" "3 2"
hosts 0 --max-restarts 1 --min-ranks 2 "$work/train" 2 again
check "hosts that are led rank by rank" same "$(count 2 weight)" 3

# A host that dies leaves what had arrived.
: >"$work/stay"
: >"$work/connections"
rm -f "$work/trace.json"
STAY=$work/stay "$ddprun" --ssh "$work/shell" --hosts 127.0.0.1:1,localhost:2 --grace 1 --trace "$work/trace.json" --env STAY="$work/stay" \
  "$work/train" >"$work/out" 2>"$work/err" &
job=$!
arrived() { # all events of the second host's ranks: as many as in their own files
  [ "$(grep -c made "$work/out")" = 3 ] && python3 - "$work/tmp" <<'READER'
import glob, os, sys
def events(path):
    with open(path, "rb") as file:
        return int.from_bytes(file.read(192)[184:], sys.byteorder)  # RingHead::head
there = glob.glob(sys.argv[1] + "/*/host-1-rank-*.ring")
own = {os.path.basename(path): path for path in glob.glob(sys.argv[1] + "/*/rank-*.ring")}
sys.exit(not (len(there) == 2 and all(events(path) == events(own[os.path.basename(path)[7:]]) for path in there)))
READER
}
check "pieces arrive while the job runs" within 20 arrived
kill -KILL "$(sed -n 's/ localhost$//p' "$work/connections")"
rm -f "$work/stay"
wait "$job"
check "they are in the trace" same "$(count 1 weight) $(count 2 weight)" "3 3"

# By hand each machine has its own.
export DDP_TOKEN=0123456789abcdef
port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
by_hand() { timeout -s KILL 60 "$ddprun" --nnodes 2 --node-rank "$1" --rendezvous "127.0.0.1:$port" -n 1 --trace "$work/machine$1.json" "$work/train"; }
by_hand 1 >"$work/second" 2>&1 &
by_hand 0 >"$work/out" 2>"$work/err"
wait
check "the other machine's rank is in its own" eval 'mv "$work/machine1.json" "$work/trace.json" && same "$(count 0 weight) $(count 1 weight)" "0 3"'
check "that is said" grep -q "the trace of 1 rank of this machine" "$work/second"
unset DDP_TOKEN

# Without ddprun's folder: the ranks write it themselves when they end.
rm -f "$work/trace.json"
run 0 -n 2 sh -c 'DDP_TRACE='"$work"'/trace.json exec '"$work"'/train'
check "DDP_TRACE alone" same "$(count 0 weight) $(count 1 weight)" "3 3"
check "no rings are left" [ ! -e "$work/trace.json.ranks" ]

finish
