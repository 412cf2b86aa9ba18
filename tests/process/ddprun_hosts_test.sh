# SPDX-License-Identifier: Apache-2.0
# ddprun on several machines: by hand (--nnodes), and from one (--hosts). A script takes the place of ssh and starts the command here;
# ddprun_sshd_test.sh has real connections.
. "$DDP_SOURCE_DIR/tests/process/ddprun_support.sh" || exit 1
unset OMP_NUM_THREADS DDP_TOKEN DDP_TOKEN_FILE PYTHONUNBUFFERED
show='echo $RANK of $WORLD_SIZE, $LOCAL_RANK of $LOCAL_WORLD_SIZE, at $MASTER_ADDR:$MASTER_PORT'

# By hand.
secret=0123456789abcdef
DDP_TOKEN=$secret timeout 60 "$ddprun" --nnodes 2 --node-rank 1 --rendezvous a:29500 -n 2 sh -c "$show" >"$work/second" 2>&1
DDP_TOKEN=$secret run 0 --nnodes 2 --node-rank 0 --rendezvous a:29500 -n 2 sh -c "$show"
check the_first_machine_has_the_first_ranks same "$(sort "$work/out")" \
  $'[0] 0 of 4, 0 of 2, at a:29500\n[1] 1 of 4, 1 of 2, at a:29500'
check the_second_has_the_others same "$(grep '^\[' "$work/second" | sort)" \
  $'[2] 2 of 4, 0 of 2, at a:29500\n[3] 3 of 4, 1 of 2, at a:29500'
DDP_TOKEN=$secret says 3 a_failure_has_the_number_of_the_job 'rank 3 failed' --nnodes 2 --node-rank 1 --rendezvous a:29500 -n 2 sh -c 'exit $((RANK == 3 ? 3 : 0))'
DDP_TOKEN=$secret prints show_means_the_ranks_of_the_job '[2] 2' --nnodes 2 --node-rank 1 --rendezvous a:29500 -n 2 --show 2 sh -c 'echo $RANK'
refused 'set DDP_TOKEN to the same text' --nnodes 2 --node-rank 1 --rendezvous a:29500 -n 2 true
refused 'needs --rendezvous' --nnodes 2 --node-rank 1 -n 2 true
refused '--node-rank must be from 0 to 1' --nnodes 2 --rendezvous a:29500 -n 2 true
refused 'needs -n' --nnodes 2 --node-rank 0 --rendezvous a:29500 true
refused 'as a:29500, not a' --nnodes 2 --node-rank 0 --rendezvous a -n 2 true
refused 'Give one' --nnodes 2 --hosts a:1 true
DDP_TOKEN=$secret refused 'use --hosts' --nnodes 2 --node-rank 0 --rendezvous a:29500 -n 2 --max-restarts 1 true
refused 'from 1 to the number of ranks, 3' --hosts a:1,b:2 --min-ranks 4 true
refused 'How many\|how many ranks' --hosts a,b true

# From one machine, with a script as ssh.
make_ssh
hosts() { # expected exit code, arguments
  local code=$1
  shift
  : >"$work/connections"
  run "$code" --ssh "$work/shell" "$@"
}
launch=hosts
export DDP_EXAMPLE=travels
hosts 0 --hosts a:2,b:1 --env "X=a 'b' c" sh -c 'echo $RANK $WORLD_SIZE $LOCAL_RANK $LOCAL_WORLD_SIZE $MASTER_ADDR $X $DDP_EXAMPLE ${#DDP_TOKEN}'
check all_ranks_of_all_hosts_write_here same "$(sort "$work/out")" \
  "[0] 0 3 0 2 a a 'b' c travels 64"$'\n'"[1] 1 3 1 2 a a 'b' c travels 64"$'\n'"[2] 2 3 0 1 a a 'b' c travels 64"
lines=$'first\nsecond \\n \\\\ third\\'
DDP_LINES=$lines DDP_TOKEN=$'0123456789abcdef\nmore' hosts 0 --hosts a:1 --env "X=$lines" \
  sh -c 'printf "%s|%s|%s" "$X" "$DDP_LINES" "$DDP_TOKEN" >"$WORK/lines"'
