// SPDX-License-Identifier: Apache-2.0
// An attacker between the ranks (F14): rank 1's connections to rank 0 lead through one. Of encrypted links it reads nothing,
// and each byte that it flips, drops, repeats or reorders ends the group at once on all ranks, with the name of the peer. No
// rank gets a wrong sum, and the processes continue. Data links, links of messages, and the control plane.

#include "core/attempt.hpp"
#include "group/messages.hpp"
#include "group/recovery.hpp"
#include "group/split.hpp"
#include "support/check.hpp"
#include "support/goes_on.hpp"
#include "support/meeting.hpp"
#include "support/middle.hpp"
#include "support/on_processes.hpp"

constexpr int kRanks = 3, kHit = 1, kDamaged = 2, kSteps = 5;
constexpr int64_t kCount = 1 << 18;
constexpr size_t kPayload = 4'096;  // no control message of this test has as many bytes

enum class Over { kData, kMessages, kControl };

ddp_group_options with(ddp_links links) {
  ddp_group_options options = options_on(Hosts::kGloo);
  options.links = links;
  options.heartbeat_ms = 50;
  options.dead_after_ms = 5'000;
  return options;
}

float value_of(int rank, int step, size_t at) { return static_cast<float>(rank + step + static_cast<int>(at % 7)); }

// Quickly: a rank that computes is late to say what it knows of a link.
void expect_values(const std::vector<float>& data, int rank, int step, float times) {
  for (size_t i = 0; i < data.size(); ++i)
    if (data[i] != times * value_of(rank, step, i)) expect(false, "wrong at element " + std::to_string(i));
}

// Throws the group's error; a result that is wrong fails the test.
void exchange(group::Group& group, int rank, int step, Over over) {
  std::vector<float> data(kCount);
  for (size_t i = 0; i < data.size(); ++i) data[i] = value_of(rank, step, i);
  const Tensor tensor = flat_tensor(data.data(), DDP_F32, kCount);
  if (over != Over::kMessages) {
    group.all_reduce(tensor, DDP_SUM, nullptr);
    return expect_values(data, 1, step, 3);
  }
  group.barrier();
  if (rank == 2) return;
  if (rank == 0) group::send_message(group, tensor, 1, 7);
  if (rank == 1) static_cast<void>(group::receive_message(group, tensor, 0, 7));
  expect_values(data, 0, step, 1);
}

std::string train_until_damaged(const Folder& folder, int rank, Over over, Damage damage) {
  std::unique_ptr<Middle> middle;
  if (rank == kHit) middle = std::make_unique<Middle>();
  const ddp_group_options options = with(DDP_LINKS_ENCRYPTED);
  std::string text;
  {
    const auto group = join_process_group(folder, rank, kRanks, options);
    try {
      for (int step = 0; step < kSteps; ++step) {
        if (middle != nullptr && step == kDamaged)
          over == Over::kControl ? middle->damage_control(damage) : middle->damage(damage, kPayload);
        exchange(*group, rank, step, over);
        for (int i = 0; over == Over::kControl && i < 10; ++i) {  // heartbeats
          group->barrier();
          std::this_thread::sleep_for(std::chrono::milliseconds(20));
        }
      }
      for (int i = 0; i < 1'000; ++i) {  // for ranks whose own connections are whole
        group->barrier();
        std::this_thread::sleep_for(std::chrono::milliseconds(5));
      }
    } catch (const Error& error) {
      text = std::string(status_name(error.status())) + ": " + error.text();
    }
    if (middle != nullptr) expect(middle->has_damaged(), "bytes were damaged");
  }
  middle.reset();
  and_goes_on(folder, rank, kRanks, options);
  return text;
}

