// SPDX-License-Identifier: Apache-2.0
// Hooks together with every way of an optimizer,: conformance/hook_optimizer_semantics.hpp.: every promise of
// conformance/hook_optimizer_semantics.hpp on every transport.
#include "conformance/hook_optimizer_semantics.hpp"
#include "support/suite.hpp"

int main(int argc, char** argv) {
  ddp::test::Suite suite(argc, argv);
  suite.promises(ddp::test::kHookOptimizerSemantics);
  return suite.run();
}
