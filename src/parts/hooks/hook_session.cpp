// SPDX-License-Identifier: Apache-2.0
#include "parts/hooks/hook_session.hpp"

#include <algorithm>
#include <bit>
#include <cstring>

#include "core/differing_ranks.hpp"
#include "group/consensus.hpp"

namespace ddp::parts {
namespace {

constexpr size_t kFixedWords = 2 + sizeof(collective::Participation) / sizeof(uint64_t);  // words before BucketHeader::used
static_assert(sizeof(collective::Participation) % sizeof(uint64_t) == 0);

const char* kind_name(HookSession::Step::Kind kind) noexcept {
  using Kind = HookSession::Step::Kind;
  switch (kind) {
    case Kind::kAllReduce: return "all-reduce";
    case Kind::kAllGather: return "all-gather";
    case Kind::kReduceScatter: return "reduce-scatter";
    case Kind::kBroadcast: return "broadcast";
    case Kind::kEnd: return "end of the hook";
    case Kind::kFailure: break;
  }
  return "failure";
}

}  // namespace

std::string HookSession::Step::describe() const {
  std::string text = kind_name(kind);
  if (kind != Kind::kEnd) text += " of " + std::to_string(count) + " " + dtype_name(dtype) + " elements";
  if (kind == Kind::kBroadcast) text += " from rank " + std::to_string(root);
  return text + " in bucket " + std::to_string(bucket);
}

HookSession::HookSession(const group::Channel& channel, Hook hook, ddp_reduce reduce, int64_t largest_bucket_bytes,
                         size_t most_words)
    : channel_(channel),
      group_(channel.group()),
      hook_(std::move(hook)),
      reduce_(reduce),
      header_(kFixedWords + most_words),
      headers_(header_.size() * static_cast<size_t>(group_.size())),
      frames_(static_cast<size_t>(group_.size())) {
  const auto allocate = [&] {
    contents_ = static_cast<std::byte*>(group_.memory().alloc_beside(Tensor{}, std::max<int64_t>(largest_bucket_bytes, 1)));
  };
  on_error([&] { group::all_or_none(group_, "memory of the hook", allocate); },
           [this](const Error&) {
             if (contents_ != nullptr) group_.memory().free(contents_);
           });
}

HookSession::~HookSession() {
  group_.memory().free(contents_);
  if (scratch_ != nullptr) group_.memory().free(scratch_);
}

std::byte* HookSession::scratch(int64_t bytes) {
  if (bytes > scratch_bytes_) {
    if (scratch_ != nullptr) group_.memory().free(std::exchange(scratch_, nullptr));
    scratch_bytes_ = 0;
    scratch_ = static_cast<std::byte*>(group_.memory().alloc_beside(Tensor{}, bytes));
    scratch_bytes_ = bytes;
  }
  return scratch_;
}

void HookSession::remember(const std::optional<Error>& error) {
  if (!error) return;
  if (!broken_) broken_ = error;
  throw Error(*error);
}

void HookSession::check_unbroken() const {
  if (broken_) throw Error(*broken_);
}

void HookSession::combine_headers(collective::BucketHeader& header, uint64_t plan_hash) {
  const size_t words = kFixedWords + header.used.size();
  header_[0] = header.incomplete ? 1 : 0;
  header_[1] = plan_hash;
  std::memcpy(&header_[2], &header.participation, sizeof header.participation);
  std::copy(header.used.begin(), header.used.end(), header_.begin() + kFixedWords);
  const auto count = static_cast<int64_t>(words);
  run_collective([&] {
    transport().all_gather(flat_tensor(header_.data(), DDP_I64, count),
                           flat_tensor(headers_.data(), DDP_I64, count * group_.size()));
  });
  const auto is_elsewhere = [&](size_t rank) { return headers_[rank * words + 1] != headers_[1]; };
  for (size_t rank = 0; rank < frames_.size(); ++rank)
    if (is_elsewhere(rank))
      remember(make_error(
                   DDP_ERROR_MISMATCH,
                   "%s and %s are in backward passes (ddp_model_end_backward) of different models; every rank must make the "
                   "same collective calls in the same order",
                   group_.name_of(0).c_str(), group_.name_of(static_cast<int32_t>(rank)).c_str())
                   .with(ranks_that_differ(frames_.size(), is_elsewhere)));
  header.participation = collective::sum_weights(static_cast<int64_t>(frames_.size()), [&](int64_t rank) {
    collective::Participation participation;
    std::memcpy(static_cast<void*>(&participation), headers_.data() + static_cast<size_t>(rank) * words + 2,
                sizeof participation);
    return participation;
  });
  for (size_t rank = 0; rank < frames_.size(); ++rank) {
    const uint64_t* const theirs = headers_.data() + rank * words;
    header.incomplete = header.incomplete || theirs[0] != 0;
    for (size_t word = 0; word < header.used.size(); ++word) header.used[word] |= theirs[kFixedWords + word];
  }
}

bool HookSession::step(const Step& mine, const std::string& failed) {
  frame_.step = mine;
  std::memset(frame_.text, 0, sizeof frame_.text);
  std::memcpy(frame_.text, failed.data(), std::min(failed.size(), sizeof frame_.text - 1));
  const auto bytes = static_cast<int64_t>(sizeof frame_);
  run_collective([&] {
    transport().all_gather(flat_tensor(&frame_, DDP_U8, bytes), flat_tensor(frames_.data(), DDP_U8, bytes * group_.size()));
  });
  judge();
  return !failure_;
}

void HookSession::judge() {
  for (size_t rank = 0; rank < frames_.size(); ++rank) {
    const Frame& frame = frames_[rank];
    if (frame.step.kind != Step::Kind::kFailure) continue;
    failure_ = Error(DDP_ERROR_CALLBACK, "the hook failed on " + group_.name_of(static_cast<int32_t>(rank)) + " in bucket " +
                                             std::to_string(frame.step.bucket) + ": " + frame.text);
    return;
  }
  const Step& first = frames_[0].step;
  const auto does_other = [&](size_t rank) { return !(frames_[rank].step == first); };
  for (size_t rank = 1; rank < frames_.size(); ++rank) {
    if (!does_other(rank)) continue;
    failure_ = Error(DDP_ERROR_MISMATCH, "the hooks of the ranks did different things: " + group_.name_of(0) + " " +
                                             first.describe() + ", but " + group_.name_of(static_cast<int32_t>(rank)) + " " +
                                             frames_[rank].step.describe() +
                                             "; a hook must make the same calls in the same order on every rank")
                   .with(ranks_that_differ(frames_.size(), does_other));
    return;
  }
}

}  // namespace ddp::parts
