// SPDX-License-Identifier: Apache-2.0
// A job that trains over Gloo while strangers attack every port that its processes listen on; one is open all the time,
// because rank 0 also waits for a newcomer. The sums stay right, the newcomer gets in, and a stranger costs little memory.
//
//   test.process.hostile_job                a few seconds; speed is printed and not judged, since other programs run at the
//   same time it test.process.hostile_job --judge [s]    s seconds (10) for each attack: 80 % of the speed, and the newcomer
//   within 2
//   s
//
// Skipped with a printed reason when the Gloo module is not there.
#include <malloc.h>
#include <sys/resource.h>

#include "control/limits.hpp"
#include "group/group.hpp"
#include "support/check.hpp"
#include "support/meeting.hpp"
#include "support/no_gloo.hpp"
#include "support/procs.hpp"
#include "support/stranger.hpp"
#include "support/values.hpp"

constexpr int kRanks = 2;
constexpr int kNewcomer = kRanks;
constexpr int64_t kCount = 65'536;
constexpr int64_t kMostBytesEach = 4'096;  // of a stranger that has not proved who it is
constexpr int64_t kEnough = 20;            // connections
constexpr double kLeastSpeed = 0.8;
constexpr double kJoinS = 2, kJoinOnABusyMachineS = 10;

struct Plan {
  bool judges = false;
  int64_t window_ms = 200;  // with strangers and without, in turn
  int windows = 1;
};
Plan plan;

/// What the processes tell each other.
struct Board {
  std::atomic<int64_t> steps, wrong, begin_ns, joined_ns, heap_bytes;
  std::atomic<bool> attacked, ends;
};
Board* board;

ddp_group_options options_of(int rank, int size) {
  ddp_group_options options = quick_options(rank, size);
  options.backend = DDP_BACKEND_GLOO;
  options.timeout_ms = options.rendezvous_timeout_ms = 60'000;
  options.dead_after_ms = 20'000;
  return options;
}

// Two steps may run after the word to end, on all ranks alike: rank 0's word is in the sum.
void train(group::Group& group, int rank) {
  std::vector<float> data(kCount);
  for (;;) {
    std::fill(data.begin(), data.end(), 1.0F + static_cast<float>(rank));
    data.back() = rank == 0 && board->ends ? 1.0F : 0.0F;
    group.all_reduce(flat_tensor(data.data(), DDP_F32, kCount), DDP_SUM, nullptr);
    if (data.front() != 3.0F || data[kCount / 2] != 3.0F) ++board->wrong;
    if (rank == 0) ++board->steps;
    if (data.back() != 0.0F) return;
  }
}

void wait_for_the_newcomer(int port) {
  const auto group = group::Group::create((tcp_place(port) + "#newcomers").c_str(), options_of(0, 2));
  board->joined_ns = os::now_ns();
  group->barrier();
}

std::string be_rank(int rank, int port, int newcomers_port, Reporter& report) {
  const auto group = group::Group::create(tcp_place(port).c_str(), options_of(rank, kRanks));
  std::thread waits;
  if (rank == 0) {
    waits = std::thread([&] { wait_for_the_newcomer(newcomers_port); });
    while (listening_ports({getpid()}).empty()) std::this_thread::sleep_for(std::chrono::milliseconds(5));
    report.say("listens");
  }
  std::thread weighs;
  if (rank == 0)
    weighs = std::thread([] {
      while (!board->ends) {
        board->heap_bytes = static_cast<int64_t>(mallinfo2().uordblks);
        std::this_thread::sleep_for(std::chrono::milliseconds(5));
      }
    });
  train(*group, rank);
  if (waits.joinable()) waits.join();
  if (weighs.joinable()) weighs.join();
  return "";
}

std::string be_newcomer(int port) {
  while (board->begin_ns == 0) std::this_thread::sleep_for(std::chrono::milliseconds(5));
  group::Group::create((tcp_place(port) + "#newcomers").c_str(), options_of(1, 2))->barrier();
  return "";
}

