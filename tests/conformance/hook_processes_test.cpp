// SPDX-License-Identifier: Apache-2.0
// Hooks of a program's own with ranks as processes: every promise of conformance/hook_semantics.hpp.
#include "conformance/hook_semantics.hpp"
#include "support/on_processes.hpp"

int main() {
  using namespace ddp::test;
  return run_on_processes<kHookSemantics>(std::make_index_sequence<std::size(kHookSemantics)>());
}
