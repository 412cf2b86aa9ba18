// SPDX-License-Identifier: Apache-2.0
// Who this process is, as the others will name it.
// Tested by unit/control/local_hub_test.cpp.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "control/control.hpp"

namespace ddp::bootstrap {

/// Host name, boot id and process id of here; no address yet. For tests of several hosts on one machine: processes with
/// different values of the environment variable DDP_TEST_HOST count as being on different hosts; of a list with commas each
/// rank has its entry. It is read here and nowhere else.
[[nodiscard]] Member this_member(int32_t rank);

/// What names a host also after it has started again.
[[nodiscard]] std::string lasting_host(std::string_view host, std::string_view boot_id);

}  // namespace ddp::bootstrap
