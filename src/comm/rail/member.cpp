#include "comm/rail/member.hpp"

#include <algorithm>

#include "base/bytes.hpp"

namespace ddp {
namespace {

constexpr int64_t kFarewellMs = 500;
constexpr const char* kAddresses = "rail addresses";

int32_t position_of(int32_t rank, const std::vector<int32_t>& ranks) {
  const auto found = std::find(ranks.begin(), ranks.end(), rank);
  if (found == ranks.end()) throw make_error(DDP_ERROR_INTERNAL, "rank %d has no place in its chain", rank);
  return static_cast<int32_t>(found - ranks.begin());
}

}  // namespace

// What a rank tells the others: the address for each neighbour, "" where there is none.
struct ChainMember::Addresses {
  std::string for_below, for_above;
};

ChainMember::ChainMember(const TransportContext& context, const ddp_rail_table& table, const std::string& address,
                         const ChainOptions& options, std::vector<int32_t> ranks, int64_t timeout_ms)
    : failure_(*context.failure),
      rail_(std::make_shared<Rail>(table, position_of(context.control->rank(), ranks), static_cast<int32_t>(ranks.size()), address,
                                   context.options.rendezvous_timeout_ms)),
      line_(*rail_, *context.control, *context.failure, ranks, timeout_ms) {
  // The group may break while we connect, before anybody can call wake().
  context.failure->add_waker([weak = std::weak_ptr<Rail>(rail_)] {
    if (const auto rail = weak.lock()) rail->abort();
  });
  connect(*context.control, ranks, Deadline::in_ms(context.options.rendezvous_timeout_ms));
  chain_ = std::make_unique<Chain>(line_, options);
}

ChainMember::~ChainMember() { rail_->close(); }  // the receives for the next collective point into chain_

void ChainMember::leave() noexcept {
  if (!failure_.woken()) chain_->leave(Deadline::in_ms(kFarewellMs));
  rail_->close();
}

void ChainMember::attend(const TransportContext& context) {
  static_cast<void>(context.control->gather(kAddresses, ByteWriter().text("").text("").bytes(),
                                            Deadline::in_ms(context.options.rendezvous_timeout_ms)));
}

void ChainMember::connect(Control& control, const std::vector<int32_t>& ranks, Deadline deadline) {
  Addresses mine;
  if (!line_.is_first()) mine.for_below = rail_->address_for(position() - 1);
  if (!line_.is_last()) mine.for_above = rail_->address_for(position() + 1);
  const std::vector<std::string> told =
      control.gather(kAddresses, ByteWriter().text(mine.for_below).text(mine.for_above).bytes(), deadline);
  const auto rank_at = [&](int32_t position) { return ranks[static_cast<size_t>(position)]; };
  const auto told_by = [&](int32_t position) { return told[static_cast<size_t>(rank_at(position))]; };
  // Ascending, so that no cycle of waits can arise where connect blocks.
  if (!line_.is_first()) {
    const int32_t below = position() - 1;
    line_.connect(Side::kBelow, read(told_by(below), rank_at(below), mine.for_below, true).for_above);
  }
  if (!line_.is_last()) {
    const int32_t above = position() + 1;
    line_.connect(Side::kAbove, read(told_by(above), rank_at(above), mine.for_above, false).for_below);
  }
}

// Releases of Gloo that cannot talk to each other have addresses of different sizes.
ChainMember::Addresses ChainMember::read(const std::string& told, int32_t rank, const std::string& mine, bool below) {
  ByteReader reader(told);
  Addresses theirs;
  theirs.for_below = reader.text();
  theirs.for_above = reader.text();
  if ((below ? theirs.for_above : theirs.for_below).size() != mine.size())
    line_.give_up(make_error(DDP_ERROR_NOT_SUPPORTED, "this rank and rank %d have releases of %s that cannot talk to each other; install "
                             "the same on all hosts", rank, rail_->name()));
  return theirs;
}

}  // namespace ddp
