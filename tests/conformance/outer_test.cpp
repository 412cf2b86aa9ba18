// SPDX-License-Identifier: Apache-2.0
// An outer optimizer: every promise of conformance/outer_semantics.hpp on every transport.
#include "conformance/outer_semantics.hpp"
#include "support/suite.hpp"

int main(int argc, char** argv) {
  ddp::test::Suite suite(argc, argv);
  suite.promises(ddp::test::kOuterSemantics);
  return suite.run();
}
