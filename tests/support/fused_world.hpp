// SPDX-License-Identifier: Apache-2.0
// A model with odd shapes and an optimizer with the options that a test asks for; gradients are made from rank, step and
// position.
#pragma once

#include <sys/mman.h>

#include <cmath>
#include <cstring>
#include <fstream>
#include <iterator>
#include <limits>
#include <memory>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "core/float16.hpp"
#include "model/model.hpp"
#include "optim/adam.hpp"
#include "optim/custom.hpp"
#include "optim/rules.hpp"
#include "optim/sgd.hpp"
#include "support/group_paths.hpp"
#include "support/own_rules.hpp"
#include "support/rule_options.hpp"

namespace ddp::test {

enum class Rule { kSgd, kMomentum, kAdamW, kLion, kAdagrad };  // the last two only as rules of the program

/// One is larger than a bucket and is split in two if it is F32, some are smaller than a slice's block.
inline const std::vector<int64_t> kFusedShapes = {7, 5000, 1, 1024, 3000, 64, 20'000, 900};

/// Where and how steps are made.
struct Ways {
  bool shard = false;
  bool in_backward = false;
  bool late_values = false;
  bool values_in_group = false;  // parameters in ddp_group_alloc memory
  bool own_values = false;       // libddp keeps them from commit on; what was lent is spoiled then
  bool owned_grads = true;
  bool later_grads = false;  // each pass gets them in memory of its own, which does not exist before and afterwards
  ddp_progress progress = DDP_PROGRESS_CALLER;
  double max_norm = 0;
  double clip_value = 0;
  ddp_nonfinite nonfinite = DDP_NONFINITE_KEEP;
  bool undo = true;
  bool master_weights = false;
  ddp_dtype dtype = DDP_F32;
  ddp_unused unused = DDP_UNUSED_ALLOW;
  ddp_divisor divisor = DDP_DIVISOR_WORLD;
  parts::Hook hook{};
  bool custom = false;         // the rule is the program's
  bool whole_tensors = false;  // and wants them
  int32_t uneven_inputs = 0;
  int64_t bucket_bytes = 60'000;
  std::vector<int64_t> shapes = kFusedShapes;
  std::vector<int32_t> buckets{};  // of the program, with -1 between two; none: the library's
};

/// Pages that end the program when they are touched after they were unmapped.
class GradientPages {
 public:
  explicit GradientPages(int64_t bytes)
      : bytes_(static_cast<size_t>(bytes)),
        data_(mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)) {}
  ~GradientPages() { munmap(data_, bytes_); }
  GradientPages(const GradientPages&) = delete;
  GradientPages& operator=(const GradientPages&) = delete;
  [[nodiscard]] void* data() const noexcept { return data_; }

 private:
  size_t bytes_;
  void* data_;
};

struct FusedWorld {
  std::vector<std::vector<std::byte>> kept_values, kept_grads;
  std::vector<std::unique_ptr<GradientPages>> later;
  std::vector<std::byte*> values;
  std::shared_ptr<model::Model> model;
  std::shared_ptr<optim::BuiltinOptimizer> optimizer;
  OwnRule own;
  Ways ways;

  FusedWorld(group::Group& group, Rule rule, const Ways& asked) : ways(asked) {
    ddp_model_options options{};
    options.first_bucket_bytes = 8'000;
    options.bucket_bytes = asked.bucket_bytes;
    options.reduce = DDP_AVERAGE;
    options.unused = asked.unused;
    options.divisor = asked.divisor;
    options.progress = asked.progress;
    options.uneven_inputs = asked.uneven_inputs;
    options.own_values = asked.own_values ? 1 : 0;
    model = std::make_shared<model::Model>(std::shared_ptr<group::Group>(&group, [](group::Group*) {}), options);
    model->set_hook(asked.hook);
    const int64_t size = dtype_size(asked.dtype);
    for (size_t p = 0; p < ways.shapes.size(); ++p) {
      const int64_t count = ways.shapes[p];
      kept_values.emplace_back(static_cast<size_t>(count * size));
      kept_grads.emplace_back(static_cast<size_t>(count * size));
      auto* const value =
          asked.values_in_group ? static_cast<std::byte*>(group.memory().alloc(count * size)) : kept_values[p].data();
      values.push_back(value);
      for (int64_t i = 0; i < count; ++i) set(value, i, std::sin(static_cast<double>(i) + static_cast<double>(p)));
      const Tensor grad = flat_tensor(kept_grads[p].data(), asked.dtype, count);
      if (asked.later_grads)
        model->add_parameter("p" + std::to_string(p), flat_tensor(value, asked.dtype, count), nullptr,
                             model::Model::Gradient::kLater);
      else
        model->add_parameter("p" + std::to_string(p), flat_tensor(value, asked.dtype, count),
                             asked.owned_grads ? nullptr : &grad);
    }
    if (!ways.buckets.empty()) model->gradients().set_buckets(ways.buckets);
    make_optimizer(rule);
    model->commit();
    if (!asked.own_values) return;
    for (size_t p = 0; p < ways.shapes.size(); ++p) {
      std::memset(values[p], 0xFF, static_cast<size_t>(ways.shapes[p] * size));
      values[p] = model->table().parameter(static_cast<int32_t>(p)).value.data;
    }
  }

