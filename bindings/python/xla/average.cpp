// SPDX-License-Identifier: Apache-2.0
/** @file
 * The mean over the ranks as an operation of XLA, for libddp.jax inside jit: gradients in, their mean out. Built where the
 * headers of jaxlib are found, which are all that it needs of JAX. XLA runs it on threads of its own, without the
 * interpreter. On a GPU the handler gives libddp the work in the order of XLA's stream, and waits for the hosts of the other
 * ranks but for no device. Each run talks to them, so it must not be recorded into a CUDA graph: it has no traits.
 */
#include <ddp/experimental.h>

#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "xla/ffi/api/ffi.h"

namespace ffi = xla::ffi;

namespace {

// Where a model's gradients are during a pass.
enum class Where {
  kLibrary = 0,  // in the library's memory, to which they are copied, and from which the means are copied
  kXla = 1       // in XLA's memory on a GPU, where they are reduced; between passes the addresses are those of the values
};

struct Averager {
  ddp_model* model;
  Where where;
  std::mutex one_at_a_time;
};

// By number, because a number may stand in a compiled program that outlives the model, or the process.
struct Averagers {
  std::mutex mutex;
  std::map<std::int64_t, std::shared_ptr<Averager>> known;
  std::int64_t next = 1;
};

Averagers& averagers() {
  static Averagers* all = new Averagers;  // never gone: threads of XLA may outlive main()
  return *all;
}

std::shared_ptr<Averager> find(std::int64_t number) {
  const std::lock_guard<std::mutex> lock(averagers().mutex);
  const auto found = averagers().known.find(number);
  return found == averagers().known.end() ? nullptr : found->second;
}

ffi::Error failed(ddp_status status) {
  return ffi::Error(ffi::ErrorCode::kInternal, std::string(ddp_status_name(status)) + ": " + ddp_last_error());
}

struct Gradient {
  const void* given;
  void* mean;  // the same memory, unless XLA had to copy
  std::size_t bytes;
  ddp_tensor home;  // what the model has between passes
};

// A pass over the gradients of one call.
class Call {
 public:
  Call(const Averager& averager, void* stream) : model_(averager.model), where_(averager.where), stream_(stream) {}
  ffi::Error collect(ffi::RemainingArgs gradients, ffi::RemainingRets means);
  ffi::Error reduce();

 private:
  ddp_status send(std::int32_t index);
  void take_back();

