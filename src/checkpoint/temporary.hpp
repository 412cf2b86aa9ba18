// SPDX-License-Identifier: Apache-2.0
// The temporary files that saves write before they rename them: their names, and removing those whose owner is dead.
//
// The temporary file of NAME is `.NAME.ddp-PID-RANDOM.tmp`. Its owner holds a lock (flock) on it; the next save removes
// those whose lock is free, because their owners are dead. A lock, not the process number, decides: it also tells the truth
// across containers and reboots.
// Any thread.
// Tested by unit/checkpoint/durable_test.cpp and unit/checkpoint/folder_test.cpp.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace ddp::checkpoint {

/// 64 bits from the system, as 16 hexadecimal digits.
[[nodiscard]] std::string random_digits();

/// A new one for the target `base`, the last part of a path.
[[nodiscard]] std::string temporary_name(const std::string& base);

/// Is `name` a temporary file of `base`? Exactly, so that those of other targets stay.
[[nodiscard]] bool is_temporary_of(std::string_view name, const std::string& base);

/// All names in a folder; nothing, and errno, if it can not be listed.
[[nodiscard]] std::optional<std::vector<std::string>> names_in(int folder);

/// Removes the temporary files of a folder that `belongs` accepts and whose owner is dead. `beside` is for the log.
void sweep_temporaries(int folder, const std::function<bool(const std::string& name)>& belongs, const std::string& beside);

}  // namespace ddp::checkpoint
