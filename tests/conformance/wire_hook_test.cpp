// SPDX-License-Identifier: Apache-2.0
// The hooks fp16 and bf16: every promise of conformance/wire_semantics.hpp on every transport.
#include "conformance/wire_semantics.hpp"
#include "support/suite.hpp"

int main(int argc, char** argv) {
  ddp::test::Suite suite(argc, argv);
  suite.promises(ddp::test::kWireSemantics);
  return suite.run();
}
