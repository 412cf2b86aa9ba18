#include "pass/optimizer_stage.hpp"

#include <algorithm>
#include <utility>

#include "bootstrap/control/consensus.hpp"
#include "collective/nccl/nccl_transport.hpp"
#include "device/cpu/arrays.hpp"
#include "device/gpu/device.hpp"
#include "pass/bucket_steps.hpp"

namespace ddp::pass {
namespace {

constexpr const char* kInPass = "ddp_model_end_backward";
constexpr const char* kUpdates = "the updates of the optimizer";

std::vector<int64_t> counts_of(const Parameters& table, const PlannedBucket& bucket) {
  std::vector<int64_t> counts;
  for (const int32_t index : bucket.parameters) counts.push_back(table.parameter(index).value.count);
  return counts;
}

std::vector<int64_t> counts_of(const Parameters& table) {
  std::vector<int64_t> counts;
  for (const Parameter& parameter : table.parameters()) counts.push_back(parameter.value.count);
  return counts;
}

/// The norm of what this rank owns, taken while it is in cache.
class NormWork final : public collective::SliceWork {
 public:
  NormWork(const Parameters& table, const PlannedBucket& bucket) : table_(table), bucket_(bucket) {}
  void on_block(int32_t piece, int64_t first, int64_t count) noexcept override {
    const Tensor& grad = table_.parameter(bucket_.parameters[static_cast<size_t>(piece)]).grad;
    if (wanted) cpu::add_norm_terms(grad.dtype, grad.data + first * dtype_size(grad.dtype), count, 2, sum);
  }
  bool wanted = false;
  ExactSum sum;

