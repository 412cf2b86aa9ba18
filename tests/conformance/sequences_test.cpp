// SPDX-License-Identifier: Apache-2.0
// Random sequences of calls on every kind of optimizer and 1 to 3 ranks, compared with a model of their meaning
// (support/training_oracle.hpp): passes that accumulate, reduce, fail, are abandoned or skipped, steps, refused steps,
// changes of gradients, loads, averages. After each call the parameters are those of the model up to rounding in F32, and
// equal on all ranks to the last bit. A failure prints its seed; the argument of the program is a seed to begin with, the
// second one a number of sequences.
#include <cstdlib>
#include <functional>
#include <random>

#include "checkpoint/state.hpp"
#include "model/uneven.hpp"
#include "optim/ema.hpp"
#include "support/fused_world.hpp"
#include "support/rule_options.hpp"
#include "support/training_oracle.hpp"

namespace ddp::test {
namespace {

unsigned first_seed = 1;
unsigned sequences = 40;
constexpr int kCalls = 30;
const std::vector<int64_t> kCounts = {3, 1500, 40, 2100, 700};

struct Setting {
  bool shard = false, in_backward = false, adam = false, allows_unused = false, skips_nonfinite = false, threads = false;
  double clip_value = 0, loss_scale = 1, max_norm = 0;
  explicit Setting(std::mt19937& random) {
    const auto one_of = [&](unsigned n) { return random() % n == 0; };
    shard = one_of(2);
    in_backward = one_of(2);
    adam = one_of(2);
    allows_unused = one_of(2);
    skips_nonfinite = one_of(4);
    threads = one_of(4);
    if (one_of(4)) clip_value = 0.75;
    if (one_of(4)) loss_scale = 8;
    if (one_of(6)) max_norm = 1e9;  // looks at the whole gradient and changes nothing
  }
  [[nodiscard]] std::string describe() const {
    return std::string(adam ? "AdamW" : "SGD") + (shard ? ", shard" : "") + (in_backward ? ", in_backward" : "") +
           (allows_unused ? ", unused" : "") + (skips_nonfinite ? ", skips" : "") + (threads ? ", threads" : "") +
           (clip_value > 0 ? ", clips" : "") + (loss_scale > 1 ? ", scales" : "") + (max_norm > 0 ? ", norm" : "");
  }
};

/// One rank's library and the oracle of all ranks. Every rank draws the same numbers.
class Sequence {
 public:
  Sequence(group::Group& group, int rank, unsigned seed)
      : group_(group), rank_(rank), seed_(seed), random_(seed), setting_(random_), oracle_(oracle_options(group.size())) {
    ddp_model_options options{};
    options.first_bucket_bytes = 4'000;
    options.bucket_bytes = 7'000;
    options.reduce = DDP_AVERAGE;
    options.unused = setting_.allows_unused ? DDP_UNUSED_ALLOW : DDP_UNUSED_ERROR;
    options.progress = setting_.threads ? DDP_PROGRESS_THREAD : DDP_PROGRESS_CALLER;
    model_ = std::make_shared<model::Model>(std::shared_ptr<group::Group>(&group, [](group::Group*) {}), options);
    for (size_t p = 0; p < kCounts.size(); ++p) {
      auto& value = values_.emplace_back(static_cast<size_t>(kCounts[p]));
      auto& grad = grads_.emplace_back(value.size());
      for (size_t i = 0; i < value.size(); ++i) value[i] = static_cast<float>(TrainingOracle::start(p, i));
      const Tensor lent = flat_tensor(grad.data(), DDP_F32, kCounts[p]);
      model_->add_parameter("p" + std::to_string(p), flat_tensor(value.data(), DDP_F32, kCounts[p]),
                            p % 2 == 0 ? &lent : nullptr);
    }
    make_optimizer();
    ema_ = std::make_shared<optim::Ema>(model_, std::vector<double>{0.5});
    model_->replicas().keep_equal(optimizer_);
    model_->replicas().keep_equal(ema_);
    model_->commit();
  }

  void run() {
    for (call_ = 0; call_ < kCalls; ++call_) {
      one_call();
      compare();
    }
    if (oracle_.is_swapped) swap();
    compare();
  }

