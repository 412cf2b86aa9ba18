// SPDX-License-Identifier: Apache-2.0
// A record with the address of rank 0, and the places for it of ways to meet that have no fixed address: a file, or the
// caller's store.
//
// The record carries a random word that only this start's rank 0 shows in its banner, so that a record left behind by an
// earlier run leads nowhere. If the user gave no token it holds one as well: a process that can read the record may join.
// Records in files can be read by their owner only. Tested by unit/discovery/rendezvous_token_test.cpp and
// process/rendezvous_test.cpp.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "discovery/rendezvous.hpp"

namespace ddp::bootstrap {

struct Record {
  std::string address;  // "10.0.0.1:40123"
  std::string word;
  std::string token;  // "" if the user's holds
  std::string host;   // of rank 0
  std::string boot_id;
  std::string life{};  // of the process, as os::this_life() gives it; "" if it is not known
};

[[nodiscard]] std::string write_record(const Record& record);
/// Nothing if this is no record.
[[nodiscard]] std::optional<Record> read_record(std::string_view text);

/// Where a record is put and looked for. Used by the thread that meets. Throws IO naming the path, CALLBACK for a store that
/// fails.
class Place {
 public:
  [[nodiscard]] static Place file(std::string path) { return Place(std::nullopt, std::move(path)); }
  /// Where the ranks of the meeting find rank 0.
  [[nodiscard]] static Place of(const Meeting& meeting, const ddp_group_options& options);
  /// In the caller's store: of the rank with this id, for ranks that are new.
  [[nodiscard]] static Place of_rank(const Meeting& meeting, const ddp_group_options& options, int32_t id);

  void publish(const std::string& record) const;
  /// The record that is there, or "" after at most about `wait_ms`.
  [[nodiscard]] std::string find(int64_t wait_ms) const;
  /// Take our own record away again, if it is still there and that is possible.
  void withdraw(const std::string& record) const noexcept;

 private:
  Place(std::optional<ddp_store> store, std::string name) : store_(store), name_(std::move(name)) {}

  std::optional<ddp_store> store_;  // nothing: a file
  std::string name_;                // its path, or the key
};

}  // namespace ddp::bootstrap
