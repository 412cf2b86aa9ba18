// SPDX-License-Identifier: Apache-2.0
// Loading a checkpoint in every place and way: before and after commit, by all ranks and by rank 0 alone, into a model with
// the same tensors, fewer, more or others; and that everything comes back.

#include "checkpoint/state.hpp"
#include "model/replicas.hpp"
#include "optim/adam.hpp"
#include "optim/ema.hpp"
#include "optim/sgd.hpp"
#include "support/check.hpp"
#include "support/group_paths.hpp"
#include "support/rule_options.hpp"

ddp_model_options small_buckets() { return {.first_bucket_bytes = 64, .bucket_bytes = 256}; }

/// A model with parameters of these names, a buffer, an optimizer and averages.
struct Program {
  std::vector<std::string> names;
  std::vector<std::vector<float>> values;
  int64_t seen = 0;
  std::shared_ptr<model::Model> model;
  std::shared_ptr<optim::Optimizer> optimizer;
  std::shared_ptr<optim::Ema> ema;

  Program(group::Group& group, const std::vector<std::string>& wanted, int rank, bool sgd = false) : names(wanted) {
    model = std::make_shared<model::Model>(std::shared_ptr<group::Group>(&group, [](group::Group*) {}), small_buckets());
    for (size_t p = 0; p < names.size(); ++p) {
      values.emplace_back(5 + names[p].size(), static_cast<float>(100 * rank) + static_cast<float>(p));
      model->add_parameter(names[p], flat_tensor(values[p].data(), DDP_F32, static_cast<int64_t>(values[p].size())),
                           nullptr);
    }
    model->add_buffer("seen", flat_tensor(&seen, DDP_I64, 1));
    SgdOptions momentum;
    momentum.momentum = 0.5;
    if (sgd)
      optimizer = std::make_shared<optim::Sgd>(model, momentum, momentum);
    else
      optimizer = std::make_shared<optim::Adam>(model, optim::default_adam_options(), optim::default_optimizer_options());
    ema = std::make_shared<optim::Ema>(model, std::vector<double>{0.5, 0.75});
    model->replicas().keep_equal(optimizer);
    model->replicas().keep_equal(ema);
  }
  void train(int steps) {
    for (int step = 0; step < steps; ++step) {
      model->begin_backward(DDP_PASS_REDUCE);
      for (int32_t p = 0; p < model->table().parameter_count(); ++p) {
        auto* grad = reinterpret_cast<float*>(model->table().parameter(p).grad.data);
        for (int64_t i = 0; i < model->table().parameter(p).grad.count; ++i)
          grad[i] = static_cast<float>(step - 1) + static_cast<float>(i) / 8;
        model->pass().mark_ready(p);
      }
      model->end_backward();
      optimizer->step();
      ema->update();
      ++seen;
    }
  }
  checkpoint::Parts parts() const { return {*model, optimizer.get(), ema.get()}; }
  checkpoint::Counters load(const std::string& path, checkpoint::LoadMode mode = {}) const {
    return checkpoint::load_file("load", parts(), path, std::nullopt, mode);
  }

  std::string bytes_of(const Tensor& tensor) const {
    return {reinterpret_cast<const char*>(tensor.data), static_cast<size_t>(tensor.bytes())};
  }
  std::map<std::string, std::string> tensors() const {
    std::map<std::string, std::string> all;
    for (const Parameter& parameter : model->table().parameters()) all[parameter.name] = bytes_of(parameter.value);
    for (const model::StateTensor& each : optimizer->state_tensors()) all["optimizer/" + each.name] = bytes_of(each.tensor);
    for (const model::StateTensor& each : ema->state_tensors()) all["ema/" + each.name] = bytes_of(each.tensor);
    all["seen"] = std::to_string(seen);
    return all;
  }
  std::map<std::string, std::string> fields() const {
    std::map<std::string, std::string> all = optimizer->state_fields();
    for (const auto& [key, value] : ema->state_fields()) all["ema " + key] = value;
    return all;
  }
};

const std::vector<std::string> kNames = {"first", "second layer", "third"};

/// What the file holds.
struct Saved {
  std::map<std::string, std::string> tensors, fields;
};

