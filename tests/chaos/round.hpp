// SPDX-License-Identifier: Apache-2.0
// One round of random faults: the ranks of a FaultPlan as processes, the strikes against them, and what must hold after each
// and at the end. Throws what does not hold.
#pragma once

#include "chaos/board.hpp"
#include "chaos/network.hpp"
#include "chaos/wrong_rank.hpp"

namespace ddp::test {

/// How many faults of each kind there were in each state.
using Counts = std::array<std::array<int64_t, kMoments>, kKinds>;

class Round : NotCopied {
 public:
  Round(const FaultPlan& plan, const Network* network, Counts& counts)
      : plan_(plan),
        network_(plan.place() == PlannedPlace::kNetwork ? network : nullptr),
        counts_(counts),
        training_(plan.training()) {
    training_.rendezvous = "file://" + folder_.path() + "/meet";
    training_.save_path = folder_.path() + "/saved";
    training_.ending = &board_->ending;
  }
  ~Round() {
    lives_.clear();
    if (network_ == nullptr) return;
    for (const auto& [id, host] : hosts_) network_->heal(host);
  }

  void run() {
    start();
    for (const Strike& strike : plan_.strikes())
      if (!is_mixed_) strike_with(strike);
    board_->ending.asked = true;
    told_ = stories();
    for (auto& [id, life] : lives_)
      if (life.fate == Fate::kSilenced) must_be_fenced(id, life);
    expect(told_.hash == replay(told_.members), "the weights are those of the replay: " + write_story(told_) + what_ended());
    check_the_checkpoint();
  }
  [[nodiscard]] int64_t steps() const { return static_cast<int64_t>(told_.members.size()); }
  /// How long each strike took until the others continued.
  [[nodiscard]] const std::vector<double>& seconds() const { return seconds_; }

 private:
  static constexpr int64_t kLimitMs = 90'000;
  enum class Fate { kLives, kKilled, kSilenced };
  struct Life {
    std::unique_ptr<Procs> process;
    Fate fate = Fate::kLives;
  };

  static void sleep_us(int64_t us) { std::this_thread::sleep_for(std::chrono::microseconds(us)); }

  /// `blow`: it joins, so.
  void spawn(int id, const Blow* blow) {
    const int host = free_host();
    hosts_[id] = host;
    lives_[id].process = std::make_unique<Procs>(1, [&, id, host, blow](int, Reporter& report) {
      if (network_ != nullptr) network_->enter(host);
      if (network_ != nullptr) setenv("DDP_TEST_HOST", std::to_string(host).c_str(), 1);
      if (network_ != nullptr) setenv("DDP_SOCKET_IFNAME", "eth0", 1);
      if (plan_.place() == PlannedPlace::kTwoHosts) setenv("DDP_TEST_HOST", std::to_string(id / 2 % 2).c_str(), 1);
      training_.enters = [&, id](State state) { board_->obey(id, state); };
      training_.made = [&, id](int64_t step, uint64_t members) { board_->note_step(id, step, members); };
      if (blow != nullptr && blow->kind != Kind::kJoin) spoil(training_, *blow);
      return write_story(Survivor(training_, id, to(report), blow != nullptr).run());
    });
  }

  /// A host without a running rank.
  int free_host() {
    for (int host = 0;; ++host) {
      bool used = false;
      for (auto& [id, life] : lives_) used = used || (hosts_.at(id) == host && !life.process->ended(0));
      if (!used) return host;
    }
  }

  std::vector<int> running() {
    std::vector<int> ids;
    for (auto& [id, life] : lives_)
      if (life.fate == Fate::kLives && !life.process->ended(0)) ids.push_back(id);
    return ids;
  }

  [[nodiscard]] bool are_at(const std::vector<int>& ids, int64_t step) {
    uint64_t mask = 0;
    for (const int id : ids) mask |= uint64_t{1} << id;
    for (const int id : ids)
      if (board_->of(id).members != mask || board_->of(id).step < step) return false;
    return true;
  }

