// SPDX-License-Identifier: Apache-2.0
#include "pass/incomplete_pass.hpp"

#include <set>

#include "core/bytes.hpp"

namespace ddp::pass {
namespace {

MissingGradients unpack(std::string_view bytes) {
  ByteReader reader(bytes);
  MissingGradients theirs;
  theirs.missing = reader.number<int32_t>();
  theirs.reason = reader.text();
  theirs.virtual_rank = reader.number<int32_t>();
  theirs.indices = read_list(reader);
  while (!reader.at_end()) theirs.names.emplace_back(reader.text());
  return theirs;
}

std::string pack(const MissingGradients& mine) {
  ByteWriter writer;
  writer.number(mine.missing).text(mine.reason).number(mine.virtual_rank);
  write_list(writer, mine.indices);
  for (const std::string& name : mine.names) writer.text(name);
  return std::move(writer).bytes();
}

}  // namespace

std::string names_of(const MissingGradients& theirs) {
  std::string text;
  for (const std::string& name : theirs.names) text += (text.empty() ? "\"" : ", \"") + name + "\"";
  const auto unnamed = static_cast<size_t>(theirs.missing) - theirs.names.size();
  return unnamed > 0 ? text + " and " + std::to_string(unnamed) + " more" : text;
}

ErrorDetails details_of(const MissingGradients& mine, int32_t rank) { return {.ranks = {rank}, .parameters = mine.indices}; }

void report_void_pass(const collective::Ranks& ranks, const Parameters& table, MissingGradients mine) {
  mine.indices = table.positions_of(mine.indices);
  std::string text;
  bool marks = false;
  ErrorDetails details;
  std::set<int32_t> unmarked;
  const std::vector<std::string> all = ranks.gather("missing gradients", pack(mine));
  for (size_t rank = 0; rank < all.size(); ++rank) {
    const MissingGradients theirs = unpack(all[rank]);
    unmarked.insert(theirs.indices.begin(), theirs.indices.end());
    if (theirs.missing > 0 || !theirs.reason.empty()) details.ranks.push_back(static_cast<int32_t>(rank));
    const char* const separator = text.empty() ? "" : "; ";
    const std::string part = theirs.virtual_rank < 0 ? "" : " (virtual rank " + std::to_string(theirs.virtual_rank) + ")";
    if (!theirs.reason.empty()) {
      text += separator + ranks.name_of(static_cast<int32_t>(rank)) + part + " abandoned the pass: " + theirs.reason;
    } else if (theirs.missing > 0) {
      text += separator + ("rank " + std::to_string(rank)) + part + " did not mark " + names_of(theirs);
      marks = true;
    }
  }
  details.parameters = table.indices_at({unmarked.begin(), unmarked.end()});
  throw Error(DDP_ERROR_INVALID_STATE,
              "ddp_model_end_backward: " + text +
                  (marks ? "; mark every parameter in every pass, or set the model option unused = DDP_UNUSED_ALLOW"
                         : "; the gradients of this pass are undefined, and the group goes on"))
      .with(std::move(details));
}

}  // namespace ddp::pass
