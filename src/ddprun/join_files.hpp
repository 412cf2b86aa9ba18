// SPDX-License-Identifier: Apache-2.0
// The folder in which ranks that join find the others (DDP_JOIN_FILE), on one of several machines: what ranks write there
// goes to the other machines, and the other way round. One thread.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "os/clock.hpp"

namespace ddp::ddprun {

class JoinFiles {
 public:
  /// "": no folder, and nothing happens.
  explicit JoinFiles(std::string folder) : folder_(std::move(folder)) {}

  /// Names and contents that have changed here; looks at most five times a second.
  [[nodiscard]] std::vector<std::pair<std::string, std::string>> changed();
  /// Content from elsewhere. What cannot be written is left out: ranks that join then wait for the next one.
  void put(const std::string& name, const std::string& bytes);
  [[nodiscard]] int64_t due_ms() const noexcept;

 private:
  std::string folder_;
  std::map<std::string, std::string> known_;  // name to content
  os::Deadline next_ = os::Deadline::in_ms(1);
};

}  // namespace ddp::ddprun
