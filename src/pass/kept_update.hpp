// SPDX-License-Identifier: Apache-2.0
// An optimizer (BlockUpdate) whose parts outlive their ranks. It is one of these too.
// Threads: as Pass.
// Tested by capi/kept_copy_test.cpp.
#pragma once

namespace ddp::pass {

class KeptUpdate {
 public:
  virtual ~KeptUpdate() = default;
  /// Are its parts kept? Then all values come from their owners once more after a recovery, so it does not matter which ones
  /// a step that failed has given.
  [[nodiscard]] virtual bool keeps_parts() const noexcept = 0;
  /// The exchanges of its steps are prepared, and no block has changed yet. Collective.
  virtual void exchanges_are_prepared() = 0;
};

}  // namespace ddp::pass
