// The large reduction of a chain: segments going up and down at the same time. One object per reduction, on the stack.
// Tested by unit/comm/chain_test.cpp.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "comm/rail/contribution.hpp"
#include "comm/rail/line.hpp"
#include "comm/rail/segments.hpp"
#include "comm/rail/sweep.hpp"

namespace ddp {

class Pipeline {
 public:
  Pipeline(Line& line, Sweep& sweep, Scratch& scratch, Contribution& mine, const Segments& segments, bool raw_first_hop);

  /// Between the sweep's pass_up and its close. `note` becomes that of all members.
  void run(Note& note);

 private:
  void up(int64_t t);
  void finish(int64_t t, Incoming in);
  void down(int64_t t);
  void turn(Note& note);
  void post_up(int64_t t);
  void post_down(int64_t t);
  void drain();
  [[nodiscard]] int64_t wanted_segments(int32_t position) const noexcept;
  [[nodiscard]] std::byte* place(int64_t t) noexcept;

  using Ring = std::array<Line::Message, kDepth>;
  [[nodiscard]] static Line::Message& at(Ring& ring, int64_t t) noexcept { return ring[static_cast<size_t>(t % kDepth)]; }

  Line& line_;
  Sweep& sweep_;
  Scratch& scratch_;
  Contribution& mine_;
  const Segments& segments_;
  bool sends_raw_;       // this member's hop up carries elements, not accumulators
  bool receives_raw_;
  int64_t up_number_;    // segments that go up
  int64_t down_number_;  // segments that come down to this member
  int64_t below_number_; // segments that this member passes down
  bool void_ = false;    // some member was incomplete: nothing comes down
  Ring up_in_{}, up_out_{}, down_in_{}, down_out_{};
};

}  // namespace ddp
