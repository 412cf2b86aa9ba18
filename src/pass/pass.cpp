// SPDX-License-Identifier: Apache-2.0
#include "pass/pass.hpp"

#include <algorithm>
#include <utility>

#include "core/attempt.hpp"
#include "ddp/model.h"
#include "exchange/progress_queue.hpp"
#include "exchange/ranks.hpp"
#include "os/clock.hpp"
#include "os/cores.hpp"
#include "pass/incomplete_pass.hpp"
#include "pass/part.hpp"

namespace ddp::pass {
namespace {

// Which thread works on the buckets: a pure decision from the caller's option, the abilities of the transport, and the
// number of cores. A caller that asks for its own threads gets them, whatever the transport, because functions of the
// program may be bound to them: a language may not be called on others; where the transport blocks, only while there are
// such functions. A hook blocks, so it has a thread of its own otherwise; buckets that are pulled are driven by the program.
// Measured: with as many ranks as cores a helper thread takes its core from the computation, so the ranks reduce for
// themselves.
collective::ProgressQueue::Driver choose_driver(const collective::Ranks& ranks, ddp_progress wanted,
                                                const Traits& traits) noexcept {
  using Driver = collective::ProgressQueue::Driver;
  if (traits.pulled) return Driver::kCaller;
  if (wanted == DDP_PROGRESS_CALLER)
    return traits.waits ? Driver::kEnd : ranks.transport().pollable() ? Driver::kProgram : Driver::kThreadOrEnd;
  if (traits.waits) return Driver::kThread;
  if (ranks.size() == 1) return Driver::kCaller;
  if (!ranks.transport().pollable() || wanted == DDP_PROGRESS_THREAD) return Driver::kThread;
  return 2 * ranks.size() <= os::usable_cores() ? Driver::kThread : Driver::kCaller;
}

constexpr const char* kEnd = "ddp_model_end_backward";

/// Is what a rank contributes known only when the pass ends?
bool is_partial(const ddp_model_options& options) noexcept {
  return options.unused == DDP_UNUSED_ALLOW || options.divisor == DDP_DIVISOR_WEIGHTS;
}

}  // namespace

Pass::Pass(const Of& of)
    : of_(of),
      place_(of.ranks.place()),
      buckets_({of.ranks, of.table, of.plan, of.plan_hash, of.rules, is_partial(of.options), of.parts}),
      marks_(of.table),
      results_(of.table.parameters().size()),
      // For each bucket a reduction and what may follow it, and what may go before them.
      queue_(choose_driver(of.ranks, of.options.progress, traits()), 2 * of.plan.size() + 1, place_.calls, place_.channel) {}

Traits Pass::traits() const noexcept {
  Traits all;
  all.partial = is_partial(of_.options);
  for (const PassPart* const part : of_.parts) all.join(part->traits());
  return all;
}

void Pass::require_open() const {
  if (!is_open()) throw Error(DDP_ERROR_INVALID_STATE, "no backward pass is open; call ddp_model_begin_backward first");
}

void Pass::begin(ddp_pass mode, Role role) {
  for (const PassPart* const part : of_.parts) part->require(mode, role);
  queue_.set_calls_program(traits().calls_program);
  opened_.emplace(of_.ranks, mode == DDP_PASS_REDUCE ? buckets_.gpu() : nullptr, queue_);
  now_.mode = mode;
  now_.role = role;
  now_.incomplete = now_.is_void = now_.nobody = false;
  on_error([this] { begin_parts(); }, [this](const Error&) { opened_.reset(); });
  open_.store(true, std::memory_order_release);
}

void Pass::begin_parts() {
  Opening opening{now_.mode, now_.role, results_.final_passes(), queue_};
  for (PassPart* const part : of_.parts) part->begin(opening);
  if (now_.mode == DDP_PASS_LOCAL) results_.go_alone();
  marks_.begin_pass();
  buckets_.begin_pass(now_.mode == DDP_PASS_REDUCE);
  for (PassPart* const part : of_.parts) part->opened(opening);
  tracer_.store(opening.tracer, std::memory_order_relaxed);
}

void Pass::mark(int32_t index, Marks::Mark what, void* stream) {
  require_open();
  marks_.mark(index, what);
  tell_tracer(index);
  bool complete = false;
  for (const PiecePlace& place : buckets_.places(index)) {
    const auto bucket = static_cast<size_t>(place.bucket);
    if (what == Marks::Mark::kReady) buckets_.add_stream(bucket, stream);
    if (what == Marks::Mark::kUnused && marks_.contributes(index) && of_.plan[bucket].on_gpu) continue;  // no stream
    complete = buckets_.count_mark(bucket) || complete;
  }
  if (complete) start_complete_buckets();
  poke();
}

void Pass::poke() {
  if (now_.mode != DDP_PASS_REDUCE) return;
  queue_.poke(collective::kPokeBytes);
  place_.queues.poke_others(place_.channel);
}

void Pass::mark_ready(int32_t index, void* stream) { mark(index, Marks::Mark::kReady, stream); }

void Pass::mark_range_ready(int32_t index, int64_t first, int64_t count, void* stream) {
  if (!is_open())
    throw Error(DDP_ERROR_INVALID_STATE,
                "ddp_model_mark_range_ready: no backward pass is open; call ddp_model_begin_backward first");
  bool complete = false;
  const int64_t unit = of_.table.parameter(index).reals_each();
  marks_.mark_range(index, first, count, [&](const MarkedRanges& ranges) {
    complete = count_ranges(index, first * unit, (first + count) * unit, ranges, stream);
  });
  tell_tracer(index);
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
  if (of_.options.unused != DDP_UNUSED_ALLOW)
    throw Error(DDP_ERROR_INVALID_STATE, "ddp_model_mark_unused needs the model option unused = DDP_UNUSED_ALLOW");
  mark(index, Marks::Mark::kUnused, nullptr);
}

void Pass::start_complete_buckets() {
  if (now_.mode != DDP_PASS_REDUCE) return;
  buckets_.start_complete([this](size_t bucket) { start_bucket(bucket); });
}

void Pass::start_rest(void* stream) {
  buckets_.start_rest(stream, [this](size_t bucket) { start_bucket(bucket); });
}

void Pass::start_bucket(size_t index) {
  collective::BucketHeader& mine = buckets_.mine(index);
  fill(index, mine);
  for (PassPart* const part : of_.parts) part->fill(index, mine);
  PassPart* const tracer = tracer_.load(std::memory_order_relaxed);
  const trace::Event* const event = tracer != nullptr ? tracer->starting(index) : nullptr;
  collective::BucketOperation& operation = buckets_.start(index);
  queue_.push(operation, event);
  for (PassPart* const part : of_.parts) part->started(index, operation, queue_);
}

/// What this rank says about the bucket, as far as marks and its role tell.
void Pass::fill(size_t index, collective::BucketHeader& mine) {
  const std::vector<PlannedPiece>& pieces = of_.plan[index].pieces;
  const bool needs_more = std::any_of(pieces.begin(), pieces.end(),
                                      [this](const PlannedPiece& piece) { return marks_.is_needed(piece.parameter); });
  const bool misses = !buckets_.is_complete(index) && (of_.options.unused == DDP_UNUSED_ERROR || needs_more);
  const bool contributes = now_.role == Role::kTraining || now_.role == Role::kAbandoning;
  mine.incomplete = now_.role == Role::kAbandoning || (now_.role == Role::kTraining && misses);
  mine.participation = collective::Participation::of(contributes ? 1 : 0);
  std::fill(mine.used.begin(), mine.used.end(), 0);
  if (!contributes) return;
  for (size_t piece = 0; piece < pieces.size(); ++piece)
    if (marks_.contributes(pieces[piece].parameter)) mine.used[piece / 64] |= uint64_t{1} << (piece % 64);
}

void Pass::require_not_started(const char* refusal) {
  buckets_.between_starts([&](bool any_started) {
    if (any_started && is_open() && now_.mode == DDP_PASS_REDUCE) throw Error(DDP_ERROR_INVALID_STATE, refusal);
  });
}

void Pass::await_values() {
  for (PassPart* const part : of_.parts) part->await_values();
}

void Pass::changed(Change what) noexcept {
  if (what == Change::kGradientsZeroed) {
    marks_.forget();
    results_.forget_gradients();
  }
  for (PassPart* const part : of_.parts) part->changed(what);
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
    Outcome outcome = Outcome::kBroken;
    ~Closer() { pass.close(outcome); }
  } closer{*this};
  if (now_.mode == DDP_PASS_REDUCE) return end_reduce(stream, closer.outcome);
  buckets_.order_marks(stream);
  const bool keep = now_.role == Role::kTraining;
  closer.outcome = keep ? Outcome::kGood : Outcome::kVoid;
  if (now_.mode == DDP_PASS_PART) return end_part();
  if (now_.mode == DDP_PASS_LOCAL && keep) return end_local(closer.outcome);
  marks_.settle(keep);
  results_.set(keep ? Results::Gradients::kAccumulated : Results::Gradients::kVoid);
}

