// SPDX-License-Identifier: Apache-2.0
// What the launcher asks the machine: how many cores, a free port, random bytes, whether memory ran out.
// Linux files that may be absent are read as "unknown", never as an error.
#pragma once

#include <cstdint>
#include <string>

#include "ddprun/run.hpp"

namespace ddp::ddprun {

/// Cores this process may use: its affinity mask, cut to the CPU quota of its container. At least 1.
[[nodiscard]] int32_t usable_cores();

[[nodiscard]] NamedHost this_machine();

/// The first line of a file; empty if it cannot be read.
[[nodiscard]] std::string first_line(const std::string& path);

/// A TCP port on which nothing listens. It is not reserved: rank 0 binds it a moment later. The port is below the range from
/// which the kernel takes ports for outgoing connections, so no other program gets it by accident meanwhile.
[[nodiscard]] int32_t find_free_port();

/// 32 bytes from the kernel as 64 hexadecimal digits.
[[nodiscard]] std::string make_token();

/// How often the kernel's out-of-memory killer has struck, in our container if that is known, else on the machine; -1:
/// unknown.
[[nodiscard]] int64_t count_oom_kills();

}  // namespace ddp::ddprun
