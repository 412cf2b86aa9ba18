// SPDX-License-Identifier: Apache-2.0
// Training on several ranks as a page of F64 loops: what passes, steps, loads and swaps mean, without buckets, slices or
// threads. Knows the gradients of all ranks. An optimizer is SGD with momentum or AdamW.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

namespace ddp::test {

struct TrainingOracle {
  using Array = std::vector<double>;
  struct Options {
    int ranks = 1;
    std::vector<int64_t> counts;
    bool adam = false;
    bool immediate = false;  // a pass makes the step
    double clip_value = 0;
    bool skips_nonfinite = false;
    double loss_scale = 1;
  };
  /// What a checkpoint holds.
  struct State {
    std::vector<Array> value, first, second, average;
    std::vector<int64_t> steps;
    std::vector<double> rate_scale;
    double rate = 0.125;
    int64_t step_count = 0, skipped = 0, averaged = 0;
  };
  enum class Gradients { kOwn, kFinal, kAccumulated, kVoid };

  Options options;
  State state;
  std::vector<std::vector<Array>> grads;   // by rank and parameter
  std::vector<std::vector<bool>> touched;  // since the last reduction
  std::vector<bool> used;
  Gradients gradients = Gradients::kOwn;
  bool is_stepped = false, is_made = false, is_swapped = false;

  explicit TrainingOracle(Options asked) : options(std::move(asked)) {
    for (size_t p = 0; p < options.counts.size(); ++p) {
      Array value(static_cast<size_t>(options.counts[p]));
      for (size_t i = 0; i < value.size(); ++i) value[i] = start(p, i);
      state.value.push_back(value);
      state.first.emplace_back(value.size());
      state.second.emplace_back(value.size());
      state.average.emplace_back(value.size());
    }
    state.steps.assign(options.counts.size(), 0);
    state.rate_scale.assign(options.counts.size(), 1);
    grads.assign(static_cast<size_t>(options.ranks), state.first);
    touched.assign(static_cast<size_t>(options.ranks), std::vector<bool>(options.counts.size()));
    used.assign(options.counts.size(), true);
  }
  static double start(size_t p, size_t i) { return static_cast<double>((i * 7 + p * 3) % 17) / 16 - 0.5; }

  void zero() {
    for (auto& rank : grads)
      for (Array& grad : rank) grad.assign(grad.size(), 0);
    for (auto& rank : touched) rank.assign(rank.size(), false);
    if (gradients != Gradients::kFinal) gradients = Gradients::kOwn;
  }
  void each_gradient(const std::function<double(double)>& change) {
    for (auto& rank : grads)
      for (Array& grad : rank)
        for (double& each : grad) each = change(each);
  }
  /// A pass that reduced; `takes_part` by rank.
  void reduce(const std::vector<bool>& takes_part) {
    for (size_t p = 0; p < used.size(); ++p) {
      used[p] = false;
      for (size_t r = 0; r < takes_part.size(); ++r) used[p] = used[p] || (takes_part[r] && touched[r][p]);
      if (!used[p]) continue;
      Array mean(grads[0][p].size());
      for (size_t r = 0; r < takes_part.size(); ++r)
        for (size_t i = 0; i < mean.size() && takes_part[r]; ++i) mean[i] += grads[r][p][i] / options.ranks;
      for (auto& rank : grads) rank[p] = mean;
    }
    for (auto& rank : touched) rank.assign(rank.size(), false);
    gradients = Gradients::kFinal;
    is_stepped = false;
    if (!options.immediate) return;
    apply();
    is_made = true;
  }
  /// False: the call is refused.
  bool step() {
    if (is_made) {
      is_made = false;
      is_stepped = true;
      return true;
    }
    if (gradients == Gradients::kVoid || gradients == Gradients::kAccumulated || is_stepped || is_swapped) return false;
    is_stepped = gradients == Gradients::kFinal;
    bool finite = true;
    for (size_t p = 0; p < used.size(); ++p)
      for (const double each : grads[0][p]) finite = finite && (!used[p] || std::isfinite(each));
    if (!finite && options.skips_nonfinite)
      ++state.skipped;
    else
      apply();
    return true;
  }
  void apply() {
    for (size_t p = 0; p < used.size(); ++p) {
      if (!used[p] || state.rate_scale[p] == 0) continue;
      const double rate = state.rate * state.rate_scale[p];
      const auto t = static_cast<double>(++state.steps[p]);
      for (size_t i = 0; i < grads[0][p].size(); ++i) {
        double g = grads[0][p][i] / options.loss_scale;
        if (options.clip_value > 0) g = std::min(std::max(g, -options.clip_value), options.clip_value);
        double& first = state.first[p][i];
        double& second = state.second[p][i];
        double& value = state.value[p][i];
        if (options.adam) {
          value -= rate * 0.01 * value;
          first = 0.9 * first + 0.1 * g;
          second = 0.999 * second + 0.001 * g * g;
          value -= rate * (first / (1 - std::pow(0.9, t))) / (std::sqrt(second / (1 - std::pow(0.999, t))) + 1e-2);
        } else {
          first = t == 1 ? g : 0.5 * first + g;
          value -= rate * first;
        }
      }
    }
    ++state.step_count;
  }
  void average() {
    for (size_t p = 0; p < used.size(); ++p)
      for (size_t i = 0; i < state.value[p].size(); ++i)
        state.average[p][i] = state.averaged == 0 ? state.value[p][i] : 0.5 * state.average[p][i] + 0.5 * state.value[p][i];
    ++state.averaged;
  }
  void swap() {
    state.value.swap(state.average);
    is_swapped = !is_swapped;
  }
  void load(const State& saved) {
    state = saved;
    is_made = false;
  }
};

}  // namespace ddp::test
