// SPDX-License-Identifier: Apache-2.0
// A step within a pass on GPUs whose ranks keep, to take it back, their slices of values and state alone.
#include <atomic>

#include "core/attempt.hpp"
#include "core/float16.hpp"
#include "model/model.hpp"
#include "optim/adam.hpp"
#include "support/gpu_world.hpp"
#include "support/rule_options.hpp"

namespace ddp::test {
namespace {

using Bytes = std::vector<std::byte>;

const std::vector<int64_t> kCounts = {5000, 40'000, 7, 0, 3000};

/// One rank's model with Adam, which updates within passes.
class Trainer {
 public:
  Trainer(group::Group& group, ddp_dtype dtype) : group_(group), dtype_(dtype), stream_(group.rank()) {
    ddp_model_options options{};
    options.first_bucket_bytes = 1 << 10;
    options.bucket_bytes = 64 << 10;
    model_ = std::make_shared<model::Model>(std::shared_ptr<group::Group>(&group, [](group::Group*) {}), options);
    for (size_t p = 0; p < kCounts.size(); ++p) {
      values_.emplace_back(group.rank(), kCounts[p] * dtype_size(dtype)).poke(numbers(kCounts[p], static_cast<int>(p)));
      model_->add_parameter("p" + std::to_string(p), values_.back().tensor(group, dtype), nullptr);
    }
    AdamOptions rule;
    rule.rate = 0.125;
    rule.in_backward = true;
    rule.master_weights = dtype == DDP_BF16;
    optimizer_ = std::make_shared<optim::Adam>(model_, rule, rule);
    model_->optimizer_slot().attach(optimizer_);
    model_->commit(stream_.get());
  }
  ~Trainer() { model_->close(); }

  void pass(int number, ddp_pass mode = DDP_PASS_REDUCE) {
    begin(number, mode, 0);
    model_->end_backward(stream_.get());
  }
  void step() { optimizer_->step(stream_.get()); }
  /// The last rank does not mark the last gradient, so that all but the last bucket are updated.
  void void_pass(int number) {
    begin(number, DDP_PASS_REDUCE, group_.rank() == group_.size() - 1 ? 1 : 0);
    static_cast<void>(expect_error(DDP_ERROR_INVALID_STATE, [&] { model_->end_backward(stream_.get()); }));
  }
  void begin(int number, ddp_pass mode, int32_t without) {
    stream_.synchronize();
    for (const Parameter& parameter : model_->table().parameters()) {
      const Bytes made = numbers(parameter.grad.count, 100 * number + 7 * group_.rank() + parameter.name.back());
      expect(made.empty() || fake_gpu::poke(parameter.grad.data, made.data(), parameter.grad.bytes()), "poked");
    }
    model_->begin_backward(mode);
    for (int32_t p = model_->table().parameter_count(); p-- > without;) model_->pass().mark_ready(p, stream_.get());
  }
  /// Values, and the data next to them.
  [[nodiscard]] Bytes all() {
    stream_.synchronize();
    Bytes bytes;
    const auto add = [&](const Tensor& tensor) {
      Bytes one(static_cast<size_t>(tensor.bytes()));
      expect(one.empty() || fake_gpu::peek(one.data(), tensor.data, tensor.bytes()), "peeked");
      bytes.insert(bytes.end(), one.begin(), one.end());
    };
    for (const Parameter& parameter : model_->table().parameters()) add(parameter.value);
    for (const model::StateTensor& each : optimizer_->state_tensors()) add(each.tensor);
    return bytes;
  }
  [[nodiscard]] model::Model& model() { return *model_; }
  void end_backward() { model_->end_backward(stream_.get()); }

 private:
  [[nodiscard]] Bytes numbers(int64_t count, int seed) const {
    Bytes bytes(static_cast<size_t>(count * dtype_size(dtype_)));
    for (int64_t i = 0; i < count; ++i) {
      const auto number = static_cast<float>((i * 11 + seed * 17) % 41 - 20) / 4;
      const uint16_t small = double_to_bfloat(number);
      const bool is_small = dtype_ == DDP_BF16;
      std::memcpy(bytes.data() + i * dtype_size(dtype_), is_small ? static_cast<const void*>(&small) : &number,
                  is_small ? sizeof small : sizeof number);
    }
    return bytes;
  }

  group::Group& group_;
  const ddp_dtype dtype_;
  GpuStream stream_;
  std::vector<GpuArray> values_;
  std::shared_ptr<model::Model> model_;
  std::shared_ptr<optim::Adam> optimizer_;
};

void ranks_take_a_void_pass_back_together(void**) {
  for (const int ranks : {2, 3, 4})
    for (const ddp_dtype dtype : {DDP_F32, DDP_BF16}) {
      const FakeGpus gpus;
      run_gpu_groups(ranks, [&](group::Group& group, int rank) {
        Trainer trainer(group, dtype);
        for (int number = 0; number < 2; ++number) {
          trainer.pass(number);
          trainer.step();
        }
        const Bytes before = trainer.all();
        group.barrier();
        if (rank == 0) fake_gpu::clear_log();
        group.barrier();
        trainer.void_pass(5);
        expect(fake_gpu::calls("adam", rank) > 1, "some buckets were updated");
        expect(fake_gpu::calls("nccl.all_gather", rank) > 0, "slices were given");
        expect(trainer.all() == before, std::to_string(ranks) + " ranks, " + dtype_name(dtype) + ": all is as it was");
        trainer.pass(6);
        expect(trainer.all() != before, "the next pass makes its step");
        trainer.step();
        group.barrier();
      });
      FakeGpus::expect_correct();
      FakeGpus::expect_nothing_left();
    }
}

/// Behind a LOCAL pass ranks hold different numbers, which are their own to take back.
void ranks_that_went_alone_keep_all(void**) {
  const FakeGpus gpus;
  run_gpu_groups(3, [&](group::Group& group, int rank) {
    Trainer trainer(group, DDP_F32);
    trainer.pass(0);
    trainer.step();
    trainer.pass(1, DDP_PASS_LOCAL);
    trainer.step();
    const Bytes before = trainer.all();
    const auto all = group.gather("values", std::string_view(reinterpret_cast<const char*>(before.data()), before.size()));
    expect(all[0] != all[1], "ranks differ");
    group.barrier();
    if (rank == 0) fake_gpu::clear_log();
    group.barrier();
    trainer.void_pass(5);
    expect(fake_gpu::calls("adam", rank) > 1, "some buckets were updated");
    expect_equal(fake_gpu::calls("nccl.all_gather", rank), int64_t{0}, "slices that were given");
    expect(trainer.all() == before, "all is as it was");
    group.barrier();
  });
  FakeGpus::expect_correct();
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
      expect(trainer.model().values().is_whole(), "whole");
    }
    const Bytes before = trainer.all();
    group.barrier();
    trainer.begin(2, DDP_PASS_REDUCE, 1);
    if (rank == 0) is_open = true;
    if (rank == 1) {
      wait_until([&] { return is_open.load(); });
      group.health().abort(Error(DDP_ERROR_ABORTED, "a test ends the group"));
    } else {
      expect(try_to([&] { trainer.end_backward(); }).has_value(), "the pass fails");
      had_begun = !trainer.model().values().is_whole();
      expect(had_begun || trainer.all() == before, "values that are whole are those of the last step");
    }
  });
  return had_begun;
}

void a_group_that_breaks_in_such_a_pass_leaves_them_torn(void**) {
  bool torn = false;
  for (int turn = 0; !torn && turn < 30; ++turn) torn = break_in_a_pass();
  expect(torn, "of 30 passes one had begun to update");
}

}  // namespace
}  // namespace ddp::test

int main() {
  using namespace ddp::test;
  const CMUnitTest tests[] = {
      ddp_test(ranks_take_a_void_pass_back_together),
      ddp_test(ranks_that_went_alone_keep_all),
      ddp_test(a_group_that_breaks_in_such_a_pass_leaves_them_torn),
  };
  return cmocka_run_group_tests_name("gpu_undo_slices", tests, nullptr, nullptr);
}
