// SPDX-License-Identifier: Apache-2.0
// A step within a pass on GPUs whose ranks keep, to take it back, their slices of values and state alone.

#include "support/check.hpp"
#include "support/training.hpp"

/// One rank's model with Adam, which updates within passes.
class Trainer : public Training {
 public:
  Trainer(group::Group& of, ddp_dtype dtype) : Training(of, Rule::kAdamW, ways_with(dtype)) {}

  void pass(int number, ddp_pass mode = DDP_PASS_REDUCE) {
    fill(group.rank(), number);
    reduce({}, {}, mode);
  }
  /// The last rank does not mark the last gradient, so that all but the last bucket are updated.
  void void_pass(int number) {
    begin(number, group.rank() == group.size() - 1);
    static_cast<void>(expect_error(DDP_ERROR_INVALID_STATE, [&] { end_backward(); }));
  }
  void begin(int number, bool without_last) {
    fill(group.rank(), number);
    model->begin_backward(DDP_PASS_REDUCE);
    mark({}, without_last ? std::set<int32_t>{0} : std::set<int32_t>{});
  }
  void end_backward() const { model->end_backward(stream()); }
  /// Values, and the data next to them.
  [[nodiscard]] std::string all() const { return bytes() + state(); }

 private:
  static Ways ways_with(ddp_dtype dtype) {
    Ways ways;
    ways.home = Home::kGpu;
    ways.shapes = {5000, 40'000, 7, 0, 3000};
    ways.dtype = dtype;
    ways.first_bucket_bytes = 1 << 10;
    ways.bucket_bytes = 64 << 10;
    ways.unused = DDP_UNUSED_ERROR;
    ways.rate = 0.125;
    ways.in_backward = true;
    ways.master_weights = dtype == DDP_BF16;
    return ways;
  }
};

ddp_case(ranks_take_a_void_pass_back_together) {
  for (const int ranks : {2, 3, 4})
    for (const ddp_dtype dtype : {DDP_F32, DDP_BF16}) {
      run_on_gpus(ranks, [&](group::Group& group, int rank) {
        Trainer trainer(group, dtype);
        for (int number = 0; number < 2; ++number) {
          trainer.pass(number);
          trainer.step();
        }
        const std::string before = trainer.all();
        begin_log(group);
        trainer.void_pass(5);
        expect(fake_gpu::calls("adam", rank) > 1, "some buckets were updated");
        expect(fake_gpu::calls("nccl.all_gather", rank) > 0, "slices were given");
        expect(trainer.all() == before, std::to_string(ranks) + " ranks, " + dtype_name(dtype) + ": all is as it was");
        trainer.pass(6);
        expect(trainer.all() != before, "the next pass makes its step");
        trainer.step();
        group.barrier();
      });
    }
}

/// Behind a LOCAL pass ranks hold different numbers, which are their own to take back.
ddp_ranks_case(run_on_gpus, ranks_that_went_alone_keep_all, 3) {
  Trainer trainer(group, DDP_F32);
  trainer.pass(0);
  trainer.step();
  trainer.pass(1, DDP_PASS_LOCAL);
  trainer.step();
  const std::string before = trainer.all();
  const auto all = group.gather("values", before);
  expect(all[0] != all[1], "ranks differ");
  begin_log(group);
  trainer.void_pass(5);
  expect(fake_gpu::calls("adam", rank) > 1, "some buckets were updated");
  expect_equal(fake_gpu::calls("nccl.all_gather", rank), int64_t{0}, "slices that were given");
  expect(trainer.all() == before, "all is as it was");
  group.barrier();
}

/// No rank has the other slices any more.
/// Had rank 0 begun to update when rank 1 broke the group? Then its values are torn, else they are as they were.
bool break_in_a_pass() {
  const FakeGpus gpus;
  bool had_begun = false;
  std::atomic<bool> is_open{false};  // on rank 0: begin() may fail, too
  run_gpu_groups(2, [&](group::Group& group, int rank) {
    Trainer trainer(group, DDP_F32);
    for (int number = 0; number < 2; ++number) {
      trainer.pass(number);
      trainer.step();
      expect(trainer.model->values().is_whole(), "whole");
    }
    const std::string before = trainer.all();
    group.barrier();
    trainer.begin(2, true);
    if (rank == 0) is_open = true;
    if (rank == 1) {
      wait_until([&] { return is_open.load(); });
      group.health().abort(Error(DDP_ERROR_ABORTED, "a test ends the group"));
      trainer.model->close();  // the pass stays open
    } else {
      expect(try_to([&] { trainer.end_backward(); }).has_value(), "the pass fails");
      had_begun = !trainer.model->values().is_whole();
      expect(had_begun || trainer.all() == before, "values that are whole are those of the last step");
    }
  });
  return had_begun;
}

ddp_case(a_group_that_breaks_in_such_a_pass_leaves_them_torn) {
  bool torn = false;
  for (int turn = 0; !torn && turn < 30; ++turn) torn = break_in_a_pass();
  expect(torn, "of 30 passes one had begun to update");
}
