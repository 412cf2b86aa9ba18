// SPDX-License-Identifier: Apache-2.0
// Train a convolution net on handwritten digits with LibTorch, on any number of ranks.
//
//   ddprun -n 2 digits [--ours] [--data digits.csv]
//
// The lines that know about several ranks are marked with "<-"; the rest is a program for one. With --ours the optimizer is
// libddp's, which updates each bucket inside backward.
#include <cstdio>
#include <cstring>
#include <ddp/torch.hpp>
#include <fstream>
#include <sstream>

#ifndef DIGITS_CSV
#define DIGITS_CSV "../data/digits.csv"
#endif

struct NetImpl : torch::nn::Module {
  NetImpl()
      : first(torch::nn::Conv2dOptions(1, 16, 3).padding(1)),
        norm(16),
        second(torch::nn::Conv2dOptions(16, 32, 3).padding(1)),
        last(128, 10) {
    register_module("first", first), register_module("norm", norm);
    register_module("second", second), register_module("last", last);
  }
  torch::Tensor forward(torch::Tensor x) {
    x = torch::max_pool2d(torch::relu(norm(first(x))), 2);
    x = torch::max_pool2d(torch::relu(second(x)), 2);
    return last(x.flatten(1));
  }
  torch::nn::Conv2d first;
  torch::nn::BatchNorm2d norm;
  torch::nn::Conv2d second;
  torch::nn::Linear last;
};
TORCH_MODULE(Net);

struct Samples {
  torch::Tensor pixels, labels;
};

/** Every fifth line is for testing, the others for training. */
static Samples load(const std::string& path, bool test) {
  std::ifstream file(path);
  TORCH_CHECK(file, "the data file ", path, " cannot be opened: give its place with --data");
  std::vector<float> pixels;
  std::vector<std::int64_t> labels;
  std::string line;
  for (int number = 0; std::getline(file, line); ++number) {
    if ((number % 5 == 0) != test) continue;
    std::stringstream fields(line);
    std::string field;
    for (int i = 0; std::getline(fields, field, ','); ++i) {
      if (i < 64) pixels.push_back(std::stof(field) / 16);
      if (i == 64) labels.push_back(std::stoll(field));
    }
  }
  return {torch::tensor(pixels).view({-1, 1, 8, 8}), torch::tensor(labels)};
}

static double rate_at(std::int64_t step, std::int64_t steps) {
  return 0.1 * (step < 20 ? static_cast<double>(step + 1) / 20 : 1 - static_cast<double>(step) / static_cast<double>(steps));
}

static void train(bool ours, const std::string& data) {
  const Samples samples = load(data, false), tests = load(data, true);
  torch::manual_seed(1);
  Net module;
  ddp::Group group;                                        // <-
  ddp::torch::DistributedDataParallel net(group, module);  // <-
  torch::optim::SGD theirs(net->parameters(), torch::optim::SGDOptions(0.1).momentum(0.9));
  std::optional<ddp::Optimizer> own;
  if (ours) {
    ddp::SgdOptions rule;
    rule.momentum = 0.9;
    ddp::OptimizerOptions options;
    options.in_backward = 1;
    own = ddp::Optimizer::sgd(net.model(), rule, options);
  }
  const ddp::Sampler sampler(samples.labels.size(0), group);  // <-
  const std::int64_t epochs = 8, batch = 64 / group.size();   // <- 64 samples on all ranks together
  const std::int64_t batches = (sampler.count() + batch - 1) / batch;
  for (std::int64_t epoch = 0; epoch < epochs; ++epoch) {
    double sums[2] = {};
    for (std::int64_t i = 0; i < batches; ++i) {
      const double rate = rate_at(epoch * batches + i, epochs * batches);
      const auto chosen = torch::tensor(sampler.indices(epoch, i * batch, batch));  // <-
      if (own) own->set_rate(rate);
      static_cast<torch::optim::SGDOptions&>(theirs.param_groups()[0].options()).lr(rate);
      theirs.zero_grad();
      const auto loss = torch::cross_entropy_loss(net(samples.pixels.index({chosen})), samples.labels.index({chosen}));
      loss.backward();
      own ? own->step() : (void)theirs.step();
      sums[0] += loss.item<double>(), sums[1] += 1;
    }
    group.reduce_metrics(sums);  // <-
    if (group.rank() == 0) std::printf("epoch %d  loss %.9f\n", static_cast<int>(epoch) + 1, sums[0] / sums[1]);
  }
  net.model().sync_buffers();    // <- the running statistics of rank 0
  net.model().check_replicas();  // <- the same bits on every rank
  net->eval();
  const torch::NoGradGuard no_grad;
  const double right = net(tests.pixels).argmax(1).eq(tests.labels).sum().item<double>();
  if (group.rank() == 0) {
    std::printf("weights %016llx\ntest accuracy %.2f %%\n", static_cast<unsigned long long>(net.model().hash()),
                100 * right / static_cast<double>(tests.labels.size(0)));
  }
}

int main(int count, char** words) {
  bool ours = false;
  std::string data = DIGITS_CSV;
  for (int i = 1; i < count; ++i) {
    if (std::strcmp(words[i], "--ours") == 0) ours = true;
    if (std::strcmp(words[i], "--data") == 0 && i + 1 < count) data = words[++i];
  }
  try {
    train(ours, data);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
