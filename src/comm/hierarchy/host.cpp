#include "comm/hierarchy/host.hpp"

#include <algorithm>
#include <cstring>

#include "comm/control/agree.hpp"
#include "comm/shm/share.hpp"

namespace ddp::hierarchy {
namespace {

constexpr int32_t kBehindARail = 2;      // times timeout_ms: who waits for a rank that waits for another host
constexpr int64_t kLongestGraceMs = 500; // a rail's patience beyond timeout_ms

int64_t rail_timeout_ms(int64_t timeout_ms) noexcept {
  return timeout_ms <= 0 ? timeout_ms : timeout_ms + std::min(kLongestGraceMs, timeout_ms / 4);
}

TransportContext with_control(TransportContext context, Control& control) noexcept {
  context.control = &control;
  return context;
}

// The joined note lies where a bucket's announcement carries no payload.
struct SharedNote {
  uint64_t incomplete;
  Tally tally;
  uint64_t used[shm::kNoteWords];
};
static_assert(sizeof(SharedNote) <= shm::kInlineBytes);

}  // namespace

HostMemory connect_host(const TransportContext& context, const Layout& layout, Deadline deadline) {
  HostControl control(*context.control, layout.local_ranks(), layout.local);
  HostMemory memory;
  const std::optional<Error> problem = try_to([&] {
    memory.mesh = shm::connect_processes(control, deadline);
    memory.exchange = static_cast<std::byte*>(memory.mesh.own->alloc(kExchangeBytes));
  });
  if (problem && breaks_group(problem->status())) throw Error(*problem);
  agree(*context.control, "hosts", problem, deadline);
  return memory;
}

Host::Host(const TransportContext& context, Layout layout, shm::Mesh mesh, const ddp_rail_table& table, const std::string& address,
           ChainOptions options)
    : context_(context),
      layout_(std::move(layout)),
      control_(*context.control, layout_.local_ranks(), layout_.local),
      engine_(std::move(mesh), with_control(context, control_)),
      life_(engine_.mesh(), with_control(context, control_)) {
  options.raw_first_hop = options.raw_first_hop && layout_.hosts.front().size() == 1;
  options.route = Route::kChain;  // a host adds several arrays, and a direct exchange would have to carry each of them
  if (layout_.owns_rail())
    rail_ = std::make_unique<ChainMember>(context, table, address, options, layout_.rail_ranks(),
                                          rail_timeout_ms(context.options.timeout_ms));
  else
    ChainMember::attend(context);
  way_ = std::to_string(layout_.rails) + (layout_.rails == 1 ? " rail over " : " rails over ") + table.name;
}

Span Host::slice(int64_t count, int64_t element_bytes) const noexcept {
  if (!layout_.owns_rail()) return Span{count, 0};
  const shm::Share share = shm::share_of(count, element_bytes, layout_.local, layout_.rails);
  return Span{share.begin, share.end - share.begin};
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
  engine_.wait(done, sequence, kBehindARail);
}

void Host::show_note(uint64_t sequence, const Note& note) noexcept {
  SharedNote shared{};
  shared.incomplete = note.incomplete ? 1 : 0;
  shared.tally = note.tally;
  std::copy(note.used.begin(), note.used.end(), shared.used);
  std::memcpy(engine_.mesh().own_page().slot(sequence).payload, &shared, sizeof shared);
}

void Host::read_note(uint64_t sequence, Note& note) const noexcept {
  SharedNote shared;
  std::memcpy(&shared, engine_.slot(0, sequence).payload, sizeof shared);
  note.incomplete = shared.incomplete != 0;
  note.tally = shared.tally;
  std::copy_n(shared.used, note.used.size(), note.used.begin());
}

void Host::cross(uint64_t sequence, Stamp stamp) {
  stamp.sequence = sequence;
  if (layout_.local == 0)
    rail_->chain().barrier(stamp);
  else
    wait_for_rails(sequence, 1);
  engine_.advance(shm::Counter::kFinished, sequence);
}

void Host::reduce(uint64_t sequence, Stamp stamp, HostContribution& mine, Note& note) {
  stamp.sequence = sequence;
  if (rail_ != nullptr) {
    rail_->chain().reduce(stamp, mine, note);
    show_note(sequence, note);
    engine_.advance(shm::Counter::kFinished, sequence);
    wait_for_rails(sequence, layout_.rails);
  } else {
    wait_for_rails(sequence, layout_.rails);
    read_note(sequence, note);
    engine_.advance(shm::Counter::kFinished, sequence);  // only now may rank 0 use its slot again
  }
}

void Host::break_group(const Error& error) {
  if (context_.failure->set(error)) context_.control->abort(error);
  context_.failure->check();
  throw Error(error);
}

void Host::wake() noexcept {
  engine_.wake();
  if (rail_ != nullptr) rail_->wake();
}

}  // namespace ddp::hierarchy
