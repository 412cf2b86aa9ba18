// SPDX-License-Identifier: Apache-2.0
// PowerSGD: every promise of conformance/powersgd_semantics.hpp on every transport.
#include "conformance/powersgd_semantics.hpp"
#include "support/suite.hpp"

int main(int argc, char** argv) {
  ddp::test::Suite suite(argc, argv);
  suite.promises(ddp::test::kPowerSemantics);
  return suite.run();
}
