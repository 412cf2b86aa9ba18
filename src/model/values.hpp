// SPDX-License-Identifier: Apache-2.0
// What the parameters of a model hold: values of their own, only a part of a change that failed, or averages in their place.
// Threads: as Model.
// Tested by conformance/load_after_pass_test.cpp, conformance/load_test.cpp and unit/optim/ema_test.cpp.
#pragma once

#include <string>
#include <utility>

#include "core/attempt.hpp"

namespace ddp::model {

class Model;

class Values {
 public:
  explicit Values(const Model& model) noexcept : model_(model) {}

  // What reads or changes values calls one of these two first. They wait for values that come late (late_values.hpp), except
  // for an optimizer, which waits for its own.
  enum class Late { kAreAwaited, kMayCome };
  /// Throws INVALID_STATE if only a part of a change has reached the parameters or the optimizer. `function` names the
  /// caller in the text.
  void require_whole(const char* function, Late late = Late::kAreAwaited) const;
  [[nodiscard]] bool is_whole() const noexcept;
  /// Throws INVALID_STATE while averages stand in the place of the parameters; but not for `owner`.
  void require_own(const char* function, const void* owner = nullptr, Late late = Late::kAreAwaited) const;

  /// Averages of `owner` stand in the place of the parameters; NULL: no longer.
  void set_averages_of(const void* owner) noexcept { averages_of_ = owner; }
  [[nodiscard]] const void* averages_of() const noexcept { return averages_of_; }

  /// Values that were only partly changed, so that training cannot continue from them.
  struct Torn {
    bool parameters = false;
    bool optimizer = false;
    bool is_lost = false;  // with ranks that have died
  };
  /// Parameters and the optimizer's state are changed in part, for good.
  void tear() noexcept { torn_ = Torn{true, true}; }
  /// Lost ranks had a part of the optimizer's state.
  void lose_optimizer() noexcept { torn_ = Torn{false, true, true}; }
  /// Gives what the body gives, which changes parameters or buffers together with the other ranks. If the group breaks in
  /// it, this replica may be changed in part, and a recovery takes another one's.
  template <class Body>
  auto change_together(Body&& body) {
    return on_error<Error>(body, [this](const Error& error) { broke_off_ = broke_off_ || breaks_group(error.status()); });
  }
  /// A load begins to change parameters, and the optimizer's state if `optimizer`. Returns what was torn before.
  [[nodiscard]] Torn begin_load(bool optimizer) noexcept;
  /// It has changed all that it brings; `torn`: what is still torn.
  void end_load(const Torn& torn) noexcept;
  /// A checkpoint with the optimizer was saved or loaded: errors that ask for one name it.
  void know_file(std::string path) noexcept { newest_file_ = std::move(path); }

 private:
  const Model& model_;
  Torn torn_;
  bool broke_off_ = false;  // a change of all ranks, with the group
  const void* averages_of_ = nullptr;
  std::string newest_file_;  // "": none is known
};

}  // namespace ddp::model