void Pass::close(Outcome outcome) noexcept {
  tracer_.store(nullptr, std::memory_order_relaxed);
  open_.store(false, std::memory_order_release);
  for (PassPart* const part : of_.parts) part->closed({now_.mode, outcome, queue_});
  opened_.reset();
}

bool Pass::abandon(std::string reason, void* stream) {
  if (!is_open()) throw Error(DDP_ERROR_INVALID_STATE, "no backward pass is open; there is nothing to abandon");
  buckets_.between_starts([&](bool) {
    now_.role = Role::kAbandoning;
    now_.reason = std::move(reason);
  });
  if (now_.mode != DDP_PASS_REDUCE) {
    end(stream);
    return true;
  }
  const std::optional<Error> failure = try_to<Error>([&] { end(stream); });
  if (!failure) return false;
  of_.ranks.check_usable();
  if (!now_.incomplete) throw Error(*failure);
  return true;  // what the others were told
}

void Pass::leave_open() noexcept {
  if (!is_open()) return;
  static_cast<void>(try_to([this] { queue_.drain(); }));
  for (PassPart* const part : of_.parts) part->left_open();
}

MissingGradients Pass::missing() const {
  MissingGradients mine;
  if (now_.role == Role::kTraining) mine = marks_.missing(of_.options.unused == DDP_UNUSED_ALLOW);
  if (now_.role == Role::kAbandoning) mine.reason = now_.reason;
  return mine;
}

