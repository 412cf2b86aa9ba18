// SPDX-License-Identifier: Apache-2.0
// Data that leaves a GPU by a file or a hash: checkpoints go between GPU and CPU in both directions, and training continues
// with the same bits.
#include "gpu/support/trainer.hpp"
#include "support/group_procs.hpp"

using namespace ddp::test::card;

namespace {

struct Training {
  Trainer trainer;
  OptimizerHandle optimizer;
  EmaHandle ema;
  ddp_state state;

  Training(ddp_group* group, Place place, ddp_dtype dtype) : trainer(group, plan_for(place, dtype)) {
    auto options = defaults<ddp_adam_options>();
    auto shared = defaults<ddp_optimizer_options>();
    options.rate = 0.05;
    shared.master_weights = dtype == DDP_BF16 ? 1 : 0;
    ddp_optimizer* adam = nullptr;
    OK(ddp_optimizer_create_adam(trainer.model.get(), &options, &shared, &adam));
    optimizer.reset(adam);
    const double decay = 0.9;
    ddp_ema* averages = nullptr;
    OK(ddp_ema_create(trainer.model.get(), &decay, 1, &averages));
    ema.reset(averages);
    OK(ddp_state_init(&state, sizeof state));
    state.model = trainer.model.get();
    state.optimizer = adam;
    state.ema = averages;
  }
  static Plan plan_for(Place place, ddp_dtype dtype) {
    Plan plan;
    plan.place = place;
    plan.dtype = dtype;
    return plan;
  }
  void steps(int from, int to) {
    for (int step = from; step < to; ++step) {
      trainer.pass(step);
      OK(ddp_optimizer_step(optimizer.get(), trainer.stream.get()));
      OK(ddp_ema_update(ema.get(), trainer.stream.get()));
    }
  }
  std::string everything() {
    std::string all = trainer.value_bytes();
    OK(ddp_ema_swap(ema.get(), 0, trainer.stream.get()));
    all += trainer.value_bytes();
    OK(ddp_ema_swap(ema.get(), 0, trainer.stream.get()));
    return all;
  }
};

ddp_case(a_checkpoint_goes_from_one_place_to_the_other_and_back) {
  const Folder folder;
  const GroupHandle group = alone();
  for (const ddp_dtype dtype : {DDP_F32, DDP_F64, DDP_BF16, DDP_C64}) {
    Training whole(group.get(), kCpu, dtype);
    whole.steps(0, 6);
    for (const Place first : {kGpu, kCpu})
      for (const Place second : {kGpu, kCpu}) {
        if (!first.on_gpu() && !second.on_gpu()) continue;
        const std::string file = folder.path() + "/" + dtype_name(dtype);
        Training before(group.get(), first, dtype);
        before.steps(0, 3);
        before.state.step = 3;
        OK(ddp_state_save_file(&before.state, file.c_str()));
        Training after(group.get(), second, dtype);
        ddp_load_report report{};
        report.struct_size = sizeof report;
        OK(ddp_state_load_file(&after.state, file.c_str(), nullptr, &report));
        expect_equal(report.step, int64_t{3}, "the step in the checkpoint");
        expect_same_bytes(after.trainer.value_bytes(), before.trainer.value_bytes(), "loaded parameters");
        after.steps(3, 6);
        expect_same_bytes(after.everything(), whole.everything(), std::string("going on, ") + dtype_name(dtype));
      }
  }
}

ddp_case(saving_waits_for_what_is_under_way) {
  const Folder folder;
  const GroupHandle group = alone();
  Training late(group.get(), kGpu, DDP_F32), reference(group.get(), kCpu, DDP_F32);
  const SlowWork slow(kGpu);
  reference.steps(0, 1);
  late.trainer.put_aside(0);
  OK(ddp_model_begin_backward(late.trainer.model.get(), DDP_PASS_REDUCE));
  slow.enqueue(late.trainer.stream.get());
  for (int32_t p = late.trainer.count(); p-- > 0;) {
    late.trainer.copy_grad(static_cast<size_t>(p), late.trainer.stream.get());
    OK(ddp_model_mark_ready(late.trainer.model.get(), p, late.trainer.stream.get()));
  }
  OK(ddp_model_end_backward(late.trainer.model.get(), late.trainer.stream.get()));
  OK(ddp_optimizer_step(late.optimizer.get(), late.trainer.stream.get()));
  OK(ddp_ema_update(late.ema.get(), late.trainer.stream.get()));
  const std::string file = folder.path() + "/late";
  OK(ddp_state_save_file(&late.state, file.c_str()));
  Training loaded(group.get(), kCpu, DDP_F32);
  OK(ddp_state_load_file(&loaded.state, file.c_str(), nullptr, nullptr));
  expect_same_bytes(loaded.everything(), reference.everything(), "saved while the step was still running");
}

ddp_case(a_hash_changes_with_the_parameters_and_only_with_them) {
  const GroupHandle group = alone();
  Trainer one(group.get(), Plan{}), other(group.get(), Plan{});
  expect_equal(one.hash(), other.hash(), "the hash of equal models");
  OK(ddp_model_check_replicas(one.model.get(), one.stream.get()));
  const std::string first = one.values[0].read();
  std::string changed = first;
  changed[0] = static_cast<char>(changed[0] ^ 1);
  one.values[0].write(changed);
  expect(one.hash() != other.hash(), "one bit changes the hash");
  one.values[0].write(first);
  expect_equal(one.hash(), other.hash(), "the hash with the bit back");
}

ddp_case(the_hash_of_a_model_is_the_same_on_gpu_and_cpu) {
  const GroupHandle group = alone();
  Plan plan;
  const Trainer on_gpu(group.get(), plan);
  plan.place = kCpu;
  const Trainer on_cpu(group.get(), plan);
  expect_equal(on_gpu.hash(), on_cpu.hash(), "the hash");
}

gpu_cases(need_devices(1));

}  // namespace
