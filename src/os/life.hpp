// SPDX-License-Identifier: Apache-2.0
// Has another process of this host ended? The answer comes from the kernel, the only reliable source: a port may be taken by
// another program, and a process number given to another process. Threads: any. Cost: a system call while the process is
// there, and a short file of /proc. Tested by unit/os/life_test.cpp.
#pragma once

#include <cstdint>
#include <string>

namespace ddp::os {

/// A process, like no other on any host: when its kernel started, its process namespace, its number there, and when it
/// began.
/// "" where the kernel does not say.
[[nodiscard]] std::string this_life();
/// Of a child, until it has been waited for.
[[nodiscard]] std::string life_of(int64_t pid);

/// Could has_ended() see it from here?
[[nodiscard]] bool is_visible(const std::string& life);
/// Of another process of this host, by its life: it runs no code of its program any more, though its memory and ports
/// may not all be free yet. False also where that is not to be seen from here.
[[nodiscard]] bool has_ended(const std::string& life);

}  // namespace ddp::os
