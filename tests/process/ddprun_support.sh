# SPDX-License-Identifier: Apache-2.0
# The driver of cases of the tests of ddprun: run it with a limit, compare, count. A case has a name, what is expected, and ddprun's arguments.
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

launch=run # what runs a case: run, or a function that adds arguments

prints() { # name, stdout, arguments: it succeeds
  local name=$1 expected=$2
  shift 2
  $launch 0 "$@"
  check "$name" same "$(cat "$work/out")" "$expected"
}

prints_sorted() { # the same for lines in any order
  local name=$1 expected=$2
  shift 2
  $launch 0 "$@"
  check "$name" same "$(sort "$work/out")" "$expected"
}

says() { # exit code, name, pattern of a line of stderr, arguments
  local code=$1 name=$2 pattern=$3
  shift 3
  $launch "$code" "$@"
  check "$name" grep -q -e "$pattern" "$work/err"
}

refused() { # pattern, arguments that are wrong
  local pattern=$1
  shift
  says 2 "refuses $*" "$pattern" "$@"
}

note() { grep -q "^ddprun: .*$1" "$work/err"; } # does ddprun say so itself?

start() { # arguments of a job that runs meanwhile; its number in $pid
  : >"$work/out"
  # A shell starts background jobs with SIGINT ignored; env undoes that.
  env --default-signal=INT,QUIT "$ddprun" "$@" >"$work/out" 2>"$work/err" &
  pid=$!
}

ended() { # exit code of that job; ends the wait after 20 s
  local code=0
  within 20 gone "$pid" || kill -9 "$pid"
  wait "$pid" || code=$?
  same "$code" "$1"
}

# A script in the place of ssh: it starts the command here, and notes its own number and the host, so that the connection can be broken.
make_ssh() {
  export WORK=$work
  : >"$work/connections"
  cat >"$work/shell" <<'END'
#!/bin/sh
host=$1
shift
echo "$$ $host" >>"$WORK/connections"
[ "$host" != away ] || { echo "ssh: cannot find away" >&2; exit 255; }
exec sh -c "$*"
END
  chmod +x "$work/shell"
}

need_python() { # for what
  command -v python3 >/dev/null && return
  echo "python3, which $1, is not installed"
  exit 77
}

terminal() { # mode of terminal.py, then ddprun's arguments
  TERM=${TERM:-xterm} timeout -s KILL 60 python3 "$DDP_SOURCE_DIR/tests/process/terminal.py" "$1" "$ddprun" "${@:2}" >"$work/out" 2>"$work/err"
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

lines() { # file, number: does it have at least this many lines?
  [ "$(wc -l <"$1")" -ge "$2" ]
}

finish() { exit $((fails > 0)); }
