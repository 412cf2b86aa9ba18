// A mark knows its process from a fork of it.
#include "base/fork_mark.hpp"

#include "support/check.hpp"
#include "support/procs.hpp"

namespace ddp::test {
namespace {

void a_mark_is_here_in_its_own_process(void**) { expect(ForkMark().is_here(), "the process that made it"); }

void a_mark_is_elsewhere_in_a_fork_and_in_a_fork_of_that(void**) {
  const ForkMark mark;
  Procs procs(1, [&](int, Reporter&) {
    if (mark.is_here()) return std::string("a fork took itself for the maker");
    Procs grandchild(1, [&](int, Reporter&) { return std::string(mark.is_here() ? "a fork of a fork took itself for the maker" : "elsewhere"); });
    return grandchild.wait().at(0).text;
  });
  expect_equal(procs.wait().at(0).text, std::string("elsewhere"), "what the forks say");
  expect(mark.is_here(), "the maker, after its forks");
}

void a_mark_that_a_fork_makes_is_its_own(void**) {
  Procs procs(1, [](int, Reporter&) { return std::string(ForkMark().is_here() ? "here" : "elsewhere"); });
  expect_equal(procs.wait().at(0).text, std::string("here"), "what the fork says");
}

}  // namespace
}  // namespace ddp::test

int main() {
  using namespace ddp::test;
  const CMUnitTest tests[] = {ddp_test(a_mark_is_here_in_its_own_process),
                              ddp_test(a_mark_is_elsewhere_in_a_fork_and_in_a_fork_of_that),
                              ddp_test(a_mark_that_a_fork_makes_is_its_own)};
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
