// SPDX-License-Identifier: Apache-2.0
// The one builder of trainings: a model with odd shapes, of any dtypes, in host memory, in memory of the library, on a fake
// GPU or on both; with one optimizer or several, of the library or of the program, in any way of making steps. Gradients are
// made from rank, step and position. The oracle in F64 is support/training_oracle.hpp; a training in another memory or way
// is one for bits.
#pragma once

#include "model/gradients.hpp"
#include "model/optimizer_slot.hpp"
#include "model/replicas.hpp"
#include "optim/adam.hpp"
#include "optim/sgd.hpp"
#include "parts/model_pass.hpp"
#include "support/gradient_pages.hpp"
#include "support/group_paths.hpp"
#include "support/noise.hpp"
#include "support/own_rules.hpp"
#include "support/rule_options.hpp"
#include "support/ways.hpp"
#include "unit/optim/oracle.hpp"

namespace ddp::test {

/// One rank's model.
class Training : NotCopied {
  std::unique_ptr<GpuStream> stream_;  // goes after the model, and so does the memory
  std::vector<std::unique_ptr<GpuArray>> on_gpu_;
  std::unique_ptr<std::byte, std::function<void(std::byte*)>> block_;  // of the group, with the gradients
  std::deque<std::vector<std::byte>> on_host_;

 public:
  group::Group& group;
  Ways ways;
  std::vector<int32_t> numbers;      // of the parameters
  std::vector<std::byte*> values{};  // where the parameters are; on a GPU not to be looked at
  std::shared_ptr<model::Model> model;
  std::vector<std::shared_ptr<optim::Optimizer>> optimizers{};
  std::shared_ptr<optim::Optimizer> optimizer;  // the first one
  std::deque<OwnRule> owns;                     // of each optimizer
  OwnRule& own;
  std::vector<std::unique_ptr<GradientPages>> later;
  std::vector<GpuArray> fresh{};  // what is enqueued
  double scale = 1;               // of the gradients

  Training(group::Group& of, Rule rule, const Ways& asked)
      : group(of), ways(asked), numbers(asked.numbers), owns(1), own(owns.front()) {
    if (numbers.empty()) {
      numbers.resize(ways.shapes.size());
      std::iota(numbers.begin(), numbers.end(), 0);
    }
    if (ways.home == Home::kOfPath) ways.home = is_on_gpus() ? Home::kGpu : Home::kHost;
    ways.whole_gradients = ways.whole_gradients || is_on_gpus();
    if (ways.home != Home::kHost) stream_ = std::make_unique<GpuStream>(device());
    if (!ways.grads_at.empty()) make_block();
    model = std::make_shared<model::Model>(std::shared_ptr<group::Group>(&group, [](group::Group*) {}), model_options());
    if (ways.wire == ddp_dtype{}) model->set_hook(ways.hook);
    for (size_t k = 0; k < numbers.size(); ++k) add(k);
    if (!ways.buckets.empty()) model->gradients().set_buckets(ways.buckets);
    if (ways.steppers.empty() && ways.is_stepped) make_optimizer(rule);
    for (const Stepper& each : ways.steppers) add(each);
    if (ways.is_stepped) optimizer = optimizers.front();
    if (ways.is_committed) commit();
  }
  Training(group::Group& of, const Ways& asked) : Training(of, Rule::kSgd, asked) {}

  static bool is_on_gpus() { return gpu::opened_module() == &fake_gpu::table(); }
  [[nodiscard]] int32_t device() const { return group.options().device_index; }
  [[nodiscard]] void* stream() const { return stream_ == nullptr ? nullptr : stream_->get(); }
  [[nodiscard]] size_t size() const { return numbers.size(); }
  [[nodiscard]] int64_t count(size_t k) const { return ways.shapes[static_cast<size_t>(numbers[k])]; }
  [[nodiscard]] ddp_dtype dtype(size_t k) const {
    return ways.dtypes.empty() ? ways.dtype : ways.dtypes[static_cast<size_t>(numbers[k])];
  }
  [[nodiscard]] const Tensor& value(size_t k) const { return model->table().parameter(static_cast<int32_t>(k)).value; }
  [[nodiscard]] const Tensor& grad(size_t k) const { return model->table().parameter(static_cast<int32_t>(k)).grad; }

