// SPDX-License-Identifier: Apache-2.0
// Hooks together with every way of an optimizer, with ranks as threads: conformance/hook_optimizer_semantics.hpp.
#include "conformance/hook_optimizer_semantics.hpp"
#include "support/on_processes.hpp"

int main() {
  using namespace ddp::test;
  return run_on_threads<kHookOptimizerSemantics>(std::make_index_sequence<std::size(kHookOptimizerSemantics)>());
}
