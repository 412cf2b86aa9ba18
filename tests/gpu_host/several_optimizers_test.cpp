// SPDX-License-Identifier: Apache-2.0
// Several optimizers of a model on GPUs: the bits of one model in host memory for each of them, wherever their steps are
// made, with gradients of the program and of the library.
#include <cmath>
#include <cstring>
#include <limits>

#include "model/model.hpp"
#include "optim/adam.hpp"
#include "optim/rules.hpp"
#include "optim/sgd.hpp"
#include "support/gpu_world.hpp"
#include "support/rule_options.hpp"

namespace ddp::test {
namespace {

const std::vector<int64_t> kShapes = {7, 5000, 1, 1024, 3000, 64, 20'000, 900};
const std::vector<int32_t> kMatrices = {1, 3, 6};
constexpr int kSteps = 4;
using Floats = std::vector<float>;

/// Of each of the two optimizers.
struct Options {
  bool shard = false;
  bool in_backward = false;
  bool divide_in_step = false;
  double max_norm = 0;
};

struct Ways {
  bool on_gpu = true;
  bool owned_grads = false;
  bool scaled = false;  // a dynamic loss scale; in step 2 a gradient of the second optimizer is not finite
  Options first, second;
  std::vector<int32_t> parameters = {0, 1, 2, 3, 4, 5, 6, 7};
};

bool is_matrix(int32_t number) { return std::count(kMatrices.begin(), kMatrices.end(), number) > 0; }

/// One rank's model with an SGD for matrices and an AdamW for the rest, if it has parameters of these.
class World {
 public:
  World(group::Group& group, int rank, const Ways& ways) : group_(group), rank_(rank), ways_(ways) {
    if (ways.on_gpu) stream_ = std::make_unique<GpuStream>(rank);
    ddp_model_options options{};
    options.first_bucket_bytes = 8'000;
    options.bucket_bytes = 60'000;
    model_ = std::make_shared<model::Model>(std::shared_ptr<group::Group>(&group, [](group::Group*) {}), options);
    std::vector<int32_t> matrices, rest;
    for (const int32_t number : ways.parameters) {
      add(number);
      (is_matrix(number) ? matrices : rest).push_back(static_cast<int32_t>(matrices.size() + rest.size()));
    }
    if (!matrices.empty()) {
      SgdOptions rule;
      rule.momentum = 0.9;
      fill(rule, ways.first, matrices);
      own(std::make_shared<optim::Sgd>(model_, rule, rule));
    }
    if (!rest.empty()) {
      AdamOptions rule;
      fill(rule, ways.second, rest);
      own(std::make_shared<optim::Adam>(model_, rule, rule));
    }
    if (ways.scaled) {
      ddp_loss_scale_options scale = optim::default_loss_scale_options();
      scale.initial = 4;
      scale.interval = 1000;
      optimizers_.front()->set_loss_scale(scale);
    }
    model_->commit(stream());
  }

  Floats train() {
    for (int step = 0; step < kSteps; ++step) {
      for (size_t k = 0; k < ways_.parameters.size(); ++k) write_grad(step, k);
      model_->begin_backward(DDP_PASS_REDUCE);
      for (size_t k = ways_.parameters.size(); k-- > 0;) model_->pass().mark_ready(static_cast<int32_t>(k), stream());
      model_->end_backward(stream());
      for (const auto& each : optimizers_) each->step(stream());
    }
    for (const auto& each : optimizers_)
      expect_equal(each->step_count(), int64_t{kSteps - (ways_.scaled ? 1 : 0)}, "steps of each optimizer");
    Floats all;
    if (stream_ != nullptr) stream_->synchronize();
    for (size_t k = 0; k < ways_.parameters.size(); ++k) {
      const Floats one = ways_.on_gpu ? gpu_values_[k].peek<float>() : host_values_[k];
      all.insert(all.end(), one.begin(), one.end());
    }
    return all;
  }

 private:
  [[nodiscard]] void* stream() const { return stream_ == nullptr ? nullptr : stream_->get(); }
  template <class Rule>
  static void fill(Rule& rule, const Options& asked, const std::vector<int32_t>& list) {
    rule.shard = asked.shard;
    rule.in_backward = asked.in_backward;
    rule.divide_in_step = asked.divide_in_step;
    rule.max_norm = asked.max_norm;
    rule.parameters = list.data();
    rule.parameter_count = static_cast<int64_t>(list.size());
  }
  void own(const std::shared_ptr<optim::BuiltinOptimizer>& made) {
    model_->optimizer_slot().add(made);
    made->join_others();
    model_->replicas().keep_equal(made);
    optimizers_.push_back(made);
  }
  void add(int32_t number) {
    const auto p = static_cast<size_t>(number);
    const auto count = static_cast<size_t>(kShapes[p]);
    host_values_.emplace_back(count);
    host_grads_.emplace_back(count);
    for (size_t i = 0; i < count; ++i) host_values_.back()[i] = std::sin(static_cast<float>(i + p));
    Tensor value = flat_tensor(host_values_.back().data(), DDP_F32, kShapes[p]);
    Tensor grad = flat_tensor(host_grads_.back().data(), DDP_F32, kShapes[p]);
    if (ways_.on_gpu) {
      for (auto* arrays : {&gpu_values_, &gpu_grads_})
        arrays->emplace_back(rank_, static_cast<int64_t>(count * sizeof(float)));
      gpu_values_.back().poke(host_values_.back());
      value = gpu_values_.back().tensor(group_, DDP_F32);
      grad = gpu_grads_.back().tensor(group_, DDP_F32);
    }
    model_->add_parameter("p" + std::to_string(number), value, ways_.owned_grads ? nullptr : &grad);
  }
  void write_grad(int step, size_t k) {
    const int32_t number = ways_.parameters[k];
    Floats data(static_cast<size_t>(kShapes[static_cast<size_t>(number)]));
    for (size_t i = 0; i < data.size(); ++i)
      data[i] = static_cast<float>((rank_ + 1) * ((static_cast<int64_t>(i) * 7 + step * 29 + number) % 33 - 16)) / 64 *
                (ways_.scaled ? static_cast<float>(optimizers_.front()->loss_scale()) : 1);
    if (ways_.scaled && step == 2 && number == 5 && rank_ == 0) data[0] = std::numeric_limits<float>::infinity();
    void* const to = model_->table().parameter(static_cast<int32_t>(k)).grad.data;
    const auto bytes = static_cast<int64_t>(data.size() * sizeof(float));
    if (ways_.on_gpu) {
      stream_->synchronize();
      expect(fake_gpu::poke(to, data.data(), bytes), "poked");
    } else {
      std::memcpy(to, data.data(), static_cast<size_t>(bytes));
    }
  }

  group::Group& group_;
  const int rank_;
  const Ways ways_;
  std::unique_ptr<GpuStream> stream_;
  std::vector<GpuArray> gpu_values_, gpu_grads_;
  std::vector<Floats> host_values_, host_grads_;
  std::shared_ptr<model::Model> model_;
  std::vector<std::shared_ptr<optim::BuiltinOptimizer>> optimizers_;
};

std::vector<Floats> train(int size, const Ways& ways, const std::string& what) {
  std::vector<Floats> by_rank(static_cast<size_t>(size));
  const FakeGpus gpus(static_cast<uint64_t>(size) + 1);
  run_gpu_groups(size, [&](group::Group& group, int rank) {
    World world(group, rank, ways);
    by_rank[static_cast<size_t>(rank)] = world.train();
    group.barrier();
  });
  FakeGpus::expect_correct(what);
  FakeGpus::expect_nothing_left();
  for (const Floats& each : by_rank) expect(each == by_rank.front(), what + ": all ranks hold the same");
  return by_rank;
}

/// In host memory, a model for each optimizer; in the order of the parameters.
Floats train_apart(int size, const Ways& like) {
  Floats parts[2];
  for (const bool matrices : {true, false}) {
    Ways ways = like;
    ways.on_gpu = ways.owned_grads = false;
    ways.first = Options{false, false, false, like.first.max_norm};
    ways.second = Options{false, false, false, like.second.max_norm};
    ways.parameters.clear();
    for (int32_t number = 0; number < 8; ++number)
      if (is_matrix(number) == matrices) ways.parameters.push_back(number);
    parts[matrices ? 0 : 1] = train(size, ways, "apart").front();
  }
  Floats all;
  size_t at[2] = {};
  for (int32_t number = 0; number < 8; ++number) {
    const size_t k = is_matrix(number) ? 0 : 1;
    const auto count = static_cast<size_t>(kShapes[static_cast<size_t>(number)]);
    all.insert(all.end(), parts[k].begin() + static_cast<std::ptrdiff_t>(at[k]),
               parts[k].begin() + static_cast<std::ptrdiff_t>(at[k] + count));
    at[k] += count;
  }
  return all;
}

void each_has_the_bits_of_a_model_of_its_own(void**) {
  for (const int size : {1, 2}) {
    const Floats wanted = train_apart(size, Ways{});
    for (int way = 0; way < 32; ++way) {
      Ways ways;
      ways.first.shard = (way & 1) != 0;
      ways.first.in_backward = (way & 2) != 0;
      ways.second.shard = (way & 4) != 0;
      ways.second.in_backward = (way & 8) != 0;
      ways.owned_grads = (way & 16) != 0;
      const std::string what = std::to_string(size) + " ranks, way " + std::to_string(way);
      expect(train(size, ways, what).front() == wanted, what + ": the bits of models apart in host memory");
    }
  }
}

/// One optimizer divides sums in its step, while the gradients of the other one are means, or sums until its own step.
void sums_are_divided_by_the_own_step(void**) {
  const Floats wanted = train_apart(2, Ways{});
  for (int way = 1; way < 4; ++way) {
    Ways ways;
    ways.owned_grads = true;
    ways.first.divide_in_step = (way & 1) != 0;
    ways.second.divide_in_step = (way & 2) != 0;
    const std::string what = "way " + std::to_string(way);
    expect(train(2, ways, what).front() == wanted, what + ": the bits of models apart in host memory");
  }
}

void clipping_is_by_the_own_norm(void**) {
  Ways ways;
  ways.first.max_norm = 0.5;
  const Floats wanted = train_apart(2, ways);
  for (int way = 0; way < 4; ++way) {
    ways.first.shard = (way & 1) != 0;
    ways.second.in_backward = (way & 2) != 0;
    const std::string what = "way " + std::to_string(way);
    expect(train(2, ways, what).front() == wanted, what + ": the bits of models apart in host memory");
  }
}

/// The same in host memory is compared with models apart in conformance/several_optimizers_test.cpp.
void a_gradient_that_is_not_finite_leaves_out_all_steps(void**) {
  Ways ways;
  ways.scaled = true;
  ways.on_gpu = false;
  const Floats wanted = train(2, ways, "in host memory").front();
  ways.on_gpu = true;
  for (int way = 0; way < 4; ++way) {
    ways.first.shard = (way & 1) != 0;
    ways.second.shard = (way & 2) != 0;
    const std::string what = "way " + std::to_string(way);
    expect(train(2, ways, what).front() == wanted, what + ": the bits in host memory");
  }
}

}  // namespace
}  // namespace ddp::test

int main() {
  using namespace ddp::test;
  const CMUnitTest tests[] = {
      ddp_test(each_has_the_bits_of_a_model_of_its_own),
      ddp_test(sums_are_divided_by_the_own_step),
      ddp_test(clipping_is_by_the_own_norm),
      ddp_test(a_gradient_that_is_not_finite_leaves_out_all_steps),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
