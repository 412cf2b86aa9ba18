// SPDX-License-Identifier: Apache-2.0
// A short training on the fake GPU in which one rank may end, stay or fail within a call of NCCL, and what its ranks have
// come to.
#pragma once

#include "checkpoint/state.hpp"
#include "gpu_host/small_model.hpp"
#include "support/own_threads.hpp"
#include "support/training.hpp"

namespace ddp::test {

inline constexpr int kRanks = 2;
inline constexpr int kSteps = 3;
inline constexpr std::array<int64_t, 3> kShapes = {3000, 40, 2000};
using Values = std::vector<std::vector<float>>;

struct SweptWay {
  bool shard = false;
  bool in_backward = false;
  bool reproducible = false;
  bool own = false;   // libddp keeps values and gradients
  bool lent = false;  // the communicator is the program's
  [[nodiscard]] std::string text() const {
    return std::string(shard ? "sharded" : "whole") + (in_backward ? ", in backward" : "") +
           (reproducible ? ", reproducible" : "") + (own ? ", kept by libddp" : "") + (lent ? ", lent" : "");
  }
};

/// What one rank has come to.
struct SweptStory {
  bool has_group = false;
  bool is_committed = false;
  int steps = 0;  // that returned
  ddp_status status = DDP_OK;
  std::string text;
  int64_t ms = 0;        // from the order to end to the error
  bool is_whole = true;  // as the model reports of its parameters
  Values values;
};

struct SweptRank : Training {
  SweptRank(group::Group& of, const SweptWay& way) : Training(of, Rule::kMomentum, ways_of(way)), is_lent(way.lent) {
    for (size_t p = 0; p < size(); ++p) fill(p, [&](size_t, int64_t) { return of.rank() + 1; });
  }
  void train_once() const {
    reduce();
    step();
    if (is_lent)  // only its owner ends it, so the owner must not block where it gets no report of a failure
      wait_until([&] {
        group.health().check_usable();
        return fake_gpu::pending(stream()) == 0;
      });
    synchronize();
  }
  void save() {
    checkpoint::save_stream(
        "save", {*model, optimizer.get()}, {}, [](const void*, int64_t) { return 0; }, std::nullopt);
  }
  [[nodiscard]] bool is_whole() const { return model->values().is_whole(); }
  [[nodiscard]] Values floats() const {
    wait_until([&] { return fake_gpu::pending_on_device(device()) == 0; });
    Values all;
    for (size_t p = 0; p < size(); ++p) {
      all.emplace_back(static_cast<size_t>(count(p)));
      expect(fake_gpu::peek(all.back().data(), value(p).data, count(p) * 4), "peeked");
    }
    return all;
  }

 private:
  static Ways ways_of(const SweptWay& way) {
    Ways ways;
    ways.shapes.assign(kShapes.begin(), kShapes.end());
    ways.first_bucket_bytes = ways.bucket_bytes = 8'000;
    ways.unused = DDP_UNUSED_ERROR;
    ways.own_values = ways.owned_grads = way.own;
    ways.enqueued = true;
    ways.is_committed = false;
    ways.rate = ways.momentum = 0.5;
    ways.shard = way.shard;
    ways.in_backward = way.in_backward;
    return ways;
  }
  bool is_lent;
};

/// The ranks of one training, and what happens to one of them.
struct SweptWorld {
  SweptWay way;
  ddp_group_options options = world_options();
  int bad = 1;
  bool is_held = false;  // the bad rank comes back only when the others are done
  std::mutex mutex;      // guards groups
  std::array<group::Group*, kRanks> groups{};
  std::array<void*, kRanks> comms{};  // those that are lent
  std::array<SweptStory, kRanks> stories;
  std::atomic<int> done{0};
  std::atomic<int64_t> since_ns{0};
  int64_t usual_ms = 0;       // how long it takes here, without a fault
  Values start;               // of rank 0, without a fault
  std::vector<Values> after;  // each step

