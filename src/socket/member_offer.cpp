// SPDX-License-Identifier: Apache-2.0
#include "socket/member_offer.hpp"

#include <sys/resource.h>

#include <algorithm>

#include "control/port_range.hpp"
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

}  // namespace ddp::socket
