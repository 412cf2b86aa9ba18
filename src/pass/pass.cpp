#include "pass/pass.hpp"

#include <algorithm>

#include "bootstrap/control/control.hpp"
#include "collective/nccl/nccl_transport.hpp"
#include "core/attempt.hpp"
#include "core/description.hpp"
#include "core/float_environment.hpp"
#include "os/clock.hpp"
#include "pass/driver.hpp"
#include "pass/incomplete_pass.hpp"

namespace ddp::pass {
Pass::Pass(group::Group& group, const Parameters& table, const ddp_model_options& options, Plan plan, uint64_t plan_hash,
           const Hook& hook)
    : group_(group),
      channel_(group),
      table_(table),
      options_(options),
      hook_(hook),
      plan_(std::move(plan)),
      plan_hash_(plan_hash),
      on_gpu_(std::any_of(plan_.begin(), plan_.end(), [](const PlannedBucket& bucket) { return bucket.on_gpu; })),
      places_(places_of(plan_, table.parameters().size())),
      marks_(table.parameters().size()),
      ranges_(table.parameters().size()),
      contributes_(table.parameters().size(), 0),
      used_(table.parameters().size(), 1),
      queue_(choose_driver(group, options.progress, hook), 2 * plan_.size() + 1, &group.calls(),
             channel_.number()) {  // a roll call; a reduction, and what may follow it
  if (hook.copies()) hooked_ = std::make_unique<HookedBuckets>(channel_, hook, options.reduce, plan_);
  for (size_t b = 0; b < plan_.size(); ++b) {
    const collective::BucketSpec spec = describe_bucket(b);
    for (const PlannedPiece& piece : plan_[b].pieces) {
      stats_.gradient_bytes += piece.count * dtype_size(plan_[b].dtype);
      stats_.elements += piece.count;
    }
    auto bucket = std::make_unique<Bucket>();
    bucket->operation =
        hooked_ != nullptr ? hooked_->make(spec, plan_[b], table, b + 1 == plan_.size()) : channel_.prepare(spec);
    bucket->active = bucket->operation.get();
    bucket->header.used.resize(spec.used_words());
    buckets_.push_back(std::move(bucket));
  }
  if (options.uneven_inputs != 0) join_header_ = std::make_unique<JoinHeader>(channel_, plan_hash);
  stats_.parameters = static_cast<int64_t>(table.parameters().size());
  stats_.buckets = static_cast<int64_t>(plan_.size());
}

collective::BucketSpec Pass::describe_bucket(size_t bucket) const {
  const PlannedBucket& planned = plan_[bucket];
  collective::BucketSpec spec;
  spec.index = static_cast<int32_t>(bucket);
  spec.rule = cpu::ReduceRule{planned.dtype, options_.reduce, group_.size(), options_.divisor == DDP_DIVISOR_WEIGHTS};
  spec.rule.wire = hook_.wire_of(planned.dtype);
  spec.plan_hash = plan_hash_;
  spec.on_gpu = planned.on_gpu;
  spec.partial_allowed = partial_allowed();
  for (const PlannedPiece& piece : planned.pieces) {
    const Parameter& parameter = table_.parameter(piece.parameter);
    const Tensor part = flat_part(parameter.grad, piece.first, piece.count);
    spec.pieces.push_back(collective::BucketSpec::Piece{part.data, part.count, parameter.owned_grad});
  }
  return spec;
}

void Pass::attach(std::weak_ptr<BlockUpdate> update) {
  const std::shared_ptr<BlockUpdate> held = update.lock();
  if (held == nullptr) return;
  StepSetting setting;
  setting.behind_hook = hook_.copies();
  setting.partial_allowed = partial_allowed();
  stage_ = std::make_unique<OptimizerStage>(
      channel_, table_, plan_, *held, [this](size_t bucket) { return describe_bucket(bucket); }, setting);
  attached_ = std::move(update);
}

/// A step that a pass has made must be ended before the next pass whose gradients are final.
void Pass::require_step() const {
  if (step_is_made())
    throw Error(DDP_ERROR_INVALID_STATE,
                "ddp_model_begin_backward: the optimizer with in_backward has updated in the last pass already; call "
                "ddp_optimizer_step "
                "after every REDUCE pass");
}

void Pass::begin(ddp_pass mode, Role role) {
  std::shared_ptr<BlockUpdate> held = attached_.lock();
  if (held == nullptr) stage_.reset();
  if (mode != DDP_PASS_ACCUMULATE && role != Role::kJoined) require_step();
  // A rank that has joined gets the state in the end.
  active_stage_ = mode == DDP_PASS_REDUCE && role != Role::kJoined ? stage_.get() : nullptr;
  if (active_stage_ != nullptr) active_stage_->begin();
  opened_.emplace(channel_, this, on_gpu_ && mode == DDP_PASS_REDUCE, queue_);
  mode_ = mode;
  role_ = role;
  epoch_ = (epoch_ + 1) & 0x3fffffff;
  next_ = 0;
  incomplete_ = false;
  for (size_t b = 0; b < buckets_.size(); ++b) {
    Bucket& bucket = *buckets_[b];
    bucket.pending.store(static_cast<int32_t>(plan_[b].pieces.size()), std::memory_order_relaxed);
    bucket.active = active_stage_ != nullptr ? &active_stage_->reduction(b, *bucket.operation) : bucket.operation.get();
  }
  if (hooked_ != nullptr) hooked_->begin_pass();
  times_.begin_ns = os::now_ns();
  sent_before_ = channel_.transport().sent_bytes();
  if (mode == DDP_PASS_REDUCE) {
    ++rounds_;
    if (join_header_ != nullptr && role != Role::kJoined) join_header_->start(queue_, Call::kPass, 0, 0);
  }
  group_.control().set_progress(stats_.passes, 0);
  held_ = std::move(held);  // who holds the model is held only while the pass is open
  open_.store(true, std::memory_order_release);
}

void Pass::mark(int32_t index, Mark what, void* stream) {
  if (!is_open()) throw Error(DDP_ERROR_INVALID_STATE, "no backward pass is open; call ddp_model_begin_backward first");
  const auto at = static_cast<size_t>(index);
  uint32_t before = marks_[at].load(std::memory_order_relaxed);
  if (before >> 2 == epoch_ || !marks_[at].compare_exchange_strong(before, mark_value(what)))
    throw make_error(DDP_ERROR_INVALID_STATE,
                     "parameter %d (\"%s\") is marked twice in one pass; a parameter that is used several times is marked "
                     "on its last use",
                     index, table_.parameter(index).name.c_str());
  if (what == Mark::kReady) contributes_[at] |= kNow;
  bool complete = false;
  for (const PiecePlace& place : places_[at]) {
    const auto bucket = static_cast<size_t>(place.bucket);
    if (what == Mark::kReady) add_stream(bucket, stream);
    complete = count_mark(bucket) || complete;
  }
  if (complete) start_ready_buckets();
  if (mode_ == DDP_PASS_REDUCE) poke();
}

/// Another piece of the bucket is complete. True: it was the last one.
bool Pass::count_mark(size_t bucket) noexcept {
  return mode_ == DDP_PASS_REDUCE && buckets_[bucket]->pending.fetch_sub(1, std::memory_order_acq_rel) == 1;
}

void Pass::poke() {
  queue_.poke(collective::kPokeBytes);
  channel_.poke_others();
}

/// In host memory nothing is ordered by streams.
void Pass::add_stream(size_t index, void* stream) {
  if (!plan_[index].on_gpu) return;
  Bucket& bucket = *buckets_[index];
  const std::lock_guard lock(bucket.streaming);
  if (std::find(bucket.streams.begin(), bucket.streams.end(), stream) == bucket.streams.end())
    bucket.streams.push_back(stream);
}

void Pass::mark_ready(int32_t index, void* stream) { mark(index, Mark::kReady, stream); }

void Pass::mark_unused(int32_t index) {
  if (options_.unused != DDP_UNUSED_ALLOW)
    throw Error(DDP_ERROR_INVALID_STATE, "ddp_model_mark_unused needs the model option unused = DDP_UNUSED_ALLOW");
  mark(index, Mark::kUnused, nullptr);
}

void Pass::start_ready_buckets() {
  const std::lock_guard lock(starting_);
  while (next_ < buckets_.size() && buckets_[next_]->pending.load(std::memory_order_acquire) == 0) {
    const StandardFloats floats;  // marking, which calls this, holds none
    start_bucket(next_);
    ++next_;
  }
}

void Pass::start_bucket(size_t index) {
  Bucket& bucket = *buckets_[index];
  const PlannedBucket& planned = plan_[index];
  std::fill(bucket.header.used.begin(), bucket.header.used.end(), 0);
  if (next_ == 0) times_.first_start_ns = os::now_ns();
  const bool misses = bucket.pending.load(std::memory_order_acquire) != 0 &&
                      (options_.unused == DDP_UNUSED_ERROR || has_partly_marked(planned));
  bucket.header.incomplete = role_ == Role::kAbandoning || (role_ == Role::kTraining && misses);
  bucket.header.participation = participation();
  for (size_t piece = 0; piece < planned.pieces.size(); ++piece)
    if (contributes_[static_cast<size_t>(planned.pieces[piece].parameter)] != 0 &&
        bucket.header.participation.contributors > 0)
      bucket.header.used[piece / 64] |= uint64_t{1} << (piece % 64);
  {
    const std::lock_guard lock(bucket.streaming);
    for (void* const stream : bucket.streams) bucket.active->wait_for_stream(stream);
    bucket.streams.clear();
  }
  bucket.active->start(bucket.header);
  queue_.push(*bucket.active);
  if (active_stage_ != nullptr) active_stage_->follow(index, *bucket.active, bucket.header, queue_);
}

bool Pass::has_partly_marked(const PlannedBucket& bucket) const noexcept {
  return std::any_of(bucket.pieces.begin(), bucket.pieces.end(),
                     [this](const PlannedPiece& piece) { return is_partly_marked(piece.parameter); });
}

void Pass::start_rest(void* stream) {
  const std::lock_guard lock(starting_);
  for (; next_ < buckets_.size(); ++next_) {
    add_stream(next_, stream);  // of what is not marked, its memory
    start_bucket(next_);
  }
}

void Pass::end(void* stream) {
  if (!is_open()) throw Error(DDP_ERROR_INVALID_STATE, "no backward pass is open; call ddp_model_begin_backward first");
  struct Closer {
    Pass& pass;
    ~Closer() {
      pass.open_.store(false, std::memory_order_release);
      pass.held_.reset();
      pass.opened_.reset();
    }
  } const closer{*this};
  if (mode_ == DDP_PASS_REDUCE) return end_reduce(stream);
  if (mode_ == DDP_PASS_LOCAL && role_ == Role::kTraining) return end_local();
  settle_marks(role_ == Role::kTraining);
  gradients_ = role_ == Role::kTraining ? Gradients::kAccumulated : Gradients::kVoid;
}

void Pass::settle_marks(bool keep) noexcept {
  for (uint8_t& each : contributes_) each = (keep ? each != 0 : (each & kBefore) != 0) ? kBefore : 0;
}

void Pass::forget_gradients() noexcept {
  std::fill(contributes_.begin(), contributes_.end(), 0);
  if (stage_ != nullptr) stage_->forget_norm();
  if (gradients_ != Gradients::kFinal) gradients_ = Gradients::kOwn;
}

void Pass::forget_made_step() noexcept {
  if (stage_ != nullptr) static_cast<void>(stage_->take_made_step());
}

void Pass::forget_hooks() noexcept {
  if (hooked_ != nullptr) hooked_->forget();
}

void Pass::end_reduce(void* stream) {
  const int64_t begin = os::now_ns();
  bool others_stepped = true;
  const auto reduce = [&] {
    start_rest(stream);
    queue_.drain();
    times_.drained_ns = os::now_ns() - begin;
    take_headers();
    if (hooked_ != nullptr) hooked_->end_pass(is_void());
    if (active_stage_ != nullptr && !active_stage_->end(is_void())) torn_ = true;
    if (role_ == Role::kJoined && stage_ != nullptr) others_stepped = stage_->attend(is_void());
    if (on_gpu_) group_.nccl_transport().order_before(stream);
    was_captured_ = was_captured_ || (on_gpu_ && group_.gpu().is_capturing(stream));
  };
  on_error<Error>(reduce, [this](const Error& error) {
    const std::optional<Error> cause = try_to<Error>([&] { group_.fail(error); });
    // A broken group ends the operations under way: nobody changes a parameter while it is taken back.
    if (cause) static_cast<void>(try_to([this] { queue_.drain(); }));
    // What it takes back on a GPU may fail with it; the first cause counts.
    if (active_stage_ != nullptr) static_cast<void>(try_to([this] { active_stage_->give_up(); }));
    if (cause) throw Error(*cause);
  });
  if (hooked_ != nullptr) hooked_->check();
  if (incomplete_) report_missing();
  if (all_.contributors == 0 && !buckets_.empty())
    throw Error(DDP_ERROR_INVALID_STATE,
                "ddp_model_end_backward: no rank contributed to this pass (all skipped it, or have the weight 0); the "
                "gradients are as they were");
  if (active_stage_ != nullptr)
    if (const std::optional<Error> failure = active_stage_->take_failure()) throw Error(*failure);
  if (others_stepped) finish_stats();
}

void Pass::leave_open() noexcept {
  if (!is_open()) return;
  static_cast<void>(try_to([this] { queue_.drain(); }));
  held_.reset();
}

/// Of a void pass only the report stays, and that the gradients are undefined; or, if nobody contributed, as they were
/// before it.
void Pass::take_headers() {
  all_ = buckets_.empty() ? collective::Participation::none() : buckets_.front()->active->header().participation;
  for (size_t b = 0; b < buckets_.size(); ++b) {
    const collective::BucketHeader& header = buckets_[b]->active->header();
    all_.flags |= header.participation.flags;
    incomplete_ = incomplete_ || header.incomplete;
  }
  const bool nobody = !incomplete_ && all_.contributors == 0 && !buckets_.empty();
  if (nobody)
    settle_marks(false);
  else
    std::fill(contributes_.begin(), contributes_.end(), 0);
  gradients_ = is_void() && !buckets_.empty() ? Gradients::kVoid : Gradients::kFinal;
  if (gradients_ == Gradients::kFinal) take_used();
  last_ = false;
  if (role_ != Role::kJoined) set_absent(all_.joined - 1);
}

void Pass::take_used() noexcept {
  for (size_t b = 0; b < buckets_.size(); ++b)
    for (size_t piece = 0; piece < plan_[b].pieces.size(); ++piece)
      used_[static_cast<size_t>(plan_[b].pieces[piece].parameter)] =
          static_cast<uint8_t>(buckets_[b]->active->header().used[piece / 64] >> (piece % 64) & 1);
  sliced_ = active_stage_ != nullptr && active_stage_->reduces_to_slices();
  has_reduced_ = true;
  ++final_passes_;
}

void Pass::report_missing() {
  MissingGradients mine;
  mine.reason = role_ == Role::kAbandoning ? reason_ : "";
  for (int32_t index = 0; index < table_.parameter_count() && role_ == Role::kTraining; ++index)
    if (is_partly_marked(index) || (!is_marked(index) && options_.unused == DDP_UNUSED_ERROR))
      if (static_cast<size_t>(++mine.missing) <= kNamedGradients) mine.names.push_back(missing_of(index));
  report_void_pass(group_, mine);
}

void Pass::finish_stats() noexcept {
  stats_.passes += 1;
  stats_.backward_ns = os::now_ns() - times_.begin_ns;
  const int64_t under_way = queue_.last_done_ns() - times_.first_start_ns;
  stats_.comm_ns = group_.size() > 1 ? std::max<int64_t>(0, under_way) : 0;
  stats_.exposed_ns = std::min(stats_.comm_ns, times_.drained_ns + queue_.take_poked_ns());
  stats_.sent_bytes = channel_.transport().sent_bytes() - sent_before_;
  stats_.total_sent_bytes += stats_.sent_bytes;
  stats_.total_backward_ns += stats_.backward_ns;
  stats_.total_comm_ns += stats_.comm_ns;
  stats_.total_exposed_ns += stats_.exposed_ns;
}

bool Pass::set_address(int32_t index, std::byte* data) {
  const std::vector<PiecePlace>& places = places_[static_cast<size_t>(index)];
  return std::all_of(places.begin(), places.end(), [&](const PiecePlace& place) {
    const auto bucket = static_cast<size_t>(place.bucket);
    const PlannedPiece& piece = plan_[bucket].pieces[static_cast<size_t>(place.piece)];
    std::byte* const begin = data + piece.first * dtype_size(plan_[bucket].dtype);
    return buckets_[bucket]->operation->set_address(place.piece, begin) &&
           (stage_ == nullptr || stage_->set_address(bucket, place.piece, begin));
  });
}

bool Pass::is_marked(int32_t index) const noexcept {
  return marks_[static_cast<size_t>(index)].load(std::memory_order_acquire) >> 2 == epoch_;
}

void Pass::fill_stats(ddp_model_stats& stats) const noexcept {
  const int64_t size = stats.struct_size;
  stats = stats_;
  stats.struct_size = size;
}

std::string Pass::describe_plan() const {
  std::string text =
      std::to_string(plan_.size()) + " buckets, reduced by " +
      (queue_.driver() == collective::ProgressQueue::Driver::kThread ? "a thread of the group" : "the caller's threads") +
      "\n";
  for (size_t b = 0; b < plan_.size(); ++b) {
    const PlannedBucket& planned = plan_[b];
    text += "bucket " + std::to_string(b) + ": " + std::to_string(planned.count * dtype_size(planned.dtype)) + " bytes of " +
            dtype_name(planned.dtype) + ", " + buckets_[b]->operation->describe() + ":";
    for (const PlannedPiece& piece : planned.pieces) {
      const Parameter& parameter = table_.parameter(piece.parameter);
      const int64_t unit = unit_of(piece.parameter), first = piece.first / unit, end = first + piece.count / unit;
      text += " " + parameter.name;
      if (piece.count < parameter.grad.count) text += "[" + std::to_string(first) + ":" + std::to_string(end) + "]";
    }
    text += "\n";
  }
  return text;
}

}  // namespace ddp::pass
