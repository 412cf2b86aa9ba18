// SPDX-License-Identifier: Apache-2.0
// Numbers where a path has its tensors: on the rank's GPU on Path::kGpu, else in host memory. On a GPU all is in the order
// of the default stream.
#pragma once

#include "support/group_paths.hpp"

namespace ddp::test {

class PathArray {
 public:
  PathArray(Path path, group::Group& group, std::vector<float> values) : group_(&group), values_(std::move(values)) {
    if (path != Path::kGpu) return;
    on_gpu_ = std::make_unique<GpuArray>(group.rank(), static_cast<int64_t>(values_.size()) * 4);
    on_gpu_->poke(values_);
  }
  PathArray(Path path, group::Group& group, int64_t count, float value = -1)
      : PathArray(path, group, std::vector<float>(static_cast<size_t>(count), value)) {}

  [[nodiscard]] Tensor tensor() {
    if (on_gpu_ != nullptr) return on_gpu_->tensor(*group_, DDP_F32);
    return flat_tensor(values_.data(), DDP_F32, static_cast<int64_t>(values_.size()));
  }
  /// What it holds now.
  [[nodiscard]] const std::vector<float>& values() {
    if (on_gpu_ == nullptr) return values_;
    expect(fake_gpu::table().set_device(group_->rank()) == 0 && fake_gpu::table().stream_synchronize(nullptr) == 0,
           "waited for the stream");
    values_ = on_gpu_->peek<float>();
    return values_;
  }

 private:
  group::Group* group_;
  std::vector<float> values_;
  std::unique_ptr<GpuArray> on_gpu_;
};

}  // namespace ddp::test
