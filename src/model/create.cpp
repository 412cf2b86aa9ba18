// SPDX-License-Identifier: Apache-2.0
// How a model is made and ends, and its commit: the ranks agree on the model, and the passes are made.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "control/call_state.hpp"
#include "core/attempt.hpp"
#include "core/description.hpp"
#include "device/device.hpp"
#include "exchange/gpu_side.hpp"
#include "group/channels.hpp"
#include "group/consensus.hpp"
#include "group/recoverable.hpp"
#include "model/commit.hpp"
#include "model/flat_memory.hpp"
#include "model/gradients.hpp"
#include "model/late_values.hpp"
#include "model/model.hpp"
#include "model/optimizer_slot.hpp"
#include "model/rejoin.hpp"
#include "model/reopened.hpp"
#include "model/replicas.hpp"
#include "model/requirements.hpp"
#include "os/log.hpp"
#include "parts/model_pass.hpp"

namespace ddp::model {
namespace {

/// "ddp-client, ddp-server": the threads of the library in this process; "" if there are none, or /proc cannot be read.
std::string threads_here() {
  std::vector<std::string> names;
  std::error_code ignored;
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task", ignored)) {
    std::ifstream file(task.path() / "comm");
    std::string name;
    if (std::getline(file, name) && name.starts_with("ddp-")) names.push_back(name);
  }
  std::sort(names.begin(), names.end());
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "" : ", ") + name;
  return text;
}

void check_options(const ddp_model_options& options) {
  if (options.first_bucket_bytes < 1 || options.bucket_bytes < 0)
    throw make_error(
        DDP_ERROR_INVALID_ARGUMENT,
        "the bucket sizes are %lld and %lld bytes; the first must be 1 or more, and bucket_bytes 0 (the default) "
        "or more",
        static_cast<long long>(options.first_bucket_bytes), static_cast<long long>(options.bucket_bytes));
  struct Choice {
    const char* name;
    int64_t value;
    int64_t most;  // the least is 0
    const char* choices;
  };
  const Choice table[] = {
      {"own_values", options.own_values, 1, "it is 0 or 1"},
      {"reduce", options.reduce, DDP_SUM, "gradients are averaged (0) or summed (1)"},
      {"unused", options.unused, DDP_UNUSED_ALLOW, "it is DDP_UNUSED_ERROR (0) or DDP_UNUSED_ALLOW (1)"},
      {"divisor", options.divisor, DDP_DIVISOR_WEIGHTS, "it is DDP_DIVISOR_WORLD (0) or DDP_DIVISOR_WEIGHTS (1)"},
      {"uneven_inputs", options.uneven_inputs, 1, "it is 0 or 1"},
      {"progress", options.progress, DDP_PROGRESS_THREAD, "it is 0 to 2"},
      {"check_every", options.check_every, INT64_MAX, "it is 0 (never) or a number of passes"},
      {"drift", options.drift, DDP_DRIFT_RESEND, "it is DDP_DRIFT_REPORT (0) or DDP_DRIFT_RESEND (1)"},
  };
  for (const Choice& choice : table)
    if (choice.value < 0 || choice.value > choice.most)
      throw make_error(DDP_ERROR_INVALID_ARGUMENT, "%s is %lld; %s", choice.name, static_cast<long long>(choice.value),
                       choice.choices);
  if (options.divisor == DDP_DIVISOR_WEIGHTS && options.reduce != DDP_AVERAGE)
    throw Error(DDP_ERROR_INVALID_ARGUMENT,
                "divisor is DDP_DIVISOR_WEIGHTS, but reduce is DDP_SUM, which divides by nothing");
  if (options.wire != cpu::ReduceRule::kAsItIs && options.wire != DDP_F16 && options.wire != DDP_BF16 &&
      options.wire != DDP_F32)
    throw make_error(DDP_ERROR_INVALID_ARGUMENT,
                     "wire is %d; gradients travel as they are (0), as DDP_F32 (1), as DDP_F16 (3) or as DDP_BF16 (4)",
                     static_cast<int>(options.wire));
}

/// Of the blocks of memory, one for each bucket.
uint64_t layout_of(const Plan& plan) {
  uint64_t layout = hash_plan(plan, 0);
  for (const PlannedBucket& bucket : plan) layout = hash_plan({}, layout ^ static_cast<uint64_t>(bucket.count));
  return layout;
}

