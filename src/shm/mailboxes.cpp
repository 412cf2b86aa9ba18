// SPDX-License-Identifier: Apache-2.0
#include "shm/mailboxes.hpp"

#include <algorithm>
#include <cstring>
#include <new>
#include <utility>

namespace ddp::shm {
namespace {

/// In steps of kStep at most, none over the ring's end: copy(where in the ring, how far, bytes).
template <class Copy>
void in_steps(uint64_t at, uint64_t count, const Copy& copy) noexcept {
  for (uint64_t done = 0; done < count;) {
    const uint64_t place = (at + done) % Ring::kBytes;
    const uint64_t step = std::min({count - done, Ring::kStep, Ring::kBytes - place});
    copy(place, done, step);
    done += step;
  }
}

}  // namespace

size_t Ring::write(const std::byte* from, size_t count) noexcept {
  const uint64_t at = written.load(std::memory_order_relaxed);
  const uint64_t room = std::min<uint64_t>(count, kBytes - (at - read.load(std::memory_order_acquire)));
  in_steps(at, room, [&](uint64_t place, uint64_t done, uint64_t step) {
    std::memcpy(data + place, from + done, step);
    written.store(at + done + step);
  });
  return room;
}

size_t Ring::take(std::byte* to, size_t count) noexcept {
  const uint64_t at = read.load(std::memory_order_relaxed);
  const uint64_t there = std::min<uint64_t>(count, written.load(std::memory_order_acquire) - at);
  in_steps(at, there, [&](uint64_t place, uint64_t done, uint64_t step) {
    std::memcpy(to + done, data + place, step);
    read.store(at + done + step);
  });
  return there;
}

Mailboxes::Mailboxes(Mesh mesh, const std::vector<int32_t>& ranks, int32_t size)
    : mesh_(std::move(mesh)), bell_(bell_of(mesh_.rank)), peers_(static_cast<size_t>(size)) {
  for (size_t local = 0; local < ranks.size(); ++local) peer(ranks[local]).local = static_cast<int32_t>(local);
}

Mailboxes::Table* Mailboxes::own_table() {
  Page& page = mesh_.first_page(mesh_.rank);
  if (page.outbox.load() == 0) {
    const auto places = static_cast<size_t>(mesh_.size);
    void* const memory = mesh_.own->alloc_for_transport(static_cast<int64_t>(places * sizeof(Table)));
    for (size_t local = 0; local < places; ++local) new (static_cast<Table*>(memory) + local) Table(0);
    page.outbox.store(mesh_.own->offset_of(memory, static_cast<int64_t>(places * sizeof(Table))));
  }
  return reinterpret_cast<Table*>(mesh_.base(mesh_.rank) + page.outbox.load());
}

void Mailboxes::open(int32_t rank) {
  Peer& to = peer(rank);
  if (to.out != nullptr) return;
  Table* const table = own_table();
  void* const memory = mesh_.own->alloc_for_transport(sizeof(Ring));
  to.out = new (memory) Ring;
  table[to.local].store(mesh_.own->offset_of(memory, sizeof(Ring)));
  mesh_.first_page(to.local).opened.fetch_add(1);
}

size_t Mailboxes::write(int32_t rank, messages::Bytes first, messages::Bytes second) {
  const Peer& to = peer(rank);
  if (to.out == nullptr) return 0;
  size_t sent = to.out->write(first.data, first.count);
  if (sent == first.count && second.count > 0) sent += to.out->write(second.data, second.count);
  if (sent > 0) bell_of(to.local).ring();
  return sent;
}

size_t Mailboxes::read(int32_t rank, std::byte* data, size_t count) {
  const Peer& from = peer(rank);
  const size_t got = from.in->take(data, count);
  if (got > 0) bell_of(from.local).ring();  // there is room
  return got;
}

bool Mailboxes::has_ended(int32_t rank) {
  const Peer& from = peer(rank);
  if (from.local < 0 || mesh_.first_page(from.local).left.load() == 0) return false;
  static_cast<void>(sources());  // it may have made a ring before
  return from.in == nullptr || from.in->written.load() == from.in->read.load();
}

void Mailboxes::finish() noexcept {
  mesh_.first_page(mesh_.rank).left.store(1);
  for (const Peer& each : peers_)
    if (each.local >= 0 && each.local != mesh_.rank) bell_of(each.local).ring();
}

const std::vector<int32_t>& Mailboxes::sources() {
  const uint32_t opened = mesh_.first_page(mesh_.rank).opened.load();
  if (opened == seen_) return sources_;
  seen_ = opened;
  for (size_t rank = 0; rank < peers_.size(); ++rank) {
    Peer& from = peers_[rank];
    if (from.local < 0 || from.local == mesh_.rank || from.in != nullptr) continue;
    const int64_t table = mesh_.first_page(from.local).outbox.load();
    if (table == 0) continue;
    const int64_t ring = (reinterpret_cast<Table*>(mesh_.base(from.local) + table) + mesh_.rank)->load();
    if (ring == 0) continue;
    from.in = reinterpret_cast<Ring*>(mesh_.base(from.local) + ring);
    sources_.push_back(static_cast<int32_t>(rank));
  }
  return sources_;
}

}  // namespace ddp::shm
