# SPDX-License-Identifier: Apache-2.0
# No rank outlives ddprun, whatever ends it, and neither do the children of ranks. Needs no library.
. "$DDP_SOURCE_DIR/tests/process/ddprun_support.sh" || exit 1

# Each rank prints its number and that of a child that ignores polite signals.
program='trap "" TERM INT HUP; sh -c "trap \"\" TERM INT HUP; echo \$\$; while :; do sleep 0.1; done" & echo $$; wait'
for signal in KILL SEGV; do
  : >"$work/out"
  (ulimit -c 0; exec "$ddprun" -n 4 sh -c "$program" >"$work/out" 2>"$work/err") &
  pid=$!
  within 20 lines "$work/out" 8
  numbers=$(cut -d' ' -f2 "$work/out" | tr '\n' ' ')
  check "four_ranks_and_their_children_run" [ "$(echo $numbers | wc -w)" = 8 ]
  check "they_live" eval "! gone $numbers"
  kill -$signal "$pid"
  check "nothing_is_left_5_s_after_SIG$signal" within 5 gone $numbers
  wait "$pid" 2>/dev/null
done

# The ranks alone, when the helper has been killed too.
: >"$work/out"
"$ddprun" -n 4 sh -c 'echo $$; exec sleep 60' >"$work/out" 2>"$work/err" &
pid=$!
within 20 lines "$work/out" 4
numbers=$(cut -d' ' -f2 "$work/out" | tr '\n' ' ')
guard=$(pgrep -P "$pid" -f 'ddprun -n 4' | head -n 1)
kill -9 $guard "$pid"
check without_its_helper_too within 5 gone $numbers

# The helper keeps nothing open and does not stay.
"$ddprun" -n 2 true | cat
check the_helper_ends_with_the_job eval "! pgrep -f '^$ddprun -n 2 true' >/dev/null"
finish