/// Trained and saved by one rank, with no option at its default.
Saved save(const std::string& path, const std::vector<std::string>& names, bool sgd = false) {
  Saved saved;
  run_groups(1, [&](group::Group& group, int) {
    Program program(group, names, 0, sgd);
    program.model->commit();
    program.optimizer->set_parameter_options(1, 0.25, 0.5);
    program.train(3);
    program.optimizer->set_parameter_options(0, 0, 0);  // frozen: its count falls behind
    program.optimizer->set_rate(0.0625);
    program.train(2);
    program.model->checkpoint_info().metadata["note"] = "kept";
    checkpoint::save_file("save", program.parts(), {3, 5}, path, std::nullopt);
    saved = {program.tensors(), program.fields()};
  });
  return saved;
}

void expect_saved(const Program& program, const Saved& saved) {
  expect(program.tensors() == saved.tensors, "all tensors come back");
  const std::map<std::string, std::string> got = program.fields();
  for (const auto& [key, value] : saved.fields) {
    const auto found = got.find(key);
    expect(found != got.end() && found->second == value, key + " comes back");
  }
  expect(got.size() == saved.fields.size(), "no further field");
}

enum class When { kBeforeCommit, kAfterCommit };

ddp_case_on(kThreePaths, all_ranks_get_everything_back) {
  const Folder folder;
  for (const bool sgd : {false, true}) {
    const std::string file = folder.path() + "/state";
    const Saved saved = save(file, kNames, sgd);
    for (const int size : {1, 2, 3, 4})
      for (const When when : {When::kBeforeCommit, When::kAfterCommit})
        run_on(path, size, [&](group::Group& group, int rank) {
          Program program(group, kNames, rank, sgd);
          if (when == When::kAfterCommit) program.model->commit();
          const checkpoint::Counters counters = program.load(rank == 0 ? file : "/nowhere");  // only rank 0 needs the file
          if (when == When::kBeforeCommit) program.model->commit();
          expect_saved(program, saved);
          expect(counters.epoch == 3 && counters.step == 5 && program.model->checkpoint_info().metadata.at("note") == "kept",
                 "counters and texts");
          expect(program.model->checkpoint_info().last_load.missing.empty() &&
                     program.model->checkpoint_info().last_load.unexpected.empty(),
                 "nothing to report");
          program.train(1);
          program.model->replicas().check();
        });
  }
}

ddp_case_on(kThreePaths, rank_0_alone_loads_before_commit) {
  const Folder folder;
  const std::string file = folder.path() + "/state";
  const Saved saved = save(file, kNames);
  for (const int size : {1, 2, 3, 4})
    for (const bool everybody : {false, true})
      run_on(path, size, [&](group::Group& group, int rank) {
        Program program(group, kNames, rank);
        if (rank == 0 || everybody) {
          const checkpoint::Counters counters = program.load(file, {false, true});
          expect(counters.epoch == 3 && counters.step == 5, "counters");
        }
        program.model->commit();
        expect_saved(program, saved);
      });
}

ddp_case_on(kThreePaths, a_local_load_after_commit_is_refused) {
  const Folder folder;
  const std::string file = folder.path() + "/state";
  (void)save(file, kNames);
  run_on(path, 2, [&](group::Group& group, int rank) {
    Program program(group, kNames, rank);
    program.model->commit();
    const auto before = program.tensors();
    expect_error(DDP_ERROR_INVALID_STATE, [&] { (void)program.load(file, {false, true}); }, {"before ddp_model_commit"});
    expect(program.tensors() == before, "untouched");
  });
}

ddp_ranks_case_on(kThreePaths, run_on, a_local_load_that_fails_touches_nothing_and_the_group_goes_on, 2) {
  Program program(group, kNames, rank);
  if (rank == 0) expect_error(DDP_ERROR_IO, [&] { (void)program.load("/nowhere", {false, true}); }, {"/nowhere"});
  program.model->commit();
  expect(program.values[1][0] == 1, "rank 0's own values");
}

ddp_case_on(kThreePaths, a_load_that_only_rank_0_calls_is_a_mismatch_on_all) {
  const Folder folder;
  const std::string file = folder.path() + "/state";
  (void)save(file, kNames);
  run_at(path, 3, [&](const std::string& place, const ddp_group_options& options, int rank) {
    const auto group = group::Group::create(place.c_str(), options);
    Program program(*group, kNames, rank);
    expect_error(DDP_ERROR_DIFFERENT_CALLS,
                 [&] {
                   group->barrier();  // the mismatch breaks the group, also for ranks that have not left it yet
                   if (rank == 0) (void)program.load(file);
                   program.model->commit();
                 },
                 {"rank 0"});
  });
}

