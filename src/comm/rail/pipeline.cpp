#include "comm/rail/pipeline.hpp"

#include <algorithm>

namespace ddp {

Pipeline::Pipeline(Line& line, Sweep& sweep, Scratch& scratch, Contribution& mine, const Segments& segments, bool raw_first_hop)
    : line_(line), sweep_(sweep), scratch_(scratch), mine_(mine), segments_(segments),
      sends_raw_(raw_first_hop && line.is_first()), receives_raw_(raw_first_hop && line.position() == 1),
      up_number_(segments.number()), down_number_(wanted_segments(line.position())),
      below_number_(line.is_first() ? 0 : wanted_segments(line.position() - 1)) {}

int64_t Pipeline::wanted_segments(int32_t position) const noexcept { return segments_.number_for(mine_.wanted(position)); }

// Where a result lies from its arrival on.
std::byte* Pipeline::place(int64_t t) noexcept {
  void* landing = mine_.landing(segments_.span(t));
  return landing != nullptr ? static_cast<std::byte*>(landing) : scratch_.slot(Scratch::kDown, t);
}

void Pipeline::post_up(int64_t t) {
  if (line_.is_first() || t >= up_number_) return;
  const int64_t size = receives_raw_ ? segments_.element_size() : segments_.carry_size();
  at(up_in_, t) = line_.receive(Side::kBelow, Tag::kData, scratch_.slot(Scratch::kUpIn, t), segments_.span(t).count * size);
}

void Pipeline::post_down(int64_t t) {
  if (t >= down_number_) return;
  at(down_in_, t) = line_.receive(Side::kAbove, Tag::kData, place(t), segments_.span(t).count * segments_.element_size());
}

void Pipeline::up(int64_t t) {
  const Span span = segments_.span(t);
  Incoming in;
  if (!line_.is_first()) {
    line_.wait(at(up_in_, t));
    if (sweep_.below().contributors > 0) in = Incoming{scratch_.slot(Scratch::kUpIn, t), receives_raw_, sweep_.below().weight};
  }
  if (line_.is_last()) {
    if (!void_) finish(t, in);
  } else {
    std::byte* scratch = scratch_.slot(Scratch::kUpOut, t);
    const void* sum = scratch;
    line_.wait(at(up_out_, t));  // the segment that used this slot before
    if (sends_raw_)
      sum = mine_.own(span, scratch);
    else
      mine_.add(in, scratch, span);
    const int64_t size = sends_raw_ ? segments_.element_size() : segments_.carry_size();
    at(up_out_, t) = line_.send(Side::kAbove, Tag::kData, sum, span.count * size);
  }
  post_up(t + kDepth);
}

void Pipeline::finish(int64_t t, Incoming in) {
  const Span span = segments_.span(t);
  line_.wait(at(down_out_, t));
  std::byte* result = place(t);
  mine_.finish(in, result, span);
  if (t < below_number_)
    at(down_out_, t) = line_.send(Side::kBelow, Tag::kData, result, span.count * segments_.element_size());
  if (result == scratch_.slot(Scratch::kDown, t)) mine_.deliver(result, span);
}

void Pipeline::down(int64_t t) {
  const Span span = segments_.span(t);
  line_.wait(at(down_in_, t));
  std::byte* result = place(t);
  if (t < below_number_)
    at(down_out_, t) = line_.send(Side::kBelow, Tag::kData, result, span.count * segments_.element_size());
  if (result == scratch_.slot(Scratch::kDown, t)) mine_.deliver(result, span);
  if (t == 0) return;
  line_.wait(at(down_out_, t - 1));  // has had one segment's time to leave
  post_down(t - 1 + kDepth);
}

void Pipeline::turn(Note& note) {
  sweep_.turn(note);
  mine_.set_weight_sum(note.tally.weight);
  sweep_.pass_down();
  mine_.learn(note);
  void_ = note.is_void();
  if (line_.is_last() || void_) return;
  for (int64_t t = 0; t < kDepth; ++t) post_down(t);
}

void Pipeline::run(Note& note) {
  for (int64_t t = 0; t < kDepth; ++t) post_up(t);
  if (line_.is_last()) turn(note);
  const int64_t lag = std::min<int64_t>(2 * (line_.last() - line_.position()), up_number_);
  const int64_t steps = line_.is_last() ? up_number_ : std::max(up_number_, lag + std::max<int64_t>(down_number_, 1));
  for (int64_t t = 0; t < steps; ++t) {
    if (t < up_number_) up(t);
    if (line_.is_last() || t < lag) continue;
    if (t == lag) turn(note);
    if (!void_ && t - lag < down_number_) down(t - lag);
  }
  drain();
}

void Pipeline::drain() {
  for (Line::Message& message : up_out_) line_.wait(message);
  for (Line::Message& message : down_out_) line_.wait(message);
}

}  // namespace ddp
