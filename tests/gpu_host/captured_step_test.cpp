// SPDX-License-Identifier: Apache-2.0
// Whole steps, a pass and the optimizer's step, that are captured into a graph of the GPU and launched again:
// each launch does what the same model in host memory does in an ordinary step, with the same bits, and settings that the
// host makes or loads between launches holds for those that follow. Gradients are whole numbers and the ranks 1 or 2, so
// that every order of adding gives one mean.

#include "checkpoint/state.hpp"
#include "gpu_host/placed_model.hpp"
#include "gpu_host/rule_cases.hpp"
#include "model/optimizer_slot.hpp"
#include "parts/model_pass.hpp"
#include "support/file_faults.hpp"

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

/// A model of this rank with its optimizer.
struct Trained {
  PlacedModel placed;
  std::shared_ptr<optim::Optimizer> optimizer;
  fake_gpu::GraphPtr graph;

  Trained(group::Group& group, Home home, const MakeOptimizer& make, ddp_unused unused = DDP_UNUSED_ERROR)
      : placed(group, home, unused), optimizer(make(placed.model)) {
    if (optimizer->in_passes() != nullptr) placed.model->optimizer_slot().attach(optimizer);
  }
  /// A pass and a step; or, once they are captured, a launch of both.
  void step() const {
    if (graph != nullptr) return fake_gpu::launch_graph(graph, placed.stream());
    placed.pass();
    optimizer->step(placed.stream());
  }
  void capture() {
    graph = nullptr;
    graph = ddp::test::capture(placed.stream(), [&] { step(); });
  }
  [[nodiscard]] std::vector<PlacedBytes> values() const { return placed.contents(); }
  void save(const std::string& path) const {
    checkpoint::save_file("save", {*placed.model, optimizer.get()}, {1, 2}, path, std::nullopt);
  }
  void load(const std::string& path) const {
    (void)checkpoint::load_file("load", {*placed.model, optimizer.get()}, path, std::nullopt, {});
  }
};

/// The same model twice: in host memory, by ordinary steps, and on a GPU.
struct Twins {
  int rank;
  Trained wanted, got;

  Twins(group::Group& group, int own_rank, const MakeOptimizer& host, const MakeOptimizer& gpu)
      : rank(own_rank), wanted(group, Home::kHost, host), got(group, Home::kGpu, gpu) {}
  void both(const std::function<void(Trained&)>& change) {
    change(wanted);
    change(got);
  }
  void step(int number, bool bad = false) {
    both([&](Trained& each) {
      each.placed.fill_whole_grads(rank, number);
      if (bad && rank == 0) each.placed.set_grad(3, 1024, kNaN);
      each.step();
    });
  }
  void expect_equal_values(const std::string& what) const { expect(got.values() == wanted.values(), what + ": values"); }
  /// Values, state, counts and options, as a checkpoint has them; the same file name on all ranks.
  void expect_equal_files(const TemporaryFolder& folder, const std::string& what) const {
    wanted.save(folder.file("wanted"));
    got.save(folder.file("got"));
    expect(read_whole(folder.file("got")) == read_whole(folder.file("wanted")), what + ": the checkpoints");
  }
  void expect_equal_counts(const std::string& what) const {
    expect_equal(got.optimizer->step_count(), wanted.optimizer->step_count(), what + ": steps");
    expect_equal(got.optimizer->skipped_count(), wanted.optimizer->skipped_count(), what + ": skipped");
    expect_equal(got.optimizer->loss_scale(), wanted.optimizer->loss_scale(), what + ": loss scale");
    const double norm = got.optimizer->grad_norm(), of_host = wanted.optimizer->grad_norm();
    expect(norm == of_host || (std::isnan(norm) && std::isnan(of_host)), what + ": norm " + std::to_string(norm));
  }
};

struct Case {
  std::string name;
  double max_norm = 0;
  ddp_nonfinite nonfinite = DDP_NONFINITE_KEEP;
  bool masters = false;
  double fixed_scale = 1;
  int64_t interval = 0;  // of a dynamic loss scale

  [[nodiscard]] bool skips() const { return nonfinite == DDP_NONFINITE_SKIP || interval > 0; }
};

const std::vector<Case>& cases() {
  static const std::vector<Case> all = {
      {.name = "plain"},
      {.name = "fixed loss scale", .masters = true, .fixed_scale = 12},
      {.name = "clipped", .max_norm = 40},
      {.name = "skip", .nonfinite = DDP_NONFINITE_SKIP},
      {.name = "clipped, skip", .max_norm = 40, .nonfinite = DDP_NONFINITE_SKIP, .masters = true},
      {.name = "dynamic", .fixed_scale = 8, .interval = 2},
      {.name = "clipped, dynamic", .max_norm = 5, .nonfinite = DDP_NONFINITE_FAIL, .fixed_scale = 8, .interval = 3}};
  return all;
}

