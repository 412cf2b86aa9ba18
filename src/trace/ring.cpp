// SPDX-License-Identifier: Apache-2.0
#include "trace/ring.hpp"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <new>
#include <sstream>

#include "os/clock.hpp"
#include "trace/times.hpp"

namespace ddp::trace {
namespace {

uint64_t packed(const Event& event) noexcept {
  return static_cast<uint64_t>(event.kind) << 56 | uint64_t{event.model & 0xffffff} << 32 | event.number;
}

Event unpacked(const uint64_t (&words)[5]) noexcept {
  Event event;
  event.begin_ns = static_cast<int64_t>(words[0]);
  event.end_ns = static_cast<int64_t>(words[1]);
  event.kind = static_cast<EventKind>(words[2] >> 56);
  event.model = static_cast<uint32_t>(words[2] >> 32) & 0xffffff;
  event.number = static_cast<uint32_t>(words[2]);
  event.bytes = static_cast<int64_t>(words[3]);
  event.peer = static_cast<int32_t>(words[4] >> 32);
  event.pass = static_cast<uint32_t>(words[4]);
  return event;
}

void read_names(std::string_view text, Ring& ring) {
  std::istringstream lines{std::string(text)};
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    char kind = 0;
    uint32_t first = 0, second = 0;
    std::string name;
    words >> kind >> first;
    if (kind == 'p') words >> second;
    words.get();
    if (!std::getline(words, name)) continue;
    if (kind == 'p') ring.parameters[{first, second}] = name;
    if (kind == 'c') ring.calls[first] = name;
  }
}

void read_slots(std::string_view bytes, const RingHead& head, Ring& ring) {
  const auto capacity = static_cast<uint64_t>(head.capacity);
  const uint64_t used = std::min({head.head, capacity, uint64_t{bytes.size() / sizeof(Slot)}});
  ring.events.reserve(used);
  for (uint64_t at = 0; at < used; ++at) {
    uint64_t turn = 0, words[5] = {};
    std::memcpy(&turn, bytes.data() + at * sizeof(Slot), sizeof turn);
    std::memcpy(words, bytes.data() + at * sizeof(Slot) + sizeof turn, sizeof words);
    const Event event = unpacked(words);
    const bool whole = turn != 0 && turn % 2 == 0 && (turn / 2 - 1) % capacity == at && event.kind != EventKind::kNone &&
                       event.kind <= kLastEventKind && is_time(event.begin_ns) && is_time(event.end_ns) &&
                       event.begin_ns <= event.end_ns && is_amount(event.bytes);
    if (whole)
      ring.events.push_back(event);
    else
      ++ring.torn;
  }
  ring.lost = head.head > capacity ? head.head - capacity : 0;
  ring.lost += head.dropped;
}

}  // namespace

bool is_head(const RingHead& head) noexcept {
  return head.magic == RingHead::kMagic && head.version == RingHead::kVersion && head.head_bytes == sizeof head &&
         head.capacity >= 1 && head.capacity <= kMostEvents && head.name_bytes >= 0 &&
         head.name_bytes <= RingHead::kNameBytes;
}

std::vector<std::string> ring_files(const std::string& folder) {
  std::vector<std::string> paths;
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator(folder, ignored))
    if (entry.path().extension() == ".ring" && entry.is_regular_file(ignored)) paths.push_back(entry.path().string());
  return paths;
}

std::unique_ptr<Recorder> Recorder::make(const std::string& path, const Settings& settings) {
  MappedFile file = MappedFile::make(path, kSlotsAt + settings.capacity * int64_t{sizeof(Slot)});
  RingHead* const head = new (file.data()) RingHead();
  head->version = RingHead::kVersion;
  head->head_bytes = sizeof(RingHead);
  head->owner.pid = getpid();
  head->owner.rank = settings.rank;
  head->owner.size = settings.size;
  head->owner.start_ns = os::now_ns();
  head->owner.start_realtime_ns = os::realtime_ns();
  settings.host.copy(head->owner.host, sizeof head->owner.host - 1);
  settings.boot.copy(head->owner.boot, sizeof head->owner.boot - 1);
  head->capacity = settings.capacity;
  head->magic = RingHead::kMagic;
  file.show();
  return std::unique_ptr<Recorder>(new Recorder(std::move(file)));
}

Slot* Recorder::slots() const noexcept { return reinterpret_cast<Slot*>(file_.data() + kSlotsAt); }

// A slot is claimed for its turn, so that a writer that was slower than a whole round spoils nothing.
void Recorder::record(const Event& event) noexcept {
  RingHead& all = head();
  const uint64_t n = std::atomic_ref<uint64_t>(all.head).fetch_add(1, std::memory_order_relaxed);
  Slot& slot = slots()[n % static_cast<uint64_t>(all.capacity)];
  uint64_t turn = slot.turn.load(std::memory_order_relaxed);
  if (turn % 2 != 0 || turn > 2 * n || !slot.turn.compare_exchange_strong(turn, 2 * n + 1, std::memory_order_acquire)) {
    std::atomic_ref<uint64_t>(all.dropped).fetch_add(1, std::memory_order_relaxed);
    return;
  }
  const uint64_t words[5] = {static_cast<uint64_t>(event.begin_ns), static_cast<uint64_t>(event.end_ns), packed(event),
                             static_cast<uint64_t>(event.bytes),
                             uint64_t{static_cast<uint32_t>(event.peer)} << 32 | event.pass};
  for (size_t i = 0; i < 5; ++i) slot.words[i].store(words[i], std::memory_order_release);
  slot.turn.store(2 * n + 2, std::memory_order_release);
}

