// SPDX-License-Identifier: Apache-2.0
// Captured passes and steps on ranks that are late, stay or end. NCCL registers what a captured collective works on, and the
// hosts of a node meet for that without looking at an abort, so no rank may call it before the others are about to.

#include "gpu_host/small_model.hpp"
#include "nccl/bucket.hpp"
#include "nccl/capture_bits.hpp"
#include "support/check.hpp"
#include "support/training.hpp"

constexpr int64_t kCount = 3000;
constexpr int kParameters = 2;  // a bucket each

/// NCCL that blocks, and NCCL that does not, as the library asks for; the marks reduce, or a thread does.
struct Way {
  int64_t nccl_looks;
  ddp_progress progress;
  int32_t reproducible;
};
constexpr Way kWays[] = {{0, DDP_PROGRESS_CALLER, 0}, {3, DDP_PROGRESS_CALLER, 0}, {0, DDP_PROGRESS_THREAD, 0},
                         {3, DDP_PROGRESS_THREAD, 0}, {0, DDP_PROGRESS_CALLER, 1}, {3, DDP_PROGRESS_THREAD, 1}};

bool comes_within_ms(int64_t ms, const std::function<bool()>& done) {
  const auto limit = std::chrono::steady_clock::now() + std::chrono::milliseconds(ms);
  while (!done() && std::chrono::steady_clock::now() < limit) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  return done();
}

/// With SGD, whose work is enqueued. It has made a step.
struct Trained : Training {
  Trained(group::Group& of, const Way& way, bool shard = false, ddp_nonfinite nonfinite = DDP_NONFINITE_KEEP)
      : Training(of, Rule::kSgd, ways_with(way, shard, nonfinite)) {
    fill(of.rank(), 0);
    train_once();
    synchronize();
    group.barrier();
  }
  static Ways ways_with(const Way& way, bool shard, ddp_nonfinite nonfinite) {
    Ways ways;
    ways.shapes.assign(kParameters, kCount);
    ways.first_bucket_bytes = ways.bucket_bytes = kCount * 4;
    ways.owned_grads = false;
    ways.enqueued = true;
    ways.unused = DDP_UNUSED_ERROR;
    ways.progress = way.progress;
    ways.shard = shard;
    ways.nonfinite = nonfinite;
    return ways;
  }
  void train_once() const {
    reduce();
    step();
  }
  void begin_capture() const {
    expect(fake_gpu::table().set_device(device()) == 0 &&
               fake_gpu::begin_capture(stream(), fake_gpu::CaptureMode::kThreadLocal),
           "the capture begins");
  }
  [[nodiscard]] fake_gpu::GraphPtr end_capture() const {
    std::string why;
    fake_gpu::GraphPtr graph = fake_gpu::end_capture(stream(), &why);
    expect(graph != nullptr, "the capture ends well: " + why);
    return graph;
  }
};

ddp_group_options with(const Way& way) {
  ddp_group_options options = world_options();
  options.reproducible = way.reproducible;
  return options;
}

ddp_case(a_captured_mark_waits_for_no_rank) {
  for (const Way& way : kWays) {
    const FakeGpus gpus(0, way.nccl_looks);
    std::atomic<bool> marked{false};
    run_gpu_groups_with(2, with(way), [&](group::Group& group, int rank) {
      Trained trained(group, way);
      const bool in_time = rank == 0 || comes_within_ms(2000, [&] { return marked.load(); });
      trained.begin_capture();
      trained.model->begin_backward(DDP_PASS_REDUCE);
      trained.mark();
      if (rank == 0) marked = true;
      trained.model->end_backward(trained.stream());
      const fake_gpu::GraphPtr graph = trained.end_capture();
      expect(in_time, "the marks of a rank return while the other one has not begun its pass");
      for (const GpuArray& each : trained.fresh) each.poke(std::vector<float>(kCount, static_cast<float>(rank + 1)));
      fake_gpu::launch_graph(graph, trained.stream());
      for (size_t p = 0; p < kParameters; ++p) {
        const std::vector<std::byte> bytes = trained.read(trained.grad(p));
        for (size_t i = 0; i < kCount; ++i) expect_equal(get_element(DDP_F32, bytes.data(), i), 1.5, "the mean");
      }
      group.barrier();
    });
    FakeGpus::expect_clean();
  }
}

/// What a bucket waits for in the graph are its own gradients, not those that were marked before NCCL was called.
ddp_ranks_case(run_on_gpus, a_bucket_in_a_graph_waits_for_its_own_gradients, 2) {
  Trained trained(group, {3, DDP_PROGRESS_CALLER, 0});
  begin_log(group);
  trained.begin_capture();
  trained.reduce();
  const fake_gpu::GraphPtr graph = trained.end_capture();
  group.barrier();
  const std::string user = "stream=" + std::to_string(fake_gpu::stream_number(trained.stream())) + " ";
  std::string order;
  for (const std::string& line : fake_gpu::log()) {
    if (line.rfind("[" + std::to_string(rank) + "]", 0) != 0 || line.find(user) != std::string::npos) continue;
    if (line.find("stream_wait") != std::string::npos) order += "wait ";
    if (line.find("nccl.all_reduce") != std::string::npos) order += "reduce ";
  }
  expect_equal(order, std::string("wait reduce wait reduce "), "on the communication stream");
  group.barrier();
}

