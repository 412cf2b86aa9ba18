// SPDX-License-Identifier: Apache-2.0
// A group: ranks that act together. Owns the control plane, the data transport, the first cause of failure and the thread
// that watches. Collectives here are blocking and in order; a pass drives its buckets through its channel itself.
// Threads: one thread at a time, except for health() and the constants.
// Tested by conformance/.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "core/error.hpp"
#include "core/tensor.hpp"
#include "ddp/group.h"
#include "group/health.hpp"
#include "group/memory.hpp"
#include "group/request.hpp"

namespace ddp::bootstrap {
class CallState;
class Control;
enum class UserCall : uint16_t;
}  // namespace ddp::bootstrap
namespace ddp::collective {
class GpuSide;
}  // namespace ddp::collective
namespace ddp::group {

class Channels;
class Gpu;
class Recoverable;
class Survival;

class Group {
 public:
  [[nodiscard]] static std::shared_ptr<Group> create(const char* rendezvous, const ddp_group_options& options);

  /// What a rank is besides its number.
  struct Origin {
    bool threads = false;  // ranks are threads of one process
    int32_t local_rank = 0;
    int64_t number = 0;  // of the group in this process, for the log; form() takes that of the log's scope
  };
  /// Over a control plane that has all ranks. `function` is the public call, for error texts. Collective.
  [[nodiscard]] static std::shared_ptr<Group> form(std::unique_ptr<bootstrap::Control> control,
                                                   const ddp_group_options& options, const Origin& origin,
                                                   const char* function, std::shared_ptr<Survival> survival = nullptr);
  ~Group();
  Group(const Group&) = delete;
  Group& operator=(const Group&) = delete;

  [[nodiscard]] int32_t rank() const noexcept;
  [[nodiscard]] int32_t size() const noexcept;
  [[nodiscard]] ddp_backend backend() const noexcept;
  [[nodiscard]] const ddp_group_options& options() const noexcept;
  [[nodiscard]] const Origin& origin() const noexcept;
  /// "rank 3 (host b, pid 4711)"
  [[nodiscard]] std::string name_of(int32_t rank) const;

  // With `posting` they are posted, and their request goes there; without, they are made.
  void barrier(RequestPtr* posting = nullptr);
  void all_reduce(const Tensor& tensor, ddp_reduce op, void* stream = nullptr, RequestPtr* posting = nullptr);
  void all_gather(const Tensor& input, const Tensor& output, void* stream = nullptr, RequestPtr* posting = nullptr);
  void reduce_scatter(const Tensor& input, const Tensor& output, ddp_reduce op, void* stream = nullptr,
                      RequestPtr* posting = nullptr);
  void broadcast(const Tensor& tensor, int32_t root, void* stream = nullptr, RequestPtr* posting = nullptr);

  /// Sparse sums, see sparse_rows.hpp: returns the rows of the union, which get_rows() copies until the next call.
  int64_t all_reduce_rows(const Tensor& indices, const Tensor& rows, ddp_reduce op);
  void get_rows(const Tensor& indices, const Tensor& rows) const;

  /// Small exchange over the control plane (up to 8 MiB a rank): every rank's bytes in rank order. `what` names it in
  /// errors.
  [[nodiscard]] std::vector<std::string> gather(std::string_view what, std::string_view mine);

  /// As Health::check_usable, and INVALID_STATE while a pass is open or a rank only answers. First line of every collective.
  void check_idle(const char* function) const;
  /// Leave; idempotent. Everything later throws INVALID_STATE.
  void close() noexcept;

  [[nodiscard]] Health& health() const noexcept;
  [[nodiscard]] Gpu& gpu() const noexcept;
  /// What its transports do on GPUs.
  [[nodiscard]] collective::GpuSide& gpu_side() const noexcept;
  [[nodiscard]] Memory& memory() const noexcept;
  /// Of the models, and for the blocking calls.
  [[nodiscard]] Channels& channels() noexcept;
  [[nodiscard]] bootstrap::Control& control() noexcept;
  /// A public collective call records here that it has begun, after its checks (CallState::In).
  [[nodiscard]] bootstrap::CallState& calls() noexcept;

  struct Impl;

 private:
  friend struct Ending;
  friend struct Recovery;
  friend class Recoverable;
  explicit Group(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
  void (*at_end_)(Group&) noexcept = nullptr;  // Ending::begin_with
  std::mutex replacing_;                       // held while impl_ is replaced, and by threads that may use it at that time
};

}  // namespace ddp::group