MakeOptimizer maker(const Case& of, bool is_adam, bool shard) {
  const auto common = [=](auto& options) {
    options.max_norm = of.max_norm;
    options.nonfinite = of.nonfinite;
    options.master_weights = of.masters ? 1 : 0;
    options.shard = shard ? 1 : 0;
  };
  const MakeOptimizer made = is_adam ? adam(common) : sgd([=](auto& options) {
    options.momentum = 0.875;
    options.nesterov = 1;
    common(options);
  });
  return [=](const std::shared_ptr<model::Model>& model) {
    const auto optimizer = made(model);
    if (of.fixed_scale == 1 && of.interval == 0) return optimizer;
    ddp_loss_scale_options scale = optim::default_loss_scale_options();
    scale.initial = of.fixed_scale;
    scale.interval = of.interval;
    optimizer->set_loss_scale(scale);
    return optimizer;
  };
}

/// Ordinary steps, launches with everything that may change between them, and ordinary steps and launches once more.
void train_both(Twins& twins, const Case& each, const TemporaryFolder& folder, const std::string& name) {
  twins.both([](Trained& t) { t.optimizer->set_parameter_options(5, 0.1, 0); });
  for (int step = 0; step < 2; ++step) twins.step(step);
  twins.both([](Trained& t) { t.optimizer->set_rate(0.013); });
  twins.got.capture();
  twins.expect_equal_counts(name + ", captured and not launched");
  for (int step = 2; step < 9; ++step) {
    if (step == 4) twins.both([](Trained& t) { t.optimizer->set_rate(0.007); });
    if (step == 5)
      twins.both(
          [](Trained& t) { t.optimizer->set_parameter_options(1, 0.3, 2), t.optimizer->set_parameter_options(3, 0.1, 0); });
    if (step == 7)
      twins.both(
          [](Trained& t) { t.optimizer->set_parameter_options(3, 0.1, 1), t.optimizer->set_parameter_options(5, 0, 0.5); });
    twins.step(step, each.skips() && (step == 3 || step == 6));
    const std::string what = name + ", step " + std::to_string(step);
    twins.expect_equal_values(what);
    if (step == 6) twins.expect_equal_counts(what);
  }
  twins.expect_equal_files(folder, name);
  const fake_gpu::GraphPtr graph = std::exchange(twins.got.graph, nullptr);
  twins.step(9, each.skips());
  twins.step(10);
  twins.got.graph = graph;
  twins.step(11);
  twins.expect_equal_values(name + ", after ordinary steps");
  twins.expect_equal_counts(name + ", after ordinary steps");
  twins.expect_equal_files(folder, name + ", after ordinary steps");
}

fake_gpu_host_case(captured_steps_give_the_bits_of_ordinary_ones) {
  const TemporaryFolder folder;
  for (const int size : {1, 2})
    for (const Case& each : cases())
      for (const bool is_adam : {true, false})
        for (const bool shard : {false, true}) {
          if ((shard && size == 1) || (!is_adam && each.max_norm == 0 && each.name != "plain")) continue;
          run_gpu_groups(size, [&](group::Group& group, int rank) {
            Twins twins(group, rank, maker(each, is_adam, false), maker(each, is_adam, shard));
            train_both(twins, each, folder,
                       each.name + (is_adam ? ", adam" : ", sgd") + (shard ? ", shard, " : ", ") + std::to_string(size));
          });
        }
}

fake_gpu_host_case(a_checkpoint_between_launches_is_saved_and_loaded) {
  const TemporaryFolder folder;
  const Case each{.name = "dynamic", .fixed_scale = 8, .interval = 2};
  for (const bool shard : {false, true})
    run_gpu_groups(2, [&](group::Group& group, int rank) {
      Twins twins(group, rank, maker(each, true, false), maker(each, true, shard));
      for (int step = 0; step < 2; ++step) twins.step(step);
      twins.got.capture();
      for (int step = 2; step < 5; ++step) twins.step(step, step == 3);
      twins.got.save(folder.file("early"));
      for (int step = 5; step < 8; ++step) twins.step(step, step == 6);
      twins.both([&](Trained& t) { t.load(folder.file("early")); });
      expect_equal(twins.got.optimizer->step_count(), int64_t{4}, "steps of the checkpoint");
      for (int step = 8; step < 11; ++step) twins.step(step, step == 9);
      twins.expect_equal_values("behind the load");
      twins.expect_equal_files(folder, "behind the load");
    });
}

fake_gpu_host_case(the_host_waits_for_nothing_between_launches) {
  run_gpu_groups(1, [&](group::Group& group, int rank) {
    const Case each{.name = "dynamic", .fixed_scale = 8, .interval = 2};
    Twins twins(group, rank, maker(each, true, false), maker(each, true, false));
    for (int step = 0; step < 2; ++step) twins.step(step);
    twins.got.capture();
    twins.got.placed.fill_whole_grads(rank, 2);
    fake_gpu::clear_log();
    fake_gpu::pause(twins.got.placed.stream());
    for (int launch = 0; launch < 3; ++launch) twins.got.step();
    expect(fake_gpu::pending(twins.got.placed.stream()) > 0, "the launches are still to come");
    expect_equal(fake_gpu::host_waits() + fake_gpu::allocations(), int64_t{0}, "waits and allocations");
    fake_gpu::resume(twins.got.placed.stream());
    expect_equal(twins.got.optimizer->step_count(), int64_t{5}, "steps: whoever asks waits for the launches");
  });
}

