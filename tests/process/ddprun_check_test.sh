# SPDX-License-Identifier: Apache-2.0
# ddprun --check: its report about this machine, its measurements, and its exit codes. A script takes the place of ssh.
. "$DDP_SOURCE_DIR/tests/process/ddprun_support.sh" || exit 1
unset OMP_NUM_THREADS DDP_TOKEN DDP_TOKEN_FILE
# Memory of sanitizers and limits of this machine are not the matter here; more ranks than cores are a problem, so the exit code is chosen
# by the number of ranks.
cores=$("$ddprun" -n 1 --no-prefix nproc)

run 0 --check -n 1
check one_rank_is_measured_alone grep -q 'AdamW of .* million parameters a rank: .* ms, ' "$work/out"
check there_are_no_links_then [ "$(grep -c 'ranks 0 and' "$work/out")" = 0 ]
check the_library_says_what_it_is grep -q '  ok      libddp [0-9]' "$work/out"
check the_verdict_is_the_last_line same "$(tail -n 1 "$work/out")" 'Nothing stands in the way.'
check no_line_has_a_prefix [ "$(grep -c '^\[0\]' "$work/out")" = 0 ]

many=$((cores + 1))
run 1 --check -n "$many"
check too_many_ranks_are_a_problem grep -q "PROBLEM .*start at most $cores here" "$work/out"
check the_verdict_says_so grep -q 'There are problems' "$work/out"
check each_pair_is_measured same "$(grep -c 'a sum of one number .* us, .* GB/s' "$work/out")" $((many * (many - 1) / 2))
check all_ranks_reduce grep -q "all-reduce of 25 MiB in $many ranks: .* ms; to copy as many bytes" "$work/out"
(ulimit -n 512 && run 1 --check -n 1 && exit $((fails > 0))) || fails=$((fails + 1))
check few_descriptors_are_a_problem grep -q 'PROBLEM .*ulimit -n 1024' "$work/out"

run 1 --check -n "$many" --json
cat >"$work/read.py" <<'END'
import json, sys
report = json.load(open(sys.argv[1]))
ranks = int(sys.argv[2])
assert report["ranks"] == ranks and report["ok"] is False
assert len(report["pairs"]) == ranks * (ranks - 1) // 2
assert all(pair["sum_us"] > 0 and pair["bytes_per_s"] > 1e6 for pair in report["pairs"])
assert report["all_reduce"]["bytes"] == 25 << 20 and report["all_reduce"]["seconds"] > 0
assert 0 < report["adamw"]["seconds"] < 60 and report["barrier_us"] > 0
levels = {finding["level"] for finding in report["hosts"][0]["findings"]}
assert levels <= {"ok", "advice", "problem"} and "problem" in levels
END
check json_has_the_same_in_numbers python3 "$work/read.py" "$work/out" "$many"

# Two machines, which are this one twice.
make_ssh
"$ddprun" --check --hosts 127.0.0.1:1,localhost:1 --ssh "$work/shell" --json >"$work/out" 2>"$work/err"
cat >"$work/read.py" <<'END'
import json, sys
report = json.load(open(sys.argv[1]))
assert [host["first_rank"] for host in report["hosts"]] == [0, 1]
texts = [finding["text"] for finding in report["hosts"][1]["findings"]]
assert any(text.startswith("the way to rank 0: lo (127.0.0.1)") for text in texts), texts
clock = [text for text in texts if text.startswith("its clock is ")]
assert len(clock) == 1 and float(clock[0].split()[3]) < 50, clock
END
check machines_are_told_apart_and_their_clocks_compared python3 "$work/read.py" "$work/out"

says 2 a_program_is_refused 'starts no program: leave out true' --check -n 1 true
says 2 json_needs_check '--json is for --check' --json -n 1 true
DDP_TOKEN=short says 1 ranks_that_cannot_meet_say_why '16 can be guessed' --check -n 2
finish
