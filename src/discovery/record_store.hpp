// SPDX-License-Identifier: Apache-2.0
// A record with the address of rank 0, for ways to meet that have no fixed address: a file, or the caller's store.
//
// The record carries a random word that only this start's rank 0 shows in its banner, so that a record left behind by an
// earlier run leads nowhere. If the user gave no token it holds one as well: a process that can read the record may join.
// Records in files can be read by their owner only. Tested by unit/discovery/rendezvous_token_test.cpp and
// process/rendezvous_test.cpp.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "discovery/rendezvous.hpp"
#include "os/clock.hpp"

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

/// Where records are put. Used by the thread that meets.
class RecordStore {
 public:
  virtual ~RecordStore() = default;
  virtual void put(const std::string& record) = 0;
  /// The record that is there, or "" after at most about `wait_ms`.
  [[nodiscard]] virtual std::string get(int64_t wait_ms) = 0;
  /// Take our own record away again, if it is still there and that is possible.
  virtual void remove(const std::string& record) noexcept = 0;
};

/// Throws IO naming the path, CALLBACK for a store that fails.
[[nodiscard]] std::unique_ptr<RecordStore> open_file_board(const std::string& path);
[[nodiscard]] std::unique_ptr<RecordStore> open_board(const Meeting& meeting, const ddp_group_options& options);
/// In the caller's store: of the rank with this id, for ranks that are new.
[[nodiscard]] std::unique_ptr<RecordStore> open_join_board(const Meeting& meeting, const ddp_group_options& options,
                                                           int32_t id);

}  // namespace ddp::bootstrap
