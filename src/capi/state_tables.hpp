// SPDX-License-Identifier: Apache-2.0
// The tables of what is built on a model and has a state: optimizers, averages, outer optimizers.
#pragma once

#include "capi/tables.hpp"
#include "extra/outer/outer.hpp"
#include "optim/ema.hpp"
#include "optim/optimizer.hpp"

namespace ddp::capi {

using OptimizerTable = HandleTable<optim::Optimizer, ddp_optimizer, 0xd3>;
using EmaTable = HandleTable<optim::Ema, ddp_ema, 0xd4>;
using OuterTable = HandleTable<outer::Outer, ddp_outer, 0xd6>;

template <>
struct Kind<ddp_optimizer> {
  using Table = OptimizerTable;
  static constexpr const char* kName = "optimizer";
};
template <>
struct Kind<ddp_ema> {
  using Table = EmaTable;
  static constexpr const char* kName = "ema";
};
template <>
struct Kind<ddp_outer> {
  using Table = OuterTable;
  static constexpr const char* kName = "outer";
};

}  // namespace ddp::capi
