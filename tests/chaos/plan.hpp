// SPDX-License-Identifier: Apache-2.0
// What happens in one round of random faults, decided beforehand by its seed: a training, and strikes against it, each with
// the ranks that must be left when the others have continued.
#pragma once

#include "support/on_processes.hpp"
#include "support/survivor.hpp"

namespace ddp::test {

enum class Kind { kKill, kStop, kPause, kJoin, kCut, kMute, kBlink, kWrong, kStarve };
inline constexpr size_t kKinds = 9;
inline constexpr size_t kMoments = 8;  // anywhere, then the states

enum class PlannedPlace { kShared, kSockets, kTwoHosts, kNetwork };

/// One fault. A kill or stop with a state is done by the rank to itself; others come from outside.
struct Blow {
  Kind kind = Kind::kKill;
  std::vector<int> ids;  // several for a cut, else one
  std::optional<State> in;
  int64_t after_us = 0;  // since the strike began, or since the state was entered
  int64_t lasts_ms = 0;  // of a pause or blink
  int64_t how = 0;       // a rank joins and is wrong or starved: see wrong_rank.hpp
  [[nodiscard]] int id() const { return ids.front(); }
  [[nodiscard]] int signal() const { return kind == Kind::kStop ? SIGSTOP : SIGKILL; }
  [[nodiscard]] size_t moment() const { return in.has_value() ? 1 + static_cast<size_t>(*in) : 0; }
  [[nodiscard]] bool joins() const { return kind == Kind::kJoin || kind == Kind::kWrong || kind == Kind::kStarve; }
  /// The ranks of `ids` live on, but the others continue without them.
  [[nodiscard]] bool silences() const { return kind == Kind::kStop || kind == Kind::kCut || kind == Kind::kMute; }
};

struct Strike {
  std::vector<Blow> blows;
  std::vector<int> left;  // ids, ascending
};

inline const char* name_of(Kind kind) {
  static const char* const kNames[] = {"kill",        "stop",      "pause", "join",   "cut",
                                       "one-way cut", "short cut", "wrong", "starved"};
  return kNames[static_cast<size_t>(kind)];
}
inline const char* name_of_moment(size_t moment) {
  static const char* const kNames[] = {"anywhere", "rendezvous", "commit", "pass", "step", "save", "recover", "keep"};
  return kNames[moment];
}
inline const char* name_of(PlannedPlace place) {
  static const char* const kNames[] = {"shared memory", "sockets", "two hosts", "network"};
  return kNames[static_cast<size_t>(place)];
}

/// What the strikes are.
enum class Mix {
  kAll,
  kJoiners  // mostly ranks that join, of which half are killed, wrong or starved; nothing is kept
};

class FaultPlan {
 public:
  static constexpr int kMostRanks = 8;

  FaultPlan(uint64_t seed, std::optional<PlannedPlace> place, bool gloo, bool network, Mix mix)
      : seed_(seed), random_(seed), mix_(mix) {
    plan_.ranks = static_cast<int32_t>(pick(2, kMostRanks));
    place_ = !gloo ? PlannedPlace::kShared : static_cast<PlannedPlace>(pick(0, network ? 3 : 2));
    if (place.has_value()) place_ = *place;
    // A group that is made by one rank listens where other hosts cannot reach it, and made-up hosts have no other address.
    // And of two ranks on two hosts none continues without the other.
    if (has_hosts()) plan_.ranks = std::max(plan_.ranks, 3);
    static constexpr Hosts kHosts[] = {Hosts::kShared, Hosts::kGloo, Hosts::kSeveral, Hosts::kGloo};
    plan_.backend = options_on(kHosts[static_cast<size_t>(place_)]).backend;
    static constexpr Update kUpdates[] = {Update::kOwn, Update::kSgd, Update::kInBackward, Update::kKept,
                                          Update::kKeptInBackward};
    plan_.update = kUpdates[pick(0, mix == Mix::kAll ? 4 : 2)];
    plan_.keep_every = pick(1, 6);
    // Over sockets its rank and one more have a part; where memory is shared, all ranks have it.
    loses_one_ = is_kept(plan_.update) && place_ != PlannedPlace::kShared;
    plan_.own_values = pick(0, 1) == 1;
    // What a program changes in buffers after a pass is not kept with virtual ranks.
    plan_.virtual_ranks = pick(0, 3) == 0 && plan_.update != Update::kOwn ? kMostRanks : 0;
    plan_.pause_ms = pick(0, 6);
    plan_.save_every = pick(0, 2) == 0 ? 0 : pick(5, 15);
    plan_.dead_after_ms = 1'500;
    plan_.rendezvous_timeout_ms = 10'000;
    if (ddp_recover_options_init(&plan_.rule, sizeof plan_.rule) != DDP_OK) throw Error(DDP_ERROR_INTERNAL, "no options");
    plan_.rule.cool_down_ms = 0;  // made-up hosts lose many ranks
    plan_.rule.wait_ms = 30'000;
    for (int id = 0; id < plan_.ranks; ++id) living_.push_back(id);
    next_id_ = plan_.ranks;
    if (pick(0, 3) == 0) begin_badly();
    for (int64_t i = pick(3, 8); i > 0; --i) strike();
  }