/// Gradients of a LOCAL pass stay on their rank (Stich, "Local SGD Converges Fast and Communicates Little", 2019).
void Pass::end_local(Outcome& outcome) {
  const MissingGradients missing = this->missing();
  if (missing.missing > 0) {
    outcome = Outcome::kVoid;
    marks_.settle(false);
    results_.set(Results::Gradients::kVoid);
    throw Error(DDP_ERROR_INVALID_STATE,
                "ddp_model_end_backward: this rank did not mark " + names_of(missing) +
                    "; mark every parameter in every pass, or set the model option unused = DDP_UNUSED_ALLOW")
        .with(details_of(missing, of_.ranks.rank()));
  }
  for (int32_t index = 0; index < of_.table.parameter_count(); ++index) results_.use(index, marks_.contributes(index));
  marks_.forget();
  results_.leave_whole();
  results_.finish();
}

/// A missing gradient in a part is reported to all ranks by the pass that reduces: no rank fails alone.
void Pass::end_part() {
  const MissingGradients missing = this->missing();
  for (PassPart* const part : of_.parts) part->end_part(marks_, missing);
  marks_.forget();
  results_.set(Results::Gradients::kAccumulated);
}

void Pass::end_reduce(void* stream, Outcome& outcome) {
  bool counts = true;
  on_error<Error>([&] { counts = reduce(stream); }, [this](const Error& error) { fail(error); });
  outcome = now_.is_void ? Outcome::kVoid : Outcome::kStepFailed;
  report();
  if (counts) outcome = Outcome::kGood;
}

