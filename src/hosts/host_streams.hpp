// SPDX-License-Identifier: Apache-2.0
// Streams of a rank on one of several hosts: mailboxes to the ranks of its own host, connections to the others. Its threads
// sleep in one place.
// Threads: as messages::Streams.
// Tested by process/messages_test.cpp and conformance/messages_test.cpp.
#pragma once

#include <string>
#include <vector>

#include "shm/mailboxes.hpp"
#include "socket/message_links.hpp"

namespace ddp::hierarchy {

class HostStreams final : public messages::Streams {
 public:
  /// `here`: the ranks of this host, in the mesh's order. `address`: where this rank listens for those of other hosts.
  HostStreams(const collective::TransportContext& context, const shm::Mesh& mesh, const std::vector<int32_t>& here,
              const ddp_socket_table& table, const std::string& address)
      : mailboxes_(mesh, here, context.control->size()),
        links_(context, table, address, mailboxes_.bell()),
        size_(context.control->size()) {}

  void open(int32_t peer) override { to(peer).open(peer); }
  [[nodiscard]] size_t write(int32_t peer, messages::Bytes first, messages::Bytes second) override {
    return to(peer).write(peer, first, second);
  }
  [[nodiscard]] size_t read(int32_t peer, std::byte* data, size_t count) override {
    return to(peer).read(peer, data, count);
  }
  [[nodiscard]] const std::vector<int32_t>& sources() override {
    const std::vector<int32_t>&here = mailboxes_.sources(), &others = links_.sources();
    if (here.size() + others.size() != sources_.size()) {
      sources_ = here;
      sources_.insert(sources_.end(), others.begin(), others.end());
    }
    return sources_;
  }
  [[nodiscard]] bool has_ended(int32_t peer) override { return to(peer).has_ended(peer); }
  [[nodiscard]] bool is_on_its_way(int32_t peer) override { return to(peer).is_on_its_way(peer); }
  [[nodiscard]] const messages::Bell& bell() const noexcept override { return mailboxes_.bell(); }
  [[nodiscard]] bool is_quick() const noexcept override { return false; }
  void open_all(os::Deadline deadline) override {
    std::vector<int32_t> others;
    for (int32_t rank = 0; rank < size_; ++rank)
      if (!mailboxes_.reaches(rank)) others.push_back(rank);
    links_.open_all(deadline, others);
  }
  void finish() noexcept override {
    mailboxes_.finish();
    links_.finish();
  }

 private:
  [[nodiscard]] messages::Streams& to(int32_t peer) noexcept {
    if (mailboxes_.reaches(peer)) return mailboxes_;
    return links_;
  }

  shm::Mailboxes mailboxes_;
  socket::MessageLinks links_;
  const int32_t size_;
  std::vector<int32_t> sources_;
};

}  // namespace ddp::hierarchy
