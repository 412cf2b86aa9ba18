// SPDX-License-Identifier: Apache-2.0
// A model whose gradients and values libddp keeps, on GPUs: they are reduced and given in place, so it costs few calls and
// little memory. Sizes are those of GPT-2, smaller by one factor, so that its buckets are GPT-2's.

#include "gpu_host/trained_in_place.hpp"
#include "support/check.hpp"

struct InPlaceWays {
  bool shard = false;
  bool in_backward = false;
  bool divide_in_step = false;
  bool undo = true;
  ddp_nonfinite nonfinite = DDP_NONFINITE_KEEP;
  bool own = true;  // libddp keeps values and gradients
};

Ways ways_of(const InPlaceWays& asked, const std::vector<int64_t>& counts, int64_t smaller) {
  Ways ways = kept_ways(counts, smaller);
  ways.shard = asked.shard;
  ways.in_backward = asked.in_backward;
  ways.divide_in_step = asked.divide_in_step;
  ways.undo = asked.undo;
  ways.nonfinite = asked.nonfinite;
  ways.own_values = ways.owned_grads = asked.own;
  return ways;
}
Ways ways_of(const InPlaceWays& asked, int64_t smaller) { return ways_of(asked, gpt2(smaller), smaller); }

struct InPlaceTrained : Training {
  InPlaceTrained(group::Group& of, const Ways& asked) : Training(of, Rule::kAdamW, asked) {}

  /// The log has the pass, and what comes then.
  void train(int number) {
    fill(group.rank(), number);
    begin_log(group);
    reduce();
    step();
    group.barrier();
    synchronize();
  }
};

ddp_case(a_step_takes_few_calls) {
  struct Case {
    InPlaceWays ways;
    int64_t most;
  };
  for (auto [ways, most] : {Case{{}, 41}, Case{{.nonfinite = DDP_NONFINITE_SKIP}, 44}, Case{{.shard = true}, 56},
                            Case{{.shard = true, .nonfinite = DDP_NONFINITE_SKIP}, 60}, Case{{.in_backward = true}, 81},
                            Case{{.shard = true, .in_backward = true}, 69}}) {
    run_on_gpus(2, [&, &ways = ways, most = most](group::Group& group, int rank) {
      InPlaceTrained trained(group, ways_of(ways, 256));
      for (int step = 0; step < 3; ++step) trained.train(step);
      const int64_t all = fake_gpu::enqueued(rank);
      std::string detail;
      for (const char* name : {"move", "move_quotient", "copy_word", "adam", "event_record", "stream_wait",
                               "nccl.all_reduce", "nccl.reduce_scatter", "nccl.all_gather"})
        detail += std::string(" ") + name + " " + std::to_string(fake_gpu::calls(name, rank));
      if (rank == 0)
        print_message("%s%s: %lld calls a step:%s\n", ways.shard ? "sharded" : "whole",
                      ways.in_backward                       ? ", in backward"
                      : ways.nonfinite == DDP_NONFINITE_SKIP ? ", may be left out"
                                                             : "",
                      static_cast<long long>(all), detail.c_str());
      expect(all <= most, std::to_string(all) + " calls:" + detail);
      group.barrier();
    });
  }
}

/// Within a pass, and in the step if the program says so, the update divides the sums that it reads: no launch divides a
/// bucket, and the gradients are means all the same.
ddp_case(updates_divide_the_sums_that_they_read) {
  for (const int ranks : {2, 3})
    for (const auto& [shard, in_backward] : {std::pair{false, true}, {true, true}, {false, false}, {true, false}}) {
      run_on_gpus(ranks, [&, &shard = shard, &in_backward = in_backward](group::Group& group, int rank) {
        InPlaceWays ways{.shard = shard, .undo = false};
        InPlaceTrained plain(group, ways_of(ways, 1024));
        ways.in_backward = in_backward;
        ways.divide_in_step = !in_backward;
        InPlaceTrained tested(group, ways_of(ways, 1024));
        const auto divisions = [&] { return fake_gpu::calls("move", rank) + fake_gpu::calls("move_quotient", rank); };
        for (int step = 0; step < 3; ++step) {
          plain.train(step);
          expect(divisions() >= 3, "launches that divide: " + std::to_string(divisions()));
          group.barrier();
          tested.train(step);
          if (step > 0 || !in_backward) expect_equal(divisions(), int64_t{0}, "launches that divide");
          expect(tested.bytes() == plain.bytes(), "values");
          // Outside of its slices a rank has the result of the pass, which is the same too.
          for (size_t p = 0; p < tested.size() && !shard; ++p)
            expect(tested.text_of(tested.grad(p)) == plain.text_of(plain.grad(p)), "gradient " + std::to_string(p));
          group.barrier();
        }
      });
    }
}

/// A frozen parameter has a mean as well, though nothing updates it; and so have all where a step needs the whole gradient.
ddp_ranks_case(run_on_gpus, gradients_that_no_step_divides_are_means, 3) {
  InPlaceTrained plain(group, ways_of({}, 1024)), within(group, ways_of({.in_backward = true}, 1024)),
      late(group, ways_of({.divide_in_step = true}, 1024));
  for (InPlaceTrained* const each : {&plain, &within, &late}) each->optimizer->set_parameter_options(3, 0, 0);
  InPlaceTrained checked(group, ways_of({.divide_in_step = true, .nonfinite = DDP_NONFINITE_SKIP}, 1024));
  for (int step = 0; step < 2; ++step)
    for (InPlaceTrained* const each : {&plain, &within, &late, &checked}) each->train(step);
  for (const size_t p : {2, 3, 4})
    for (const InPlaceTrained* const each : {&within, &late, &checked})
      expect(each->text_of(each->grad(p)) == plain.text_of(plain.grad(p)), "gradient " + std::to_string(p));
  group.barrier();
}

