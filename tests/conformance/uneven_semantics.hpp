// SPDX-License-Identifier: Apache-2.0
// What a model promises to ranks with unequal data, as tests that run on any kind of ranks: threads over shared memory
// (conformance/uneven_threads_test.cpp), processes over shared memory, over Gloo and on several hosts
// (conformance/uneven_processes_test.cpp).
#pragma once

#include <array>

#include "conformance/join_semantics.hpp"

namespace ddp::test {

inline constexpr auto kUnevenSemantics = [] {
  std::array<PassSemantics, std::size(kWeightSemantics) + std::size(kJoinSemantics)> all{};
  std::copy(std::begin(kWeightSemantics), std::end(kWeightSemantics), all.begin());
  std::copy(std::begin(kJoinSemantics), std::end(kJoinSemantics), all.begin() + std::size(kWeightSemantics));
  return all;
}();

}  // namespace ddp::test