  void make_optimizer(Rule rule) {
    const auto fill = [&](auto& options) {
      options.shard = ways.shard;
      options.in_backward = ways.in_backward;
      options.late_values = ways.late_values ? 1 : 0;
      options.max_norm = ways.max_norm;
      options.clip_value = ways.clip_value;
      options.nonfinite = ways.nonfinite;
      options.undo = ways.undo;
      options.master_weights = ways.master_weights;
      options.rate = 0.05;
    };
    if (ways.custom) {
      own.kind = static_cast<OwnRule::Kind>(rule);
      CustomOptions options;
      fill(options);
      options.whole_tensors = ways.whole_tensors;
      if (rule == Rule::kAdamW) options.weight_decay = 0.01;
      optimizer = std::make_shared<optim::Custom>(model, own_rule, optim::CustomRule(options, own.states(), "test"), options,
                                                  optim::UserData(&own, nullptr));
    } else if (rule == Rule::kAdamW) {
      AdamOptions options;
      fill(options);
      optimizer = std::make_shared<optim::Adam>(model, options, options);
    } else {
      SgdOptions options;
      fill(options);
      options.momentum = rule == Rule::kMomentum ? 0.9 : 0;
      optimizer = std::make_shared<optim::Sgd>(model, options, options);
    }
    if (optimizer->in_passes() != nullptr) model->optimizer_slot().attach(optimizer);
  }

  void set(std::byte* at, int64_t i, double number) const {
    if (ways.dtype == DDP_BF16) {
      const uint16_t bits = double_to_bfloat(number);
      std::memcpy(at + 2 * i, &bits, 2);
    } else {
      const auto single = static_cast<float>(number);
      std::memcpy(at + 4 * i, &single, 4);
    }
  }

  static double gradient(int rank, int step, size_t p, int64_t i) {
    std::minstd_rand random(
        static_cast<unsigned>(rank * 1'000'003 + step * 1009 + static_cast<int>(p) * 31 + static_cast<int>(i) + 1));
    random.discard(2);
    return static_cast<double>(random() % 20011) / 997.0 - 10.0;
  }
  void give_grad(size_t p) {
    later.resize(ways.shapes.size());
    later[p] = std::make_unique<GradientPages>(ways.shapes[p] * dtype_size(ways.dtype));
    const Tensor grad = flat_tensor(later[p]->data(), ways.dtype, ways.shapes[p]);
    model->set_grad(static_cast<int32_t>(p), &grad);
  }
  void take_grads_back() {
    for (int32_t p = 0; p < model->table().parameter_count(); ++p) model->set_grad(p, nullptr);
    later.clear();
  }
  void fill(int rank, int step) {
    for (size_t p = 0; ways.later_grads && p < ways.shapes.size(); ++p) give_grad(p);
    for (size_t p = 0; p < ways.shapes.size(); ++p) {
      std::byte* const grad = model->table().parameter(static_cast<int32_t>(p)).grad.data;
      for (int64_t i = 0; i < ways.shapes[p]; ++i) set(grad, i, gradient(rank, step, p, i));
    }
  }
  /// A REDUCE pass; parameters in `unused` are not used on any rank, those in `missing` not marked.
  void pass(int rank, int step, const std::set<int32_t>& unused = {}, const std::set<int32_t>& missing = {}) {
    fill(rank, step);
    reduce(unused, missing);
  }
  void reduce(const std::set<int32_t>& unused = {}, const std::set<int32_t>& missing = {}, ddp_pass mode = DDP_PASS_REDUCE) {
    model->begin_backward(mode);
    for (auto p = static_cast<int32_t>(ways.shapes.size()); p-- > 0;)
      if (missing.count(p) == 0) unused.count(p) != 0 ? model->pass().mark_unused(p) : model->pass().mark_ready(p);
    model->end_backward();
  }

  [[nodiscard]] std::string bytes() const {
    std::string all;
    for (size_t p = 0; p < values.size(); ++p)
      all.append(reinterpret_cast<const char*>(values[p]), static_cast<size_t>(ways.shapes[p] * dtype_size(ways.dtype)));
    return all;
  }
  [[nodiscard]] std::string bytes_of(size_t p) const {
    return {reinterpret_cast<const char*>(values[p]), static_cast<size_t>(ways.shapes[p] * dtype_size(ways.dtype))};
  }
};

inline std::string read_file(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

/// All ranks have the same bytes.
inline void expect_same_everywhere(group::Group& group, const std::string& mine, const std::string& what) {
  const uint64_t hash = std::hash<std::string>{}(mine);
  const std::string text = std::to_string(hash);
  for (const std::string& theirs : group.gather("hash", text)) expect(theirs == text, what + " is the same on all ranks");
}

}  // namespace ddp::test
