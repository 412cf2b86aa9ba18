// SPDX-License-Identifier: Apache-2.0
// Random trainings: sequences of calls on every transport, in every memory and dtype, with every kind of optimizer and 1 to
// 4 ranks, compared with a model of their meaning in F64 (support/training_oracle.hpp): passes that accumulate, reduce,
// fail, are abandoned or skipped, steps, refused steps, changes of gradients, loads, averages. After each call the
// parameters are those of the oracle up to rounding, and equal on all ranks to the last bit. A failure prints its seed,
// which is the whole training.
//
//   test.conformance.training                       # 40 trainings, or as many as come to their end in 30 s
//   test.conformance.training --seconds 600         # as many as come to their end in ten minutes
//   test.conformance.training --seed 1734 --count 1 # one of them

#include "conformance/step_bits.hpp"
#include "conformance/training_setting.hpp"
#include "support/check.hpp"
#include "support/training_oracle.hpp"

unsigned first_seed = 1, most = 40, least = 10;
int64_t seconds = 30;
constexpr int kCalls = 30;

/// One rank's library and the oracle of all ranks. Every rank draws the same numbers.
class Sequence {
 public:
  Sequence(group::Group& group, const Setting& setting, unsigned seed)
      : group_(group),
        rank_(group.rank()),
        seed_(seed),
        random_(seed),
        setting_(setting),
        oracle_(oracle_options(group.size())),
        world_(group, setting.rule, setting.ways),
        model_(world_.model),
        optimizer_(world_.optimizer),
        ema_(std::make_shared<optim::Ema>(model_, std::vector<double>{0.5})) {
    for (size_t p = 0; p < world_.size(); ++p)
      for (size_t i = 0; i < oracle_.state.value[p].size(); ++i)
        oracle_.state.value[p][i] = std::sin(static_cast<double>(i + p));
    oracle_.state.rate = setting.ways.rate;
    if (setting.loss_scale > 1) world_.set_loss_scale(setting.loss_scale);
    model_->replicas().keep_equal(optimizer_);
    model_->replicas().keep_equal(ema_);
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
    options.counts = setting_.ways.shapes;
    options.adam = setting_.rule == Rule::kAdamW;
    options.immediate = setting_.ways.in_backward && !setting_.skips_nonfinite() && setting_.ways.max_norm == 0;
    options.clip_value = setting_.ways.clip_value;
    options.skips_nonfinite = setting_.skips_nonfinite();
    options.loss_scale = setting_.loss_scale;
    return options;
  }

  unsigned draw(size_t below) { return static_cast<unsigned>(random_() % below); }
  [[nodiscard]] double gradient(int rank, size_t p, size_t i) const {
    return static_cast<double>((i * 5 + p * 11 + static_cast<size_t>(rank) * 3 + static_cast<size_t>(serial_) * 13) % 15) /
               4 -
           1.75;
  }
  void refused(const std::function<void()>& call) { (void)expect_error(DDP_ERROR_INVALID_STATE, call); }

  void one_call() {
    const unsigned kind = draw(20);
    const auto call = [&](const char* name, void (Sequence::*body)()) {
      calls_ += std::string(calls_.empty() ? "" : ", ") + name;
      (this->*body)();
    };
    if (kind < 8) return call("train", &Sequence::train);
    if (kind < 11) return call("step", &Sequence::step);
    if (kind == 11) return call("change gradients", &Sequence::change_gradients);
    if (kind == 12) return call("save", &Sequence::save);
    if (kind == 13 || kind == 14) return call("load", &Sequence::load);
    if (kind == 15) return call("settings", &Sequence::settings);
    if (kind == 16) return call("average", &Sequence::average);
    if (kind == 17) return call("swap", &Sequence::swap);
    if (kind == 18) return call("accumulate and step", &Sequence::accumulate_and_step);
    call("failing load", &Sequence::failing_load);
  }

