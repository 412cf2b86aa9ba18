// SPDX-License-Identifier: Apache-2.0
#include "trace/program_numbers.hpp"

#include <sched.h>
#include <unistd.h>

#include <cstring>
#include <optional>
#include <utility>

namespace ddp::trace {
namespace {

/// Names are given to the slots in their order, so all threads find a name in the same slot.
bool is_slot_of(ProgramNumber& slot, std::string_view name) noexcept {
  const std::atomic_ref<int32_t> state(slot.state);
  int32_t seen = ProgramNumber::kFree;
  if (state.compare_exchange_strong(seen, ProgramNumber::kNaming, std::memory_order_acquire)) {
    name.copy(slot.name, sizeof slot.name - 1);
    state.store(ProgramNumber::kNamed, std::memory_order_release);
    return true;
  }
  while (state.load(std::memory_order_acquire) == ProgramNumber::kNaming) sched_yield();
  return name == slot.name;
}

}  // namespace

// It is never destroyed: a thread may log while the process ends.
ProgramNumbers& ProgramNumbers::instance() {
  static ProgramNumbers& numbers = *new ProgramNumbers();
  return numbers;
}

void ProgramNumbers::attach(const std::string& page_path) {
  const std::optional<LiveNumbers> page = read_live(page_path);
  if (!page || page->made.pid != getpid()) return;
  const std::lock_guard lock(making_);
  const Table* const before = tables_.empty() ? nullptr : tables_.back().get();
  if (before != nullptr && before->page.path() == page_path && before->made_at_ns == page->made.at_ns) return;
  auto table = std::make_unique<Table>();
  const int64_t at = live_tail_at(page->made.most_ranks);
  table->page = MappedFile::open(page_path, at + int64_t{sizeof(LiveTail)});
  table->made_at_ns = page->made.at_ns;
  table->slots = reinterpret_cast<LiveTail*>(table->page.data() + at)->numbers;
  for (size_t i = 0; before != nullptr && i < ProgramNumber::kMost && before->slots[i].state == ProgramNumber::kNamed; ++i) {
    const ProgramNumber& old = before->slots[i];
    (void)put_into(*table, old.name, old.value, old.times);
  }
  tables_.push_back(std::move(table));
  table_.store(tables_.back().get(), std::memory_order_release);
}

bool ProgramNumbers::is_name(std::string_view name) noexcept {
  constexpr std::string_view kAllowed = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-/:";
  return !name.empty() && name.size() < ProgramNumber::kNameBytes && name.find_first_not_of(kAllowed) == name.npos;
}

ProgramNumbers::Table& ProgramNumbers::table() {
  if (Table* const made = table_.load(std::memory_order_acquire)) return *made;
  const std::lock_guard lock(making_);
  if (tables_.empty()) {
    auto table = std::make_unique<Table>();
    table->own = std::make_unique<ProgramNumber[]>(ProgramNumber::kMost);
    table->slots = table->own.get();
    tables_.push_back(std::move(table));
    table_.store(tables_.back().get(), std::memory_order_release);
  }
  return *tables_.back();
}

bool ProgramNumbers::put_into(Table& table, std::string_view name, double value, int64_t times) noexcept {
  for (ProgramNumber* slot = table.slots; slot != table.slots + ProgramNumber::kMost; ++slot) {
    if (!is_slot_of(*slot, name)) continue;
    std::atomic_ref<double>(slot->value).store(value, std::memory_order_relaxed);
    std::atomic_ref<int64_t>(slot->times).fetch_add(times, std::memory_order_release);
    return true;
  }
  return false;
}

bool ProgramNumbers::log(std::string_view name, double value) {
  Table& now = table();
  if (now.own == nullptr && !now.page.is_ours()) return true;  // a fork writes nothing
  return put_into(now, name, value, 1);
}

}  // namespace ddp::trace
