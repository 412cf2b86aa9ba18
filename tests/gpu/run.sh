#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# All that needs a real GPU, unattended: the tests, compute-sanitizer over tests of two ranks, the benchmark compared with PyTorch, and experiments that
# show what only hardware shows; then a table.
#
#   tests/gpu/run.sh [--quick] [--out DIR] [--build KIT]     build if needed (into build/gpu), then run
#   tests/gpu/run.sh --pack KIT [--build DIR]                build, and gather everything that runs in KIT, for another machine
#
#   --quick      3 minutes in the place of 9
#   --seconds N  the time for everything, in the place of these
#   --out DIR    results (default ./gpu-results): two files, summary.txt and results.tar.gz with everything. Both are written anew after each stage
#                and when the run is stopped, so a run that is killed leaves what it had
#   --build KIT  what --pack made, folder or file, or a build folder of CMake; without it everything is built here
#   --pack KIT   a folder, or one file if its name ends in .tar.gz
#   --only NAME  one stage: tests, sanitizer, benchmark or experiments
#
# A kit needs only the C and C++ libraries (of this machine's age or younger), a driver and NCCL: libddp, its GPU module, the tests, CMocka,
# ddprun, the example, the benchmarks and the experiments are in it. Gloo is not needed, because all ranks are on one host. compute-sanitizer and
# PyTorch are used where they are found (PYTHON names another interpreter than python3). NCCL is found as libddp finds it, by DDP_NCCL_LIBRARY or
# the loader's search; the copy that a PyTorch brings is looked for too. CUDACXX names the compiler of a build, for an older driver one of CUDA 12.
#
# Exit status: 0 all passed, 1 something failed, 2 it could not be built or the arguments are wrong, 77 there is no GPU here.
set -uo pipefail
source_dir=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." 2>/dev/null && pwd)
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
quick='' out=gpu-results build='' pack='' only='' seconds=''

fail() {
  echo "$1" >&2
  exit "${2:-2}"
}
while [ $# -gt 0 ]; do
  case $1 in
    --quick) quick=1 ;;
    --out | --build | --pack | --only | --seconds)
      [ $# -gt 1 ] || fail "$1 needs a value"
      declare "${1#--}=$2"
      shift
      ;;
    -h | --help)
      sed -n '3,/^set /{/^#/s/^# \{0,1\}//p}' "${BASH_SOURCE[0]}"
      exit 0
      ;;
    *) fail "$1 is not understood: see $0 --help" ;;
  esac
  shift
done
case $only in '' | tests | sanitizer | benchmark | experiments) ;; *) fail "there is no stage $only: see $0 --help" ;; esac
case $seconds in *[!0-9]*) fail "--seconds needs a number" ;; esac
work=$(mktemp -d) || fail "there is no place for temporary files."
trap 'rm -rf "$work"' EXIT

# --- Building and packing ---

build_here() { # into $1
  local need=''
  if [ -z "$pack" ] && [ ! -e /dev/nvidiactl ] && [ ! -e /dev/dxg ] && ! command -v nvidia-smi >/dev/null; then
    echo "there is no NVIDIA GPU on this machine (no /dev/nvidiactl), so nothing was built; --pack KIT builds for another machine"
    exit 77
  fi
  echo "building in $1; $1.log has the details" >&2
  command -v cmake >/dev/null || need='cmake'
  [ -z "$need" ] || fail "$need is missing, so nothing can be built here: pack on a machine that has it (--pack KIT), and carry KIT (--build KIT)."
  cmake -S "$source_dir" -B "$1" -DCMAKE_BUILD_TYPE=RelWithDebInfo -DDDP_CUDA=ON -DDDP_GLOO=OFF \
    -DDDP_CUDA_ARCHITECTURES="${CUDA_ARCHITECTURES:-shipped}" >"$1.log" 2>&1 ||
    fail "CMake could not configure the build ($1.log says why): install what is missing, or carry a kit (--pack, --build)."
  cmake --build "$1" --parallel "$(nproc)" --target gpu_programs >>"$1.log" 2>&1 || fail "The build failed: see $1.log."
}

