// SPDX-License-Identifier: Apache-2.0
#include "parts/hooks/hooked_buckets.hpp"

#include <algorithm>

namespace ddp::parts {
namespace {

int64_t largest_bytes(const Plan& plan) noexcept {
  int64_t most = 0;
  for (const PlannedBucket& bucket : plan) most = std::max(most, bucket.count * dtype_size(bucket.dtype));
  return most;
}

size_t most_words(const Plan& plan) noexcept {
  size_t most = 0;
  for (const PlannedBucket& bucket : plan) most = std::max(most, (bucket.pieces.size() + 63) / 64);
  return most;
}

}  // namespace

HookedBuckets::HookedBuckets(const group::Channel& channel, const Hook& hook, ddp_reduce reduce, const Plan& plan,
                             const Parameters& table)
    : session_(channel, hook, reduce, largest_bytes(plan), most_words(plan)), plan_(plan), table_(table) {}

pass::Traits HookedBuckets::traits() const noexcept {
  pass::Traits traits;
  traits.waits = session_.hook().kind == Hook::Kind::kCallback;
  traits.pulled = session_.hook().kind == Hook::Kind::kPulled;
  traits.reduces_copies = true;
  return traits;
}

std::unique_ptr<collective::BucketOperation> HookedBuckets::prepare(const collective::BucketSpec& spec) {
  const auto at = static_cast<size_t>(spec.index);
  const PlannedBucket& planned = plan_[at];
  std::vector<HookBucket::Piece> pieces;
  for (const PlannedPiece& piece : planned.pieces) {  // whole gradients: Oversized::kWhole
    Tensor shape = table_.parameter(piece.parameter).grad;
    shape.data = nullptr;
    pieces.push_back(HookBucket::Piece{piece.parameter, piece.offset, shape});
  }
  auto bucket = std::make_shared<HookBucket>(session_, spec.index, at + 1 == plan_.size(), planned.dtype, planned.count,
                                             std::move(pieces));
  auto operation = std::make_unique<HookOperation>(session_, spec, std::move(bucket));
  operations_.push_back(operation.get());
  return operation;
}

void HookedBuckets::begin(pass::Opening&) {
  session_.begin_pass();
  for (HookOperation* operation : operations_) {
    operation->reset();
    operation->bucket().end_pass(false);
  }
}

bool HookedBuckets::conclude(const pass::Verdict& verdict) {
  session_.end_pass(verdict.is_void);
  for (HookOperation* operation : operations_) operation->bucket().end_pass(!verdict.is_void);
  return true;
}

void HookedBuckets::changed(pass::Change what) noexcept {
  if (what == pass::Change::kLoad) session_.forget();
}

void HookedBuckets::check() const {
  if (session_.failure()) throw Error(*session_.failure());
}

HookOperation* HookedBuckets::open_operation() const noexcept {
  for (HookOperation* operation : operations_)
    if (operation->state() == HookOperation::State::kOpen) return operation;
  return nullptr;
}

std::shared_ptr<HookBucket> HookedBuckets::next() {
  if (const HookOperation* open = open_operation())
    throw make_error(DDP_ERROR_INVALID_STATE,
                     "ddp_model_next_bucket: bucket %d was not finished; call ddp_model_finish_bucket first",
                     open->bucket().index());
  for (HookOperation* operation : operations_) {
    if (operation->state() == HookOperation::State::kDone) continue;
    if (operation->state() != HookOperation::State::kStarted) return nullptr;
    if (operation->open()) return operation->bucket().shared_from_this();
  }
  return nullptr;
}

void HookedBuckets::finish(const std::optional<Error>& problem) {
  HookOperation* operation = open_operation();
  if (operation == nullptr)
    throw Error(DDP_ERROR_INVALID_STATE, "ddp_model_finish_bucket: no bucket was pulled; call ddp_model_next_bucket first");
  const std::string said = operation->bucket().take_error();
  operation->close(problem && problem->text().empty()
                       ? Error(problem->status(), said.empty() ? "its hook failed and gave no reason" : said)
                       : problem);
  check();
}

}  // namespace ddp::parts
