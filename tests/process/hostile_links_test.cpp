// SPDX-License-Identifier: Apache-2.0
// Strangers at the ports of the data links, over the real Gloo module: while the links of a group are made, and later. No
// rank ends, errs or is blamed, and every sum is right. One rank comes when the strangers have found the others' ports.
// Skipped with a printed reason when the module is not there.
#include <sys/resource.h>

#include "bootstrap/failure.hpp"
#include "socket/transport.hpp"
#include "support/check.hpp"
#include "support/fork_control.hpp"
#include "support/no_gloo.hpp"
#include "support/procs.hpp"
#include "support/stranger.hpp"
#include "support/values.hpp"

constexpr int kRanks = 3;
constexpr int kLate = kRanks - 1;
constexpr int64_t kEnough = 100;  // connections
constexpr int64_t kCount = 20'000;
constexpr rlim_t kFewDescriptors = 40;  // fewer than a listener lets wait

std::atomic<bool>* late_may_come = nullptr;  // shared by the processes

std::unique_ptr<collective::Transport> make_links(bootstrap::Control& control, bootstrap::Failure& failure,
                                                  ddp_links links) {
  ddp_group_options options{.timeout_ms = 30'000, .rendezvous_timeout_ms = 30'000, .links = links};
  return socket::make_socket_transport(collective::TransportContext{&control, &failure, options}, socket::load_module(),
                                       "127.0.0.1", socket::SocketOptions{});
}

std::string train(ForkHub& hub, int rank, Reporter& report, bool few_descriptors, ddp_links kind) {
  signal(SIGPIPE, SIG_DFL);
  const rlimit few{kFewDescriptors, kFewDescriptors};
  if (few_descriptors) expect(setrlimit(RLIMIT_NOFILE, &few) == 0, "limit");
  ForkControl control(hub, rank, 30'000);
  bootstrap::auth::Key key{};
  key.fill(1);
  control.set_link_key(key);
  bootstrap::Failure failure;
  control.on_failure([&](const Error& cause) { failure.set(cause); });
  while (rank == kLate && !*late_may_come) std::this_thread::sleep_for(std::chrono::milliseconds(5));
  const auto links = make_links(control, failure, kind);
  std::vector<float> data(kCount);
  for (int step = 0; step < 100; ++step) {
    std::fill(data.begin(), data.end(), static_cast<float>(rank + step));
    links->all_reduce(flat_tensor(data.data(), DDP_F32, kCount), DDP_SUM);
    expect(data.front() == static_cast<float>(3 + 3 * step) && data.back() == data.front(),
           "sum of step " + std::to_string(step));
  }
  report.say("trained");
  links->shutdown();
  return "";
}

void a_group_forms_and_trains(Attack attack, ddp_links links = DDP_LINKS_PLAIN, bool few_descriptors = false) {
  *late_may_come = false;
  ForkHub hub(kRanks);
  Procs procs(kRanks, [&](int rank, Reporter& report) { return train(hub, rank, report, few_descriptors, links); });
  hub.release();
  std::vector<pid_t> targets;
  for (int rank = 0; rank < kRanks; ++rank) targets.push_back(procs.pid(rank));
  Stranger stranger(targets, attack);
  for (int i = 0; i < 6'000 && stranger.connections() < kEnough; ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  *late_may_come = true;
  for (const ProcResult& result : procs.wait(60'000))
    expect(result.exit_code == 0 && !result.timed_out, std::string(attack_name(attack)) + ": " + result.describe());
  std::printf("%s: %lld connections\n", attack_name(attack), static_cast<long long>(stranger.connections()));
  expect(stranger.connections() >= kEnough, "the stranger reached the ports");
}

ddp_case_of(a_group_forms_and_trains(Attack::kBogusFrames));
ddp_case_of(a_group_forms_and_trains(Attack::kReset));
ddp_case_of(a_group_forms_and_trains(Attack::kSilence));
ddp_case_of(a_group_forms_and_trains(Attack::kHalfFrame));
ddp_case_of(a_group_forms_and_trains(Attack::kDrip));
ddp_case_of(a_group_forms_and_trains(Attack::kRequest));
ddp_case_of(a_group_forms_and_trains(Attack::kFlood));
ddp_case_of(a_group_forms_and_trains(Attack::kReplay));
ddp_case_of(a_group_forms_and_trains(Attack::kSilence, DDP_LINKS_PLAIN, true));
ddp_case_of(a_group_forms_and_trains(Attack::kBogusFrames, DDP_LINKS_ENCRYPTED));
ddp_case_of(a_group_forms_and_trains(Attack::kSilence, DDP_LINKS_ENCRYPTED, true));
ddp_case_of(a_group_forms_and_trains(Attack::kDrip, DDP_LINKS_ENCRYPTED));
ddp_case_of(a_group_forms_and_trains(Attack::kFlood, DDP_LINKS_ENCRYPTED));
ddp_case_of(a_group_forms_and_trains(Attack::kReplay, DDP_LINKS_ENCRYPTED));

ddp_before_cases({
  need_gloo();
  void* page = mmap(nullptr, sizeof *late_may_come, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (page == MAP_FAILED) std::exit(1);
  late_may_come = new (page) std::atomic<bool>(false);
});
