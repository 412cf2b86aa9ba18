// SPDX-License-Identifier: Apache-2.0
// A bucket as a hook sees it: a flat copy of its gradients, and the collectives that it may use. The copy begins as this
// rank's gradients, times its weight, and ends as what every rank's gradients become. Gradients follow each other on 64-byte
// boundaries with zeros between.
// Threads: the hook's. Usable between open and close alone (INVALID_STATE otherwise).
// Tested by conformance/hook_test.cpp and capi/hook_test.c.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/tensor.hpp"
#include "parts/hooks/hook_session.hpp"

namespace ddp::parts {

class HookBucket : public std::enable_shared_from_this<HookBucket> {
 public:
  struct Piece {
    int32_t parameter = 0;
    int64_t offset = 0;  // elements
    Tensor shape{};      // of the gradient, without data
  };

  HookBucket(HookSession& session, int32_t index, bool last, ddp_dtype dtype, int64_t count, std::vector<Piece> pieces)
      : session_(session),
        index_(index),
        last_(last),
        dtype_(dtype),
        count_(count),
        pieces_(std::move(pieces)),
        used_((pieces_.size() + 63) / 64) {}

  [[nodiscard]] int32_t index() const noexcept { return index_; }
  [[nodiscard]] bool is_last() const noexcept { return last_; }
  [[nodiscard]] const std::vector<Piece>& pieces() const noexcept { return pieces_; }
  [[nodiscard]] int32_t rank() const noexcept { return session_.group().rank(); }
  [[nodiscard]] int32_t size() const noexcept { return session_.group().size(); }
  /// The value of the model's option.
  [[nodiscard]] ddp_reduce reduce() const noexcept { return session_.reduce(); }
  [[nodiscard]] Tensor contents() const;
  /// Does any rank contribute to this piece? What becomes of another is dropped.
  [[nodiscard]] bool is_used(size_t piece) const noexcept { return (used_[piece / 64] >> (piece % 64) & 1) != 0; }
  /// REDUCE passes of the model that ended well since its commit or the last load, and this one; the same on all ranks.
  [[nodiscard]] int64_t pass_number() const noexcept { return session_.pass_number(); }
  /// How often pass_number() has begun anew, because a checkpoint was loaded.
  [[nodiscard]] int64_t loads() const noexcept { return session_.loads(); }
  /// Memory in the group's reach, the hook's until it ends.
  [[nodiscard]] std::byte* scratch(int64_t bytes) { return session_.scratch(bytes); }

  // Collective over the ranks, in the hook's order. Throw what broke the group, or why the pass is void.
  void all_reduce(const Tensor& tensor, ddp_reduce op);
  void all_gather(const Tensor& input, const Tensor& output);
  void reduce_scatter(const Tensor& input, const Tensor& output, ddp_reduce op);
  void broadcast(const Tensor& tensor, int32_t root);

  /// The hook's text about the failure that it is about to return.
  void set_error(std::string text) { error_ = std::move(text); }
  [[nodiscard]] std::string take_error() { return std::exchange(error_, {}); }

  [[nodiscard]] bool is_open() const noexcept { return open_; }
  void open(const collective::BucketHeader& joined) noexcept;
  void close() noexcept { open_ = false; }
  /// Throws INVALID_STATE unless open.
  void require_open(const char* function) const;

  /// A hook has left something in its state that counts only if this pass ends well: a pass may turn out void after this
  /// bucket was reduced.
  void note_draft() noexcept { draft_ = Draft::kOpen; }
  /// Did the pass of the last draft end well? Once; false without one.
  [[nodiscard]] bool take_draft() noexcept { return std::exchange(draft_, Draft::kNone) == Draft::kGood; }
  /// The pass has ended; or another one begins, because it broke.
  void end_pass(bool is_good) noexcept {
    if (draft_ == Draft::kOpen) draft_ = is_good ? Draft::kGood : Draft::kNone;
  }

  /// What the C boundary and a stateful hook keep with the bucket; goes first when the model goes.
  std::shared_ptr<void> handle;
  std::shared_ptr<void> state;

 private:
  void agree_on(const HookSession::Step& step);
  [[nodiscard]] HookSession::Step step_of(HookSession::Step::Kind kind, const Tensor& tensor) const noexcept;

  HookSession& session_;
  int32_t index_;
  bool last_;
  ddp_dtype dtype_;
  int64_t count_;
  std::vector<Piece> pieces_;
  std::vector<uint64_t> used_;  // of the pass
  std::string error_;
  bool open_ = false;
  enum class Draft { kNone, kOpen, kGood } draft_ = Draft::kNone;
};

}  // namespace ddp::parts
