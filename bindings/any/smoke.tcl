# SPDX-License-Identifier: Apache-2.0
# Two ranks learn one number, and an error has its text: ddprun -n 2 tclsh smoke.tcl
load [file join $env(DDP_ANY) ddp.so] Ddp

set group [open_group env:// -1 -1]
set rank [ddp_group_get_rank $group]
set value [new_floats 1]
floats_setitem $value 0 $rank
set model [open_model $group]
ddp_model_add_parameter $model w [tensor_of $value 1] NULL NULL
ddp_model_commit $model NULL
set sgd [open_sgd $model 0.5]
set grad [gradient_of $model 0]
for {set step 0} {$step < 3} {incr step} {
  ddp_model_begin_backward $model $DDP_PASS_REDUCE
  floats_setitem $grad 0 [expr {-2 * $rank}]
  ddp_model_mark_ready $model 0 NULL
  ddp_model_end_backward $model NULL
  ddp_optimizer_step $sgd NULL
}
# The size of a struct is filled in, and numbers have 64 bits.
set options [new_ddp_group_options]
ddp_group_options_init $options
ddp_group_options_timeout_ms_set $options 1099511627776
set stats [new_ddp_model_stats]
ddp_model_get_stats $model $stats
if {[ddp_group_options_timeout_ms_get $options] != 1099511627776 || [ddp_group_options_rank_get $options] != -1 ||
    [ddp_model_stats_passes_get $stats] != 3} { error "options or stats are wrong" }
set failed [catch {ddp_model_commit $model NULL} text]
puts [format "tcl: %g, %s" [floats_getitem $value 0] [expr {$failed && [string match "*the model is already committed*" $text] ? "refused" : "not refused: $text"}]]
ddp_group_barrier $group
ddp_optimizer_destroy $sgd
ddp_model_destroy $model
ddp_group_destroy $group
