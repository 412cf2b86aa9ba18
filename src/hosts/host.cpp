// SPDX-License-Identifier: Apache-2.0
#include "hosts/host.hpp"

#include <algorithm>
#include <cstring>
#include <map>

#include "bootstrap/failure.hpp"
#include "control/consensus.hpp"
#include "exchange/transport.hpp"
#include "shm/share.hpp"

namespace ddp::hierarchy {

std::vector<int32_t> Layout::rail_ranks() const {
  std::vector<int32_t> ranks;
  for (const std::vector<int32_t>& members : hosts) ranks.push_back(members[static_cast<size_t>(local)]);
  return ranks;
}

bool Layout::shares() const noexcept {
  return std::any_of(hosts.begin(), hosts.end(), [](const auto& members) { return members.size() > 1; });
}

// A host sends its nodes of the others' parts, and the sum of its own part to all others; it owns one part of `hosts`.
double Layout::traffic() const {
  size_t most = 1;
  for (const std::vector<int32_t>& members : hosts) most = std::max(most, map.subtrees_of(members).size());
  return (static_cast<double>(most) + 1) / 2;
}

Layout lay_out(const std::vector<std::string>& host_ids, int32_t rank, const ddp_group_options& options) {
  Layout layout;
  std::vector<int32_t> host_of;
  std::map<std::string, size_t> known;
  for (size_t r = 0; r < host_ids.size(); ++r) {
    const std::string id = host_ids[r].empty() ? " alone " + std::to_string(r) : host_ids[r];
    const size_t host = known.emplace(id, layout.hosts.size()).first->second;
    if (host == layout.hosts.size()) layout.hosts.emplace_back();
    if (static_cast<int32_t>(r) == rank) {
      layout.host = static_cast<int32_t>(host);
      layout.local = static_cast<int32_t>(layout.hosts[host].size());
    }
    layout.hosts[host].push_back(static_cast<int32_t>(r));
    host_of.push_back(static_cast<int32_t>(host));
  }
  const auto smaller = [](const auto& a, const auto& b) { return a.size() < b.size(); };
  layout.rails = static_cast<int32_t>(std::min_element(layout.hosts.begin(), layout.hosts.end(), smaller)->size());
  layout.map = options.sum_order == DDP_SUM_ORDER_BY_HOST
                   ? LeafMap::by_host(host_of)
                   : collective::leaves_by_rank(options, static_cast<int32_t>(host_of.size()));
  return layout;
}

Layout lay_out(const bootstrap::Control& control, const ddp_group_options& options) {
  std::vector<std::string> ids;
  ids.reserve(static_cast<size_t>(control.size()));
  for (int32_t rank = 0; rank < control.size(); ++rank) ids.push_back(control.member(rank).boot_id);
  return lay_out(ids, control.rank(), options);
}

namespace {

constexpr int64_t kLongestGraceMs = 500;  // a rail's patience beyond timeout_ms

int64_t rail_timeout_ms(int64_t timeout_ms) noexcept {
  return timeout_ms <= 0 ? timeout_ms : timeout_ms + std::min(kLongestGraceMs, timeout_ms / 4);
}

collective::TransportContext with_control(collective::TransportContext context, bootstrap::Control& control) noexcept {
  context.control = &control;
  return context;
}

// The combined bucket header is in the part of the announcement that has no payload for a bucket.
struct SharedHeader {
  uint64_t incomplete;
  collective::Participation participation;
  uint64_t used[shm::kHeaderWords];
};
static_assert(sizeof(SharedHeader) <= shm::kInlineBytes);

/// The last exchange of a host's meeting, in which a problem of one host becomes the result of all, and the addresses of the
/// rails are exchanged. `memory` is complete when `last` has run. A missing resource of a rail is its rank's own error, and
/// breaks the group.
template <class Last>
void meet_hosts(const collective::TransportContext& context, const Layout& layout, const Carrier& carrier,
                os::Deadline deadline, HostMemory& memory, const Last& last) {
  if (layout.owns_rail()) memory.rail.emplace(context, carrier.table, carrier.address, layout.rail_ranks());
  memory.rails = bootstrap::all_or_none(*context.control, "hosts", deadline, [&] {
    last();
    memory.exchange = static_cast<std::byte*>(memory.mesh.own->alloc_for_transport(kExchangeBytes));
    return memory.rail ? memory.rail->bytes() : std::string();
  });
}

// Whatever a host's ranks agree on, all hosts make the next exchange.
template <class First>
std::optional<Error> meet_here(const First& first) {
  std::optional<Error> problem = try_to(first);
  if (problem && (!problem->is_agreed() || breaks_group(problem->status()))) throw Error(*problem);
  return problem;
}

}  // namespace

HostMemory connect_host(const collective::TransportContext& context, const Layout& layout, const Carrier& carrier,
                        os::Deadline deadline) {
  HostControl control(*context.control, layout.local_ranks(), layout.local);
  std::optional<shm::MemoryOffer> offer;
  std::vector<std::string> offers;
  const std::optional<Error> problem = meet_here([&] {
    offers = bootstrap::all_or_none(control, "shm addresses", deadline, [&] {
      offer.emplace(control, context.arena);
      return offer->bytes();
    });
  });
  HostMemory memory;
  meet_hosts(context, layout, carrier, deadline, memory, [&] {
    if (problem) throw Error(*problem);
    memory.mesh = offer->take(offers, shm::Patience{deadline, [&] { context.failure->check(); }});
  });
  return memory;
}

HostMemory add_channel(const collective::TransportContext& context, const Layout& layout, const Carrier& carrier,
                       const shm::Mesh& mesh, os::Deadline deadline) {
  HostControl control(*context.control, layout.local_ranks(), layout.local);
  HostMemory memory;
  const std::optional<Error> problem = meet_here([&] { memory.mesh = shm::add_pages(mesh, control, deadline); });
  meet_hosts(context, layout, carrier, deadline, memory, [&] {
    if (problem) throw Error(*problem);
  });
  return memory;
}

Host::Host(const collective::TransportContext& context, Layout layout, HostMemory memory, const Carrier& carrier)
    : context_(context),
      layout_(std::move(layout)),
      options_(carrier.options),
      shares_(socket::share_out(layout_.map, layout_.hosts)),
      control_(*context.control, layout_.local_ranks(), layout_.local),
      engine_(std::move(memory.mesh), with_control(context, control_)) {
  if (context.channel == 0) monitor_.emplace(engine_.mesh(), with_control(context, control_));
  if (memory.rail)
    rail_ = std::make_unique<socket::SocketMember>(context, *memory.rail, memory.rails, options_, layout_.rail_ranks(),
                                                   shares_, rail_timeout_ms(context.options.timeout_ms));
  way_ = std::to_string(layout_.rails) + (layout_.rails == 1 ? " rail over " : " rails over ") + carrier.table.name;
}

Host::~Host() {
  for (std::byte* const memory : place_.memory) static_cast<void>(region().free(memory));
}

std::byte* Host::place(int64_t bytes) {
  if (bytes == 0) return nullptr;
  if (bytes > place_.bytes) {
    place_.memory.reserve(place_.memory.size() + 1);
    place_.memory.push_back(static_cast<std::byte*>(region().alloc(bytes)));
    place_.bytes = bytes;
  }
  return place_.memory.back();
}

Crossing Host::all_reduce(int64_t count, const cpu::ReduceRule& rule, size_t words) const {
  const socket::Schedule whole =
      socket::make_schedule(shares_, socket::equal_slices(count, layout_.host_count()), rule, socket::Phases{}, options_);
  if (!socket::is_shared_out(socket::algorithm_of(shares_, whole, count, rule, words, options_)) || layout_.rails == 1)
    return Crossing{1, whole, {}};
  const int32_t rail = std::min(layout_.local, layout_.rails - 1);
  const shm::Share share = shm::share_of(count, dtype_size(rule.dtype), rail, layout_.rails);
  socket::FlatOwnership owned = socket::equal_slices(share.end - share.begin, layout_.host_count());
  for (auto& spans : owned)
    for (socket::Span& span : spans) span.first += share.begin;
  return Crossing{layout_.rails, socket::make_schedule(shares_, owned, rule, socket::Phases{}, options_), {}};
}

socket::FlatOwnership Host::by_host(const socket::FlatOwnership& by_rank, int32_t rail, int32_t rails) const {
  socket::FlatOwnership owned;
  for (const std::vector<int32_t>& members : layout_.hosts) {
    owned.emplace_back();
    for (size_t local = 0; local < members.size(); ++local) {
      if (static_cast<int32_t>(local) % rails != rail) continue;
      const std::vector<socket::Span>& own = by_rank[static_cast<size_t>(members[local])];
      owned.back().insert(owned.back().end(), own.begin(), own.end());
    }
  }
  return owned;
}

Crossing Host::exchange(const socket::FlatOwnership& by_rank, int64_t count, const cpu::ReduceRule& rule, size_t words,
                        socket::Phases phases) const {
  Crossing crossing;
  crossing.schedule = socket::make_schedule(shares_, by_host(by_rank, 0, 1), rule, phases, options_);
  if (socket::is_shared_out(socket::algorithm_of(shares_, crossing.schedule, count, rule, words, options_)) &&
      layout_.rails > 1) {
    crossing.rails = layout_.rails;
    crossing.schedule = socket::make_schedule(shares_, by_host(by_rank, layout_.local % layout_.rails, layout_.rails), rule,
                                              phases, options_);
  }
  const std::vector<int32_t>& members = layout_.local_ranks();
  for (size_t local = 0; local < members.size(); ++local)
    for (const socket::Span& span : by_rank[static_cast<size_t>(members[local])])
      crossing.owned.push_back({span, static_cast<int32_t>(local)});
  std::sort(crossing.owned.begin(), crossing.owned.end(),
            [](const OwnSpan& a, const OwnSpan& b) { return a.span.first < b.span.first; });
  return crossing;
}

void Host::gather_here(uint64_t sequence) {
  engine_.wait([&] { return engine_.all_shown(sequence); }, sequence);
  engine_.check_stamps(sequence);
}

void Host::wait_for_rails(uint64_t sequence, int32_t rails) {
  const auto done = [&] {
    for (int32_t owner = 0; owner < rails; ++owner)
      if (!engine_.reached(owner, shm::Counter::kFinished, sequence)) return false;
    return true;
  };
  const auto given_up = [&] {  // a rank that left before it took part: its rail gives up, and this rank knows why
    if (!context_.failure->broken()) return false;
    for (int32_t owner = 0; owner < rails; ++owner)
      if (engine_.mesh().page(owner).broken.load() != 0) return true;
    return false;
  };
  engine_.wait([&] { return done() || given_up(); }, sequence, shm::Behind::kARail);
  if (!done()) context_.failure->check();
}

void Host::show_header(uint64_t sequence, const collective::BucketHeader& header) noexcept {
  SharedHeader shared{};
  shared.incomplete = header.incomplete ? 1 : 0;
  shared.participation = header.participation;
  std::copy(header.used.begin(), header.used.end(), shared.used);
  std::memcpy(engine_.mesh().own_page().slot(sequence).payload, &shared, sizeof shared);
}

void Host::read_header(uint64_t sequence, collective::BucketHeader& header) const noexcept {
  SharedHeader shared;
  std::memcpy(&shared, engine_.slot(0, sequence).payload, sizeof shared);
  header.incomplete = shared.incomplete != 0;
  header.participation = shared.participation;
  std::copy_n(shared.used, header.used.size(), header.used.begin());
}

void Host::cross(uint64_t sequence, collective::Stamp stamp) {
  stamp.sequence = sequence;
  if (layout_.local == 0) {
    rail_->collectives().set_late(engine_.waited());
    rail_->collectives().barrier(stamp);
    return show_done(sequence);
  }
  wait_for_rails(sequence, 1);
  engine_.advance(shm::Counter::kFinished, sequence);
}

// The rail is done. The ranks that wait for it learn for which rank it waited itself.
void Host::show_done(uint64_t sequence) noexcept {
  const collective::Late late = rail_->take_longest_wait();
  shm::Page& page = engine_.mesh().own_page();
  page.late_rank.store(late.rank, std::memory_order_relaxed);
  page.late_ns.store(late.ns, std::memory_order_relaxed);
  engine_.advance(shm::Counter::kFinished, sequence);
}

void Host::pass_on(uint64_t sequence, collective::Stamp stamp, const Tensor& sent, const Tensor& received) {
  stamp.sequence = sequence;
  const int32_t hosts = layout_.host_count();
  rail_->collectives().pass_on(stamp, (layout_.host + 1) % hosts, sent, (layout_.host + hosts - 1) % hosts, received);
}

void Host::run(uint64_t sequence, collective::Stamp stamp, HostReduceInput& mine, const Crossing& crossing,
               collective::BucketHeader& header) {
  stamp.sequence = sequence;
  if (layout_.local < crossing.rails) {
    rail_->collectives().set_late(engine_.waited());
    rail_->collectives().run(stamp, mine, crossing.schedule, header);
    engine_.check_in_reach();
    show_header(sequence, header);
    show_done(sequence);
    wait_for_rails(sequence, crossing.rails);
  } else {
    wait_for_rails(sequence, crossing.rails);
    read_header(sequence, header);
    engine_.advance(shm::Counter::kFinished, sequence);  // only now may rank 0 use its slot again
  }
}

void Host::break_group(const Error& error) {
  engine_.mesh().own_page().broken.store(1);
  if (context_.failure->set(error)) context_.control->abort(error);
  context_.failure->check();
  throw Error(error);
}

void Host::wake() noexcept {
  engine_.wake();
  if (rail_ != nullptr) rail_->wake();
}

}  // namespace ddp::hierarchy
