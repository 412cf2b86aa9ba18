# SPDX-License-Identifier: Apache-2.0
# ddprun: the ranks' environment, exit codes, and the answers to wrong use. Needs no library.
. "$DDP_SOURCE_DIR/tests/process/ddprun_support.sh" || exit 1

# Environment of the ranks.
unset OMP_NUM_THREADS DDP_TOKEN PYTHONUNBUFFERED
prints_sorted ranks_know_who_they_are $'[0] 0 3 0 3 127.0.0.1\n[1] 1 3 1 3 127.0.0.1\n[2] 2 3 2 3 127.0.0.1' -n 3 sh -c 'echo $RANK $WORLD_SIZE $LOCAL_RANK $LOCAL_WORLD_SIZE $MASTER_ADDR'
run 0 -n 2 --no-prefix sh -c 'echo $MASTER_PORT $DDP_TOKEN'
check all_ranks_get_one_port_and_token [ "$(sort -u "$work/out" | wc -l)" = 1 ]
check token_is_64_hexadecimal_digits grep -Eq '^[0-9]+ [0-9a-f]{64}$' "$work/out"
first=$(cat "$work/out")
run 0 -n 2 --no-prefix sh -c 'echo $MASTER_PORT $DDP_TOKEN'
check every_job_has_its_own_token [ "$first" != "$(cat "$work/out")" ]
DDP_TOKEN=mine prints a_token_that_is_set_is_kept '[0] mine' -n 1 sh -c 'echo $DDP_TOKEN'
run 0 -n 2 sh -c 'tr "\0" "\n" </proc/$PPID/cmdline | grep -c "$DDP_TOKEN" || true'
check token_is_not_in_the_command_line same "$(sort -u "$work/out")" $'[0] 0\n[1] 0'
prints port_can_be_chosen '[0] 23456' -n 1 --port 23456 sh -c 'echo $MASTER_PORT'
cores=$("$ddprun" -n 1 nproc | cut -d' ' -f2)
run 0 -n 2 sh -c 'echo $OMP_NUM_THREADS'
half=$((cores > 1 ? cores / 2 : 1))
check ranks_share_the_cores_for_openmp same "$(sort "$work/out")" "[0] $half"$'\n'"[1] $half"
check that_is_said_once same "$(cat "$work/err")" "ddprun: OMP_NUM_THREADS=$half for each rank, because it was not set (cores: $cores, ranks: 2)"
run 0 -n 64 sh -c 'echo $OMP_NUM_THREADS'
check more_ranks_than_cores_get_one_thread_each same "$(cut -d' ' -f2 "$work/out" | sort -u)" 1
OMP_NUM_THREADS=3 prints_sorted openmp_threads_that_are_set_are_kept $'[0] 3\n[1] 3' -n 2 sh -c 'echo $OMP_NUM_THREADS'
check then_nothing_is_said same "$(cat "$work/err")" ''
prints one_rank_keeps_all_openmp_threads '[0] unset' -n 1 sh -c 'echo ${OMP_NUM_THREADS-unset}'
says 0 verbose_says_what_was_set '2 ranks of .*, MASTER_ADDR=127.0.0.1 MASTER_PORT=' --verbose -n 2 true
prints_sorted env_sets_variables $'[0] x y 0\n[1] x y 1' -n 2 --env 'A=x y' --env OMP_NUM_THREADS=5 sh -c 'echo "$A" $RANK'
run 0 sh -c 'echo $WORLD_SIZE'
check default_is_one_rank_for_each_core [ "$(wc -l <"$work/out")" -ge 1 ]
(taskset -c 0 true) 2>/dev/null && {
  taskset -c 0 "$ddprun" sh -c 'echo $WORLD_SIZE' >"$work/out"
  check default_counts_only_usable_cores same "$(cat "$work/out")" '[0] 1'
}

# Command line and input.
prints options_after_the_program_are_its_own '[0] 7 --help -- x' -n 1 echo -n 7 --help -- x
prints two_dashes_may_stand_before_the_program '[0] a' -n 1 -- echo a
run 0 -n 2 cat <<<'for rank 0'
check input_goes_to_rank_0_only same "$(cat "$work/out")" '[0] for rank 0'
echo piped | run 0 -n 2 cat
check piped_input_goes_to_rank_0_only same "$(cat "$work/out")" '[0] piped'
run 0 -n 1 cat <&-
check closed_input_reads_as_empty same "$(cat "$work/out")" ''
run 0 --help
check help_explains grep -q 'RANK, WORLD_SIZE' "$work/out"
check help_names_the_page_of_errors [ -f "$DDP_SOURCE_DIR/$(sed -n 's/^Errors  *\([^ ,]*\), .*/\1/p' "$work/out")" ]
run 0 --version
check version_is_told grep -Eq '^ddprun [0-9]+\.[0-9]+\.[0-9]+$' "$work/out"

