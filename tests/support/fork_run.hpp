// SPDX-License-Identifier: Apache-2.0
// Ranks as processes that have only the control plane of support/fork_control.hpp, for tests of transports.
#pragma once

#include "support/check.hpp"
#include "support/fork_control.hpp"
#include "support/group_world.hpp"
#include "support/procs.hpp"

namespace ddp::test {

struct Run {
  using Body = std::function<std::string(ForkHub&, int, Reporter&)>;

  ForkHub hub;
  Procs procs;
  Run(int size, const Body& body)
      : hub(size), procs(size, [&](int rank, Reporter& report) {
          signal(SIGPIPE, SIG_DFL);
          return body(hub, rank, report);
        }) {
    hub.release();
  }
  /// Of a rank for each letter.
  Run(const std::string& placement, const Body& body) : Run(static_cast<int>(placement.size()), body) {}
  /// All must end with exit code 0.
  void expect_success() { test::expect_success(procs, 60'000); }
};

/// Reduces for ever; gives the text of the error.
template <class Child>
std::string reduce_until_it_fails(Child& child, int64_t count, Reporter& report) {
  std::vector<float> data(static_cast<size_t>(count), 1.0F);
  try {
    for (int i = 0; i < 1'000'000; ++i) {
      child->all_reduce(flat_tensor(data.data(), DDP_F32, count), DDP_AVERAGE);
      if (i == 2) report.say("running");
    }
  } catch (const Error& error) {
    const std::string first = std::string(status_name(error.status())) + ": " + error.text();
    expect_equal(expect_error(error.status(), [&] { child->barrier(); }), error.text(), "the same cause again");
    return first;
  }
  return "never failed";
}

}  // namespace ddp::test
