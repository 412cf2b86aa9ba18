// SPDX-License-Identifier: Apache-2.0
// Ranks that run out of data join, on every transport. A killed rank is named to the ranks that joined.
#include "model/uneven.hpp"

#include "checkpoint/state.hpp"
#include "conformance/weight_world.hpp"
#include "model/average.hpp"
#include "model/optimizer_slot.hpp"
#include "model/sync_buffers.hpp"
#include "optim/adam.hpp"
#include "optim/ema.hpp"
#include "parts/model_pass.hpp"
#include "support/check.hpp"
#include "support/group_paths.hpp"
#include "support/rule_options.hpp"

ddp_model_options uneven_options() {
  ddp_model_options options = weighted_options();
  options.uneven_inputs = 1;
  return options;
}

/// A model with buffers, Adam and an average of its parameters.
struct Learner {
  static constexpr int64_t kCounts[] = {5, 700, 1, 2'000};
  std::vector<std::vector<float>> values;
  float buffer[3] = {};
  std::shared_ptr<model::Model> model;
  std::shared_ptr<optim::Adam> adam;
  std::shared_ptr<optim::Ema> ema;

  Learner(group::Group& group, const ddp_model_options& options, bool shard = false, bool in_backward = false)
      : model(std::make_shared<model::Model>(std::shared_ptr<group::Group>(&group, [](group::Group*) {}), options)) {
    for (size_t p = 0; p < std::size(kCounts); ++p) {
      values.emplace_back(static_cast<size_t>(kCounts[p]), 0.5F * static_cast<float>(p + 1));
      model->add_parameter("p" + std::to_string(p), flat_tensor(values[p].data(), DDP_F32, kCounts[p]), nullptr);
    }
    model->add_buffer("b", flat_tensor(buffer, DDP_F32, 3));
    model->commit();
    AdamOptions adam_options;
    adam_options.weight_decay = 0;
    adam_options.shard = shard ? 1 : 0;
    adam_options.in_backward = in_backward ? 1 : 0;
    adam_options.rate = 0.01;
    adam_options.beta1 = 0.9;
    adam_options.beta2 = 0.99;
    adam_options.epsilon = 1e-8;
    adam = std::make_shared<optim::Adam>(model, adam_options, adam_options);
    ema = std::make_shared<optim::Ema>(model, std::vector<double>{0.5, 0.9});
    if (adam->in_passes() != nullptr) model->optimizer_slot().attach(adam);
    model->replicas().keep_equal(adam);
    model->replicas().keep_equal(ema);
  }
  float* grad(size_t p) { return reinterpret_cast<float*>(model->table().parameter(static_cast<int32_t>(p)).grad.data); }
  void backward(int rank, int pass) {
    adam->set_rate(0.01 / (pass + 1));
    model->begin_backward(DDP_PASS_REDUCE);
    for (size_t p = std::size(kCounts); p-- > 0;) {
      for (int64_t i = 0; i < kCounts[p]; ++i) grad(p)[i] = gradient(rank, pass, p, i);
      model->pass().mark_ready(static_cast<int32_t>(p));
    }
    model->end_backward();
  }
  void step(int pass) {
    adam->step();
    ema->update();
    for (float& each : buffer) each = static_cast<float>(pass + 1);
  }
  /// All that a rank holds, as text that can be compared to the bit.
  [[nodiscard]] std::string state() {
    std::string all;
    const auto add = [&](const Tensor& tensor) {
      all.append(reinterpret_cast<const char*>(tensor.data), static_cast<size_t>(tensor.bytes()));
    };
    for (const Parameter& parameter : model->table().parameters()) add(parameter.value);
    for (const Buffer& each : model->table().buffers()) add(each.value);
    for (model::ReplicaState* each_state :
         {static_cast<model::ReplicaState*>(adam.get()), static_cast<model::ReplicaState*>(ema.get())}) {
      for (const model::StateTensor& each : each_state->state_tensors()) add(each.tensor);
      for (const auto& [key, value] : each_state->state_fields()) all += key + "=" + value + ";";
    }
    return all;
  }
};

/// What training must come to: one rank alone, given the means that a naive loop over the ranks with data forms.
std::string state_alone(group::Group& alone, const std::vector<int>& batches, bool in_backward) {
  Learner learner(alone, model_options(), false, in_backward);
  const int most = *std::max_element(batches.begin(), batches.end());
  for (int pass = 0; pass < most; ++pass) {
    std::vector<double> weights;
    for (const int number : batches) weights.push_back(pass < number ? 1 : 0);
    learner.adam->set_rate(0.01 / (pass + 1));
    learner.model->begin_backward(DDP_PASS_REDUCE);
    for (size_t p = std::size(Learner::kCounts); p-- > 0;) {
      for (int64_t i = 0; i < Learner::kCounts[p]; ++i)
        learner.grad(p)[i] = weighted_mean(weights, sum_of(weights), pass, p, i).exact;
      learner.model->pass().mark_ready(static_cast<int32_t>(p));
    }
    learner.model->end_backward();
    learner.step(pass);
  }
  return learner.state();
}

std::string state_alone(const std::vector<int>& batches, bool in_backward) {
  ddp_group_options options = world_options(0, 1);
  const auto alone = group::Group::create("local://uneven-alone", options);
  return state_alone(*alone, batches, in_backward);
}

const std::vector<std::vector<int>> kBatches = {{3},          {1, 4},       {4, 1},      {3, 3},    {0, 2},
                                                {0, 0},       {5, 2, 3},    {1, 5, 5},   {2, 2, 0}, {7, 1, 4, 2},
                                                {1, 2, 3, 4}, {4, 4, 4, 1}, {0, 0, 0, 3}};

ddp_case_on(kEveryHostPath, joined_ranks_hold_what_the_last_ones_learned) {
  int turn = 0;
  for (const std::vector<int>& batches : kBatches) {
    ++turn;
    const bool in_backward = turn % 3 == 0;
    const std::string wanted = state_alone(batches, in_backward);
    run_if_enough_on(path, static_cast<int>(batches.size()), [&](group::Group& group, int rank) {
      const ddp_progress progress = turn % 2 == 0 ? DDP_PROGRESS_CALLER : DDP_PROGRESS_THREAD;
      {
        ddp_model_options options = uneven_options();
        options.progress = progress;
        Learner learner(group, options, false, in_backward);
        const int mine = batches[static_cast<size_t>(rank)];
        for (int pass = 0; pass < mine; ++pass) {
          learner.backward(rank, pass);
          const auto contributing = std::count_if(batches.begin(), batches.end(), [&](int number) { return pass < number; });
          expect(report_of(*learner.model).contributors == contributing, "contributors");
          expect((report_of(*learner.model).last != 0) == (contributing < static_cast<int>(batches.size())),
                 "some rank is out");
          learner.step(pass);
        }
        join(*learner.model);
        expect(learner.state() == wanted, "the state is that of one rank that saw all data");
        // All continue together.
        learner.model->replicas().check();
        group.barrier();
        learner.backward(rank, 50);
        expect(report_of(*learner.model).contributors == group.size() && report_of(*learner.model).last == 0,
               "everybody is back");
        const int others = group.size();
        expect(learner.grad(1)[7] == mean(others, 50, 1, 7) || others == 1, "the mean of all");
        learner.step(50);
        join(*learner.model);  // and a second time
        learner.model->replicas().check();
      }
    });
  }
}

ddp_ranks_case_on(kEveryHostPath, run_if_enough_on, calls_of_the_others_are_served_or_refused_by_name, 3) {
  Learner learner(group, uneven_options());
  if (rank == 1) {
    join(*learner.model);
    group.barrier();
    return learner.model->replicas().check();
  }
  learner.buffer[0] = static_cast<float>(10 + rank);
  sync_buffers(*learner.model, 2);  // before this rank knows that rank 1 has joined
  expect(learner.buffer[0] == 12, "buffers of rank 2");
  learner.backward(rank, 0);
  learner.step(0);
  const auto refused = [&](const std::function<void()>& call) {
    expect_error(DDP_ERROR_INVALID_STATE, call, {"rank 1 (host"});
  };
  refused([&] { group.barrier(); });
  refused([&] { learner.model->replicas().check(); });
  refused([&] { average_parameters(*learner.model); });
  refused([&] {
    (void)checkpoint::save_file("save", {*learner.model, learner.adam.get(), nullptr}, {}, "/nowhere", std::nullopt);
  });
  refused([&] { PassWorld other(group, Memory::kOwned); });
  learner.buffer[0] = static_cast<float>(20 + rank);
  sync_buffers(*learner.model, 0);
  expect(learner.buffer[0] == 20, "buffers of rank 0");
  expect_error(DDP_ERROR_INVALID_STATE, [&] { sync_buffers(*learner.model, 1); }, {"rank 1, which is out of data"});
  // A void pass is the others' affair.
  learner.model->begin_backward(DDP_PASS_REDUCE);
  if (rank == 2) learner.model->pass().mark_ready(0);
  if (rank == 0) mark_all(*learner.model);
  const std::string text =
      expect_error(DDP_ERROR_INVALID_STATE, [&] { learner.model->end_backward(); }, {"rank 2 did not mark"});
  expect(text.find("rank 1") == std::string::npos, text);
  (void)expect_error(DDP_ERROR_INVALID_STATE, [&] { skip_backward(*learner.model); });  // no rank contributes
  // Accumulation is local.
  learner.model->begin_backward(DDP_PASS_ACCUMULATE);
  mark_all(*learner.model);
  learner.model->end_backward();
  learner.backward(rank, 1);
  expect(report_of(*learner.model).contributors == 2, "two are left");
  join(*learner.model);
  group.barrier();
  learner.model->replicas().check();
}

ddp_ranks_case_on(kEveryHostPath, run_if_enough_on, a_check_is_refused_also_when_nobody_knew_of_the_joined_rank, 2) {
  Learner learner(group, uneven_options());
  if (rank == 0) {
    join(*learner.model);
    return learner.model->replicas().check();
  }
  expect_error(DDP_ERROR_INVALID_STATE, [&] { learner.model->replicas().check(); }, {"rank 0 (host"});
  (void)expect_error(DDP_ERROR_INVALID_STATE,
                     [&] { (void)checkpoint::save_file("save", {*learner.model}, {}, "/nowhere", std::nullopt); });
  join(*learner.model);
  learner.model->replicas().check();
}

ddp_case_on(kEveryHostPath, a_collective_that_a_joined_rank_cannot_know_of_breaks_the_group_by_name) {
  run_if_enough_on(path, 2, [&](group::Group& group, int rank) {
    Learner learner(group, uneven_options());
    if (rank == 0)
      (void)expect_error(DDP_ERROR_DIFFERENT_CALLS, [&] { join(*learner.model); });
    else
      expect_error(DDP_ERROR_DIFFERENT_CALLS, [&] { group.barrier(); }, {"ddp_model_join"});
  });
  run_if_enough_on(path, 2, [&](group::Group& group, int rank) {  // the same for what only exchanges words
    Learner learner(group, uneven_options());
    if (rank == 1)
      (void)expect_error(DDP_ERROR_DIFFERENT_CALLS, [&] { join(*learner.model); });
    else
      expect_error(DDP_ERROR_DIFFERENT_CALLS, [&] { PassWorld other(group, Memory::kOwned); }, {"ddp_model_join"});
  });
}

ddp_ranks_case_on(kEveryHostPath, run_if_enough_on, a_sharded_optimizer_weighs_and_skips_alike_and_refuses_joins, 2, 3, 4) {
  (void)expect_error(DDP_ERROR_NOT_SUPPORTED, [&] { Learner(group, uneven_options(), true); });
  std::vector<std::unique_ptr<Learner>> learners;  // an ordinary one first
  for (const int way : {0, 1, 2, 3})
    learners.push_back(std::make_unique<Learner>(group, weighted_options(), way % 2 == 1, way / 2 == 1));
  for (int pass = 0; pass < 5; ++pass) {
    for (const auto& learner : learners) {
      learner->adam->set_rate(0.01 / (pass + 1));
      set_weight(*learner->model, weights_of(group.size(), pass)[static_cast<size_t>(rank)]);
      if ((pass == 0 && rank == 0) || (pass == 4 && rank == group.size() - 1))
        skip_backward(*learner->model);
      else
        learner->backward(rank, pass);
      learner->adam->step();
      expect(learner->values == learners[0]->values, "the parameters after pass " + std::to_string(pass));
    }
  }
  group.barrier();
}

ddp_ranks_case_on(kEveryHostPath, run_if_enough_on, joining_needs_the_option, 2) {
  Learner learner(group, weighted_options());
  expect_error(DDP_ERROR_INVALID_STATE, [&] { join(*learner.model); }, {"uneven_inputs"});
  learner.backward(rank, 0);
  group.barrier();
}

ddp_ranks_case_on(kEveryHostPath, run_if_enough_on, replicas_are_not_compared_while_a_rank_only_answers, 3) {
  ddp_model_options options = uneven_options();
  options.check_every = 2;
  Learner learner(group, options);
  for (int pass = 0; pass < 3 + 2 * rank; ++pass) {
    learner.backward(rank, pass);
    learner.step(pass);
  }
  join(*learner.model);
  for (int pass = 0; pass < 4; ++pass) {  // and together again
    if (pass == 2 && rank == 1) {
      learner.adam->set_rate(0.01 / (pass + 1));
      skip_backward(*learner.model);
    } else {
      learner.backward(rank, pass);
    }
    learner.step(pass);
  }
  learner.model->replicas().check();
}

ddp_ranks_case_on(kEveryHostPath, run_if_enough_on, a_rank_that_leaves_ends_the_wait_of_those_that_joined, 3) {
  Learner learner(group, uneven_options());
  learner.backward(rank, 0);
  if (rank == 2) return;  // leaves
  expect_error(DDP_ERROR_ABORTED, [&] { join(*learner.model); }, {"rank 2"});
}

ddp_case(a_killed_rank_is_named_to_those_that_joined) {
  for (const ddp_backend backend : {DDP_BACKEND_SHM, DDP_BACKEND_GLOO}) {
    if (backend == DDP_BACKEND_GLOO && !has_gloo()) continue;
    ddp_group_options options = world_options();
    options.backend = backend;
    hit_rank_1(3, options, [](group::Group& group, int rank, Reporter& report) {
      Learner learner(group, uneven_options());
      learner.backward(rank, 0);
      report.say("training");
      while (rank == 1) pause();
      return expect_error(DDP_ERROR_PEER_FAILED, [&] { join(*learner.model); });
    });
  }
}