check values_of_several_lines_travel same "$(cat "$work/lines")" "$lines|$lines|"$'0123456789abcdef\nmore'
printf '%s\n' 0123456789abcdef >"$work/token"
chmod 640 "$work/token"
DDP_TOKEN_FILE=$work/token says 2 a_token_that_others_can_read_is_refused 'can be read by others: run chmod 600 on it' --hosts a:1 true
chmod 600 "$work/token"
DDP_TOKEN_FILE=$work/token prints the_token_of_a_file_travels '[0] 0123456789abcdef' --hosts a:1 sh -c 'echo $DDP_TOKEN'
mkfifo "$work/pipe"
DDP_TOKEN_FILE=$work/pipe says 2 a_pipe_as_token_is_refused 'is no regular file' --hosts a:1 true
says 2 a_host_is_no_option 'needs hosts such as a:4' --hosts '[-oProxyCommand=touch${IFS}/tmp/x]:1' true
hosts 0 --hosts a:2,b:1 sh -c '
  ps -eo args | awk "index(\$0, ENVIRON[\"DDP_TOKEN\"])" | wc -l'
check no_command_line_has_the_token same "$(cut -d' ' -f2 "$work/out" | sort -u)" 0
printf '# hosts\na slots=1\nb:2\n' >"$work/hosts"
prints_sorted a_host_file_says_the_same $'[0] 0 0\n[1] 1 0\n[2] 2 1' --hostfile "$work/hosts" sh -c 'echo $RANK $LOCAL_RANK'
says 7 the_host_that_failed_is_named 'host b failed first: exit code 7' --hosts a:1,b:1 --grace 1 sh -c '[ $RANK = 1 ] && exit 7; exec sleep 60'
check its_rank_is_named_too grep -q 'rank 1 failed: exit code 7' "$work/err"
says 255 what_ssh_said_is_there 'ssh: cannot find away' --hosts a:1,away:1 --grace 1 sleep 60
check and_what_it_means grep -q 'ssh ends so when it cannot connect' "$work/err"

cp "$ddprun" "$work/ddprun-there"
says 127 a_missing_ddprun_is_named "ddprun is not at $work/none/ddprun on host a: install libddp there at the same path, or give --ddprun" --ddprun "$work/none/ddprun" --hosts a:1 true
check and_what_the_shell_says_is_left_out eval '! grep -q "not found" "$work/err"'
says 127 check_says_it_too "ddprun is not at $work/none/ddprun on host a" --check --ddprun "$work/none/ddprun" --hosts a:1
prints another_path_of_ddprun "[0] $work/ddprun-there" --ddprun "$work/ddprun-there" --hosts a:1 sh -c 'readlink /proc/$PPID/exe'
mkdir "$work/place"
prints_sorted another_folder "[0] $work/place"$'\n'"[1] $work/place" --chdir "$work/place" --hosts a:1,b:1 pwd
says 125 a_missing_folder_is_named "host a cannot enter the folder $work/none" --chdir "$work/none" --hosts a:1 pwd

# The machines of an allocation; options on the command line win.
allocated() { SLURM_JOB_ID=7 SLURM_JOB_NODELIST='n[08-09]' SLURM_NTASKS=3 SLURM_TASKS_PER_NODE=2,1 hosts "$@"; }
allocated 0 sh -c 'echo $RANK $LOCAL_RANK $MASTER_ADDR'
check the_allocation_has_the_hosts same "$(sort "$work/out")" $'[0] 0 0 n08\n[1] 1 1 n08\n[2] 2 0 n08'
check it_is_said grep -q '^ddprun: 2 hosts of Slurm (SLURM_JOB_NODELIST): n08:2 n09:1$' "$work/err"
allocated 0 -n 2 sh -c 'echo $RANK $MASTER_ADDR'
check with_n_ranks_run_here same "$(sort "$work/out")" $'[0] 0 127.0.0.1\n[1] 1 127.0.0.1'
allocated 0 --hosts c:1 sh -c 'echo $MASTER_ADDR'
check hosts_that_are_named_win same "$(cat "$work/out")" '[0] c'
printf 'p1\np2\np1\n' >"$work/nodes"
PBS_NODEFILE=$work/nodes prints_sorted so_has_that_of_pbs $'[0] 0 0 of 2\n[1] 1 1 of 2\n[2] 2 0 of 1' sh -c 'echo $RANK $LOCAL_RANK of $LOCAL_WORLD_SIZE'

