# SPDX-License-Identifier: Apache-2.0
# ddprun on a terminal: what is typed reaches rank 0, Ctrl-D ends its input, Ctrl-C ends the job, a hang-up too. Needs no library.
. "$DDP_SOURCE_DIR/tests/process/ddprun_support.sh" || exit 1
command -v python3 >/dev/null || {
  echo "python3, which makes the terminal, is not installed"
  exit 77
}

# Runs ddprun as the foreground job of a new terminal. Steps are "wait TEXT", "type TEXT", "stopped" (it has stopped, and is continued) and "hang"
# (the terminal goes away);
# the last line printed is the exit code.
on_terminal() { # steps, then ddprun's arguments
  local steps=$1
  shift
  TERM=dumb timeout -s KILL 60 python3 - "$steps" "$ddprun" "$@" <<'PYTHON' >"$work/out" 2>"$work/err"
import os, pty, select, signal, sys
pid, terminal = pty.fork()
if pid == 0:
    os.execv(sys.argv[2], sys.argv[2:])
seen = b""
def read():
    global seen
    if not select.select([terminal], [], [], 20)[0]:
        sys.exit("nothing came for 20 s after: %r" % seen)
    try:
        data = os.read(terminal, 65536)
    except OSError:
        data = b""
    seen += data
    return data
hung = False
for step in sys.argv[1].split("|"):
    verb, _, text = step.partition(" ")
    if verb == "wait":
        while text.encode() not in seen and read():
            pass
        seen = seen.partition(text.encode())[2] if text.encode() in seen else sys.exit("never saw " + text)
    elif verb == "type":
        os.write(terminal, text.encode().decode("unicode_escape").encode())
    elif verb == "stopped":
        if not os.WIFSTOPPED(os.waitpid(pid, os.WUNTRACED)[1]):
            sys.exit("ddprun did not stop")
        os.kill(pid, signal.SIGCONT)
    elif verb == "hang":
        os.close(terminal)
        hung = True
while not hung and read():
    pass
status = os.waitpid(pid, 0)[1]
print(os.waitstatus_to_exitcode(status))
PYTHON
}

on_terminal 'type hello\n|wait [0] hello|type \x04' -n 2 cat
check typed_lines_reach_rank_0_and_ctrl_d_ends_them same "$(cat "$work/out" "$work/err")" 0
on_terminal 'wait [0] ready|wait [1] ready|type \x03' -n 2 sh -c 'sleep 0.$RANK; echo ready; exec sleep 60'
check ctrl_c_ends_the_job same "$(cat "$work/out" "$work/err")" 130
on_terminal 'wait [0] ready|type \x03|wait got it|type \x03' -n 1 sh -c 'trap "echo got it" INT; echo ready; while :; do sleep 0.05; done'
check a_second_ctrl_c_kills same "$(cat "$work/out" "$work/err")" 130
on_terminal 'wait [0] ready|hang' -n 1 sh -c 'echo ready; exec sleep 60'
check a_terminal_that_goes_ends_the_job same "$(cat "$work/out" "$work/err")" 129
on_terminal 'wait [0] done' -n 1 sh -c 'exec <&-; sleep 0.2; echo done'
on_terminal 'wait [0] name? |type Ada\n|wait [0] hello Ada' -n 1 sh -c 'printf "name? "; read -r name; echo "hello $name"'
check an_answer_ends_the_line_of_its_prompt same "$(cat "$work/out" "$work/err")" 0
on_terminal 'wait [0] ready|type \x1a|stopped|wait [0] done' -n 1 sh -c 'echo ready; sleep 0.5; echo done'
check ctrl_z_stops_and_fg_continues same "$(cat "$work/out" "$work/err")" 0
check rank_0_may_close_its_input same "$(cat "$work/out" "$work/err")" 0
finish
