// SPDX-License-Identifier: Apache-2.0
// The hooks fp16 and bf16 with ranks as threads: every promise of conformance/wire_semantics.hpp.
#include "conformance/wire_semantics.hpp"
#include "support/on_processes.hpp"

int main() {
  using namespace ddp::test;
  return run_on_threads<kWireSemantics>(std::make_index_sequence<std::size(kWireSemantics)>());
}
