#include "comm/rail/sweep.hpp"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <new>

namespace ddp {
namespace {

constexpr uint32_t kMagic = 0x33524444;  // "DDR3": changes with the layout of the frame, and differs in the other byte order
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
  // It may have left while we were sending to it, before we looked at what it said.
  line_.set_goodbye_probe([this](Side side) { return (side == Side::kBelow ? in_up_ : in_down_)->magic == kGoodbye; });
  arm();
}

// A neighbour may have left after the last collective; that is nobody's failure until the next one.
void Sweep::arm() noexcept {
  if (!line_.is_first()) from_below_ = line_.try_receive(Side::kBelow, Tag::kFrame, in_up_.get(), kFrameBytes);
  if (!line_.is_last()) from_above_ = line_.try_receive(Side::kAbove, Tag::kFrame, in_down_.get(), kFrameBytes);
}

void Sweep::leave(Deadline deadline) noexcept {
  out_up_->magic = kGoodbye;
  if (!line_.is_first()) frame_down_ = line_.try_send(Side::kBelow, Tag::kFrame, out_up_.get(), kFrameBytes);
  if (!line_.is_last()) frame_up_ = line_.try_send(Side::kAbove, Tag::kFrame, out_up_.get(), kFrameBytes);
  for (Line::Message* message : {&from_below_, &from_above_}) line_.try_wait(*message, deadline);
  if (neighbours_leave()) {
    arm();
    line_.try_wait(from_below_, deadline);
    Line::Message up, down;
    if (!line_.is_last()) up = line_.try_send(Side::kAbove, Tag::kFrame, out_up_.get(), kFrameBytes);
    line_.try_wait(from_above_, deadline);
    if (!line_.is_first()) down = line_.try_send(Side::kBelow, Tag::kFrame, out_up_.get(), kFrameBytes);
    for (Line::Message* message : {&up, &down}) line_.try_wait(*message, deadline);
  }
  for (Line::Message* message : {&frame_up_, &frame_down_}) line_.try_wait(*message, deadline);
}

bool Sweep::neighbours_leave() const noexcept {
  return (line_.is_first() || in_up_->magic == kGoodbye) && (line_.is_last() || in_down_->magic == kGoodbye);
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

// The words of a note that came with (or after) this frame.
void Sweep::take_words(Side side, const Frame& frame, std::vector<uint64_t>& words) {
  if (!words_apart()) {
    std::copy_n(frame.words, words.size(), words.begin());
    return;
  }
  Line::Message message = line_.receive(side, Tag::kNote, words.data(), word_bytes(words));
  line_.wait(message);
}

Line::Message Sweep::send_words(Side side, Frame& frame) {
  if (!words_apart()) std::copy(words_.begin(), words_.end(), frame.words);
  return words_apart() ? line_.send(side, Tag::kNote, words_.data(), word_bytes(words_)) : Line::Message{};
}

void Sweep::open(const Stamp& stamp, int64_t segment_bytes, const Note& note, const std::vector<Tally>& tallies) {
  Frame& mine = *out_up_;
  mine.magic = kMagic;
  mine.incomplete = note.incomplete ? 1 : 0;
  mine.stamp = stamp;
  mine.segment_bytes = segment_bytes;
  mine.note_words = static_cast<int64_t>(note.used.size());
  words_ = note.used;
  below_ = Tally::none();
  mine.tally = below_;
  if (!line_.is_first()) take_from_below();
  for (const Tally& each : tallies) mine.tally.add(each);
}

void Sweep::take_from_below() {
  Frame& mine = *out_up_;
  if (!from_below_.open) from_below_ = line_.receive(Side::kBelow, Tag::kFrame, in_up_.get(), kFrameBytes);
  line_.wait(from_below_);
  compare(*in_up_);
  mine.incomplete |= in_up_->incomplete;
  below_ = mine.tally = in_up_->tally;
  words_in_.resize(words_.size());
  take_words(Side::kBelow, *in_up_, words_in_);
  for (size_t i = 0; i < words_.size(); ++i) words_[i] |= words_in_[i];
}

void Sweep::pass_up() {
  if (line_.is_last()) return;
  words_up_ = send_words(Side::kAbove, *out_up_);
  frame_up_ = line_.send(Side::kAbove, Tag::kFrame, out_up_.get(), kFrameBytes);
}

void Sweep::turn(Note& note) {
  if (line_.is_last()) {
    std::memcpy(static_cast<void*>(out_down_.get()), out_up_.get(), kHeaderBytes);
  } else {
    if (!from_above_.open) from_above_ = line_.receive(Side::kAbove, Tag::kFrame, in_down_.get(), kFrameBytes);
    line_.wait(from_above_);
    expect_collective(*in_down_, Side::kAbove);
    if (!(in_down_->stamp == out_up_->stamp)) line_.refuse(line_.position() + 1, in_down_->stamp, out_up_->stamp);
    line_.wait(words_up_);  // before its memory is used again
    take_words(Side::kAbove, *in_down_, words_);
  }
  note.incomplete = down_frame().incomplete != 0;
  note.tally = down_frame().tally;
  note.used = words_;
}

void Sweep::pass_down() {
  if (line_.is_first()) return;
  words_down_ = send_words(Side::kBelow, down_frame());
  frame_down_ = line_.send(Side::kBelow, Tag::kFrame, &down_frame(), kFrameBytes);
}

void Sweep::close() {
  for (Line::Message* message : {&frame_up_, &frame_down_, &words_up_, &words_down_}) line_.wait(*message);
  arm();
}

}  // namespace ddp
