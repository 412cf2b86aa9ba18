// SPDX-License-Identifier: Apache-2.0
// Local SGD with ranks as threads: every promise of conformance/local_semantics.hpp.
#include "conformance/local_semantics.hpp"
#include "support/on_processes.hpp"

int main() {
  using namespace ddp::test;
  return run_on_threads<kLocalSemantics>(std::make_index_sequence<std::size(kLocalSemantics)>());
}