  void lend();  // before what is ordered
  void run();
  [[nodiscard]] std::shared_ptr<group::Group> meet(int rank, const std::string& place);
  void run_rank(group::Group& group, int rank);
  void tell(SweptStory& story, const Error& error) const {
    story.status = error.status();
    story.text = error.text();
    if (since_ns != 0) story.ms = (os::now_ns() - since_ns) / 1'000'000;
  }
  void end_lent(int rank) {
    if (void* const comm = std::exchange(comms[static_cast<size_t>(rank)], nullptr); comm != nullptr)
      static_cast<void>(fake_gpu::nccl().comm_abort(comm));
  }
  void set_group(int rank, group::Group* group) {
    const std::lock_guard lock(mutex);
    groups[static_cast<size_t>(rank)] = group;
  }
  /// The bad rank ends; unless it has left meanwhile, and one of its threads comes to NCCL late.
  void tell_of_end() {
    const std::lock_guard lock(mutex);
    group::Group* const group = groups[static_cast<size_t>(bad)];
    if (group == nullptr) return;
    since_ns = os::now_ns();
    group->health().abort(Error(DDP_ERROR_PEER_FAILED, group->name_of(bad) + " ended"));
  }
};

inline void SweptWorld::lend() {
  options.reproducible = way.reproducible ? 1 : 0;
  if (!way.lent) return;
  std::array<char, DDP_NCCL_ID_BYTES> id{};
  expect(fake_gpu::nccl().get_unique_id(id.data()) == 0, "an id");
  run_ranks(kRanks, [&](int rank) {
    void*& comm = comms[static_cast<size_t>(rank)];
    expect(fake_gpu::table().set_device(rank) == 0, "a GPU");
    expect(fake_gpu::nccl().comm_init(&comm, kRanks, id.data(), rank, "of the program", 0) < 8, "a communicator");
    wait_until([&] {
      int32_t result = 0;
      return fake_gpu::nccl().comm_async_error(comm, &result) == 0 && result == 0;
    });
  });
}

inline void SweptWorld::run_rank(group::Group& group, int rank) {
  SweptStory& story = stories[static_cast<size_t>(rank)];
  story.has_group = true;
  set_group(rank, &group);
  SweptRank training(group, way);
  try {
    training.model->commit(training.stream());
    story.is_committed = true;
    if (rank == 0 && after.empty()) start = training.floats();
    for (; story.steps < kSteps; ++story.steps) {
      training.train_once();
      if (rank == 0 && after.size() < kSteps) after.push_back(training.floats());
    }
    training.save();
    group.barrier();
  } catch (const Error& error) {
    tell(story, error);
    end_lent(rank);  // as its owner should, or what it has begun never ends
  }
  if (!is_held || rank != bad) {
    story.is_whole = training.is_whole();
    story.values = training.floats();
  }
}

/// With a lent communicator a rank may end before it has its group. Then no rank reports it, and this gives NULL.
inline std::shared_ptr<group::Group> SweptWorld::meet(int rank, const std::string& place) {
  ddp_group_options mine = options;
  mine.rank = mine.device_index = rank;
  mine.world_size = kRanks;
  mine.nccl_comm = comms[static_cast<size_t>(rank)];
  expect(fake_gpu::table().set_device(rank) == 0, "a program has its GPU current");
  SweptStory& story = stories[static_cast<size_t>(rank)];
  try {
    return group::Group::create(place.c_str(), mine);
  } catch (const Error& error) {
    tell(story, error);
    return nullptr;
  }
}

inline void SweptWorld::run() {
  static std::atomic<int> next{0};
  const std::string place = "local://nccl-sweep-" + std::to_string(next++);
  run_ranks(kRanks, [&](int rank) {
    const std::shared_ptr<group::Group> group = meet(rank, place);
    if (group != nullptr) run_rank(*group, rank);
    const int64_t ms = ms_of([&] {
      if (group != nullptr) group->close();
    });
    set_group(rank, nullptr);
    if (!is_held || rank != bad) end_lent(rank);
    if (!is_held || rank == bad) return;
    expect(ms < 4000, "the group is left within " + std::to_string(ms) + " ms");
    if (++done == kRanks - 1) fake_gpu::end_death();
  });
  fake_gpu::end_death();
  for (int rank = 0; rank < kRanks; ++rank) end_lent(rank);
}

}  // namespace ddp::test
