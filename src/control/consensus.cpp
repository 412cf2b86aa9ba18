// SPDX-License-Identifier: Apache-2.0
#include "control/consensus.hpp"

#include "core/bytes.hpp"
#include "core/error_bytes.hpp"

namespace ddp::bootstrap {
namespace {

/// "out of memory" alone would leave it open of which rank; a text that begins with a rank says it.
Error of_rank(const Control& control, int32_t rank, const Error& told) {
  Error named = told;
  if (told.status() == DDP_ERROR_OUT_OF_MEMORY && told.text().rfind("rank ", 0) != 0)
    static_cast<void>(try_to([&] { named = told.retold(told.status(), control.member(rank).name() + ": " + told.text()); }));
  return named.about(rank);
}

}  // namespace

std::string outcome_bytes(const Error* mine, std::string_view brought) {
  ByteWriter said;
  said.number(static_cast<int32_t>(mine != nullptr ? mine->status() : DDP_OK))
      .text(mine != nullptr ? mine->text() : std::string());
  write_details(said, mine != nullptr ? *mine : Error());
  return std::move(said).bytes().append(brought);
}

std::vector<std::string> read_outcomes(const Control& control, const std::vector<std::string>& outcomes) {
  std::vector<std::string> brought;
  std::optional<Error> first;
  int32_t rank = -1;
  for (const std::string& outcome : outcomes) {
    ++rank;
    ByteReader reader(outcome);
    const auto status = static_cast<ddp_status>(reader.number<int32_t>());
    const std::string_view text = reader.text();
    const Error told = read_details(reader, Error(status, std::string(text)));
    brought.emplace_back(reader.rest());
    const bool is_cause = status == DDP_ERROR_OUT_OF_MEMORY;  // what the others report is often what came of it
    if (status == DDP_OK || (first && (!is_cause || first->status() == status))) continue;
    first = of_rank(control, rank, told).as_agreed();
  }
  if (first) throw Error(*first);
  return brought;
}

}  // namespace ddp::bootstrap
