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
DDP_TOKEN=$secret run 3 --nnodes 2 --node-rank 1 --rendezvous a:29500 -n 2 sh -c 'exit $((RANK == 3 ? 3 : 0))'
check a_failure_has_the_number_of_the_job grep -q 'rank 3 failed' "$work/err"
DDP_TOKEN=$secret run 0 --nnodes 2 --node-rank 1 --rendezvous a:29500 -n 2 --show 2 sh -c 'echo $RANK'
check show_means_the_ranks_of_the_job same "$(cat "$work/out")" '[2] 2'
refused() { # text, arguments
  local text=$1
  shift
  run 2 "$@"
  check "$text" grep -q -e "$text" "$work/err"
}
refused 'set DDP_TOKEN to the same text' --nnodes 2 --node-rank 1 --rendezvous a:29500 -n 2 true
refused 'needs --rendezvous' --nnodes 2 --node-rank 1 -n 2 true
refused '--node-rank must be from 0 to 1' --nnodes 2 --rendezvous a:29500 -n 2 true
refused 'needs -n' --nnodes 2 --node-rank 0 --rendezvous a:29500 true
refused 'as a:29500, not a' --nnodes 2 --node-rank 0 --rendezvous a -n 2 true
refused 'Give one' --nnodes 2 --hosts a:1 true
refused 'ranks of one machine' --hosts a:1,b:1 --max-restarts 1 true
refused 'How many\|how many ranks' --hosts a,b true

# From one machine, with a script as ssh. It notes its own number, so that the connection can be broken.
cat >"$work/shell" <<'END'
#!/bin/sh
echo $$ >>"$WORK/connections"
host=$1
[ "$host" != away ] || { echo "ssh: cannot find away" >&2; exit 255; }
exec sh -c "$2"
END
chmod +x "$work/shell"
export WORK=$work
hosts() { # expected exit code, arguments
  local code=$1
  shift
  : >"$work/connections"
  run "$code" --ssh "$work/shell" "$@"
}
export DDP_EXAMPLE=travels
hosts 0 --hosts a:2,b:1 --env "X=a 'b' c" sh -c 'echo $RANK $WORLD_SIZE $LOCAL_RANK $LOCAL_WORLD_SIZE $MASTER_ADDR $X $DDP_EXAMPLE ${#DDP_TOKEN}'
check all_ranks_of_all_hosts_write_here same "$(sort "$work/out")" \
  "[0] 0 3 0 2 a a 'b' c travels 64"$'\n'"[1] 1 3 1 2 a a 'b' c travels 64"$'\n'"[2] 2 3 0 1 a a 'b' c travels 64"
hosts 0 --hosts a:2,b:1 sh -c '
  ps -eo args | awk "index(\$0, ENVIRON[\"DDP_TOKEN\"])" | wc -l'
check no_command_line_has_the_token same "$(cut -d' ' -f2 "$work/out" | sort -u)" 0
printf '# hosts\na slots=1\nb:2\n' >"$work/hosts"
hosts 0 --hostfile "$work/hosts" sh -c 'echo $RANK $LOCAL_RANK'
check a_host_file_says_the_same same "$(sort "$work/out")" $'[0] 0 0\n[1] 1 0\n[2] 2 1'
hosts 7 --hosts a:1,b:1 --grace 1 sh -c '[ $RANK = 1 ] && exit 7; exec sleep 60'
check the_host_that_failed_is_named grep -q 'host b failed first: exit code 7' "$work/err"
check its_rank_is_named_too grep -q 'rank 1 failed: exit code 7' "$work/err"
hosts 255 --hosts a:1,away:1 --grace 1 sleep 60
check what_ssh_said_is_there grep -q 'ssh: cannot find away' "$work/err"
check and_what_it_means grep -q 'ssh ends so when it cannot connect' "$work/err"

# However it ends, nothing stays.
begin() { # starts a job of two hosts that writes its process numbers
  : >"$work/pids"
  : >"$work/connections"
  "$ddprun" --ssh "$work/shell" --hosts a:1,b:1 --grace 1 sh -c 'echo $$ >>"$WORK/pids"; exec sleep 100' >"$work/out" 2>"$work/err" &
  job=$!
  check both_ranks_run within 20 lines "$work/pids" 2
}
nothing_stays() { gone $(cat "$work/pids"); }
begin
kill -TERM "$job"
code=0
wait "$job" || code=$?
check a_signal_ends_all same "$code" 143
check and_its_ranks within 10 nothing_stays
begin
kill -KILL "$job"
wait "$job" 2>/dev/null
check ranks_end_when_ddprun_is_killed within 20 nothing_stays
begin
kill -KILL "$(head -1 "$work/connections")"
code=0
wait "$job" || code=$?
check a_connection_that_breaks_is_a_failure same "$code" 137
check and_all_ranks_end within 20 nothing_stays

finish
