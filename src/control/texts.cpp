// SPDX-License-Identifier: Apache-2.0
#include "control/texts.hpp"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdio>

#include "control/limits.hpp"

namespace ddp::bootstrap {

std::string Control::describe_progress(int32_t rank) const {
  const Sign sign = last_sign(rank);
  return texts::progress((os::now_ns() - sign.at_ns) / 1'000'000, sign.where);
}

}  // namespace ddp::bootstrap

namespace ddp::bootstrap::texts {
namespace {

constexpr size_t kNamesShown = 8;
constexpr const char* kLeft = "left the group";
constexpr const char* kExited = "exited without ddp_group_destroy";

// "rank 2", "ranks 2 and 3", "ranks 2, 3, 5 and 90 more"
std::string list_ranks(const std::vector<int32_t>& ranks) {
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  const size_t shown = std::min(ranks.size(), kNamesShown);
  const size_t more = ranks.size() - shown;
  for (size_t i = 0; i < shown; ++i) {
    if (i > 0) text += (i + 1 == shown && more == 0) ? " and " : ", ";
    text += std::to_string(ranks[i]);
  }
  if (more > 0) text += " and " + std::to_string(more) + " more";
  return text;
}

std::string list_members(const std::vector<Member>& members) {
  std::string text;
  const size_t shown = std::min(members.size(), kNamesShown);
  const size_t more = members.size() - shown;
  for (size_t i = 0; i < shown; ++i) {
    if (i > 0) text += (i + 1 == shown && more == 0) ? " and " : ", ";
    text += members[i].name();
  }
  if (more > 0) text += " and " + std::to_string(more) + " more";
  return text;
}

constexpr size_t kChainSaid = 4;  // ranks that are named of those that wait for each other

std::string describe(const Whereabouts& where) {
  std::string text = where.pass < 0 ? "" : "in pass " + std::to_string(where.pass);
  if (where.pass >= 0 && where.bucket >= 0) text += ", bucket " + std::to_string(where.bucket);
  if (where.call == UserCall::kNone) return text;
  return text + (text.empty() ? "" : ", ") + (where.in_call ? "in " : "after ") + name_of(where.call);
}

Error error(ddp_status status, std::string text) { return Error(status, std::move(text)); }

ErrorDetails about_ranks(std::vector<int32_t> ranks, const std::vector<int32_t>& more = {}) {
  ranks.insert(ranks.end(), more.begin(), more.end());
  std::sort(ranks.begin(), ranks.end());
  return {.ranks = std::move(ranks)};
}

}  // namespace

std::string seconds(int64_t ms) {
  char text[32];
  std::snprintf(text, sizeof text, "%.3g s", static_cast<double>(ms) * 1e-3);
  if (ms >= 1'000'000) std::snprintf(text, sizeof text, "%lld s", static_cast<long long>(ms / 1000));
  return text;
}

std::string progress(int64_t silent_ms, const Whereabouts& where) {
  char text[48];
  std::snprintf(text, sizeof text, "last heard %.1f s ago", static_cast<double>(silent_ms) * 1e-3);
  const std::string place = describe(where);
  return place.empty() ? text : std::string(text) + ", " + place;
}

std::string waits_behind(const Control& control, int32_t rank) {
  std::vector<int32_t> seen{rank};
  std::string text;
  for (int32_t at = rank; seen.size() <= kChainSaid;) {
    const Whereabouts where = control.last_sign(at).where;
    const int32_t next = where.awaits >= 0 ? where.awaits : where.awaits_message;
    if (next < 0 || next >= control.size() || next == at) break;
    text += (text.empty() ? "rank " + std::to_string(at) : ", which") + " waits for rank " + std::to_string(next);
    if (std::find(seen.begin(), seen.end(), next) != seen.end()) break;
    seen.push_back(next);
    at = next;
  }
  return text;
}

namespace {

// Without memory: it is asked by threads that must not fail. The name is that of Member::name.
bool says_of_a_member(const Control& control, const Error& cause, const char* what, bool as_a_whole) noexcept {
  for (int32_t rank = 0; rank < control.size(); ++rank) {
    const Member& who = control.member(rank);
    char world[40] = "";
    if (who.world_rank >= 0) std::snprintf(world, sizeof world, "world rank %d, ", who.world_rank);
    char text[512];
    std::snprintf(text, sizeof text, "rank %d (%shost %s, pid %lld) %s", who.rank, world, who.host.c_str(),
                  static_cast<long long>(who.pid), what);
    if (as_a_whole ? cause.text() == text : std::string_view(cause.text()).starts_with(text)) return true;
  }
  return false;
}

}  // namespace

bool is_left_group(const Control& control, const Error& cause) noexcept {
  return says_of_a_member(control, cause, kLeft, true);
}

bool is_goodbye(const Control& control, const Error& cause) noexcept {
  return is_left_group(control, cause) ||
         (cause.status() == DDP_ERROR_ABORTED && says_of_a_member(control, cause, kExited, false));
}

Error farewell(const Member& who, Leaving how, const Whereabouts& where, const std::optional<Waiting>& waiting) {
  if (how == Leaving::kGroup) return left_group(who);
  std::string text = who.name() + " ";
  if (how == Leaving::kProcessInside) {
    text += where.in_call ? std::string("exited in ") + name_of(where.call) : "exited with an open pass or request";
    text += ", without ddp_group_destroy";
  } else {
    text += kExited;
  }
  if (waiting.has_value()) text += " while " + waiting->who->name() + " waited in " + name_of(waiting->call);
  return error(DDP_ERROR_ABORTED, text).about(who.rank);
}

Error left_group(const Member& who) { return error(DDP_ERROR_ABORTED, who.name() + " " + kLeft).about(who.rank); }

Error gone(const Member& who) {
  return error(DDP_ERROR_PEER_FAILED, who.name() + " is gone: its connection closed without a goodbye").about(who.rank);
}

Error gone_early(const Member& who) {
  return error(DDP_ERROR_PEER_FAILED, who.name() + " is gone: its connection closed before all ranks had come")
      .with(about_ranks({who.rank}));
}

Error server_gone_early(std::string_view place) {
  return error(DDP_ERROR_PEER_FAILED,
               "rank 0 at " + std::string(place) + " is gone: its connection closed before all ranks had come")
      .with(about_ranks({0}));
}

Error server_gone(const Member& rank0) {
  return error(DDP_ERROR_PEER_FAILED,
               rank0.name() + ", which hosts the rendezvous, is gone: its connection closed without a goodbye")
      .about(rank0.rank);
}

Error silent(const Member& who, int64_t limit_ms, const Whereabouts& where) {
  std::string text =
      who.name() + " was silent for more than " + seconds(limit_ms) + " (stopped, or its host is unreachable)";
  const std::string place = describe(where);
  if (!place.empty()) text += "; last seen " + place;
  return error(DDP_ERROR_PEER_FAILED, text).about(who.rank);
}

Error gave_up(const Member& who, const char* function, std::string_view why) {
  const std::string where = function != nullptr ? std::string(" in ") + function : std::string();
  return error(DDP_ERROR_PEER_FAILED, who.name() + " could not go on" + where + ": " + std::string(why)).about(who.rank);
}

Error broke_protocol(const Member& who, std::string_view how) {
  return error(DDP_ERROR_PEER_FAILED, who.name() + " broke the control protocol: " + std::string(how)).about(who.rank);
}

Error different_calls(const Member& a, const At& at_a, const Member& b, const At& at_b) {
  return error(DDP_ERROR_DIFFERENT_CALLS, "ranks made different calls: " + a.name() + " waits in " + at_a.words + "; " +
                                              b.name() + " waits in " + at_b.words +
                                              "; every rank must make the same collective calls in the same order")
      .with({.ranks = {a.rank, b.rank},
             .call = static_cast<int32_t>(at_a.call),
             .other_call = static_cast<int32_t>(at_b.call)});
}

Error wait_for_each_other(const std::vector<const Member*>& members, const std::vector<At>& calls) {
  std::string text = "ranks wait for each other";
  for (size_t at = 0; at < std::min(members.size(), kChainSaid); ++at)
    text += (at == 0 ? ": " : "; ") + members[at]->name() + " waits in " + calls[at].words;
  if (members.size() > kChainSaid) text += "; and " + std::to_string(members.size() - kChainSaid) + " more";
  return error(DDP_ERROR_DIFFERENT_CALLS, text + "; nothing is under way between them")
      .with({.ranks = {members[0]->rank, members[1]->rank},
             .call = static_cast<int32_t>(calls[0].call),
             .other_call = static_cast<int32_t>(calls[1].call)});
}

Error gather_timed_out(const std::vector<Member>& missing, std::string_view call, int64_t ms, std::string_view detail) {
  std::string text = list_members(missing) + " did not join " + std::string(call) + " within " + seconds(ms);
  if (missing.size() == 1 && !detail.empty()) text += ": " + std::string(detail);
  ErrorDetails details;
  for (const Member& each : missing) details.ranks.push_back(each.rank);
  return error(DDP_ERROR_TIMED_OUT, text).about(missing.empty() ? -1 : missing.front().rank).with(std::move(details));
}

Error never_came(const Absent& absent, int32_t size, int64_t ms, std::string_view place, std::string_view placement) {
  std::string text;
  if (!absent.never_came.empty())
    text = list_ranks(absent.never_came) + " of " + std::to_string(size) + " did not come within " + seconds(ms);
  const std::string where = expected_on(absent.never_came, placement);
  if (!where.empty()) text += " (expected: " + where + ")";
  if (!absent.gone_again.empty())
    text +=
        (text.empty() ? "" : "; ") + list_ranks(absent.gone_again) + " of " + std::to_string(size) +
        " came but ended or gave up before all were there: start the ranks closer together, or raise rendezvous_timeout_ms";
  if (!absent.refused.empty())
    text += "; rank 0 refused a process that came as " + list_ranks(absent.refused) +
            " with another token: make a token once, not on each host, and give all ranks the same DDP_TOKEN or "
            "DDP_TOKEN_FILE";
  if (!absent.never_came.empty() && !place.empty()) text += "; rank 0 listened at " + std::string(place);
  return error(DDP_ERROR_TIMED_OUT, text).with(about_ranks(absent.never_came, absent.gone_again));
}

std::string expected_on(const std::vector<int32_t>& ranks, std::string_view placement) {
  std::string text;
  int32_t first = 0;
  size_t next = 0, shown = 0;
  while (!placement.empty() && next < ranks.size()) {
    const std::string_view entry = placement.substr(0, placement.find(','));
    placement.remove_prefix(std::min(entry.size() + 1, placement.size()));
    const size_t colon = entry.rfind(':');
    int32_t count = 0;
    const char* const end = entry.data() + entry.size();
    if (colon == std::string_view::npos || std::from_chars(entry.data() + colon + 1, end, count).ptr != end || count < 1 ||
        count > limits::kRanks)
      return "";
    first += count;
    std::vector<int32_t> there;
    while (next < ranks.size() && ranks[next] < first) there.push_back(ranks[next++]);
    if (there.empty()) continue;
    if (++shown > kNamesShown) return text + " and more";
    const std::string_view name = entry.substr(0, colon);
    const bool by_hand = name.substr(0, 2) == "--";  // the name of the host is unknown
    text += (text.empty() ? "" : ", ") + list_ranks(there) + (by_hand ? " with " : " on host ") + std::string(name);
  }
  return next == ranks.size() ? text : "";
}

std::string unreachable_advice(int error) {
  std::string which = "DDP_PORT_RANGE says on which ports ranks listen, DDP_SOCKET_IFNAME on which network interface";
  switch (error) {
    case 0:
    case ETIMEDOUT:
      return "nothing came back: is there a firewall between the hosts that drops what is sent there, is that host down, or "
             "has the process there no descriptor left (ulimit -n)? " +
             which;
    case ECONNREFUSED:
      return "the host answers, but nothing listens on that port: the rank there has not begun to listen or has ended, and "
             "then "
             "its own output says why; or a firewall refuses the port (DDP_PORT_RANGE)";
    case EHOSTUNREACH:
    case ENETUNREACH:
      return "no way leads there from this host, or that host is down: do the hosts share this network? " + which;
    default: return which;
  }
}

std::string other_interface_hint() {
  return "if ranks on other hosts cannot reach that address, set DDP_SOCKET_IFNAME on rank 0's host to the network "
         "interface that "
         "the hosts share";
}

Error duplicate_rank(const Member& present) {
  return error(DDP_ERROR_INVALID_ARGUMENT, "rank " + std::to_string(present.rank) + " is taken: " + present.name() +
                                               " is here already; give every rank its own number")
      .with(about_ranks({present.rank}));
}

Error rank_out_of_range(int32_t rank, int32_t size) {
  return error(DDP_ERROR_INVALID_ARGUMENT, "rank " + std::to_string(rank) + " is out of range: the group has " +
                                               std::to_string(size) + " ranks, 0 to " + std::to_string(size - 1))
      .with(about_ranks({rank}));
}

Error different_size(int32_t rank, int32_t size, int32_t other_rank, int32_t other_size) {
  return error(DDP_ERROR_MISMATCH, "rank " + std::to_string(rank) + " was started with a world size of " +
                                       std::to_string(size) + ", but rank " + std::to_string(other_rank) + " with " +
                                       std::to_string(other_size))
      .with(about_ranks({rank}, {other_rank}));
}

Error gather_too_large(std::string_view what, size_t bytes) {
  return error(DDP_ERROR_INVALID_ARGUMENT, "\"" + std::string(what) + "\" has " + std::to_string(bytes) +
                                               " bytes to exchange; " + std::to_string(limits::kBlobBytes) + " a rank and " +
                                               std::to_string(limits::kGatherBytes) + " in all are possible");
}

Error different_protocol(uint32_t mine, uint32_t rank0) {
  return error(DDP_ERROR_MISMATCH, "this rank uses version " + std::to_string(mine) +
                                       " of the control protocol, rank 0 version " + std::to_string(rank0) +
                                       "; give all ranks the same version of libddp");
}

Error wrong_token() {
  return error(
      DDP_ERROR_IO,
      "rank 0 did not admit this rank: its token is another one; make a token once, not on each host, and give all ranks "
      "the same DDP_TOKEN or DDP_TOKEN_FILE");
}

Error token_on_one_side(bool rank0_has_it) {
  return error(DDP_ERROR_IO, rank0_has_it
                                 ? "rank 0 wants a token and this rank has none: set DDP_TOKEN or DDP_TOKEN_FILE on "
                                   "every rank"
                                 : "this rank has a token and rank 0 has none: set DDP_TOKEN or DDP_TOKEN_FILE on "
                                   "every rank");
}

Error token_needed(std::string_view address) {
  return error(
      DDP_ERROR_INVALID_ARGUMENT,
      "ranks meet at " + std::string(address) +
          ", which other machines can reach, and there is no token: make one with openssl rand -hex 32, once and not on "
          "each host, and give the same to all ranks with export DDP_TOKEN=... (mpirun: add -x DDP_TOKEN); or set "
          "DDP_INSECURE=1 if the network is yours alone");
}

Error rank0_never_came(std::string_view place, int64_t ms, std::string_view detail) {
  return error(DDP_ERROR_TIMED_OUT, "rank 0 did not come to " + std::string(place) + " within " + seconds(ms) +
                                        (detail.empty() ? "" : ": " + std::string(detail)))
      .with(about_ranks({0}));
}

Error fenced(const Member& who) {
  return error(DDP_ERROR_FENCED, who.name() +
                                     " was silent for too long, and the others have gone on without it; end this process, "
                                     "and start a new one");
}

Error nobody_to_join(std::string_view where, int64_t ms, bool by_host) {
  return error(
      DDP_ERROR_TIMED_OUT,
      "no group that takes new ranks was found " + std::string(where) + " within " + seconds(ms) +
          ": it has ended, or was made without recoverable = 1" +
          (by_host ? ", or no rank of it is left on that host; a group that shall be found whichever hosts are left "
                     "has DDP_JOIN_FILE set on all ranks, or meets at file:/// or store://"
                   : ""));
}

Error not_taken_in(int64_t ms) {
  return error(DDP_ERROR_TIMED_OUT, "the group did not take this rank in within " + seconds(ms) +
                                        "; it does so when its rank 0 next calls ddp_model_begin_backward");
}

Error kept_out(std::string_view host, size_t deaths, int64_t left_ms) {
  return error(DDP_ERROR_TIMED_OUT, "ranks have died " + std::to_string(deaths) + " times on host " + std::string(host) +
                                        " within 10 minutes: new ranks of it are taken in again in " +
                                        seconds((left_ms + 999) / 1'000 * 1'000) + " (cool_down_ms)");
}

Error come_again() {
  return error(DDP_ERROR_TIMED_OUT,
               "a new rank has failed while it joined, so the others recover without new ranks first; they take new ones in "
               "before their next step");
}

Error too_few(const std::vector<int32_t>& here, const std::vector<int32_t>& dead, int32_t min_ranks) {
  return error(DDP_ERROR_TOO_FEW_RANKS, "ddp_group_recover: " + list_ranks(here) + (here.size() == 1 ? " is" : " are") +
                                            " left and " + list_ranks(dead) + (dead.size() == 1 ? " is" : " are") +
                                            " dead, but min_ranks is " + std::to_string(min_ranks))
      .with(about_ranks(dead));
}

Error minority(const std::vector<int32_t>& here, const std::vector<int32_t>& silent, bool allow_half) {
  return error(DDP_ERROR_NO_MAJORITY,
               "ddp_group_recover: " + list_ranks(silent) + (silent.size() == 1 ? " is" : " are") +
                   " silent, not seen to be dead, and may go on without " + list_ranks(here) +
                   "; only more than half of the ranks may" +
                   (allow_half ? ", or half of them with the lowest one" : ", or half of them with allow_half") +
                   ": end this process")
      .with(about_ranks(silent));
}

Error already_left() { return error(DDP_ERROR_INVALID_STATE, "this rank has left the group"); }

}  // namespace ddp::bootstrap::texts