  /// This rank adds to the gradients that it marks, and the oracle to those of all.
  void add(int rank, size_t p) {
    const Tensor& grad = world_.grad(p);
    std::vector<std::byte> bytes;
    if (rank == rank_) bytes = world_.read(grad);
    for (size_t i = 0; i < oracle_.grads[0][p].size(); ++i) {
      const double each = gradient(rank, p, i);
      oracle_.grads[static_cast<size_t>(rank)][p][i] += each;
      if (rank == rank_) set_element(grad.dtype, bytes.data(), i, get_element(grad.dtype, bytes.data(), i) + each);
    }
    if (rank == rank_) world_.write(grad, bytes);
    oracle_.touched[static_cast<size_t>(rank)][p] = true;
  }
  [[nodiscard]] bool is_used(int rank, size_t p) const {
    return setting_.ways.unused == DDP_UNUSED_ERROR ||
           (static_cast<size_t>(serial_) * 7 + p * 5 + static_cast<size_t>(rank) * 3) % 4 != 0;
  }
  void zero() {
    model_->gradients().zero(stream());
    oracle_.zero();
  }
  /// Passes that accumulate, one of which a rank may abandon.
  void accumulate() {
    for (unsigned passes = draw(3); passes > 0; --passes) {
      ++serial_;
      const int leaves = draw(4) == 0 ? static_cast<int>(draw(static_cast<size_t>(group_.size()))) : -1;
      model_->begin_backward(DDP_PASS_ACCUMULATE);
      for (int rank = 0; rank < group_.size(); ++rank)
        for (size_t p = 0; p < world_.size(); ++p) {
          if (rank == rank_ && (is_used(rank, p) || rank == leaves))
            model_->pass().mark_ready(static_cast<int32_t>(p), stream());
          if (rank != leaves && is_used(rank, p)) add(rank, p);  // a rank that leaves has not written yet
        }
      rank_ == leaves ? abandon_backward(*model_, "a bad batch", stream()) : model_->end_backward(stream());
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
      refused([&] { skip_backward(*model_, stream()); });
      oracle_.gradients = TrainingOracle::Gradients::kVoid;
      step();
      if (setting_.ways.home == Home::kHost) return;  // what was accumulated is still there
      zero();  // a bucket on a GPU that a rank does not contribute to is overwritten in place
      return accumulate();
    }
    model_->begin_backward(DDP_PASS_REDUCE);
    const size_t left_out = draw(world_.size());
    for (size_t p = world_.size(); p-- > 0;) {
      world_.set_grad(static_cast<int32_t>(p), 0, 1e3);
      if (p != left_out || rank_ != culprit) model_->pass().mark_ready(static_cast<int32_t>(p), stream());
    }
    if (rank_ == culprit)
      abandon_backward(*model_, "a bad batch", stream());
    else
      refused([&] { model_->end_backward(stream()); });
    oracle_.gradients = TrainingOracle::Gradients::kVoid;
    step();
    zero();
    accumulate();
  }
  void reduce() {
    ++serial_;
    const int skips = group_.size() > 1 && draw(4) == 0 ? static_cast<int>(draw(static_cast<size_t>(group_.size()))) : -1;
    const bool bad = setting_.skips_nonfinite() && draw(3) == 0;
    if (rank_ == skips)
      skip_backward(*model_, stream());
    else
      model_->begin_backward(DDP_PASS_REDUCE);
    std::vector<bool> takes_part(static_cast<size_t>(group_.size()), true);
    for (int rank = 0; rank < group_.size(); ++rank) {
      takes_part[static_cast<size_t>(rank)] = rank != skips;
      for (size_t p = world_.size(); p-- > 0 && rank != skips;) {
        if (is_used(rank, p)) add(rank, p);
        if (bad && p == 1 && is_used(rank, p)) {
          oracle_.grads[static_cast<size_t>(rank)][p][1400] = std::numeric_limits<double>::infinity();
          if (rank == rank_) world_.set_grad(1, 1400, std::numeric_limits<double>::infinity());
        }
        if (rank != rank_) continue;
        is_used(rank, p) ? model_->pass().mark_ready(static_cast<int32_t>(p), stream())
                         : model_->pass().mark_unused(static_cast<int32_t>(p));
      }
    }
    if (rank_ != skips) model_->end_backward(stream());
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
      optimizer_->step(stream());
    } else {
      oracle_ = before;
      refused([&] { optimizer_->step(stream()); });
    }
  }
  void change_gradients() {
    const unsigned kind = draw(3);
    if (oracle_.is_made && kind < 2) {
      refused([&] { model_->gradients().scale(0.5, stream()); });
      refused([&] { model_->gradients().clip_value(0.5, stream()); });
      refused([&] { (void)model_->gradients().clip_norm(0.5, std::numeric_limits<double>::infinity(), stream()); });
      return;
    }
    if (kind == 0) {
      model_->gradients().scale(0.5, stream());
      oracle_.each_gradient([](double each) { return each * 0.5; });
    } else if (kind == 1) {
      model_->gradients().clip_value(0.5, stream());
      oracle_.each_gradient([](double each) { return std::min(std::max(each, -0.5), 0.5); });
    } else {
      zero();
    }
  }
  void settings() {
    const double rate = 0.25 / (1 + draw(4));
    const auto index = static_cast<int32_t>(draw(world_.size()));
    const double scale = draw(2);
    if (oracle_.is_made) {
      refused([&] { optimizer_->set_rate(rate); });
      refused([&] { optimizer_->set_parameter_options(index, setting_.rule == Rule::kAdamW ? 0.01 : 0, scale); });
      return;
    }
    optimizer_->set_rate(rate);
    optimizer_->set_parameter_options(index, setting_.rule == Rule::kAdamW ? 0.01 : 0, scale);
    oracle_.state.rate = rate;
    oracle_.state.rate_scale[static_cast<size_t>(index)] = scale;
  }
  void average() {
    if (oracle_.is_swapped) return refused([&] { ema_->update(stream()); });
    ema_->update(stream());
    oracle_.average();
  }
  void swap() {
    if (oracle_.state.averaged == 0) return refused([&] { ema_->swap(0, stream()); });
    ema_->swap(0, stream());
    oracle_.swap();
    step();  // refused, unless it only ends what a pass has made
  }
  [[nodiscard]] checkpoint::Parts parts() { return {*model_, optimizer_.get(), ema_.get()}; }
  void save() {
    std::string bytes;
    const auto call = [&] { bytes = saved_bytes(parts()); };
    if (oracle_.is_swapped) return refused(call);
    call();
    file_ = bytes;
    saved_ = oracle_.state;
  }
  void load() {
    if (!saved_) return;
    if (oracle_.is_swapped) return refused([&] { load_bytes({*model_}, file_); });
    load_bytes(parts(), file_);
    oracle_.load(*saved_);
  }
  void failing_load() {
    if (!saved_ || oracle_.is_swapped) return;
    (void)expect_error(DDP_ERROR_IO,
                       [&] { load_bytes(parts(), file_.substr(0, file_.size() - std::min<size_t>(file_.size(), 7))); });
  }

  void compare() {
    for (size_t p = 0; p < world_.size(); ++p) {
      const std::vector<std::byte> bytes = world_.read(world_.value(p));
      for (size_t i = 0; i < oracle_.state.value[p].size(); ++i) {
        const double wanted = oracle_.state.value[p][i], got = get_element(world_.dtype(p), bytes.data(), i);
        if (!(std::abs(got - wanted) <= setting_.tolerance() * (1 + std::abs(wanted))))
          expect_equal(got, wanted, "element " + std::to_string(i) + " of p" + std::to_string(p) + where());
      }
    }
    expect_equal(optimizer_->step_count(), oracle_.state.step_count, "steps" + where());
    expect_equal(optimizer_->skipped_count(), oracle_.state.skipped, "skipped" + where());
    expect_equal(ema_->update_count(), oracle_.state.averaged, "updates of the averages" + where());
    expect_same_everywhere(group_, world_.bytes(), "what the parameters hold" + where());
  }
  [[nodiscard]] std::string where() const {
    return ", seed " + std::to_string(seed_) + " after call " + std::to_string(call_) + " on rank " + std::to_string(rank_) +
           " (" + setting_.describe() + "; calls: " + calls_ + ")";
  }
  [[nodiscard]] void* stream() const { return world_.stream(); }

  group::Group& group_;
  int rank_;
  unsigned seed_;
  std::mt19937 random_;
  const Setting& setting_;
  TrainingOracle oracle_;
  Training world_;
  std::shared_ptr<model::Model> model_;
  std::shared_ptr<optim::Optimizer> optimizer_;
  std::shared_ptr<optim::Ema> ema_;
  std::string file_, calls_;
  std::optional<TrainingOracle::State> saved_;
  int serial_ = 0;
  int call_ = 0;
};

ddp_case(random_trainings_mean_what_the_oracle_says) {
  const auto begin = std::chrono::steady_clock::now();
  unsigned made = 0;
  for (unsigned seed = first_seed; made < most; ++seed, ++made) {
    const bool is_late = std::chrono::steady_clock::now() - begin > std::chrono::seconds(seconds);
    if (is_late && made >= least) break;
    const Setting setting(seed);
    if (row_of(setting.path).needs_gloo && !has_gloo()) continue;
    try {
      run_freely_on(setting.path, setting.ranks,
                    [&](group::Group& group, int) { Sequence(group, setting, seed).run(), group.barrier(); });
    } catch (...) {
      std::printf("--seed %u failed: %s\n", seed, setting.describe().c_str());
      throw;
    }
  }
  std::printf("%u trainings from --seed %u on\n", made, first_seed);
}

ddp_before_cases(for (int i = 1; i + 1 < argc; i += 2) {
  const std::string name = argv[i];
  const auto number = static_cast<unsigned>(std::strtoul(argv[i + 1], nullptr, 10));
  if (name == "--seed") first_seed = number;
  if (name == "--count") most = least = number;
  if (name == "--seconds") seconds = number, most = std::numeric_limits<unsigned>::max(), least = 1;
});