  [[nodiscard]] uint64_t seed() const { return seed_; }
  [[nodiscard]] PlannedPlace place() const { return place_; }
  [[nodiscard]] const Survival& training() const { return plan_; }
  /// A rank that dies while the group is made or the model committed.
  [[nodiscard]] const std::optional<Blow>& at_the_start() const { return first_; }
  [[nodiscard]] const std::vector<Strike>& strikes() const { return strikes_; }

  [[nodiscard]] std::string describe() const {
    static const char* const kUpdates[] = {"own optimizer",
                                           "at the step",
                                           "in backward",
                                           "sharded",
                                           "without undo",
                                           "sharded, kept",
                                           "sharded, kept, in backward"};
    std::string text =
        std::to_string(plan_.ranks) + " ranks, " + name_of(place_) + ", " + kUpdates[static_cast<size_t>(plan_.update)];
    if (is_kept(plan_.update)) text += " every " + std::to_string(plan_.keep_every) + " steps";
    if (plan_.own_values) text += ", own values";
    if (plan_.virtual_ranks != 0) text += ", " + std::to_string(plan_.virtual_ranks) + " virtual ranks";
    if (plan_.save_every != 0) text += ", saves";
    if (first_.has_value()) text += "; " + describe(*first_);
    for (const Strike& strike : strikes_) {
      text += ";";
      for (const Blow& blow : strike.blows) text += " " + describe(blow);
    }
    return text;
  }

 private:
  int64_t pick(int64_t low, int64_t high) { return std::uniform_int_distribution<int64_t>(low, high)(random_); }
  int any() { return living_[static_cast<size_t>(pick(0, static_cast<int64_t>(living_.size()) - 1))]; }
  [[nodiscard]] int64_t count() const { return static_cast<int64_t>(living_.size()); }
  void lose(int id) { living_.erase(std::find(living_.begin(), living_.end(), id)); }
  [[nodiscard]] bool has_hosts() const { return place_ == PlannedPlace::kTwoHosts || place_ == PlannedPlace::kNetwork; }
  /// Between hosts a death may stay unseen, so more than half must be left of those who were there before the strike.
  [[nodiscard]] bool may_lose_one() const { return count() > 1 && (!has_hosts() || 2 * (count() - 1) > before_); }

  static std::string describe(const Blow& blow) {
    std::string text = name_of(blow.kind);
    for (const int id : blow.ids) text += " " + std::to_string(id);
    if (blow.in.has_value()) text += std::string(" in ") + name_of_moment(blow.moment());
    if (blow.lasts_ms != 0) text += " for " + std::to_string(blow.lasts_ms) + " ms";
    return text;
  }

  void begin_badly() {
    const State in = pick(0, 2) == 0 ? State::kCommit : State::kRendezvous;
    first_ = Blow{Kind::kKill, {any()}, in, pick(0, in == State::kCommit ? 5'000 : 60'000), 0};
    lose(first_->id());
  }

