// SPDX-License-Identifier: Apache-2.0
#include "discovery/recovery.hpp"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <map>
#include <optional>
#include <set>
#include <thread>
#include <utility>

#include "control/identity.hpp"
#include "control/interfaces.hpp"
#include "control/server.hpp"
#include "control/tcp_control.hpp"
#include "control/texts.hpp"
#include "core/attempt.hpp"
#include "discovery/place.hpp"
#include "discovery/probe.hpp"
#include "discovery/token.hpp"
#include "os/end_notes.hpp"
#include "os/life.hpp"
#include "os/log.hpp"
#include "os/loopback.hpp"
#include "os/standstill.hpp"

namespace ddp::bootstrap {
namespace {

constexpr int64_t kSuspectMs = 1'000;  // for a rank that was silent when the group broke
constexpr int64_t kFencedMs = 5'000;   // for others, if this rank was silent itself: they have continued by then, or come
constexpr int64_t kFollowMs =
    3'000;  // for others to see that this rank serves: they may have waited for a lower one, as it did
constexpr int64_t kProofMs = 2'000;    // for word that ranks have ended which are only silent here, after the last one came
constexpr int64_t kDecideMs = 10'000;  // for a rank that serves, after all have come or are not waited for any more
constexpr auto kPause = std::chrono::milliseconds(10);
constexpr auto kAskAgain = std::chrono::milliseconds(250);  // for a rank that is not taken in yet
constexpr const char* kGroupName = "recovery";

Address address_of(const Record& record) {
  const auto [host, port] = net::split_place(record.address);
  auth::Token token = read_token(process_environment);
  if (!token.has_value() && !record.token.empty()) token = record.token;
  return Address{net::resolve(host, os::Deadline::never()).front().with_port(port),
                 auth::group_id("", record.word, kGroupName), std::move(token)};
}

Record read(const std::string& text) {
  const std::optional<Record> record = read_record(text);
  if (!record.has_value()) throw Error(DDP_ERROR_INTERNAL, "a rank said where it can be found in a way nobody understands");
  return *record;
}

/// Where a launcher notes which processes have ended.
std::string folder_of_notes() {
  const char* const path = secure_getenv("DDP_JOIN_FILE");
  const std::string file = path != nullptr ? path : "";
  return file.substr(0, std::min(file.rfind('/'), file.size()));
}

ClientConfig client_config(int32_t id, int32_t world_rank, const Admission& admission, const Address& target,
                           const ddp_group_options& options) {
  ClientConfig config;
  config.me = this_member(id);
  config.me.world_rank = world_rank;
  config.me.address = target.where.is_loopback() ? os::loopback() : net::local_end(admission.socket).host();
  config.heartbeat_ms = options.heartbeat_ms;
  config.dead_after_ms = options.dead_after_ms;
  config.recovers = true;
  return config;
}

/// Of any membership in which the meeting ranks must be able to continue.
std::set<int32_t> members_of(const LostGroup& lost) {
  std::set<int32_t> ids;
  for (const Membership& members : lost.memberships) ids.insert(members.begin(), members.end());
  return ids;
}

class Recovery {
 public:
  Recovery(const Listener& listener, const LostGroup& lost, const RecoveryRule& rule, const ddp_group_options& options,
           std::unique_ptr<Server> lobby)
      : listener_(listener),
        lost_(lost),
        rule_(rule),
        options_(options),
        own_(address_of(read(listener.record()))),
        lobby_(std::move(lobby)),
        standstill_(options.dead_after_ms / 2) {
    const Record own = read(listener.record());
    const bool address_is_ours = own_.where.is_loopback() || net::is_here(own_.where);
    for (const int32_t id : members_of(lost)) {
      const Record record = read(lost.records[at(id)]);
      const bool is_here = record.boot_id == own.boot_id && record.host == own.host;
      others_.emplace(id, Other{Watch(address_of(record), caller()), record.life, is_here, is_here && address_is_ours});
    }
    suspected_.resize(lost.records.size());
    for (const int32_t id : lost.suspects) suspected_[at(id)] = true;
    standing_.assign(lost.records.size(), Standing::kDead);
    came_by_ = os::Deadline::in_ms(rule.wait_ms);
    if (rule.wait_ms > 0) gave_up_by_ = os::Deadline::in_ms(std::min(rule.wait_ms, INT64_MAX - kDecideMs) + kDecideMs);
    if (is_suspected(lost.id)) suspect_this();
  }