/// Each launch writes the scale that holds before its step, where the program's kernels find it.
fake_gpu_host_case(a_launch_gives_the_loss_scale_of_its_time) {
  const Case each{.name = "dynamic", .fixed_scale = 8, .interval = 2};
  run_gpu_groups(1, [&](group::Group& group, int rank) {
    Trained trained(group, Home::kGpu, maker(each, true, false));
    const GpuArray narrow(0, 4), wide(0, 8);
    const Tensor to32 = narrow.tensor(group, DDP_F32), to64 = wide.tensor(group, DDP_F64);
    const auto copy = [&] {
      trained.optimizer->copy_loss_scale(to32, trained.placed.stream());
      trained.optimizer->copy_loss_scale(to64, trained.placed.stream());
    };
    const auto expect_copied = [&](double scale, const std::string& what) {
      trained.placed.gpu().synchronize(trained.placed.stream());
      expect_equal(narrow.peek<float>()[0], static_cast<float>(scale), what + ": F32");
      expect_equal(wide.peek<double>()[0], scale, what + ": F64");
    };
    copy();
    expect_copied(8, "before the first step");
    for (int step = 0; step < 2; ++step) trained.placed.fill_whole_grads(rank, step), trained.step();
    copy();
    expect_copied(16, "after two steps");
    trained.graph = capture(trained.placed.stream(), [&] {
      copy();
      trained.step();
    });
    const double wanted[] = {16, 16, 32, 32, 16, 16};  // the fourth launch is left out
    for (int launch = 0; launch < 6; ++launch) {
      trained.placed.fill_whole_grads(rank, launch);
      if (launch == 3) trained.placed.set_grad(3, 7, kNaN);
      trained.step();
      expect_copied(wanted[launch], "launch " + std::to_string(launch));
    }
  });
}

/// A step that may be left out is decided on the GPU in ordinary steps, too.
fake_gpu_host_case(a_step_that_may_be_left_out_returns_while_its_stream_is_held) {
  const Case each{.name = "dynamic", .fixed_scale = 8, .interval = 2};
  run_gpu_groups(1, [&](group::Group& group, int rank) {
    Twins twins(group, rank, maker(each, true, false), maker(each, true, false));
    for (int step = 0; step < 5; ++step) {
      twins.both([&](Trained& t) {
        t.placed.fill_whole_grads(rank, step);
        if (step == 2) t.placed.set_grad(3, 7, kNaN);
        if (step == 3) t.optimizer->set_rate(0.007);
      });
      twins.wanted.step();
      twins.got.placed.pass();
      fake_gpu::pause(twins.got.placed.stream());
      twins.got.optimizer->step(twins.got.placed.stream());  // would never return if it waited
      expect(fake_gpu::pending(twins.got.placed.stream()) > 0, "the work is enqueued and not done");
      fake_gpu::resume(twins.got.placed.stream());
      twins.expect_equal_values("step " + std::to_string(step));
    }
    twins.expect_equal_counts("at the end");
  });
}

/// Behind its bucket, or at the end of the pass where a rank may contribute in part.
fake_gpu_host_case(a_pass_that_makes_the_step_is_not_captured) {
  for (const ddp_unused unused : {DDP_UNUSED_ERROR, DDP_UNUSED_ALLOW})
    run_gpu_groups(1, [&](group::Group& group, int rank) {
      Trained trained(group, Home::kGpu, adam([](auto& options) { options.in_backward = 1; }), unused);
      for (int step = 0; step < 2; ++step) trained.placed.fill_whole_grads(rank, step), trained.step();
      expect(fake_gpu::begin_capture(trained.placed.stream(), fake_gpu::CaptureMode::kThreadLocal), "the capture begins");
      expect_error(DDP_ERROR_INVALID_STATE, [&] { trained.placed.pass(); }, {"in_backward"});
      static_cast<void>(fake_gpu::end_capture(trained.placed.stream()));
    });
}

fake_gpu_host_case(a_launch_behind_a_failure_changes_and_counts_nothing) {
  const Case each{.name = "skip", .nonfinite = DDP_NONFINITE_SKIP};
  run_gpu_groups(2, [&](group::Group& group, int rank) {
    Trained trained(group, Home::kGpu, maker(each, true, false));
    for (int step = 0; step < 2; ++step) trained.placed.fill_whole_grads(rank, step), trained.step();
    trained.capture();
    const auto before = trained.values();
    group.barrier();
    break_group(group);
    trained.step();
    expect(fake_gpu::wait_idle(), "the device comes to an end");
    expect(trained.values() == before, "no value has changed");
    expect_equal(trained.optimizer->step_count(), int64_t{2}, "steps");
    expect_equal(trained.optimizer->skipped_count(), int64_t{0}, "skipped");
  });
}
