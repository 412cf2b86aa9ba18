# SPDX-License-Identifier: Apache-2.0
# Two ranks learn one number, and an error has its text: ddprun -n 2 perl smoke.pl
use strict;
use warnings;
use ddp;

my $group = ddp::open_group(undef, -1, -1);
my $rank = ddp::ddp_group_get_rank($group);
my $value = ddp::new_floats(1);
ddp::floats_setitem($value, 0, $rank);
my $model = ddp::open_model($group);
ddp::ddp_model_add_parameter($model, "w", ddp::tensor_of($value, 1), undef, undef);
ddp::ddp_model_commit($model, undef);
my $sgd = ddp::open_sgd($model, 0.5);
my $grad = ddp::gradient_of($model, 0);
for my $step (1 .. 3) {
  ddp::ddp_model_begin_backward($model, $ddp::DDP_PASS_REDUCE);
  ddp::floats_setitem($grad, 0, -2 * $rank);
  ddp::ddp_model_mark_ready($model, 0, undef);
  ddp::ddp_model_end_backward($model, undef);
  ddp::ddp_optimizer_step($sgd, undef);
}
# The size of a struct is filled in, and numbers have 64 bits.
my $options = ddp::ddp_group_options->new();
ddp::ddp_group_options_init($options);
$options->{timeout_ms} = 2**40;
my $stats = ddp::ddp_model_stats->new();
ddp::ddp_model_get_stats($model, $stats);
die "options or stats are wrong" unless $options->{timeout_ms} == 2**40 && $options->{rank} == -1 && $stats->{passes} == 3;
eval { ddp::ddp_model_commit($model, undef); };
my $text = $@;
printf "perl: %g, %s\n", ddp::floats_getitem($value, 0), $text =~ /the model is already committed/ ? "refused" : "not refused: $text";
ddp::ddp_group_barrier($group);
ddp::ddp_optimizer_destroy($sgd);
ddp::ddp_model_destroy($model);
ddp::ddp_group_destroy($group);
