# SPDX-License-Identifier: Apache-2.0
# ddprun on a terminal: typed lines reach rank 0, Ctrl-D ends its input, Ctrl-C ends the job, a hang-up too. Needs no library.
. "$DDP_SOURCE_DIR/tests/process/ddprun_support.sh" || exit 1
need_python "makes the terminal"

on_terminal() { # exit code, name, steps of terminal.py, ddprun's arguments
  TERM=dumb terminal "$3" "${@:4}"
  check "$2" same "$(cat "$work/out" "$work/err")" "$1"
}

on_terminal 0 typed_lines_reach_rank_0_and_ctrl_d_ends_them 'type hello\n|wait [0] hello|type \x04' -n 2 cat
on_terminal 130 ctrl_c_ends_the_job 'wait [0] ready|wait [1] ready|type \x03' -n 2 sh -c 'sleep 0.$RANK; echo ready; exec sleep 60'
on_terminal 130 a_second_ctrl_c_kills 'wait [0] ready|type \x03|wait got it|type \x03' -n 1 sh -c 'trap "echo got it" INT; echo ready; while :; do sleep 0.05; done'
on_terminal 129 a_terminal_that_goes_ends_the_job 'wait [0] ready|hang' -n 1 sh -c 'echo ready; exec sleep 60'
on_terminal 0 rank_0_may_close_its_input 'wait [0] done' -n 1 sh -c 'exec <&-; sleep 0.2; echo done'
on_terminal 0 an_answer_ends_the_line_of_its_prompt 'wait [0] name? |type Ada\n|wait [0] hello Ada' -n 1 sh -c 'printf "name? "; read -r name; echo "hello $name"'
on_terminal 0 ctrl_z_stops_and_fg_continues 'wait [0] ready|type \x1a|stopped|wait [0] done' -n 1 sh -c 'echo ready; sleep 0.5; echo done'
finish
