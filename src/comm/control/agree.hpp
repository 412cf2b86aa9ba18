// One rank's problem becomes the answer of all: each does its part, keeps what went wrong, and all throw the same or nobody does.
// Tested by process/.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "base/bytes.hpp"
#include "comm/control/control.hpp"

namespace ddp {

/// What `body` threw, if it threw an Error.
template <class Body>
[[nodiscard]] std::optional<Error> try_to(Body&& body) {
  try {
    body();
  } catch (const Error& error) {
    return error;
  }
  return std::nullopt;
}

/// Collective over `control`. Throws the error of the first rank that has one.
inline void agree(Control& control, std::string_view what, const std::optional<Error>& mine, Deadline deadline) {
  ByteWriter said;
  said.number(static_cast<int32_t>(mine ? mine->status() : DDP_OK)).text(mine ? mine->text() : std::string());
  for (const std::string& answer : control.gather(what, said.bytes(), deadline)) {
    ByteReader reader(answer);
    const auto status = static_cast<ddp_status>(reader.number<int32_t>());
    if (status != DDP_OK) throw Error(status, std::string(reader.text()));
  }
}

}  // namespace ddp
