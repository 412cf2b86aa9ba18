// SPDX-License-Identifier: Apache-2.0
#include "modules/cuda/kernels/launchers.hpp"

namespace ddp::cuda {

std::array<KernelList, 12> all_kernels() noexcept {
  return {move_kernels(), bytes_kernels(),   ema_kernels(),       adam_kernels(), sgd_kernels(),  norm_kernels(),
          hash_kernels(), moments_kernels(), normalise_kernels(), word_kernels(), tree_kernels(), plan_kernels()};
}

void fill_kernels(ddp_gpu_table& table) noexcept {
  table.move = move;
  table.exchange = exchange;
  table.ema = ema;
  table.adam = adam_step;
  table.sgd = sgd_step;
  table.add_norm_terms = add_norm_terms;
  table.largest = largest;
  table.decide = decide;
  table.hash = hash;
  table.copy_word = copy_word;
  table.copy_bytes = copy_bytes;
  table.bn_scratch_bytes = bn_scratch_bytes;
  table.bn_moments = bn_moments;
  table.bn_join = bn_join;
  table.bn_apply = bn_apply;
  table.bn_sums = bn_sums;
  table.bn_slopes = bn_slopes;
  table.bn_apply_backward = bn_apply_backward;
  table.move_quotient = move_quotient;
  table.tree_sum = tree_sum;
  table.plan_step = plan_step;
  table.planned_adam = planned_adam;
  table.planned_sgd = planned_sgd;
}

}  // namespace ddp::cuda
