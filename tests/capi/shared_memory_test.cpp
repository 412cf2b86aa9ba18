// SPDX-License-Identifier: Apache-2.0
// ddp_group_share and ddp_group_unshare: memory of the program is reduced where it is, with the bits of private memory,
// stays its own for forks and late ranks, and comes back with its contents.

#include "support/check.hpp"
#include "support/shared_floats.hpp"

enum class Who { kAll, kAllButLast };

/// Each collective on shared memory has the bits that it has on private memory.
void compare_collectives(ddp_group* group, Who who) {
  const int rank = ddp_group_get_rank(group), size = ddp_group_get_size(group);
  Floats shared(16 + 20 * rank), plain(0);  // as far from a page's begin on no two ranks
  const bool shares = who == Who::kAll || rank < size - 1;
  if (shares) OK(ddp_group_share(group, shared.data, shared.bytes()));
  for (int round = 0; round < 3; ++round) {
    for (const int64_t count : {kCount, kCount - 5000, int64_t{3000}}) {
      shared.fill(rank, round), plain.fill(rank, round);
      ddp_tensor in_shared = shared.tensor(), in_plain = plain.tensor();
      in_shared.shape[0] = in_plain.shape[0] = count;
      in_shared.data = shared.data + round * 900, in_plain.data = plain.data + round * 900;
      if (round * 900 + count > kCount) continue;
      OK(ddp_group_all_reduce(group, &in_shared, DDP_AVERAGE, nullptr));
      OK(ddp_group_all_reduce(group, &in_plain, DDP_AVERAGE, nullptr));
      expect(same(shared.data, plain.data, kCount),
             "all-reduce of " + std::to_string(count) + ", rank " + std::to_string(rank));
      OK(ddp_group_broadcast(group, &in_shared, size - 1, nullptr));
      OK(ddp_group_broadcast(group, &in_plain, size - 1, nullptr));
      expect(same(shared.data, plain.data, kCount), "broadcast");
    }
    const int64_t part = 100'000;
    const std::vector<float> own(static_cast<size_t>(part), static_cast<float>(rank + round));
    const ddp_tensor mine = {const_cast<float*>(own.data()), DDP_F32, DDP_CPU, 0, 1, {part}};
    const ddp_tensor all_shared = {shared.data + 5000, DDP_F32, DDP_CPU, 0, 1, {part * size}};
    const ddp_tensor all_plain = {plain.data + 5000, DDP_F32, DDP_CPU, 0, 1, {part * size}};
    OK(ddp_group_all_gather(group, &mine, &all_shared, nullptr));
    OK(ddp_group_all_gather(group, &mine, &all_plain, nullptr));
    expect(same(shared.data, plain.data, kCount), "all-gather");
    const ddp_tensor part_shared = {shared.data + 5000 + part * rank, DDP_F32, DDP_CPU, 0, 1, {part}};
    const ddp_tensor part_plain = {plain.data + 5000 + part * rank, DDP_F32, DDP_CPU, 0, 1, {part}};
    OK(ddp_group_reduce_scatter(group, &all_shared, &part_shared, DDP_SUM, nullptr));
    OK(ddp_group_reduce_scatter(group, &all_plain, &part_plain, DDP_SUM, nullptr));
    expect(same(static_cast<float*>(part_shared.data), static_cast<float*>(part_plain.data), part), "reduce-scatter");
  }
  if (shares) OK(ddp_group_unshare(group, shared.data));
  shared.fill(rank, 5), plain.fill(rank, 5);
  const ddp_tensor last = shared.tensor(), plain_last = plain.tensor();
  OK(ddp_group_all_reduce(group, &last, DDP_SUM, nullptr));
  OK(ddp_group_all_reduce(group, &plain_last, DDP_SUM, nullptr));
  expect(same(shared.data, plain.data, kCount), "private again");
}

