// SPDX-License-Identifier: Apache-2.0
// The pass with ranks as threads: every promise of conformance/pass_semantics.hpp.
#include "conformance/pass_semantics.hpp"

namespace ddp::test {
namespace {

template <size_t kIndex>
void on_threads(void**) {
  kPassSemantics[kIndex].run([](int size, const std::function<void(group::Group&, int)>& body) { run_groups(size, body); });
}

template <size_t... kIndex>
int run_all(std::index_sequence<kIndex...>) {
  const CMUnitTest tests[] = {
      {kPassSemantics[kIndex].name, &guarded<&on_threads<kIndex>>, nullptr, nullptr, nullptr}...,
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}

}  // namespace
}  // namespace ddp::test

int main() { return ddp::test::run_all(std::make_index_sequence<std::size(ddp::test::kPassSemantics)>()); }