gather() { # from the build folder $1 into the folder $2
  local from=$1 to=$2 file
  rm -rf "$to" && mkdir -p "$to/bin" "$to/lib/ddp" "$to/lib/wire" "$to/share" || return 1
  for file in "$from"/tests/test.gpu.* "$from"/tests/{bench.gpu,bench.gpu_ranks,experiments.gpu} "$from"/bin/ddprun "$from"/examples/07_cuda; do
    [ ! -f "$file" ] || strip -o "$to/bin/$(basename "$file")" "$file"
  done
  strip --strip-debug -o "$to/lib/libddp.so.0.1" "$from/src/libddp.so.0.1" || return 1
  for file in src/ddp/libddp_cuda.so tests/wire/libddp_cuda.so; do
    if [ -f "$from/$file" ]; then
      strip --strip-debug -o "$to/lib/$(basename "$(dirname "$file")")/libddp_cuda.so" "$from/$file" || return 1
    else
      echo "$from has no $file" >&2
    fi
  done
  # CMocka comes along: as a file next to libddp, where the programs look (their rpath is $ORIGIN/../lib).
  file=$(ldd "$from/tests/test.gpu.pass" | awk '$1 ~ /^libcmocka/ && $3 ~ "/" { print $3 }')
  [ -z "$file" ] || cp -L "$file" "$to/lib/"
  cp "$source_dir/examples/data/digits.csv" "$source_dir"/tests/gpu/bench/*.py "$source_dir"/tests/gpu/{run.sh,torch_gpu.py,jax_gpu.py} "$to/share/"
  if [ -e "$from/bindings/python/libddp/_low.so" ] || [ -e "$from/bindings/python/libddp/_low.abi3.so" ]; then
    # Of use to the same version of Python, or, with the limited API, to later ones too.
    mkdir "$to/python" && cp -rL "$from/bindings/python/libddp" "$to/python/" && rm -rf "$to/python/libddp/__pycache__" || return 1
    file=$(sed -n 's/^SKBUILD_SABI_VERSION:[A-Z]*=\(.\)/\1/p' "$from/CMakeCache.txt")
    [ -z "$file" ] || echo "$file and later" >"$to/python/VERSION"
    [ -e "$to/python/libddp/_xla.so" ] || echo "$from has no _xla.so (CMake option DDP_JAX_INCLUDE): jax_gpu will be skipped" >&2
    [ -n "$file" ] || "$(sed -n 's/^_Python3_EXECUTABLE:INTERNAL=//p' "$from/CMakeCache.txt")" -c 'import sys; print("%d.%d" % sys.version_info[:2])' >"$to/python/VERSION"
  fi
  {
    git -C "$source_dir" describe --always --dirty 2>/dev/null || echo unknown
    getconf GNU_LIBC_VERSION
  } >"$to/KIT"
}

pack_into() { # from the build folder $1 into $2, a folder or a file
  case $2 in
    *.tar.gz) gather "$1" "$work/gpu-kit" && mkdir -p "$(dirname "$2")" && tar -C "$work" -czf "$2" gpu-kit ;;
    *) gather "$1" "$2" ;;
  esac
}

kit=''
if [ -f "$build" ]; then
  mkdir "$work/kit" && tar -C "$work/kit" -xzf "$build" || fail "$build is no kit: it cannot be unpacked."
  kit=$(dirname "$(ls "$work"/kit/KIT "$work"/kit/*/KIT 2>/dev/null | head -1)")
  [ -f "$kit/KIT" ] || fail "$build is no kit: it has no file KIT."
elif [ -n "$build" ] && [ -f "$build/KIT" ]; then
  kit=$build
elif [ -z "$build" ] && [ -f "$here/../KIT" ]; then
  kit=$here/.. # this script is itself in a kit
else
  if [ -z "$build" ]; then
    build=$source_dir/build/gpu
    mkdir -p "$build"
    build_here "$build"
  elif [ ! -f "$build/CMakeCache.txt" ]; then
    fail "$build is neither a kit nor a build folder of CMake."
  fi
  kit=${pack:-$work/kit}
  pack_into "$build" "$kit" || fail "The programs could not be gathered from $build."
