// SPDX-License-Identifier: Apache-2.0
// Streams between ranks of one host: a ring of bytes for each pair and direction, in the memory of the rank that writes. It
// is made when that rank first writes; the other one finds it in a table of the writer. Nothing is asked of the other rank,
// which may be in no call.
// A ring has one writer and one reader. Each publishes its counter and then looks whether the other one sleeps.
// Threads: as Streams.
// Tested by unit/exchange/mailboxes_test.cpp and conformance/messages_test.cpp.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "exchange/messages/streams.hpp"
#include "shm/mesh.hpp"

namespace ddp::shm {

struct Ring {
  static constexpr uint64_t kBytes = 128 << 10;  // in the second-level cache
  static constexpr uint64_t kStep = 32 << 10;    // bytes after which the other side may go on

  alignas(64) std::atomic<uint64_t> written{0};
  alignas(64) std::atomic<uint64_t> read{0};
  alignas(64) std::byte data[kBytes];

  /// As many bytes as there is room for.
  size_t write(const std::byte* from, size_t count) noexcept;
  /// As many bytes as have come.
  size_t take(std::byte* to, size_t count) noexcept;
};

class Mailboxes final : public messages::Streams {
 public:
  /// `ranks`: the group's number of each rank of the mesh. The group has `size` ranks, of which the others are not reached.
  Mailboxes(Mesh mesh, const std::vector<int32_t>& ranks, int32_t size);

  void open(int32_t peer) override;
  [[nodiscard]] size_t write(int32_t peer, messages::Bytes first, messages::Bytes second) override;
  [[nodiscard]] size_t read(int32_t peer, std::byte* data, size_t count) override;
  [[nodiscard]] const std::vector<int32_t>& sources() override;
  [[nodiscard]] bool has_ended(int32_t peer) override;
  [[nodiscard]] bool is_on_its_way(int32_t) override { return false; }
  [[nodiscard]] const messages::Bell& bell() const noexcept override { return bell_; }
  [[nodiscard]] bool is_quick() const noexcept override { return true; }
  void open_all(os::Deadline) override {}  // it takes no time
  void finish() noexcept override;

  [[nodiscard]] bool reaches(int32_t rank) const noexcept { return peer(rank).local >= 0; }

 private:
  struct Peer {
    int32_t local = -1;  // in the mesh; -1: on another host
    Ring* out = nullptr;
    Ring* in = nullptr;
  };
  using Table = std::atomic<int64_t>;  // by rank of the mesh: where its ring is; 0: there is none
  [[nodiscard]] Peer& peer(int32_t rank) noexcept { return peers_[static_cast<size_t>(rank)]; }
  [[nodiscard]] const Peer& peer(int32_t rank) const noexcept { return peers_[static_cast<size_t>(rank)]; }
  [[nodiscard]] messages::Bell bell_of(int32_t local) const noexcept {
    Page& page = mesh_.first_page(local);
    return {page.bell, page.sleeping};
  }
  [[nodiscard]] Table* own_table();

  const Mesh mesh_;
  const messages::Bell bell_;
  std::vector<Peer> peers_;  // by rank of the group
  std::vector<int32_t> sources_;
  uint32_t seen_ = 0;  // of Page::opened
};

}  // namespace ddp::shm