 private:
  const Parameters& table_;
  const PlannedBucket& bucket_;
};

}  // namespace

struct OptimizerStage::Part {
  Part(const Parameters& table, const PlannedBucket& bucket, BlockUpdate& update)
      : norm(table, bucket), work(update, bucket), after(work, counts_of(table, bucket)) {
    note.used.resize((bucket.parameters.size() + 63) / 64);
  }
  NormWork norm;
  UpdateWork work;
  std::unique_ptr<collective::BucketOperation> collect;  // gradients to their owners; NULL: they are reduced everywhere
  std::unique_ptr<collective::BucketOperation> give;     // values from their owners
  std::unique_ptr<collective::BucketOperation> step;     // both with the step between them; NULL: one after the other
  UpdateAfter after;
  collective::BucketHeader note;  // for a give outside a pass
};

OptimizerStage::OptimizerStage(group::Group& group, const Parameters& table, const Plan& plan, BlockUpdate& update,
                               DescribeBucket describe, bool may_follow)
    : group_(group),
      table_(table),
      plan_(plan),
      update_(update),
      describe_(std::move(describe)),
      sharded_(update.is_sharded()),
      may_follow_(may_follow),
      ownership_(own_plan(plan, counts_of(table), group.size(), update.is_sharded())) {
  for (const PlannedBucket& bucket : plan_) {
    (bucket.on_gpu ? on_gpu_ : in_host_) = true;
    parts_.push_back(std::make_unique<Part>(table, bucket, update));
  }
}

OptimizerStage::~OptimizerStage() = default;

void OptimizerStage::prepare() {
  prepared_ = true;
  if (!sharded_) return;
  for (size_t b = 0; b < plan_.size(); ++b) {
    Part& part = *parts_[b];
    const bool on_gpu = plan_[b].on_gpu;
    collective::ExchangeSpec step = describe_(b);
    step.ownership = &ownership_.buckets[b];
    for (const int32_t index : plan_[b].parameters) {
      const Tensor& value = table_.parameter(index).value;
      step.outputs.push_back(collective::BucketSpec::Piece{value.data, value.count, false});
    }
    collective::ExchangeSpec give = step;
    give.collects = false;
    give.pieces = std::exchange(give.outputs, {});
    give.rule.wire = cpu::ReduceRule::kAsItIs;
    give.work = step.work = &part.work;
    collective::ExchangeSpec collect = step;
    collect.gives = false;
    collect.outputs.clear();
    collect.work = &part.norm;
    part.give = group_.prepare(give);
    if (group_.can(collect.kind(), on_gpu)) part.collect = group_.prepare(collect);
    if (may_follow_ && group_.can(step.kind(), on_gpu)) part.step = group_.prepare(step);
  }
}

void OptimizerStage::begin() {
  immediate_ = update_.is_immediate();
  if (immediate_) update_.prepare_blocks();
  const bool in_pass = may_follow_ && prepared_ && (!sharded_ || !in_host_ || group_.transport().pollable());
  followed_ = immediate_ && in_pass;
  norm_taken_ = false;
  problem_.reset();
  for (const auto& part : parts_) {
    part->norm.wanted = prepared_ && may_follow_ && !on_gpu_ && part->collect != nullptr && update_.wants_norm();
    part->norm.sum = ExactSum();
    part->work.set_on(true);
  }
}

collective::BucketOperation& OptimizerStage::reduction(size_t bucket, collective::BucketOperation& usual) noexcept {
  Part& part = *parts_[bucket];
  if (followed_ && part.step != nullptr) return *part.step;
  return part.collect != nullptr ? *part.collect : usual;
}

void OptimizerStage::follow(size_t bucket, collective::BucketOperation& reduction, const collective::BucketHeader& mine,
                            collective::ProgressQueue& queue) {
  if (!followed_) return;
  Part& part = *parts_[bucket];
  if (plan_[bucket].on_gpu && !problem_) problem_ = bootstrap::try_to([&] { refuse_capture(); });
  if (!sharded_ && plan_[bucket].on_gpu) return update_now(bucket);
  if (part.step != nullptr) return;  // the reduction is the step
  if (!sharded_) {
    part.after.start(reduction);
    queue.push(part.after);
    return;
  }
  part.give->start(plan_[bucket].on_gpu ? note_of_all(bucket) : mine);
  queue.push(*part.give);  // the queue comes to it when the own slice is reduced
}

/// On a GPU values are given before this rank knows what the others contribute. So all ranks give everything, whatever they
/// miss or skip themselves; if the pass turns out void it is taken back.
const collective::BucketHeader& OptimizerStage::note_of_all(size_t bucket) noexcept {
  collective::BucketHeader& note = parts_[bucket]->note;
  for (size_t piece = 0; piece < plan_[bucket].parameters.size(); ++piece)
    note.used[piece / 64] |= uint64_t{1} << (piece % 64);
  return note;
}

/// On a GPU the order of the stream does what the queue does elsewhere: the step is enqueued behind the reduction.
void OptimizerStage::update_now(size_t bucket) {
  Part& part = *parts_[bucket];
  for (size_t piece = 0; piece < plan_[bucket].parameters.size(); ++piece)
    part.work.on_block(static_cast<int32_t>(piece), 0, table_.parameter(plan_[bucket].parameters[piece]).value.count);
  if (!problem_)
    problem_ = bootstrap::try_to(
        [&] { part.work.flush(gpu_stream()); });  // this may be the thread that marks; the pass's end says it
}

void OptimizerStage::refuse_capture() const {
  group_.gpu().refuse_capture(
      gpu_stream(), "ddp_model_mark_ready",
      "the optimizer updates within the pass (in_backward), and its rate and step count would be frozen into the graph");
}

void* OptimizerStage::gpu_stream() const { return on_gpu_ ? group_.gpu_side().stream() : nullptr; }

bool OptimizerStage::end(bool is_void) {
  if (problem_) throw Error(*problem_);
  norm_taken_ = !is_void && prepared_ && sharded_ && parts_.front()->norm.wanted;
  if (!prepared_) prepare();
  if (is_void) {
    if (!followed_) return true;
    const bool restored = update_.restore();
    update_.flush(gpu_stream());
    publish(true);
    return restored;
  }
  if (!immediate_) return true;
  failure_ = followed_ ? settle(kInPass, true, gpu_stream()) : run_step(kInPass, true, gpu_stream());
  if (failure_) return true;
  update_.count_step();
  made_step_ = true;
  return true;
}

bool OptimizerStage::attend(bool is_void) {
  if (is_void || !update_.may_fail() || !update_.is_immediate()) return true;
  const std::optional<Error> theirs = bootstrap::try_to([&] { group_.agree(kUpdates, nullptr); });
  if (theirs && !theirs->is_agreed()) throw Error(*theirs);
  return !theirs;
}

/// The program's rule has changed all blocks, or failed. If it failed, here or (if `collective`) on any rank, the step is
/// taken back.
std::optional<Error> OptimizerStage::settle(const char* function, bool collective, void* stream) {
  if (!update_.may_fail()) return std::nullopt;
  std::optional<Error> failure = update_.take_failure();
  if (failure) {
    const std::string who = group_.size() > 1 ? group_.name_of(group_.rank()) + ": " : "";
    failure = Error(failure->status(), std::string(function) + ": " + who + failure->text());
  }
  if (collective && group_.size() > 1) {
    failure = bootstrap::try_to([&] { group_.agree(kUpdates, failure ? &*failure : nullptr); });
    if (failure && !failure->is_agreed()) throw Error(*failure);
  }
  if (!failure) return failure;
  if (!update_.restore()) update_.tear();
  update_.flush(stream);
  if (sharded_) publish(true);
  return failure;
}

void OptimizerStage::give_up() {
  if (!immediate_ || made_step_) return;  // a step that was made whole and counted stays
  static_cast<void>(update_.restore());
  update_.flush(gpu_stream());
}

std::optional<Error> OptimizerStage::run_step(const char* function, bool collective, void* stream) {
  if (!sharded_) {
    for (int32_t index = 0; index < table_.parameter_count(); ++index)
      if (update_.takes_part(index)) update_.update_block(index, 0, table_.parameter(index).value.count);
    update_.flush(stream);
    return settle(function, collective, stream);
  }
  if (!prepared_) prepare();
  const bool elsewhere = on_gpu_ && stream != gpu_stream();
  if (elsewhere) group_.gpu_side().order_after(stream);
  publish(false);
  std::optional<Error> failure = settle(function, collective, gpu_stream());
  if (elsewhere) group_.gpu_side().order_before(stream);
  return failure;
}

/// `restored`: the owners have their old values again, and the others need them.
void OptimizerStage::publish(bool restored) {
  for (size_t b = 0; b < plan_.size(); ++b) {
    Part& part = *parts_[b];
    std::fill(part.note.used.begin(), part.note.used.end(), 0);
    for (size_t piece = 0; piece < plan_[b].parameters.size(); ++piece)
      if (restored || update_.takes_part(plan_[b].parameters[piece]))
        part.note.used[piece / 64] |= uint64_t{1} << (piece % 64);
    part.work.set_on(!restored);
    if (sharded_) part.give->start(part.note);
  }
  if (!sharded_) return;
  for (const auto& part : parts_) part->give->finish();
}

bool OptimizerStage::take_made_step() noexcept { return std::exchange(made_step_, false); }

void OptimizerStage::join_taken(ExactSum& sum) const noexcept {
  for (const auto& part : parts_) sum.join(part->norm.sum);
}

void OptimizerStage::add_own_terms(int32_t index, double p, ExactSum& sum) const noexcept {
  const Tensor& grad = table_.parameter(index).grad;
  const OwnedSpan span = owned(index);
  cpu::add_norm_terms(grad.dtype, grad.data + span.first * dtype_size(grad.dtype), span.count, p, sum);
}

bool OptimizerStage::set_address(size_t bucket, int32_t piece, std::byte* data) noexcept {
  Part& part = *parts_[bucket];
  return (part.collect == nullptr || part.collect->set_address(piece, data)) &&
         (part.step == nullptr || part.step->set_address(piece, data));
}

}  // namespace ddp::pass