fi
if [ -n "$pack" ]; then
  echo "packed in $pack ($(du -sm "$pack" | cut -f1) MiB): carry it, and run  tests/gpu/run.sh --build $pack  or, unpacked, share/run.sh of it"
  exit 0
fi
kit=$(cd "$kit" && pwd)
chmod +x "$kit"/bin/* 2>/dev/null # in case it was carried by something that forgets

# --- Results: everything in one folder, and that in one file ---

mkdir -p "$out" && out=$(cd "$out" && pwd) || fail "$out cannot be made."
results=$work/gpu-results
mkdir "$results"
summary=$out/summary.txt
save() {
  cp "$summary" "$results/"
  tar -C "$work" -czf "$out/.results.$BASHPID.gz" gpu-results 2>/dev/null # 1: a log grew meanwhile
  [ $? -gt 1 ] || mv -f "$out/.results.$BASHPID.gz" "$out/results.tar.gz"
}
shorten() { # a log that grew without end
  [ "$(stat -c %s "$1")" -le 1000000 ] || {
    { head -c 300000 "$1" && echo && echo "... (cut here) ..." && tail -c 600000 "$1"; } >"$1.short" && mv "$1.short" "$1"
  }
}

# --- What there is ---

export LD_LIBRARY_PATH=$kit/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
export DDP_MODULE_PATH=$kit/lib/ddp
python=$(command -v "${PYTHON:-python3}" || true)
if [ -z "${DDP_NCCL_LIBRARY:-}" ] && ! ldconfig -p 2>/dev/null | grep -q 'libnccl\.so\.2'; then
  # A wheel's copy, without importing anything.
  found=$("${python:-false}" -c 'import importlib.util as u, glob, os
for name in ("nvidia.nccl", "nvidia"):
    try: spec = u.find_spec(name)
    except ImportError: spec = None
    for place in (spec.submodule_search_locations if spec else []):
        for file in glob.glob(os.path.join(place, "**", "libnccl.so.2"), recursive=True):
            print(file); raise SystemExit' 2>/dev/null)
  [ -z "$found" ] || export DDP_NCCL_LIBRARY=$found
fi
sanitizer=$(command -v compute-sanitizer || ls /usr/local/cuda*/bin/compute-sanitizer 2>/dev/null | tail -1)

probe=$("$kit/bin/test.gpu.errors" --filter none 2>&1)
if [ $? = 77 ]; then
  echo "$probe" | tee "$summary"
  save
  exit 77
fi
gpus=$(sed -n 's/.*, \([0-9]*\) GPU.*/\1/p' <<<"$probe" | head -1)