ddp_case(a_rank_may_end_within_a_captured_pass) {
  for (const Way& way : kWays) {
    const FakeGpus gpus(0, way.nccl_looks);
    std::atomic<bool> begun{false};
    run_gpu_groups_with(2, with(way), [&](group::Group& group, int rank) {
      Trained trained(group, way);
      trained.begin_capture();
      trained.model->begin_backward(DDP_PASS_REDUCE);
      if (rank == 1) {
        wait_until([&] { return begun.load(); });
        static_cast<void>(fake_gpu::end_capture(trained.stream(), nullptr));
        group.health().abort(Error(DDP_ERROR_ABORTED, "rank 1 had enough"));
        return;
      }
      begun = true;
      trained.mark();
      std::optional<Error> end;
      const int64_t ms = ms_of([&] { end = try_to([&] { trained.model->end_backward(trained.stream()); }); });
      expect(end.has_value(), "the pass fails");
      expect_contains(end->text(), "rank 1 had enough");
      expect(ms < 3000, "known after " + std::to_string(ms) + " ms");
      static_cast<void>(fake_gpu::end_capture(trained.stream(), nullptr));
    });
    FakeGpus::expect_nothing_left();
  }
}

/// It lives, and does not come.
ddp_case(a_rank_that_stays_away_from_a_captured_pass_costs_the_timeout) {
  for (const Way& way : kWays) {
    const FakeGpus gpus(0, way.nccl_looks);
    ddp_group_options options = with(way);
    options.timeout_ms = 400;
    std::atomic<bool> over{false};
    run_gpu_groups_with(2, options, [&](group::Group& group, int rank) {
      Trained trained(group, way);
      if (rank == 1) return wait_until([&] { return over.load(); });
      trained.begin_capture();
      trained.model->begin_backward(DDP_PASS_REDUCE);
      std::optional<Error> end;
      const int64_t ms = ms_of([&] {
        end = try_to([&] {
          trained.mark();
          trained.model->end_backward(trained.stream());
        });
      });
      over = true;
      expect(end.has_value(), "the pass fails");
      expect_equal(std::string(status_name(end->status())), std::string(status_name(DDP_ERROR_TIMED_OUT)), end->text());
      expect_contains(end->text(), "rank 1");
      expect(ms < 3000, "known after " + std::to_string(ms) + " ms");
      static_cast<void>(fake_gpu::end_capture(trained.stream(), nullptr));
    });
    FakeGpus::expect_nothing_left();
  }
}

/// The values of a sharded step go to all ranks by captured collectives, too.
ddp_case(a_rank_may_end_before_a_captured_step) {
  for (const Way& way : kWays) {
    const FakeGpus gpus(0, way.nccl_looks);
    std::atomic<bool> reduced{false};
    run_gpu_groups_with(2, with(way), [&](group::Group& group, int rank) {
      Trained trained(group, way, true);
      trained.begin_capture();
      trained.reduce();
      if (rank == 1) {
        wait_until([&] { return reduced.load(); });
        static_cast<void>(fake_gpu::end_capture(trained.stream(), nullptr));
        group.health().abort(Error(DDP_ERROR_ABORTED, "rank 1 had enough"));
        return;
      }
      reduced = true;
      std::optional<Error> end;
      const int64_t ms = ms_of([&] { end = try_to([&] { trained.step(); }); });
      expect(end.has_value(), "the step fails");
      expect_contains(end->text(), "rank 1 had enough");
      expect(ms < 3000, "known after " + std::to_string(ms) + " ms");
      static_cast<void>(fake_gpu::end_capture(trained.stream(), nullptr));
    });
    FakeGpus::expect_nothing_left();
  }
}

/// The headers are there, and one rank comes no further: NCCL's thread stays where it is, and no rank waits for it for ever.
ddp_case(a_rank_that_stays_before_nccl_costs_the_timeout) {
  const FakeGpus gpus;
  ddp_group_options options = world_options();
  options.timeout_ms = 400;
  const Way way{3, DDP_PROGRESS_CALLER, 0};
  run_gpu_groups_with(2, options, [&](group::Group& group, int rank) {
    Trained trained(group, way);
    group.barrier();
    if (rank == 1) fake_gpu::let_die({1, 1, [] {}});
    group.barrier();
    trained.begin_capture();
    const int64_t ms = ms_of([&] {
      const std::optional<Error> end = try_to([&] { trained.reduce(); });
      expect(end.has_value(), "the pass fails");
      if (rank == 0)
        expect_equal(std::string(status_name(end->status())), std::string(status_name(DDP_ERROR_TIMED_OUT)), end->text());
    });
    if (rank == 1) return;
    expect(ms < 3000, "known after " + std::to_string(ms) + " ms");
    fake_gpu::end_death();
    static_cast<void>(fake_gpu::end_capture(trained.stream(), nullptr));
  });
}

