// SPDX-License-Identifier: Apache-2.0
// JSON as ddprun writes it: fields keep their order.
#pragma once

#include <nlohmann/json.hpp>

namespace ddp::ddprun {

using Json = nlohmann::ordered_json;

}  // namespace ddp::ddprun