/// The pieces of a plan, which name positions in `present`, name parameters from now on.
void name_parameters(Plan& plan, const std::vector<int32_t>& present) noexcept {
  for (PlannedBucket& bucket : plan)
    for (PlannedPiece& piece : bucket.pieces) piece.parameter = present[static_cast<size_t>(piece.parameter)];
}

void say_plan(const Parameters& table, const Plan& plan) {
  if (!os::log_enabled(DDP_LOG_DEBUG)) return;
  os::log(DDP_LOG_DEBUG, "the model: %d parameters in %zu buckets", table.parameter_count(), plan.size());
  const auto name = [&](const PlannedPiece& piece) { return table.parameter(piece.parameter).name.c_str(); };
  for (size_t bucket = 0; bucket < plan.size(); ++bucket)
    os::log(DDP_LOG_DEBUG, "bucket %zu: %lld bytes of %s%s, %zu gradients from \"%.200s\" to \"%.200s\"", bucket,
            static_cast<long long>(plan[bucket].count * dtype_size(plan[bucket].dtype)), dtype_name(plan[bucket].dtype),
            plan[bucket].on_gpu ? " on a GPU" : "", plan[bucket].pieces.size(), name(plan[bucket].pieces.front()),
            name(plan[bucket].pieces.back()));
}

}  // namespace

Model::Model(std::shared_ptr<group::Group> group, const ddp_model_options& options)
    : group_(std::move(group)), options_(options) {
  memory_.blocks = std::make_unique<ModelMemory>(*group_);
  held_ = {std::make_unique<Gradients>(*this, table_), std::make_unique<Replicas>(*this),
           std::make_unique<OptimizerSlot>(*this)};
  after_reduction_ = [this](void* stream) { held_.replicas->check_after_pass(stream); };
  check_options(options_);
  group_->health().check_usable();
  if (options_.wire != cpu::ReduceRule::kAsItIs) hook_ = parts::Hook::sent_as(options_.wire);
}

Model::~Model() { close(); }

void Model::close() noexcept {
  if (closed_) return;
  closed_ = true;
  rejoin_.reset();
  end_values(*this);
  if (!is_committed() || !passes_.pass->is_open()) return;
  if (try_to([this] {
        group_->health().abort(
            Error(DDP_ERROR_ABORTED, group_->name_of(group_->rank()) + " destroyed a model during a backward pass")
                .with({.ranks = {group_->rank()}}));
      }))
    group_->health().give_up(nullptr, Error());
  passes_.pass->leave_open();
}

void Model::commit(void* stream) {
  if (rejoin_ != nullptr && rejoin_->take_commit()) return;
  require_live("ddp_model_commit");
  if (is_committed())
    throw make_error(
        DDP_ERROR_INVALID_STATE,
        "ddp_model_commit: the model is already committed; ddp_model_reopen lets it grow, before it is committed "
        "again");
  // A rank that broke off in ddp_model_reopen may have the model as it was: a recovery builds what all are committing.
  if (rejoin_ == nullptr && held_.replicas->reopened() == nullptr) rejoin_ = Rejoin::follow(*this);
  on_error<Error>([&] { commit_now(stream); },
                  [this](const Error& error) {
                    if (!breaks_group(error.status()) && !is_committed()) rejoin_.reset();
                  });
}

void Model::commit_now(void* stream) {
  group_->check_idle("ddp_model_commit");
  if (table_.parameters().empty())
    os::log(
        DDP_LOG_WARNING,
        "ddp_model_commit: the model has no parameters, so its passes reduce nothing; add them with ddp_model_add_parameter "
        "before ddp_model_commit");
  refuse_capture(*this, "ddp_model_commit", stream);
  const bootstrap::CallState::In inside(group_->calls(), bootstrap::UserCall::kCommit);
  if (options_.uneven_inputs != 0 && hook_.kind == parts::Hook::Kind::kPulled)
    throw Error(
        DDP_ERROR_NOT_SUPPORTED,
        "ddp_model_commit: a rank that has joined cannot pull buckets; use a hook that is called, or leave uneven_inputs 0");
  if (hook_.copies()) require_host_parameters();
  if (group_->options().virtual_ranks > 0) refuse_virtual_ranks(*this);
  on_error(
      [&] { static_cast<void>(join_group(stream)); },
      [this](const Error& error) { group::Recoverable::of(*group_).excuse(group_->control(), group_->options(), error); });
  if (rejoin_ != nullptr) rejoin_->note_commit();
  if (os::log_enabled(DDP_LOG_DEBUG))
    os::log(DDP_LOG_DEBUG, "the threads of libddp in this process: %s", threads_here().c_str());
  if (const std::optional<Error> difference = held_.replicas->take_difference()) throw Error(*difference);
}

