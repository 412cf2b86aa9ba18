// SPDX-License-Identifier: Apache-2.0
// <ddp/ddp.hpp>: models, passes, optimizers, averages, checkpoints, hooks, the sampler, batch normalisation.
#include <stdlib.h>

#include <cmath>
#include <filesystem>
#include <set>

#include "ranks.hpp"

namespace {

/** A folder of its own, removed at the end. */
class Folder {
 public:
  Folder() {
    std::string name = (std::filesystem::temp_directory_path() / "ddp_cpp_XXXXXX").string();
    if (mkdtemp(name.data()) == nullptr) throw std::runtime_error("no temporary folder");
    path_ = name;
  }
  ~Folder() { std::filesystem::remove_all(path_); }
  std::string operator/(const std::string& name) const { return (path_ / name).string(); }

 private:
  std::filesystem::path path_;
};

void train(ddp::Model& model, ddp::Optimizer& optimizer, int steps, float gradient) {
  for (int step = 0; step < steps; ++step) {
    ddp::Backward pass(model);
    for (float& g : model.grad<float>(0)) g = gradient;
    pass.mark_ready(0);
    pass.end();
    optimizer.step();
  }
}

void a_training_step_is_that_of_a_loop() {
  on_ranks(2, "cpp_train", [](ddp::Group& group) {
    std::vector<float> w{1, 2, 3, 4}, table{static_cast<float>(group.rank())};
    double bias[2] = {}, bias_grad[2] = {};
    ddp::ModelOptions options;
    options.unused = DDP_UNUSED_ALLOW;
    ddp::Model model(group, options);
    REQUIRE(model.add_parameter("w", ddp::Tensor(w).reshaped({2, 2})) == 0 &&
            model.add_parameter("b", bias, bias_grad) == 1);
    REQUIRE(model.add_buffer("table", table) == 0);
    model.commit();
    REQUIRE(table[0] == 0 && model.parameter_count() == 2 && model.grad(0).ndim == 2 && model.grad(1).data == bias_grad);
    ddp::SgdOptions rule;
    rule.rate = 0.5;
    auto sgd = ddp::Optimizer::sgd(model, rule);
    {
      ddp::Backward pass(model);
      for (float& g : model.grad<float>(0)) g = group.rank() == 0 ? 1.0F : 3.0F;
      pass.mark_range_ready(0, 2, 2);
      pass.mark_range_ready(0, 0, 2);
      pass.mark_unused(1);
      pass.end();
      REQUIRE(error_of([&] { pass.end(); }).status() == DDP_ERROR_INVALID_STATE);
    }
    REQUIRE(model.grad<float>(0)[3] == 2 && model.was_used(0) && !model.was_used(1) && model.grad_norm() == 4);
    REQUIRE(model.clip_grad_norm(8) == 4 && model.pass_report().contributors == 2);
    sgd.step();
    REQUIRE((w == std::vector<float>{0, 1, 2, 3}) && sgd.step_count() == 1 && sgd.rate() == 0.5);
    model.check_replicas();
    model.zero_grad();
    REQUIRE(model.grad<float>(0)[0] == 0 && model.stats().passes == 1 && model.plan().find("bucket 0") != std::string::npos);
    const auto error = error_of([&] { (void)model.grad(7); });
    REQUIRE(error.status() == DDP_ERROR_INVALID_ARGUMENT && error.rank() == group.rank());
    REQUIRE(error_of([&] { (void)model.grad<double>(0); }).status() == DDP_ERROR_INVALID_ARGUMENT);
  });
}

void an_exception_ends_the_pass_on_all_ranks() {
  on_ranks(2, "cpp_exception", [](ddp::Group& group) {
    std::vector<float> w(8);
    ddp::Model model(group);
    model.add_parameter("w", w);
    model.commit();
    try {
      ddp::Backward pass(model);
      if (group.rank() == 1) throw std::runtime_error("out of data");
      pass.mark_ready(0);
      const auto error = error_of([&] { pass.end(); });
      REQUIRE(error.status() == DDP_ERROR_INVALID_STATE && std::string(error.what()).find("scope") != std::string::npos);
    } catch (const std::runtime_error& error) {
      REQUIRE(std::string(error.what()) == "out of data");
    }
    auto sgd = ddp::Optimizer::sgd(model); /* the group continues */
    train(model, sgd, 1, 1);
    REQUIRE(sgd.step_count() == 1);
    if (group.rank() == 0) {
      ddp::skip_backward(model);
    } else {
      ddp::Backward pass(model);
      pass.mark_ready(0);
      pass.end();
    }
    REQUIRE(model.pass_report().contributors == 1);
  });
}

void rules_and_hooks_are_functions() {
  on_ranks(2, "cpp_functions", [](ddp::Group& group) {
    std::vector<float> w(5, 1);
    auto alive = std::make_shared<int>(0);
    {
      ddp::Model model(group);
      model.add_parameter("w", w);
      ddp::set_hook(model, [alive](ddp::Bucket& bucket) {
        REQUIRE(bucket.index() == 0 && bucket.is_last() && bucket.parameter_count() == 1 && bucket.size() == 2);
        std::int32_t index = -1;
        REQUIRE(bucket.parameter(0, &index).count() == 5 && index == 0 && bucket.is_used(0));
        bucket.all_reduce(bucket.contents(), DDP_MAX);
        if (*alive == 1 && bucket.rank() == 1) throw std::runtime_error("the hook is tired");
      });
      model.commit();
      auto rule = ddp::Optimizer::custom(
          model,
          [alive](const ddp_update_slice& slice) {
            if (*alive == 2) throw std::runtime_error("the rule is tired");
            for (std::int64_t i = 0; i < slice.count; ++i) {
              static_cast<float*>(slice.state[0])[i] += static_cast<const float*>(slice.grad)[i];
              static_cast<float*>(slice.value)[i] -= static_cast<float*>(slice.state[0])[i];
            }
          },
          "seen");
      for (int step = 0; step < 2; ++step) train(model, rule, 1, static_cast<float>(group.rank() + 1));
      REQUIRE(w[4] == 1 - 2 - 4);  // the larger gradient, summed twice
      *alive = 1;
      const auto failed = error_of([&] { train(model, rule, 1, 1); });
      REQUIRE(failed.status() == DDP_ERROR_CALLBACK &&
              std::string(failed.what()).find("the hook is tired") != std::string::npos);
      group.barrier();
      *alive = 2;
      const auto stuck = error_of([&] { train(model, rule, 1, 1); });
      REQUIRE(stuck.status() == DDP_ERROR_CALLBACK &&
              std::string(stuck.what()).find("the rule is tired") != std::string::npos);
      REQUIRE(w[4] == -5 && alive.use_count() == 3);
    }
    REQUIRE(alive.use_count() == 1);  // both functions are released
  });
}

void checkpoints_through_files_folders_and_functions() {
  Folder folder;
  on_ranks(2, "cpp_state", [&folder](ddp::Group& group) {
    std::vector<float> w(3, 1);
    ddp::Model model(group);
    model.add_parameter("w", w);
    model.commit();
    auto adam = ddp::Optimizer::adam(model);
    ddp::Ema ema(model, {0.5, 0.75});
    train(model, adam, 3, 1);
    ema.update();
    const auto trained = w;
    ddp::State state(model);
    state.add(adam).add(ema).at(2, 3);
    state.set_metadata("note", "hello");
    REQUIRE(!state.load_latest(folder / "").has_value());
    state.save(folder / "one.safetensors");
    state.save_latest(folder / "", 2);
    std::vector<std::uint8_t> bytes;
    state.save([&](ddp::Span<const std::uint8_t> part) { bytes.insert(bytes.end(), part.begin(), part.end()); });
    REQUIRE(bytes.empty() == (group.rank() != 0));

    train(model, adam, 2, 1);
    REQUIRE(w != trained);
    const auto report = state.load(folder / "one.safetensors");
    REQUIRE(report.epoch == 2 && report.step == 3 && report.missing.empty() && w == trained && adam.step_count() == 3);
    REQUIRE(state.metadata("note") == "hello" && !state.metadata("other"));
    train(model, adam, 2, 1);
    const auto latest = state.load_latest(folder / "");
    REQUIRE(latest && latest->step == 3 && latest->file.find("step-") != std::string::npos && w == trained);
    train(model, adam, 2, 1);
    std::size_t place = 0;
    state.load([&](ddp::Span<std::uint8_t> room) {
      const std::size_t count = std::min(room.size(), bytes.size() - place);
      std::copy_n(bytes.begin() + static_cast<std::ptrdiff_t>(place), count, room.begin());
      place += count;
      return static_cast<std::int64_t>(count);
    });
    REQUIRE(w == trained);
    const auto torn = error_of(
        [&] { state.save([](ddp::Span<const std::uint8_t>) { throw std::runtime_error("the disk is full of cats"); }); });
    REQUIRE(std::string(torn.what()).find("the disk is full of cats") != std::string::npos);
    std::vector<float> same(3), more(1, 9);
    ddp::Model larger(group);
    larger.add_parameter("w", same);
    larger.add_parameter("more", more);
    larger.commit();
    ddp::State other(larger);
    ddp::LoadOptions partial;
    partial.partial = 1;
    REQUIRE((other.load(folder / "one.safetensors", partial).missing == std::vector<std::string>{"more"}));
    REQUIRE(same == trained && more[0] == 9);
    REQUIRE(error_of([&] { state.load(folder / "none"); }).status() == DDP_ERROR_IO);
  });
}

void an_average_stands_in_for_the_parameters_in_a_scope() {
  on_ranks(2, "cpp_average", [](ddp::Group& group) {
    std::vector<float> w{4};
    ddp::Model model(group);
    model.add_parameter("w", w);
    model.commit();
    ddp::Ema ema(model, {0.5, 0.75});
    ema.update();
    w[0] = 8;
    ema.update();
    for (const int which : {0, 1}) {
      const ddp::Averaged evaluate(ema, which);
      REQUIRE(w[0] == (which == 0 ? 6 : 5));
      REQUIRE(error_of([&] { ema.update(); }).status() == DDP_ERROR_INVALID_STATE);
    }
    REQUIRE(w[0] == 8);
  });
}

void samplers_share_out_every_sample() {
  on_ranks(3, "cpp_sampler", [](ddp::Group& group) {
    const ddp::Sampler sampler(10, group);
    REQUIRE(sampler.count() == 4 && sampler.indices(1).size() == 4 && sampler.indices(1, 3, 9).size() == 1);
    REQUIRE(sampler.indices(1, 9, 2).empty() && sampler.indices(1) == sampler.indices(1));
    std::set<std::int64_t> seen;
    for (int rank = 0; rank < 3; ++rank) {
      ddp::Sampler other = sampler;
      other.rank = rank;
      for (const auto index : other.indices(1)) seen.insert(index);
    }
    REQUIRE(seen.size() == 10 && *seen.begin() == 0 && *seen.rbegin() == 9);
  });
}

void batch_norm_has_the_statistics_of_all_ranks() {
  on_ranks(2, "cpp_norm", [](ddp::Group& group) {
    const float base = group.rank() == 0 ? 0.0F : 4.0F;  // all values of the channel: 0 2 4 6
    std::vector<float> x{base, base + 2}, y(2), dy{1, 0}, dx(2), mean{0}, var{1};
    const ddp::Tensor input(x.data(), {2, 1}), output(y.data(), {2, 1}), running_mean(mean), running_var(var);
    const ddp::Tensor grad_out(dy.data(), {2, 1}), grad_in(dx.data(), {2, 1});
    ddp::BatchNorm norm(group, 1);
    ddp::BatchNorm::Tensors with;
    with.running_mean = &running_mean, with.running_var = &running_var;
    norm.forward(input, with, output);
    REQUIRE(std::abs(y[0] - (base - 3) / std::sqrt(5.0F + 1e-5F)) < 1e-6F);
    REQUIRE(std::abs(mean[0] - 0.3F) < 1e-6F && std::abs(var[0] - (0.9F + 0.1F * 20.0F / 3)) < 1e-6F);
    norm.backward(grad_out, input, nullptr, &grad_in);
    double sum[1] = {dx[0] + dx[1]};
    group.reduce_metrics(sum);
    REQUIRE(std::abs(sum[0]) < 1e-6);  // a constant added to x changes nothing
  });
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {TEST(a_training_step_is_that_of_a_loop),
                              TEST(an_exception_ends_the_pass_on_all_ranks),
                              TEST(rules_and_hooks_are_functions),
                              TEST(checkpoints_through_files_folders_and_functions),
                              TEST(an_average_stands_in_for_the_parameters_in_a_scope),
                              TEST(samplers_share_out_every_sample),
                              TEST(batch_norm_has_the_statistics_of_all_ranks)};
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