# Exit codes.
run 3 -n 3 sh -c 'exit $((RANK == 1 ? 3 : 0))'
run 137 -n 2 --grace 0.1 sh -c '[ $RANK = 1 ] && kill -9 $$; sleep 60'
run 139 -n 1 sh -c 'ulimit -c 0; kill -SEGV $$'
says 124 timeout_names_the_ranks_that_ran 'the time limit of 0.2 s (--timeout) is over: sending SIGTERM to ranks 0, 1' -n 2 --timeout 0.2 sleep 60
says 127 missing_program_is_named 'no-such-program-at-all was not found in PATH' -n 2 no-such-program-at-all
echo 'echo hi' >"$work/ddp-script"
says 126 unexecutable_file_is_named "ddp-script is not executable: chmod +x" "$work/ddp-script"
chmod +x "$work/ddp-script"
says 126 script_without_interpreter_is_explained 'first line such as #!/bin/sh' "$work/ddp-script"
(cd "$work" && timeout 20 "$ddprun" ddp-script) 2>"$work/err"
check program_in_this_folder_is_suggested grep -q 'did you mean ./ddp-script?' "$work/err"

says 126 a_folder_is_no_program "$work is a folder, not a program" -n 2 "$work"
printf 'int main() {}\n' >"$work/program.c"
says 126 source_has_to_be_compiled 'it is C source; compile it first' -n 2 "$work/program.c"
(cd "$work" && timeout 20 "$ddprun" program.c) 2>"$work/err"
check source_in_this_folder_too grep -q 'the file program.c is not executable: it is C source; compile it first' "$work/err"
says 127 an_option_without_dashes_is_understood 'Did you mean the option: ddprun --check?' check
mkdir "$work/place"
printf '#!/bin/sh\npwd\n' >"$work/place/where"
chmod +x "$work/place/where"
prints ranks_start_in_another_folder "[0] $work/place" -n 1 --chdir "$work/place" ./where
prints programs_in_path_too "[0] $work/place" -n 1 --chdir "$work/place" pwd
says 2 a_missing_folder_is_named "--chdir: there is no folder $work/none" -n 1 --chdir "$work/none" pwd

# Wrong use: exit code 2 and a sentence that names it.
refused '-n must be from 1' -n 0 true
refused '-n must be from 1' -n -3 true
refused '--ranks needs a number, not many' -n many true
refused '--ranks needs a number, not two' --ranks=two true
refused '--timeout needs a number, not abc' --timeout abc true
refused 'Which program?' -n 2
refused 'no option --frobnicate. Try' --frobnicate true
refused 'no option --rank. Did you mean --ranks?' --rank 2 true
refused 'no option --repot. Did you mean --report?' --repot=x true
refused 'no option --hostfiel. Did you mean --hostfile?' -n 2 --hostfiel x true
refused '--port must be' --port 70000 true
refused '--env needs NAME=VALUE, not X' --env X true
refused '--timeout must be' --timeout -1 true
for name in RANK LOCAL_RANK WORLD_SIZE LOCAL_WORLD_SIZE MASTER_ADDR MASTER_PORT; do
  refused "--env $name=7: ddprun sets $name itself" --env $name=7 true
done
refused 'choose the port with --port' --env MASTER_PORT=1 true
for ranks in 2 -1 x 1-0 0-2 '0 1'; do refused '--show' --show "$ranks" -n 2 true; done

# Names that other launchers have are answered with ours.
for name in -np4 --nproc-per-node --nproc_per_node=4 --num_processes --ntasks; do refused 'write -n N' $name 4 true; done
for name in -np --np; do
  prints_sorted "$name is understood" $'[0] 2\n[1] 2' --grace 3 $name 2 sh -c 'echo $WORLD_SIZE'
done
refused 'write --port PORT' --master-port=1 true
refused 'write --hosts a:4,b:4' --host a,b true
refused 'write --rendezvous HOST:PORT' --rdzv_endpoint=a:1 true
refused 'write --env NAME=VALUE' -x A true
refused 'write --output-dir DIR' --log-dir x true
refused 'write --show RANKS' --local-ranks-filter 0 true
refused 'write python3 -m MODULE' -m train
prints the_programs_own_options_are_left_alone '[0] -np 4' -n 1 echo -np 4
# Processors: the mask is there before the program begins.
masks() { sort "$work/out" | sed 's/.*list:[[:space:]]*//' | paste -sd' '; }
usable=$(sed -n 's/Cpus_allowed_list:[[:space:]]*//p' /proc/self/status)
run 0 -n 2 --bind none grep Cpus_allowed_list /proc/self/status
check without_binding_all_processors_are_there same "$(masks)" "$usable $usable"
if [ "$usable" = 0-1 ] && [ "$(cat /sys/devices/system/cpu/cpu0/topology/thread_siblings_list)" = 0 ]; then
  run 0 -n 2 --bind core grep Cpus_allowed_list /proc/self/status
  check each_rank_has_a_core same "$(masks)" '0 1'
fi
says 2 what_is_possible_is_said 'core, numa or none, not socket' --bind socket true
finish