int32_t Model::join_group(void* stream) {
  std::vector<std::string> more = describe_buckets(buckets_);
  for (std::string& line : held_.optimizers->describe()) more.push_back(std::move(line));
  const uint64_t model_hash = agree_on_model(*group_, table_, options_, hook_.name, std::move(more));
  if (rejoin_ == nullptr) rejoin_ = Rejoin::follow(*this);  // all ranks are in the commit
  number_ = group_->channels().next_model();
  if (has_gpu_tensors(table_)) group_->gpu_side().connect();
  const std::vector<int32_t> present = table_.present();
  Plan plan = this->plan(present, true);
  const uint64_t plan_hash = hash_plan(plan, model_hash) + number_;  // of positions
  name_parameters(plan, present);
  if (group_->rank() == 0) say_plan(table_, plan);
  allocate(plan, stream);
  const int32_t source = held_.replicas->make_equal(stream);
  const auto made = std::make_shared<parts::ModelPass>(*group_, table_, options_, std::move(plan), plan_hash, hook_);
  passes_ = {made.get(), &made->parts(), made};
  on_error(
      [&] {
        held_.optimizers->attach_all();
        made->results().go_on_from(held_.replicas->final_passes());
        Reopened::finish(*this);
      },
      [&](const Error&) { passes_ = {}; });  // it is building as before
  return source;
}

Plan Model::plan(const std::vector<int32_t>& present, bool all) const {
  std::vector<PlanItem> items = plan_items(table_, present);
  if (all) held_.optimizers->number(items);
  if (all && !buckets_.empty()) return plan_given_buckets(buckets_, items, group_->size());
  const Oversized oversized = hook_.copies() ? Oversized::kWhole : Oversized::kSplit;
  return plan_buckets(items, limits_of(options_.first_bucket_bytes, options_.bucket_bytes, group_->size(), items, oversized),
                      oversized);
}

/// The memory stays where it is; what was added since has memory of its own. On a GPU a bucket is reduced in one block,
/// which is laid out for a number of ranks; where the ranks are others, it goes through a copy.
void Model::look_at_layout(const Plan& plan) {
  const bool replanned = memory_.layout == 0 || memory_.layout != layout_of(plan);
  for (int32_t index = 0; index < table_.parameter_count(); ++index)
    if (Parameter& parameter = table_.parameter(index); parameter.value.is_on_gpu()) parameter.replanned = replanned;
}

void Model::allocate(const Plan& plan, void* stream) {
  const auto values = options_.own_values != 0 ? ModelMemory::Values::kOwn : ModelMemory::Values::kOfProgram;
  if (memory_.parameters < 0) {
    memory_.blocks->add_missing(table_, plan, values, stream);
    memory_.layout = layout_of(plan);
  } else {  // ranks that are new may lack memory for theirs
    const std::vector<int32_t> added = added_since(memory_.parameters);
    Plan own = this->plan(added, false);
    name_parameters(own, added);
    memory_.blocks->add_missing(table_, own, values, stream);
    if (!added.empty()) memory_.layout = 0;
    look_at_layout(plan);
  }
  memory_.parameters = table_.parameter_count();
}

std::vector<int32_t> Model::added_since(int32_t first) const {
  std::vector<int32_t> added = table_.present();
  std::erase_if(added, [first](int32_t index) { return index < first; });
  return added;
}

/// Throws NOT_SUPPORTED unless all parameters are in host memory.
void Model::require_host_parameters() const {
  for (const Parameter& parameter : table_.parameters())
    if (!device::of(parameter.value).is_immediate())
      throw make_error(DDP_ERROR_NOT_SUPPORTED,
                       "ddp_model_commit: parameter \"%s\" is on a GPU, where the hook \"%s\" cannot work; take none, "
                       "or the model option wire, which can",
                       parameter.name.c_str(), hook_.name.c_str());
}

}  // namespace ddp::model
