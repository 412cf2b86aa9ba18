// One rank's problem becomes the answer of all: each does its part, keeps what went wrong, and all throw the same or nobody
// does.
// Tested by process/.
#pragma once

#include <exception>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "bootstrap/control/control.hpp"
#include "core/bytes.hpp"

namespace ddp::bootstrap {

/// What `body` threw, a lack of memory, threads or descriptors too.
template <class Body>
[[nodiscard]] std::optional<Error> try_to(Body&& body) {
  try {
    body();
  } catch (const std::exception& thrown) {
    return to_error(thrown);
  }
  return std::nullopt;
}

/// What a rank tells the others, and what all make of it: each throws the error of the first rank that has one,
/// a lack of memory before others.
[[nodiscard]] inline std::string outcome_bytes(const Error* mine) {
  ByteWriter said;
  said.number(static_cast<int32_t>(mine != nullptr ? mine->status() : DDP_OK))
      .text(mine != nullptr ? mine->text() : std::string());
  return std::move(said).bytes();
}
inline void throw_first(const std::vector<std::string>& outcomes) {
  std::optional<Error> first;
  for (const std::string& outcome : outcomes) {
    ByteReader reader(outcome);
    const auto status = static_cast<ddp_status>(reader.number<int32_t>());
    const bool is_cause = status == DDP_ERROR_OUT_OF_MEMORY;  // what the others report is often what came of it
    if (status == DDP_OK || (first && (!is_cause || first->status() == status))) continue;
    first = Error(status, std::string(reader.text())).as_agreed();
  }
  if (first) throw Error(*first);
}

/// Collective over `control`. Throws the error of the first rank that has one.
inline void agree(Control& control, std::string_view what, const std::optional<Error>& mine, os::Deadline deadline) {
  throw_first(control.gather(what, outcome_bytes(mine ? &*mine : nullptr), deadline));
}

}  // namespace ddp::bootstrap
