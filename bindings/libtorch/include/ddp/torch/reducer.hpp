// SPDX-License-Identifier: Apache-2.0
/** @file
 * What a wrapper of <ddp/torch.hpp> does with autograd: it lends a module's tensors, learns when a backward pass goes
 * through the module's outputs, marks each gradient that is complete, and ends the pass with it. Included by <ddp/torch.hpp>
 * alone.
 */
#ifndef DDP_TORCH_REDUCER_HPP
#define DDP_TORCH_REDUCER_HPP

#include <c10/core/impl/VirtualGuardImpl.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/functions/accumulate_grad.h>
#include <torch/torch.h>

#include <ddp/ddp.hpp>
#include <tuple>
#include <unordered_set>

namespace ddp {
inline namespace cpp17_v1 {
namespace torch {

/** How a module is trained. */
struct Options {
  bool broadcast_buffers = true;       /**< before each forward() of a module in training, rank 0's buffers go to all */
  bool find_unused_parameters = false; /**< parameters may get no gradient on some ranks, or on all; otherwise an error */
  ModelOptions model;                  /**< sizes of buckets, 16 bits on the wire, checks of the replicas, ... */
};

namespace detail {

/** libddp's element type; nothing where libddp has none. */
inline std::optional<ddp_dtype> dtype_of(::at::ScalarType type) {
  switch (type) {
    case ::at::kFloat: return DDP_F32;
    case ::at::kDouble: return DDP_F64;
    case ::at::kHalf: return DDP_F16;
    case ::at::kBFloat16: return DDP_BF16;
    case ::at::kInt: return DDP_I32;
    case ::at::kLong: return DDP_I64;
    case ::at::kByte: return DDP_U8;
    case ::at::kComplexFloat: return DDP_C64;
    case ::at::kComplexDouble: return DDP_C128;
    default: return std::nullopt;
  }
}

/** The stream on which LibTorch works on a tensor now; NULL in host memory. */
inline void* stream_of(const ::at::Tensor& tensor) {
  if (!tensor.is_cuda()) return nullptr;
  return ::c10::impl::VirtualGuardImpl(tensor.device().type()).getStream(tensor.device()).native_handle();
}

/** Describe a tensor of LibTorch. One whose element type libddp has not travels as bytes, if `as_bytes`. */
inline Tensor lent(const std::string& name, const ::at::Tensor& tensor, bool as_bytes) {
  const auto fail = [&](const char* why) { throw Error(DDP_ERROR_NOT_SUPPORTED, -1, "ddp::torch: '" + name + "' " + why); };
  if (tensor.layout() != ::at::kStrided || !tensor.is_contiguous())
    fail("is not contiguous: libddp reads dense, row-major tensors");
  if (!tensor.is_cpu() && !tensor.is_cuda()) fail("is neither in host memory nor on an NVIDIA GPU");
  const auto type = dtype_of(tensor.scalar_type());
  if (!type && !as_bytes) fail("has an element type that libddp cannot add");
  const std::int64_t bytes = tensor.numel() * static_cast<std::int64_t>(tensor.element_size());
  const auto sizes = tensor.sizes();
  Tensor found = type && sizes.size() <= DDP_MAX_DIMENSIONS
                     ? Tensor(tensor.data_ptr(), *type, Span<const std::int64_t>(sizes.data(), sizes.size()))
                     : Tensor(tensor.data_ptr(), type ? *type : DDP_U8, {type ? tensor.numel() : bytes});
  if (tensor.is_cuda()) found.device = DDP_CUDA, found.device_index = static_cast<std::int32_t>(tensor.device().index());
  return found;
}

/** Call `visit` for each tensor of what a forward computation gave. */
template <class Visit>
void each_tensor(const ::at::Tensor& tensor, const Visit& visit) {
  visit(tensor);
}
template <class T, class Visit>
void each_tensor(const std::vector<T>& several, const Visit& visit) {
  for (const auto& one : several) each_tensor(one, visit);
}
template <class... T, class Visit>
void each_tensor(const std::tuple<T...>& several, const Visit& visit) {
  std::apply([&](const auto&... one) { (each_tensor(one, visit), ...); }, several);
}
template <class First, class Second, class Visit>
void each_tensor(const std::pair<First, Second>& two, const Visit& visit) {
  each_tensor(two.first, visit), each_tensor(two.second, visit);
}
template <class Other, class Visit>
void each_tensor(const Other&, const Visit&) {} /* nothing that autograd knows */

/** A shared pointer of the kind that this LibTorch has. */
using Accumulator = decltype(::torch::autograd::impl::grad_accumulator(std::declval<const ::at::Tensor&>()));

/** What all wrappers share, whatever the module's type. Hooks on autograd hold it weakly. */
class Reducer : public std::enable_shared_from_this<Reducer> {
 public:
  Reducer(Group& group, ::torch::nn::Module& module, Options options)
      : options_(std::move(options)), module_(module), model_(group, with_unused(options_)) {
    lend();
    model_.commit(stream());
    for (std::size_t i = 0; i < parameters_.size(); ++i) grads_.push_back(view(static_cast<int>(i)));
  }
  ~Reducer() {
    for (std::size_t i = 0; i < hooks_.size(); ++i) accumulators_[i]->del_post_hook(hooks_[i]);
    for (std::size_t i = 0; i < grads_.size(); ++i) {
      if (is_mine(i)) parameters_[i].mutable_grad() = grads_[i].clone();
    }
  }
  Reducer(const Reducer&) = delete;
  Reducer& operator=(const Reducer&) = delete;

  /** Listen to autograd. After the constructor, which nobody can hold weakly yet. */
  void listen() {
    for (std::size_t i = 0; i < parameters_.size(); ++i) {
      accumulators_.push_back(::torch::autograd::impl::grad_accumulator(parameters_[i]));
      hooks_.push_back(accumulators_[i]->add_post_hook(std::make_unique<OnGradient>(weak_from_this(), i)));
    }
  }

  Model& model() noexcept { return model_; }
  /** Do passes reduce? */
  bool& reduces() noexcept { return reduces_; }

  void before_forward() {
    give_up();
    if (!::at::GradMode::is_enabled()) return;
    is_opaque_ = true;
    if (!reduces_) return;
    check_places();
    if (options_.broadcast_buffers && module_.is_training() && has_buffers_ && ddp_group_get_size(model_.group()) > 1) {
      model_.sync_buffers(0, stream());
    }
  }

  /** Learn from the outputs when a backward pass of this module begins. */
  void after_forward(const ::at::Tensor& output) {
    if (!output.defined() || !output.grad_fn()) return;
    is_opaque_ = false;
    output.register_hook([weak = weak_from_this()](const ::at::Tensor&) {
      if (const auto alive = weak.lock()) alive->on_output();
    });
  }

 private:
  class OnGradient : public ::torch::autograd::FunctionPostHook {
   public:
    OnGradient(std::weak_ptr<Reducer> reducer, std::size_t index) : reducer_(std::move(reducer)), index_(index) {}
    ::torch::autograd::variable_list operator()(const ::torch::autograd::variable_list& outputs,
                                                const ::torch::autograd::variable_list&) override {
      if (const auto alive = reducer_.lock()) alive->on_gradient(index_);
      return outputs;
    }

   private:
    std::weak_ptr<Reducer> reducer_;
    std::size_t index_;
  };

  static ModelOptions with_unused(const Options& options) {
    ModelOptions model = options.model;
    if (options.find_unused_parameters) model.unused = DDP_UNUSED_ALLOW;
    return model;
  }

  void lend() {
    std::unordered_set<const void*> lent_already; /* a layer that the module has twice is one */
    for (const auto& item : module_.named_parameters()) {
      const ::at::Tensor& parameter = item.value();
      if (!lent_already.insert(parameter.unsafeGetTensorImpl()).second) continue;
      keep(item.key(), parameter);
      if (parameter.requires_grad()) {
        model_.add_parameter(item.key(), lent(item.key(), parameter, false));
        parameters_.push_back(parameter);
      } else {
        model_.add_buffer(item.key(), lent(item.key(), parameter, true));
      }
    }
    for (const auto& item : module_.named_buffers()) {
      if (!lent_already.insert(item.value().unsafeGetTensorImpl()).second) continue;
      keep(item.key(), item.value());
      model_.add_buffer(item.key(), lent(item.key(), item.value(), true));
      has_buffers_ = true;
    }
  }
  void keep(const std::string& name, const ::at::Tensor& tensor) {
    tensors_.push_back({name, tensor, tensor.detach()}); /* the last one holds the memory, wherever the tensor moves */
  }
  void check_places() const {
    for (const auto& [name, tensor, memory] : tensors_) {
      if (tensor.data_ptr() == memory.data_ptr() && tensor.scalar_type() == memory.scalar_type()) continue;
      throw Error(DDP_ERROR_INVALID_STATE, ddp_group_get_rank(model_.group()),
                  "ddp::torch: '" + name + "' was moved or converted after the module was wrapped: wrap the module again");
    }
  }

  void* stream() const { return parameters_.empty() ? nullptr : stream_of(parameters_[0]); }

  /** The gradient of a parameter in its bucket, as a tensor that may outlive this object. */
  ::at::Tensor view(int index) const {
    const ::at::Tensor& parameter = parameters_[static_cast<std::size_t>(index)];
    void* data = model_.grad(index).data;
    if (data == nullptr || parameter.is_cuda() || ddp_memory_retain(data) != DDP_OK) {
      return ::torch::from_blob(data, parameter.sizes(), parameter.options().requires_grad(false));
    }
    const auto release = [](void* memory) { (void)ddp_memory_release(memory); };
    return ::torch::from_blob(data, parameter.sizes(), release, parameter.options().requires_grad(false));
  }
  bool is_mine(std::size_t index) const {
    const ::at::Tensor& grad = parameters_[index].grad();
    return grad.defined() && grad.layout() == ::at::kStrided && grad.data_ptr() == grads_[index].data_ptr();
  }

  /** A backward pass has come to an output of the module. */
  void on_output() {
    const std::lock_guard<std::mutex> lock(mutex_);
    expect_end();
    walk_.is_mine = true;
    for (const std::size_t index : std::exchange(walk_.early, {})) mark(index);
  }

  /** A gradient is complete. On the threads of autograd: one for each device. One that comes before an output may be of a
   * pass that only uses a parameter of this module, in another module: it waits for an output. */
  void on_gradient(std::size_t index) {
    const std::lock_guard<std::mutex> lock(mutex_);
    expect_end();
    if (walk_.is_mine || is_opaque_) {
      mark(index);
    } else {
      walk_.early.push_back(index);
    }
  }

  void mark(std::size_t index) {
    if (!pass_) open();
    attach(index);
    pass_->mark_ready(static_cast<int>(index), stream_of(grads_[index]));
    marked_[index] = true;
  }

  void open() {
    pass_.emplace(model_, walk_.reduces ? DDP_PASS_REDUCE : DDP_PASS_ACCUMULATE, stream());
    pass_->set_reason("an exception ended its backward pass");
    marked_.assign(parameters_.size(), false);
  }

  /** Have autograd call when this backward pass ends. */
  void expect_end() {
    if (!walk_.end.expired()) return; /* it will; one that failed has let go of it */
    const auto token = std::make_shared<std::weak_ptr<Reducer>>(weak_from_this());
    walk_ = {token, false, pass_ ? walk_.reduces : reduces_, {}};
    ::torch::autograd::Engine::get_default_engine().queue_callback([token] {
      if (const auto alive = token->lock()) alive->finish();
    });
  }

  /** Make the parameter's grad() the bucket's memory. After zero_grad() autograd made a tensor of its own, which is copied.
   */
  void attach(std::size_t index) {
    const ::at::NoGradGuard no_grad;
    ::at::Tensor& given = parameters_[index].mutable_grad();
    if (!given.defined() || is_mine(index)) return;
    grads_[index].copy_(given.layout() == ::at::kStrided ? given : given.to_dense());
    if (given.is_cuda()) given.record_stream(::c10::impl::VirtualGuardImpl(given.device().type()).getStream(given.device()));
    given = grads_[index];
  }

  void finish() {
    const std::lock_guard<std::mutex> lock(mutex_);
    walk_.end.reset();
    walk_.is_mine = false;
    if (!pass_) return; /* no gradient came */
    const bool marks_rest = walk_.reduces && options_.find_unused_parameters;
    for (std::size_t i = 0; marks_rest && i < marked_.size(); ++i) {
      if (marked_[i]) continue;
      const ::at::NoGradGuard no_grad;
      if (parameters_[i].grad().defined()) {
        attach(i);
      } else {
        grads_[i].zero_();
      }
      pass_->mark_unused(static_cast<int>(i));
    }
    try {
      pass_->end();
    } catch (...) {
      pass_.reset();
      throw;
    }
    pass_.reset();
    for (std::size_t i = 0; marks_rest && i < marked_.size(); ++i) {
      if (!parameters_[i].grad().defined() && model_.was_used(static_cast<int>(i)))
        parameters_[i].mutable_grad() = grads_[i];
    }
  }

  /** If the last backward() ended with an exception, the other ranks wait in its pass, which may not be open here yet. */
  void give_up() {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (!pass_ && !walk_.end.expired()) return; /* forward() within backward() */
    if (!pass_ && walk_.is_mine && walk_.reduces) open();
    walk_.is_mine = false;
    pass_.reset();
  }

  /** What is known of a walk of autograd through its graph. */
  struct Walk {
    std::weak_ptr<void> end; /* expired: it has ended, or failed */
    bool is_mine = false;    /* it has come through an output of the module */
    bool reduces = true;
    std::vector<std::size_t> early; /* gradients that came before an output */
  };

  struct Place {
    std::string name;
    ::at::Tensor tensor, memory;
  };

  Options options_;
  ::torch::nn::Module& module_;
  std::vector<Place> tensors_;
  Model model_;
  std::vector<::at::Tensor> parameters_, grads_;
  std::vector<Accumulator> accumulators_; /* they live as long as somebody holds them */
  std::vector<std::uintptr_t> hooks_;
  bool has_buffers_ = false;
  bool reduces_ = true;
  bool is_opaque_ = false; /* the last forward() gave a type of the program's, whose tensors are not seen */

  std::mutex mutex_; /* what follows, and marks */
  std::optional<Backward> pass_;
  std::vector<bool> marked_;
  Walk walk_;
};

}  // namespace detail

}  // namespace torch
}  // namespace cpp17_v1
}  // namespace ddp

#endif