ddp_case(collectives_have_the_bits_of_private_memory) {
  for (const Who who : {Who::kAll, Who::kAllButLast})
    for (int size = 2; size <= 4; ++size)
      in_processes(size, 60'000, [&](ddp_group* group, int) { compare_collectives(group, who); });
}

ddp_case(and_on_threads) {
  run_ranks(3, [](int rank) {
    ddp_group* const group = create_group("local://shared", patient_options(rank, 3));
    compare_collectives(group, Who::kAll);
    ddp_group_destroy(group);
  });
}

enum class Update { kPlain, kSharded, kInBackward, kWire };

/// Steps of a model of three parameters, of which the middle one is small. Gives the values.
std::vector<float> train(ddp_group* group, Update update, bool shares) {
  const int rank = ddp_group_get_rank(group);
  Floats values[3] = {Floats(3), Floats(5, 50), Floats(7 + rank)};
  Floats grads[3] = {Floats(16 + rank), Floats(1, 50), Floats(1000 - 3 * rank)};
  auto options = defaults<ddp_model_options>();
  options.bucket_bytes = options.first_bucket_bytes = 64 << 20;
  if (update == Update::kWire) options.wire = DDP_BF16;
  ddp_model* model = nullptr;
  OK(ddp_model_create(group, &options, &model));
  for (int i = 0; i < 3; ++i) {
    values[i].fill(1, i), grads[i].fill(rank, i);
    const ddp_tensor value = values[i].tensor(), grad = grads[i].tensor();
    if (shares && i != 1) OK(ddp_group_share(group, values[i].data, values[i].bytes()));
    if (shares && i != 1) OK(ddp_group_share(group, grads[i].data, grads[i].bytes()));
    OK(ddp_model_add_parameter(model, std::to_string(i).c_str(), &value, &grad, nullptr));
  }
  auto sharding = defaults<ddp_optimizer_options>();
  sharding.shard = update == Update::kSharded || update == Update::kInBackward ? 1 : 0;
  sharding.in_backward = update == Update::kInBackward ? 1 : 0;
  sharding.max_norm = update == Update::kSharded ? 0.5 : 0;  // sums over blocks of slices
  ddp_optimizer* adam = nullptr;
  OK(ddp_optimizer_create_adam(model, nullptr, &sharding, &adam));
  OK(ddp_model_commit(model, nullptr));
  const bool on_one_host = ddp_group_get_backend(group) == DDP_BACKEND_SHM;  // else these gradients are copied
  if (shares && on_one_host)
    expect_status(DDP_ERROR_INVALID_STATE, ddp_group_unshare(group, grads[0].data), "a model reaches into it");
  for (int step = 0; step < 3; ++step) {
    OK(ddp_model_begin_backward(model, DDP_PASS_REDUCE));
    for (int i = 2; i >= 0; --i) {
      grads[i].fill(rank, step + i);
      OK(ddp_model_mark_ready(model, i, nullptr));
    }
    OK(ddp_model_end_backward(model, nullptr));
    OK(ddp_optimizer_step(adam, nullptr));
  }
  if (shares && update == Update::kPlain && on_one_host) {
    char plan[4096];
    OK(ddp_model_describe_plan(model, plan, sizeof plan, nullptr));
    expect(std::string(plan).find("2 in place, 1 staged, the ends of 2 staged") != std::string::npos, plan);
  }
  ddp_optimizer_destroy(adam);
  ddp_model_destroy(model);
  std::vector<float> result;
  for (int i = 0; i < 3; ++i) {
    if (shares && i != 1) OK(ddp_group_unshare(group, values[i].data));
    if (shares && i == 0) OK(ddp_group_unshare(group, grads[i].data));  // the last is left to ddp_group_destroy
    result.insert(result.end(), values[i].data, values[i].data + values[i].count);
  }
  if (shares) OK(ddp_group_unshare(group, grads[2].data));
  return result;
}

/// Hosts of two ranks each.
ddp_case(between_hosts) {
  if (!gloo_is_there()) return;
  in_processes(
      4, 60'000,
      [](ddp_group* group, int) {
        compare_collectives(group, Who::kAll);
        const std::vector<float> with = train(group, Update::kPlain, true), without = train(group, Update::kPlain, false);
        expect(same(with.data(), without.data(), static_cast<int64_t>(with.size())), "the same bits");
      },
      2);
}

void a_training_has_the_bits_of_private_memory(Update update) {
  for (int size = 2; size <= 3; ++size)
    in_processes(size, 60'000, [=](ddp_group* group, int) {
      const std::vector<float> with = train(group, update, true), without = train(group, update, false);
      expect(same(with.data(), without.data(), static_cast<int64_t>(with.size())), "the same bits");
    });
}

ddp_case(what_cannot_be_shared_is_refused_and_stays_as_it_is) {
  in_processes(2, 30'000, [](ddp_group* group, int) {
    Floats floats;
    floats.fill(0, 0);
    expect_status(DDP_ERROR_INVALID_ARGUMENT, ddp_group_share(group, nullptr, 1 << 20), "NULL");
    expect_status(DDP_ERROR_INVALID_ARGUMENT, ddp_group_share(group, floats.data, 0), "no bytes");
    expect_status(DDP_ERROR_NOT_SUPPORTED, ddp_group_share(group, floats.data, (1 << 20) - 1), "small");
    expect(std::string(ddp_last_error()).find("1 MiB") != std::string::npos, ddp_last_error());
    expect_status(DDP_ERROR_INVALID_ARGUMENT, ddp_group_unshare(group, floats.data), "not shared");
    OK(ddp_group_unshare(group, nullptr));
    OK(ddp_group_share(group, floats.data, floats.bytes()));
    expect_status(DDP_ERROR_INVALID_ARGUMENT, ddp_group_share(group, floats.data, floats.bytes()), "twice");
    OK(ddp_group_unshare(group, floats.data));
    expect_status(DDP_ERROR_INVALID_ARGUMENT, ddp_group_unshare(group, floats.data), "unshared twice");
    expect(madvise(reinterpret_cast<void*>((reinterpret_cast<uintptr_t>(floats.data) + 4096) / 4096 * 4096), 4096,
                   MADV_DONTFORK) == 0,
           "a page that forks do not get");
    expect_status(DDP_ERROR_NOT_SUPPORTED, ddp_group_share(group, floats.data, floats.bytes()), "MADV_DONTFORK");
    void* given = nullptr;
    OK(ddp_group_alloc(group, 2 << 20, &given));
    expect_status(DDP_ERROR_NOT_SUPPORTED, ddp_group_share(group, given, 2 << 20), "the group's own memory");
    OK(ddp_group_barrier(group));
  });
  ddp_group* const alone = create_group("local://alone", patient_options(0, 1));
  Floats floats;
  expect_status(DDP_ERROR_NOT_SUPPORTED, ddp_group_share(alone, floats.data, floats.bytes()), "a group of one");
  ddp_group_destroy(alone);
  expect_status(DDP_ERROR_INVALID_ARGUMENT, ddp_group_share(alone, floats.data, floats.bytes()), "a destroyed group");
  expect_status(DDP_ERROR_INVALID_ARGUMENT, ddp_group_unshare(alone, floats.data), "a destroyed group");
}

