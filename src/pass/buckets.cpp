// SPDX-License-Identifier: Apache-2.0
#include "pass/buckets.hpp"

#include <algorithm>

#include "core/virtual_ranks.hpp"
#include "nccl/nccl_transport.hpp"
#include "pass/widened_bucket.hpp"

namespace ddp::pass {
namespace {

int64_t largest_on_gpu(const Plan& plan, const Hook& hook) noexcept {
  int64_t bytes = 0;
  for (const PlannedBucket& bucket : plan)
    if (bucket.on_gpu)
      bytes = std::max(bytes, bucket.count * dtype_size(hook.widens(bucket.dtype) ? DDP_F32 : bucket.dtype));
  return bytes;
}

}  // namespace

Buckets::Buckets(const group::Channel& channel, const Parameters& table, const ddp_model_options& options, Plan plan,
                 uint64_t plan_hash, Hook hook)
    : table_(table),
      options_(options),
      divisor_(VirtualRanks::of(channel.group().options(), channel.group().rank(), channel.group().size()).total),
      plan_(std::move(plan)),
      plan_hash_(plan_hash),
      hook_(std::move(hook)),
      places_(plan_, table.parameters().size()),
      layout_(channel.group(), table, plan_),
      largest_bytes_(largest_on_gpu(plan_, hook_)),
      parts_(channel.group(), table, plan_, rules()),
      pending_(plan_.size()) {
  if (hook_.copies()) hooked_ = std::make_unique<HookedBuckets>(channel, hook_, options.reduce, plan_);
  for (size_t b = 0; b < plan_.size(); ++b) {
    auto bucket = std::make_unique<Bucket>();
    bucket->operation = prepare(channel, b);
    bucket->active = bucket->operation.get();
    bucket->header.used.resize((plan_[b].pieces.size() + 63) / 64);
    buckets_.push_back(std::move(bucket));
  }
}

std::unique_ptr<collective::BucketOperation> Buckets::prepare(const group::Channel& channel, size_t bucket) {
  const collective::BucketSpec spec = describe(bucket);
  if (hooked_ != nullptr) return hooked_->make(spec, plan_[bucket], table_, bucket + 1 == plan_.size());
  const PartialSums* const sums = parts_.sums();
  if (sums == nullptr || !sums->is_widened(bucket)) return channel.prepare(spec);
  return std::make_unique<WidenedBucket>(channel.prepare(WidenedBucket::widen(spec, *sums)), *sums, bucket,
                                         spec.pieces.size());
}

bool Buckets::reduce_copies() const noexcept {
  if (hooked_ != nullptr) return true;
  for (size_t bucket = 0; bucket < plan_.size(); ++bucket)
    if (parts_.sums() != nullptr && parts_.sums()->is_widened(bucket)) return true;
  return false;
}

/// Of gradients on one rank, or in one part of the global batch.
cpu::ReduceRule Buckets::rule_of(ddp_dtype dtype) const noexcept {
  cpu::ReduceRule rule{dtype, options_.reduce, divisor_, options_.divisor == DDP_DIVISOR_WEIGHTS};
  rule.wire = hook_.wire_of(dtype);
  rule.widened = hook_.widens(dtype);
  return rule;
}

std::vector<cpu::ReduceRule> Buckets::rules() const {
  std::vector<cpu::ReduceRule> rules;
  for (const PlannedBucket& planned : plan_) rules.push_back(rule_of(planned.dtype));
  return rules;
}

collective::BucketSpec Buckets::describe(size_t bucket) const {
  const PlannedBucket& planned = plan_[bucket];
  collective::BucketSpec spec;
  spec.index = static_cast<int32_t>(bucket);
  spec.rule = rule_of(planned.dtype);
  spec.rule.summed = parts_.sums() != nullptr && !parts_.sums()->is_widened(bucket);
  spec.plan_hash = plan_hash_;
  spec.on_gpu = planned.on_gpu;
  spec.all_on_gpu = std::all_of(plan_.begin(), plan_.end(), [](const PlannedBucket& each) { return each.on_gpu; });
  spec.dense = layout_.of(bucket) == GradientLayout::Block::kDense;
  spec.partial_allowed = partial_allowed();
  spec.count = planned.count;
  spec.largest_bytes = largest_bytes_;
  for (const PlannedPiece& piece : planned.pieces) {
    const Parameter& parameter = table_.parameter(piece.parameter);
    const Tensor part = flat_part(parameter.grad, piece.first, piece.count);
    const bool owned = parameter.lies_in_grad_block() || layout_.of(bucket) == GradientLayout::Block::kPlanned;
    spec.pieces.push_back(collective::BucketSpec::Piece{part.data, part.count, owned, piece.offset});
  }
  return spec;
}

std::string Buckets::describe_plan() const {
  std::string text;
  for (size_t b = 0; b < plan_.size(); ++b) {
    const PlannedBucket& planned = plan_[b];
    text += "bucket " + std::to_string(b) + ": " + std::to_string(planned.count * dtype_size(planned.dtype)) + " bytes of " +
            dtype_name(planned.dtype) + ", " + buckets_[b]->operation->describe() + ":";
    for (const PlannedPiece& piece : planned.pieces) {
      const Parameter& parameter = table_.parameter(piece.parameter);
      const int64_t unit = parameter.reals_each(), first = piece.first / unit, end = first + piece.count / unit;
      text += " " + parameter.name;
      if (piece.count < parameter.grad.count) text += "[" + std::to_string(first) + ":" + std::to_string(end) + "]";
    }
    text += "\n";
  }
  return text;
}

bool Buckets::set_address(int32_t index, std::byte* data, OptimizerStage* stage) noexcept {
  if (data == table_.parameter(index).grad.data) return true;
  const std::span<const PiecePlace> all = places(index);
  const auto is_tied = [&](const PiecePlace& place) {
    return layout_.of(static_cast<size_t>(place.bucket)) != GradientLayout::Block::kNone;
  };
  if (std::any_of(all.begin(), all.end(), is_tied)) return false;
  return std::all_of(all.begin(), all.end(), [&](const PiecePlace& place) {
    const auto bucket = static_cast<size_t>(place.bucket);
    std::byte* const begin = data + piece(place).first * dtype_size(plan_[bucket].dtype);
    return buckets_[bucket]->operation->set_address(place.piece, begin) &&
           (stage == nullptr || stage->set_address(bucket, place.piece, begin));
  });
}

void Buckets::begin_pass(OptimizerStage* stage) noexcept {
  next_ = 0;
  for (size_t b = 0; b < buckets_.size(); ++b) {
    Bucket& bucket = *buckets_[b];
    pending_[b].store(static_cast<int32_t>(plan_[b].pieces.size()), std::memory_order_relaxed);
    if (stage == nullptr) static_cast<void>(bucket.operation->leave_sum(false));
    bucket.active = stage != nullptr ? &stage->reduction(b, *bucket.operation) : bucket.operation.get();
  }
  if (hooked_ != nullptr) hooked_->begin_pass();
}

void Buckets::note_stream(size_t bucket, void* stream) {
  Bucket& of = *buckets_[bucket];
  const std::lock_guard lock(of.streaming);
  if (std::find(of.streams.begin(), of.streams.end(), stream) == of.streams.end()) of.streams.push_back(stream);
}

/// What comes after one bucket comes after all that start behind it, and one wait for each stream will do.
void Buckets::join_streams(size_t begin, size_t end) {
  while (begin < end && !plan_[begin].on_gpu) ++begin;
  for (size_t bucket = begin + 1; bucket < end; ++bucket)
    take_streams(bucket, [&](void* stream) { note_stream(begin, stream); });
}

void Buckets::order_marks(nccl::NcclTransport& transport, void* stream) {
  const std::lock_guard lock(starting_);
  join_streams(0, size());
  for (size_t bucket = 0; bucket < size(); ++bucket)
    take_streams(bucket, [&](void* of_mark) { transport.order_after(of_mark); });
  transport.order_before(stream);
}

collective::BucketOperation& Buckets::start(size_t bucket) {
  Bucket& of = *buckets_[bucket];
  take_streams(bucket, [&](void* stream) { of.active->wait_for_stream(stream); });
  of.active->start(of.header);
  return *of.active;
}

}  // namespace ddp::pass
