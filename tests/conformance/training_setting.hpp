// SPDX-License-Identifier: Apache-2.0
// What the seed of a random training decides before its first call (conformance/training_test.cpp).
#pragma once

#include "support/training.hpp"

namespace ddp::test {

struct Setting {
  Path path;
  int ranks;
  Rule rule = Rule::kMomentum;
  Ways ways{};
  double loss_scale = 1;

  explicit Setting(unsigned seed) {
    std::mt19937 random(seed * 7919);
    const auto below = [&](unsigned n) { return static_cast<unsigned>(random() % n); };
    const auto one_of = [&](unsigned n) { return below(n) == 0; };
    path = kEveryPath[seed % kEveryPath.size()];
    ranks = std::max(row_of(path).least, 1 + static_cast<int>(below(4)));
    ways.shapes = {3, 1500, 40, 2100, 700};
    ways.first_bucket_bytes = 4'000;
    ways.bucket_bytes = one_of(3) ? 100'000 : 7'000;
    ways.dtype = one_of(2) ? DDP_F32 : one_of(2) ? DDP_F64 : DDP_BF16;
    ways.master_weights = ways.dtype == DDP_BF16;  // without them the oracle would have to round
    ways.home = path == Path::kGpu ? (one_of(3) ? Home::kHost : one_of(2) ? Home::kBoth : Home::kGpu) : Home::kHost;
    ways.own_values = one_of(4);
    ways.values_in_group = !ways.own_values && one_of(3);
    ways.owned_grads = !one_of(4);
    ways.every_second_lent = one_of(2);
    ways.shard = one_of(2);
    ways.in_backward = one_of(2);
    ways.undo = ways.in_backward || !one_of(4);  // without it a void pass ends the training until a load
    ways.unused = one_of(2) ? DDP_UNUSED_ALLOW : DDP_UNUSED_ERROR;
    ways.nonfinite = one_of(4) ? DDP_NONFINITE_SKIP : DDP_NONFINITE_KEEP;
    ways.progress = one_of(4) ? DDP_PROGRESS_THREAD : DDP_PROGRESS_CALLER;
    if (one_of(2)) rule = Rule::kAdamW;
    if (one_of(4)) ways.clip_value = 0.75;
    if (one_of(6)) ways.max_norm = 1e9;  // looks at the whole gradient and changes nothing
    if (one_of(4)) loss_scale = 8;
    ways.rate = 0.125;
    ways.momentum = 0.5;
    ways.epsilon = 1e-2;
  }
  [[nodiscard]] bool skips_nonfinite() const { return ways.nonfinite == DDP_NONFINITE_SKIP; }
  /// Of a parameter: F64 is as exact as the oracle, F32 adds up its roundings, BF16 rounds gradients and values.
  [[nodiscard]] double tolerance() const { return ways.dtype == DDP_F64 ? 1e-9 : ways.dtype == DDP_F32 ? 2e-3 : 3e-2; }
  [[nodiscard]] std::string describe() const {
    return std::string(rule == Rule::kAdamW ? "AdamW" : "SGD") + ", " + dtype_name(ways.dtype) + ", " + row_of(path).name +
           ", " + std::to_string(ranks) + " ranks, home " + std::to_string(static_cast<int>(ways.home)) +
           (ways.own_values ? ", own values" : "") + (ways.values_in_group ? ", values in the group" : "") +
           (!ways.owned_grads        ? ", lent gradients"
            : ways.every_second_lent ? ", some lent gradients"
                                     : "") +
           (ways.shard ? ", shard" : "") + (ways.in_backward ? ", in_backward" : "") + (ways.undo ? "" : ", no undo") +
           (ways.unused == DDP_UNUSED_ALLOW ? ", unused" : "") + (skips_nonfinite() ? ", skips" : "") +
           (ways.progress == DDP_PROGRESS_THREAD ? ", thread" : "") + (ways.clip_value > 0 ? ", clips" : "") +
           (loss_scale > 1 ? ", scales" : "") + (ways.max_norm > 0 ? ", norm" : "");
  }
};

}  // namespace ddp::test
