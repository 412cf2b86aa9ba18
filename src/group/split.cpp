// SPDX-License-Identifier: Apache-2.0
#include "group/split.hpp"

#include <algorithm>
#include <cstdlib>
#include <optional>
#include <string>

#include "control/call_state.hpp"
#include "control/port_range.hpp"
#include "core/bytes.hpp"
#include "discovery/rendezvous.hpp"
#include "group/consensus.hpp"
#include "group/links.hpp"
#include "socket/address.hpp"

namespace ddp::group {
namespace {

constexpr const char* kSplit = "ddp_group_split";

std::vector<SplitWish> gather_wishes(Group& parent, const SplitWish& mine) {
  ByteWriter said;
  said.number(mine.color).number(mine.key);
  std::vector<SplitWish> wishes;
  for (const std::string& bytes : parent.gather("colors", std::move(said).bytes())) {
    ByteReader reader(bytes);
    SplitWish& wish = wishes.emplace_back();
    wish.color = reader.number<int32_t>();
    wish.key = reader.number<int32_t>();
  }
  return wishes;
}

bootstrap::Meeting meeting_of(Group& parent, const std::vector<int32_t>& members) {
  const bootstrap::Member& me = parent.control().member(parent.rank());
  bootstrap::Meeting meeting;
  meeting.kind = parent.origin().threads ? bootstrap::Meeting::Kind::kLocal : bootstrap::Meeting::Kind::kStore;
  meeting.rank = static_cast<int32_t>(std::find(members.begin(), members.end(), parent.rank()) - members.begin());
  meeting.size = static_cast<int32_t>(members.size());
  meeting.local_rank = parent.origin().local_rank;
  meeting.world_rank = me.world_rank >= 0 ? me.world_rank : parent.rank();
  return meeting;
}

}  // namespace

std::vector<int32_t> split_members(const std::vector<SplitWish>& wishes, int32_t rank) {
  const int32_t color = wishes[static_cast<size_t>(rank)].color;
  std::vector<int32_t> members;
  for (size_t other = 0; color >= 0 && other < wishes.size(); ++other)
    if (wishes[other].color == color) members.push_back(static_cast<int32_t>(other));
  const auto key_of = [&](int32_t member) { return wishes[static_cast<size_t>(member)].key; };
  std::stable_sort(members.begin(), members.end(), [&](int32_t a, int32_t b) { return key_of(a) < key_of(b); });
  return members;
}

std::shared_ptr<Group> split_group(Group& parent, const SplitWish& wish, const ddp_group_options& asked) {
  parent.check_idle(kSplit);
  ddp_group_options options = asked;
  bootstrap::resolve_ports(options, secure_getenv("DDP_PORT_RANGE"));
  resolve_links(options, secure_getenv("DDP_LINKS"));
  const bootstrap::CallState::In inside(parent.calls(), bootstrap::UserCall::kSplit);
  const std::vector<int32_t> members = split_members(gather_wishes(parent, wish), parent.rank());

  std::optional<bootstrap::Reunion> reunion;
  const std::vector<std::string> notes = all_or_none(parent, "places", [&]() -> std::string {
    if (members.empty()) return "";
    reunion.emplace(meeting_of(parent, members), options, [&parent] { parent.health().check_usable(); });
    if (members.front() != parent.rank()) return "";
    return reunion->open(parent.origin().threads || members.size() == 1
                             ? ""
                             : socket::socket_address(parent.control(), secure_getenv("DDP_SOCKET_IFNAME")));
  });

  std::shared_ptr<Group> made;
  const std::optional<Error> failed = try_to([&] {
    if (!reunion.has_value()) return;
    // The others wait in the meeting, which has no way to tell them that this rank does not come: the parent has.
    std::unique_ptr<bootstrap::Control> control =
        or_break(parent, Part::kOwn, [&] { return reunion->join(notes[static_cast<size_t>(members.front())]); });
    // The token of the new group went over the parent's control plane.
    if (parent.control().link_key() == bootstrap::auth::Key{}) control->set_link_key({});
    made = Group::form(std::move(control), options, parent.origin(), kSplit);
    made->calls().set_watch(parent.calls().shared_watch());
  });
  if (failed.has_value() && is_own(*failed)) throw Error(*failed);
  on_error([&] { agree(parent, "new groups", failed ? &*failed : nullptr); },
           [&](const Error& error) {
             if (breaks_group(error.status())) parent.health().fail(error);
           });
  return made;
}

}  // namespace ddp::group
