// SPDX-License-Identifier: Apache-2.0
// Rows of the table of faults that no other test holds in full: ranks that disagree about model or options, at each rank;
// no shared memory; a name service that hangs; the files of a killed job. Each asserts the status, the rank or thing that
// is named, how soon, and that the process continues.
#include <netdb.h>

#include "model/model.hpp"
#include "os/clock.hpp"
#include "support/check.hpp"
#include "support/goes_on.hpp"
#include "support/hidden.hpp"
#include "support/on_processes.hpp"

using namespace ddp::test;

namespace {

std::atomic<bool> no_shared_memory{false};

}  // namespace

/// In the place of the C library's: a system without it, or a process that may not have it.
extern "C" int memfd_create(const char* name, unsigned flags) noexcept {
  static constinit Hidden hidden("memfd_create");
  if (no_shared_memory) return errno = ENOSYS, -1;
  return hidden.as<decltype(memfd_create)>()(name, flags);
}

/// A name service that does not answer for this name.
extern "C" int getaddrinfo(const char* host, const char* service, const addrinfo* hints, addrinfo** out) {
  static constinit Hidden hidden("getaddrinfo");
  const bool looks_up = hints == nullptr || (hints->ai_flags & AI_NUMERICHOST) == 0;
  if (looks_up && host != nullptr && std::string(host) == "hangs.invalid")
    std::this_thread::sleep_for(std::chrono::seconds(30));
  return hidden.as<decltype(getaddrinfo)>()(host, service, hints, out);
}