 private:
  [[nodiscard]] TrainingOracle::Options oracle_options(int ranks) const {
    TrainingOracle::Options options;
    options.ranks = ranks;
    options.counts = kCounts;
    options.adam = setting_.adam;
    options.immediate = setting_.in_backward && !setting_.skips_nonfinite && setting_.max_norm == 0;
    options.clip_value = setting_.clip_value;
    options.skips_nonfinite = setting_.skips_nonfinite;
    options.loss_scale = setting_.loss_scale;
    return options;
  }
  void make_optimizer() {
    const auto fill = [&](auto& options) {
      options.shard = setting_.shard;
      options.in_backward = setting_.in_backward;
      options.clip_value = setting_.clip_value;
      options.max_norm = setting_.max_norm;
      options.nonfinite = setting_.skips_nonfinite ? DDP_NONFINITE_SKIP : DDP_NONFINITE_KEEP;
      options.rate = oracle_.state.rate;
    };
    if (setting_.adam) {
      AdamOptions options;
      fill(options);
      options.epsilon = 1e-2;
      optimizer_ = std::make_shared<optim::Adam>(model_, options, options);
    } else {
      SgdOptions options;
      fill(options);
      options.momentum = 0.5;
      optimizer_ = std::make_shared<optim::Sgd>(model_, options, options);
    }
    if (setting_.loss_scale > 1) {
      ddp_loss_scale_options scale = optim::default_loss_scale_options();
      scale.initial = setting_.loss_scale;
      scale.interval = 0;
      optimizer_->set_loss_scale(scale);
    }
    if (optimizer_->in_passes() != nullptr) model_->optimizer_slot().attach(optimizer_);
  }

  unsigned draw(size_t below) { return static_cast<unsigned>(random_() % below); }
  [[nodiscard]] float* grad(size_t p) {
    return reinterpret_cast<float*>(model_->table().parameter(static_cast<int32_t>(p)).grad.data);
  }
  [[nodiscard]] double gradient(int rank, size_t p, size_t i) const {
    return static_cast<double>((i * 5 + p * 11 + static_cast<size_t>(rank) * 3 + static_cast<size_t>(serial_) * 13) % 15) /
               4 -
           1.75;
  }
  void refused(const std::function<void()>& call) { (void)expect_error(DDP_ERROR_INVALID_STATE, call); }

  void one_call() {
    const unsigned kind = draw(20);
    if (kind < 8) return train();
    if (kind < 11) return step();
    if (kind == 11) return change_gradients();
    if (kind == 12) return save();
    if (kind == 13 || kind == 14) return load();
    if (kind == 15) return settings();
    if (kind == 16) return average();
    if (kind == 17) return swap();
    if (kind == 18) return accumulate_and_step();
    failing_load();
  }

