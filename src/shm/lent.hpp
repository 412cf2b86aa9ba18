// SPDX-License-Identifier: Apache-2.0
// Memory of the program that is shared where it is, without a change of its address: its whole pages are copied into the
// region's file, which is mapped over them. So the other ranks, who map the whole file, reach it as they reach memory that
// the region gave out. Only whole pages: the bytes before the first and behind the last stay private (extent.hpp).
//
// Addresses and places in the file are congruent modulo a huge page, so that both can have the same huge pages. The way back
// is in os/file_window.hpp. Places that were used are not used again while the program's memory is a mapping of them.
// Threads: one at a time. Tested by unit/exchange/lent_test.cpp and capi/shared_memory_test.cpp.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>

#include "os/file_window.hpp"

namespace ddp::shm {

class Lent {
 public:
  /// What the program asked for.
  Lent(std::byte* data, int64_t bytes) noexcept;

  [[nodiscard]] bool is_shared() const noexcept { return forks_ != nullptr; }
  /// Of the whole pages.
  [[nodiscard]] std::byte* begin() const noexcept { return window_.begin; }
  [[nodiscard]] int64_t bytes() const noexcept { return window_.bytes; }
  [[nodiscard]] int64_t offset() const noexcept { return window_.offset; }
  /// What the program asked for.
  [[nodiscard]] const std::byte* data() const noexcept { return data_; }
  [[nodiscard]] int64_t asked_bytes() const noexcept { return asked_bytes_; }

  /// Copies the pages to reserved pages of a file, and maps those over them. Throws OUT_OF_MEMORY, NOT_SUPPORTED; then
  /// nothing has changed.
  void share(int fd, int64_t offset);
  /// The pages are private again, with their contents.
  [[nodiscard]] os::Left take_back() noexcept;

  /// The place of memory in it, as in extent.hpp; kNotInReach: it has none.
  [[nodiscard]] int64_t place_of(const std::byte* data, int64_t bytes) const noexcept;
  /// What an operation that reaches into it keeps.
  [[nodiscard]] std::shared_ptr<const void> hold() const noexcept { return token_; }
  [[nodiscard]] bool is_held() const noexcept { return token_.use_count() > 1; }

 private:
  const std::byte* data_;
  int64_t asked_bytes_;
  os::FileWindow window_;
  std::unique_ptr<os::PrivateInForks> forks_;  // while it is shared
  std::shared_ptr<const int> token_;
};

/// By the first whole page.
using LentMap = std::map<const std::byte*, Lent>;

/// The entry that has any byte of these; NULL if none has.
[[nodiscard]] const Lent* find_lent(const LentMap& lent, const void* data, int64_t bytes) noexcept;

/// Does this process map any of [begin, end) of a file privately? It does of memory that was shared once.
[[nodiscard]] bool is_mapped_privately(const os::FileIdentity& file, int64_t begin, int64_t end);

}  // namespace ddp::shm
