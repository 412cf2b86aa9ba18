// SPDX-License-Identifier: Apache-2.0
// Finds operations that touch the same bytes, one of them writing, without an order between them. For every byte it
// remembers the last write and the reads since then (as FastTrack does: Flanagan and Freund, 2009), in intervals; so it
// needs no history. The races that it finds depend on the order in which the host queued the operations, not on when they
// ran. Tested by unit/fake_gpu/races_test.cpp.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "support/fake_gpu/clock.hpp"

namespace ddp::test::fake_gpu {

/// Bytes that an operation reads or writes; device addresses.
struct Access {
  uintptr_t begin = 0;
  int64_t bytes = 0;
  bool writes = false;
};

class Races {
 public:
  /// An operation of `actor`; `clock`: the operations that happened before it, itself included. One sentence for each
  /// earlier operation that it collides with.
  [[nodiscard]] std::vector<std::string> touch(const std::vector<Access>& accesses, size_t actor, const Clock& clock,
                                               const std::string& name);
  /// The bytes are free: the next block there has no history.
  void forget(uintptr_t begin, int64_t bytes);

 private:
  struct Touch {
    size_t actor = 0;
    uint64_t time = 0;  // 0: none
    std::shared_ptr<const std::string> name;
  };
  struct Cell {
    uintptr_t end = 0;
    Touch writer;
    std::vector<Touch> readers;  // since then; one for each actor
  };
  using Cells = std::map<uintptr_t, Cell>;  // by their begin; they do not overlap
  struct Current;

  Cells::iterator cut(uintptr_t at);
  void read(const Access& access, Current& current);
  void write(const Access& access, Current& current);
  Cells cells_;
};

}  // namespace ddp::test::fake_gpu