// Allocators give pages up and hand them out as zeroed ones, so what was shared must read as zeros then.
ddp_case(an_allocator_gets_plain_memory_back) {
  in_processes(2, 30'000, [](ddp_group* group, int) {
    constexpr size_t kBytes = 8 << 20;
    for (int round = 0; round < 5; ++round) {
      auto* const memory = static_cast<unsigned char*>(std::malloc(kBytes));
      std::memset(memory, 0x5a, kBytes);
      OK(ddp_group_share(group, memory, kBytes));
      OK(ddp_group_unshare(group, memory));
      expect(std::all_of(memory, memory + kBytes, [](unsigned char each) { return each == 0x5a; }), "the contents");
      auto* const more = static_cast<unsigned char*>(std::realloc(memory, 2 * kBytes));
      expect(std::all_of(more, more + kBytes, [](unsigned char each) { return each == 0x5a; }), "moved by realloc");
      std::free(more);
      for (int i = 0; i < 4; ++i) {
        auto* const next = static_cast<unsigned char*>(std::calloc(1, kBytes));
        expect(std::all_of(next, next + kBytes, [](unsigned char each) { return each == 0; }), "zeros of calloc");
        std::memset(next, 1, kBytes);
        std::free(next);
      }
    }
  });
}

ddp_case(a_fork_writes_to_memory_of_its_own) {
  in_processes(2, 30'000, [](ddp_group* group, int rank) {
    auto floats = std::make_unique<Floats>();
    floats->fill(rank, 1);
    Floats expected;
    expected.fill(rank, 1);
    OK(ddp_group_share(group, floats->data, floats->bytes()));
    const pid_t child = fork();
    if (child == 0) {
      if (!same(floats->data, expected.data, kCount)) _exit(1);
      std::fill_n(floats->data, kCount, 5.0F);
      if (std::any_of(floats->data, floats->data + kCount, [](float each) { return each != 5; })) _exit(2);
      if (ddp_group_unshare(group, floats->data) != DDP_ERROR_INVALID_STATE) _exit(3);
      floats.reset();
      const std::vector<float> again(kCount, 6.0F);
      _exit(again[7] == 6 ? 0 : 4);
    }
    int status = -1;
    expect(child > 0 && waitpid(child, &status, 0) == child && status == 0, "child: " + std::to_string(status));
    expect(same(floats->data, expected.data, kCount), "the parent's memory is as it was");
    const ddp_tensor tensor = floats->tensor();
    OK(ddp_group_all_reduce(group, &tensor, DDP_SUM, nullptr));
    OK(ddp_group_unshare(group, floats->data));
  });
}

ddp_case(writes_of_another_thread_are_not_lost_on_the_way_back) {
  in_processes(2, 60'000, [](ddp_group* group, int) {
    Floats floats;
    std::atomic<bool> stop{false};
    std::atomic<int64_t> rounds{0};
    std::fill_n(floats.data, kCount, 0.0F);
    OK(ddp_group_share(group, floats.data, floats.bytes()));
    std::thread writer([&] {
      for (float value = 1; !stop.load(); ++value) {
        for (int64_t i = 0; i < kCount; i += 512) {
          volatile float& each = floats.data[i];
          if (each != value - 1) stop.store(true), rounds.store(-1000);
          each = value;
        }
        ++rounds;
      }
    });
    while (rounds.load() == 0) std::this_thread::yield();
    const ddp_status status = ddp_group_unshare(group, floats.data);
    const int64_t before = rounds.load();
    while (rounds.load() >= 0 && rounds.load() < before + 2) std::this_thread::yield();
    stop.store(true);
    writer.join();
    expect_status(DDP_OK, status, "the way back");
    expect(rounds.load() > 0, "a write was lost");
  });
}

ddp_case_of(a_training_has_the_bits_of_private_memory(Update::kPlain));
ddp_case_of(a_training_has_the_bits_of_private_memory(Update::kSharded));
ddp_case_of(a_training_has_the_bits_of_private_memory(Update::kInBackward));
ddp_case_of(a_training_has_the_bits_of_private_memory(Update::kWire));