  void commit() {
    model->commit(stream());
    if (ways.own_values) spoil_what_was_lent();
  }
  /// The only optimizer, with the options that `ways` has now.
  void make_optimizer(Rule rule) {
    optimizers = {make(ways, rule, {})};
    optimizer = optimizers.front();
    if (optimizer->in_passes() != nullptr) model->optimizer_slot().attach(optimizer);
  }
  void set_loss_scale(double initial, int32_t interval = 0, size_t of = 0) const {
    ddp_loss_scale_options options = optim::default_loss_scale_options();
    options.initial = initial;
    options.interval = interval;
    optimizers[of]->set_loss_scale(options);
  }

  void set(std::byte* at, int64_t i, double number) const { set_element(ways.dtype, at, static_cast<size_t>(i), number); }
  static double gradient(int rank, int step, size_t p, int64_t i) {
    const int seed = rank * 1'000'003 + step * 1009 + static_cast<int>(p) * 31 + static_cast<int>(i) + 1;
    return static_cast<double>(noise(static_cast<uint32_t>(seed))) / 997.0 - 10.0;
  }
  static double whole_gradient(int rank, int step, size_t p, int64_t i) {
    return static_cast<double>((i * 7 + static_cast<int64_t>(p) * 13 + step * 29 + rank * 5) % 31 - 15);
  }
  void give_grad(size_t k) {
    later.resize(size());
    later[k] = std::make_unique<GradientPages>(count(k) * dtype_size(dtype(k)));
    const Tensor made = flat_tensor(later[k]->data(), dtype(k), count(k));
    model->gradients().set(static_cast<int32_t>(k), &made);
  }
  void take_grads_back() {
    for (int32_t p = 0; p < model->table().parameter_count(); ++p) model->gradients().set(p, nullptr);
    later.clear();
  }
  void fill(int rank, int step) {
    for (size_t k = 0; ways.later_grads && k < size(); ++k) give_grad(k);
    for (size_t k = 0; k < size(); ++k) fill(rank, step, k);
  }
  void fill(int rank, int step, size_t k) const {
    const auto made = ways.whole_gradients ? &whole_gradient : &gradient;
    fill(k, [&](size_t p, int64_t i) { return scale * made(rank, step, p, i); });
  }
  void fill(size_t k, const std::function<double(size_t, int64_t)>& number) const {
    std::vector<std::byte> bytes(static_cast<size_t>(grad(k).bytes()));
    for (int64_t i = 0; i < count(k); ++i)
      set_element(dtype(k), bytes.data(), static_cast<size_t>(i), number(static_cast<size_t>(numbers[k]), i));
    ways.enqueued ? fresh[k].poke(bytes) : write(grad(k), bytes);
  }
  /// One element of a gradient, by the parameter's number.
  void set_grad(int32_t number, int64_t i, double to) const {
    const auto k = static_cast<size_t>(std::find(numbers.begin(), numbers.end(), number) - numbers.begin());
    std::vector<std::byte> bytes = read(grad(k));
    set_element(dtype(k), bytes.data(), static_cast<size_t>(i), to);
    write(grad(k), bytes);
  }
  /// A REDUCE pass; parameters in `unused` are not used on any rank, those in `missing` not marked.
  void pass(int rank, int step, const std::set<int32_t>& unused = {}, const std::set<int32_t>& missing = {}) {
    fill(rank, step);
    reduce(unused, missing);
  }
  void reduce(const std::set<int32_t>& unused = {}, const std::set<int32_t>& missing = {},
              ddp_pass mode = DDP_PASS_REDUCE) const {
    model->begin_backward(mode);
    mark(unused, missing);
    model->end_backward(stream());
  }
  void mark(const std::set<int32_t>& unused = {}, const std::set<int32_t>& missing = {}) const {
    for (auto k = static_cast<int32_t>(size()); k-- > 0;) {
      const int32_t number = numbers[static_cast<size_t>(k)];
      if (missing.count(number) != 0) continue;
      unused.count(number) != 0 ? model->pass().mark_unused(k) : mark_one(k);
    }
  }
  void mark_one(int32_t k) const { mark_one(k, stream()); }
  void mark_one(int32_t k, void* on) const {
    if (ways.enqueued) enqueue(static_cast<size_t>(k), on);
    model->pass().mark_ready(k, on);
  }
  /// The gradient that fill() has made.
  void enqueue(size_t k, void* on) const {
    grad(k).is_on_gpu() ? write_on(on, fresh[k], grad(k).data) : write(grad(k), fresh[k].peek<std::byte>());
  }
  void step() const {
    for (const auto& each : optimizers) each->step(stream());
  }
  void train(int rank, int step_number, const std::set<int32_t>& unused = {}) {
    pass(rank, step_number, unused);
    step();
  }

