// SPDX-License-Identifier: Apache-2.0
// A group of one rank with a model of one parameter per floating type, whose values and gradients belong to the test.
#pragma once

#include "model/model.hpp"
#include "oracle.hpp"
#include "support/group_world.hpp"

namespace ddp::test {

struct SmallModel {
  struct Lent {
    std::string name;
    Array value, grad;
    size_t count;
  };
  std::vector<Lent> lent;
  std::shared_ptr<group::Group> group;
  std::shared_ptr<model::Model> model;

  /// `order`: positions of kFloats in the order of registration.
  explicit SmallModel(const std::vector<size_t>& order = {0, 1, 2, 3}, bool commits = true) {
    ddp_group_options options = world_options(0, 1);
    group = group::Group::create("local://alone", options);
    ddp_model_options model_options{.first_bucket_bytes = 64, .bucket_bytes = 64, .unused = DDP_UNUSED_ALLOW};
    model = std::make_shared<model::Model>(group, model_options);
    lent.reserve(order.size());
    for (const size_t k : order) {
      const size_t count = 12 + k;
      lent.push_back(
          {std::string("p.") + dtype_name(kFloats[k]), Array(kFloats[k], count), Array(kFloats[k], count), count});
      fill_random(lent.back().value, count, 2.0, 50 + k);
      Tensor value = flat_tensor(lent.back().value.data(), kFloats[k], static_cast<int64_t>(count));
      const Tensor grad = flat_tensor(lent.back().grad.data(), kFloats[k], static_cast<int64_t>(count));
      model->add_parameter(lent.back().name, value, &grad);
    }
    if (commits) model->commit();
  }
  ~SmallModel() { model->close(); }

  /// Gradients that depend on the parameter's name and the step alone.
  void fill_grads(uint64_t step) {
    for (Lent& each : lent)
      fill_random(each.grad, each.count, 1.0, 1000 * step + each.name.size() + static_cast<uint64_t>(each.name[2]));
  }
  /// A REDUCE pass in which only these parameters are used.
  void pass(const std::set<int32_t>& used) const {
    model->begin_backward(DDP_PASS_REDUCE);
    for (int32_t i = 0; i < model->table().parameter_count(); ++i)
      used.count(i) != 0 ? model->pass().mark_ready(i) : model->pass().mark_unused(i);
    model->end_backward();
  }
  [[nodiscard]] std::vector<std::vector<std::byte>> values() const {
    std::vector<std::vector<std::byte>> all;
    for (const Lent& each : lent) all.push_back(each.value.bytes);
    return all;
  }
};

}  // namespace ddp::test
