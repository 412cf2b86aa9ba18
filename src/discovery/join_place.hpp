// SPDX-License-Identifier: Apache-2.0
// Where new ranks find an existing group: a file, the caller's store, or the address of a rendezvous tcp:// or
// env://.
//
// The current rank 0 writes its address to the file. Into a store each rank puts its own address, once, under its id,
// because a store is used only in ddp_group_create; new ranks try one after the other. At an address there is a signpost.
// Threads: one.
// Tested by capi/recovery_test.cpp and capi/join_places_test.cpp.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "control/control.hpp"
#include "control/server.hpp"
#include "core/error.hpp"
#include "ddp/group.h"
#include "discovery/rendezvous.hpp"

namespace ddp::bootstrap {

class JoinPlace {
 public:
  /// Nowhere: no rank can join.
  JoinPlace() = default;
  /// `path`: the value of DDP_JOIN_FILE, or NULL.
  JoinPlace(const Meeting& meeting, const ddp_group_options& options, const char* path);
  ~JoinPlace();
  JoinPlace(const JoinPlace&) = delete;
  JoinPlace& operator=(const JoinPlace&) = delete;

  [[nodiscard]] bool is_known() const noexcept { return kind_ != Kind::kNowhere; }
  /// Where a rank that is alone listens, so that new ranks reach it, from other hosts too if the rendezvous may be theirs.
  [[nodiscard]] std::string own_host() const;
  /// Of a rank that joins: it has met ranks with these records, and `record` is its own. If it has to join again, it looks
  /// there first. What goes wrong is logged.
  void introduce(const Control& control, const std::string& record, const std::vector<std::string>& records) noexcept;
  /// The group has these ranks now, and `record` is the place of this one, `record_of_rank_0` of rank 0. What goes wrong is
  /// logged.
  void tell(const Control& control, const std::string& record, const std::string& record_of_rank_0) noexcept;
  /// Gives, with each call, a record to try, or "".
  [[nodiscard]] std::function<std::string()> lookout() const;
  /// TIMED_OUT: in so long it never gave one.
  [[nodiscard]] Error nobody_there(int64_t ms) const;

 private:
  enum class Kind { kNowhere, kFile, kStore, kAddress };
  [[nodiscard]] bool is_at_address() const noexcept;
  [[nodiscard]] std::function<std::string()> lookout_at_place() const;
  void put_into_store(const Control& control, const std::string& record);
  void put_into_file(const std::string& record);
  void stand_at_address(const Control& control, const std::string& record_of_rank_0);

  Kind kind_ = Kind::kNowhere;
  Meeting meeting_;
  ddp_group_options options_{};
  std::optional<ddp_store> store_;
  std::string path_;       // of the file
  std::string published_;  // in it
  bool has_told_ = false;  // the store
  std::unique_ptr<Server> signpost_;
  std::vector<std::string> met_;  // records of ranks that this one has met as it joined
};

}  // namespace ddp::bootstrap
