// SPDX-License-Identifier: Apache-2.0
#include "device/gpu/scratch.hpp"

#include <algorithm>

namespace ddp::gpu {
namespace {

constexpr int64_t kLeast = int64_t{256} << 10;

}  // namespace

Scratch::Use Scratch::take(int64_t bytes, void* stream) {
  if (last_ == nullptr) last_ = std::make_unique<Event>(device_);
  if (bytes > bytes_) {
    const int64_t larger = std::max({bytes, 2 * bytes_, kLeast});
    bytes_ = 0;
    memory_ = Array();  // first, because there may not be room for both
    memory_ = Array(device_, larger, "what travels between the ranks");
    bytes_ = larger;
  } else {
    last_->hold_back(stream);
  }
  return Use(*this, stream);
}

void Scratch::Use::done() {
  scratch_.last_->record(stream_);
  done_ = true;
}

Scratch::Use::~Use() {
  if (!done_) static_cast<void>(scratch_.device_.table().event_record(scratch_.last_->get(), stream_));
}

}  // namespace ddp::gpu