  /// If a rank dies before the group exists, the others get an error and a launcher starts them again; or the group exists
  /// already, and they continue without it, perhaps also without some that did not know yet that it exists.
  void start() {
    const std::optional<Blow>& first = plan_.at_the_start();
    for (int id = 0; id < training_.ranks; ++id) {
      if (first.has_value() && first->id() == id) board_->give(*first, id);
      spawn(id, nullptr);
    }
    if (first.has_value()) {
      count(*first);
      lives_.at(first->id()).fate = Fate::kKilled;
      if (await_group()) {
        for (auto& [id, life] : lives_)
          if (life.fate == Fate::kLives && life.process->ended(0)) must_name(id, life);
        return;
      }
      forget_the_group(first->id());
    }
    settle(running(), 2);
  }

  /// False: all have ended.
  bool await_group() {
    const int64_t limit = os::now_ns() + kLimitMs * 1'000'000;
    for (std::vector<int> left = running(); !left.empty(); left = running()) {
      if (are_at(left, 2)) {
        is_mixed_ = left.size() + 1 < lives_.size();
        return true;
      }
      expect(os::now_ns() < limit, "the group forms, or says why not" + what_ended());
      sleep_us(5'000);
    }
    return false;
  }

  /// Half of the ranks may have been told that the group exists when the others were told that it failed.
  static void must_name(int id, Life& life) {
    const ProcResult result = life.process->wait(1'000).front();
    bool is_named = false;
    for (const char* const status : {"PEER_FAILED", "TIMED_OUT", "ABORTED", "NO_MAJORITY"})
      is_named = is_named || result.text.find(status) != std::string::npos;
    expect(result.exit_code == 1 && is_named, "id " + std::to_string(id) + ": " + result.describe());
    life.fate = Fate::kKilled;
  }

  void forget_the_group(int dead) {
    for (auto& [id, life] : lives_)
      if (id != dead) must_name(id, life);
    lives_.clear();
    training_.rendezvous += "-again";
    training_.absent = dead;
    for (int id = 0; id < training_.ranks; ++id)
      if (id != dead) spawn(id, nullptr);
  }

  std::string what_ended() {
    std::string text;
    for (auto& [id, life] : lives_) {
      const bool ended = life.process->ended(0);
      text += "\nid " + std::to_string(id) + (ended ? " ended" : " runs") + ", step " + std::to_string(board_->of(id).step) +
              ", members " + std::to_string(board_->of(id).members) + ": ";
      if (ended) text += life.process->wait_one(0).describe();
    }
    return text;
  }

  /// These and only these continue together, and have made this step.
  void settle(const std::vector<int>& ids, int64_t step) {
    const int64_t limit = os::now_ns() + kLimitMs * 1'000'000;
    while (!are_at(ids, step)) {
      for (const int id : ids)
        expect(!lives_.at(id).process->ended(0), "id " + std::to_string(id) + " has ended" + what_ended());
      expect(os::now_ns() < limit, "the ranks that are left go on in time" + what_ended());
      sleep_us(3'000);
    }
  }

  void strike_with(const Strike& strike) {
    const int64_t begin = os::now_ns();
    int64_t step = 0;
    for (const int id : running()) step = std::max<int64_t>(step, board_->of(id).step);
    for (const Blow& blow : strike.blows) {
      deal(blow);
      count(blow);
    }
    for (const Blow& blow : strike.blows)  // a rank that joins only to die must have died, or the next strike meets this one
      if (blow.joins() && fates_.count(blow.id()) != 0) {
        static_cast<void>(lives_.at(blow.id()).process->wait_one(0, kLimitMs));
        for (const int id : running()) step = std::max<int64_t>(step, board_->of(id).step);
      }
    settle(strike.left, step + 2);
    seconds_.push_back(static_cast<double>(os::now_ns() - begin) * 1e-9);
    for (const Blow& blow : strike.blows) {
      if (!blow.silences()) continue;
      for (const int id : blow.ids) {
        if (blow.kind == Kind::kStop)
          lives_.at(id).process->signal(0, SIGCONT);
        else
          network_->heal(hosts_.at(id));
      }
    }
  }

  void deal(const Blow& blow) {
    for (const int id : blow.ids) {
      if (blow.kind == Kind::kKill || blow.kind == Kind::kWrong || blow.kind == Kind::kStarve || blow.silences())
        fates_[id] = blow.silences() ? Fate::kSilenced : Fate::kKilled;
      board_->of(id).silenced = blow.silences();
    }
    if (blow.in.has_value()) board_->give(blow, blow.id());
    if (!blow.in.has_value()) sleep_us(blow.after_us);
    switch (blow.kind) {
      case Kind::kJoin:
      case Kind::kWrong:
      case Kind::kStarve: spawn(blow.id(), &blow); break;
      case Kind::kKill:
      case Kind::kStop:
        if (!blow.in.has_value()) lives_.at(blow.id()).process->signal(0, blow.signal());
        break;
      case Kind::kPause:
        lives_.at(blow.id()).process->signal(0, SIGSTOP);
        sleep_us(blow.lasts_ms * 1'000);
        lives_.at(blow.id()).process->signal(0, SIGCONT);
        break;
      case Kind::kCut:
        for (const int id : blow.ids) network_->cut(hosts_.at(id));
        break;
      case Kind::kMute: network_->mute(hosts_.at(blow.id())); break;
      case Kind::kBlink:
        network_->cut(hosts_.at(blow.id()));
        sleep_us(blow.lasts_ms * 1'000);
        network_->heal(hosts_.at(blow.id()));
        break;
    }
    for (auto& [id, life] : lives_)
      if (fates_.count(id) != 0) life.fate = fates_.at(id);
  }

  void count(const Blow& blow) { ++counts_.at(static_cast<size_t>(blow.kind)).at(blow.moment()); }

  static void must_be_fenced(int id, Life& life) {
    const ProcResult& result = life.process->wait_one(0, 60'000);
    const bool fenced =
        result.text.find("FENCED") != std::string::npos || result.text.find("NO_MAJORITY") != std::string::npos;
    expect(result.exit_code == 1 && fenced, "id " + std::to_string(id) + " is fenced: " + result.describe());
  }

  /// What the living tell, which is the same; who made the steps that none of them was there for, the board knows.
  Story stories() {
    Story told;
    for (auto& [id, life] : lives_) {
      if (life.fate != Fate::kLives) continue;
      const ProcResult& result = life.process->wait_one(0, kLimitMs);
      const std::string who = "id " + std::to_string(id) + ": " + result.describe();
      expect(result.exit_code == 0, who + what_ended());
      const Story story = read_story(result.text);
      if (told.members.empty()) told = story;
      expect(story.hash == told.hash && story.members.size() == told.members.size(), "the same weights: " + who);
      for (size_t step = 0; step < story.members.size(); ++step) {
        uint64_t& members = told.members[step];
        if (members == 0) members = story.members[step];
        expect(story.members[step] == 0 || story.members[step] == members, "the same members: " + who);
      }
    }
    const uint64_t parts = (uint64_t{1} << training_.virtual_ranks) - 1;
    for (size_t step = 0; step < told.members.size(); ++step)
      if (told.members[step] == 0) told.members[step] = parts != 0 ? parts : board_->members_of_step.at(step).load();
    return told;
  }

  /// A new process loads it, whole, and finds the weights that the replay has at its step.
  void check_the_checkpoint() {
    if (training_.save_every == 0 || !std::filesystem::exists(training_.save_path)) return;
    Survival alone = training_;
    alone.rendezvous += "-alone";
    alone.ranks = 1;
    alone.absent = -1;
    alone.virtual_ranks = 0;
    Procs process(1, [&](int, Reporter& report) {
      int64_t step = 0;
      const uint64_t hash = Survivor(alone, 0, to(report)).load(alone.save_path, &step);
      return std::to_string(step) + " " + std::to_string(hash);
    });
    const ProcResult result = process.wait(kLimitMs).front();
    expect(result.exit_code == 0, "the checkpoint loads: " + result.describe());
    std::vector<uint64_t> members = told_.members;
    const size_t step = std::stoull(result.text);
    expect(step % static_cast<size_t>(training_.save_every) == 0 && step <= members.size(), "its step: " + result.text);
    members.resize(step);
    expect(result.text == std::to_string(step) + " " + std::to_string(replay(members)), "its weights: " + result.text);
  }

  const FaultPlan& plan_;
  const Network* const network_;  // NULL: this round has none
  Counts& counts_;
  Survival training_;
  Folder folder_;
  SharedBoard board_;
  std::map<int, int> hosts_;
  std::map<int, Life> lives_;
  std::map<int, Fate> fates_;
  bool is_mixed_ = false;  // other ranks are there than in the plan
  std::vector<double> seconds_;
  Story told_;
};

}  // namespace ddp::test