/// The file's names against the model's: some of both, in another order.
ddp_case_on(kThreePaths, a_partial_load_takes_what_both_have_and_names_the_rest) {
  const Folder folder;
  const std::string file = folder.path() + "/state";
  const Saved saved = save(file, kNames);
  const std::vector<std::string> mine = {"new", "third", "first"};
  for (const int size : {1, 3})
    for (const When when : {When::kBeforeCommit, When::kAfterCommit})
      run_on(path, size, [&](group::Group& group, int rank) {
        Program program(group, mine, rank);
        if (when == When::kAfterCommit) program.model->commit();
        expect_error(DDP_ERROR_MISMATCH, [&] { (void)program.load(file); }, {"\"new\""});
        const checkpoint::Counters counters = program.load(file, {true, false});
        if (when == When::kBeforeCommit) program.model->commit();
        expect(counters.step == 5, "step");
        for (const auto& [name, bytes] : program.tensors()) {
          const auto there = saved.tensors.find(name);
          if (there != saved.tensors.end()) expect(bytes == there->second, name + " comes from the file");
        }
        expect(program.values[0] == std::vector<float>(8, 0.0F), "the new parameter keeps what rank 0 had");
        for (const model::StateTensor& each : program.ema->state_tensors())
          if (each.name == "0.5.new")
            expect(program.bytes_of(each.tensor) == std::string(32, '\0'), "its average begins there");
        const std::map<std::string, std::string> fields = program.fields();
        expect(fields.at("steps.new") == "0" && fields.at("steps.third") == "5" && fields.at("steps.first") == "3",
               "step counts");
        expect(fields.at("rate") == "0.0625" && fields.at("step_count") == "5" && fields.at("group.first") == "0 0",
               "the optimizer's fields");
        expect(fields.at("groups") == "1" && fields.count("steps.second layer") == 0 && fields.at("ema updates") == "5",
               "groups");
        const model::LoadReport& report = program.model->checkpoint_info().last_load;
        const std::vector<std::string> missing = {"new", "ddp:optimizer/new.exp_avg", "ddp:optimizer/new.exp_avg_sq",
                                                  "ddp:ema/0.5.new", "ddp:ema/0.75.new"};
        expect(report.missing == missing, "missing");
        expect(report.unexpected.size() == 5 && report.unexpected[0] == "second layer", "unexpected");
        program.train(2);
        program.model->replicas().check();
        expect(program.fields().at("steps.new") == "2" && program.fields().at("steps.third") == "7", "training goes on");
      });
}

ddp_case(a_partial_load_into_an_average_begins_at_the_parameter) {
  const Folder folder;
  const std::string file = folder.path() + "/state";
  (void)save(file, kNames);
  run_groups(2, [&](group::Group& group, int rank) {
    Program program(group, {"third", "new"}, rank);
    program.values[1].assign(8, 2.5F);
    program.model->commit();
    (void)program.load(file, {true, false});
    const auto all = program.tensors();
    expect(all.at("ema/0.75.new") == all.at("new"), "the average of a parameter that is new");
    expect(all.at("optimizer/new.exp_avg") == std::string(32, '\0'), "no moment yet");
    group.barrier();
  });
}

ddp_case_on(kThreePaths, weights_alone_load_partially_into_a_model_with_an_optimizer) {
  const Folder folder;
  const std::string file = folder.path() + "/weights";
  run_groups(1, [&](group::Group& group, int) {
    Program program(group, kNames, 7);
    checkpoint::save_file("save", {*program.model}, {1, 2}, file, std::nullopt);
  });
  run_on(path, 2, [&](group::Group& group, int rank) {
    Program program(group, kNames, rank);
    program.model->commit();
    program.train(2);
    const auto before = program.fields();
    (void)expect_error(DDP_ERROR_MISMATCH, [&] { (void)program.load(file); });
    (void)program.load(file, {true, false});
    expect(program.values[0][0] == 700 && program.fields() == before, "the weights are new, the optimizer is as it was");
    expect(program.model->checkpoint_info().last_load.missing.size() == 3 * 4, "all of optimizer and averages are missing");
  });
}

ddp_case_on(kThreePaths, thousands_of_tiny_tensors_load) {
  const Folder folder;
  const std::string file = folder.path() + "/many";
  std::vector<std::string> names;
  for (int i = 0; i < 2000; ++i) names.push_back("p" + std::to_string(i));
  const Saved saved = save(file, names);
  run_on(path, 3, [&](group::Group& group, int rank) {
    Program program(group, names, rank);
    program.model->commit();
    (void)program.load(file);
    expect_saved(program, saved);
  });
}
