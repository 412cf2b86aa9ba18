// SPDX-License-Identifier: Apache-2.0
// Optimizers on a model: against naive elements in F64 that know their own step counts; who takes part in a step; saving and
// loading.
#include "optim/optimizer.hpp"

#include "optim/adam.hpp"
#include "optim/custom.hpp"
#include "optim/sgd.hpp"
#include "support/check.hpp"
#include "unit/optim/small_model.hpp"

ddp_sgd_options momentum_options() {
  ddp_sgd_options options = optim::default_sgd_options();
  options.rate = 0.05;
  options.momentum = 0.9;
  options.dampening = 0.2;
  options.weight_decay = 0.03;
  return options;
}

ddp_adam_options adam_options(int32_t decoupled) {
  ddp_adam_options options = optim::default_adam_options();
  options.rate = 0.02;
  options.epsilon = 1e-3;
  options.weight_decay = 0.05;
  options.decoupled = decoupled;
  return options;
}

/// Makes an optimizer, and gives the effect of one step on a naive element.
struct Kind {
  std::string name;
  std::function<std::unique_ptr<optim::Optimizer>(const SmallModel&)> make;
  std::function<void(NaiveElement&, double rate, double decay, double grad)> naive;
  double rate, decay;
};

std::vector<Kind> all_kinds() {
  std::vector<Kind> kinds;
  for (const double momentum : {0.0, 0.9}) {
    ddp_sgd_options options = momentum_options();
    options.momentum = momentum;
    kinds.push_back(
        {"sgd " + std::to_string(momentum),
         [options](const SmallModel& small) {
           return std::make_unique<optim::Sgd>(small.model, options, optim::default_optimizer_options());
         },
         [options](NaiveElement& e, double rate, double decay, double grad) { e.sgd(options, rate, decay, grad); },
         options.rate, options.weight_decay});
  }
  for (const int32_t decoupled : {0, 1}) {
    const ddp_adam_options options = adam_options(decoupled);
    kinds.push_back(
        {decoupled != 0 ? "adamw" : "adam",
         [options](const SmallModel& small) {
           return std::make_unique<optim::Adam>(small.model, options, optim::default_optimizer_options());
         },
         [options](NaiveElement& e, double rate, double decay, double grad) { e.adam(options, rate, decay, grad); },
         options.rate, options.weight_decay});
  }
  return kinds;
}

using NaiveModel = std::vector<std::vector<NaiveElement>>;

NaiveModel naive_of(const SmallModel& small) {
  NaiveModel naive;
  for (const auto& each : small.lent) {
    naive.emplace_back(each.count);
    for (size_t i = 0; i < each.count; ++i) naive.back()[i].value = each.value[i];
  }
  return naive;
}

/// Each of `steps` steps may add a few roundings of numbers below 4: of the value to its type, of the rest to the compute
/// type.
void expect_close(const SmallModel& small, const NaiveModel& naive, int steps, const std::string& what) {
  for (size_t p = 0; p < small.lent.size(); ++p) {
    const auto& each = small.lent[p];
    const double allowed = steps * 4 * (unit_of(each.value.dtype) + 64 * unit_of(cpu::moment_dtype(each.value.dtype)));
    for (size_t i = 0; i < each.count; ++i)
      expect(std::abs(each.value[i] - naive[p][i].value) <= allowed,
             what + ": element " + std::to_string(i) + " of " + each.name);
  }
}

ddp_case(every_kind_agrees_with_naive_elements) {
  for (const Kind& kind : all_kinds()) {
    SmallModel small;
    const auto optimizer = kind.make(small);
    NaiveModel naive = naive_of(small);
    optimizer->set_parameter_options(1, 0, 2);  // no decay, twice the rate
    for (int step = 0; step < 12; ++step) {
      if (step == 6) optimizer->set_rate(kind.rate / 2);
      const double rate = step < 6 ? kind.rate : kind.rate / 2;
      small.fill_grads(static_cast<uint64_t>(step));
      small.pass({0, 1, 2, 3});
      optimizer->step();
      for (size_t p = 0; p < naive.size(); ++p)
        for (size_t i = 0; i < naive[p].size(); ++i)
          kind.naive(naive[p][i], p == 1 ? 2 * rate : rate, p == 1 ? 0 : kind.decay, small.lent[p].grad[i]);
    }
    expect_close(small, naive, 12, kind.name);
    expect_equal(optimizer->step_count(), int64_t{12}, "steps");
  }
}

