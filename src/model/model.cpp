#include "model/model.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "bootstrap/control/call_state.hpp"
#include "collective/transport.hpp"
#include "core/hash.hpp"
#include "device/cpu/arrays.hpp"
#include "device/gpu/transfer.hpp"
#include "group/consensus.hpp"
#include "model/coalesced_broadcast.hpp"
#include "model/commit.hpp"
#include "model/gradient_walk.hpp"
#include "model/replicas.hpp"
#include "model/replicate.hpp"
#include "os/log.hpp"
#include "pass/block_update.hpp"
#include "pass/pass.hpp"

namespace ddp::model {
namespace {

void check_options(const ddp_model_options& options) {
  if (options.first_bucket_bytes < 1 || options.bucket_bytes < 1)
    throw make_error(DDP_ERROR_INVALID_ARGUMENT, "the bucket sizes are %lld and %lld bytes; they must be 1 or more",
                     static_cast<long long>(options.first_bucket_bytes), static_cast<long long>(options.bucket_bytes));
  if (options.reduce != DDP_AVERAGE && options.reduce != DDP_SUM)
    throw make_error(DDP_ERROR_INVALID_ARGUMENT, "reduce is %d; gradients are averaged (0) or summed (1)",
                     static_cast<int>(options.reduce));
  if (options.unused != DDP_UNUSED_ERROR && options.unused != DDP_UNUSED_ALLOW)
    throw make_error(DDP_ERROR_INVALID_ARGUMENT, "unused is %d; it is DDP_UNUSED_ERROR (0) or DDP_UNUSED_ALLOW (1)",
                     static_cast<int>(options.unused));
  if (options.divisor != DDP_DIVISOR_WORLD && options.divisor != DDP_DIVISOR_WEIGHTS)
    throw make_error(DDP_ERROR_INVALID_ARGUMENT, "divisor is %d; it is DDP_DIVISOR_WORLD (0) or DDP_DIVISOR_WEIGHTS (1)",
                     static_cast<int>(options.divisor));
  if (options.divisor == DDP_DIVISOR_WEIGHTS && options.reduce != DDP_AVERAGE)
    throw Error(DDP_ERROR_INVALID_ARGUMENT,
                "divisor is DDP_DIVISOR_WEIGHTS, but reduce is DDP_SUM, which divides by nothing");
  if (options.uneven_inputs != 0 && options.uneven_inputs != 1)
    throw make_error(DDP_ERROR_INVALID_ARGUMENT, "uneven_inputs is %d; it is 0 or 1",
                     static_cast<int>(options.uneven_inputs));
  if (options.progress < DDP_PROGRESS_AUTO || options.progress > DDP_PROGRESS_THREAD)
    throw make_error(DDP_ERROR_INVALID_ARGUMENT, "progress is %d; it is 0 to 2", static_cast<int>(options.progress));
  if (options.wire != cpu::ReduceRule::kAsItIs && options.wire != DDP_F16 && options.wire != DDP_BF16)
    throw make_error(DDP_ERROR_INVALID_ARGUMENT,
                     "wire is %d; gradients travel as they are (0), as DDP_F16 (3) or as DDP_BF16 (4)",
                     static_cast<int>(options.wire));
  if (options.check_every < 0)
    throw make_error(DDP_ERROR_INVALID_ARGUMENT, "check_every is %lld; it is 0 (never) or a number of passes",
                     static_cast<long long>(options.check_every));
  if (options.drift != DDP_DRIFT_REPORT && options.drift != DDP_DRIFT_RESEND)
    throw make_error(DDP_ERROR_INVALID_ARGUMENT, "drift is %d; it is DDP_DRIFT_REPORT (0) or DDP_DRIFT_RESEND (1)",
                     static_cast<int>(options.drift));
}

}  // namespace

Model::Model(std::shared_ptr<group::Group> group, const ddp_model_options& options)
    : group_(std::move(group)), options_(options) {
  check_options(options_);
  group_->check_usable();
  if (options_.wire != cpu::ReduceRule::kAsItIs) hook_ = pass::Hook::as_16_bits(options_.wire);
}

Model::~Model() {
  close();
  pass_.reset();  // before the memory it reduces
  for (void* memory : grad_memory_) group_->free(memory);
}

Model::Phase Model::phase() const noexcept {
  if (pass_ == nullptr) return Phase::kBuilding;
  return pass_->is_open() ? Phase::kOpen : Phase::kReady;
}

void Model::require_building(const char* function) const {
  require_live(function);
  if (pass_ != nullptr)
    throw make_error(DDP_ERROR_INVALID_STATE, "%s: the model is committed; tensors are registered before ddp_model_commit",
                     function);
}

void Model::require_live(const char* function) const {
  if (closed_) throw make_error(DDP_ERROR_INVALID_STATE, "%s: the model was destroyed", function);
}

void Model::require_ready(const char* function) const {
  require_no_pass(function);
  if (pass_ == nullptr)
    throw make_error(DDP_ERROR_INVALID_STATE, "%s: the model is not committed; call ddp_model_commit first", function);
}

void Model::require_committed(const char* function) const {
  require_live(function);
  if (pass_ == nullptr)
    throw make_error(DDP_ERROR_INVALID_STATE, "%s: the model is not committed; call ddp_model_commit first", function);
}

void Model::require_no_pass(const char* function) const {
  require_live(function);
  if (pass_ != nullptr && pass_->is_open())
    throw make_error(DDP_ERROR_INVALID_STATE, "%s: a backward pass is open; call ddp_model_end_backward first", function);
}

int32_t Model::add_parameter(std::string name, const Tensor& value, const Tensor* grad) {
  require_building("ddp_model_add_parameter");
  return table_.add_parameter(std::move(name), value, grad);
}

int32_t Model::add_buffer(std::string name, const Tensor& value) {
  require_building("ddp_model_add_buffer");
  return table_.add_buffer(std::move(name), value);
}

void Model::set_hook(pass::Hook hook) {
  require_building("ddp_model_set_hook");
  if (options_.wire != cpu::ReduceRule::kAsItIs)
    throw Error(
        DDP_ERROR_INVALID_STATE,
        "ddp_model_set_hook: the model has the option wire, which is for the plain reduction; leave it 0 with a hook");
  hook_ = std::move(hook);
}

void Model::commit(void* stream) {
  require_building("ddp_model_commit");
  group_->check_idle("ddp_model_commit");
  if (table_.parameters().empty())
    os::log(
        DDP_LOG_WARNING,
        "ddp_model_commit: the model has no parameters, so its passes reduce nothing; add them with ddp_model_add_parameter "
        "before ddp_model_commit");
  refuse_capture("ddp_model_commit", stream);
  const bootstrap::CallState::In inside(group_->calls(), bootstrap::UserCall::kCommit);
  if (options_.uneven_inputs != 0 && hook_.kind == pass::Hook::Kind::kPulled)
    throw Error(
        DDP_ERROR_NOT_SUPPORTED,
        "ddp_model_commit: a rank that has joined cannot pull buckets; use a hook that is called, or leave uneven_inputs 0");
  if (hook_.copies()) require_host_parameters();
  const uint64_t model_hash = agree_on_model(*group_, table_, options_, hook_.name);
  number_ = group_->next_model();
  if (has_gpu_tensors()) static_cast<void>(group_->nccl_transport());
  std::vector<PlanItem> items;
  for (const Parameter& parameter : table_.parameters())
    items.push_back(PlanItem{parameter.value.count, parameter.value.dtype, parameter.value.is_on_gpu()});
  const Oversized oversized = hook_.copies() ? Oversized::kWhole : Oversized::kSplit;
  Plan plan = plan_buckets(items, options_.first_bucket_bytes, options_.bucket_bytes, oversized);
  allocate_grads(plan);
  distribute_values(*group_, table_, 0, stream);
  distribute_loaded(stream);
  const uint64_t plan_hash = hash_plan(plan, model_hash) + number_;
  pass_ = std::make_unique<pass::Pass>(*group_, table_, options_, std::move(plan), plan_hash, hook_);
  pass_->attach(attached_);
}

bool Model::has_gpu_tensors() const noexcept {
  const auto has_streams = [](const auto& lent) { return !device::of(lent.value).is_immediate(); };
  return std::any_of(table_.parameters().begin(), table_.parameters().end(), has_streams) ||
         std::any_of(table_.buffers().begin(), table_.buffers().end(), has_streams);
}

/// Throws INVALID_STATE while the stream is captured into a graph.
void Model::refuse_capture(const char* function, void* stream) {
  if (has_gpu_tensors()) group_->gpu().refuse_capture(stream, function, "its working memory is shared with other calls");
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

/// What ranks have loaded with `local`: rank 0's state goes to every rank, as its values do.
void Model::distribute_loaded(void* stream) {
  bool any = false;
  for (const std::string& answer : group_->gather("loaded state", has_loaded_ ? "1" : "0")) any = any || answer == "1";
  if (any) replicate(*group_, "ddp_model_commit", {}, kept_equal(), 0, stream);
}

void Model::set_grad(int32_t index, void* data) {
  require_live("ddp_model_set_grad");
  Parameter& parameter = table_.parameter(index);
  const char* name = parameter.name.c_str();
  if (parameter.owned_grad)
    throw make_error(DDP_ERROR_INVALID_STATE,
                     "ddp_model_set_grad: libddp owns the gradient of \"%s\"; register it with a gradient of your own",
                     name);
  if (pass_ != nullptr && pass_->is_open() && pass_->is_marked(index))
    throw make_error(DDP_ERROR_INVALID_STATE, "ddp_model_set_grad: \"%s\" is marked already in this pass", name);
  Tensor moved = parameter.grad;
  moved.data = static_cast<std::byte*>(data);
  const ddp_tensor described = to_c(moved);
  const std::string what = "the gradient of parameter \"" + parameter.name + "\"";
  Tensor checked = checked_any_tensor(&described, what.c_str());
  group_->bind(checked, what.c_str());
  if (pass_ != nullptr && !pass_->set_address(index, moved.data))
    throw make_error(DDP_ERROR_INVALID_STATE,
                     "ddp_model_set_grad: the gradient of \"%s\" lies in ddp_group_alloc memory, where the other ranks "
                     "reach it; it cannot move",
                     name);
  parameter.grad.data = moved.data;
}

void Model::begin_backward(ddp_pass mode) {
  require_ready("ddp_model_begin_backward");
  if (mode < DDP_PASS_REDUCE || mode > DDP_PASS_LOCAL)
    throw make_error(
        DDP_ERROR_INVALID_ARGUMENT,
        "ddp_model_begin_backward: mode is %d; it is DDP_PASS_REDUCE (0), DDP_PASS_ACCUMULATE (1) or DDP_PASS_LOCAL (2)",
        static_cast<int>(mode));
  require_whole("ddp_model_begin_backward");
  if (const auto update = attached_.lock(); update != nullptr && mode == DDP_PASS_REDUCE && update->request().in_pass())
    require_own_values("ddp_model_begin_backward");
  if (mode == DDP_PASS_LOCAL && is_sharded())
    throw Error(DDP_ERROR_NOT_SUPPORTED,
                "ddp_model_begin_backward: DDP_PASS_LOCAL needs an optimizer that holds all of its state; with shard = 1 "
                "every rank has a part");
  pass_->begin(mode);
  mode_ = mode;
}

void Model::mark_ready(int32_t index, void* stream) { open_pass().mark_ready(index, stream); }
void Model::mark_range_ready(int32_t index, int64_t first, int64_t count, void* stream) {
  open_pass().mark_range_ready(index, first, count, stream);
}
void Model::mark_unused(int32_t index) { open_pass().mark_unused(index); }

void Model::end_backward(void* stream) {
  const bootstrap::CallState::In inside(group_->calls(), bootstrap::UserCall::kEndBackward);
  open_pass().end(stream);
  if (mode_ == DDP_PASS_REDUCE) check_drift_when_due(stream);
}

/// A rank that only answers passes makes no checks, and the others none while there is one.
void Model::check_drift_when_due(void* stream) {
  if (options_.check_every > 0 && pass_->meter().passes() % options_.check_every == 0 &&
      pass_->attendance().absent_rank() < 0)
    check_drift(stream);
}

void Model::check_drift(void* stream) {
  const bootstrap::CallState::Answering comparing(group_->calls(), bootstrap::UserCall::kCheck);
  ++checks_;
  const std::optional<Drift> drift = find_drift(*group_, table_, Compare::kParameters, stream);
  if (!drift) return;
  if (options_.drift == DDP_DRIFT_REPORT) throw_drift("ddp_model_end_backward", *drift);
  repair(*group_, "ddp_model_end_backward", table_, kept_equal(), *drift, stream);
  ++repairs_;
}

std::vector<std::shared_ptr<ReplicaState>> Model::kept_equal() {
  std::vector<std::shared_ptr<ReplicaState>> alive;
  const std::lock_guard lock(keeping_);
  for (const std::weak_ptr<ReplicaState>& each : kept_equal_)
    if (auto state = each.lock()) alive.push_back(std::move(state));
  return alive;
}

void Model::keep_equal(std::weak_ptr<ReplicaState> state) {
  const std::lock_guard lock(keeping_);
  std::erase_if(kept_equal_, [](const std::weak_ptr<ReplicaState>& each) { return each.expired(); });
  kept_equal_.push_back(std::move(state));
}

std::shared_ptr<pass::HookBucket> Model::next_bucket(bool rest) {
  require_pulled("ddp_model_next_bucket");
  const bootstrap::CallState::In inside(group_->calls(), bootstrap::UserCall::kNextBucket);
  return open_pass().next_bucket(rest);
}

void Model::finish_bucket(const std::optional<Error>& problem) {
  require_pulled("ddp_model_finish_bucket");
  const bootstrap::CallState::In inside(group_->calls(), bootstrap::UserCall::kFinishBucket);
  open_pass().finish_bucket(problem);
}

void Model::require_pulled(const char* function) const {
  require_live(function);
  if (hook_.kind != pass::Hook::Kind::kPulled)
    throw make_error(DDP_ERROR_INVALID_STATE,
                     "%s: the model's buckets are not pulled; call ddp_model_set_pulled_hook before ddp_model_commit",
                     function);
}

pass::Pass& Model::open_pass() const {
  if (pass_ == nullptr) throw Error(DDP_ERROR_INVALID_STATE, "the model is not committed; call ddp_model_commit first");
  return *pass_;
}

void Model::sync_buffers(int32_t root, void* stream) {
  require_ready("ddp_model_sync_buffers");
  if (root < 0 || root >= group_->size())
    throw make_error(DDP_ERROR_INVALID_ARGUMENT, "ddp_model_sync_buffers: root is %d; the group has the ranks 0 to %d", root,
                     group_->size() - 1);
  refuse_capture("ddp_model_sync_buffers", stream);
  if (options_.uneven_inputs != 0) return sync_buffers_with_joined(root, stream);
  group_->check_idle("ddp_model_sync_buffers");
  const bootstrap::CallState::In inside(group_->calls(), bootstrap::UserCall::kSyncBuffers, number_);
  send_buffers(root, stream);
}

void Model::send_buffers(int32_t root, void* stream) {
  std::vector<Tensor> tensors;
  int64_t bytes = 0;
  for (const Buffer& buffer : table_.buffers()) {
    tensors.push_back(buffer.value);
    bytes += buffer.value.bytes();
  }
  if (bytes == 0) group_->barrier();
  broadcast_coalesced(*group_, tensors, root, stream);
}

void Model::check_replicas(void* stream) {
  require_ready("ddp_model_check");
  group_->check_idle("ddp_model_check");
  refuse_capture("ddp_model_check", stream);
  const bootstrap::CallState::In inside(group_->calls(), bootstrap::UserCall::kCheck, number_);
  require_everybody("ddp_model_check");
  if (const std::optional<Drift> drift = find_drift(*group_, table_, Compare::kAll, stream))
    throw_drift("ddp_model_check", *drift);
}

uint64_t Model::content_hash() const {
  require_no_pass("ddp_model_get_hash");
  std::vector<Tensor> values;
  for (const Parameter& parameter : table_.parameters()) values.push_back(parameter.value);
  const gpu::Device* const device = gpu::device_of(values);
  if (device != nullptr) device->synchronize();
  gpu::Transfer transfer(device);
  Hasher hasher;
  for (const Parameter& parameter : table_.parameters()) {
    hasher.add(parameter.name.c_str(), parameter.name.size() + 1);
    transfer.read(parameter.value, 0, parameter.value.bytes(),
                  [&](const std::byte* data, int64_t bytes) { hasher.add(data, static_cast<size_t>(bytes)); });
  }
  return hasher.value();
}

bool Model::has_reduced() const noexcept { return pass_ != nullptr && pass_->results().has_reduced(); }

bool Model::was_used(int32_t index) const noexcept { return pass_ == nullptr || pass_->results().was_used(index); }

void Model::fill_stats(ddp_model_stats& stats) const {
  require_live("ddp_model_get_stats");
  if (pass_ == nullptr)
    throw Error(DDP_ERROR_INVALID_STATE, "ddp_model_get_stats: the model is not committed; call ddp_model_commit first");
  pass_->meter().fill(stats);
  stats.checks = checks_;
  stats.repairs = repairs_;
}

std::string Model::describe_plan() const {
  require_live("ddp_model_describe_plan");
  if (pass_ == nullptr)
    throw Error(DDP_ERROR_INVALID_STATE, "ddp_model_describe_plan: the model is not committed; call ddp_model_commit first");
  return pass_->describe_plan();
}

void Model::close() noexcept {
  if (closed_) return;
  closed_ = true;
  if (pass_ == nullptr || !pass_->is_open()) return;
  if (try_to([this] {
        group_->abort(
            Error(DDP_ERROR_ABORTED, group_->name_of(group_->rank()) + " destroyed a model during a backward pass"));
      }))
    group_->give_up(nullptr, Error());
  pass_->leave_open();
}

}  // namespace ddp::model
