#include "sync/average.hpp"

#include <cstring>

#include "sync/spread.hpp"

namespace ddp {
namespace {

/// Small tensors on their way to one message.
class Pack {
 public:
  explicit Pack(Group& group) : group_(group) {}

  void add(const Tensor& tensor) {
    if (!tensors_.empty() && (tensors_.front().dtype != tensor.dtype || bytes_ + tensor.bytes() > kPackBytes)) send();
    tensors_.push_back(tensor);
    bytes_ += tensor.bytes();
  }
  void send() {
    if (tensors_.empty()) return;
    if (staging_.empty()) staging_.resize(static_cast<size_t>(kPackBytes));
    each([](std::byte* staged, const Tensor& tensor) { std::memcpy(staged, tensor.data, static_cast<size_t>(tensor.bytes())); });
    const ddp_dtype dtype = tensors_.front().dtype;
    group_.all_reduce(flat_tensor(staging_.data(), dtype, bytes_ / dtype_size(dtype)), DDP_AVERAGE);
    each([](const std::byte* staged, const Tensor& tensor) { std::memcpy(tensor.data, staged, static_cast<size_t>(tensor.bytes())); });
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

  Group& group_;
  std::vector<Tensor> tensors_;
  int64_t bytes_ = 0;
  std::vector<std::byte> staging_;
};

}  // namespace

void average(Group& group, const std::vector<Tensor>& tensors) {
  if (group.size() == 1) return;
  Pack pack(group);
  for (const Tensor& tensor : tensors) {
    if (tensor.bytes() <= kSmallBytes)
      pack.add(tensor);
    else
      group.all_reduce(tensor, DDP_AVERAGE);
  }
  pack.send();
}

}  // namespace ddp
