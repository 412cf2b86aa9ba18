// SPDX-License-Identifier: Apache-2.0
// A model of any types in host memory, whose gradients are in memory of the library, of the program or of the group.
#pragma once

#include "model/model.hpp"
#include "support/group_world.hpp"
#include "support/values.hpp"

namespace ddp::test {

struct LentModel : NotCopied {
  group::Group& group;
  std::vector<Bytes> values, own;
  std::vector<void*> allocated;
  std::unique_ptr<model::Model> model;

  LentModel(group::Group& of, const ddp_model_options& options)
      : group(of),
        model(std::make_unique<model::Model>(std::shared_ptr<group::Group>(&group, [](group::Group*) {}), options)) {}
  ~LentModel() {
    model.reset();
    for (void* memory : allocated) group.memory().free(memory);
  }
  void add(ddp_dtype dtype, int64_t count, bool is_owned, bool in_group) {
    const auto bytes = static_cast<size_t>(count * dtype_size(dtype));
    values.emplace_back(bytes);
    own.emplace_back(bytes);
    Tensor grad = flat_tensor(own.back().data(), dtype, count);
    if (in_group && bytes > 0) {
      allocated.push_back(group.memory().alloc(grad.bytes()));
      grad.data = static_cast<std::byte*>(allocated.back());
    }
    model->add_parameter("p" + std::to_string(values.size() - 1), flat_tensor(values.back().data(), dtype, count),
                         is_owned ? nullptr : &grad);
  }
  const Tensor& grad(size_t p) const { return model->table().parameter(static_cast<int32_t>(p)).grad; }
  void write(size_t p, const Bytes& bytes) const {
    if (!bytes.empty()) std::memcpy(grad(p).data, bytes.data(), bytes.size());
  }
  Bytes read(size_t p) const { return {grad(p).data, grad(p).data + grad(p).bytes()}; }
};

}  // namespace ddp::test
