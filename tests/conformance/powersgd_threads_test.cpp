// SPDX-License-Identifier: Apache-2.0
// PowerSGD with ranks as threads: every promise of conformance/powersgd_semantics.hpp.
#include "conformance/powersgd_semantics.hpp"
#include "support/on_processes.hpp"

int main() {
  using namespace ddp::test;
  return run_on_threads<kPowerSemantics>(std::make_index_sequence<std::size(kPowerSemantics)>());
}