ddp_case(an_unused_parameter_keeps_value_state_and_step_count) {
  for (const Kind& kind : all_kinds()) {
    SmallModel small;
    const auto optimizer = kind.make(small);
    NaiveModel naive = naive_of(small);
    for (int step = 0; step < 9; ++step) {
      small.fill_grads(static_cast<uint64_t>(step));
      const int32_t idle = step % 3;
      std::set<int32_t> used{0, 1, 2, 3};
      used.erase(idle);
      small.pass(used);
      const auto before = small.values();
      optimizer->step();
      expect(small.values()[static_cast<size_t>(idle)] == before[static_cast<size_t>(idle)],
             kind.name + ": the idle value is untouched");
      for (const int32_t p : used)
        for (size_t i = 0; i < naive[static_cast<size_t>(p)].size(); ++i)
          kind.naive(naive[static_cast<size_t>(p)][i], kind.rate, kind.decay, small.lent[static_cast<size_t>(p)].grad[i]);
    }
    expect_close(small, naive, 9, kind.name);  // fails if a count or a moment advanced without the parameter
    expect_equal(optimizer->state_fields()["steps.p.F32"], std::string("6"), "steps of the first parameter");
    expect_equal(optimizer->state_fields()["steps.p.BF16"], std::string("9"), "steps of the last parameter");
  }
}

ddp_case(before_any_pass_every_parameter_is_used) {
  SmallModel small;
  optim::Sgd optimizer(small.model, optim::default_sgd_options(), optim::default_optimizer_options());
  small.fill_grads(1);
  const auto before = small.values();
  optimizer.step();
  for (size_t p = 0; p < before.size(); ++p)
    expect(small.values()[p] != before[p], "parameter " + std::to_string(p) + " has moved");
}

ddp_case(a_frozen_parameter_stays_until_it_is_thawed) {
  for (const Kind& kind : all_kinds()) {
    SmallModel small;
    const auto optimizer = kind.make(small);
    NaiveModel naive = naive_of(small);
    optimizer->set_parameter_options(0, kind.decay, 0);
    for (int step = 0; step < 6; ++step) {
      small.fill_grads(static_cast<uint64_t>(step));
      if (step == 3) optimizer->set_parameter_options(0, kind.decay, 1);
      const auto before = small.values();
      optimizer->step();
      expect_equal(small.values()[0] == before[0], step < 3, kind.name + ": the parameter is frozen");
      for (size_t p = step < 3 ? 1 : 0; p < naive.size(); ++p)
        for (size_t i = 0; i < naive[p].size(); ++i) kind.naive(naive[p][i], kind.rate, kind.decay, small.lent[p].grad[i]);
    }
    expect_close(small, naive, 6, kind.name);
  }
}

ddp_case(state_tensors_are_named_as_in_pytorch) {
  SmallModel small;
  optim::Adam adam(small.model, optim::default_adam_options(), optim::default_optimizer_options());
  const auto tensors = adam.state_tensors();
  expect_equal(tensors.size(), size_t{8}, "tensors");
  expect_equal(tensors[0].name, std::string("p.F32.exp_avg"), "name");
  expect_equal(tensors[7].name, std::string("p.BF16.exp_avg_sq"), "name");
  for (size_t k = 0; k < 8; ++k) {
    expect_equal(tensors[k].tensor.dtype, k / 2 == 1 ? DDP_F64 : DDP_F32, "type of " + tensors[k].name);
    expect_equal(tensors[k].tensor.count, static_cast<int64_t>(12 + k / 2), "elements of " + tensors[k].name);
  }
  expect(adam.state_tensors()[5].tensor.data == tensors[5].tensor.data, "addresses stay");
  expect_equal(
      optim::Sgd(small.model, optim::default_sgd_options(), optim::default_optimizer_options()).state_tensors().size(),
      size_t{0}, "tensors of SGD without momentum");
  expect_equal(optim::Sgd(small.model, momentum_options(), optim::default_optimizer_options()).state_tensors()[0].name,
               std::string("p.F32.momentum_buffer"), "name");
}