void expect_that_damage_ends_the_link(Over over) {
  if (!gloo_is_there()) return;
  for (const Damage damage : {Damage::kFlip, Damage::kDrop, Damage::kRepeat, Damage::kReorder}) {
    const Folder folder;
    Procs procs(kRanks, [&](int rank, Reporter&) { return train_until_damaged(folder, rank, over, damage); });
    const std::vector<ProcResult> results = procs.wait(90'000);
    for (const ProcResult& result : results) {
      expect(result.exit_code == 0 && !result.timed_out, result.describe());
      expect_contains(result.text, "DDP_ERROR_PEER_FAILED: ");
      if (over != Over::kControl)
        expect(result.text == results[0].text, "one cause: " + result.text + " and " + results[0].text);
      if (over != Over::kControl) expect_contains(result.text, "other bytes came from rank ");
      expect(result.text.find("rank 0 (") != std::string::npos || result.text.find("rank 1 (") != std::string::npos,
             "an end of the link is named: " + result.text);
    }
  }
}

// A link that was damaged costs its ranks a recovery, and none of them its place.
void a_training_recovers_with_all_ranks(Over over) {
  if (!gloo_is_there()) return;
  for (const Damage damage : {Damage::kFlip, Damage::kDrop, Damage::kRepeat, Damage::kReorder}) {
    const Folder folder;
    Procs procs(kRanks, [&](int rank, Reporter&) {
      std::unique_ptr<Middle> middle;
      if (rank == kHit) middle = std::make_unique<Middle>();
      ddp_group_options options = with(DDP_LINKS_ENCRYPTED);
      options.recoverable = 1;
      const auto group = join_process_group(folder, rank, kRanks, options);
      int recovered = 0;
      for (int step = 0; step < kSteps;) {
        if (middle != nullptr && step == kDamaged && recovered == 0)
          over == Over::kControl ? middle->damage_control(damage) : middle->damage(damage, kPayload);
        const std::optional<Error> error = try_to([&] {
          exchange(*group, rank, step, over);
          for (int i = 0; i < 20; ++i) {
            group->barrier();
            std::this_thread::sleep_for(std::chrono::milliseconds(10));
          }
        });
        ++step;
        if (!error.has_value()) continue;
        expect_equal(error->status(), DDP_ERROR_PEER_FAILED, error->text());
        static_cast<void>(group::Recovery::run(*group, group::RecoveryRule()));
        expect_equal(group->size(), kRanks, "all ranks are left");
        ++recovered;
        int64_t common = step - 1;  // all continue with the step of the rank that is furthest behind
        group->all_reduce(flat_tensor(&common, DDP_I64, 1), DDP_MIN);
        step = static_cast<int>(common);
      }
      if (middle != nullptr) expect(middle->has_damaged(), "bytes were damaged");
      expect(recovered > 0, "the damage was noticed");
    });
    expect_success(procs, 120'000);
  }
}

std::string pattern_of(int rank) {
  const std::vector<float> some(16, 1'000.0F + static_cast<float>(rank));
  return {reinterpret_cast<const char*>(some.data()), some.size() * sizeof(float)};
}

// What an attacker sees of a gradient and of a message in which one number is repeated.
void an_attacker_reads(ddp_links links) {
  if (!gloo_is_there()) return;
  const Folder folder;
  Procs procs(2, [&](int rank, Reporter&) {
    std::unique_ptr<Middle> middle;
    if (rank == kHit) middle = std::make_unique<Middle>();
    const auto group = join_process_group(folder, rank, 2, with(links));
    std::vector<float> data(kCount, 1'000.0F);
    if (middle != nullptr) middle->look_for(pattern_of(0));
    const Tensor tensor = flat_tensor(data.data(), DDP_F32, kCount);
    group->all_reduce(tensor, DDP_MAX, nullptr);
    group->barrier();
    const int64_t of_gradients = middle != nullptr ? middle->seen() : 0;
    if (rank == 0) group::send_message(*group, tensor, 1, 7);
    if (rank == 1) static_cast<void>(group::receive_message(*group, tensor, 0, 7));
    group->barrier();
    if (middle != nullptr) {
      expect(middle->connections() >= 3, "all connections lead through it");
      expect((of_gradients > 0) == (links == DDP_LINKS_PLAIN), "gradients: " + std::to_string(of_gradients));
      expect((middle->seen() > of_gradients) == (links == DDP_LINKS_PLAIN), "messages: " + std::to_string(middle->seen()));
    }
  });
  expect_success(procs, 60'000);
}

ddp_case(ranks_that_want_different_links_are_told_so) {
  const Folder folder;
  Procs procs(2, [&](int rank, Reporter&) {
    setenv("DDP_LINKS", rank == 0 ? "plain" : "encrypted", 1);
    return expect_error(DDP_ERROR_MISMATCH, [&] { (void)join_process_group(folder, rank, 2, with(DDP_LINKS_AUTO)); });
  });
  for (const ProcResult& result : procs.wait(60'000)) {
    expect(result.exit_code == 0, result.describe());
    expect_contains(result.text, "links 2");
    expect_contains(result.text, "links 1");
  }
}

/// The token of the sub-group came over connections that any machine between the hosts could read.
ddp_case(a_part_of_an_open_group_is_not_called_encrypted) {
  const std::string place = "tcp://127.0.0.1:" + std::to_string(free_port());
  Procs procs(2, [&](int rank, Reporter&) {
    unsetenv("DDP_TOKEN");
    ddp_group_options options = with(DDP_LINKS_AUTO);
    options.rank = rank;
    options.world_size = 2;
    const std::shared_ptr<group::Group> whole = group::Group::create(place.c_str(), options);
    const std::string text = expect_error(DDP_ERROR_NOT_SUPPORTED, [&] {
      static_cast<void>(group::split_group(*whole, {0, rank}, with(DDP_LINKS_ENCRYPTED)));
    });
    exchange(*group::split_group(*whole, {0, rank}, with(DDP_LINKS_AUTO)), rank, 0, Over::kMessages);
    return text;
  });
  for (const ProcResult& result : procs.wait(60'000)) {
    expect(result.exit_code == 0, result.describe());
    expect_contains(result.text, "their keys are made of a token");
  }
}

ddp_case(an_attacker_reads_nothing_of_encrypted_links) { an_attacker_reads(DDP_LINKS_ENCRYPTED); }
ddp_case(an_attacker_reads_plain_links) { an_attacker_reads(DDP_LINKS_PLAIN); }
ddp_case(damaged_data_ends_the_link) { expect_that_damage_ends_the_link(Over::kData); }
ddp_case(a_damaged_message_ends_the_link) { expect_that_damage_ends_the_link(Over::kMessages); }
ddp_case(damaged_control_ends_the_link) { expect_that_damage_ends_the_link(Over::kControl); }
ddp_case(a_training_with_damaged_data_recovers) { a_training_recovers_with_all_ranks(Over::kData); }
ddp_case(a_training_with_damaged_control_recovers) { a_training_recovers_with_all_ranks(Over::kControl); }
