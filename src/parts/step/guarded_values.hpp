// SPDX-License-Identifier: Apache-2.0
// For debugging (DDP_GUARD_VALUES=1): a program that uses a value before it has waited for it faults. Gathers receive into
// memory of the library. From the step to the wait for a parameter its pages have no access; the wait gives the access back
// and copies.
// Left out are pages that a parameter does not fill, so parameters below two pages; with a protection that the system
// refuses, the rest too (logged). System calls get EFAULT there, and a fork inherits the pages as they are.
// Costs: the values once more, and two copies.
// Threads: one at a time.
// Tested by conformance/guarded_values_test.cpp.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "core/parameters.hpp"
#include "core/plan.hpp"
#include "exchange/transport.hpp"
#include "os/memory.hpp"

namespace ddp::parts {

class GuardedValues {
 public:
  [[nodiscard]] static bool are_wanted() noexcept;

  /// Both live longer. Throws OUT_OF_MEMORY.
  GuardedValues(const Parameters& table, const Plan& plan);
  ~GuardedValues() { give_up(); }
  GuardedValues(const GuardedValues&) = delete;
  GuardedValues& operator=(const GuardedValues&) = delete;

  /// The gather of a bucket takes the other memory.
  void divert(size_t bucket, collective::ExchangeSpec& gather) const noexcept;
  /// Gathers begin: from now on there is no access to the parameters that they give.
  void close(const std::function<bool(int32_t parameter)>& given);
  /// The gathers of a parameter have ended, or all have: it gets its value.
  void open(int32_t index) noexcept;
  void open_all() noexcept;
  /// Access to everything. A value that was not opened keeps its former value.
  void give_up() noexcept;

 private:
  struct Piece {
    size_t bucket = 0;
    size_t place = 0;  // in the bucket
    std::byte* value = nullptr;
    std::byte* copy = nullptr;
    size_t bytes = 0;
  };
  void unlock(int32_t index) noexcept;

  const Parameters& table_;
  os::LargeArray memory_;
  std::vector<std::vector<Piece>> pieces_;  // by parameter
  std::vector<bool> closed_;                // by parameter
  bool complained_ = false;
};

}  // namespace ddp::parts
