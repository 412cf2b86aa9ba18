// SPDX-License-Identifier: Apache-2.0
/** @file
 * LibTorch: distributed data parallel training of a torch::nn::Module, in one header over <ddp/ddp.hpp>.
 *
 *     ddp::Group group;
 *     Net module;                                             // a module holder, or a std::shared_ptr of a module
 *     ddp::torch::DistributedDataParallel net(group, module);
 *     ::torch::optim::SGD optimizer(net->parameters(), 0.1);
 *     ...
 *     loss_of(net(input), target).backward();                 // every rank has the mean of all ranks' gradients
 *     optimizer.step();
 *
 * Gradients lie in libddp's buckets: a parameter's grad() is a tensor of that memory, reduced without a copy, while the rest
 * of the backward pass still computes. It needs what LibTorch needs of a compiler; bindings/libtorch/README.md has the rest.
 */
#ifndef DDP_TORCH_HPP
#define DDP_TORCH_HPP

#include <c10/core/impl/VirtualGuardImpl.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/functions/accumulate_grad.h>
#include <torch/torch.h>

#include <ddp/ddp.hpp>
#include <tuple>

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
    if (pass_) give_up();
    if (!::at::GradMode::is_enabled() || !reduces_) return;
    check_places();
    if (options_.broadcast_buffers && module_.is_training() && has_buffers_ && ddp_group_size(model_.group()) > 1) {
      model_.sync_buffers(0, stream());
    }
  }

  /** Learn from the outputs when a backward pass begins, so that its end is known too. */
  void after_forward(const ::at::Tensor& output) {
    if (!output.defined() || !output.grad_fn()) return;
    output.register_hook([weak = weak_from_this()](const ::at::Tensor&) {
      if (const auto alive = weak.lock()) {
        const std::lock_guard<std::mutex> lock(alive->mutex_);
        alive->expect_end();
      }
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
    for (const auto& item : module_.named_parameters()) {
      const ::at::Tensor& parameter = item.value();
      keep(item.key(), parameter);
      if (parameter.requires_grad()) {
        model_.add_parameter(item.key(), lent(item.key(), parameter, false));
        parameters_.push_back(parameter);
      } else {
        model_.add_buffer(item.key(), lent(item.key(), parameter, true));
      }
    }
    for (const auto& item : module_.named_buffers()) {
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
      throw Error(DDP_ERROR_INVALID_STATE, ddp_group_rank(model_.group()),
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

  /** A gradient is complete. On the threads of autograd: one for each device. */
  void on_gradient(std::size_t index) {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (!pass_) {
      pass_.emplace(model_, reduces_ ? DDP_PASS_REDUCE : DDP_PASS_ACCUMULATE, stream());
      pass_->set_reason("an exception ended its backward pass");
      pass_reduces_ = reduces_;
      marked_.assign(parameters_.size(), false);
      expect_end();
    }
    attach(index);
    pass_->mark_ready(static_cast<int>(index), stream_of(grads_[index]));
    marked_[index] = true;
  }

  /** Have autograd call when this backward pass ends. */
  void expect_end() {
    if (!end_.expired()) return; /* it will; one that failed has let go of it */
    const auto token = std::make_shared<std::weak_ptr<Reducer>>(weak_from_this());
    end_ = token;
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
    end_.reset();
    if (!pass_) return; /* no gradient came */
    const bool marks_rest = pass_reduces_ && options_.find_unused_parameters;
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

  /** The last backward() ended with an exception: its pass is still open, and the other ranks wait. */
  void give_up() {
    const std::lock_guard<std::mutex> lock(mutex_);
    pass_.reset();
  }

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

  std::mutex mutex_; /* what follows, and marks */
  std::optional<Backward> pass_;
  bool pass_reduces_ = true;
  std::vector<bool> marked_;
  std::weak_ptr<void> end_;
};

}  // namespace detail

/**
 * A module whose gradients are reduced over the ranks of a group. `net(inputs...)` is the module's forward(); `net->` gives
 * the module itself, with its own names for parameters and checkpoints. The group outlives the wrapper.
 *
 * Made on all ranks; rank 0's parameters and buffers go to all. Throws ddp::Error: MISMATCH where modules differ,
 * NOT_SUPPORTED for tensors that libddp cannot read. An error of a pass comes out of backward(). One that leaves backward()
 * for another reason ends the pass on the other ranks when this rank calls forward() again, or ends.
 */
template <class Module>
class DistributedDataParallel {
 public:
  DistributedDataParallel(Group& group, std::shared_ptr<Module> module, Options options = {})
      : module_(std::move(module)), reducer_(std::make_shared<detail::Reducer>(group, *module_, std::move(options))) {
    reducer_->listen();
  }
  /** `Holder` is what TORCH_MODULE makes. */
  template <class Holder, class = typename Holder::ContainedType>
  DistributedDataParallel(Group& group, const Holder& module, Options options = {})
      : DistributedDataParallel(group, module.ptr(), std::move(options)) {}

  /** The module's forward(), with the arguments that it takes. */
  template <class... Inputs>
  auto forward(Inputs&&... inputs) {
    reducer_->before_forward();
    auto outputs = module_->forward(std::forward<Inputs>(inputs)...);
    if (::at::GradMode::is_enabled()) {
      detail::each_tensor(outputs, [this](const ::at::Tensor& output) { reducer_->after_forward(output); });
    }
    return outputs;
  }
  template <class... Inputs>
  auto operator()(Inputs&&... inputs) {
    return forward(std::forward<Inputs>(inputs)...);
  }

  Module* operator->() const noexcept { return module_.get(); }
  Module& operator*() const noexcept { return *module_; }
  const std::shared_ptr<Module>& module() const noexcept { return module_; }
  /** For ddp::Optimizer, ddp::Ema, ddp::State, stats() and check_replicas(). */
  Model& model() const noexcept { return reducer_->model(); }

  /** While it lives, backward() only adds to the gradients; the first one after it sends the whole. */
  class NoSync {
   public:
    explicit NoSync(DistributedDataParallel& net) : reducer_(net.reducer_), before_(net.reducer_->reduces()) {
      reducer_->reduces() = false;
    }
    ~NoSync() { reducer_->reduces() = before_; }
    NoSync(const NoSync&) = delete;
    NoSync& operator=(const NoSync&) = delete;

   private:
    std::shared_ptr<detail::Reducer> reducer_;
    bool before_;
  };
  /** `{ auto alone = net.no_sync(); ... backward(); }` */
  [[nodiscard]] NoSync no_sync() { return NoSync(*this); }

  /** How much this rank's gradients count from the next pass on; with the model option divisor = DDP_DIVISOR_WEIGHTS. */
  void set_weight(double weight) { model().checked(ddp_model_set_weight(model().get(), weight)); }

 private:
  std::shared_ptr<Module> module_;
  std::shared_ptr<detail::Reducer> reducer_;
};

template <class Module>
DistributedDataParallel(Group&, std::shared_ptr<Module>) -> DistributedDataParallel<Module>;
template <class Module>
DistributedDataParallel(Group&, std::shared_ptr<Module>, Options) -> DistributedDataParallel<Module>;
template <class Holder>
DistributedDataParallel(Group&, Holder) -> DistributedDataParallel<typename Holder::ContainedType>;
template <class Holder>
DistributedDataParallel(Group&, Holder, Options) -> DistributedDataParallel<typename Holder::ContainedType>;

}  // namespace torch
}  // namespace cpp17_v1
}  // namespace ddp

#endif
