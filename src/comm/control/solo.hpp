// The control plane of a group of one: opens nothing, waits for nobody, never fails.
// Tested by unit/comm/local_hub_test.cpp.
#pragma once

#include <memory>

#include "comm/control/control.hpp"

namespace ddp {

[[nodiscard]] std::unique_ptr<Control> make_solo_control();

}  // namespace ddp
