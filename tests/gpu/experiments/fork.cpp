// SPDX-License-Identifier: Apache-2.0
// A fork by a program that knows nothing of GPUs: the child touches nothing and leaves, by _exit() and by exit() with all
// that libraries do there; the parent continues. The driver must not hang or report anything in either of them.
#include "gpu/experiments/experiments.hpp"
#include "gpu/support/trainer.hpp"
#include "gpu/support/world.hpp"
#include "support/forking.hpp"

namespace ddp::experiments {
namespace {

using namespace ddp::test::card;

constexpr int kPasses = 5;

void pass_and_look(Trainer& t, int size, int step) {
  t.pass(step);
  expect_same_bytes(t.grad_bytes(), t.expected_grads([&](size_t p, int64_t i) {
    double sum = 0;
    for (int rank = 0; rank < size; ++rank) sum += whole_gradient(rank, step, p, i);
    return sum;
  }),
                    "the sum of step " + std::to_string(step));
}

/// Milliseconds until the child had left, the longest.
double fork_between_passes(const Rank& at, Ending ending) {
  Plan plan;
  plan.place = at.place;
  plan.rank = at.rank;
  plan.fine = false;
  plan.options = [](ddp_model_options& options) { options.reduce = DDP_SUM; };
  Trainer t(at.group, plan);
  double longest = 0;
  for (int step = 0; step < kPasses; ++step) {
    pass_and_look(t, at.size, 2 * step);
    if (!is_fake() || at.rank == 0) {  // ranks that are threads share the process
      const auto start = Clock::now();
      expect_equal(in_fork(ending, [] { return std::string("left"); }), std::string("left"), "the child");
      longest = std::max(longest, ms_since(start));
    }
    pass_and_look(t, at.size, 2 * step + 1);
  }
  OK(ddp_model_check_replicas(t.model.get(), t.stream.get()));
  return longest;
}

}  // namespace

void fork_and_leave(Report& report, const Options&) {
  need_world();
  for (const int size : {1, 2})
    for (const Ending ending : {Ending::kAtOnce, Ending::kByExit}) {
      if (is_fake() && ending == Ending::kByExit) continue;  // its streams are threads, which the child has not
      const std::string what = std::to_string(size) +
                               (size == 1 ? " rank, a child of it leaves by " : " ranks, a child of each leaves by ") +
                               (ending == Ending::kAtOnce ? "_exit()" : "exit()");
      const Folder folder;
      const std::string file = folder.path() + "/longest";
      run_world(size, [&](const Rank& at) {
        const double longest = fork_between_passes(at, ending);
        if (at.rank != 0) return;
        FILE* const out = std::fopen(file.c_str(), "w");
        expect(out != nullptr, "the file for the figure can be written");
        std::fprintf(out, "%f", longest);
        std::fclose(out);
      });
      double longest = 0;
      if (FILE* const in = std::fopen(file.c_str(), "r"); in != nullptr) {
        if (std::fscanf(in, "%lf", &longest) != 1) longest = -1;
        std::fclose(in);
      }
      report.verdict(what + ": the sums stay right", true);
      report.figure(what + ", longest", longest, "ms", "from the fork until the child has left");
    }
}

}  // namespace ddp::experiments
