// SPDX-License-Identifier: Apache-2.0
// The live page: the progress of a rank, in a small file that it writes through memory. A launcher reads it while the
// rank runs, and after it has died. One for each process of a launcher, named by the launcher's number of the process. A
// reader needs nothing else of libddp. Threads: claim() and the end from one; the numbers from any. Tested by
// unit/trace/live_test.cpp and process/live_test.cpp.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "trace/mapped_file.hpp"

namespace ddp::trace {

/// How the bytes of a group are sent, as bits: several if hosts differ, or tensors are on a GPU. 0: not known, or one rank.
enum TransportBit : int32_t { kSharedMemory = 1, kGloo = 2, kNccl = 4 };

/// A number that the program has logged (trace/program_numbers.hpp).
struct ProgramNumber {
  static constexpr size_t kNameBytes = 64;  // with the NUL at its end
  static constexpr size_t kMost = 64;       // in a page

  enum State : int32_t { kFree = 0, kNaming = 1, kNamed = 2 };
  int32_t state = kFree;  // what is named stays
  int32_t unused = 0;
  char name[kNameBytes] = {};
  int64_t times = 0;  // how often it was logged; written after the value
  double value = 0;   // the last
};

/// The file's head. Behind it stand `most_ranks` numbers of int64_t: the time that this rank has waited for each rank. Then
/// ProgramNumber::kMost numbers of the program, and the name of the group; a library that was older left neither.
/// Times are nanoseconds; `..._at_ns` and `..._since_ns` by CLOCK_MONOTONIC of the host. Numbers are 0 where nothing was
/// yet, and count what the group and its sub-groups did; each is whole, but they are not of one moment.
struct LivePage {
  static constexpr uint64_t kMagic = 0x3165'7669'6c70'6464;  // "ddplive1"
  static constexpr uint32_t kVersion = 1;

  /// Does not change.
  struct Made {
    uint64_t magic = 0;
    uint32_t version = 0;
    uint32_t head_bytes = 0;  // of LivePage
    int32_t pid = 0;
    int32_t most_ranks = 0;
    int64_t at_ns = 0;
    int64_t realtime_ns = 0;  // the same moment by CLOCK_REALTIME
    char host[64] = {};
  } made;
  struct Place {
    int32_t held = 0;  // 1: a group of the process writes here
    int32_t rank = -1;
    int32_t size = 0;
    int32_t in_call = 0;        // 1: in `call`, 0: it has returned from it
    int32_t call = 0;           // the last public collective call, a bootstrap::UserCall
    int32_t transports = 0;     // TransportBit; a library that was older left 0
    int64_t call_since_ns = 0;  // when it was entered, or left
    int64_t generation = 0;     // of the group: 1 as it was created, one more with each recovery
    int64_t recoveries = 0;     // that this process has seen
  } place;
  struct Passes {
    int64_t count = 0;  // that ended well; the next four are sums over them
    int64_t backward_ns = 0;
    int64_t comm_ns = 0;
    int64_t exposed_ns = 0;
    int64_t sent_bytes = 0;
    int64_t last_at_ns = 0;      // when the last of them ended; the next four are of it
    int64_t gradient_bytes = 0;  // of its model
    int64_t buckets = 0;
    int64_t largest_bucket = 0;   // bytes
    int64_t smallest_bucket = 0;  // bytes
    int64_t voids = 0;            // that were void
  } passes;
  struct Work {
    int64_t steps = 0;  // of libddp's optimizers
    int64_t step_ns = 0;
    int64_t saves = 0;
    int64_t save_ns = 0;
  } work;
};

/// The end of the file.
struct LiveTail {
  ProgramNumber numbers[ProgramNumber::kMost] = {};
  char group[64] = {};  // the name that the rendezvous of the group has behind '#'; "": none
};

/// The contents of a page, at about one moment.
struct LiveNumbers : LivePage {
  std::vector<int64_t> waited_ns;      // by rank; `size` numbers, or fewer if the page has no place for more
  std::vector<ProgramNumber> program;  // those that are named
  std::string group;
};

/// Of rank R: "DIR/rank-R.live".
[[nodiscard]] std::string live_path(const std::string& folder, int32_t number);
/// Where the LiveTail of such a page begins.
[[nodiscard]] constexpr int64_t live_tail_at(int32_t most_ranks) noexcept {
  return static_cast<int64_t>(sizeof(LivePage)) + most_ranks * int64_t{sizeof(int64_t)};
}
/// Nothing if there is no whole page at this path.
[[nodiscard]] std::optional<LiveNumbers> read_live(const std::string& path);

/// A number of a page that others read meanwhile.
template <class Number>
void put(Number& where, Number value) noexcept {
  std::atomic_ref<Number>(where).store(value, std::memory_order_relaxed);
}
inline void add(int64_t& where, int64_t value) noexcept {
  std::atomic_ref<int64_t>(where).fetch_add(value, std::memory_order_relaxed);
}

/// The writing side.
class LiveFile {
 public:
  /// The page of this process, which is made if it is not there. NULL if another group of the process writes it. Throws what
  /// os::file_error makes. `size`: ranks of the group.
  [[nodiscard]] static std::unique_ptr<LiveFile> claim(const std::string& folder, int32_t number, const std::string& host,
                                                       int32_t size);
  ~LiveFile();
  LiveFile(const LiveFile&) = delete;
  LiveFile& operator=(const LiveFile&) = delete;

  /// In a fork of the process that has claimed it nothing may be written.
  [[nodiscard]] bool is_ours() const noexcept { return file_.is_ours(); }
  [[nodiscard]] LivePage& page() noexcept { return *reinterpret_cast<LivePage*>(file_.data()); }
  /// This rank has waited for that one.
  void add_wait(int32_t rank, int64_t ns) noexcept;
  void set_group(const std::string& name) noexcept;

 private:
  explicit LiveFile(MappedFile file) noexcept : file_(std::move(file)) {}
  [[nodiscard]] static std::unique_ptr<LiveFile> make(const std::string& path, const std::string& host, int32_t size);

  MappedFile file_;
};

}  // namespace ddp::trace
