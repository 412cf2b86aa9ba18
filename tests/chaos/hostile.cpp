// SPDX-License-Identifier: Apache-2.0
// A training over sockets that can recover, while strangers attack every port of every rank, those at which the ranks would
// meet again too. Meanwhile a rank joins and another one dies: the others continue, with the weights of the replay, and a
// stranger costs little memory.
//
//   chaos.hostile                 three attacks, some seconds; speed is printed and not judged, since other programs run too
//   chaos.hostile --judge [s]     all attacks, s seconds (10) each: 80 % of the speed, joined and recovered within 2 s
//
// Skipped with a printed reason when the Gloo module is not there.
#include <malloc.h>

#include "chaos/board.hpp"
#include "control/limits.hpp"
#include "support/stranger.hpp"

using namespace ddp::test;

namespace {

constexpr int kRanks = 3, kNewcomer = kRanks, kVictim = 1;
constexpr int64_t kMostBytesEach = 4'096;
constexpr int64_t kEnough = 20;  // connections
constexpr double kLeastSpeed = 0.8, kSoonS = 2, kSoonOnABusyMachineS = 20;

bool judges = false;
int windows = 1;
constexpr int64_t kWindowMs = 200;

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

void sleep_ms(int64_t ms) { std::this_thread::sleep_for(std::chrono::milliseconds(ms)); }

class Job {
 public:
  Job() {
    plan_.rendezvous = "file://" + folder_.path() + "/meet";
    plan_.ranks = kRanks;
    plan_.backend = DDP_BACKEND_GLOO;
    plan_.pause_ms = 0;
    plan_.dead_after_ms = 20'000;
    plan_.rendezvous_timeout_ms = 60'000;
    plan_.ending = &board_->ending;
    if (ddp_recover_options_init(&plan_.rule, sizeof plan_.rule) != DDP_OK) throw Error(DDP_ERROR_INTERNAL, "no options");
    plan_.rule.cool_down_ms = 0;  // made-up hosts lose many ranks
    for (int id = 0; id < kRanks; ++id) spawn(id);
    await(0b111);
  }

  void spawn(int id) {
    processes_.push_back(std::make_unique<Procs>(1, [&, id](int, Reporter& report) {
      plan_.made = [&, id](int64_t step, uint64_t members) {
        if (step % 5 == 0) board_->of(id).heap_bytes = static_cast<int64_t>(mallinfo2().uordblks);
        board_->note_step(id, step, members);
      };
      return write_story(Survivor(plan_, id, to(report), id == kNewcomer).run());
    }));
  }
  void kill(int id) { processes_.at(static_cast<size_t>(id))->signal(0, SIGKILL); }
  [[nodiscard]] pid_t pid(int id) const { return processes_.at(static_cast<size_t>(id))->pid(0); }