void Recorder::name(std::string_view line) noexcept {
  const std::lock_guard lock(naming_);
  std::atomic_ref<int64_t> used(head().name_bytes);
  const int64_t at = used.load(std::memory_order_relaxed), bytes = static_cast<int64_t>(line.size()) + 1;
  if (at + bytes > RingHead::kNameBytes) return;
  char* const place = reinterpret_cast<char*>(file_.data()) + sizeof(RingHead) + at;
  line.copy(place, line.size());
  std::replace(place, place + line.size(), '\n', ' ');
  place[line.size()] = '\n';
  used.store(at + bytes, std::memory_order_release);
}

void Recorder::note_gather(const GatherTimes& times) noexcept {
  const std::lock_guard lock(naming_);
  constexpr size_t kHalf = RingHead::kGathers / 2;
  const size_t n = head().gathers++;
  head().gather_times[n < kHalf ? n : kHalf + n % kHalf] = times;
}

void Recorder::end() noexcept { std::atomic_ref<int32_t>(head().owner.ended).store(1, std::memory_order_release); }

int64_t Recorder::size() const noexcept {
  const auto begun = static_cast<int64_t>(std::atomic_ref<uint64_t>(head().head).load(std::memory_order_relaxed));
  return kSlotsAt + std::min(begun, head().capacity) * static_cast<int64_t>(sizeof(Slot));
}

std::string Recorder::copy(int64_t bytes) const {
  constexpr size_t kWord = sizeof(uint64_t), kSlotWords = sizeof(Slot) / kWord;
  std::string copied(static_cast<size_t>(bytes), '\0');
  auto* const words = reinterpret_cast<uint64_t*>(file_.data());
  const auto word = [&](size_t at) { return std::atomic_ref<uint64_t>(words[at]).load(std::memory_order_acquire); };
  const auto put = [&](size_t at, uint64_t value) { std::memcpy(copied.data() + at * kWord, &value, kWord); };
  const std::lock_guard lock(naming_);
  const size_t slots_at = static_cast<size_t>(kSlotsAt) / kWord, end = copied.size() / kWord;
  for (size_t at = 0; at < slots_at; ++at) put(at, word(at));
  for (size_t at = slots_at; at + kSlotWords <= end; at += kSlotWords) {
    const uint64_t turn = word(at);
    for (size_t i = 1; i < kSlotWords; ++i) put(at + i, word(at + i));
    put(at, word(at) == turn ? turn : turn | 1);
  }
  return copied;
}

std::optional<Ring> read_ring(std::string_view bytes) {
  RingHead head;
  if (bytes.size() < static_cast<size_t>(kSlotsAt)) return std::nullopt;
  std::memcpy(static_cast<void*>(&head), bytes.data(), sizeof head);
  if (!is_head(head)) return std::nullopt;
  Ring ring;
  ring.owner = head.owner;
  ring.owner.host[sizeof ring.owner.host - 1] = ring.owner.boot[sizeof ring.owner.boot - 1] = '\0';
  for (const GatherTimes& times : head.gather_times)
    if (times.number != 0) ring.gathers.push_back(times);
  read_names(bytes.substr(sizeof head, static_cast<size_t>(head.name_bytes)), ring);
  read_slots(bytes.substr(static_cast<size_t>(kSlotsAt)), head, ring);
  std::stable_sort(ring.events.begin(), ring.events.end(), [](const Event& a, const Event& b) {
    return a.begin_ns != b.begin_ns ? a.begin_ns < b.begin_ns : a.end_ns > b.end_ns;
  });
  return ring;
}

std::string ring_path(const std::string& folder, int32_t number) {
  const std::string place = folder + "/rank-" + std::to_string(number) + "-" + std::to_string(getpid());
  std::string path = place + ".ring";
  std::error_code ignored;
  for (int next = 2; std::filesystem::exists(path, ignored); ++next) path = place + "-" + std::to_string(next) + ".ring";
  return path;
}

std::vector<Ring> read_rings(const std::string& folder) {
  std::vector<Ring> rings;
  for (const std::string& path : ring_files(folder)) {
    std::ostringstream bytes;
    bytes << std::ifstream(path, std::ios::binary).rdbuf();
    if (std::optional<Ring> ring = read_ring(bytes.str())) rings.push_back(std::move(*ring));
  }
  return rings;
}

std::vector<RingHead::Owner> read_owners(const std::string& folder) {
  std::vector<RingHead::Owner> owners;
  for (const std::string& path : ring_files(folder)) {
    RingHead head;
    std::ifstream file(path, std::ios::binary);
    if (!file.read(reinterpret_cast<char*>(&head), sizeof head) || !is_head(head)) continue;
    head.owner.host[sizeof head.owner.host - 1] = head.owner.boot[sizeof head.owner.boot - 1] = '\0';
    owners.push_back(head.owner);
  }
  return owners;
}

}  // namespace ddp::trace
