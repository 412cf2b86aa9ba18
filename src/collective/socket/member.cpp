#include "collective/socket/member.hpp"

#include <sys/resource.h>

#include <algorithm>

#include "core/bytes.hpp"

namespace ddp::socket {
namespace {

constexpr int64_t kFarewellMs = 500;
constexpr const char* kAddresses = "endpoint addresses";

int32_t position_of(int32_t rank, const std::vector<int32_t>& ranks) {
  const auto found = std::find(ranks.begin(), ranks.end(), rank);
  if (found == ranks.end()) throw make_error(DDP_ERROR_INTERNAL, "rank %d is none of the members", rank);
  return static_cast<int32_t>(found - ranks.begin());
}

// Gloo ends the process when it runs out of descriptors while it connects: for each peer it has two listeners and two
// connections then.
void require_descriptors(const char* carrier, int32_t members) {
  rlimit limit{};
  const int64_t needed = 4 * int64_t{members - 1} + 16;
  if (getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY &&
      static_cast<int64_t>(limit.rlim_cur) < needed)
    throw make_error(DDP_ERROR_OUT_OF_MEMORY,
                     "%d members over %s need %lld descriptors on each, but this process may have %lld; raise the limit "
                     "(ulimit -n)",
                     members, carrier, static_cast<long long>(needed), static_cast<long long>(limit.rlim_cur));
}

}  // namespace

SocketMember::SocketMember(const collective::TransportContext& context, const ddp_socket_table& table,
                           const std::string& address, const SocketOptions& options, std::vector<int32_t> ranks,
                           Shares shares, int64_t timeout_ms)
    : failure_(*context.failure),
      options_(options),
      shares_(std::move(shares)),
      endpoint_(std::make_shared<Endpoint>(table, position_of(context.control->rank(), ranks),
                                           static_cast<int32_t>(ranks.size()), address,
                                           context.options.rendezvous_timeout_ms)),
      links_(*endpoint_, *context.control, *context.failure, ranks, timeout_ms, context.channel) {
  // The group may break while we connect, before anybody can call wake().
  context.failure->add_waker([weak = std::weak_ptr<Endpoint>(endpoint_)] {
    if (const auto endpoint = weak.lock()) endpoint->abort();
  });
  connect(*context.control, ranks, os::Deadline::in_ms(context.options.rendezvous_timeout_ms));
  collectives_ = std::make_unique<Collectives>(links_, shares_, options);
}

SocketMember::~SocketMember() { endpoint_->close(); }  // the receives for the next collective point into collectives_

void SocketMember::leave() noexcept {
  if (!failure_.woken()) collectives_->leave(os::Deadline::in_ms(kFarewellMs));
  endpoint_->close();
}

void SocketMember::attend(const collective::TransportContext& context) {
  static_cast<void>(context.control->gather(kAddresses, "", os::Deadline::in_ms(context.options.rendezvous_timeout_ms)));
}

std::vector<int32_t> SocketMember::linked(int32_t member) const {
  std::vector<int32_t> others;
  for (int32_t other = 0; other < links_.size(); ++other)
    if (other != member) others.push_back(other);
  return others;
}

// A member tells an address for each that it is linked with.
void SocketMember::connect(bootstrap::Control& control, const std::vector<int32_t>& ranks, os::Deadline deadline) {
  require_descriptors(endpoint_->name(), links_.size());
  const std::vector<int32_t> peers = linked(position());
  std::vector<std::string> mine;
  ByteWriter writer;
  for (const int32_t peer : peers) {
    mine.push_back(endpoint_->address_for(peer));
    writer.text(mine.back());
  }
  const std::vector<std::string> told = control.gather(kAddresses, writer.bytes(), deadline);
  for (size_t i = 0; i < peers.size(); ++i) {
    const int32_t rank = ranks[static_cast<size_t>(peers[i])];
    const std::string theirs = address_told(told[static_cast<size_t>(rank)], peers[i]);
    // Releases of Gloo that cannot talk to each other have addresses of different sizes.
    if (theirs.size() != mine[i].size())
      links_.give_up(make_error(DDP_ERROR_NOT_SUPPORTED,
                                "this rank and rank %d have releases of %s that cannot talk to each other; "
                                "install the same on all hosts",
                                rank, endpoint_->name()));
    links_.connect(peers[i], theirs);
  }
}

/// What `peer` told for this member.
std::string SocketMember::address_told(const std::string& told, int32_t peer) const {
  ByteReader reader(told);
  for (const int32_t other : linked(peer)) {
    std::string address(reader.text());
    if (other == position()) return address;
  }
  return {};
}

}  // namespace ddp::socket