/// False: this rank only answered, and the others' step failed.
bool Pass::reduce(void* stream) {
  const int64_t begin = os::now_ns();
  start_rest(stream);
  queue_.drain();
  buckets_.write_unused(stream);
  const int64_t waited_ns = os::now_ns() - begin;
  Verdict verdict = read_headers();
  verdict.waited_ns = waited_ns;
  for (PassPart* const part : of_.parts) part->order();
  collective::GpuSide* const gpu = buckets_.gpu();
  if (gpu != nullptr) gpu->settle(kEnd);
  for (PassPart* const part : of_.parts)
    if (!part->conclude(verdict)) results_.tear();
  bool answered = true;
  if (now_.role == Role::kJoined)
    for (PassPart* const part : of_.parts) answered = part->answer(verdict) && answered;
  if (gpu == nullptr) return answered;
  gpu->order_before(stream);
  if (gpu->is_capturing(stream)) results_.capture();
  return answered;
}

/// Of a void pass only the report stays, and that gradients are undefined; or, if nobody contributed, as they were before.
Verdict Pass::read_headers() {
  const bool none = buckets_.size() == 0;
  Verdict verdict{now_.role, false, none ? collective::Participation::none() : buckets_.joined(0).participation, 0};
  for (size_t b = 0; b < buckets_.size(); ++b) {
    const collective::BucketHeader& header = buckets_.joined(b);
    verdict.all.flags |= header.participation.flags;
    now_.incomplete = now_.incomplete || header.incomplete;
  }
  bool is_void = false;
  for (const PassPart* const part : of_.parts) is_void = part->is_void() || is_void;
  now_.nobody = verdict.all.contributors == 0;
  now_.is_void = verdict.is_void = now_.incomplete || now_.nobody || is_void;
  if (!now_.incomplete && now_.nobody && !none)
    marks_.settle(false);
  else
    marks_.forget();
  take_results(verdict.is_void && !none);
  return verdict;
}

void Pass::take_results(bool is_void) {
  if (is_void) return results_.set(Results::Gradients::kVoid);
  results_.leave_whole();
  for (size_t b = 0; b < buckets_.size(); ++b) {
    Left left;
    for (const PassPart* const part : of_.parts) {
      const Left each = part->left(b);
      left = {left.sliced || each.sliced, left.sums || each.sums};
    }
    const std::vector<PlannedPiece>& pieces = of_.plan[b].pieces;
    for (size_t piece = 0; piece < pieces.size(); ++piece) {
      results_.use(pieces[piece].parameter, buckets_.joined(b).uses(piece));
      results_.leave(pieces[piece].parameter, left.sliced, left.sums);
    }
  }
  results_.finish();
}

/// Hooks and rules that fail say so in the headers: one that comes here with CALLBACK has ended the queue's thread.
void Pass::fail(const Error& error) {
  if (error.status() == DDP_ERROR_CALLBACK) of_.ranks.give_up(kEnd, error);
  const std::optional<Error> cause = try_to<Error>([&] { of_.ranks.fail(error); });
  // A broken group ends the operations under way: nobody changes a parameter while it is taken back.
  if (cause) static_cast<void>(try_to([this] { queue_.drain(); }));
  // What a part takes back on a GPU may fail with it; the first cause counts.
  for (PassPart* const part : of_.parts) static_cast<void>(try_to([part] { part->broken(); }));
  if (cause) throw Error(*cause);
}

void Pass::report() {
  for (PassPart* const part : of_.parts) part->report();
  if (now_.incomplete) {
    MissingGradients mine = missing();
    for (const PassPart* const part : of_.parts) part->add_missing(mine);
    report_void_pass(of_.ranks, of_.table, std::move(mine));
  }
  if (now_.nobody && buckets_.size() > 0)
    throw Error(DDP_ERROR_INVALID_STATE,
                "ddp_model_end_backward: no rank contributed to this pass (all skipped it, or have the weight 0); the "
                "gradients are as they were");
}

}  // namespace ddp::pass
