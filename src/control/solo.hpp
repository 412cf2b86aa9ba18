// SPDX-License-Identifier: Apache-2.0
// The control plane of a group of one: opens nothing, never waits, never fails.
// Tested by unit/control/local_hub_test.cpp.
#pragma once

#include <memory>

#include "control/control.hpp"

namespace ddp::bootstrap {

[[nodiscard]] std::unique_ptr<Control> make_solo_control();

}  // namespace ddp::bootstrap