  void synchronize() const {
    if (stream_ != nullptr) stream_->synchronize();
  }
  /// Of a tensor, in the order of the stream.
  [[nodiscard]] std::vector<std::byte> read(const Tensor& tensor) const {
    std::vector<std::byte> bytes(static_cast<size_t>(tensor.bytes()));
    if (bytes.empty()) return bytes;
    synchronize();
    if (tensor.is_on_gpu())
      expect(fake_gpu::peek(bytes.data(), tensor.data, tensor.bytes()), "peeked");
    else
      std::memcpy(bytes.data(), tensor.data, bytes.size());
    return bytes;
  }
  void write(const Tensor& to, const std::vector<std::byte>& bytes) const {
    if (bytes.empty()) return;
    if (!to.is_on_gpu()) return static_cast<void>(std::memcpy(to.data, bytes.data(), bytes.size()));
    stream_->synchronize();
    expect(fake_gpu::poke(to.data, bytes.data(), to.bytes()), "poked");
  }
  [[nodiscard]] std::string text_of(const Tensor& tensor) const {
    const std::vector<std::byte> bytes = read(tensor);
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
  }
  /// The values of a parameter by its number; "" if the model does not have it.
  [[nodiscard]] std::string bytes_of(int32_t number) const {
    const auto found = std::find(numbers.begin(), numbers.end(), number);
    return found == numbers.end() ? "" : text_of(value(static_cast<size_t>(found - numbers.begin())));
  }
  [[nodiscard]] std::string bytes() const {
    std::string all;
    for (size_t k = 0; k < size(); ++k) all += text_of(value(k));
    return all;
  }
  /// The state of the optimizers, whole, whichever rank has which part of it; collective if it is shared out.
  [[nodiscard]] std::string state() const {
    std::string all;
    for (const auto& each : optimizers)
      for (const model::StateTensor& tensor : each->state_tensors()) all += whole(tensor);
    return all;
  }
  /// The state that belongs to one tensor, as above.
  [[nodiscard]] std::string whole(const model::StateTensor& state) const {
    if (state.parts.empty()) return text_of(state.tensor);
    const int64_t bytes = dtype_size(state.tensor.dtype);
    const auto& own_parts = state.parts[static_cast<size_t>(group.rank())];
    const auto by_rank = group.gather("state", text_of(flat_part(state.tensor, 0, count_of(own_parts))));
    std::string all(static_cast<size_t>(state.tensor.bytes()), '\0');
    for (size_t rank = 0; rank < by_rank.size(); ++rank) {
      const char* from = by_rank[rank].data();
      for (const OwnedSpan& span : state.parts[rank]) {
        std::memcpy(all.data() + span.first * bytes, from, static_cast<size_t>(span.count * bytes));
        from += span.count * bytes;
      }
    }
    return all;
  }

