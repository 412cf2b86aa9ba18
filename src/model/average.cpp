// SPDX-License-Identifier: Apache-2.0
#include "model/average.hpp"

#include <algorithm>

#include "control/call_state.hpp"
#include "exchange/gpu_side.hpp"
#include "model/coalesced_broadcast.hpp"
#include "model/model.hpp"
#include "model/pack.hpp"
#include "model/requirements.hpp"

namespace ddp::model {
namespace {

constexpr int64_t kGpuPackBytes = int64_t{16} << 20;

/// Packs tensors of one device into messages of up to `limit` bytes, large ones in parts. On a GPU all of them go through a
/// pack, because partial results of NCCL after the loss of a rank must not reach a parameter.
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

void average_parameters(Model& model, void* stream) {
  constexpr const char* kFunction = "ddp_model_average_parameters";
  group::Group& group = model.group();
  model.require_ready(kFunction);
  model.values().require_own(kFunction);
  group.check_idle(kFunction);
  refuse_capture(model, kFunction, stream);
  const bootstrap::CallState::In inside(group.calls(), bootstrap::UserCall::kAverageParameters, model.number());
  require_everybody(model, kFunction);
  std::vector<Tensor> values;
  for (const Parameter& parameter : model.table().parameters()) values.push_back(parameter.value);
  model.values().change_together([&] {
    average(group, values, stream);
    group.gpu_side().settle(nullptr);
  });
  if (values.empty()) group.barrier();
}

}  // namespace ddp::model