  /// This rank adds to the gradients that it marks, and the oracle to those of all.
  void add(int rank, size_t p) {
    for (size_t i = 0; i < oracle_.grads[0][p].size(); ++i) {
      const double each = gradient(rank, p, i);
      oracle_.grads[static_cast<size_t>(rank)][p][i] += each;
      if (rank == rank_) grad(p)[i] += static_cast<float>(each);
    }
    oracle_.touched[static_cast<size_t>(rank)][p] = true;
  }
  [[nodiscard]] bool is_used(int rank, size_t p) const {
    return !setting_.allows_unused || (static_cast<size_t>(serial_) * 7 + p * 5 + static_cast<size_t>(rank) * 3) % 4 != 0;
  }
  void zero() {
    model_->gradients().zero();
    oracle_.zero();
  }
  /// Passes that accumulate, one of which a rank may abandon.
  void accumulate() {
    for (unsigned passes = draw(3); passes > 0; --passes) {
      ++serial_;
      const int leaves = draw(4) == 0 ? static_cast<int>(draw(static_cast<size_t>(group_.size()))) : -1;
      model_->begin_backward(DDP_PASS_ACCUMULATE);
      for (int rank = 0; rank < group_.size(); ++rank)
        for (size_t p = 0; p < kCounts.size(); ++p) {
          if (rank == rank_ && (is_used(rank, p) || rank == leaves)) model_->pass().mark_ready(static_cast<int32_t>(p));
          if (rank != leaves && is_used(rank, p)) add(rank, p);  // a rank that leaves has not written yet
        }
      rank_ == leaves ? abandon_backward(*model_, "a bad batch") : model_->end_backward();
      oracle_.gradients = TrainingOracle::Gradients::kAccumulated;
    }
  }
  void train() {
    if (oracle_.is_swapped || (oracle_.is_made && draw(2) == 0)) {
      if (oracle_.options.immediate) refused([&] { model_->begin_backward(DDP_PASS_REDUCE); });
      return;
    }
    if (oracle_.is_made) step();
    zero();
    accumulate();
    const unsigned kind = draw(8);
    if (kind < 3) spoil(kind);
    reduce();
    if (draw(3) > 0) step();
  }
  /// A pass that fails on all ranks; then everything is made again, or nothing has changed.
  void spoil(unsigned kind) {
    const int culprit = static_cast<int>(draw(static_cast<size_t>(group_.size())));
    ++serial_;
    if (kind == 0) {
      refused([&] { skip_backward(*model_); });
      oracle_.gradients = TrainingOracle::Gradients::kVoid;
      return step();  // what was accumulated is still there
    }
    model_->begin_backward(DDP_PASS_REDUCE);
    const size_t left_out = draw(kCounts.size());
    for (size_t p = kCounts.size(); p-- > 0;) {
      grad(p)[0] = 1e3;
      if (p != left_out || rank_ != culprit) model_->pass().mark_ready(static_cast<int32_t>(p));
    }
    if (rank_ == culprit)
      abandon_backward(*model_, "a bad batch");
    else
      refused([&] { model_->end_backward(); });
    oracle_.gradients = TrainingOracle::Gradients::kVoid;
    step();
    zero();
    accumulate();
  }
  void reduce() {
    ++serial_;
    const int skips = group_.size() > 1 && draw(4) == 0 ? static_cast<int>(draw(static_cast<size_t>(group_.size()))) : -1;
    const bool bad = setting_.skips_nonfinite && draw(3) == 0;
    if (rank_ == skips)
      skip_backward(*model_);
    else
      model_->begin_backward(DDP_PASS_REDUCE);
    std::vector<bool> takes_part(static_cast<size_t>(group_.size()), true);
    for (int rank = 0; rank < group_.size(); ++rank) {
      takes_part[static_cast<size_t>(rank)] = rank != skips;
      for (size_t p = kCounts.size(); p-- > 0 && rank != skips;) {
        if (is_used(rank, p)) add(rank, p);
        if (bad && p == 1 && is_used(rank, p)) {
          oracle_.grads[static_cast<size_t>(rank)][p][1400] = std::numeric_limits<double>::infinity();
          if (rank == rank_) grad(p)[1400] = std::numeric_limits<float>::infinity();
        }
        if (rank != rank_) continue;
        is_used(rank, p) ? model_->pass().mark_ready(static_cast<int32_t>(p))
                         : model_->pass().mark_unused(static_cast<int32_t>(p));
      }
    }
    if (rank_ != skips) model_->end_backward();
    oracle_.reduce(takes_part);
  }
  void accumulate_and_step() {
    if (oracle_.is_made || oracle_.is_swapped) return;
    zero();
    accumulate();
    if (oracle_.gradients == TrainingOracle::Gradients::kAccumulated) step();
    zero();
  }
  void step() {
    TrainingOracle before = oracle_;
    if (oracle_.gradients == TrainingOracle::Gradients::kOwn && !oracle_.is_made)
      return;  // nothing that ranks have in common
    if (oracle_.step()) {
      optimizer_->step();
    } else {
      oracle_ = before;
      refused([&] { optimizer_->step(); });
    }
  }
  void change_gradients() {
    const unsigned kind = draw(3);
    if (oracle_.is_made && kind < 2) {
      refused([&] { model_->gradients().scale(0.5); });
      refused([&] { model_->gradients().clip_value(0.5); });
      refused([&] { (void)model_->gradients().clip_norm(0.5, std::numeric_limits<double>::infinity()); });
      return;
    }
    if (kind == 0) {
      model_->gradients().scale(0.5);
      oracle_.each_gradient([](double each) { return each * 0.5; });
    } else if (kind == 1) {
      model_->gradients().clip_value(0.5);
      oracle_.each_gradient([](double each) { return std::min(std::max(each, -0.5), 0.5); });
    } else {
      zero();
    }
  }
  void settings() {
    const double rate = 0.25 / (1 + draw(4));
    const auto index = static_cast<int32_t>(draw(kCounts.size()));
    const double scale = draw(2);
    if (oracle_.is_made) {
      refused([&] { optimizer_->set_rate(rate); });
      refused([&] { optimizer_->set_parameter_options(index, setting_.adam ? 0.01 : 0, scale); });
      return;
    }
    optimizer_->set_rate(rate);
    optimizer_->set_parameter_options(index, setting_.adam ? 0.01 : 0, scale);
    oracle_.state.rate = rate;
    oracle_.state.rate_scale[static_cast<size_t>(index)] = scale;
  }
  void average() {
    if (oracle_.is_swapped) return refused([&] { ema_->update(); });
    ema_->update();
    oracle_.average();
  }
  void swap() {
    if (oracle_.state.averaged == 0) return refused([&] { ema_->swap(0); });
    ema_->swap(0);
    oracle_.swap();
    step();  // refused, unless it only ends what a pass has made
  }
  [[nodiscard]] checkpoint::Parts parts() { return {*model_, optimizer_.get(), ema_.get()}; }
  void save() {
    std::string bytes;
    const auto push = [&](const void* data, int64_t count) {
      return bytes.append(static_cast<const char*>(data), static_cast<size_t>(count)), 0;
    };
    const auto call = [&] { checkpoint::save_stream("save", parts(), {}, push, std::nullopt); };
    if (oracle_.is_swapped) return refused(call);
    call();
    file_ = bytes;
    saved_ = oracle_.state;
  }
  void load_bytes(const std::string& bytes, bool whole = true) {
    size_t at = 0;
    const auto pull = [&](void* data, int64_t capacity) {
      const size_t now = std::min(static_cast<size_t>(capacity), bytes.size() - at);
      std::copy_n(bytes.data() + at, now, static_cast<char*>(data));
      at += now;
      return static_cast<int64_t>(now);
    };
    (void)checkpoint::load_stream("load", whole ? parts() : checkpoint::Parts{*model_}, pull, std::nullopt);
  }
  void load() {
    if (!saved_) return;
    if (oracle_.is_swapped) return refused([&] { load_bytes(file_, false); });
    load_bytes(file_);
    oracle_.load(*saved_);
  }
  void failing_load() {
    if (!saved_ || oracle_.is_swapped) return;
    (void)expect_error(DDP_ERROR_IO, [&] { load_bytes(file_.substr(0, file_.size() - std::min<size_t>(file_.size(), 7))); });
  }