  std::unique_ptr<Control> run() {
    for (;; std::this_thread::sleep_for(kPause)) {
      const std::optional<int32_t> followed = leader();
      std::unique_ptr<Control> control = followed.has_value() ? follow(*followed) : lead();
      if (control != nullptr) return control;
    }
  }

 private:
  static size_t at(int32_t id) noexcept { return static_cast<size_t>(id); }
  [[nodiscard]] bool is_suspected(int32_t id) const { return suspected_[at(id)]; }

  /// This process was stopped, so others may have counted it as dead, and ended by now.
  void suspect_this() {
    suspected_[at(lost_.id)] = true;
    came_by_ = os::Deadline::in_ms(kFencedMs);
  }

  void look_at_clock() {
    if (standstill_.take()) suspect_this();
  }

  [[nodiscard]] Standing look_at(int32_t id) {
    if (id == lost_.id) return Standing::kHere;
    Other& other = others_.at(id);
    // Known from the kernel: another program, or none, answers at its port.
    if (other.is_of_this_host && os::has_ended(other.life))
      return is_suspected(lost_.id) ? Standing::kSilent : Standing::kDead;
    const Standing standing = standing_of(id, other.watch.look());
    const bool counts = standing == Standing::kExpected || standing == Standing::kSilent;
    return counts && os::has_end_note(proof_.notes, other.life) ? Standing::kEnded : standing;
  }

  [[nodiscard]] std::optional<int32_t> leader() {
    look_at_clock();
    return find_leader(lost_.memberships.front(), lost_.id, [this](int32_t id) {
      return Sight{look_at(id), is_serving(id)};
    });
  }

  [[nodiscard]] Standing standing_of(int32_t id, Watch::State state) const {
    switch (state) {
      case Watch::State::kGone:
        return others_.at(id).is_end_seen_here && !is_suspected(lost_.id) ? Standing::kDead : Standing::kSilent;
      case Watch::State::kUnreachable: return Standing::kSilent;
      case Watch::State::kListening: return came_by(id).passed() ? Standing::kSilent : Standing::kExpected;
      // A higher one that is in this meeting gives way; else it serves a group that has continued.
      case Watch::State::kServing:
        return (id > lost_.id ? came_by(id) : gave_up_by_).passed() ? Standing::kSilent : Standing::kExpected;
      case Watch::State::kConnecting: break;
    }
    return Standing::kExpected;
  }

  [[nodiscard]] const os::Deadline& came_by(int32_t id) const {
    if (is_suspected(id)) return suspect_came_by_;
    return id > lost_.id && came_by_.passed() ? follow_by_ : came_by_;
  }

  /// One that has ended does not, whatever its connection shows.
  [[nodiscard]] bool is_serving(int32_t id) {
    return look_at(id) == Standing::kExpected && others_.at(id).watch.look() == Watch::State::kServing;
  }

  [[nodiscard]] bool is_lower_serving() {
    const Membership& members = lost_.memberships.front();
    return std::any_of(members.begin(), members.end(), [this](int32_t id) { return id < lost_.id && is_serving(id); });
  }

  std::unique_ptr<Control> follow(int32_t leader) {
    Watch& watch = others_.at(leader).watch;
    if (watch.look() != Watch::State::kServing) return nullptr;
    Admission admission = watch.enter();
    std::unique_ptr<Server> none;
    std::unique_ptr<Control> control;
    std::set<int32_t> told;
    const Check check = [&](const Witness& witness) {
      look_at_clock();
      tell_ends(witness, told);
      // Its thread may serve although its program never comes.
      if (gave_up_by_.passed()) throw Error(DDP_ERROR_TIMED_OUT, "the rank that serves does not come");
    };
    const std::optional<Error> failed = try_to([&] { control = join(std::move(admission), watch.target(), none, check); });
    if (failed.has_value() && !gave_up_by_.passed()) throw Error(*failed);
    if (control == nullptr) suspected_[at(leader)] = true;  // it has died, or is silent now, or follows a lower one
    return control;
  }