namespace {

constexpr int kRanks = 3;
constexpr int64_t kCount = 600;
constexpr double kSoonS = 5;  // a second is promised; the machine may be busy

/// A model of two parameters; `is_odd`: in the way of this case.
struct Case {
  const char* name;
  const char* named;  // in the text, on all ranks
  int32_t parameters = 2;
  const char* second = "weight";
  int64_t count = kCount;
  ddp_dtype dtype = DDP_F32;
  bool swapped = false;
  int64_t bucket_bytes = 1 << 20;
  ddp_reduce reduce = DDP_AVERAGE;
};

const Case kRight{"none", ""};
const Case kCases[] = {
    {"count", "weight", 1},
    {"name", "other", 2, "other"},
    {"shape", "599", 2, "weight", kCount - 1},
    {"dtype", "BF16", 2, "weight", kCount, DDP_BF16},
    {"order", "weight", 2, "weight", kCount, DDP_F32, true},
    {"bucket size", "65536", 2, "weight", kCount, DDP_F32, false, 65'536},
    {"reduction", "sum", 2, "weight", kCount, DDP_F32, false, 1 << 20, DDP_SUM},
};

struct Made {
  Made(group::Group& group, const Case& as)
      : model(std::shared_ptr<group::Group>(&group, [](group::Group*) {}), options(as)) {
    const auto add = [&](const char* name, size_t which, int64_t count) {
      const Tensor lent = flat_tensor(gradients[which].data(), as.dtype, count);
      model.add_parameter(name, flat_tensor(values[which].data(), as.dtype, count), &lent);
    };
    if (as.swapped) add(as.second, 1, as.count);
    add("first", 0, kCount);
    if (as.parameters > 1 && !as.swapped) add(as.second, 1, as.count);
  }
  static ddp_model_options options(const Case& as) {
    return {.first_bucket_bytes = as.bucket_bytes, .bucket_bytes = as.bucket_bytes, .reduce = as.reduce};
  }
  std::vector<float> values[2] = {std::vector<float>(kCount, 1), std::vector<float>(kCount, 1)};
  std::vector<float> gradients[2] = {std::vector<float>(kCount), std::vector<float>(kCount)};
  model::Model model;
};

void train_a_step(group::Group& group, Made& made, int rank) {
  for (auto& gradient : made.gradients) std::fill(gradient.begin(), gradient.end(), static_cast<float>(3 * rank));
  made.model.begin_backward(DDP_PASS_REDUCE);
  for (const int32_t index : {1, 0}) made.model.pass().mark_ready(index);
  made.model.end_backward();
  expect_equal(made.gradients[1][kCount - 1], static_cast<float>(3 * (group.size() - 1)) / 2, "the mean");
}

/// The same text on all ranks.
void expect_one_text(group::Group& group, const std::string& text) {
  for (const std::string& other : group.gather("texts", text)) expect_equal(other, text, "one text on all ranks");
}

double seconds_since(int64_t begin_ns) { return static_cast<double>(os::now_ns() - begin_ns) * 1e-9; }

/// F21: at rank 0, in the middle and at the last rank. Nothing was reduced or sent, and the group trains the right model.
ddp_case_on_hosts(models_that_differ_are_named_on_all_ranks, Hosts::kShared, Hosts::kGloo) {
  run_on_hosts(hosts, kRanks, [](group::Group& group, int rank) {
    for (const Case& each : kCases)
      for (int odd = 0; odd < kRanks; ++odd) {
        const std::string what = std::string(each.name) + " differs on rank " + std::to_string(odd);
        Made made(group, rank == odd ? each : kRight);
        made.values[0][0] = static_cast<float>(rank);
        group.barrier();
        const int64_t begin = os::now_ns();
        const std::string text = expect_error(DDP_ERROR_MISMATCH, [&] { made.model.commit(); });
        expect(seconds_since(begin) < kSoonS, what + ": soon");
        expect(text.find(each.named) != std::string::npos, what + " is named: " + text);
        expect(text.find("rank") != std::string::npos, what + ": ranks are named: " + text);
        expect_one_text(group, text);
        expect_equal(made.values[0][0], static_cast<float>(rank), what + ": nothing was sent");
        Made right(group, kRight);
        right.model.commit();
        train_a_step(group, right, rank);
      }
  });
}

/// F23: options of the group.
ddp_case(options_that_differ_are_named_on_all_ranks) {
  const std::pair<const char*, std::function<void(ddp_group_options&)>> cases[] = {
      {"sum_order 1", [](ddp_group_options& options) { options.sum_order = DDP_SUM_ORDER_BY_HOST; }},
      {"links 2", [](ddp_group_options& options) { options.links = DDP_LINKS_PLAIN; }},
      {"recoverable 1", [](ddp_group_options& options) { options.recoverable = 1; }},
      {"virtual_ranks 8", [](ddp_group_options& options) { options.virtual_ranks = 8; }},
      {"reproducible 1", [](ddp_group_options& options) { options.reproducible = 1; }},
  };
  const Folder folder;
  Procs procs(kRanks, [&](int rank, Reporter&) {
    int number = 0;
    for (const auto& [named, change] : cases)
      for (int odd = 0; odd < kRanks; ++odd) {
        ddp_group_options options = options_on(Hosts::kShared);
        options.rank = rank;
        options.world_size = kRanks;
        if (rank == odd) change(options);
        const std::string place = "file://" + folder.path() + "/meet-" + std::to_string(++number);
        const std::string text =
            expect_error(DDP_ERROR_MISMATCH, [&] { static_cast<void>(group::Group::create(place.c_str(), options)); });
        expect_contains(text, named);
        expect_contains(text, "rank 0 (host ");
      }
    and_goes_on(folder, rank, kRanks, options_on(Hosts::kShared));
  });
  for (const ProcResult& result : procs.wait(60'000)) {
    expect(result.exit_code == 0, result.describe());
    expect(result.seconds < 4 * kRanks * kSoonS, "soon");
  }
}

/// F37: one rank has none. AUTO takes sockets on all ranks; a program that asked for shared memory gets the reason.
ddp_case(without_shared_memory_sockets_are_used) {
  const Folder folder;
  const bool gloo = gloo_is_there();
  Procs procs(kRanks, [&](int rank, Reporter&) {
    no_shared_memory = rank == 1;
    ddp_group_options options = options_on(Hosts::kShared);
    options.rank = rank;
    options.world_size = kRanks;
    const int64_t begin = os::now_ns();
    const std::string text = expect_error(DDP_ERROR_NOT_SUPPORTED, [&] {
      static_cast<void>(group::Group::create(("file://" + folder.path() + "/asked").c_str(), options));
    });
    expect(seconds_since(begin) < kSoonS, "soon");
    expect_contains(text, "rank 1 (host ");
    expect_contains(text, "no shared memory on this machine");
    options.backend = DDP_BACKEND_AUTO;
    if (gloo) {
      const auto group = group::Group::create(("file://" + folder.path() + "/auto").c_str(), options);
      expect_equal(group->backend(), DDP_BACKEND_GLOO, "the backend");
      Made made(*group, kRight);
      made.model.commit();
      train_a_step(*group, made, rank);
    }
    no_shared_memory = false;
    and_goes_on(folder, rank, kRanks, options_on(Hosts::kShared));
  });
  expect_success(procs, 60'000);
}

/// F76: the caller waits no longer than its limit, and continues.
ddp_case(a_name_service_that_hangs_ends_with_the_rendezvous) {
  const Folder folder;
  Procs procs(2, [&](int rank, Reporter&) {
    ddp_group_options options = options_on(Hosts::kShared);
    options.rank = rank;
    options.world_size = 2;
    options.rendezvous_timeout_ms = 400;
    const int64_t begin = os::now_ns();
    const std::string text =
        expect_error(DDP_ERROR_IO, [&] { static_cast<void>(group::Group::create("tcp://hangs.invalid:29500", options)); });
    expect(seconds_since(begin) >= 0.4 && seconds_since(begin) < kSoonS, "when time is up");
    expect_contains(text, "hangs.invalid");
    expect_contains(text, "the name service does not answer");
    and_goes_on(folder, rank, 2, options_on(Hosts::kShared));
  });
  expect_success(procs, 60'000);
}

/// But those of tests that run at the same time.
std::set<std::string> names_in(const std::filesystem::path& folder) {
  std::set<std::string> names;
  std::error_code none;
  for (const auto& each : std::filesystem::directory_iterator(folder, none))
    if (const std::string name = each.path().filename(); name.find("ddp-test") == std::string::npos) names.insert(name);
  return names;
}

/// F38: all ranks are killed while they train. No file of theirs stays in shared memory or in their temporary folder, and
/// the next job meets at the same place.
ddp_case(a_killed_job_leaves_nothing_behind) {
  const Folder folder, temporary;
  const auto left = [&] {
    std::set<std::string> all = names_in(temporary.path());
    for (const std::string& name : names_in("/dev/shm"))
      if (name.find("ddp") != std::string::npos) all.insert("/dev/shm/" + name);
    return all;
  };
  const std::set<std::string> before = left();
  Procs killed(kRanks, [&](int rank, Reporter& report) {
    setenv("TMPDIR", temporary.path().c_str(), 1);
    const auto group = join_process_group(folder, rank, kRanks, options_on(Hosts::kShared));
    Made made(*group, kRight);
    made.model.commit();
    for (int step = 0;; ++step) {
      train_a_step(*group, made, rank);
      if (step == 3) report.say("trains");
    }
  });
  for (int rank = 0; rank < kRanks; ++rank) killed.wait_for(rank, "trains");
  for (int rank = 0; rank < kRanks; ++rank) killed.signal(rank, SIGKILL);
  static_cast<void>(killed.wait(20'000));
  for (const std::string& name : left()) expect(before.count(name) != 0, "left behind: " + name);
  Procs next(kRanks, [&](int rank, Reporter&) {
    const auto group = join_process_group(folder, rank, kRanks, options_on(Hosts::kShared));
    Made made(*group, kRight);
    made.model.commit();
    train_a_step(*group, made, rank);
  });
  expect_success(next, 60'000);
}

}  // namespace
