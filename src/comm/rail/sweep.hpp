// The small message that opens every collective: a frame of fixed size goes up the line, from the first member to the last, and down
// again. Going up, each member compares the frame's stamp with its own (so the data that follows has the size that everybody posts)
// and adds its note; coming down it says that all agree. A frame has room for a rider: a sum, a gathered or a sent array that is small
// enough travels inside and needs no other message. So do the bits of a note, up to kFrameWords words; more go in a message of their own.
//
// Cost: 2 (n - 1) hops of 4 KiB. The receives for the next sweep are always posted, so frames go out without a question.
// Use: open, pass_up, turn, pass_down, close; each exactly once.
// Tested by unit/comm/chain_test.cpp.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <type_traits>
#include <vector>

#include "comm/rail/line.hpp"
#include "comm/transport.hpp"

namespace ddp {

class Sweep {
 public:
  static constexpr int64_t kFrameBytes = 4096;
  static constexpr int64_t kHeaderBytes = 192;
  static constexpr int64_t kRiderBytes = kFrameBytes - kHeaderBytes;
  static constexpr size_t kFrameWords = 12;

  explicit Sweep(Line& line);

  /// Wait for the frame from below, compare it, take in its note. `segment_bytes` is compared too. `tallies` are those of this member's
  /// ranks and stand in the place of note.tally. Throws MISMATCH on all ranks.
  void open(const Stamp& stamp, int64_t segment_bytes, const Note& note, const std::vector<Tally>& tallies);
  /// After open: of the ranks below, and of those and this member's.
  [[nodiscard]] const Tally& below() const noexcept { return below_; }
  [[nodiscard]] const Tally& up_to_here() const noexcept { return out_up_->tally; }
  /// The rider from below; only after open, not for the first member.
  [[nodiscard]] std::byte* from_below() noexcept { return in_up_->rider; }
  /// The rider to send up; fill it before pass_up.
  [[nodiscard]] std::byte* to_above() noexcept { return out_up_->rider; }
  void pass_up();
  /// Wait for the frame from above (the last member turns the sweep around): `note` is then that of all.
  void turn(Note& note);
  /// After turn: the rider that comes down; the last member fills it before pass_down.
  [[nodiscard]] std::byte* result() noexcept { return down_frame().rider; }
  void pass_down();
  void close();

  /// This member makes no more collectives. Wait until all members say the same, a neighbour makes a call that will fail or is gone;
  /// at most until the deadline. Neighbours learn it at once; two more frames, one up the line and one down, tell that all know.
  void leave(Deadline deadline) noexcept;

 private:
  struct Frame {
    uint32_t magic;
    uint32_t incomplete;
    Stamp stamp;
    int64_t segment_bytes;
    int64_t note_words;
    Tally tally;
    uint64_t words[kFrameWords];
    std::byte rider[kRiderBytes];
  };
  static_assert(sizeof(Frame) == kFrameBytes && std::is_trivially_copyable_v<Frame>);
  struct FreeFrame {
    void operator()(Frame* frame) const noexcept;
  };
  using FramePtr = std::unique_ptr<Frame, FreeFrame>;
  [[nodiscard]] static FramePtr make_frame();
  [[nodiscard]] Frame& down_frame() noexcept { return line_.is_last() ? *out_down_ : *in_down_; }
  void arm() noexcept;
  void compare(const Frame& theirs);
  void take_from_below();
  [[nodiscard]] bool neighbours_leave() const noexcept;
  [[nodiscard]] bool words_apart() const noexcept { return words_.size() > kFrameWords; }
  void take_words(Side side, const Frame& frame, std::vector<uint64_t>& words);
  [[nodiscard]] Line::Message send_words(Side side, Frame& frame);
  void expect_collective(const Frame& theirs, Side side);

  Line& line_;
  Tally below_;
  FramePtr in_up_, out_up_, in_down_, out_down_;
  std::vector<uint64_t> words_in_;  // from below
  std::vector<uint64_t> words_;     // going up, then down
  Line::Message from_below_, from_above_;                            // receives for the next frames
  Line::Message frame_up_, frame_down_, words_up_, words_down_;      // sends under way
};

}  // namespace ddp
