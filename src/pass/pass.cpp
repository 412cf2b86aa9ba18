// SPDX-License-Identifier: Apache-2.0
#include "pass/pass.hpp"

#include <algorithm>

#include "control/control.hpp"
#include "core/attempt.hpp"
#include "group/consensus.hpp"
#include "group/gpu_times.hpp"
#include "nccl/nccl_transport.hpp"
#include "os/clock.hpp"
#include "pass/driver.hpp"
#include "pass/incomplete_pass.hpp"
#include "trace/watch.hpp"

namespace ddp::pass {

Pass::Pass(group::Group& group, const Parameters& table, const ddp_model_options& options, Plan plan, uint64_t plan_hash,
           const Hook& hook)
    : channel_(group),
      options_(options),
      buckets_(channel_, table, options, std::move(plan), plan_hash, hook),
      marks_(table),
      attendance_(group, this, options.uneven_inputs != 0 ? std::make_unique<JoinHeader>(channel_, plan_hash) : nullptr),
      results_(table.parameters().size()),
      meter_(channel_, table, buckets_.plan()),
      events_(group.calls(), table, buckets_.plan()),
      // For each bucket a reduction and what may follow it, and the join header.
      queue_(choose_driver(group, options.progress, hook), 2 * buckets_.size() + 1, &group.calls(), channel_.number()) {}

void Pass::attach(std::weak_ptr<BlockUpdate> update) {
  const std::shared_ptr<BlockUpdate> held = update.lock();
  if (held == nullptr) return;
  StepSetting setting;
  setting.reduces_copy = buckets_.reduce_copies();
  setting.partial_allowed = buckets_.partial_allowed();
  setting.uneven = buckets_.options().uneven_inputs != 0;
  optimizer_.attach(std::move(update), std::make_unique<OptimizerStage>(
                                           channel_, marks_.table(), buckets_.plan(), *held,
                                           [this](size_t bucket) { return buckets_.describe(bucket); }, setting));
}

void Pass::require_open() const {
  if (!is_open()) throw Error(DDP_ERROR_INVALID_STATE, "no backward pass is open; call ddp_model_begin_backward first");
}

/// A step that a pass has made must be ended before the next pass whose gradients are final.
void Pass::require_step() const {
  if (const OptimizerStage* const stage = optimizer_.last_stage(); stage != nullptr && stage->step_is_made())
    throw Error(DDP_ERROR_INVALID_STATE,
                "ddp_model_begin_backward: the optimizer with in_backward has updated in the last pass already; call "
                "ddp_optimizer_step "
                "after every REDUCE pass");
}

void Pass::begin(ddp_pass mode, Role role) {
  std::shared_ptr<BlockUpdate> held = optimizer_.begin_pass();
  queue_.set_calls_program(held != nullptr && held->may_fail());
  if (mode != DDP_PASS_ACCUMULATE && role != Role::kJoined) require_step();
  optimizer_.set_active(mode == DDP_PASS_REDUCE && role != Role::kJoined);  // a joined rank gets the state in the end
  opened_.emplace(channel_, this, mode == DDP_PASS_REDUCE && buckets_.are_on_gpu(), queue_);
  mode_ = mode;
  if (mode == DDP_PASS_LOCAL) results_.go_alone();
  incomplete_ = false;
  attendance_.begin(role);
  marks_.begin_pass();
  buckets_.begin_pass(optimizer_.active());
  meter_.begin();
  events_.begin(results_.final_passes());
  if (events_.are_on()) group::time_gpu(channel_.group());
  if (mode == DDP_PASS_REDUCE) attendance_.announce_pass(queue_);
  channel_.group().control().set_progress(meter_.passes(), 0);
  optimizer_.hold(std::move(held));
  open_.store(true, std::memory_order_release);
}

void Pass::mark(int32_t index, Marks::Mark what, void* stream) {
  require_open();
  marks_.mark(index, what);
  if (events_.are_on()) events_.mark(index, buckets_.places(index));
  bool complete = false;
  for (const PiecePlace& place : buckets_.places(index)) {
    const auto bucket = static_cast<size_t>(place.bucket);
    if (what == Marks::Mark::kReady) buckets_.add_stream(bucket, stream);
    if (what == Marks::Mark::kUnused && marks_.contributes(index) && buckets_.plan()[bucket].on_gpu) continue;  // no stream
    complete = buckets_.count_mark(bucket) || complete;
  }
  if (complete) start_complete_buckets();
  poke();
}

void Pass::poke() {
  if (mode_ != DDP_PASS_REDUCE) return;
  queue_.poke(collective::kPokeBytes);
  channel_.poke_others();
}

void Pass::mark_ready(int32_t index, void* stream) { mark(index, Marks::Mark::kReady, stream); }

void Pass::mark_range_ready(int32_t index, int64_t first, int64_t count, void* stream) {
  if (!is_open())
    throw Error(DDP_ERROR_INVALID_STATE,
                "ddp_model_mark_range_ready: no backward pass is open; call ddp_model_begin_backward first");
  bool complete = false;
  const int64_t unit = marks_.table().parameter(index).reals_each();
  marks_.mark_range(index, first, count, [&](const MarkedRanges& ranges) {
    complete = count_ranges(index, first * unit, (first + count) * unit, ranges, stream);
  });
  if (events_.are_on()) events_.mark(index, buckets_.places(index));
  if (complete) start_complete_buckets();
  poke();
}

bool Pass::count_ranges(int32_t index, int64_t first, int64_t end, const MarkedRanges& ranges, void* stream) {
  bool complete = false;
  for (const PiecePlace& place : buckets_.places(index)) {
    const PlannedPiece& piece = buckets_.piece(place);
    const int64_t piece_end = piece.first + piece.count;
    if (piece.first >= end || piece_end <= first) continue;
    buckets_.add_stream(static_cast<size_t>(place.bucket), stream);
    if (ranges.covers(piece.first, piece_end)) complete = buckets_.count_mark(static_cast<size_t>(place.bucket)) || complete;
  }
  return complete;
}

void Pass::mark_unused(int32_t index) {
  if (options_.unused != DDP_UNUSED_ALLOW)
    throw Error(DDP_ERROR_INVALID_STATE, "ddp_model_mark_unused needs the model option unused = DDP_UNUSED_ALLOW");
  mark(index, Marks::Mark::kUnused, nullptr);
}

void Pass::start_complete_buckets() {
  if (mode_ != DDP_PASS_REDUCE) return;
  buckets_.start_complete([this](size_t bucket) { start_bucket(bucket); });
}

void Pass::start_rest(void* stream) {
  buckets_.start_rest(stream, [this](size_t bucket) { start_bucket(bucket); });
}

void Pass::start_bucket(size_t index) {
  if (index == 0) meter_.start();
  const std::vector<PlannedPiece>& pieces = buckets_.plan()[index].pieces;
  const bool needs_more = std::any_of(pieces.begin(), pieces.end(),
                                      [this](const PlannedPiece& piece) { return marks_.is_needed(piece.parameter); });
  const bool misses = !buckets_.is_complete(index) && (options_.unused == DDP_UNUSED_ERROR || needs_more);
  collective::BucketHeader& mine = buckets_.mine(index);
  Parts& parts = buckets_.parts();
  const collective::Participation last = attendance_.mine(parts.position());
  mine.incomplete = attendance_.is(Role::kAbandoning) || (attendance_.is(Role::kTraining) && misses) || parts.missing();
  mine.participation = parts.join(last);
  std::fill(mine.used.begin(), mine.used.end(), 0);
  for (size_t piece = 0; piece < pieces.size(); ++piece)
    if ((last.contributors > 0 && marks_.contributes(pieces[piece].parameter)) || parts.uses(pieces[piece].parameter))
      mine.used[piece / 64] |= uint64_t{1} << (piece % 64);
  if (!mine.incomplete) parts.finish(index, last);
  const trace::Event* const event = events_.start(index);
  collective::BucketOperation& operation = buckets_.start(index);
  queue_.push(operation, event);
  if (optimizer_.active() != nullptr) optimizer_.active()->follow(index, operation, queue_);
}

std::shared_ptr<HookBucket> Pass::next_bucket(bool rest) {
  require_open();
  if (buckets_.hooked() == nullptr || mode_ != DDP_PASS_REDUCE) return nullptr;
  if (rest) start_rest();
  return group::or_break(channel_.group(), group::Part::kExchange, [this] { return buckets_.hooked()->next(); });
}

void Pass::finish_bucket(const std::optional<Error>& problem) {
  if (buckets_.hooked() == nullptr)
    throw Error(DDP_ERROR_INVALID_STATE, "ddp_model_finish_bucket: the model's buckets are not pulled");
  on_error([&] { buckets_.hooked()->finish(problem); },
           [this](const Error& error) {
             if (breaks_group(error.status())) channel_.group().health().fail(error);
           });
}

template <class Change>
void Pass::before_first_bucket(const char* refusal, const Change& change) {
  buckets_.between_starts([&](bool any_started) {
    if (any_started && is_open() && mode_ == DDP_PASS_REDUCE) throw Error(DDP_ERROR_INVALID_STATE, refusal);
  });
  change();
}

void Pass::set_weight(double weight) {
  before_first_bucket(
      "ddp_model_set_weight: gradients of this pass are under way; set the weight before the first ddp_model_mark_ready",
      [&] { attendance_.set_weight(weight); });
}

void Pass::set_last() {
  before_first_bucket(
      "ddp_model_set_last_pass: gradients of this pass are under way; call it before the first ddp_model_mark_ready",
      [&] { attendance_.set_last(); });
}

const JoinHeader& Pass::call_roll(Call call, int32_t argument, bool joined) {
  const group::Channel::Open opened(channel_, this, false, queue_);
  return attendance_.call_roll(queue_, call, argument, joined);
}

bool Pass::set_address(int32_t index, std::byte* data) { return buckets_.set_address(index, data, optimizer_.last_stage()); }

void Pass::forget_gradients() noexcept {
  marks_.forget();
  if (optimizer_.last_stage() != nullptr) optimizer_.last_stage()->forget_norm();
  results_.forget_gradients();
}

void Pass::forget_made_step() noexcept {
  if (optimizer_.last_stage() != nullptr) static_cast<void>(optimizer_.last_stage()->take_made_step());
}

void Pass::forget_hooks() noexcept {
  if (buckets_.hooked() != nullptr) buckets_.hooked()->forget();
}

std::string Pass::describe_plan() const {
  const bool by_thread = queue_.driver() >= collective::ProgressQueue::Driver::kThread;  // or kThreadOrEnd
  return std::to_string(buckets_.size()) + " buckets, reduced by " +
         (by_thread ? "a thread of the group\n" : "the caller's threads\n") + buckets_.describe_plan();
}

void Pass::end(void* stream) {
  require_open();
  struct Closer {
    Pass& pass;
    ~Closer() {
      const bool are_on = pass.events_.are_on();
      pass.events_.end();
      if (are_on) group::collect_gpu_times(pass.channel_.group());
      pass.open_.store(false, std::memory_order_release);
      pass.optimizer_.let_go();
      pass.opened_.reset();
    }
  } const closer{*this};
  if (mode_ == DDP_PASS_REDUCE) return end_reduce(stream);
  if (buckets_.are_on_gpu()) buckets_.order_marks(channel_.group().gpu().nccl(), stream);
  if (mode_ == DDP_PASS_LOCAL && attendance_.is(Role::kTraining)) return end_local();
  if (mode_ == DDP_PASS_PART) return end_part();
  const bool keep = attendance_.is(Role::kTraining);
  marks_.settle(keep);
  results_.set(keep ? Results::Gradients::kAccumulated : Results::Gradients::kVoid);
}

bool Pass::abandon(std::string reason, void* stream) {
  if (!is_open()) throw Error(DDP_ERROR_INVALID_STATE, "no backward pass is open; there is nothing to abandon");
  buckets_.between_starts([&](bool) { attendance_.abandon(std::move(reason)); });
  if (mode_ != DDP_PASS_REDUCE) {
    end(stream);
    return true;
  }
  const std::optional<Error> failure = try_to<Error>([&] { end(stream); });
  if (!failure) return false;
  channel_.group().health().check_usable();
  if (!incomplete_) throw Error(*failure);
  return true;  // the text that the others got
}

void Pass::leave_open() noexcept {
  if (!is_open()) return;
  static_cast<void>(try_to([this] { queue_.drain(); }));
  optimizer_.let_go();
}

/// Gradients of a LOCAL pass stay on their rank (Stich, "Local SGD Converges Fast and Communicates Little", 2019).
void Pass::end_local() {
  const MissingGradients missing = marks_.missing(options_.unused == DDP_UNUSED_ALLOW);
  if (missing.missing > 0) {
    marks_.settle(false);
    results_.set(Results::Gradients::kVoid);
    throw Error(DDP_ERROR_INVALID_STATE,
                "ddp_model_end_backward: this rank did not mark " + names_of(missing) +
                    "; mark every parameter in every pass, or set the model option unused = DDP_UNUSED_ALLOW");
  }
  for (int32_t index = 0; index < marks_.table().parameter_count(); ++index) results_.use(index, marks_.contributes(index));
  marks_.forget();
  results_.finish(false, false);
}

/// A missing gradient in a part is reported to all ranks by the pass that reduces: no rank fails alone.
void Pass::end_part() {
  MissingGradients missing;
  if (attendance_.is(Role::kTraining)) missing = marks_.missing(options_.unused == DDP_UNUSED_ALLOW);
  missing.reason = attendance_.reason();
  Parts& parts = buckets_.parts();
  if (missing.missing > 0 || !missing.reason.empty())
    parts.close_void(std::move(missing));
  else
    parts.close(attendance_.mine(parts.position()), marks_);
  marks_.forget();
  results_.set(Results::Gradients::kAccumulated);
}

void Pass::end_reduce(void* stream) {
  others_stepped_ = true;
  struct Closer {
    Pass& pass;
    bool is_void = true;
    ~Closer() { pass.buckets_.parts().end_step(is_void); }
  } step{*this};
  on_error<Error>([&] { reduce(stream); },
                  [this](const Error& error) {
                    // Hooks and rules that fail say so in the headers: this one has ended the queue's thread.
                    group::Health& health = channel_.group().health();
                    if (error.status() == DDP_ERROR_CALLBACK) health.give_up("ddp_model_end_backward", error);
                    const std::optional<Error> cause = try_to<Error>([&] { health.fail(error); });
                    // A broken group ends the operations in progress: no operation changes a parameter during its undo.
                    if (cause) static_cast<void>(try_to([this] { queue_.drain(); }));
                    // What it takes back on a GPU may fail with it; the first cause counts.
                    if (optimizer_.active() != nullptr)
                      static_cast<void>(try_to([this] { optimizer_.active()->give_up(); }));
                    if (cause) throw Error(*cause);
                  });
  if (buckets_.hooked() != nullptr) buckets_.hooked()->check();
  if (incomplete_) report_missing();
  if (attendance_.nobody_contributed() && buckets_.size() > 0)
    throw Error(DDP_ERROR_INVALID_STATE,
                "ddp_model_end_backward: no rank contributed to this pass (all skipped it, or have the weight 0); the "
                "gradients are as they were");
  if (optimizer_.active() != nullptr)
    if (const std::optional<Error> failure = optimizer_.active()->take_failure()) throw Error(*failure);
  step.is_void = false;
  if (!others_stepped_) return;
  meter_.finish(queue_, channel_.group().size() == 1);
  if (trace::Watch* const watch = channel_.group().calls().watch()) meter_.tell(*watch);
}

void Pass::reduce(void* stream) {
  const int64_t begin = os::now_ns();
  start_rest(stream);
  queue_.drain();
  buckets_.write_unused(stream);
  meter_.drain(begin);
  take_headers();
  if (buckets_.hooked() != nullptr) buckets_.hooked()->end_pass(is_void());
  if (trace::Watch* const watch = is_void() ? channel_.group().calls().watch() : nullptr) watch->void_pass();
  settle();
  if (optimizer_.active() != nullptr && !optimizer_.active()->end(is_void())) results_.tear();
  OptimizerStage* const stage = optimizer_.last_stage();
  if (attendance_.is(Role::kJoined) && stage != nullptr) others_stepped_ = stage->attend(is_void());
  if (!buckets_.are_on_gpu()) return;
  channel_.group().gpu().nccl().order_before(stream);
  if (channel_.group().gpu().device().is_capturing(stream)) results_.capture();
}

/// A group that can recover counts what has happened on the device, not what will.
void Pass::settle() {
  if (!buckets_.are_on_gpu() || channel_.group().options().recoverable == 0) return;
  if (optimizer_.active() != nullptr) optimizer_.active()->join_updates();
  group::Gpu& gpu = channel_.group().gpu();
  gpu.device().refuse_capture(gpu.nccl().stream(), "ddp_model_end_backward",
                              "the group can recover (recoverable = 1), so the host waits for what the ranks exchange");
  gpu.settle();
}

bool Pass::is_void() const noexcept {
  return incomplete_ || attendance_.nobody_contributed() ||
         (buckets_.hooked() != nullptr && buckets_.hooked()->has_failed());
}

/// Of a failed pass only the report stays. Its gradients are undefined, or unchanged if no rank contributed.
void Pass::take_headers() {
  const bool none = buckets_.size() == 0;
  collective::Participation all = none ? collective::Participation::none() : buckets_.joined(0).participation;
  for (size_t b = 0; b < buckets_.size(); ++b) {
    const collective::BucketHeader& header = buckets_.joined(b);
    all.flags |= header.participation.flags;
    incomplete_ = incomplete_ || header.incomplete;
  }
  attendance_.end(all);
  if (!incomplete_ && attendance_.nobody_contributed() && !none)
    marks_.settle(false);
  else
    marks_.forget();
  if (is_void() && !none) return results_.set(Results::Gradients::kVoid);
  take_used();
}

void Pass::take_used() noexcept {
  for (size_t b = 0; b < buckets_.size(); ++b) {
    const std::vector<PlannedPiece>& pieces = buckets_.plan()[b].pieces;
    for (size_t piece = 0; piece < pieces.size(); ++piece)
      results_.use(pieces[piece].parameter, buckets_.joined(b).uses(piece));
  }
  const OptimizerStage* const stage = optimizer_.active();
  results_.finish(stage != nullptr && stage->reduces_to_slices(), stage != nullptr && stage->leaves_sums());
}

void Pass::report_missing() {
  MissingGradients mine;
  const Parts& parts = buckets_.parts();
  if (attendance_.is(Role::kTraining)) mine = marks_.missing(options_.unused == DDP_UNUSED_ALLOW);
  mine.reason = attendance_.reason();
  if (parts.are_shared()) mine.virtual_rank = parts.position();
  report_void_pass(channel_.group(), parts.missing() ? *parts.missing() : mine);
}

}  // namespace ddp::pass
