// SPDX-License-Identifier: Apache-2.0
// The ring: the last events of a rank, in a file that it writes through memory (mapped_file.hpp). Written without locks by
// any thread; a reader knows an event that is being written, or was when the process died, by its turn number, which is odd
// then.
// Cost: an event is two atomic operations and six stores. Nothing is allocated after the ring was made.
// Threads: record(), name() and note_gather() from any; the rest from one.
// Tested by unit/trace/ring_test.cpp.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "trace/clocks.hpp"
#include "trace/event.hpp"
#include "trace/mapped_file.hpp"

namespace ddp::trace {

inline constexpr int64_t kDefaultEvents = 65'536;
inline constexpr int64_t kLeastEvents = 64;
inline constexpr int64_t kMostEvents = 1 << 26;

/// The file's head; behind it stand names, and then the slots.
struct RingHead {
  static constexpr uint64_t kMagic = 0x3167'6e69'7270'6464;  // "ddpring1"
  static constexpr uint32_t kVersion = 1;
  static constexpr int64_t kNameBytes = int64_t{256} * 1024;
  static constexpr size_t kGathers = 64;  // the first half stays

  uint64_t magic = 0;
  uint32_t version = 0;
  uint32_t head_bytes = 0;
  struct Owner {
    int32_t pid = 0;
    int32_t rank = 0;  // when the trace began, or the number by which a launcher knows the process
    int32_t size = 0;
    int32_t ended = 0;  // 1: the rank has recorded its end
    int64_t start_ns = 0;
    int64_t start_realtime_ns = 0;
    char host[64] = {};
    char boot[64] = {};  // equal on one running kernel: there all have one clock
  } owner;
  int64_t capacity = 0;
  uint64_t head = 0;     // events that were begun
  uint64_t dropped = 0;  // of them, those that found their slot taken by one that was slower than a whole round
  int64_t name_bytes = 0;
  uint64_t gathers = 0;
  GatherTimes gather_times[kGathers] = {};
};

/// Where the slots begin.
inline constexpr int64_t kSlotsAt = static_cast<int64_t>(sizeof(RingHead)) + RingHead::kNameBytes;
static_assert(kSlotsAt % 8 == 0);

/// 48 bytes. `turn`: 2 n + 1 while the n-th event is written, 2 n + 2 afterwards.
struct Slot {
  std::atomic<uint64_t> turn;
  std::atomic<uint64_t> words[5];
};
static_assert(sizeof(Slot) == 48);

/// The writing side.
class Recorder {
 public:
  struct Settings {
    int64_t capacity = kDefaultEvents;
    int32_t rank = 0;
    int32_t size = 1;
    std::string host{};
    std::string boot{};
  };
  /// A file at this path. Throws what os::file_error makes.
  [[nodiscard]] static std::unique_ptr<Recorder> make(const std::string& path, const Settings& settings);

  void record(const Event& event) noexcept;
  /// A line with the meaning of a number: "p 1 3 weight" for parameter 3 of model 1, "c 5 ddp_group_broadcast". Left out
  /// when there is no room.
  void name(std::string_view line) noexcept;
  void note_gather(const GatherTimes& times) noexcept;
  /// Nothing more comes.
  void end() noexcept;
  [[nodiscard]] bool is_ours() const noexcept { return file_.is_ours(); }
  [[nodiscard]] const std::string& path() const noexcept { return file_.path(); }
  [[nodiscard]] int32_t rank() const noexcept { return head().owner.rank; }
  /// Bytes of the file, without slots that were never used.
  [[nodiscard]] int64_t size() const noexcept;
  /// So many of its bytes, while other threads may record: a slot that they wrote meanwhile counts as being written.
  [[nodiscard]] std::string copy(int64_t bytes) const;

 private:
  explicit Recorder(MappedFile file) noexcept : file_(std::move(file)) {}
  [[nodiscard]] RingHead& head() const noexcept { return *reinterpret_cast<RingHead*>(file_.data()); }
  [[nodiscard]] Slot* slots() const noexcept;

  MappedFile file_;
  mutable std::mutex naming_;
};

/// What was read of a ring.
struct Ring {
  RingHead::Owner owner{};
  std::vector<Event> events;  // by begin
  uint64_t lost = 0;          // older ones that were written over, and dropped ones
  uint64_t torn = 0;          // were being written when the process died
  std::vector<GatherTimes> gathers;
  std::map<std::pair<uint32_t, uint32_t>, std::string> parameters;  // by model and number
  std::map<uint32_t, std::string> calls;
};

/// Nothing if the bytes are no ring.
[[nodiscard]] std::optional<Ring> read_ring(std::string_view bytes);
/// All rings in a folder.
[[nodiscard]] std::vector<Ring> read_rings(const std::string& folder);
[[nodiscard]] std::vector<RingHead::Owner> read_owners(const std::string& folder);
[[nodiscard]] std::vector<std::string> ring_files(const std::string& folder);
/// Is it the head of a ring?
[[nodiscard]] bool is_head(const RingHead& head) noexcept;
/// "DIR/rank-R-PID.ring", or with a number appended if that exists: no process overwrites the file of another one.
[[nodiscard]] std::string ring_path(const std::string& folder, int32_t number);

}  // namespace ddp::trace