/// Tensors and values of one run into another, by name; then the fields.
void transplant(const SmallModel& from, optim::Optimizer& source, SmallModel& to, optim::Optimizer& target) {
  for (auto& each : to.lent)
    for (const auto& old : from.lent)
      if (old.name == each.name) each.value.bytes = old.value.bytes;
  for (const model::StateTensor& into : target.state_tensors())
    for (const model::StateTensor& state : source.state_tensors())
      if (state.name == into.name)
        std::memcpy(into.tensor.data, state.tensor.data, static_cast<size_t>(into.tensor.bytes()));
  target.load_fields(source.state_fields());
}

ddp_case(a_loaded_optimizer_goes_on_with_the_same_bits) {
  for (const Kind& kind : all_kinds()) {
    SmallModel one;
    const auto first = kind.make(one);
    first->set_parameter_options(2, 0.125, 0.3);
    first->set_rate(0.0123456789);
    for (uint64_t step = 0; step < 4; ++step) {
      one.fill_grads(step);
      if (step >= 2) one.pass({0, 2, 3});
      first->step();
    }
    // The other program registers its parameters in another order, and commits after loading.
    SmallModel two({3, 1, 0, 2}, false);
    const auto second = kind.make(two);
    transplant(one, *first, two, *second);
    two.model->commit();
    expect(second->rate() == first->rate() && second->step_count() == 4, "rate and steps");
    for (uint64_t step = 4; step < 8; ++step) {
      for (SmallModel* const small : {&one, &two}) {
        small->fill_grads(step);
        small->pass({0, 1, 2, 3});
      }
      first->step();
      second->step();
    }
    for (const auto& a : one.lent)
      for (const auto& b : two.lent)
        if (a.name == b.name) expect(a.value.bytes == b.value.bytes, kind.name + ": " + a.name + " has the same bits");
    expect(second->state_fields() == first->state_fields(), kind.name + ": the same fields");
  }
}

ddp_case(fields_are_loaded_as_a_whole_or_not_at_all) {
  for (const Kind& kind : all_kinds()) {
    SmallModel small;
    const auto saved = kind.make(small);
    saved->set_parameter_options(0, 0.5, 0.5);
    saved->set_rate(0.25);
    saved->step();
    const auto good = saved->state_fields();
    const auto optimizer = kind.make(small);
    const auto before = optimizer->state_fields();
    for (const auto& [key, text] : good) {
      auto fields = good;
      fields.erase(key);
      expect_error(DDP_ERROR_MISMATCH, [&] { optimizer->load_fields(fields); });
      fields[key] = "nonsense";
      expect_error(DDP_ERROR_IO, [&] { optimizer->load_fields(fields); }, {key});
      expect(optimizer->state_fields() == before, kind.name + ": nothing was loaded without " + key);
    }
    optimizer->load_fields(good);
    expect(optimizer->state_fields() == good, kind.name + ": all was loaded");
  }
}

ddp_case(momentum_can_not_appear_by_loading) {
  SmallModel small;
  optim::Sgd with(small.model, momentum_options(), optim::default_optimizer_options());
  optim::Sgd without(small.model, optim::default_sgd_options(), optim::default_optimizer_options());
  const auto before = without.state_fields();
  expect_error(DDP_ERROR_MISMATCH, [&] { without.load_fields(with.state_fields()); }, {"momentum 0.9"});
  expect(without.state_fields() == before, "nothing was loaded");
  expect_error(DDP_ERROR_MISMATCH, [&] { with.load_fields(before); });
}