budget=${seconds:-$((${#quick} ? 175 : 520))}
SECONDS=0
reserve=0 # seconds kept for later steps
left() { echo $((budget - SECONDS - reserve)); }
fails="$work/fails" # a line for each stage that failed
: >"$fails"
row() { printf '%-34s %-9s %6s  %s\n' "$@" | tee -a "$summary"; }
heading() {
  row "" "" "" ""
  row "$1" "" "" ""
}
{
  echo "libddp on a real GPU: $(head -1 "$kit/KIT"), $(date -u +%FT%TZ)"
  nvidia-smi --query-gpu=index,name,driver_version,memory.total --format=csv,noheader 2>/dev/null || echo "(no nvidia-smi)"
  echo "NCCL: ${DDP_NCCL_LIBRARY:-found by the loader}; lo: $(cat /sys/class/net/lo/operstate 2>/dev/null), flags $(cat /sys/class/net/lo/flags 2>/dev/null)"
} | tee "$summary"
child=''
stop() {
  [ -z "$child" ] || kill "$child" 2>/dev/null
  kill $(jobs -p) 2>/dev/null
  echo "stopped after $SECONDS s; results so far are in $out" | tee -a "$summary"
  save
  exit 1
}
trap stop TERM INT HUP

# Runs a command with a limit, keeps its output, and writes a row. $1 name, $2 seconds, $3 "soft" (a limit that passes is no failure) or "hard".
stage() {
  local name=$1 limit=$2 kind=$3 begin=$SECONDS code=0 detail=''
  log=$results/$(tr -cs 'a-z0-9._\n' - <<<"$1" | sed 's/-$//').log
  shift 3
  [ "$limit" -le "$(left)" ] || limit=$(left)
  if [ "$limit" -lt 5 ]; then
    row "$name" "not run" - "no time left"
    return
  fi
  timeout --kill-after=5 "$limit" "$@" >"$log" 2>&1 &
  child=$!
  wait "$child" || code=$?
  child=''
  detail=$(grep -E '^\[  (FAILED|ERROR ) +\] [a-z]' "$log" | awk '{ print $4 }' | sort -u | head -4 | tr '\n' ' ')
  case $code in
    0) row "$name" passed "$((SECONDS - begin)) s" "$(grep -oE '^\[  PASSED  \] [0-9]+ test' "$log" | grep -oE '[0-9]+' | head -1 | sed 's/$/ tests/')" ;;
    77) row "$name" skipped "$((SECONDS - begin)) s" "$(grep -m1 skipped "$log" | cut -c1-160)" ;;
    124 | 137)
      row "$name" "too long" "$((SECONDS - begin)) s" "limit $limit s; $detail"
      [ "$kind" = soft ] || echo "$name" >>"$fails"
      ;;
    *)
      row "$name" FAILED "$((SECONDS - begin)) s" "exit $code; ${detail:-see $(basename "$log")}"
      echo "$name" >>"$fails"
      ;;
  esac
  shorten "$log"
  save
}
beside() { # a command of this script that runs in parallel with the next ones, until `wait`
  (
    trap '[ -z "$child" ] || kill "$child"; exit 1' TERM
    "$@"
  ) &
}
wanted() { # a stage, and the seconds that later ones keep
  [ -z "$only" ] || [ "$only" = "$1" ] || return 1
  reserve=0
  [ -n "$only" ] || reserve=$(($2 * budget / 520))
}

# --- The tests, those of one rank first and in parallel. In a quick run only some of those that start processes ---

test_program() { # name, limit, pattern
  [ ! -x "$kit/bin/test.gpu.$1" ] || stage "gpu.$1${3:+ $3}" "$2" hard "$kit/bin/test.gpu.$1" ${3:+--filter "$3"}
}
if wanted tests 240; then
  heading TEST
  for name in kernels kernels_update pass optimizer streams state errors batch_norm; do beside test_program $name 60; done
  wait
  if [ -n "$quick" ]; then
    for pattern in 'sums*' 'two_hundred*'; do test_program ranks 30 "$pattern"; done
    test_program failure 40 '*killed_rank_of_two*'
    test_program graph 30 '*replayed*'
  else
    test_program ranks 120
    test_program unused 60
    test_program marks 60
    test_program lent_memory 30
    test_program failure 90
    test_program fork 40
    test_program recover 60
    test_program graph 60
    test_program leaks 60
  fi
  if [ -n "$python" ] && [ -e "$kit/share/torch_gpu.py" ]; then
    for name in torch_gpu jax_gpu; do
      for count in 1 2; do
        stage "$name on $count rank$([ $count = 1 ] || echo s)" 90 hard "$kit/bin/ddprun" -n $count --show 0 --no-prefix "$python" -B "$kit/share/$name.py"
        grep -E '^(FAIL|-) ' "$log" 2>/dev/null | tee -a "$summary"
      done
    done
  fi
  if [ -x "$kit/bin/07_cuda" ]; then
    stage example.alone 40 hard "$kit/bin/07_cuda" "$kit/share/digits.csv"
    [ -n "$quick" ] || stage example.two_ranks 60 hard "$kit/bin/ddprun" -n 2 "$kit/bin/07_cuda" "$kit/share/digits.csv"
  fi
fi

# --- compute-sanitizer: short tests only, because it makes them ten to fifty times slower. Two ranks first: the processes of a test, and those that
# --- ddprun starts with the tool before each ---

