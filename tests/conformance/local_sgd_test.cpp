// SPDX-License-Identifier: Apache-2.0
// Local SGD: every promise of conformance/local_semantics.hpp on every transport.
#include "conformance/local_semantics.hpp"
#include "support/suite.hpp"

int main(int argc, char** argv) {
  ddp::test::Suite suite(argc, argv);
  suite.promises(ddp::test::kLocalSemantics);
  return suite.run();
}
