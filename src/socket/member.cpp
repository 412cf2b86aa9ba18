// SPDX-License-Identifier: Apache-2.0
#include "socket/member.hpp"

#include <sys/resource.h>

#include <algorithm>

#include "bootstrap/failure.hpp"
#include "control/port_range.hpp"
#include "control/texts.hpp"
#include "core/bytes.hpp"
#include "core/error.hpp"
#include "socket/address.hpp"

namespace ddp::socket {
namespace {

int32_t position_of(int32_t rank, const std::vector<int32_t>& ranks) {
  const auto found = std::find(ranks.begin(), ranks.end(), rank);
  if (found == ranks.end()) throw make_error(DDP_ERROR_INTERNAL, "rank %d is none of the members", rank);
  return static_cast<int32_t>(found - ranks.begin());
}

// Reported before any member connects, because then it is a rank's own error and not a broken connection.
void require_descriptors(const Endpoint& endpoint) {
  rlimit limit{};
  const int64_t needed = int64_t{endpoint.lanes()} * (endpoint.size() - 1) + 16;
  if (getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY &&
      static_cast<int64_t>(limit.rlim_cur) < needed)
    throw make_error(DDP_ERROR_OUT_OF_MEMORY,
                     "%d members over %s need %lld descriptors on each, but this process may have %lld; raise the limit "
                     "(ulimit -n)",
                     endpoint.size(), endpoint.name(), static_cast<long long>(needed),
                     static_cast<long long>(limit.rlim_cur));
}

}  // namespace

MemberOffer::MemberOffer(const collective::TransportContext& context, const ddp_socket_table& table,
                         const std::string& address, const std::vector<int32_t>& ranks)
    : endpoint_(std::make_shared<Endpoint>(table, position_of(context.control->rank(), ranks),
                                           static_cast<int32_t>(ranks.size()), address, on_one_host(*context.control))) {
  // The group may break while we connect, before wake() can be called.
  context.failure->add_waker([weak = std::weak_ptr<Endpoint>(endpoint_)] {
    if (const auto endpoint = weak.lock()) endpoint->abort();
  });
  require_descriptors(*endpoint_);
  if (endpoint_->lanes() == 0) return;
  connector_ =
      std::make_shared<Connector>(endpoint_->index(), endpoint_->lanes(), address, bootstrap::port_range_of(context.options),
                                  context.control->link_key(), Sealing{&table, context.options.links});
  context.failure->add_waker([weak = std::weak_ptr<Connector>(connector_)] {
    if (const auto alive = weak.lock()) alive->abort();
  });
}

std::string MemberOffer::bytes() const {
  ByteWriter mine;
  mine.text(endpoint_->wire()).text(endpoint_->address());
  if (connector_ != nullptr) mine.text(write_invitation(connector_->invitation()));
  return mine.bytes();
}

HeardOffer::HeardOffer(const std::string& bytes, bool has_invitation) {
  ByteReader reader(bytes);
  wire = reader.text();
  address = reader.text();
  if (has_invitation) invitation = read_invitation(reader.text());
}

namespace {

constexpr int64_t kFarewellMs = 500;

}  // namespace

SocketMember::SocketMember(const collective::TransportContext& context, const MemberOffer& mine,
                           const std::vector<std::string>& offers, const SocketOptions& options,
                           const std::vector<int32_t>& ranks, Shares shares, int64_t timeout_ms)
    : failure_(*context.failure),
      options_(options),
      shares_(std::move(shares)),
      endpoint_(mine.endpoint()),
      links_(*endpoint_, *context.control, *context.failure, ranks, timeout_ms, context.channel, context.waits) {
  connect(context, mine.connector().get(), offers, ranks);
  collectives_ = std::make_unique<Collectives>(links_, shares_, options);
}

SocketMember::~SocketMember() { endpoint_->close(); }  // the receives for the next collective point into collectives_

void SocketMember::leave() noexcept {
  if (!failure_.woken()) collectives_->leave(os::Deadline::in_ms(kFarewellMs));
  endpoint_->close();
}

// Each member connects to those before it.
void SocketMember::connect(const collective::TransportContext& context, Connector* connector,
                           const std::vector<std::string>& offers, const std::vector<int32_t>& ranks) {
  const int64_t limit_ms = context.options.rendezvous_timeout_ms;
  std::vector<Invitation> invitations;
  std::vector<std::string> addresses;
  for (const int32_t rank : ranks) {
    HeardOffer theirs(offers[static_cast<size_t>(rank)], connector != nullptr);
    if (theirs.wire != endpoint_->wire())
      links_.give_up(make_error(DDP_ERROR_NOT_SUPPORTED,
                                "this rank and rank %d have releases of %s that cannot talk to each other; "
                                "install the same on all hosts",
                                rank, endpoint_->name()));
    invitations.push_back(theirs.invitation);
    addresses.push_back(std::move(theirs.address));
  }
  if (connector != nullptr)
    if (const Connected how = connector->connect(invitations, os::Deadline::in_ms(limit_ms));
        how.result != LinkResult::kDone)
      explain(how, connector->place(), *context.control, limit_ms);
  for (int32_t peer = 0; peer < links_.size(); ++peer) {
    if (peer == position()) continue;
    std::vector<Connection> connections;
    if (connector != nullptr) connections = connector->take(peer);
    links_.attach(peer, std::move(connections), addresses[static_cast<size_t>(peer)]);
  }
}

void SocketMember::explain(const Connected& how, const std::string& place, bootstrap::Control& control, int64_t limit_ms) {
  const std::string advice = bootstrap::texts::unreachable_advice(how.error);
  if (how.result == LinkResult::kAborted || how.peer < 0) links_.was_aborted();
  const std::string who = control.member(links_.rank_at(how.peer)).name();
  const std::string within = " within " + bootstrap::texts::seconds(limit_ms);
  if (how.result == LinkResult::kFailed)
    links_.give_up(make_error(DDP_ERROR_PEER_FAILED, "%s cannot be reached for data at %s; %s", who.c_str(),
                              how.trouble.c_str(), advice.c_str()));
  if (!how.trouble.empty())
    links_.give_up(make_error(DDP_ERROR_TIMED_OUT, "%s could not be reached for data%s at %s; %s", who.c_str(),
                              within.c_str(), how.trouble.c_str(), advice.c_str()));
  links_.give_up(make_error(DDP_ERROR_TIMED_OUT, "%s did not connect for data%s to %s; %s", who.c_str(), within.c_str(),
                            place.c_str(), advice.c_str()));
}

}  // namespace ddp::socket
