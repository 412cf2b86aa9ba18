// SPDX-License-Identifier: Apache-2.0
// Letters to other ranks, and from them until somebody reads them. What comes before there is a reader waits for one:
// another rank may have formed its group a moment earlier. Threads: any. Tested by unit/bootstrap/letters_test.cpp.
#pragma once

#include <cstdint>
#include <functional>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/error.hpp"

namespace ddp::bootstrap {

class Letters {
 public:
  using Reader = std::function<void(int32_t from, const std::string& text)>;
  using Carrier = std::function<void(int32_t to, std::string_view text)>;

  /// Once, by the control plane that has them.
  void set_carrier(Carrier carrier) { carrier_ = std::move(carrier); }
  void write(int32_t to, std::string_view text) const {
    if (!carrier_) throw Error(DDP_ERROR_INTERNAL, "this control plane carries no letters");
    carrier_(to, text);
  }

  void set_reader(Reader reader) {
    const std::lock_guard lock(mutex_);
    reader_ = std::move(reader);
    for (const auto& [from, text] : std::exchange(waiting_, {}))
      if (reader_) reader_(from, text);
  }

  /// A letter beyond kMostWaiting is dropped: no rank that works as it should writes so many.
  void deliver(int32_t from, const std::string& text) {
    const std::lock_guard lock(mutex_);
    if (reader_)
      reader_(from, text);
    else if (waiting_.size() < kMostWaiting)
      waiting_.emplace_back(from, text);
  }

 private:
  static constexpr size_t kMostWaiting = 65'536;

  Carrier carrier_;
  std::mutex mutex_;  // guards what follows, and held while the reader runs
  Reader reader_;
  std::vector<std::pair<int32_t, std::string>> waiting_;
};

}  // namespace ddp::bootstrap