  /// Others see no more than that a rank of this host does not answer.
  void tell_ends(const Witness& witness, std::set<int32_t>& told) {
    for (const auto& [id, other] : others_) {
      if (id == lost_.id || !other.is_of_this_host || told.count(id) != 0) continue;
      const bool looks_at_port = !os::is_visible(other.life);  // a connection for each
      if (!looks_at_port && !os::has_ended(other.life)) continue;
      if (look_at(id) != Standing::kDead) continue;
      witness(id);
      told.insert(id);
    }
  }

  /// NULL: a lower rank serves too.
  std::unique_ptr<Control> lead() {
    follow_by_ = os::Deadline::in_ms(kFollowMs);
    std::unique_ptr<Server> server = lobby_ != nullptr ? std::move(lobby_) : open_lobby(listener_, lost_, options_);
    Probe answer = probe(own_, caller(), os::Deadline::in_ms(options_.dead_after_ms));
    if (answer.answer == Probe::Answer::kRefused) throw Error(*answer.refusal);
    if (answer.answer != Probe::Answer::kAdmitted) return nullptr;
    bool yields = false;
    std::unique_ptr<Control> control;
    const std::optional<Error> failed = try_to([&] {
      control = join(std::move(*answer.admission), own_, server, [&](const Witness&) {
        yields = is_lower_serving();
        if (yields) throw Error(DDP_ERROR_INTERNAL, "a lower rank serves");
        decide(*server);
      });
    });
    if (failed.has_value() && !yields) throw Error(*failed);
    return control;
  }

  void decide(Server& server) {
    look_at_clock();
    for (const auto& [id, other] : others_) standing_[at(id)] = look_at(id);
    const std::vector<int32_t> here = server.present();
    if (std::find(here.begin(), here.end(), lost_.id) == here.end()) return;
    for (const int32_t id : server.witnessed())
      if (others_.count(id) != 0 && id != lost_.id) standing_[at(id)] = Standing::kDead;
    if (here != proof_.here) proof_.by = os::Deadline::in_ms(kProofMs);
    proof_.here = here;
    std::vector<Standing> standing = standing_;
    standing.resize(std::max(standing.size(), at(here.back() + 1)), Standing::kDead);
    for (const int32_t id : here) standing[at(id)] = Standing::kHere;
    standing_ = standing;
    switch (judge(standing, lost_.memberships, rule_)) {
      case Verdict::kWait: return;
      case Verdict::kForm: return server.form(here);
      case Verdict::kTooFew: return server.dismiss(texts::too_few(here, all(Standing::kDead), rule_.min_ranks));
      case Verdict::kMinority: {
        if (!proof_.by.passed()) return;
        std::vector<int32_t> others = all(Standing::kSilent);
        for (const int32_t id : all(Standing::kEnded)) others.push_back(id);
        return server.dismiss(texts::minority(here, others, rule_.allow_half));
      }
    }
  }

  [[nodiscard]] std::vector<int32_t> all(Standing standing) const {
    std::vector<int32_t> ids;
    for (const auto& [id, other] : others_)
      if (standing_[at(id)] == standing) ids.push_back(id);
    return ids;
  }

  std::unique_ptr<Control> join(Admission admission, const Address& target, std::unique_ptr<Server>& server,
                                const Check& check) {
    net::tune(admission.socket.get(), options_.dead_after_ms);
    ClientConfig config = client_config(lost_.id, lost_.world_rank, admission, target, options_);
    return join_over_tcp(std::move(admission), std::move(config), server, check);
  }

  [[nodiscard]] Caller caller() const noexcept { return {lost_.id, static_cast<int32_t>(lost_.records.size())}; }

