// SPDX-License-Identifier: Apache-2.0
#include "parts/hooks/hook_operation.hpp"

#include <algorithm>
#include <cstring>

#include "core/attempt.hpp"
#include "device/cpu/arrays.hpp"

namespace ddp::parts {

HookOperation::HookOperation(HookSession& session, const collective::BucketSpec& spec, std::shared_ptr<HookBucket> bucket)
    : session_(session), rule_(spec.rule), plan_hash_(spec.plan_hash), bucket_(std::move(bucket)) {
  for (const collective::BucketSpec::Piece& piece : spec.pieces) addresses_.push_back(piece.data);
  header_.used.resize(spec.used_words());
}

HookOperation::~HookOperation() {
  bucket_->close();
  bucket_->handle.reset();  // what holds the bucket from outside
  bucket_->state.reset();
}

void HookOperation::start(const collective::BucketHeader& mine) {
  header_.incomplete = mine.incomplete;
  header_.participation = mine.participation;
  std::copy(mine.used.begin(), mine.used.end(), header_.used.begin());
  end(State::kStarted);
}

bool HookOperation::set_address(int32_t piece, std::byte* data) noexcept {
  addresses_[static_cast<size_t>(piece)] = data;
  return true;
}

bool HookOperation::open() {
  session_.check_unbroken();
  if (session_.failure()) {  // an earlier bucket of the pass failed, on all ranks
    header_.incomplete = true;
    end(State::kDone);
    return false;
  }
  weight_ = header_.participation.weight;
  session_.combine_headers(header_, plan_hash_);
  if (header_.is_void()) {
    end(State::kDone);
    return false;
  }
  copy_in();
  bucket_->open(header_);
  end(State::kOpen);
  return true;
}

void HookOperation::close(const std::optional<Error>& problem) {
  bucket_->close();
  end(State::kDone);
  header_.incomplete = true;  // unless all is well
  session_.check_unbroken();
  if (session_.failure()) return;
  HookSession::Step step;
  step.kind = problem ? HookSession::Step::Kind::kFailure : HookSession::Step::Kind::kEnd;
  step.bucket = bucket_->index();
  if (!session_.step(step, problem ? problem->text() : std::string())) return;
  header_.incomplete = false;
  copy_out();
}

void HookOperation::finish() {
  if (state() == State::kDone) return;
  if (state() == State::kStarted && !open()) return;
  if (session_.hook().kind == Hook::Kind::kPulled)
    return close(Error(DDP_ERROR_INVALID_STATE,
                       "ddp_model_end_backward was called before this bucket was pulled and finished; call "
                       "ddp_model_next_bucket until it gives NULL"));
  close(run_hook());
}

/// On the queue no caller would catch it, and the other ranks must get it.
std::optional<Error> HookOperation::run_hook() {
  return try_to([&] { session_.hook().body(*bucket_); });
}

// A rank that only answers in this pass adds zeros.
void HookOperation::copy_in() noexcept {
  const Tensor whole = bucket_->contents();
  const int64_t size = dtype_size(rule_.dtype);
  const auto zero = [&](int64_t begin, int64_t end) {
    if (end > begin) std::memset(whole.data + begin * size, 0, static_cast<size_t>((end - begin) * size));
  };
  if (!(weight_ > 0)) return zero(0, whole.count);
  int64_t done = 0;
  for (size_t piece = 0; piece < addresses_.size(); ++piece) {
    const HookBucket::Piece& where = bucket_->pieces()[piece];
    zero(done, where.offset);
    if (where.shape.count > 0)
      std::memcpy(whole.data + where.offset * size, addresses_[piece], static_cast<size_t>(where.shape.bytes()));
    done = where.offset + where.shape.count;
  }
  zero(done, whole.count);
  if (weight_ != 1.0) cpu::scale(rule_.dtype, whole.data, whole.count, weight_);
}

void HookOperation::copy_out() noexcept {
  const Tensor whole = bucket_->contents();
  const int64_t size = dtype_size(rule_.dtype);
  const double divisor = rule_.divisor;
  if (rule_.by_weight && rule_.op == DDP_AVERAGE && header_.participation.weight != divisor)
    cpu::scale(rule_.dtype, whole.data, whole.count, divisor / header_.participation.weight);
  for (size_t piece = 0; piece < addresses_.size(); ++piece) {
    const HookBucket::Piece& where = bucket_->pieces()[piece];
    const bool used = (header_.used[piece / 64] >> (piece % 64) & 1) != 0;
    if (used && where.shape.count > 0)
      std::memcpy(addresses_[piece], whole.data + where.offset * size, static_cast<size_t>(where.shape.bytes()));
  }
}

}  // namespace ddp::parts