  void compare() {
    std::string all;
    for (size_t p = 0; p < kCounts.size(); ++p) {
      all.append(reinterpret_cast<const char*>(values_[p].data()), values_[p].size() * sizeof(float));
      for (size_t i = 0; i < values_[p].size(); ++i) {
        const double wanted = oracle_.state.value[p][i];
        if (!(std::abs(values_[p][i] - wanted) <= 2e-3 * (1 + std::abs(wanted))))
          expect_equal(static_cast<double>(values_[p][i]), wanted,
                       "element " + std::to_string(i) + " of p" + std::to_string(p) + where());
      }
    }
    expect_equal(optimizer_->step_count(), oracle_.state.step_count, "steps" + where());
    expect_equal(optimizer_->skipped_count(), oracle_.state.skipped, "skipped" + where());
    expect_equal(ema_->update_count(), oracle_.state.averaged, "updates of the averages" + where());
    expect_same_everywhere(group_, all, "what the parameters hold" + where());
  }
  [[nodiscard]] std::string where() const {
    return ", seed " + std::to_string(seed_) + " after call " + std::to_string(call_) + " on rank " + std::to_string(rank_) +
           " of " + std::to_string(group_.size()) + " (" + setting_.describe() + ")";
  }

  group::Group& group_;
  int rank_;
  unsigned seed_;
  std::mt19937 random_;
  Setting setting_;
  TrainingOracle oracle_;
  std::vector<std::vector<float>> values_, grads_;
  std::shared_ptr<model::Model> model_;
  std::shared_ptr<optim::BuiltinOptimizer> optimizer_;
  std::shared_ptr<optim::Ema> ema_;
  std::string file_;
  std::optional<TrainingOracle::State> saved_;
  int serial_ = 0;
  int call_ = 0;
};

void random_sequences_mean_what_the_model_says(void**) {
  for (unsigned seed = first_seed; seed < first_seed + sequences; ++seed) {
    try {
      run_groups(1 + static_cast<int>(seed % 3), [&](group::Group& group, int rank) { Sequence(group, rank, seed).run(); });
    } catch (...) {
      std::printf("seed %u failed\n", seed);
      throw;
    }
  }
}

}  // namespace
}  // namespace ddp::test

int main(int argc, char** argv) {
  using namespace ddp::test;
  if (argc > 1) first_seed = static_cast<unsigned>(std::atoi(argv[1]));
  if (argc > 2) sequences = static_cast<unsigned>(std::atoi(argv[2]));
  const CMUnitTest tests[] = {ddp_test(random_sequences_mean_what_the_model_says)};
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
