// SPDX-License-Identifier: Apache-2.0
// Rates, groups and step counts, and their way into a checkpoint and back by name.
#include "optim/param_groups.hpp"

#include "support/check.hpp"

struct Lent {
  float memory[4][2] = {};
  Parameters table;
  explicit Lent(const std::vector<std::string>& names) {
    size_t next = 0;
    for (const std::string& name : names) table.add_parameter(name, flat_tensor(memory[next++], DDP_F32, 2), nullptr);
  }
};

ddp_case(a_parameter_without_a_group_has_the_optimizers_values) {
  optim::ParamGroups schedule(0.1, 0.01);
  expect(schedule.rate_of(5) == 0.1 && schedule.weight_decay_of(5) == 0.01, "rate and decay");
  expect(!schedule.is_frozen(5), "not frozen");
  expect_equal(schedule.steps_of(5), int64_t{0}, "steps");
}

ddp_case(a_group_replaces_the_decay_and_scales_the_rate) {
  const Lent lent({"a", "b"});
  optim::ParamGroups schedule(0.1, 0.01);
  schedule.set_parameter_options(lent.table, 1, 0.5, 3);
  schedule.set_rate(0.2);
  expect_equal(schedule.rate_of(1), 0.2 * 3, "rate");
  expect_equal(schedule.weight_decay_of(1), 0.5, "decay");
  expect(schedule.rate_of(0) == 0.2 && schedule.weight_decay_of(0) == 0.01, "the other parameter");
  schedule.set_parameter_options(lent.table, 1, 0, 0);
  expect(schedule.is_frozen(1) && !schedule.is_frozen(0), "frozen by a factor of 0");
}

ddp_case(wrong_values_are_named_and_change_nothing) {
  const Lent lent({"a"});
  optim::ParamGroups schedule(0.1, 0.01);
  for (const double wrong : {-1.0, std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity()}) {
    expect_error(DDP_ERROR_INVALID_ARGUMENT, [&] { schedule.set_rate(wrong); }, {"ddp_optimizer_set_rate: rate is"});
    expect_contains(
        expect_error(DDP_ERROR_INVALID_ARGUMENT, [&] { schedule.set_parameter_options(lent.table, 0, wrong, 1); }),
        "weight_decay");
    expect_contains(
        expect_error(DDP_ERROR_INVALID_ARGUMENT, [&] { schedule.set_parameter_options(lent.table, 0, 1, wrong); }),
        "rate_scale");
  }
  expect_error(DDP_ERROR_INVALID_ARGUMENT, [&] { schedule.set_parameter_options(lent.table, 1, 0, 1); }, {"index is 1"});
  expect_error(DDP_ERROR_INVALID_ARGUMENT, [&] { schedule.set_parameter_options(lent.table, -1, 0, 1); });
  expect(schedule.rate() == 0.1 && schedule.weight_decay_of(0) == 0.01 && schedule.rate_of(0) == 0.1, "nothing changed");
}

ddp_case(fields_find_their_parameters_by_name) {
  const Lent saved({"a", "b", "group.a"});
  optim::ParamGroups schedule(0.1, 0.01);
  schedule.reserve(saved.table);
  schedule.set_parameter_options(saved.table, 0, 0.25, 0.3);
  schedule.set_parameter_options(saved.table, 2, 0.75, 1e-7);
  for (int step = 0; step < 5; ++step) {
    schedule.count_step();
    schedule.count_step_of(0);
    if (step > 1) schedule.count_step_of(1);
  }
  const Lent loaded({"group.a", "b", "a"});  // another order
  const optim::ParamGroups back = optim::ParamGroups::from_fields(schedule.fields(saved.table), loaded.table);
  expect(back.rate() == 0.1 && back.weight_decay() == 0.01 && back.step_count() == 5, "common values");
  expect(back.steps_of(2) == 5 && back.steps_of(1) == 3 && back.steps_of(0) == 0, "step counts");
  expect(back.weight_decay_of(2) == 0.25 && back.rate_of(2) == 0.1 * 0.3, "group of a");
  expect(back.weight_decay_of(0) == 0.75 && back.rate_of(0) == 0.1 * 1e-7, "group of the oddly named one");
  expect_equal(back.weight_decay_of(1), 0.01, "no group");
  expect(back.fields(loaded.table) == schedule.fields(saved.table), "the same fields again");
}

ddp_case(fields_that_do_not_fit_are_refused) {
  const Lent lent({"a", "b"});
  optim::ParamGroups schedule(0.1, 0.01);
  schedule.set_parameter_options(lent.table, 0, 0.25, 0.3);
  const optim::Fields good = schedule.fields(lent.table);
  for (const auto& [key, text] : good) {
    optim::Fields fields = good;
    fields.erase(key);
    expect_error(DDP_ERROR_MISMATCH, [&] { (void)optim::ParamGroups::from_fields(fields, lent.table); });
    fields[key] = "-1";
    expect_error(DDP_ERROR_IO, [&] { (void)optim::ParamGroups::from_fields(fields, lent.table); });
  }
  const Lent other({"a", "c"});
  expect_error(DDP_ERROR_MISMATCH, [&] { (void)optim::ParamGroups::from_fields(good, other.table); }, {"steps.c"});
}
