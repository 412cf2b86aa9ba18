// SPDX-License-Identifier: Apache-2.0
#include "parts/step/optimizer_stage.hpp"

#include <algorithm>
#include <utility>

#include "core/attempt.hpp"
#include "device/gpu/device.hpp"
#include "group/consensus.hpp"
#include "group/gpu.hpp"
#include "parts/step/bucket_steps.hpp"

namespace ddp::parts {
namespace {

constexpr const char* kInPass = "ddp_model_end_backward";
constexpr const char* kUpdates = "the updates of the optimizer";

/// By parameter; 0 of those that another optimizer has.
std::vector<int64_t> counts_of(const Parameters& table, const ParameterSet& own) {
  std::vector<int64_t> counts;
  for (int32_t index = 0; index < table.parameter_count(); ++index)
    counts.push_back(own.has(index) ? table.parameter(index).value.count : 0);
  return counts;
}

Division division_of(const StepRequest& request) noexcept {
  if (!request.sharded) return Division::kNone;
  return request.whole_tensors ? Division::kWholeTensors : Division::kSlices;
}

}  // namespace

struct OptimizerStage::Part {
  Part(const Parameters& table, const PlannedBucket& bucket, BlockUpdate& update, const StepSetting& where,
       const StepState& state)
      : setting(where), norm(table, bucket, plan), step(update, bucket, state, update.request().whole_tensors) {
    header.used.resize((bucket.pieces.size() + 63) / 64);
  }
  StepSetting setting;
  StepPlan plan;  // of the last pass
  NormWork norm;
  BucketStep step;
  std::unique_ptr<collective::BucketOperation> reduce_scatter;  // of gradients; NULL: they are reduced everywhere
  std::unique_ptr<collective::BucketOperation> all_gather;      // of values
  GatherBehind gather_behind;                                   // the same as the next operation on the queue
  std::unique_ptr<collective::BucketOperation> fused;           // both with the step between them; NULL: one after the other
  collective::BucketHeader header;                              // for an all-gather outside a pass
};

OptimizerStage::OptimizerStage(const group::Channel& channel, const Parameters& table, Plan plan, BlockUpdate& update,
                               DescribeBucket describe, StepSetting setting)
    : channel_(channel),
      table_(table),
      plan_(std::move(plan)),
      update_(update),
      describe_(std::move(describe)),
      setting_(setting),
      request_(update.request()),
      owners_(make_owners()) {
  setting_ = setting_of(!plan_.empty() && plan_.front().on_gpu);
  for (const PlannedBucket& bucket : plan_) setting_.mixed = setting_.mixed || bucket.on_gpu != setting_.on_gpu;
  for (const PlannedBucket& bucket : plan_)
    parts_.push_back(std::make_unique<Part>(table, bucket, update, setting_of(bucket.on_gpu), step_));
  if (request_.whole_tensors) find_completed();
  if (request_.late_values && request_.sharded && !setting_.some_on_gpu() && channel.group().size() > 1)
    late_ = std::make_unique<LateValues>(channel, table, plan_);
  make_plans();
}

/// Buckets are reduced in their order, so a tensor is complete behind the last one with a piece of it.
void OptimizerStage::find_completed() {
  std::vector<size_t> last(table_.parameters().size());
  for (size_t b = 0; b < plan_.size(); ++b)
    for (const PlannedPiece& piece : plan_[b].pieces) last[static_cast<size_t>(piece.parameter)] = b;
  for (size_t b = 0; b < plan_.size(); ++b)
    for (size_t k = 0; k < plan_[b].pieces.size(); ++k)
      if (const int32_t index = plan_[b].pieces[k].parameter; last[static_cast<size_t>(index)] == b && !owned(index).empty())
        parts_[b]->step.complete(k, table_.parameter(index).value.count);
}

OptimizerStage::~OptimizerStage() = default;

OptimizerStage::Owners OptimizerStage::make_owners() const {
  const group::Group& group = channel_.group();
  const bool on_gpu = std::any_of(plan_.begin(), plan_.end(), [](const PlannedBucket& bucket) { return bucket.on_gpu; });
  const std::vector<int64_t> counts = counts_of(table_, update_.parameters());
  Owners owners{own_plan(plan_, counts, group.size(), division_of(request_)), std::nullopt};
  if (on_gpu && !request_.sharded && !setting_.uneven && !update_.may_fail() && group.size() > 1 &&
      group.options().recoverable == 0)
    owners.kept = own_plan(plan_, counts, group.size(), Division::kSlices);
  return owners;
}

StepSetting OptimizerStage::setting_of(bool on_gpu) const noexcept {
  StepSetting setting = setting_;
  setting.on_gpu = on_gpu;
  setting.can_reduce_scatter = channel_.can(collective::Collective::kBucketReduceScatter, on_gpu);
  setting.can_fuse = channel_.can(collective::Collective::kFusedStep, on_gpu);
  return setting;
}

void OptimizerStage::make_plans() noexcept {
  const bool prepared = exchanges_ == Exchanges::kPrepared;
  pass_plan_ = plan_step(request_, setting_, prepared);
  for (const auto& part : parts_) part->plan = plan_step(request_, part->setting, prepared);
}

const StepPlan& OptimizerStage::plan_of(size_t bucket) const noexcept { return parts_[bucket]->plan; }

void OptimizerStage::prepare() {
  exchanges_ = Exchanges::kPrepared;
  for (size_t b = 0; b < plan_.size(); ++b) {
    Part& part = *parts_[b];
    const StepExchanges wanted = step_exchanges(request_, part.setting);
    if (!wanted.all_gather) continue;
    collective::ExchangeSpec fused = describe_(b);
    fused.ownership = &owners_.all.buckets[b];
    for (const PlannedPiece& piece : plan_[b].pieces) {
      const Parameter& parameter = table_.parameter(piece.parameter);
      const Tensor values = flat_part(parameter.value, piece.first, piece.count);
      fused.outputs.push_back(
          collective::BucketSpec::Piece{values.data, values.count, parameter.lies_in_value_block(), piece.offset});
    }
    collective::ExchangeSpec all_gather = fused;
    all_gather.collects = false;
    all_gather.pieces = std::exchange(all_gather.outputs, {});
    all_gather.rule.wire = cpu::ReduceRule::kAsItIs;
    all_gather.work = fused.work = part.step.as_work();
    collective::ExchangeSpec reduce_scatter = fused;
    reduce_scatter.gives = false;
    reduce_scatter.outputs.clear();
    reduce_scatter.work = part.norm.as_work();
    late_ != nullptr ? late_->prepare(b, all_gather) : void(part.all_gather = channel_.prepare(all_gather));
    if (wanted.reduce_scatter) part.reduce_scatter = channel_.prepare(reduce_scatter);
    if (wanted.fused) part.fused = channel_.prepare(fused);
  }
}

void OptimizerStage::begin() {
  request_ = update_.request();
  if (request_.in_pass()) update_.prepare_blocks();
  make_plans();
  step_.begin_pass(request_.in_pass());
  norm_.reset();
  went_.problem.reset();
  for (const auto& part : parts_) part->norm.clear();
}

collective::BucketOperation& OptimizerStage::reduction(size_t bucket, collective::BucketOperation& usual) noexcept {
  Part& part = *parts_[bucket];
  const StepPlan& plan = plan_of(bucket);
  collective::BucketOperation& chosen = plan.reduction == StepPlan::Reduction::kEverywhere ? usual
                                        : plan.when == StepPlan::When::kInExchange         ? *part.fused
                                                                                           : *part.reduce_scatter;
  if (plan.when == StepPlan::When::kInExchange) step_.give();
  part.step.set_divisor(chosen.leave_sum(plan.leaves_sum));
  return chosen;
}

void OptimizerStage::follow(size_t bucket, collective::BucketOperation& reduction, collective::ProgressQueue& queue) {
  const StepPlan& plan = plan_of(bucket);
  if (!plan.follows()) return;
  Part& part = *parts_[bucket];
  const bool in_stream = part.setting.on_gpu;
  if (in_stream && !went_.problem) went_.problem = try_to([&] { refuse_capture(); });
  if (plan.when == StepPlan::When::kInExchange) return;  // the reduction is the step
  if (plan.values == StepPlan::Values::kAllGather && !request_.whole_tensors) {
    step_.give();
    if (in_stream) {
      part.all_gather->start(header_of_all(bucket));
      queue.push(*part.all_gather);
    } else {
      part.gather_behind.start(reduction, *part.all_gather);
      queue.push(part.gather_behind);
    }
  } else if (in_stream) {
    update_now(bucket);
  } else {
    part.step.start(reduction);
    queue.push(part.step);
  }
}

/// On a GPU values are given before this rank knows what the others contribute. So all ranks give everything, whatever they
/// miss or skip themselves; if the pass turns out void it is taken back.
const collective::BucketHeader& OptimizerStage::header_of_all(size_t bucket) noexcept {
  collective::BucketHeader& header = parts_[bucket]->header;
  for (size_t piece = 0; piece < plan_[bucket].pieces.size(); ++piece)
    header.used[piece / 64] |= uint64_t{1} << (piece % 64);
  return header;
}

/// On a GPU the order of streams does what the queue does elsewhere: the step is enqueued after the reduction, in parallel
/// with the next one.
void OptimizerStage::update_now(size_t bucket) {
  BucketStep& step = parts_[bucket]->step;
  step.work_on_all();
  if (went_.problem) return;
  // This may be the thread that marks; the pass's end reports it.
  went_.problem = try_to([&] { step.flush(channel_.transport().gpu()->fork()); });
}

void OptimizerStage::join_updates() {
  if (went_.problem) return;  // end() throws it
  if (setting_.some_on_gpu() && pass_plan_.follows() && !is_sharded()) channel_.transport().gpu()->join();
}

void OptimizerStage::refuse_capture() const {
  channel_.group().gpu().device().refuse_capture(
      gpu_stream(), kInPass,
      "the optimizer updates within the pass (in_backward), and its rate and step count would be frozen into the graph");
}

void* OptimizerStage::gpu_stream() const { return setting_.some_on_gpu() ? channel_.transport().gpu()->stream() : nullptr; }

bool OptimizerStage::end(bool is_void) {
  if (went_.problem) throw Error(*went_.problem);
  if (!is_void && pass_plan_.norm == StepPlan::Norm::kWhileReduced) {
    norm_.emplace();
    for (const auto& part : parts_) norm_->join(part->norm.sum());
  }
  if (exchanges_ == Exchanges::kNotPrepared) prepare();
  if (is_void) {
    step_.take_back();
    return !pass_plan_.follows() || take_back();
  }
  if (!step_.is(StepState::Is::kPending)) return true;
  if (setting_.some_on_gpu()) refuse_capture();
  // The buckets of a tensor that is split may not be given before the last one is there, and exchanges have one order.
  if (pass_plan_.follows() && request_.whole_tensors) publish(false);
  went_.failure = pass_plan_.follows() ? settle(kInPass, true, gpu_stream()) : make_step(kInPass, true, gpu_stream());
  return true;
}

void OptimizerStage::count() {
  if (went_.failure || !step_.is(StepState::Is::kPending)) return;
  update_.count_step();
  step_.make();
}

/// The pass is void on all ranks. False: a change stays.
bool OptimizerStage::take_back() {
  const bool restored = update_.restore();
  update_.flush(gpu_stream());
  publish(true);
  if (!owners_.kept) return restored;
  const std::vector<std::string> all = channel_.group().gather("undo", update_.keeps_slices() ? "slices" : "");
  if (std::any_of(all.begin(), all.end(), [](const std::string& theirs) { return !theirs.empty(); })) give_kept();
  return restored;
}

bool OptimizerStage::attend(bool is_void) {
  if (is_void || !update_.may_fail() || !update_.request().in_pass()) return true;
  const std::optional<Error> theirs = try_to([&] { group::agree(channel_.group(), kUpdates, nullptr); });
  if (theirs && !theirs->is_agreed()) throw Error(*theirs);
  return !theirs;
}

/// The program's rule has changed all blocks, or failed. If it failed, here or (if `collective`) on any rank, the step is
/// taken back.
std::optional<Error> OptimizerStage::settle(const char* function, bool collective, void* stream) {
  if (!update_.may_fail()) return std::nullopt;
  std::optional<Error> failure = update_.take_failure();
  if (failure) {
    const std::string who = channel_.group().size() > 1 ? channel_.group().name_of(channel_.group().rank()) + ": " : "";
    failure = Error(failure->status(), std::string(function) + ": " + who + failure->text());
  }
  if (collective && channel_.group().size() > 1) {
    failure = try_to([&] { group::agree(channel_.group(), kUpdates, failure ? &*failure : nullptr); });
    if (failure && !failure->is_agreed()) throw Error(*failure);
  }
  if (!failure) return failure;
  step_.take_back();
  if (!update_.restore()) update_.tear();
  update_.flush(stream);
  if (late_ == nullptr) publish(true);  // else nothing was given
  return failure;
}

/// A rank takes back its own parts alone. The others have written theirs here, or have died in the middle of that.
void OptimizerStage::give_up() {
  if (step_.is(StepState::Is::kNone) || step_.is(StepState::Is::kMade)) return;  // what was made whole and counted stays
  if (!update_.restore() || update_.keeps_slices() || is_given_away())
    update_.tear();  // a recovery must not take it for whole
  join_updates();
  update_.flush(gpu_stream());
}

std::optional<Error> OptimizerStage::run_step(const char* function, bool collective, void* stream) {
  step_.begin_step();
  std::optional<Error> failure = on_error<Error>([&] { return make_step(function, collective, stream); },
                                                 [this](const Error&) {
                                                   if (is_given_away()) update_.tear();
                                                 });
  if (failure) return failure;
  step_.end_step();
  for (const auto& part : parts_) part->step.set_divisor(1);
  return failure;
}

bool OptimizerStage::leaves_sum(size_t bucket) const noexcept {
  return !pass_plan_.follows() && parts_[bucket]->step.divisor() != 1;
}

bool OptimizerStage::leaves_sums() const noexcept {
  for (size_t b = 0; b < plan_.size(); ++b)
    if (leaves_sum(b)) return true;
  return false;
}

/// The own slices of these buckets, in one launch where all gradients are means, or all are sums.
template <class Which>
void OptimizerStage::work_by_divisor(const Which& which, void* stream) {
  for (const bool sums : {false, true}) {
    BucketStep* last = nullptr;
    for (size_t b = 0; b < plan_.size(); ++b) {
      BucketStep& step = parts_[b]->step;
      if (!which(*parts_[b]) || (step.divisor() != 1) != sums) continue;
      step.work_on(owners_.all.buckets[b].slice(channel_.group().rank()));
      last = &step;
    }
    if (last != nullptr) last->flush(stream);
  }
}

std::optional<Error> OptimizerStage::make_step(const char* function, bool collective, void* stream) {
  if (!is_sharded() && leaves_sums()) {
    work_by_divisor([](const Part&) { return true; }, stream);
    return settle(function, collective, stream);
  }
  if (!is_sharded()) {
    for (int32_t index = 0; index < table_.parameter_count(); ++index)
      if (update_.takes_part(index)) update_.update_block(index, 0, table_.parameter(index).value.count);
    update_.flush(stream);
    return settle(function, collective, stream);
  }
  if (exchanges_ == Exchanges::kNotPrepared) prepare();
  const bool elsewhere = setting_.some_on_gpu() && stream != gpu_stream();
  if (elsewhere) channel_.transport().gpu()->order_after(stream);
  work_on_own();
  // Late values are given once the ranks have agreed on the step.
  if (late_ == nullptr) publish(false);
  for (const auto& part : parts_) part->step.set_made(false);
  std::optional<Error> failure = settle(function, collective, gpu_stream());
  if (late_ != nullptr && !failure) publish(false);
  if (elsewhere) channel_.transport().gpu()->order_before(stream);
  return failure;
}

/// What is changed before the values are given.
void OptimizerStage::work_on_own() {
  if (request_.whole_tensors) {  // an exchange works block by block
    for (int32_t index = 0; index < table_.parameter_count(); ++index)
      if (update_.takes_part(index) && !owned(index).empty())
        update_.update_block(index, 0, table_.parameter(index).value.count);
  } else if (setting_.some_on_gpu()) {
    work_on_gpu();
  } else if (late_ != nullptr) {
    for (size_t b = 0; b < plan_.size(); ++b) parts_[b]->step.work_on(owners_.all.buckets[b].slice(channel_.group().rank()));
    update_.flush(nullptr);
  }
}

/// One launch for the own slices of all buckets on the GPU. Between the gathers it would be one for each bucket.
void OptimizerStage::work_on_gpu() {
  work_by_divisor([](const Part& part) { return part.setting.on_gpu; }, gpu_stream());
  for (const auto& part : parts_) part->step.set_made(part->setting.on_gpu);
}

/// The owners give their values. `restored`: they have the old ones again, of all parameters.
void OptimizerStage::publish(bool restored) {
  if (!is_sharded()) return;
  step_.give();
  if (late_ != nullptr) return late_->post(update_);
  for (size_t b = 0; b < plan_.size(); ++b) {
    Part& part = *parts_[b];
    std::fill(part.header.used.begin(), part.header.used.end(), 0);
    for (size_t piece = 0; piece < plan_[b].pieces.size(); ++piece)
      if (restored || update_.takes_part(plan_[b].pieces[piece].parameter))
        part.header.used[piece / 64] |= uint64_t{1} << (piece % 64);
    part.all_gather->start(part.header);
  }
  for (const auto& part : parts_) part->all_gather->finish();
}

bool OptimizerStage::set_address(size_t bucket, int32_t piece, std::byte* data) noexcept {
  Part& part = *parts_[bucket];
  return (part.reduce_scatter == nullptr || part.reduce_scatter->set_address(piece, data)) &&
         (part.fused == nullptr || part.fused->set_address(piece, data));
}

}  // namespace ddp::parts