  /// Until these train together; how long it took.
  double await(uint64_t members) {
    const int64_t begin = os::now_ns();
    const auto is_there = [&] {
      for (int id = 0; id <= kNewcomer; ++id)
        if ((members >> id & 1) != 0 && board_->of(id).members != members) return false;
      return true;
    };
    while (!is_there()) {
      expect(os::now_ns() - begin < INT64_C(60'000'000'000), "the ranks go on" + said());
      sleep_ms(1);
    }
    return static_cast<double>(os::now_ns() - begin) * 1e-9;
  }

  /// The first steps allocate what all need.
  void warm_up() {
    const int64_t limit = os::now_ns() + INT64_C(60'000'000'000);
    while (board_->of(0).step < 200 && os::now_ns() < limit) sleep_ms(5);
  }

  double steps_per_s(int64_t ms) {
    const int64_t before = board_->of(0).step, begin = os::now_ns();
    sleep_ms(ms);
    return static_cast<double>(board_->of(0).step - before) * 1e9 / static_cast<double>(os::now_ns() - begin);
  }

  /// Of rank 0, as it is most of the time: in the middle of a step there is more.
  double heap() {
    std::vector<double> samples;
    for (int i = 0; i < 21; ++i) {
      sleep_ms(10);
      samples.push_back(static_cast<double>(board_->of(0).heap_bytes));
    }
    return median(samples);
  }

  void end() {
    board_->ending.asked = true;
    Story told;
    for (const int id : {0, 2, kNewcomer}) {
      const ProcResult& result = processes_.at(static_cast<size_t>(id))->wait_one(0, 60'000);
      expect(result.exit_code == 0, "id " + std::to_string(id) + ": " + result.describe());
      const Story story = read_story(result.text);
      if (told.members.empty()) told = story;
      expect(story.hash == told.hash, "the same weights");
    }
    expect(told.hash == replay(told.members), "the weights are those of the replay");
  }

 private:
  std::string said() {
    std::string text;
    for (auto& process : processes_)
      if (process->ended(0)) text += "\n" + process->wait_one(0).describe();
    return text;
  }

  Survival plan_;
  Folder folder_;
  SharedBoard board_;
  std::vector<std::unique_ptr<Procs>> processes_;
};

/// Forks happen before the stranger's thread begins.
void the_job_goes_on(Attack attack) {
  Job job;
  job.warm_up();
  const double heap_before = job.heap();
  double speed = 0, bytes_each = 0;
  int64_t connections = 0;
  {
    Stranger stranger({job.pid(0), job.pid(1), job.pid(2)}, attack, 512);
    std::vector<double> ratios;
    for (int i = 0; i < windows; ++i) {
      stranger.rest(true);
      const double quiet = job.steps_per_s(kWindowMs);
      stranger.rest(false);
      ratios.push_back(job.steps_per_s(kWindowMs) / quiet);
    }
    for (int i = 0; i < 4'000 && stranger.connections() < kEnough; ++i) sleep_ms(5);
    speed = median(ratios);
    connections = stranger.connections();
    const auto pending = static_cast<int64_t>(bootstrap::limits::kUnauthenticatedPending);
    bytes_each = (job.heap() - heap_before) / static_cast<double>(std::clamp<int64_t>(connections, 1, pending));
  }
  // A process of its own attacks on, because this one forks.
  Procs attacker(1, [&, pids = std::vector<pid_t>{job.pid(0), job.pid(1), job.pid(2)}](int, Reporter& report) {
    const Stranger stranger(pids, attack, 512);
    while (stranger.connections() < kEnough) sleep_ms(1);
    report.say("attacks");
    for (;;) sleep_ms(1'000);
  });
  attacker.wait_for(0, "attacks");
  job.spawn(kNewcomer);
  const double join_s = job.await(0b1111);
  job.kill(kVictim);
  const double recover_s = job.await(0b1101);
  job.end();
  std::printf("%-13s %7lld connections, %3.0f %% of the speed, newcomer in %.2f s, recovered in %.2f s, %.0f bytes each\n",
              attack_name(attack), static_cast<long long>(connections), 100 * speed, join_s, recover_s, bytes_each);
  std::fflush(stdout);
  const double soon_s = judges ? kSoonS : kSoonOnABusyMachineS;
  expect(connections >= kEnough, "the stranger reached the ports");
  expect(join_s < soon_s, "the newcomer got in");
  expect(recover_s < soon_s, "the others went on");
  expect(bytes_each < kMostBytesEach, "a stranger costs little memory");
  expect(!judges || speed >= kLeastSpeed, "80 % of the speed");
}

}  // namespace

int main(int argc, char** argv) {
  if (!gloo_is_there()) return 77;
  if (argc > 1 && std::strcmp(argv[1], "--judge") == 0) {
    judges = true;
    windows = std::max(1, (argc > 2 ? std::atoi(argv[2]) : 10) * 1'000 / static_cast<int>(2 * kWindowMs));
  }
  setenv("DDP_TOKEN", "a token that no stranger knows", 1);
  setenv("DDP_SOCKET_IFNAME", "lo", 1);  // where the strangers are
  int failed = 0;
  for (const Attack attack : kAllAttacks) {
    if (!judges && attack != Attack::kFlood && attack != Attack::kSilence && attack != Attack::kReplay) continue;
    try {
      the_job_goes_on(attack);
    } catch (const std::exception& error) {
      std::printf("%s: %s\n", attack_name(attack), error.what());
      ++failed;
    }
  }
  return failed == 0 ? 0 : 1;
}
