// SPDX-License-Identifier: Apache-2.0
#include "support/fake_gpu/races.hpp"

#include <utility>

namespace ddp::test::fake_gpu {

struct Races::Current {
  const Clock& clock;
  Touch touch;
  std::map<std::string, std::string> found;  // by the earlier operation: one sentence each

  void compare(const Touch& earlier, const char* this_one, const char* that_one) {
    if (earlier.time == 0 || earlier.actor == touch.actor || earlier.time <= clock.at(earlier.actor)) return;
    found.try_emplace(*earlier.name, "race: " + *touch.name + " " + this_one + " bytes that " + *earlier.name + " " +
                                         that_one + ", and nothing orders the two");
  }
};

/// The first cell at or behind `at`; a cell around it is divided there.
Races::Cells::iterator Races::cut(uintptr_t at) {
  auto next = cells_.lower_bound(at);
  if (next == cells_.begin()) return next;
  const auto before = std::prev(next);
  if (before->second.end <= at) return next;
  Cell behind = before->second;
  before->second.end = at;
  return cells_.emplace_hint(next, at, std::move(behind));
}

void Races::read(const Access& access, Current& current) {
  const uintptr_t end = access.begin + static_cast<uintptr_t>(access.bytes);
  cut(end);
  auto cell = cut(access.begin);
  for (uintptr_t at = access.begin; at < end; at = cell->second.end, ++cell) {
    if (cell == cells_.end() || cell->first > at) {  // never touched so far
      const uintptr_t until = cell == cells_.end() || cell->first > end ? end : cell->first;
      cell = cells_.emplace_hint(cell, at, Cell{until, {}, {}});
    }
    Cell& bytes = cell->second;
    current.compare(bytes.writer, "reads", "writes");
    std::erase_if(bytes.readers, [&](const Touch& reader) { return reader.actor == current.touch.actor; });
    bytes.readers.push_back(current.touch);
  }
}

void Races::write(const Access& access, Current& current) {
  const uintptr_t end = access.begin + static_cast<uintptr_t>(access.bytes);
  cut(end);
  const auto first = cut(access.begin), behind = cells_.lower_bound(end);
  for (auto cell = first; cell != behind; ++cell) {
    current.compare(cell->second.writer, "writes", "writes");
    for (const Touch& reader : cell->second.readers) current.compare(reader, "writes", "reads");
  }
  cells_.erase(first, behind);
  cells_[access.begin] = Cell{end, current.touch, {}};
}

std::vector<std::string> Races::touch(const std::vector<Access>& accesses, size_t actor, const Clock& clock,
                                      const std::string& name) {
  Current current{clock, Touch{actor, clock.at(actor), std::make_shared<const std::string>(name)}, {}};
  for (const bool writes : {false, true})
    for (const Access& access : accesses)
      if (access.writes == writes && access.bytes > 0) writes ? write(access, current) : read(access, current);
  std::vector<std::string> sentences;
  for (const auto& [earlier, sentence] : current.found) sentences.push_back(sentence);
  return sentences;
}

void Races::forget(uintptr_t begin, int64_t bytes) {
  cut(begin + static_cast<uintptr_t>(bytes));
  const auto first = cut(begin);
  cells_.erase(first, cells_.lower_bound(begin + static_cast<uintptr_t>(bytes)));
}

}  // namespace ddp::test::fake_gpu
