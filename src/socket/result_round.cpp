// SPDX-License-Identifier: Apache-2.0
#include "socket/result_round.hpp"

#include <new>

namespace ddp::socket {

ResultRound::ResultRound(Links& links, int64_t most)
    : links_(links),
      most_((most + 4095) / 4096 * 4096),
      in_(static_cast<size_t>(links.size())),
      out_(static_cast<size_t>(links.size())) {
  if (most_ == 0) return;
  memory_.reset(static_cast<std::byte*>(std::aligned_alloc(4096, static_cast<size_t>(most_ * links.size()))));
  if (memory_ == nullptr) throw std::bad_alloc();
  for (int32_t member = 0; member < links.size(); ++member) arm(member);
}

// A peer may have left after the last collective; that is no failure until the next one.
void ResultRound::arm(int32_t member) noexcept {
  if (member != links_.position())
    in_[static_cast<size_t>(member)] = links_.try_receive(member, Tag::kShortResult, of(member), most_, 1);
}

void ResultRound::send(int64_t bytes, int32_t level) {
  for (int32_t step = 1; step < links_.size() && bytes > 0; ++step) {
    const int32_t peer = links_.after(-step);
    out_[static_cast<size_t>(peer)] = links_.send(peer, Tag::kShortResult, of(links_.position()), bytes, level);
  }
}

void ResultRound::wait(int32_t member, int32_t level) {
  Links::Message& in = in_[static_cast<size_t>(member)];
  if (!in.open) in = links_.receive(member, Tag::kShortResult, of(member), most_, level);
  links_.wait(in);
}

void ResultRound::close() {
  for (int32_t member = 0; member < links_.size() && most_ > 0; ++member) {
    links_.wait(out_[static_cast<size_t>(member)]);
    if (!in_[static_cast<size_t>(member)].open) arm(member);
  }
}

}  // namespace ddp::socket