# Calls that fail on purpose (NCCL asks for kernels that a device may not have) are no findings, and NCCL's kernels are not looked into.
sanitizer_options=(--report-api-errors no --kernel-name-exclude kernel_substring=nccl --target-processes all --error-exitcode 9 --print-limit 20)
sanitize() { # tool, program, pattern
  stage "$1 $2 $3" 80 soft "$sanitizer" --tool "$1" "${sanitizer_options[@]}" "$kit/bin/test.gpu.$2" --filter "$3"
}
if wanted sanitizer 200; then
  heading SANITIZER
  if [ -z "$sanitizer" ]; then
    row "compute-sanitizer" skipped - "it is not installed"
  else
    stage "memcheck two ranks, work pending" 60 soft "$kit/bin/ddprun" -n 2 "$sanitizer" --tool memcheck "${sanitizer_options[@]}" \
      "$kit/bin/experiments.gpu" ${quick:+--quick} --part pending
    if [ -z "$quick" ]; then # NCCL's code alone takes the sanitizer most of a minute
      sanitize memcheck ranks 'collectives*'
      sanitize memcheck ranks 'parameters_and*'
      beside sanitize memcheck kernels_update 'a*'
      beside sanitize memcheck pass '*cleared*'
      beside sanitize memcheck kernels 'move_works*'
      beside sanitize racecheck kernels 'norms*'
      beside sanitize synccheck kernels 'norms*'
      beside sanitize initcheck kernels 'a_hash*'
      wait
    fi
  fi
fi

# --- The benchmark compared with PyTorch, on one GPU and on all there are ---

if wanted benchmark 80; then
  heading BENCHMARK
  limit=$((${#quick} ? 60 : 150))
  if [ ! -x "$kit/bin/bench.gpu" ]; then
    row bench.gpu skipped - "it is not in $kit"
  elif [ -n "$python" ]; then
    stage benchmark $limit soft "$python" -B "$kit/share/compare.py" --bin "$kit/bin" --lib "$kit/lib" --out "$results" ${quick:+--quick}
    { cat "$results/benchmark.md" 2>/dev/null || tail -5 "$results/benchmark.log"; } | tee -a "$summary"
  else
    stage benchmark $limit soft "$kit/bin/bench.gpu" --json "$results/bench.json" ${quick:+--quick}
    tee -a "$summary" <"$log"
  fi
  if [ -n "$python" ]; then
    stage benchmark.torch_alone 60 soft "$kit/bin/ddprun" -n 1 --show 0 --no-prefix "$python" -B "$kit/share/torch_ranks.py" --alone \
      --json "$results/torch_alone.json" ${quick:+--quick}
    grep -E '^(mlp|gpt): ' "$log" 2>/dev/null | tee -a "$summary"
  fi
  if [ -x "$kit/bin/bench.gpu_ranks" ]; then
    [ "${gpus:-0}" -lt 2 ] || ranks=$gpus
    stage benchmark.ranks 90 soft "$kit/bin/ddprun" -n "${ranks:-2}" --show 0 --no-prefix "$kit/bin/bench.gpu_ranks" --json "$results/ranks.json" \
      ${quick:+--quick}
    [ ! -f "$results/ranks.json" ] || tee -a "$summary" <"$log"
    if [ -n "${ranks:-}" ] && [ -n "$python" ]; then
      stage benchmark.torch_ranks 90 soft "$kit/bin/ddprun" -n "$ranks" --show 0 --no-prefix "$python" -B "$kit/share/torch_ranks.py" \
        --json "$results/torch_ranks.json" ${quick:+--quick}
      grep -E '^(mlp|gpt): ' "$log" | tee -a "$summary"
    fi
  fi
fi

# --- What only hardware shows ---

if wanted experiments 0; then
  heading EXPERIMENTS
  for part in stop_word pending fork init_kill graph_register contexts rates reproducible; do
    [ -x "$kit/bin/experiments.gpu" ] || continue
    stage "experiments.$part" 60 hard "$kit/bin/experiments.gpu" ${quick:+--quick} --part "$part"
    grep -E '^(PASS|FAIL|-) ' "$log" 2>/dev/null | tee -a "$summary"
  done
fi

echo | tee -a "$summary"
echo "$(wc -l <"$fails") failed, $SECONDS s; $out/results.tar.gz has the logs" | tee -a "$summary"
save
[ ! -s "$fails" ]