  const Listener& listener_;
  const LostGroup& lost_;
  const RecoveryRule rule_;
  const ddp_group_options& options_;
  const Address own_;
  std::unique_ptr<Server> lobby_;
  struct Other {
    Watch watch;
    std::string life;
    bool is_of_this_host = false;
    bool is_end_seen_here = false;  // by the kernel's answer at its port. That of another host may be a firewall's
  };
  std::map<int32_t, Other> others_;  // and this one, by id
  struct Proof {
    std::string notes = folder_of_notes();
    std::vector<int32_t> here{};  // when it was looked last
    os::Deadline by = os::Deadline::never();
  } proof_;
  std::vector<bool> suspected_;     // by id
  std::vector<Standing> standing_;  // the same; dead: not a member
  os::Deadline came_by_ = os::Deadline::never();
  os::Deadline follow_by_ = os::Deadline::never();  // never: this rank does not serve
  os::Deadline gave_up_by_ = os::Deadline::never();
  os::Standstill standstill_;
  const os::Deadline suspect_came_by_ = os::Deadline::in_ms(kSuspectMs);
};

/// Of a refusal of a new rank: the host is kept out for a while, or the others may not continue as they are.
bool may_pass(const Error& refusal) noexcept {
  return refusal.status() == DDP_ERROR_TIMED_OUT || refusal.status() == DDP_ERROR_TOO_FEW_RANKS ||
         refusal.status() == DDP_ERROR_NO_MAJORITY;
}

}  // namespace

std::unique_ptr<Server> open_lobby(const Listener& listener, const LostGroup& lost, const ddp_group_options& options) {
  const Address own = address_of(read(listener.record()));
  ServerConfig config;
  config.size = static_cast<int32_t>(lost.records.size());
  config.group = own.group;
  config.token = own.token;
  config.heartbeat_ms = options.heartbeat_ms;
  config.dead_after_ms = options.dead_after_ms;
  config.world_rank = lost.world_rank;
  config.recovers = true;
  config.most_ranks = options.virtual_ranks;
  config.kept_out = lost.kept_out;
  config.takes_new = lost.new_ranks == NewRanks::kTaken;
  const std::set<int32_t> members = members_of(lost);
  for (int32_t id = 0; id < config.size; ++id)
    if (members.count(id) == 0) config.fenced.push_back(id);
  return std::make_unique<Server>(listener.socket(), std::move(config));
}

std::unique_ptr<Control> meet_again(const Listener& listener, const LostGroup& lost, const RecoveryRule& rule,
                                    const ddp_group_options& options, std::unique_ptr<Server> lobby) {
  return Recovery(listener, lost, rule, options, std::move(lobby)).run();
}

std::unique_ptr<Control> join_standing(const JoinPlace& place, const ddp_group_options& options,
                                       const os::Deadline& deadline) {
  const std::function<std::string()> look = place.lookout();
  bool found = false;
  std::string doubt;
  std::optional<Error> refusal;
  const auto check = [&] {
    if (!deadline.passed()) return;
    if (refusal) throw Error(*refusal);
    throw found ? texts::not_taken_in(options.rendezvous_timeout_ms) : place.nobody_there(options.rendezvous_timeout_ms);
  };
  const Check check_time = [&](const Witness&) { check(); };
  for (;; check(), std::this_thread::sleep_for(refusal ? kAskAgain : kPause)) {
    const std::optional<Record> record = read_record(look());
    if (!record.has_value()) continue;
    const Address target = address_of(*record);
    Probe answer = probe(target, Caller{kNewRank, 0}, deadline);
    if (answer.answer == Probe::Answer::kRefused) throw Error(*answer.refusal);
    if (answer.answer == Probe::Answer::kUnproved && std::exchange(doubt, answer.record) != answer.record)
      os::log(DDP_LOG_WARNING, "ddp_group_create: %s; the group is still looked for", answer.record.c_str());
    if (answer.answer != Probe::Answer::kAdmitted) continue;
    found = true;
    net::tune(answer.admission->socket.get(), options.dead_after_ms);
    std::unique_ptr<Server> none;
    std::unique_ptr<Control> control;
    ClientConfig config = client_config(kNewRank, -1, *answer.admission, target, options);
    const std::optional<Error> failed =
        try_to([&] { control = join_over_tcp(std::move(*answer.admission), std::move(config), none, check_time); });
    if (failed && (!may_pass(*failed) || deadline.passed())) throw Error(*failed);
    if (failed && !refusal) os::log_of(*failed, DDP_LOG_WARNING, "ddp_group_create: not taken in yet: %s", failed->what());
    refusal = failed;
    if (control != nullptr) return control;
  }
}

}  // namespace ddp::bootstrap
