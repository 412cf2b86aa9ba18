# SPDX-License-Identifier: Apache-2.0
# Shared by the tests of ddprun: run it with a limit, compare, count.
set -u
ddprun=$DDP_BUILD_DIR/bin/ddprun
if [ ! -x "$ddprun" ]; then
  echo "ddprun is not built"
  exit 77
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fails=0

check() { # name, then a command that must succeed
  local name=$1
  shift
  if "$@"; then
    echo "ok   $name"
  else
    echo "FAIL $name"
    tail -n 30 "$work"/out "$work"/err 2>/dev/null
    fails=$((fails + 1))
  fi
}

same() { # got, expected
  [ "$1" = "$2" ] || {
    printf 'got:\n%s\nexpected:\n%s\n' "$1" "$2"
    return 1
  }
}

run() { # expected exit code, then ddprun's arguments; output in $work/out and $work/err
  local expected=$1 code=0
  shift
  timeout -s KILL 60 "$ddprun" "$@" >"$work/out" 2>"$work/err" || code=$?
  check "exit code $expected of ddprun $*" [ "$code" = "$expected" ]
}

# Wait until a command succeeds, at most this many seconds.
within() {
  local end=$((SECONDS + $1))
  shift
  until "$@"; do
    [ "$SECONDS" -lt "$end" ] || return 1
    sleep 0.02
  done
}

gone() { # process ids: has every one ended (or become a zombie)?
  local pid
  for pid in "$@"; do
    if [ -e "/proc/$pid/stat" ] && ! grep -q '^State:.Z' "/proc/$pid/status" 2>/dev/null; then return 1; fi
  done
}

lines() { # file, number: does it have at least so many lines?
  [ "$(wc -l <"$1")" -ge "$2" ]
}

finish() { exit $((fails > 0)); }
