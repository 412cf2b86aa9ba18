// SPDX-License-Identifier: Apache-2.0
// A launcher notes which processes of a job have ended, for ranks on other hosts, which cannot see it: files in a folder
// that belongs to one user alone. The launcher brings them from host to host. Threads: any. Cost of a look: two system
// calls. Tested by unit/os/life_test.cpp and process/ddprun_sshd_restart_test.sh.
#pragma once

#include <string>

namespace ddp::os {

/// The name of the file about this process (life.hpp), whose content is the life; no file has it for "".
[[nodiscard]] std::string end_note_name(const std::string& life);

/// False also if another user could have written it.
[[nodiscard]] bool has_end_note(const std::string& folder, const std::string& life);

}  // namespace ddp::os