/// Bytes a parameter above its value after two steps, and the calls of the last one.
double bytes_above(group::Group& group, int rank, const Ways& ways, int64_t* calls = nullptr) {
  group.gpu().connect();
  group.barrier();
  const int64_t before = fake_gpu::live(rank).bytes;
  Training trained(group, Rule::kAdamW, ways);
  for (int step = 0; step < 2; ++step) {
    begin_log(group);
    trained.reduce();
    trained.step();
  }
  trained.synchronize();
  if (calls != nullptr) *calls = fake_gpu::enqueued(rank);
  group.barrier();
  const int64_t elements = std::accumulate(ways.shapes.begin(), ways.shapes.end(), int64_t{0});
  return static_cast<double>(fake_gpu::live(rank).bytes - before) / static_cast<double>(elements) - 4;
}

/// Bytes above the values for AdamW in F32: the gradient, and two moments divided by the ranks.
ddp_case(memory_is_divided_by_the_ranks) {
  for (const int ranks : {1, 2, 4})
    for (const bool shard : {false, true}) {
      run_on_gpus(ranks, [&](group::Group& group, int rank) {
        const double above = bytes_above(group, rank, ways_of({.shard = shard}, 16));
        const double ideal = 4 + 8.0 / (shard ? ranks : 1);
        if (rank == 0)
          print_message("%d ranks%s: %.2f bytes a parameter above its value\n", ranks, shard ? ", sharded" : "", above);
        expect(above <= ideal * 1.02, "bytes a parameter above its value: " + std::to_string(above));
        group.barrier();
      });
    }
}

/// What takes back a step within the pass is divided too: value and moments, of a rank's slice.
ddp_case(memory_to_take_a_step_back_is_divided) {
  constexpr int kRanks = 4;
  run_on_gpus(kRanks, [&](group::Group& group, int rank) {
    const double above = bytes_above(group, rank, ways_of({.in_backward = true}, 16));
    if (rank == 0) print_message("%d ranks, in backward: %.2f bytes a parameter above its value\n", kRanks, above);
    expect(above <= (4 + 8 + 12.0 / kRanks) * 1.02, "bytes a parameter above its value: " + std::to_string(above));
    group.barrier();
  });
}

/// 1,000 parameters of 1 to 40 elements cost no call each, and 30 to 36 bytes an element: src/optim/README.md lists them.
ddp_case(tiny_parameters_cost_little) {
  std::vector<int64_t> counts;
  for (int tiny = 0; tiny < 1000; ++tiny) counts.push_back(1 + tiny % 40);
  for (const int ranks : {2, 4})
    for (const bool shard : {false, true}) {
      run_on_gpus(ranks, [&](group::Group& group, int rank) {
        int64_t calls = 0;
        const double above = bytes_above(group, rank, ways_of({.shard = shard}, counts, 1), &calls);
        if (rank == 0)
          print_message("%d ranks%s, 1,000 tiny parameters: %lld calls a step, %.2f bytes a parameter above its value\n",
                        ranks, shard ? ", sharded" : "", static_cast<long long>(calls), above);
        expect(calls <= (shard ? 15 : 9), "calls a step: " + std::to_string(calls));
        expect(above <= (shard ? 32 : 37), "bytes a parameter above its value: " + std::to_string(above));
        group.barrier();
      });
    }
}

/// Every way of stepping gives the values of the plainest one. Two and four ranks and whole numbers: every order of adding
/// gives one mean.
ddp_case(every_way_gives_the_same_values) {
  std::vector<int64_t> counts = {70'001, 7, 5000, 1, 1024, 3000, 64, 0, 20'000, 900, 513, 514, 40'000};
  for (int tiny = 0; tiny < 40; ++tiny) counts.push_back(1 + tiny);
  for (const int ranks : {2, 4}) {
    run_on_gpus(ranks, [&](group::Group& group, int) {
      std::vector<std::unique_ptr<InPlaceTrained>> all;
      for (const bool own : {false, true})
        for (const bool shard : {false, true})
          for (const bool in_backward : {false, true})
            all.push_back(std::make_unique<InPlaceTrained>(
                group, ways_of({.shard = shard, .in_backward = in_backward, .own = own}, counts, 128)));
      for (int step = 0; step < 2; ++step)
        for (const auto& each : all) each->train(step);
      for (size_t way = 1; way < all.size(); ++way)
        expect(all[way]->bytes() == all[0]->bytes(), "the values of way " + std::to_string(way));
      group.barrier();
    });
  }
}

/// An update within the pass does not hold up the reduction of the next bucket.
ddp_ranks_case(run_on_gpus, updates_run_beside_reductions, 2) {
  InPlaceTrained trained(group, ways_of({.in_backward = true}, 128));
  for (int step = 0; step < 2; ++step) trained.train(step);  // the first one makes its step at the end
  std::vector<void*> beside;
  for (const fake_gpu::StreamInfo& each : fake_gpu::streams())
    if (each.device == rank && !each.high_priority && each.stream != trained.stream()) beside.push_back(each.stream);
  expect_equal(beside.size(), size_t{1}, "streams for updates");
  group.barrier();
  const int64_t before = fake_gpu::collectives();
  group.barrier();
  fake_gpu::pause(beside[0]);
  trained.model->begin_backward(DDP_PASS_REDUCE);
  trained.mark();
  wait_until([&] { return fake_gpu::collectives() == before + 10; });
  expect(fake_gpu::pending(beside[0]) > 9, "the updates are still to come");
  fake_gpu::resume(beside[0]);
  trained.model->end_backward(trained.stream());
  trained.step();
  trained.synchronize();
}
