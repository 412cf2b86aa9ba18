// SPDX-License-Identifier: Apache-2.0
// Example 11: C++17. Fits y = 3 x - 1; every rank has its own samples.
//
//   ddprun -n 2 11_cpp
#include <cstdio>
#include <ddp/ddp.hpp>

static void train() {
  ddp::Group group;
  std::vector<float> w(2);
  ddp::Model model(group);
  model.add_parameter("w", w);  // lent without a copy; its gradient is libddp's, in the bucket
  model.commit();               // all ranks agree on the model, and get rank 0's values
  ddp::SgdOptions rule;
  rule.rate = 0.02;
  auto sgd = ddp::Optimizer::sgd(model, rule);
  const auto grad = model.grad<float>(0);
  for (int step = 0; step < 3000; ++step) {
    const float x = static_cast<float>((step * group.size() + group.rank()) % 7) / 3 - 1;
    const float error = w[0] * x + w[1] - (3 * x - 1);
    ddp::Backward pass(model);  // an exception in this scope ends the pass on all ranks
    grad[0] = error * x, grad[1] = error;
    pass.mark_ready(0);  // gradient 0 is complete: libddp may average it
    pass.end();
    sgd.step();
  }
  std::printf("rank %d of %d: y = %.2f x %+.2f\n", group.rank(), group.size(), w[0], w[1]);
}

int main() {
  try {
    train();
  } catch (const ddp::Error& error) {
    std::fprintf(stderr, "rank %d: %s: %s\n", error.rank(), error.status_name(), error.what());
    return 1;
  }
}
