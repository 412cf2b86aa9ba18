#include "model/average.hpp"

#include <algorithm>

#include "bootstrap/control/call_state.hpp"
#include "model/coalesced_broadcast.hpp"
#include "model/model.hpp"
#include "model/pack.hpp"

namespace ddp::model {
namespace {

constexpr int64_t kGpuPackBytes = int64_t{16} << 20;

/// Tensors of one device on their way to messages of up to `limit` bytes, large ones in parts. On a GPU all of them go
/// through a pack, because what NCCL leaves behind when a rank is lost must not reach a parameter.
class Messages {
 public:
  Messages(group::Group& group, int64_t limit, void* stream) : group_(group), limit_(limit), stream_(stream) {}

  void add(const Tensor& tensor) {
    if (!parts_.empty() && parts_.front().dtype != tensor.dtype) send();
    for (int64_t at = 0; at < tensor.count;) {
      const int64_t room = (limit_ - bytes_) / dtype_size(tensor.dtype);
      const Tensor part = flat_part(tensor, at, std::min(tensor.count - at, room));
      parts_.push_back(part);
      bytes_ += part.bytes();
      at += part.count;
      if (bytes_ == limit_) send();
    }
  }
  void send() {
    if (parts_.empty()) return;
    Pack pack(group_, parts_, staging_, stream_);
    pack.fill();
    group_.all_reduce(pack.tensor(), DDP_AVERAGE, stream_);
    pack.empty();
    pack.done();
    parts_.clear();
    bytes_ = 0;
  }

 private:
  group::Group& group_;
  int64_t limit_;
  void* stream_;
  std::vector<Tensor> parts_;
  int64_t bytes_ = 0;
  std::vector<std::byte> staging_;  // in host memory
};

}  // namespace

void average(group::Group& group, const std::vector<Tensor>& tensors, void* stream) {
  if (group.size() == 1) return;
  Messages in_host(group, kPackBytes, stream), elsewhere(group, kGpuPackBytes, stream);
  for (const Tensor& tensor : tensors) {
    const bool is_immediate = device::of(tensor).is_immediate();
    if (is_immediate && tensor.bytes() > kSmallBytes)
      group.all_reduce(tensor, DDP_AVERAGE);
    else
      (is_immediate ? in_host : elsewhere).add(tensor);
  }
  in_host.send();
  elsewhere.send();
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
