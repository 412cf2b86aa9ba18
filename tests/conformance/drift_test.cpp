// SPDX-License-Identifier: Apache-2.0
// Replicas that drift apart: the periodic check finds them at the pass that was asked for, names them on every rank, and
// makes them equal again with everything that belongs to them.

#include "conformance/pass_world.hpp"
#include "optim/adam.hpp"
#include "optim/ema.hpp"
#include "os/log.hpp"
#include "support/check.hpp"
#include "support/group_paths.hpp"
#include "support/rule_options.hpp"

ddp_model_options check_options(ddp_drift drift, int64_t every = 3) {
  ddp_model_options options = model_options();
  options.check_every = every;
  options.drift = drift;
  return options;
}

ddp_model_stats stats_of(const PassWorld& world) {
  ddp_model_stats stats{};
  world.model->replicas().fill(stats);
  return stats;
}

ddp_ranks_case_on(kThreePaths, run_on, the_third_pass_reports_what_differs, 2, 3, 4) {
  PassWorld world(group, Memory::kOwned, check_options(DDP_DRIFT_REPORT));
  for (int pass = 0; pass < 7; ++pass) {
    if (pass == 4 && rank == 1) world.values[4][8999] += 1;
    if (pass == 1) {  // accumulation is no pass of the count
      world.model->begin_backward(DDP_PASS_ACCUMULATE);
      world.model->end_backward();
    }
    if (pass != 5) {
      world.run(rank, pass);
      continue;
    }
    expect_error(DDP_ERROR_MISMATCH, [&] { world.run(rank, pass); },
                 {group.size() > 2 ? "parameter \"p4\" is different on rank 1"
                                   : "parameter \"p4\" differs between rank 0 and rank 1"});
    world.expect_mean(group.size(), pass, "the pass itself is whole");
  }
  expect(stats_of(world).checks == 2 && stats_of(world).repairs == 0, "two comparisons");
}

ddp_ranks_case_on(kThreePaths, run_on, buffers_may_differ_until_they_are_synchronised, 2) {
  model::Model model(std::shared_ptr<group::Group>(&group, [](group::Group*) {}), check_options(DDP_DRIFT_REPORT, 1));
  float weight = 1, running = 2;
  model.add_parameter("w", flat_tensor(&weight, DDP_F32, 1), nullptr);
  model.add_buffer("running", flat_tensor(&running, DDP_F32, 1));
  model.commit();
  running = static_cast<float>(rank);
  model.begin_backward(DDP_PASS_REDUCE);
  model.pass().mark_ready(0);
  model.end_backward();
  expect_error(DDP_ERROR_MISMATCH, [&] { model.replicas().check(); }, {"buffer \"running\""});
}

std::atomic<int> logged{0};
void count_warnings(void*, ddp_log_level level, const char* text) {
  if (level == DDP_LOG_WARNING && std::string(text).find("sent again from rank") != std::string::npos) ++logged;
}

/// A model with everything that follows it.
struct Trainer {
  PassWorld world;
  float buffer = 5;
  std::shared_ptr<optim::Adam> adam;
  std::shared_ptr<optim::Ema> ema;
  std::shared_ptr<model::Model> shared;

  Trainer(group::Group& group, const ddp_model_options& options) : world(group, Memory::kMixed, options) {
    shared = std::shared_ptr<model::Model>(world.model.get(), [](model::Model*) {});
    AdamOptions rule;
    rule.rate = 0.01;
    adam = std::make_shared<optim::Adam>(shared, rule, rule);
    ema = std::make_shared<optim::Ema>(shared, std::vector<double>{0.9});
    shared->replicas().keep_equal(adam);
    shared->replicas().keep_equal(ema);
  }
  void step(int rank, int pass) {
    world.run(rank, pass);
    adam->step();
    ema->update();
  }
  /// All state as bytes.
  std::string contents() {
    std::string all;
    const auto add = [&](const Tensor& tensor) {
      all.append(reinterpret_cast<const char*>(tensor.data), static_cast<size_t>(tensor.bytes()));
    };
    for (const Parameter& parameter : world.model->table().parameters()) add(parameter.value);
    for (const model::StateTensor& each : adam->state_tensors()) add(each.tensor);
    for (const model::StateTensor& each : ema->state_tensors()) add(each.tensor);
    for (const auto& [key, value] : adam->state_fields()) all += key + "=" + value + "\n";
    for (const auto& [key, value] : ema->state_fields()) all += key + "=" + value + "\n";
    return all;
  }
};

ddp_case_on(kThreePaths, the_majority_is_sent_again_with_all_that_belongs_to_it) {
  for (const int32_t odd : {0, 2})
    run_on(path, 3, [odd](group::Group& group, int rank) {
      logged = 0;
      group.barrier();
      os::set_log_sink(DDP_LOG_WARNING, &count_warnings, nullptr);
      Trainer trained(group, check_options(DDP_DRIFT_RESEND)), reference(group, model_options());
      for (int pass = 0; pass < 8; ++pass) {
        if (pass == 4 && rank == odd) {  // a rank that loaded another checkpoint by itself
          trained.world.values[2][10] = 77;
          std::memset(trained.adam->state_tensors()[3].tensor.data, 0x11, 8);
          std::memset(trained.ema->state_tensors()[1].tensor.data, 0x22, 8);
          auto fields = trained.adam->state_fields();
          fields["step_count"] = "100";
          fields["steps.p0"] = "100";
          fields["rate"] = "0.5";
          trained.adam->load_fields(fields);
        }
        trained.step(rank, pass);
        reference.step(rank, pass);
        const bool drifted = rank == odd && pass == 4;
        expect((trained.contents() == reference.contents()) != drifted,
               "pass " + std::to_string(pass) + (drifted ? ": drifted" : ": as if nothing had happened"));
      }
      const ddp_model_stats stats = stats_of(trained.world);
      expect(stats.checks == 2 && stats.repairs == 1, "one repair");
      group.barrier();
      os::set_log_sink(DDP_LOG_WARNING, nullptr, nullptr);
      expect(logged >= (rank == odd ? 1 : 0) && logged <= 2, "a line in the log");
      group.barrier();
    });
}

ddp_ranks_case_on(kThreePaths, run_on, without_a_majority_nothing_is_sent, 2) {
  Trainer trained(group, check_options(DDP_DRIFT_RESEND, 1));
  trained.world.values[0][0] = static_cast<float>(rank + 40);
  expect_error(DDP_ERROR_MISMATCH, [&] { trained.step(rank, 0); }, {"differs between rank 0 and rank 1"});
  expect(trained.world.values[0][0] == static_cast<float>(rank + 40), "untouched");
}

ddp_ranks_case_on(kThreePaths, run_on, ranks_with_different_optimizers_are_refused, 3) {
  Trainer trained(group, check_options(DDP_DRIFT_RESEND, 1));
  if (rank == 1) trained.ema.reset();
  if (rank == 2) trained.world.values[0][0] = 9;
  expect_error(DDP_ERROR_MISMATCH, [&] { trained.world.run(rank, 0); },
               {"rank 0 has adam with 16 tensors, ema with 8 tensors, rank 1 has adam with 16 tensors"});
  expect((trained.world.values[0][0] == 9) == (rank == 2), "untouched");
}