# However it ends, nothing stays.
begin() { # starts a job of two hosts that writes its process numbers
  : >"$work/pids"
  : >"$work/connections"
  start --ssh "$work/shell" --hosts a:1,b:1 --grace 1 sh -c 'echo $$ >>"$WORK/pids"; exec sleep 100'
  check both_ranks_run within 20 lines "$work/pids" 2
}
nothing_stays() { gone $(cat "$work/pids"); }
begin
kill -TERM "$pid"
check a_signal_ends_all ended 143
check and_its_ranks within 10 nothing_stays
begin
kill -KILL "$pid"
wait "$pid" 2>/dev/null
check ranks_end_when_ddprun_is_killed within 20 nothing_stays
begin
kill -KILL "$(head -1 "$work/connections" | cut -d" " -f1)"
check a_connection_that_breaks_is_a_failure ended 137
check and_all_ranks_end within 20 nothing_stays

# Ranks that fail are started again on their host, and the others continue. A rank's file for ranks that join reaches all hosts.
hosts 0 --hosts a:2,b:1 --max-restarts 2 sh -c 'echo "rank $RANK joins ${DDP_JOIN:-no} restarts ${DDP_RESTARTS:-0} $LOCAL_RANK of $LOCAL_WORLD_SIZE $WORLD_SIZE"
  if [ $RANK = 2 ] && [ -z "${DDP_JOIN:-}" ]; then echo its last words >&2; exit 3; fi
  [ $RANK = 0 ] && echo the place of rank 0 >"$DDP_JOIN_FILE"
  if [ $RANK = 2 ]; then until read -r line <"$DDP_JOIN_FILE"; do sleep 0.1; done 2>/dev/null; echo "found $line"; : >"$WORK/found"; fi
  until [ -e "$WORK/found" ]; do sleep 0.1; done; echo "finished $RANK"'
check a_rank_joins_on_its_host grep -q '\[2\] rank 2 joins 1 restarts 1 0 of 1 3' "$work/out"
check the_others_are_started_once [ "$(grep -c 'joins no' "$work/out")" = 3 ]
check it_finds_what_another_host_wrote grep -q '\[2\] found the place of rank 0' "$work/out"
check who_joins_is_said note 'starting rank 2 again, to join rank.* (restart 1 of 2)'
check the_host_is_said note 'rank 2 (host b) failed (exit code 3)'
check the_story_is_told grep -q 'ddprun: *[0-9.]* s  3 of 3 ranks have succeeded' "$work/err"
check no_report_is_shown eval '! grep -q "$(printf "\036")\|\"report\":" "$work/out" "$work/err"'

rm -f "$work/found"
hosts 3 --hosts a:1,b:1 --min-ranks 2 --grace 1 sh -c '[ $RANK = 1 ] && { echo its last words; exit 3; }; exec sleep 60'
check too_few_ranks_end_the_job note 'rank 1 (host b) failed first: exit code 3 .*peak memory [1-9]'
check the_last_lines_travel note '  | its last words'
hosts 0 --hosts a:1,b:1 --keep-going sh -c '[ $RANK = 1 ] && exit 3; sleep 0.5; echo done'
check keep_going_goes_over_hosts note 'rank 0 succeeded (--keep-going)'
hosts 0 --hosts a:1,b:2 --no-prefix --max-restarts 1 sh -c 'printf half; [ -e "$WORK/again$RANK" ] || { : >"$WORK/again$RANK"; exit 5; }; echo " whole"'
check all_start_again_on_their_hosts note 'starting ranks 0 to 2 again\|starting ranks 0, 1, 2 again'
check lines_that_a_report_has_cut_go_on [ "$(grep -o half "$work/out" | wc -l)" = 6 ]
rm -f "$work"/again*

# A connection that breaks takes its ranks with it, and the host is called again.
: >"$work/pids"
: >"$work/connections"
start --ssh "$work/shell" --hosts a:1,b:2 --grace 1 --max-restarts 2 sh -c 'echo $RANK ${DDP_JOIN:-no} $$ >>"$WORK/pids"
  until [ -e "$WORK/enough" ]; do sleep 0.1; done'
check three_ranks_run within 20 lines "$work/pids" 3
kill -KILL "$(sed -n 's/ b$//p' "$work/connections")"
check the_host_is_called_again within 20 lines "$work/pids" 5
check its_ranks_join [ "$(grep -c '^[12] 1 ' "$work/pids")" = 2 ]
check the_lost_ranks_are_gone within 10 gone $(sed -n 's/^[12] no //p' "$work/pids")
: >"$work/enough"
check and_the_job_succeeds ended 0
check the_connection_is_blamed note 'rank 1 (host b) failed (lost with the connection to host b'
finish
