// SPDX-License-Identifier: Apache-2.0
// Averages of a model's parameters: against a naive F64 average, and the way of the parameters out and back.
#include "optim/ema.hpp"

#include "device/cpu/update_kernels.hpp"
#include "support/check.hpp"
#include "unit/optim/small_model.hpp"

void change_values(SmallModel& small, uint64_t seed) {
  for (auto& each : small.lent) fill_random(each.value, each.count, 1.0, seed + each.count);
}

ddp_case(averages_follow_the_parameters) {
  SmallModel small;
  const std::vector<double> decays{0.9, 0.0, 0.999};
  optim::Ema ema(small.model, decays);
  std::vector<std::vector<double>> naive;  // decay by decay, parameter by parameter
  for (size_t k = 0; k < decays.size(); ++k)
    for (const auto& each : small.lent) naive.emplace_back(each.count);
  for (uint64_t step = 0; step < 20; ++step) {
    change_values(small, step);
    ema.update();
    for (size_t k = 0; k < decays.size(); ++k)
      for (size_t p = 0; p < 4; ++p)
        for (size_t i = 0; i < small.lent[p].count; ++i) {
          const double value = small.lent[p].value[i];
          double& average = naive[k * 4 + p][i];
          average = step == 0 ? value : decays[k] * average + (1 - decays[k]) * value;
        }
  }
  const auto tensors = ema.state_tensors();
  expect_equal(tensors.size(), naive.size(), "tensors");
  for (size_t t = 0; t < tensors.size(); ++t) {
    const ddp_dtype dtype = tensors[t].tensor.dtype;
    for (size_t i = 0; i < naive[t].size(); ++i)  // three roundings of numbers below 1 in each of 20 updates
      expect(std::abs(get_element(dtype, tensors[t].tensor.data, i) - naive[t][i]) <= 60 * unit_of(dtype), tensors[t].name);
  }
}

ddp_case(state_tensors_are_named_by_decay_and_parameter) {
  SmallModel small;
  optim::Ema ema(small.model, {0.999, 0.1});
  const auto tensors = ema.state_tensors();
  expect_equal(tensors[0].name, std::string("0.999.p.F32"), "name");
  expect_equal(tensors[6].name, std::string("0.1.p.F16"), "name");
  expect(tensors[1].tensor.dtype == DDP_F64 && tensors[6].tensor.dtype == DDP_F32, "types");
  expect_equal(tensors[6].tensor.count, int64_t{14}, "elements");
}

ddp_case(the_first_update_copies_exactly) {
  SmallModel small;
  optim::Ema ema(small.model, {0.9});
  ema.update();
  for (size_t p = 0; p < 4; ++p)
    for (size_t i = 0; i < small.lent[p].count; ++i) {
      const Tensor average = ema.state_tensors()[p].tensor;
      expect_equal(get_element(average.dtype, average.data, i), small.lent[p].value[i], "average of " + small.lent[p].name);
    }
}

std::vector<std::vector<std::byte>> contents(const std::vector<model::StateTensor>& tensors) {
  std::vector<std::vector<std::byte>> all;
  for (const model::StateTensor& each : tensors) all.emplace_back(each.tensor.data, each.tensor.data + each.tensor.bytes());
  return all;
}

ddp_case(swapping_there_and_back_is_exact) {
  SmallModel small;
  optim::Ema ema(small.model, {0.9, 0.7});
  for (uint64_t step = 0; step < 5; ++step) {
    change_values(small, step);
    ema.update();
  }
  const auto values = small.values();
  const auto averages = contents(ema.state_tensors());
  for (const int32_t which : {1, 0, 1}) {
    ema.swap(which);
    for (size_t p = 0; p < 4; ++p) {
      const auto& each = small.lent[p];
      Array wanted(each.value.dtype, each.count);
      const auto& average = averages[static_cast<size_t>(which) * 4 + p];
      for (size_t i = 0; i < each.count; ++i)
        wanted.set(i, get_element(cpu::moment_dtype(each.value.dtype), average.data(), i));
      expect(each.value.bytes == wanted.bytes, each.name + " holds the rounded average");
    }
    ema.swap(which);
    expect(small.values() == values, "the parameters are back");
    expect(contents(ema.state_tensors()) == averages, "the averages are back");
  }
}

ddp_case(what_can_not_be_swapped_is_refused) {
  SmallModel small;
  optim::Ema ema(small.model, {0.9, 0.7});
  expect_error(DDP_ERROR_INVALID_STATE, [&] { ema.swap(0); }, {"no average yet"});
  ema.update();
  for (const int32_t which : {-1, 2}) expect_error(DDP_ERROR_INVALID_ARGUMENT, [&] { ema.swap(which); });
  ema.swap(1);
  const auto swapped = small.values();
  expect_error(DDP_ERROR_INVALID_STATE, [&] { ema.swap(0); }, {"hold average 1"});
  expect_error(DDP_ERROR_INVALID_STATE, [&] { ema.update(); }, {"swap it back"});
  expect_error(DDP_ERROR_INVALID_STATE, [&] { (void)ema.state_tensors(); });
  expect(small.values() == swapped, "nothing moved");
  ema.swap(1);
  ema.update();
}

ddp_case(calls_at_the_wrong_moment_are_refused) {
  SmallModel small({0, 1, 2, 3}, false);
  optim::Ema ema(small.model, {0.9});
  expect_error(DDP_ERROR_INVALID_STATE, [&] { ema.update(); }, {"ddp_ema_update"});
  small.model->commit();
  ema.update();
  small.model->close();
  expect_error(DDP_ERROR_INVALID_STATE, [&] { ema.update(); });
  expect_error(DDP_ERROR_INVALID_STATE, [&] { ema.swap(0); });
}

ddp_case(wrong_decays_are_named) {
  SmallModel small;
  const auto refused = [&](const std::vector<double>& decays, const char* part) {
    expect_error(DDP_ERROR_INVALID_ARGUMENT, [&] { optim::Ema(small.model, decays); }, {part});
  };
  refused({}, "count is 0");
  refused(std::vector<double>(17, 0.5), "count is 17");
  refused({0.5, 1.0}, "decays[1] is 1");
  refused({-0.1}, "decays[0] is -0.1");
  refused({std::nan("")}, "decays[0]");
  refused({0.5, 0.9, 0.5}, "decays[0] and decays[2] are both 0.5");
}

ddp_case(loaded_averages_go_on_instead_of_starting_again) {
  SmallModel one;
  SmallModel two;
  optim::Ema first(one.model, {0.9});
  optim::Ema second(two.model, {0.9});
  for (uint64_t step = 0; step < 3; ++step) {
    change_values(one, step);
    first.update();
  }
  const auto from = first.state_tensors();
  const auto to = second.state_tensors();
  for (size_t t = 0; t < from.size(); ++t)
    std::memcpy(to[t].tensor.data, from[t].tensor.data, static_cast<size_t>(to[t].tensor.bytes()));
  expect_error(DDP_ERROR_MISMATCH, [&] { second.load_fields({}); });
  expect_error(DDP_ERROR_IO, [&] { second.load_fields({{"updates", "-3"}}); });
  second.load_fields(first.state_fields());
  change_values(one, 9);
  change_values(two, 9);
  first.update();
  second.update();
  expect(contents(first.state_tensors()) == contents(second.state_tensors()), "the averages are the same");
}