double steps_per_s(int64_t ms) {
  const int64_t before = board->steps, begin = os::now_ns();
  std::this_thread::sleep_for(std::chrono::milliseconds(ms));
  return static_cast<double>(board->steps - before) * 1e9 / static_cast<double>(os::now_ns() - begin);
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

struct Figures {
  double speed = 1;  // of the speed without strangers
  double join_s = 0;
  int64_t bytes_each = 0;
  int64_t connections = 0;
};

Figures measure(const std::vector<pid_t>& targets, Attack attack) {
  Figures figures;
  steps_per_s(50);
  const int64_t heap_before = board->heap_bytes;
  Stranger stranger(targets, attack, 512);
  std::vector<double> ratios;
  for (int i = 0; i < plan.windows; ++i) {
    stranger.rest(true);
    const double quiet = steps_per_s(plan.window_ms);
    stranger.rest(false);
    ratios.push_back(steps_per_s(plan.window_ms) / quiet);
  }
  for (int i = 0; i < 4'000 && stranger.connections() < kEnough; ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  std::vector<double> heap;  // at one moment connections that are being closed count too
  for (int i = 0; i < 9; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(7));
    heap.push_back(static_cast<double>(board->heap_bytes));
  }
  board->begin_ns = os::now_ns();
  for (int i = 0; i < 12'000 && board->joined_ns == 0; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(5));
  figures.speed = median(ratios);
  figures.join_s = static_cast<double>(board->joined_ns - board->begin_ns) / 1e9;
  figures.connections = stranger.connections();
  const auto pending = static_cast<int64_t>(bootstrap::limits::kUnauthenticatedPending);
  figures.bytes_each =
      (static_cast<int64_t>(median(heap)) - heap_before) / std::clamp<int64_t>(figures.connections, 1, pending);
  return figures;
}

void the_job_goes_on(Attack attack, bool few_descriptors = false) {
  new (board) Board{};
  const int port = free_port(), newcomers_port = free_port();
  Procs procs(kRanks + 1, [&](int rank, Reporter& report) {
    const rlimit few{48, 48};
    if (few_descriptors) expect(setrlimit(RLIMIT_NOFILE, &few) == 0, "limit");
    return rank == kNewcomer ? be_newcomer(newcomers_port) : be_rank(rank, port, newcomers_port, report);
  });
  procs.wait_for(0, "listens");
  std::vector<pid_t> targets;
  for (int rank = 0; rank <= kRanks; ++rank) targets.push_back(procs.pid(rank));
  const Figures figures = measure(targets, attack);
  board->ends = true;
  expect_success(procs, 60'000);
  std::printf("%-13s%s %7lld connections, %3.0f %% of the speed, newcomer in %.2f s, %lld bytes each\n", attack_name(attack),
              few_descriptors ? ", few descriptors:" : ":", static_cast<long long>(figures.connections), 100 * figures.speed,
              figures.join_s, static_cast<long long>(figures.bytes_each));
  std::fflush(stdout);
  expect_equal(board->wrong.load(), int64_t{0}, "wrong sums");
  expect(figures.connections >= kEnough, "the stranger reached the port");
  expect(figures.join_s > 0 && figures.join_s < (plan.judges ? kJoinS : kJoinOnABusyMachineS), "the newcomer got in");
  expect(figures.bytes_each < kMostBytesEach, "a stranger costs little memory");
  expect(!plan.judges || figures.speed >= kLeastSpeed, "80 % of the speed");
}

ddp_case_of(the_job_goes_on(Attack::kBogusFrames));
ddp_case_of(the_job_goes_on(Attack::kReset));
ddp_case_of(the_job_goes_on(Attack::kSilence));
ddp_case_of(the_job_goes_on(Attack::kHalfFrame));
ddp_case_of(the_job_goes_on(Attack::kDrip));
ddp_case_of(the_job_goes_on(Attack::kRequest));
ddp_case_of(the_job_goes_on(Attack::kFlood));
ddp_case_of(the_job_goes_on(Attack::kReplay));
ddp_case(the_job_goes_on_with_few_descriptors) { the_job_goes_on(Attack::kSilence, true); }

ddp_before_cases({
  need_gloo();
  if (argc > 1 && std::strcmp(argv[1], "--judge") == 0) {
    plan.judges = true;
    plan.windows = std::max(1, (argc > 2 ? std::atoi(argv[2]) : 10) * 1'000 / static_cast<int>(2 * plan.window_ms));
  }
  setenv("DDP_TOKEN", "a token that no stranger knows", 1);
  void* page = mmap(nullptr, sizeof(Board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (page == MAP_FAILED) std::exit(1);
  board = static_cast<Board*>(page);
});
