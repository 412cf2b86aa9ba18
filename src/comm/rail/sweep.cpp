#include "comm/rail/sweep.hpp"

#include <cstdlib>
#include <cstring>
#include <new>

namespace ddp {
namespace {

constexpr uint32_t kMagic = 0x31524444;  // "DDR1": changes with the layout of the frame, and differs in the other byte order
constexpr uint32_t kGoodbye = 0x30524444;

int64_t word_bytes(const std::vector<uint64_t>& words) noexcept { return static_cast<int64_t>(words.size() * sizeof(uint64_t)); }

}  // namespace

void Sweep::FreeFrame::operator()(Frame* frame) const noexcept { std::free(frame); }

Sweep::FramePtr Sweep::make_frame() {
  void* memory = std::aligned_alloc(64, sizeof(Frame));
  if (memory == nullptr) throw std::bad_alloc();
  std::memset(memory, 0, sizeof(Frame));
  return FramePtr(static_cast<Frame*>(memory));
}

Sweep::Sweep(Line& line)
    : line_(line), in_up_(make_frame()), out_up_(make_frame()), in_down_(make_frame()), out_down_(make_frame()) {
  arm();
}

// A neighbour may have left after the last collective; that is nobody's failure until the next one.
void Sweep::arm() noexcept {
  if (!line_.is_first()) from_below_ = line_.try_receive(Side::kBelow, Lane::kFrame, in_up_.get(), kFrameBytes);
  if (!line_.is_last()) from_above_ = line_.try_receive(Side::kAbove, Lane::kFrame, in_down_.get(), kFrameBytes);
}

void Sweep::leave(Deadline deadline) noexcept {
  out_up_->magic = kGoodbye;
  if (!line_.is_first()) frame_down_ = line_.try_send(Side::kBelow, Lane::kFrame, out_up_.get(), kFrameBytes);
  if (!line_.is_last()) frame_up_ = line_.try_send(Side::kAbove, Lane::kFrame, out_up_.get(), kFrameBytes);
  for (Line::Message* message : {&from_below_, &from_above_, &frame_up_, &frame_down_}) line_.try_wait(*message, deadline);
}

void Sweep::expect_collective(const Frame& theirs, Side side) {
  if (theirs.magic == kGoodbye) line_.neighbour_left(side);
}

void Sweep::compare(const Frame& theirs) {
  const Frame& mine = *out_up_;
  expect_collective(theirs, Side::kBelow);
  if (theirs.magic != mine.magic)
    line_.give_up(make_error(DDP_ERROR_MISMATCH, "the ranks run different versions of libddp; install the same one everywhere"));
  if (!(theirs.stamp == mine.stamp)) line_.refuse(line_.position() - 1, theirs.stamp, mine.stamp);
  if (theirs.segment_bytes != mine.segment_bytes || theirs.note_words != mine.note_words)
    line_.give_up(make_error(DDP_ERROR_MISMATCH, "the ranks cut %s differently: %lld and %lld bytes a segment, %lld and %lld words",
                             mine.stamp.describe().c_str(), static_cast<long long>(theirs.segment_bytes),
                             static_cast<long long>(mine.segment_bytes), static_cast<long long>(theirs.note_words),
                             static_cast<long long>(mine.note_words)));
}

void Sweep::open(const Stamp& stamp, int64_t segment_bytes, Note& note) {
  Frame& mine = *out_up_;
  mine.magic = kMagic;
  mine.incomplete = note.incomplete ? 1 : 0;
  mine.stamp = stamp;
  mine.segment_bytes = segment_bytes;
  mine.note_words = static_cast<int64_t>(note.used.size());
  words_out_ = note.used;
  if (line_.is_first()) return;
  if (!from_below_.open) from_below_ = line_.receive(Side::kBelow, Lane::kFrame, in_up_.get(), kFrameBytes);
  line_.wait(from_below_);
  compare(*in_up_);
  mine.incomplete |= in_up_->incomplete;
  if (words_out_.empty()) return;
  words_in_.resize(words_out_.size());
  Line::Message words = line_.receive(Side::kBelow, Lane::kNote, words_in_.data(), word_bytes(words_in_));
  line_.wait(words);
  for (size_t i = 0; i < words_out_.size(); ++i) words_out_[i] |= words_in_[i];
}

void Sweep::pass_up() {
  if (line_.is_last()) return;
  frame_up_ = line_.send(Side::kAbove, Lane::kFrame, out_up_.get(), kFrameBytes);
  if (!words_out_.empty()) words_up_ = line_.send(Side::kAbove, Lane::kNote, words_out_.data(), word_bytes(words_out_));
}

void Sweep::turn(Note& note) {
  if (line_.is_last()) {
    std::memcpy(static_cast<void*>(out_down_.get()), out_up_.get(), kHeaderBytes);
  } else {
    if (!from_above_.open) from_above_ = line_.receive(Side::kAbove, Lane::kFrame, in_down_.get(), kFrameBytes);
    line_.wait(from_above_);
    expect_collective(*in_down_, Side::kAbove);
    if (!(in_down_->stamp == out_up_->stamp)) line_.refuse(line_.position() + 1, in_down_->stamp, out_up_->stamp);
    if (!words_out_.empty()) {
      line_.wait(words_up_);
      Line::Message words = line_.receive(Side::kAbove, Lane::kNote, words_out_.data(), word_bytes(words_out_));
      line_.wait(words);
    }
  }
  note.incomplete = down_frame().incomplete != 0;
  note.used = words_out_;
}

void Sweep::pass_down() {
  if (line_.is_first()) return;
  frame_down_ = line_.send(Side::kBelow, Lane::kFrame, &down_frame(), kFrameBytes);
  if (!words_out_.empty()) words_down_ = line_.send(Side::kBelow, Lane::kNote, words_out_.data(), word_bytes(words_out_));
}

void Sweep::close() {
  for (Line::Message* message : {&frame_up_, &frame_down_, &words_up_, &words_down_}) line_.wait(*message);
  arm();
}

}  // namespace ddp
