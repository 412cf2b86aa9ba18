// SPDX-License-Identifier: Apache-2.0
// A folder that is removed with its owner.
#pragma once

#include <filesystem>
#include <string>
#include <utility>

namespace ddp::ddprun {

class OwnFolder {
 public:
  OwnFolder() = default;  // none
  explicit OwnFolder(std::string path) noexcept : path_(std::move(path)) {}
  ~OwnFolder() { remove(); }
  OwnFolder(OwnFolder&& other) noexcept : path_(std::exchange(other.path_, "")) {}
  OwnFolder& operator=(OwnFolder&& other) noexcept {
    path_.swap(other.path_);
    return *this;
  }

  /// "": no folder.
  [[nodiscard]] const std::string& path() const noexcept { return path_; }
  void remove() noexcept {
    std::error_code ignored;
    if (!path_.empty()) std::filesystem::remove_all(path_, ignored);
    path_.clear();
  }

 private:
  std::string path_;
};

}  // namespace ddp::ddprun
