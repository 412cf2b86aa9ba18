// SPDX-License-Identifier: Apache-2.0
#include "socket/member.hpp"

#include "control/texts.hpp"

namespace ddp::socket {
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
