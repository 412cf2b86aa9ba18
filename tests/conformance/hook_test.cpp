// SPDX-License-Identifier: Apache-2.0
// Hooks of a program's own: every promise of conformance/hook_semantics.hpp on every transport.
#include "conformance/hook_semantics.hpp"
#include "support/suite.hpp"

int main(int argc, char** argv) {
  ddp::test::Suite suite(argc, argv);
  suite.promises(ddp::test::kHookSemantics);
  return suite.run();
}
