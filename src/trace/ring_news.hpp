// SPDX-License-Identifier: Apache-2.0
// Reads rings while they are written, so that their events are on another machine when this one dies: pieces of their files,
// which the other side joins again. One thread. Tested by unit/trace/ring_test.cpp and process/ddprun_trace_test.sh.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "trace/ring.hpp"

namespace ddp::trace {

/// Bytes of a file, from `offset` on.
struct Piece {
  std::string file{};  // its name
  int64_t offset = 0;
  std::string bytes{};
};
inline constexpr int64_t kPieceBytes = int64_t{128} * 1024;  // at most

class RingNews {
 public:
  explicit RingNews(std::string folder) : folder_(std::move(folder)) {}
  /// The events since the last call; events that were half written then come again. A file that cannot be read is left out.
  [[nodiscard]] std::vector<Piece> take();

 private:
  struct Seen {
    uint64_t events = 0;  // of them all that went before are known
    uint64_t head = 0;
    int64_t name_bytes = 0;
    bool is_known = false;
  };
  void take_of(const std::string& path, std::vector<Piece>& pieces);

  const std::string folder_;
  std::map<std::string, Seen> seen_;  // by path
};

/// Into the file of this name in the folder. False if it is no piece of a ring, or cannot be written.
[[nodiscard]] bool put_piece(const std::string& folder, const Piece& piece) noexcept;

}  // namespace ddp::trace
