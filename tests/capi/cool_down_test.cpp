// SPDX-License-Identifier: Apache-2.0
// A host on which ranks die again and again: its new ranks wait before they are taken in, those of other hosts do not.

#include <new>

#include "support/check.hpp"
#include "support/on_processes.hpp"
#include "support/survivor.hpp"

constexpr int64_t kCoolDownMs = 2'000;

/// In memory of all ranks.
struct Shared {
  SurvivorEnding ending;
  std::atomic<uint64_t> members[16] = {};  // by id: who made its last step
};

int64_t now_ms() {
  return std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

class Job : NotCopied {
 public:
  explicit Job(int64_t cool_down_ms) {
    plan_.rendezvous = "file://" + folder_.path() + "/meet";
    plan_.ranks = 4;
    expect(ddp_recover_options_init(&plan_.rule, sizeof plan_.rule) == DDP_OK, "options");
    expect_equal(plan_.rule.cool_down_ms, int64_t{10'000}, "the default");
    plan_.rule.cool_down_ms = cool_down_ms;
    plan_.backend = gloo_is_there() ? DDP_BACKEND_AUTO : DDP_BACKEND_SHM;
    plan_.ending = &shared_->ending;
    for (int32_t id = 0; id < plan_.ranks; ++id) start(id, id / 2, false);
    wait_for_steps();
  }
  ~Job() { munmap(shared_, sizeof *shared_); }

  /// One more rank: it joins.
  size_t add(int host, int64_t timeout_ms = 60'000) {
    plan_.rendezvous_timeout_ms = timeout_ms;
    start(static_cast<int32_t>(ranks_.size()), host, true);
    return ranks_.size() - 1;
  }
  /// Returns when the others have made a step without it: each is a death of its own.
  void kill(size_t id) {
    ranks_[id]->signal(0, SIGKILL);
    ranks_[id].reset();
    wait_for_steps();
  }
  /// Until all but these make steps together.
  void wait_for_steps(const std::vector<size_t>& waiting = {}) {
    uint64_t wanted = 0;
    for (size_t id = 0; id < ranks_.size(); ++id)
      if (ranks_[id] != nullptr && std::find(waiting.begin(), waiting.end(), id) == waiting.end())
        wanted |= uint64_t{1} << id;
    const int64_t deadline_ms = now_ms() + 30'000;
    const auto all_made = [&] {
      for (size_t id = 0; id < ranks_.size(); ++id)
        if ((wanted >> id & 1) != 0 && shared_->members[id] != wanted) return false;
      return true;
    };
    while (!all_made()) {
      if (now_ms() > deadline_ms) throw std::runtime_error("no step was made by the ranks " + std::to_string(wanted));
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
  }
  ProcResult end(size_t id) {
    const ProcResult result = ranks_[id]->wait(60'000).front();
    ranks_[id].reset();
    return result;
  }
  /// All that are left make two more steps and tell the same.
  void end_all() {
    shared_->ending.asked = true;
    Story told;
    for (size_t id = 0; id < ranks_.size(); ++id) {
      if (ranks_[id] == nullptr) continue;
      const ProcResult result = end(id);
      expect(result.exit_code == 0, "id " + std::to_string(id) + ": " + result.describe() + "\n" + result.said);
      const Story story = read_story(result.text);
      if (told.members.empty()) told = story;
      expect(story.hash == told.hash, "the same weights");
    }
    expect(told.hash == replay(told.members), "the weights are those of the replay");
  }

 private:
  void start(int32_t id, int host, bool joins) {
    ranks_.push_back(std::make_unique<Procs>(1, [this, id, host, joins](int, Reporter& report) {
      setenv("DDP_TEST_HOST", std::to_string(host).c_str(), 1);
      plan_.made = [this, id](int64_t, uint64_t members) { shared_->members[id] = members; };
      return write_story(Survivor(plan_, id, to(report), joins).run());
    }));
  }

  const Folder folder_;
  Survival plan_;
  Shared* const shared_ =
      new (mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0)) Shared;
  std::vector<std::unique_ptr<Procs>> ranks_;  // by id; NULL: has ended
};

ddp_case(a_host_that_flaps_waits_and_the_others_do_not) {
  if (!gloo_is_there()) return;
  Job job(kCoolDownMs);
  job.kill(2);
  const size_t fifth = job.add(1);
  job.wait_for_steps();  // one death is nothing yet
  job.kill(fifth);
  job.kill(3);
  const int64_t died_ms = now_ms();
  const size_t sixth = job.add(1), eighth = job.add(1, 300);
  static_cast<void>(job.add(0));
  job.wait_for_steps({sixth, eighth});
  const int64_t other_ms = now_ms() - died_ms;
  const ProcResult refused = job.end(eighth);
  expect(refused.text.find("TIMED_OUT") != std::string::npos &&
             refused.text.find("ranks have died 3 times on host") != std::string::npos,
         refused.describe());
  job.wait_for_steps();
  const int64_t flapping_ms = now_ms() - died_ms;
  expect(flapping_ms > kCoolDownMs - 500, "the host waited: " + std::to_string(flapping_ms) + " ms");
  expect(other_ms < flapping_ms, "the other host did not: " + std::to_string(other_ms) + " ms");
  job.end_all();
}

ddp_case(nobody_waits_if_it_is_off) {
  if (!gloo_is_there()) return;
  Job job(0);
  job.kill(2);
  const size_t fifth = job.add(1);
  job.wait_for_steps();
  job.kill(fifth);
  job.kill(3);
  static_cast<void>(job.add(1));
  job.wait_for_steps();
  job.end_all();
}
