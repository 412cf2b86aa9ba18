// SPDX-License-Identifier: Apache-2.0
// An outer optimizer with ranks as processes: every promise of conformance/outer_semantics.hpp.
#include "conformance/outer_semantics.hpp"
#include "support/on_processes.hpp"

int main() {
  using namespace ddp::test;
  return run_on_processes<kOuterSemantics>(std::make_index_sequence<std::size(kOuterSemantics)>());
}
