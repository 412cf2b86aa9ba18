// SPDX-License-Identifier: Apache-2.0
// A store for store:// as a program may have one.
#pragma once

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <string>
#include <thread>
#include <utility>

namespace ddp::test {

/// A file for each key, in a folder.
struct FolderStore {
  explicit FolderStore(std::string of) : folder(std::move(of)) {}
  [[nodiscard]] std::string path(const char* key) const {
    std::string name = key;
    std::replace(name.begin(), name.end(), '/', '_');
    return folder + "/" + name;
  }
  static int32_t set(void* self, const char* key, const void* value, int64_t bytes) {
    const std::string path = static_cast<FolderStore*>(self)->path(key), beside = path + "." + std::to_string(getpid());
    std::ofstream(beside, std::ios::binary).write(static_cast<const char*>(value), bytes);
    return std::rename(beside.c_str(), path.c_str());
  }
  static int32_t get(void* self, const char* key, void* value, int64_t capacity, int64_t timeout_ms, int64_t* out_bytes) {
    const auto until = std::chrono::steady_clock::now() + std::chrono::milliseconds(timeout_ms);
    do {
      std::ifstream file(static_cast<FolderStore*>(self)->path(key), std::ios::binary);
      const std::string text{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
      if (file.is_open() && static_cast<int64_t>(text.size()) <= capacity) {
        std::copy(text.begin(), text.end(), static_cast<char*>(value));
        *out_bytes = static_cast<int64_t>(text.size());
        return 0;
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    } while (std::chrono::steady_clock::now() < until);
    return 1;
  }
  std::string folder;
};

}  // namespace ddp::test
