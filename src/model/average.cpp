#include "model/average.hpp"

#include <algorithm>
#include <cstring>

#include "bootstrap/control/call_state.hpp"
#include "model/coalesced_broadcast.hpp"
#include "model/gpu_pack.hpp"
#include "model/model.hpp"

namespace ddp::model {
namespace {

constexpr int64_t kGpuPackBytes = int64_t{16} << 20;

/// Small tensors in host memory on their way to one message.
class Pack {
 public:
  explicit Pack(group::Group& group) : group_(group) {}

  void add(const Tensor& tensor) {
    if (tensor.count == 0) return;
    if (!tensors_.empty() && (tensors_.front().dtype != tensor.dtype || bytes_ + tensor.bytes() > kPackBytes)) send();
    tensors_.push_back(tensor);
    bytes_ += tensor.bytes();
  }
  void send() {
    if (tensors_.empty()) return;
    if (staging_.empty()) staging_.resize(static_cast<size_t>(kPackBytes));
    each([](std::byte* staged, const Tensor& tensor) {
      std::memcpy(staged, tensor.data, static_cast<size_t>(tensor.bytes()));
    });
    const ddp_dtype dtype = tensors_.front().dtype;
    group_.all_reduce(flat_tensor(staging_.data(), dtype, bytes_ / dtype_size(dtype)), DDP_AVERAGE);
    each([](const std::byte* staged, const Tensor& tensor) {
      std::memcpy(tensor.data, staged, static_cast<size_t>(tensor.bytes()));
    });
    tensors_.clear();
    bytes_ = 0;
  }

 private:
  template <class Copy>
  void each(Copy&& copy) {
    int64_t at = 0;
    for (const Tensor& tensor : tensors_) {
      if (tensor.bytes() > 0) copy(staging_.data() + at, tensor);
      at += tensor.bytes();
    }
  }

  group::Group& group_;
  std::vector<Tensor> tensors_;
  int64_t bytes_ = 0;
  std::vector<std::byte> staging_;
};

/// Tensors on a GPU, large ones in parts: all of them go through the group's scratch memory, because what NCCL leaves behind
/// when a rank is lost must not reach a parameter.
class GpuParts {
 public:
  GpuParts(group::Group& group, void* stream) : group_(group), stream_(stream) {}

  void add(const Tensor& tensor) {
    if (!parts_.empty() && parts_.front().dtype != tensor.dtype) send();
    for (int64_t at = 0; at < tensor.count;) {
      const int64_t room = (kGpuPackBytes - bytes_) / dtype_size(tensor.dtype);
      const Tensor part = flat_part(tensor, at, std::min(tensor.count - at, room));
      parts_.push_back(part);
      bytes_ += part.bytes();
      at += part.count;
      if (bytes_ == kGpuPackBytes) send();
    }
  }
  void send() {
    if (parts_.empty()) return;
    GpuPack pack(group_, std::move(parts_), stream_);
    pack.fill();
    group_.all_reduce(pack.tensor(), DDP_AVERAGE, stream_);
    pack.empty();
    pack.done();
    parts_.clear();
    bytes_ = 0;
  }

 private:
  group::Group& group_;
  void* stream_;
  std::vector<Tensor> parts_;
  int64_t bytes_ = 0;
};

}  // namespace

void average(group::Group& group, const std::vector<Tensor>& tensors, void* stream) {
  if (group.size() == 1) return;
  Pack pack(group);
  GpuParts on_gpu(group, stream);
  for (const Tensor& tensor : tensors) {
    if (tensor.is_on_gpu())
      on_gpu.add(tensor);
    else if (tensor.bytes() <= kSmallBytes)
      pack.add(tensor);
    else
      group.all_reduce(tensor, DDP_AVERAGE);
  }
  pack.send();
  on_gpu.send();
}

void Model::average_parameters(void* stream) {
  require_ready("ddp_model_average_parameters");
  require_own_values("ddp_model_average_parameters");
  group_->check_idle("ddp_model_average_parameters");
  refuse_capture("ddp_model_average_parameters", stream);
  const bootstrap::CallState::In inside(group_->calls(), bootstrap::UserCall::kAverageParameters, number_);
  require_everybody("ddp_model_average_parameters");
  std::vector<Tensor> values;
  for (const Parameter& parameter : table_.parameters()) values.push_back(parameter.value);
  average(*group_, values, stream);
  if (values.empty()) group_->barrier();
}

}  // namespace ddp::model