 private:
  [[nodiscard]] ddp_model_options model_options() const {
    ddp_model_options options{.first_bucket_bytes = ways.first_bucket_bytes,
                              .bucket_bytes = ways.bucket_bytes,
                              .reduce = DDP_AVERAGE,
                              .unused = ways.unused,
                              .progress = ways.progress,
                              .divisor = ways.divisor,
                              .uneven_inputs = ways.uneven_inputs,
                              .wire = ways.wire,
                              .own_values = ways.own_values ? 1 : 0};
    return options;
  }
  [[nodiscard]] Tensor lend(size_t k, bool in_group) {
    Tensor lent = lend_flat(k, in_group);
    if (ways.columns.empty()) return lent;
    lent.ndim = 2;
    lent.shape[1] = ways.columns[static_cast<size_t>(numbers[k])];
    lent.shape[0] = count(k) / lent.shape[1];
    return lent;
  }
  [[nodiscard]] Tensor lend_flat(size_t k, bool in_group) {
    const int64_t bytes = count(k) * dtype_size(dtype(k));
    if (ways.home == Home::kGpu || (ways.home == Home::kBoth && k % 3 != 0)) {
      on_gpu_.push_back(std::make_unique<GpuArray>(device(), bytes));
      on_gpu_.back()->poke(std::vector<std::byte>(static_cast<size_t>(bytes)));
      return on_gpu_.back()->tensor(group, dtype(k));
    }
    if (in_group && ways.home == Home::kHost)
      return flat_tensor(static_cast<std::byte*>(group.memory().alloc(bytes)), dtype(k), count(k));
    return flat_tensor(on_host_.emplace_back(static_cast<size_t>(bytes)).data(), dtype(k), count(k));
  }
  void add(size_t k) {
    if (ways.enqueued) fresh.emplace_back(device(), count(k) * 4);
    const Tensor lent = lend(k, ways.values_in_group);
    std::vector<std::byte> start(static_cast<size_t>(lent.bytes()));
    for (int64_t i = 0; i < count(k); ++i)
      set_element(dtype(k), start.data(), static_cast<size_t>(i), std::sin(static_cast<double>(i) + numbers[k]));
    write(lent, start);
    values.push_back(lent.data);
    const std::string name = "p" + std::to_string(numbers[k]);
    if (ways.later_grads) {
      model->add_parameter(name, lent, nullptr, model::Model::Gradient::kLater);
    } else if (ways.owned_grads && !(ways.every_second_lent && k % 2 == 1)) {
      model->add_parameter(name, lent, nullptr);
    } else {
      Tensor of_program = ways.grads_at.empty() ? lend(k, false) : lent;
      if (!ways.grads_at.empty()) of_program.data = block_.get() + ways.grads_at[static_cast<size_t>(numbers[k])] * 4;
      model->add_parameter(name, lent, &of_program);
    }
  }
  void make_block() {
    int64_t end = 0;
    for (size_t k = 0; k < size(); ++k) end = std::max(end, ways.grads_at[static_cast<size_t>(numbers[k])] + count(k));
    const auto take_back = [this](std::byte* block) {
      synchronize();
      group.memory().free(block);
    };
    block_ = {static_cast<std::byte*>(group.memory().alloc(end * 4)), take_back};
  }
  /// Nothing of it is used any more; on a GPU it is freed.
  void spoil_what_was_lent() {
    for (size_t k = 0; k < size(); ++k) {
      Tensor lent = value(k);
      lent.data = values[k];
      write(lent, std::vector<std::byte>(static_cast<size_t>(lent.bytes()), std::byte{0xFF}));
      values[k] = value(k).data;
    }
    if (ways.owned_grads && !ways.every_second_lent) on_gpu_.clear();
  }
  template <class Options>
  Options filled(const StepWays& from, const std::vector<int32_t>& indices) const {
    Options options;
    options.shard = from.shard;
    options.in_backward = from.in_backward;
    options.late_values = from.late_values ? 1 : 0;
    options.divide_in_step = from.divide_in_step;
    options.max_norm = from.max_norm;
    options.clip_value = from.clip_value;
    options.nonfinite = from.nonfinite;
    options.undo = from.undo;
    options.master_weights = from.master_weights;
    options.rate = from.rate;
    if (!indices.empty()) options.parameters = indices.data();
    options.parameter_count = static_cast<int64_t>(indices.size());
    return options;
  }
  std::shared_ptr<optim::Optimizer> make(const StepWays& from, Rule rule, const std::vector<int32_t>& list) {
    std::vector<int32_t> indices;
    for (const int32_t number : list)
      indices.push_back(static_cast<int32_t>(std::find(numbers.begin(), numbers.end(), number) - numbers.begin()));
    if (!optimizers.empty() && &from != &ways) owns.emplace_back();
    if (from.custom) {
      owns.back().kind = static_cast<OwnRule::Kind>(rule);
      auto options = filled<CustomOptions>(from, indices);
      options.whole_tensors = from.whole_tensors;
      if (rule == Rule::kAdamW) options.weight_decay = 0.01;
      const optim::CustomRule read(options, owns.back().states(), "test");
      return std::make_shared<optim::Custom>(model, own_rule, read, options, optim::UserData(&owns.back(), nullptr));
    }
    if (rule == Rule::kAdamW) {
      auto options = filled<AdamOptions>(from, indices);
      options.epsilon = from.epsilon;
      return std::make_shared<optim::Adam>(model, options, options);
    }
    auto options = filled<SgdOptions>(from, indices);
    options.momentum = rule == Rule::kSgd ? 0 : from.momentum;
    options.nesterov = rule == Rule::kNesterov ? 1 : 0;
    if (rule == Rule::kNesterov) options.weight_decay = 0.02;
    return std::make_shared<optim::Sgd>(model, options, options);
  }
  void add(const Stepper& each) {
    optimizers.push_back(make(each, each.rule, each.parameters));
    model->optimizer_slot().add(optimizers.back());
    optimizers.back()->join_others();
    model->replicas().keep_equal(optimizers.back());
  }
};

/// All ranks have the same bytes.
inline void expect_same_everywhere(group::Group& group, const std::string& mine, const std::string& what) {
  const uint64_t hash = std::hash<std::string>{}(mine);
  const std::string text = std::to_string(hash);
  for (const std::string& theirs : group.gather("hash", text)) expect(theirs == text, what + " is the same on all ranks");
}

}  // namespace ddp::test
