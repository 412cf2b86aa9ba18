// A note with which rank 0 says where it is, for ways to meet that have no fixed address: a file, or the caller's store.
//
// The note carries a random word that only this start's rank 0 shows in its banner, so that a note left behind by an earlier
// run leads nowhere. If the user gave no token it carries one as well: whoever can read the note may join. Notes in files
// can be read by their owner only.
// Tested by unit/bootstrap/rendezvous_token_test.cpp and process/rendezvous_test.cpp.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "bootstrap/rendezvous/rendezvous.hpp"
#include "os/clock.hpp"

namespace ddp::bootstrap {

struct PostedNote {
  std::string address;  // "10.0.0.1:40123"
  std::string word;
  std::string token;  // "" if the user's holds
  std::string host;   // of rank 0
  std::string boot_id;
};

[[nodiscard]] std::string write_note(const PostedNote& note);
/// Nothing if this is no note.
[[nodiscard]] std::optional<PostedNote> read_note(std::string_view text);

/// Where notes are put. Used by the thread that meets.
class RecordStore {
 public:
  virtual ~RecordStore() = default;
  virtual void put(const std::string& note) = 0;
  /// The note that is there, or "" after at most about `wait_ms`.
  [[nodiscard]] virtual std::string get(int64_t wait_ms) = 0;
  /// Take our own note away again, if it is still there and that is possible.
  virtual void remove(const std::string& note) noexcept = 0;
};

/// Throws IO naming the path, CALLBACK for a store that fails.
[[nodiscard]] std::unique_ptr<RecordStore> open_board(const Meeting& meeting, const ddp_group_options& options);

}  // namespace ddp::bootstrap