/// More ranks than a word has bits.
ddp_case(two_of_many_ranks_are_found) {
  constexpr int32_t kMany = 130;
  std::vector<uint64_t> bits(nccl::capture_words(kMany));
  expect_equal(bits.size(), size_t{3}, "words");
  expect(!nccl::unlike_ranks(bits.data(), kMany), "none captures");
  bits[2] = 2;
  const auto one = nccl::unlike_ranks(bits.data(), kMany);
  expect(one && one->captures == 129 && one->does_not == 0, "the last one alone captures");
  bits = {~uint64_t{0}, ~uint64_t{0} - 4, 3};
  const auto all_but_one = nccl::unlike_ranks(bits.data(), kMany);
  expect(all_but_one && all_but_one->captures == 0 && all_but_one->does_not == 66, "rank 66 alone does not");
  bits[1] = ~uint64_t{0};
  expect(!nccl::unlike_ranks(bits.data(), kMany), "all capture");
  // Where a bucket has as many pieces as there can be, nothing is sent behind them.
  collective::BucketSpec spec;
  spec.pieces.resize(kMostPieces);
  expect(!nccl::HeaderWords::of(spec, 2).has_order() && !nccl::HeaderWords::of(spec, 2).has_captures(), "no room");
  spec.pieces.resize(kMostPieces - 64);
  expect(nccl::HeaderWords::of(spec, 2).has_order() && !nccl::HeaderWords::of(spec, 2).has_captures(), "room for one word");
  spec.pieces.resize(kMostPieces - 128);
  expect(nccl::HeaderWords::of(spec, 64).has_captures() && !nccl::HeaderWords::of(spec, 65).has_captures(), "for two");
}

/// Both ranks run it, one of them in a capture; each must get the number of that rank, long before the time is up.
void expect_told(group::Group& group, int rank, int captures, void* stream, const std::function<void()>& body) {
  if (rank == captures)
    expect(fake_gpu::table().set_device(rank) == 0 && fake_gpu::begin_capture(stream, fake_gpu::CaptureMode::kThreadLocal),
           "the capture begins");
  std::optional<Error> end;
  const int64_t ms = ms_of([&] {
    end = try_to([&] {
      body();
      if (rank != captures) wait_until([&] { return fake_gpu::pending(stream) == 0; });
      group.health().check_usable();
    });
  });
  const std::string who = "rank " + std::to_string(captures) + ", which captures, on rank " + std::to_string(rank);
  if (rank == captures) static_cast<void>(fake_gpu::end_capture(stream, nullptr));
  expect(end.has_value(), who + ": it fails");
  expect_equal(std::string(status_name(end->status())), std::string(status_name(DDP_ERROR_DIFFERENT_CALLS)),
               who + ": " + end->text());
  const size_t first = end->text().find("rank " + std::to_string(captures)), verb = end->text().find(" captures "),
               second = end->text().find("rank " + std::to_string(1 - captures));
  expect(first < verb && verb < second && second != std::string::npos, who + " is named: " + end->text());
  expect(ms < 3000, who + ": known after " + std::to_string(ms) + " ms");
}

ddp_group_options that_waits(const Way& way) {
  ddp_group_options options = with(way);
  options.timeout_ms = 8000;
  return options;
}

ddp_case(ranks_that_do_not_capture_a_pass_alike_are_told) {
  for (const Way& way : kWays)
    for (const bool shard : {false, true}) {
      const FakeGpus gpus(0, way.nccl_looks);
      const int captures = shard ? 1 : 0;
      run_gpu_groups_with(2, that_waits(way), [&](group::Group& group, int rank) {
        Trained trained(group, way, shard);
        expect_told(group, rank, captures, trained.stream(), [&] { trained.reduce(); });
      });
      FakeGpus::expect_nothing_left();
    }
}

/// The values of a sharded step cross, and with a step that may be left out the norm before them.
ddp_case(ranks_that_do_not_capture_a_step_alike_are_told) {
  for (const Way& way : kWays)
    for (const ddp_nonfinite nonfinite : {DDP_NONFINITE_KEEP, DDP_NONFINITE_SKIP}) {
      const FakeGpus gpus(0, way.nccl_looks);
      const int captures = nonfinite == DDP_NONFINITE_SKIP ? 1 : 0;
      run_gpu_groups_with(2, that_waits(way), [&](group::Group& group, int rank) {
        Trained trained(group, way, true, nonfinite);
        trained.reduce();
        trained.synchronize();
        expect_told(group, rank, captures, trained.stream(), [&] { trained.step(); });
      });
      FakeGpus::expect_nothing_left();
    }
}

ddp_case(ranks_that_do_not_capture_a_collective_alike_are_told) {
  for (const Way& way : kWays) {
    const FakeGpus gpus(0, way.nccl_looks);
    run_gpu_groups_with(2, that_waits(way), [&](group::Group& group, int rank) {
      Trained trained(group, way);
      expect_told(group, rank, 1, trained.stream(), [&] { group.all_reduce(trained.grad(0), DDP_SUM, trained.stream()); });
    });
    FakeGpus::expect_nothing_left();
  }
}