ddp_case(a_step_at_the_wrong_moment_is_refused) {
  SmallModel small({0, 1, 2, 3}, false);
  optim::Adam optimizer(small.model, optim::default_adam_options(), optim::default_optimizer_options());
  expect_error(DDP_ERROR_INVALID_STATE, [&] { optimizer.step(); }, {"ddp_optimizer_step"});
  small.model->commit();
  small.model->begin_backward(DDP_PASS_ACCUMULATE);
  expect_error(DDP_ERROR_INVALID_STATE, [&] { optimizer.step(); });
  small.model->end_backward();
  expect_error(DDP_ERROR_INVALID_STATE, [&] { optimizer.step(); }, {"DDP_PASS_ACCUMULATE"});
  small.pass({0, 1, 2, 3});
  optimizer.step();
  const auto before = small.values();
  small.group->health().abort(Error(DDP_ERROR_ABORTED, "enough of it"));
  expect_error(DDP_ERROR_ABORTED, [&] { optimizer.step(); }, {"enough of it"});
  small.model->close();
  expect_error(DDP_ERROR_INVALID_STATE, [&] { optimizer.step(); });
  expect(small.values() == before, "nothing was touched");
  expect_equal(optimizer.step_count(), int64_t{1}, "steps");
}

struct Calls {
  std::vector<int32_t> order;
  std::vector<double> rates;
  int32_t fails_at = -1;
  int released = 0;
  const SmallModel* small = nullptr;
  std::vector<double> decays;
  bool slices_fit = true;
};

int32_t count_call(void* user_data, const ddp_update_slice* slice) {
  auto& calls = *static_cast<Calls*>(user_data);
  const auto& lent = calls.small->lent[static_cast<size_t>(slice->index)];
  const bool direct = lent.value.dtype == DDP_F32 || lent.value.dtype == DDP_F64;
  calls.slices_fit = calls.slices_fit && (slice->value == lent.value.data()) == direct &&
                     (slice->grad == lent.grad.data()) == direct &&
                     slice->dtype == (lent.value.dtype == DDP_F64 ? DDP_F64 : DDP_F32) && slice->first == 0 &&
                     slice->count == static_cast<int64_t>(lent.count) && slice->stream == nullptr &&
                     slice->device == DDP_CPU && slice->struct_size == sizeof *slice && slice->step == 1;
  calls.order.push_back(slice->index);
  calls.rates.push_back(slice->rate);
  calls.decays.push_back(slice->weight_decay);
  return slice->index == calls.fails_at ? 42 : 0;
}

optim::CustomRule no_state() { return optim::CustomRule(optim::default_custom_options(), nullptr, "test"); }

void count_release(void* user_data) { ++static_cast<Calls*>(user_data)->released; }

ddp_case(a_custom_update_is_called_for_used_parameters_in_order) {
  SmallModel small;
  Calls calls;
  calls.small = &small;
  {
    optim::Custom custom(small.model, count_call, no_state(), optim::default_optimizer_options(),
                         optim::UserData(&calls, count_release));
    expect_equal(custom.rate(), 0.0, "rate at the start");
    custom.set_rate(0.5);
    custom.set_parameter_options(3, 0.1, 0.25);
    small.pass({0, 2, 3});
    custom.step();
    expect(calls.order == std::vector<int32_t>({0, 2, 3}) && calls.slices_fit, "calls");
    expect(calls.rates == std::vector<double>({0.5, 0.5, 0.125}), "rates");
    expect_equal(custom.step_count(), int64_t{1}, "steps");
    expect(calls.decays == std::vector<double>({0, 0, 0.1}), "decays");
    optim::Custom other(small.model, count_call, no_state(), optim::default_optimizer_options(),
                        optim::UserData(nullptr, nullptr));
    other.load_fields(custom.state_fields());
    expect(other.state_fields() == custom.state_fields() && other.rate() == 0.5, "loaded");
    expect_equal(calls.released, 0, "releases while it lives");
  }
  expect_equal(calls.released, 1, "releases");
}

ddp_case(a_failing_custom_update_ends_the_step_and_is_named) {
  SmallModel small;
  Calls calls;
  calls.small = &small;
  calls.fails_at = 1;
  optim::Custom custom(small.model, count_call, no_state(), optim::default_optimizer_options(),
                       optim::UserData(&calls, nullptr));
  expect_error(DDP_ERROR_CALLBACK, [&] { custom.step(); }, {"\"p.F64\"", "42"});
  expect(calls.order == std::vector<int32_t>({0, 1}), "calls");
  expect_equal(custom.step_count(), int64_t{0}, "steps");
}
