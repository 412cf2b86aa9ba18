// SPDX-License-Identifier: Apache-2.0
/** @file
 * LibTorch: distributed data parallel training of a torch::nn::Module, in one header over <ddp/ddp.hpp>.
 *
 *     ddp::Group group;
 *     Net module;                                             // a module, a module holder, or a std::shared_ptr of a module
 *     ddp::torch::DistributedDataParallel net(group, module);
 *     ::torch::optim::SGD optimizer(net->parameters(), 0.1);
 *     ...
 *     loss_of(net(input), target).backward();                 // every rank has the mean of all ranks' gradients
 *     optimizer.step();
 *
 * Gradients are in libddp's buckets: a parameter's grad() is a tensor of that memory, reduced without a copy, while the rest
 * of the backward pass still computes. It needs what LibTorch needs of a compiler; bindings/libtorch/README.md has the rest.
 */
#ifndef DDP_TORCH_HPP
#define DDP_TORCH_HPP

#include <ddp/torch/reducer.hpp>

namespace ddp {
inline namespace cpp17_v1 {
namespace torch {

/**
 * A module whose gradients are reduced over the ranks of a group. `net(inputs...)` is the module's forward(); `net->` gives
 * the module itself, with its own names for parameters and checkpoints. The group outlives the wrapper.
 *
 * Made on all ranks; rank 0's parameters and buffers go to all. Throws ddp::Error: MISMATCH where modules differ,
 * NOT_SUPPORTED for tensors that libddp cannot read. An error of a pass comes out of backward(). One that leaves backward()
 * for another reason ends the pass on the other ranks when this rank calls forward() again, or ends; but not one that comes
 * before backward has reached an output of the module.
 *
 * A backward that comes through no output of the wrapper is not its own: a layer may be part of two wrapped modules, and
 * gradients are averaged by the wrapper whose forward() made the loss.
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

  /** A module that the program owns, on the stack for example; it outlives the wrapper. */
  DistributedDataParallel(Group& group, Module& module, Options options = {})
      : DistributedDataParallel(group, std::shared_ptr<Module>(std::shared_ptr<void>(), &module), std::move(options)) {}

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
template <class Module, class = std::enable_if_t<std::is_base_of_v<::torch::nn::Module, Module>>>
DistributedDataParallel(Group&, Module&) -> DistributedDataParallel<Module>;
template <class Module, class = std::enable_if_t<std::is_base_of_v<::torch::nn::Module, Module>>>
DistributedDataParallel(Group&, Module&, Options) -> DistributedDataParallel<Module>;
template <class Holder>
DistributedDataParallel(Group&, Holder) -> DistributedDataParallel<typename Holder::ContainedType>;
template <class Holder>
DistributedDataParallel(Group&, Holder, Options) -> DistributedDataParallel<typename Holder::ContainedType>;

}  // namespace torch
}  // namespace cpp17_v1
}  // namespace ddp

#endif
