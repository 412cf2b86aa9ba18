#include "sync/average.hpp"

#include <cstring>

#include "sync/gpu_pack.hpp"
#include "sync/spread.hpp"

namespace ddp {
namespace {

/// Small tensors on their way to one message.
class Pack {
 public:
  Pack(Group& group, void* stream) : group_(group), stream_(stream) {}

  void add(const Tensor& tensor) {
    if (!tensors_.empty() && (!alike(tensors_.front(), tensor) || bytes_ + tensor.bytes() > kPackBytes)) send();
    tensors_.push_back(tensor);
    bytes_ += tensor.bytes();
  }
  void send() {
    if (tensors_.empty()) return;
    tensors_.front().is_on_gpu() ? send_on_gpu() : send_in_host();
    tensors_.clear();
    bytes_ = 0;
  }

 private:
  static bool alike(const Tensor& a, const Tensor& b) noexcept { return a.dtype == b.dtype && a.is_on_gpu() == b.is_on_gpu(); }

  void send_in_host() {
    if (staging_.empty()) staging_.resize(static_cast<size_t>(kPackBytes));
    each([](std::byte* staged, const Tensor& tensor) { std::memcpy(staged, tensor.data, static_cast<size_t>(tensor.bytes())); });
    const ddp_dtype dtype = tensors_.front().dtype;
    group_.all_reduce(flat_tensor(staging_.data(), dtype, bytes_ / dtype_size(dtype)), DDP_AVERAGE);
    each([](const std::byte* staged, const Tensor& tensor) { std::memcpy(tensor.data, staged, static_cast<size_t>(tensor.bytes())); });
  }

  void send_on_gpu() {
    GpuPack pack(group_, tensors_, stream_);
    pack.fill();
    group_.all_reduce(pack.tensor(), DDP_AVERAGE, stream_);
    pack.empty();
    pack.done();
  }

  template <class Copy>
  void each(Copy&& copy) {
    int64_t at = 0;
    for (const Tensor& tensor : tensors_) {
      if (tensor.bytes() > 0) copy(staging_.data() + at, tensor);
      at += tensor.bytes();
    }
  }

  Group& group_;
  void* stream_;
  std::vector<Tensor> tensors_;
  int64_t bytes_ = 0;
  std::vector<std::byte> staging_;
};

}  // namespace

void average(Group& group, const std::vector<Tensor>& tensors, void* stream) {
  if (group.size() == 1) return;
  Pack pack(group, stream);
  for (const Tensor& tensor : tensors) {
    if (tensor.bytes() <= kSmallBytes)
      pack.add(tensor);
    else
      group.all_reduce(tensor, DDP_AVERAGE, stream);
  }
  pack.send();
}

}  // namespace ddp
