// SPDX-License-Identifier: Apache-2.0
#include "extra/outer/outer.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <numeric>
#include <utility>

#include "core/attempt.hpp"
#include "group/recoverable.hpp"
#include "group/split.hpp"
#include "model/replicas.hpp"
#include "model/requirements.hpp"
#include "os/clock.hpp"

namespace ddp::outer {
namespace {

constexpr const char* kCreate = "ddp_outer_create";
constexpr const char* kStep = "ddp_outer_step";
constexpr const char* kSync = "ddp_outer_sync";
constexpr int32_t kMostFragments = 1024;

void check_numbers(const ddp_outer_options& options) {
  if (!(options.rate > 0) || !std::isfinite(options.rate))
    throw make_error(DDP_ERROR_INVALID_ARGUMENT, "%s: rate is %g; it is above 0", kCreate, options.rate);
  if (!(options.momentum >= 0 && options.momentum < 1))
    throw make_error(DDP_ERROR_INVALID_ARGUMENT, "%s: momentum is %g; it is 0 or more and below 1", kCreate,
                     options.momentum);
  if (!(options.keep >= 0 && options.keep < 1))
    throw make_error(DDP_ERROR_INVALID_ARGUMENT, "%s: keep is %g; it is 0 or more and below 1", kCreate, options.keep);
}

void check_options(const ddp_outer_options& options) {
  check_numbers(options);
  if (options.every < 1)
    throw make_error(DDP_ERROR_INVALID_ARGUMENT, "%s: every is %lld; it is a number of steps, 1 or more", kCreate,
                     static_cast<long long>(options.every));
  if (options.overlap < 0 || options.overlap >= options.every)
    throw make_error(DDP_ERROR_INVALID_ARGUMENT,
                     "%s: overlap is %lld; an exchange ends before the next one begins, so it is 0 to every - 1 = %lld",
                     kCreate, static_cast<long long>(options.overlap), static_cast<long long>(options.every - 1));
  if (options.fragments < 1 || options.fragments > kMostFragments)
    throw make_error(DDP_ERROR_INVALID_ARGUMENT, "%s: fragments is %d; it is 1 to %d", kCreate, options.fragments,
                     kMostFragments);
  if (options.bits != 32 && options.bits != 16 && options.bits != 8 && options.bits != 4)
    throw make_error(DDP_ERROR_INVALID_ARGUMENT, "%s: bits is %d; movements travel with 32, 16, 8 or 4", kCreate,
                     options.bits);
  if ((options.nesterov & ~1) != 0 || (options.error_feedback & ~1) != 0)
    throw make_error(DDP_ERROR_INVALID_ARGUMENT, "%s: nesterov is %d and error_feedback %d; each is 0 or 1", kCreate,
                     options.nesterov, options.error_feedback);
}

void check_model(const model::Model& model) {
  model.require_ready(kCreate);
  if (model.group().options().virtual_ranks > 0)
    throw make_error(DDP_ERROR_NOT_SUPPORTED,
                     "%s: with virtual_ranks training does not depend on the number of ranks; steps that ranks make on "
                     "their own do",
                     kCreate);
  if (model::has_gpu_tensors(model.table()))
    throw make_error(DDP_ERROR_NOT_SUPPORTED, "%s: a parameter or buffer lies on a GPU; they must be in host memory",
                     kCreate);
  for (const Parameter& parameter : model.table().parameters()) {
    const ddp_dtype dtype = parameter.value.dtype;
    if (dtype != DDP_F32 && dtype != DDP_F64 && dtype != DDP_F16 && dtype != DDP_BF16)
      throw make_error(DDP_ERROR_NOT_SUPPORTED, "%s: parameter \"%s\" is %s; F32, F64, F16 and BF16 are possible", kCreate,
                       parameter.name.c_str(), dtype_name(dtype));
  }
}

int64_t read_field(const std::map<std::string, std::string>& fields, const char* name) {
  const auto found = fields.find(name);
  int64_t value = -1;
  if (found != fields.end()) {
    const char* const end = found->second.data() + found->second.size();
    const auto [at, code] = std::from_chars(found->second.data(), end, value);
    if (code != std::errc{} || at != end) value = -1;
  }
  if (value < 0) throw make_error(DDP_ERROR_MISMATCH, "the outer optimizer's field \"%s\" is missing or no count", name);
  return value;
}

}  // namespace

std::vector<int32_t> divide(const std::vector<int64_t>& counts, int32_t fragments) {
  const auto total = static_cast<double>(std::max<int64_t>(std::accumulate(counts.begin(), counts.end(), int64_t{0}), 1));
  std::vector<int32_t> of(counts.size());
  double before = 0;
  int32_t last = -1, next = -1;  // as asked, without gaps
  for (size_t i = 0; i < counts.size(); ++i) {
    const double middle = before + static_cast<double>(counts[i]) / 2;
    const int32_t wanted = std::clamp(static_cast<int32_t>(middle / total * fragments), 0, fragments - 1);
    before += static_cast<double>(counts[i]);
    if (wanted != last) ++next;
    last = wanted;
    of[i] = next;
  }
  return of;
}

ddp_outer_options default_options() noexcept {
  ddp_outer_options options{};
  options.every = 100;
  options.rate = 0.7;
  options.momentum = 0.9;
  options.fragments = 1;
  options.nesterov = 1;
  options.bits = 32;
  options.error_feedback = 1;
  return options;
}

Outer::Outer(std::shared_ptr<model::Model> model, const ddp_outer_options& options)
    : model_(std::move(model)), options_(options) {
  check_options(options_);
  check_model(*model_);
  std::vector<int64_t> counts;
  for (const Parameter& parameter : model_->table().parameters()) counts.push_back(parameter.value.bytes());
  std::vector<std::vector<int32_t>> members;
  const std::vector<int32_t> of = divide(counts, options_.fragments);
  for (size_t i = 0; i < of.size(); ++i) {
    if (static_cast<size_t>(of[i]) == members.size()) members.emplace_back();
    members.back().push_back(static_cast<int32_t>(i));
  }
  for (auto& parameters : members) fragments_.emplace_back(model_->table(), std::move(parameters));
}

Outer::~Outer() { leave(); }

int64_t Outer::generation() const { return group::Recoverable::of(model_->group()).generation(); }

void Outer::leave() noexcept {
  for (Fragment& fragment : fragments_) fragment.disconnect();
  flights_.clear();
  if (group_ != nullptr) group_->close();
  group_.reset();
}

void Outer::require_usable(const char* function) const {
  model_->require_ready(function);
  model_->values().require_own(function);
  model_->values().require_whole(function);
  model_->group().check_idle(function);
  if (is_torn_ && generation_ == generation())
    throw make_error(DDP_ERROR_INVALID_STATE,
                     "%s: an exchange failed, so the ranks may hold different global values; recover the group, or load a "
                     "checkpoint with the outer optimizer",
                     function);
}

/// If it fails the group breaks, because the other ranks may have continued. This rank's own state stays consistent: a
/// fragment changes only after its exchange has succeeded.
template <class Body>
void Outer::change(const char* function, Body&& body) {
  require_usable(function);
  model::require_everybody(*model_, function);
  on_error<Error>(
      [&] {
        connect();
        body();
      },
      [&](const Error& error) {
        is_torn_ = true;
        model_->group().health().give_up(function, error);
      });
}

void Outer::connect() {
  if (group_ != nullptr && generation_ == generation()) return;
  leave();
  is_torn_ = false;
  exactness_->is_exact = false;  // a sync may have failed on some ranks and not on others
  ddp_group_options options = model_->group().options();
  options.nccl_comm = nullptr;
  options.recoverable = 0;
  options.join = 0;
  group_ = group::split_group(model_->group(), {0, model_->group().rank()}, options);
  for (Fragment& fragment : fragments_) fragment.connect(group_, options_, exactness_);
  generation_ = generation();
}

void Outer::begin(size_t fragment) {
  fragments_[fragment].begin();
  flights_.push_back({fragment, steps_});
}

void Outer::land(double keep) {
  Fragment& fragment = fragments_[flights_.front().fragment];
  flights_.pop_front();
  const int64_t begin = os::now_ns();
  fragment.end(options_, keep);
  wait_ns_ += os::now_ns() - begin;
  ++exchanges_;
  tell_others(fragment);
}

/// Master weights follow the parameters.
void Outer::tell_others(const Fragment& fragment) {
  std::vector<bool> changed(model_->table().parameters().size(), false);
  for (const int32_t index : fragment.parameters()) changed[static_cast<size_t>(index)] = true;
  for (const auto& state : model_->replicas().kept_equal())
    if (state.get() != this) state->follow_loaded_values(changed);
}

void Outer::step() {
  change(kStep, [&] {
    ++steps_;
    while (!flights_.empty() && flights_.front().begun + options_.overlap <= steps_) land(options_.keep);
    const auto count = static_cast<int32_t>(fragments_.size());
    for (int32_t i = 0; i < count; ++i)
      if (is_due(steps_, i, count, options_.every)) begin(static_cast<size_t>(i));
    while (!flights_.empty() && options_.overlap == 0) land(options_.keep);
  });
}

void Outer::sync() {
  change(kSync, [&] {
    while (!flights_.empty()) land(0);
    exactness_->is_exact = true;
    for (size_t i = 0; i < fragments_.size(); ++i) begin(i);
    while (!flights_.empty()) land(0);
    exactness_->is_exact = false;
  });
}

void Outer::fill(ddp_outer_stats& stats) const {
  stats.steps = steps_;
  stats.exchanges = exchanges_;
  stats.under_way = static_cast<int64_t>(flights_.size());
  for (const Fragment& fragment : fragments_) stats.sent_bytes += fragment.sent_bytes();
  stats.wait_ns = wait_ns_;
}

std::vector<model::StateTensor> Outer::state_tensors() {
  // The exchanges in progress went with the old group, or with a group that broke: a recovery asks before it is confirmed.
  const bool is_lost = group_ != nullptr && group_->health().has_fault();
  if (generation_ != 0 && (is_lost || generation_ != generation())) leave();
  if (!flights_.empty())
    throw Error(DDP_ERROR_INVALID_STATE,
                "exchanges of the outer optimizer are under way; call ddp_outer_sync before a checkpoint");
  std::vector<model::StateTensor> tensors;
  for (const Fragment& fragment : fragments_)
    for (size_t i = 0; i < fragment.parameters().size(); ++i) {
      const std::string& name = model_->table().parameter(fragment.parameters()[i]).name;
      tensors.push_back({name + ".global", fragment.global(i)});
      tensors.push_back({name + ".momentum", fragment.momentum(i)});
    }
  return tensors;
}

std::map<std::string, std::string> Outer::state_fields() const {
  return {{"steps", std::to_string(steps_)}, {"exchanges", std::to_string(exchanges_)}};
}

void Outer::load_fields(const std::map<std::string, std::string>& fields) {
  const int64_t steps = read_field(fields, "steps"), exchanges = read_field(fields, "exchanges");
  steps_ = steps;
  exchanges_ = exchanges;
  is_torn_ = false;
}

/// A model was loaded without the outer optimizer: it begins anew where the model is.
void Outer::follow_loaded_values(const std::vector<bool>&) {
  leave();
  for (Fragment& fragment : fragments_) fragment.begin_anew();
  is_torn_ = false;
}

}  // namespace ddp::outer
