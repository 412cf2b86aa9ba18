// SPDX-License-Identifier: Apache-2.0
/** @file
 * The mean over the ranks as an operation of XLA, for libddp.jax inside jit: gradients in, their mean out. Built where the
 * headers of jaxlib are found, which are all that it needs of JAX. XLA runs it on threads of its own, without the
 * interpreter.
 */
#include <ddp/experimental.h>

#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "xla/ffi/api/ffi.h"

namespace ffi = xla::ffi;

namespace {

struct Averager {
  ddp_model* model;
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

// Copies into the library's gradients, the last parameter first, and marks them: what is full travels meanwhile.
ddp_status send(ddp_model* model, ffi::RemainingArgs gradients, const std::map<std::int32_t, ddp_tensor>& places) {
  for (auto place = places.rbegin(); place != places.rend(); ++place) {
    const auto given = gradients.get<ffi::AnyBuffer>(static_cast<std::size_t>(place->first));
    std::memcpy(place->second.data, given->untyped_data(), given->size_bytes());
    const ddp_status status = ddp_model_mark_ready(model, place->first, nullptr);
    if (status != DDP_OK) return status;
  }
  return DDP_OK;
}

std::size_t bytes_of(const ddp_tensor& tensor) {
  static constexpr std::size_t kSizes[] = {0, 4, 8, 2, 2, 4, 8, 1, 8, 16};  // by ddp_dtype
  std::size_t count = kSizes[tensor.dtype];
  for (std::int32_t i = 0; i < tensor.ndim; ++i) count *= static_cast<std::size_t>(tensor.shape[i]);
  return count;
}

ffi::Error reduce(ddp_model* model, ffi::RemainingArgs gradients, ffi::RemainingRets means) {
  std::map<std::int32_t, ddp_tensor> places;
  for (std::size_t i = 0; i < means.size(); ++i) {
    const auto given = gradients.get<ffi::AnyBuffer>(i);
    if (!given.has_value()) return given.error();
    ddp_tensor& place = places[static_cast<std::int32_t>(i)];
    const ddp_status status = ddp_model_get_grad(model, static_cast<std::int32_t>(i), &place);
    if (status != DDP_OK) return failed(status);
    if (bytes_of(place) != given->size_bytes()) {
      return ffi::Error(ffi::ErrorCode::kInvalidArgument,
                        "the program was compiled for the parameters of another libddp.jax.DataParallel");
    }
  }
  ddp_status status = ddp_model_begin_backward(model, DDP_PASS_REDUCE);
  if (status != DDP_OK) return failed(status);
  status = send(model, gradients, places);
  if (status != DDP_OK) {
    const ffi::Error error = failed(status);
    (void)ddp_model_abandon_backward(model, "an average inside jit failed", nullptr);
    return error;
  }
  status = ddp_model_end_backward(model, nullptr);
  if (status != DDP_OK) return failed(status);
  for (const auto& [index, place] : places) {
    auto mean = means.get<ffi::AnyBuffer>(static_cast<std::size_t>(index));
    if (!mean.has_value()) return mean.error();
    std::memcpy((*mean)->untyped_data(), place.data, (*mean)->size_bytes());
  }
  return ffi::Error::Success();
}

// There may be more gradients than means: what only says in which order averages come is not looked at.
ffi::Error average(std::int64_t number, ffi::RemainingArgs gradients, ffi::RemainingRets means) {
  const std::shared_ptr<Averager> averager = find(number);
  if (averager == nullptr) {
    return ffi::Error(ffi::ErrorCode::kFailedPrecondition,
                      "the libddp.jax.DataParallel that this program was compiled for is gone");
  }
  const std::lock_guard<std::mutex> lock(averager->one_at_a_time);
  return reduce(averager->model, gradients, means);
}

}  // namespace

/** The operation, for jax.ffi.register_ffi_target. */
extern "C" DDP_API XLA_FFI_Error* ddp_xla_average(XLA_FFI_CallFrame* frame);
XLA_FFI_DEFINE_HANDLER_SYMBOL(ddp_xla_average, average,
                              ffi::Ffi::Bind().Attr<std::int64_t>("number").RemainingArgs().RemainingRets());

/** Make a model known: its number for compiled programs. */
extern "C" DDP_API std::int64_t ddp_xla_open(void* model) {
  const std::lock_guard<std::mutex> lock(averagers().mutex);
  auto averager = std::make_shared<Averager>();
  averager->model = static_cast<ddp_model*>(model);
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
