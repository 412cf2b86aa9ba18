// SPDX-License-Identifier: Apache-2.0
#include "collective/socket/member.hpp"

#include <sys/resource.h>

#include <algorithm>

#include "bootstrap/control/port_range.hpp"
#include "bootstrap/control/texts.hpp"
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

// Said before anybody connects, because then it is a rank's own trouble and no broken connection.
void require_descriptors(const char* carrier, int32_t members, int32_t lanes) {
  rlimit limit{};
  const int64_t needed = int64_t{lanes} * (members - 1) + 16;
  if (getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY &&
      static_cast<int64_t>(limit.rlim_cur) < needed)
    throw make_error(DDP_ERROR_OUT_OF_MEMORY,
                     "%d members over %s need %lld descriptors on each, but this process may have %lld; raise the limit "
                     "(ulimit -n)",
                     members, carrier, static_cast<long long>(needed), static_cast<long long>(limit.rlim_cur));
}

}  // namespace

SocketMember::SocketMember(const collective::TransportContext& context, const ddp_socket_table& table,
                           const std::string& address, const SocketOptions& options, const std::vector<int32_t>& ranks,
                           Shares shares, int64_t timeout_ms)
    : failure_(*context.failure),
      options_(options),
      shares_(std::move(shares)),
      endpoint_(std::make_shared<Endpoint>(table, position_of(context.control->rank(), ranks),
                                           static_cast<int32_t>(ranks.size()), address)),
      links_(*endpoint_, *context.control, *context.failure, ranks, timeout_ms, context.channel, context.waits) {
  // The group may break while we connect, before anybody can call wake().
  context.failure->add_waker([weak = std::weak_ptr<Endpoint>(endpoint_)] {
    if (const auto endpoint = weak.lock()) endpoint->abort();
  });
  connect(context, address, ranks);
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

// Every member tells where it listens, and what its links speak. Then each connects to those before it.
void SocketMember::connect(const collective::TransportContext& context, const std::string& address,
                           const std::vector<int32_t>& ranks) {
  bootstrap::Control& control = *context.control;
  const int64_t limit_ms = context.options.rendezvous_timeout_ms;
  const os::Deadline deadline = os::Deadline::in_ms(limit_ms);
  require_descriptors(endpoint_->name(), links_.size(), endpoint_->lanes());
  std::shared_ptr<Connector> connector;
  ByteWriter mine;
  mine.text(endpoint_->wire());
  if (endpoint_->lanes() > 0) {
    connector = std::make_shared<Connector>(position(), endpoint_->lanes(), address,
                                            bootstrap::port_range_of(context.options), control.link_key());
    context.failure->add_waker([weak = std::weak_ptr<Connector>(connector)] {
      if (const auto alive = weak.lock()) alive->abort();
    });
    mine.text(write_invitation(connector->invitation()));
  }
  const std::vector<std::string> told = control.gather(kAddresses, mine.bytes(), deadline);
  std::vector<Invitation> invitations(ranks.size());
  for (size_t at = 0; at < ranks.size(); ++at) {
    ByteReader theirs(told[static_cast<size_t>(ranks[at])]);
    if (theirs.text() != endpoint_->wire())
      links_.give_up(make_error(DDP_ERROR_NOT_SUPPORTED,
                                "this rank and rank %d have releases of %s that cannot talk to each other; "
                                "install the same on all hosts",
                                ranks[at], endpoint_->name()));
    if (connector != nullptr) invitations[at] = read_invitation(theirs.text());
  }
  if (connector != nullptr)
    if (const Connected how = connector->connect(invitations, deadline); how.result != LinkResult::kDone)
      explain(how, connector->place(), control, limit_ms);
  for (int32_t peer = 0; peer < links_.size(); ++peer) {
    if (peer == position()) continue;
    std::vector<int32_t> descriptors;
    if (connector != nullptr)
      for (net::Socket& socket : connector->take(peer)) descriptors.push_back(socket.release());
    links_.attach(peer, descriptors);
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