  ddp_model* model_;
  Where where_;
  void* stream_;
  std::vector<Gradient> gradients_;
};

std::size_t bytes_of(const ddp_tensor& tensor) {
  static constexpr std::size_t kSizes[] = {0, 4, 8, 2, 2, 4, 8, 1, 8, 16};  // by ddp_dtype
  std::size_t count = kSizes[tensor.dtype];
  for (std::int32_t i = 0; i < tensor.ndim; ++i) count *= static_cast<std::size_t>(tensor.shape[i]);
  return count;
}

// There may be more gradients than means: what only says in which order averages come is not looked at.
ffi::Error Call::collect(ffi::RemainingArgs gradients, ffi::RemainingRets means) {
  for (std::size_t i = 0; i < means.size(); ++i) {
    const auto given = gradients.get<ffi::AnyBuffer>(i);
    if (!given.has_value()) return given.error();
    auto mean = means.get<ffi::AnyBuffer>(i);
    if (!mean.has_value()) return mean.error();
    ddp_tensor place;
    const ddp_status status = ddp_model_get_grad(model_, static_cast<std::int32_t>(i), &place);
    if (status != DDP_OK) return failed(status);
    const std::size_t bytes = given->size_bytes();
    if (bytes_of(place) != bytes || (*mean)->size_bytes() != bytes)
      return ffi::Error(ffi::ErrorCode::kInvalidArgument,
                        "the program was compiled for the parameters of another libddp.jax.DataParallel");
    gradients_.push_back(Gradient{given->untyped_data(), (*mean)->untyped_data(), bytes, place});
    if (where_ == Where::kXla && bytes > 0 && gradients_.back().given != gradients_.back().mean)
      return ffi::Error(ffi::ErrorCode::kInternal, "XLA has not put the mean in the place of the gradient");
  }
  return ffi::Error::Success();
}

ddp_status Call::send(std::int32_t index) {
  const Gradient& gradient = gradients_[static_cast<std::size_t>(index)];
  ddp_status status = DDP_OK;
  if (gradient.bytes > 0 && where_ == Where::kXla) {
    ddp_tensor mean = gradient.home;
    mean.data = gradient.mean;
    status = ddp_model_set_grad(model_, index, &mean);
  }
  if (gradient.bytes > 0 && where_ == Where::kLibrary) std::memcpy(gradient.home.data, gradient.given, gradient.bytes);
  return status == DDP_OK ? ddp_model_mark_ready(model_, index, stream_) : status;
}

// The model forgets XLA's addresses: the work that needs them is enqueued.
void Call::take_back() {
  for (std::size_t i = 0; i < gradients_.size(); ++i)
    if (gradients_[i].bytes > 0) (void)ddp_model_set_grad(model_, static_cast<std::int32_t>(i), &gradients_[i].home);
}

// The last parameter first: what is full travels meanwhile.
ffi::Error Call::reduce() {
  ddp_status status = ddp_model_begin_backward(model_, DDP_PASS_REDUCE);
  if (status != DDP_OK) return failed(status);
  for (std::size_t left = gradients_.size(); left > 0 && status == DDP_OK; --left)
    status = send(static_cast<std::int32_t>(left - 1));
  ffi::Error error = ffi::Error::Success();
  if (status != DDP_OK) {
    error = failed(status);
    (void)ddp_model_abandon_backward(model_, "an average inside jit failed", stream_);
  } else if (status = ddp_model_end_backward(model_, stream_); status != DDP_OK) {
    error = failed(status);
  }
  if (where_ == Where::kXla) take_back();
  if (where_ == Where::kLibrary && error.success())
    for (const Gradient& gradient : gradients_)
      if (gradient.bytes > 0) std::memcpy(gradient.mean, gradient.home.data, gradient.bytes);
  return error;
}

ffi::Error average(Where where, void* stream, std::int64_t number, ffi::RemainingArgs gradients, ffi::RemainingRets means) {
  const std::shared_ptr<Averager> averager = find(number);
  if (averager == nullptr)
    return ffi::Error(ffi::ErrorCode::kFailedPrecondition,
                      "the libddp.jax.DataParallel that this program was compiled for is gone");
  if (averager->where != where)
    return ffi::Error(ffi::ErrorCode::kFailedPrecondition,
                      "the parameters given to libddp.jax.DataParallel were on a GPU and this program runs on the CPU, or "
                      "the other way round");
  const std::lock_guard<std::mutex> lock(averager->one_at_a_time);
  Call call(*averager, stream);
  const ffi::Error error = call.collect(gradients, means);
  return error.success() ? call.reduce() : error;
}

ffi::Error average_on_cpu(std::int64_t number, ffi::RemainingArgs gradients, ffi::RemainingRets means) {
  return average(Where::kLibrary, nullptr, number, gradients, means);
}

ffi::Error average_on_gpu(void* stream, std::int64_t number, ffi::RemainingArgs gradients, ffi::RemainingRets means) {
  return average(Where::kXla, stream, number, gradients, means);
}

}  // namespace

/** The operation on CPUs, for jax.ffi.register_ffi_target. */
extern "C" DDP_API XLA_FFI_Error* ddp_xla_average(XLA_FFI_CallFrame* frame);
XLA_FFI_DEFINE_HANDLER_SYMBOL(ddp_xla_average, average_on_cpu,
                              ffi::Ffi::Bind().Attr<std::int64_t>("number").RemainingArgs().RemainingRets());

/** The same on GPUs. */
extern "C" DDP_API XLA_FFI_Error* ddp_xla_average_cuda(XLA_FFI_CallFrame* frame);
XLA_FFI_DEFINE_HANDLER_SYMBOL(
    ddp_xla_average_cuda, average_on_gpu,
    ffi::Ffi::Bind().Ctx<ffi::PlatformStream<void*>>().Attr<std::int64_t>("number").RemainingArgs().RemainingRets());

/**
 * Make a model known: its number for compiled programs.
 * @param on_gpu 1: its parameters and gradients were lent on a GPU, and its gradients point to its values; they point to
 *        XLA's memory during a pass. 0: the library has its gradients, in host memory
 */
extern "C" DDP_API std::int64_t ddp_xla_open(void* model, std::int32_t on_gpu) {
  const std::lock_guard<std::mutex> lock(averagers().mutex);
  auto averager = std::make_shared<Averager>();
  averager->model = static_cast<ddp_model*>(model);
  averager->where = on_gpu != 0 ? Where::kXla : Where::kLibrary;
  averagers().known.emplace(averagers().next, std::move(averager));
  return averagers().next++;
}

/** Forget it; a pass that is under way ends first. */
extern "C" DDP_API void ddp_xla_close(std::int64_t number) {
  std::shared_ptr<Averager> gone = find(number);
  if (gone == nullptr) return;
  const std::lock_guard<std::mutex> pass(gone->one_at_a_time);
  const std::lock_guard<std::mutex> lock(averagers().mutex);
  averagers().known.erase(number);
}