  Blow kill(std::vector<State> states) {
    if (plan_.save_every != 0) states.push_back(State::kSave);
    if (is_kept(plan_.update)) states.push_back(State::kKeep);
    Blow blow{Kind::kKill, {any()}, {}, pick(0, 60'000), 0};
    const int64_t which = pick(-1, static_cast<int64_t>(states.size()) - 1);
    if (which >= 0) {
      blow.in = states[static_cast<size_t>(which)];
      static constexpr int64_t kLastsUs[] = {60'000, 20'000, 8'000, 1'500, 3'000, 120'000, 1'500};
      blow.after_us = pick(0, kLastsUs[static_cast<size_t>(*blow.in)]);
    }
    lose(blow.id());
    return blow;
  }

  /// The second one of a strike, while the others go to meet again.
  void kill_one_more(Strike& strike) {
    Blow blow{Kind::kKill, {any()}, State::kRecover, pick(0, 120'000), 0};
    lose(blow.id());
    strike.blows.insert(strike.blows.begin(), blow);
  }

  void strike() {
    Strike strike;
    before_ = count();
    const int64_t dice = pick(0, 99);
    const int64_t cap = kMostRanks;
    if (mix_ == Mix::kJoiners && pick(0, 3) > 0) {
      join(strike);
    } else if (place_ == PlannedPlace::kNetwork && dice < 40) {
      cut(strike);
    } else if ((dice < 65 && count() < cap) || !may_lose_one()) {
      join(strike);
    } else if (dice < 75 && count() > 2) {
      Blow blow{Kind::kStop, {any()}, {}, pick(0, 40'000), 0};
      if (pick(0, 1) == 0) blow.in = State::kPass;
      lose(blow.id());
      strike.blows.push_back(blow);
      if (count() > 2 && may_lose_one() && !loses_one_ && pick(0, 1) == 0) kill_one_more(strike);
    } else if (dice < 80) {
      strike.blows.push_back(Blow{Kind::kPause, {any()}, {}, pick(0, 20'000), pick(30, 400)});
    } else {
      strike.blows.push_back(kill({State::kPass, State::kStep}));
      if (may_lose_one() && !loses_one_ && pick(0, 1) == 0) kill_one_more(strike);
      if (may_lose_one() && !loses_one_ && pick(0, 3) == 0) strike.blows.push_back(kill({State::kPass}));
    }
    strike.left = living_;
    strikes_.push_back(strike);
  }

  void join(Strike& strike) {
    if (next_id_ >= 60) return;
    Blow blow{Kind::kJoin, {next_id_++}, {}, pick(0, 10'000), 0};
    const int64_t dice = pick(0, mix_ == Mix::kAll ? 9 : 11);
    if (dice >= 8 || count() >= kMostRanks) {  // more than these must not stay
      blow.kind = pick(0, 1) == 0 ? Kind::kWrong : Kind::kStarve;
      blow.how = pick(0, 1'000);
      strike.blows.push_back(blow);
      return;
    }
    strike.blows.push_back(blow);
    if (dice < 2) {  // and it dies before it arrives
      Blow death{Kind::kKill, blow.ids, dice == 0 ? State::kRendezvous : State::kCommit, 0, 0};
      death.after_us = pick(0, dice == 0 ? 100'000 : 10'000);
      strike.blows.insert(strike.blows.begin(), death);
      return;
    }
    if (dice == 2 && may_lose_one()) strike.blows.push_back(kill({State::kPass}));
    if (dice == 3 && may_lose_one()) kill_one_more(strike);
    living_.push_back(blow.id());
  }

  void cut(Strike& strike) {
    const int64_t dice = pick(0, 2);
    if (dice == 0 || count() < 3) {
      strike.blows.push_back(Blow{Kind::kBlink, {any()}, {}, pick(0, 20'000), pick(30, 400)});
      return;
    }
    Blow blow{dice == 1 ? Kind::kMute : Kind::kCut, {}, {}, pick(0, 20'000), 0};
    const int64_t most = dice == 1 || loses_one_ ? 1 : (count() - 1) / 2;
    for (int64_t i = pick(1, most); i > 0; --i) {
      blow.ids.push_back(any());
      lose(blow.ids.back());
    }
    strike.blows.push_back(blow);
  }

  uint64_t seed_;
  std::mt19937_64 random_;
  Mix mix_;
  Survival plan_;
  PlannedPlace place_ = PlannedPlace::kShared;
  bool loses_one_ = false;  // in a strike
  std::optional<Blow> first_;
  std::vector<Strike> strikes_;
  std::vector<int> living_;
  int64_t before_ = 0;  // a strike
  int next_id_ = 0;
};

}  // namespace ddp::test
