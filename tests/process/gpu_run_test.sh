# SPDX-License-Identifier: Apache-2.0
# tests/gpu/run.sh brings back what it found in one archive, whatever ends it, and takes a kit that is one file. The programs of the kit are
# scripts here: one is as slow as is needed, one fails.
set -u
run=$DDP_SOURCE_DIR/tests/gpu/run.sh
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fails=0

check() { # sentence, then a command that must succeed
  local name=$1
  shift
  if "$@"; then
    echo "ok   $name"
  else
    echo "FAIL $name"
    tail -n 20 "$work/text" "$work/out/summary.txt" 2>/dev/null
    fails=$((fails + 1))
  fi
}
has() { tar -xzOf "$work/out/results.tar.gz" "gpu-results/$1" 2>/dev/null | grep -q "$2"; }
says() { grep -q "$1" "$work/out/summary.txt"; }
ended_with() { [ "$(cat "$work/code")" = "$1" ]; }
script() { # name, text
  printf '#!/bin/bash\n%s\n' "$2" >"$work/gpu-kit/bin/$1" && chmod +x "$work/gpu-kit/bin/$1"
}
fresh_kit() {
  rm -rf "$work/gpu-kit" "$work/out"
  mkdir -p "$work/gpu-kit"/{bin,lib/ddp,share}
  echo test >"$work/gpu-kit/KIT"
  script test.gpu.errors 'echo "on a script, 1 GPU"'
  script test.gpu.kernels 'echo "[  PASSED  ] 3 test(s)."'
}
start() { # arguments of run.sh; PATH without tools that this machine may have
  PYTHON=/nonexistent DDP_NCCL_LIBRARY=none bash "$run" --build "$work/gpu-kit" --out "$work/out" "$@" >"$work/text" 2>&1
  echo $? >"$work/code"
}
within() { # 20 s, a command
  local tries
  for ((tries = 0; tries < 200; ++tries)); do
    "$@" && return 0
    sleep 0.1
  done
  return 1
}

fresh_kit
start --only tests
check "a run in which all pass ends with 0" ended_with 0
check "its summary has the stage" says 'gpu.kernels  *passed .* 3 tests'
check "so has the archive" has summary.txt 'gpu.kernels  *passed'
check "which has the logs" has gpu.kernels.log 'PASSED'
check "nothing else is left in the folder" [ "$(ls -A "$work/out" | tr '\n' ' ')" = "results.tar.gz summary.txt " ]

script test.gpu.pass 'echo "[  FAILED  ] sums_are_right"; exit 1'
start --only tests
check "a test that fails fails the run" ended_with 1
check "and is named" says 'gpu.pass  *FAILED .*sums_are_right'

script test.gpu.pass 'yes a long line that comes again and again | head -c 3000000'
start --only tests
check "a log without end is cut" [ "$(tar -xzOf "$work/out/results.tar.gz" gpu-results/gpu.pass.log | wc -c)" -lt 1000000 ]

script test.gpu.pass 'echo begun; sleep 300'
script test.gpu.ranks 'exit 0'
start --only tests --seconds 6
check "what takes too long is ended" says 'gpu.pass  *too long'
check "its log comes along" has gpu.pass.log begun
check "what there is no time for is said" says 'gpu.ranks  *not run'
check "and the archive is complete" has summary.txt 'gpu.ranks  *not run'
check "a test beside it went on" says 'gpu.errors  *passed'

rm -rf "$work/out"
start --only tests &
check "the archive is there while the run goes on" within has gpu.kernels.log PASSED
pid=$(pgrep -P $! bash)
sleep 1 # gpu.pass begins
kill -TERM "$pid"
wait
check "a run that is stopped ends with 1" ended_with 1
check "says so" says '^stopped after'
check "and archives what the running stage had said" has gpu.pass.log begun

rm -rf "$work/out"
script test.gpu.pass 'echo $$ >"$(dirname "$0")/../../pid"; exec sleep 300'
start --only tests &
within has gpu.kernels.log PASSED
kill -KILL "$(pgrep -P $! bash)"
wait
check "a run that is killed leaves the stages before" has summary.txt 'gpu.kernels  *passed'
within [ -s "$work/pid" ] && kill "$(cat "$work/pid")" # the stage that was running, now without a parent

fresh_kit
script experiments.gpu 'echo "PASS $*"; case $* in *fork*) exit 1;; *contexts*) echo "skipped: no contexts"; exit 77;; esac'
start --only experiments --quick
check "experiments are run part by part" says '^PASS --quick --part stop_word'
check "one that fails leaves the others" says '^PASS --quick --part init_kill'
check "and fails the run" ended_with 1
check "one that cannot be done says why" says 'experiments.contexts  *skipped .*no contexts'

fresh_kit
tar -C "$work" -czf "$work/kit.tar.gz" gpu-kit
rm -rf "$work/gpu-kit/bin"
bash "$run" --build "$work/kit.tar.gz" --out "$work/out" --only tests >"$work/text" 2>&1
echo $? >"$work/code"
check "a kit may be one file" ended_with 0
check "whose programs were run" has gpu.kernels.log PASSED
echo nothing >"$work/broken.tar.gz"
bash "$run" --build "$work/broken.tar.gz" --out "$work/out" >"$work/text" 2>&1
echo $? >"$work/code"
check "a file that is no kit is refused" ended_with 2

fresh_kit
script test.gpu.errors 'echo "skipped: no GPU: there is no NVIDIA driver"; exit 77'
start
check "without a GPU the run is skipped" ended_with 77
check "with the reason" has summary.txt 'no NVIDIA driver'

exit $((fails > 0))
