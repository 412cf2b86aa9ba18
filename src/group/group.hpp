// A group: ranks that act together. Owns the control plane, the data transport, the first cause of failure and the thread
// that watches. Collectives here are blocking and in order; a pass drives its buckets through its channel itself.
// Threads: one thread at a time, but for abort(), status() and the constants.
// Tested by conformance/.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/error.hpp"
#include "core/tensor.hpp"
#include "ddp/group.h"

namespace ddp::collective {
class Transport;
struct Stamp;
}  // namespace ddp::collective
namespace ddp::bootstrap {
class CallState;
class Control;
enum class UserCall : uint16_t;
}  // namespace ddp::bootstrap
namespace ddp::gpu {
class Device;
class Scratch;
}  // namespace ddp::gpu
namespace ddp::nccl {
class NcclTransport;
}  // namespace ddp::nccl

namespace ddp::group {

class Channels;

class Group {
 public:
  [[nodiscard]] static std::shared_ptr<Group> create(const char* rendezvous, const ddp_group_options& options);

  /// What a rank is besides its number.
  struct Origin {
    bool threads = false;  // ranks are threads of one process
    int32_t local_rank = 0;
  };
  /// Over a control plane that has all ranks. `function` is the public call, for error texts. Collective.
  [[nodiscard]] static std::shared_ptr<Group> form(std::unique_ptr<bootstrap::Control> control,
                                                   const ddp_group_options& options, const Origin& origin,
                                                   const char* function);
  ~Group();
  Group(const Group&) = delete;
  Group& operator=(const Group&) = delete;

  [[nodiscard]] int32_t rank() const noexcept;
  [[nodiscard]] int32_t size() const noexcept;
  [[nodiscard]] ddp_backend backend() const noexcept;
  /// "rank 3 (host b, pid 4711)"
  [[nodiscard]] std::string name_of(int32_t rank) const;

  void barrier();
  void all_reduce(const Tensor& tensor, ddp_reduce op, void* stream = nullptr);
  void reduce_metrics(const Tensor& values, ddp_reduce op);
  void all_gather(const Tensor& input, const Tensor& output, void* stream = nullptr);
  void reduce_scatter(const Tensor& input, const Tensor& output, ddp_reduce op, void* stream = nullptr);
  void broadcast(const Tensor& tensor, int32_t root, void* stream = nullptr);

  /// Sparse sums, see rows.hpp: returns the rows of the union, which get_rows() copies until the next call.
  int64_t all_reduce_rows(const Tensor& indices, const Tensor& rows, ddp_reduce op);
  void get_rows(const Tensor& indices, const Tensor& rows) const;

  /// Small exchange over the control plane (up to 8 MiB a rank): every rank's bytes in rank order. `what` names it in
  /// errors.
  [[nodiscard]] std::vector<std::string> gather(std::string_view what, std::string_view mine);

  /// All ranks learn whether all succeeded: pass this rank's error or NULL. If any rank failed, every rank throws the error
  /// of the lowest failing rank (its own status and text), of the lowest that lacks memory if one does. Collective.
  void agree(std::string_view what, const Error* mine);

  /// In the reach of the others: shared memory, or memory of the GPU in a group that was made for NCCL.
  [[nodiscard]] void* alloc(int64_t bytes);
  /// In shared memory, whatever the group was made for; or on the tensor's GPU if it lies on one.
  [[nodiscard]] void* alloc_beside(const Tensor& tensor, int64_t bytes);
  void free(void* data);

  /// Throws the first cause if the group is broken, INVALID_STATE if it was destroyed.
  void check_usable() const;
  /// As check_usable, but a rank that left in good order is no reason to refuse what needs no other rank.
  void check_no_fault() const;
  /// As check_usable, and INVALID_STATE if some rank only answers calls on the model of another owner.
  void check_open(const void* owner) const;
  /// As check_usable, and INVALID_STATE while a pass is open. First line of every collective.
  void check_idle(const char* function) const;

  void abort(const Error& cause) noexcept;
  /// Break the group because this rank cannot go on: the others learn who and why, and where if `function` is not NULL. Also
  /// without memory. Nothing happens in a group of one, or in one that is broken.
  void give_up(const char* function, const Error& why) noexcept;
  /// Leave; idempotent. Everything later throws INVALID_STATE.
  void close() noexcept;

  /// This rank's GPU, opened by the first who asks. Local. Throws NOT_SUPPORTED with what is missing.
  [[nodiscard]] const gpu::Device& gpu();
  /// Device memory that collective calls share, one after the other. Throws as gpu().
  [[nodiscard]] gpu::Scratch& gpu_scratch();
  /// Find out where the tensor lies: nothing to do in host memory, this rank's GPU otherwise. `what` names it in the error.
  /// Local. Throws NOT_SUPPORTED, INVALID_ARGUMENT (another GPU, or no GPU memory at all).
  void bind(Tensor& tensor, const char* what);
  /// What communicates on GPUs, made by the first who asks: collective then, if there are other ranks. Throws NOT_SUPPORTED
  /// on all of them.
  [[nodiscard]] nccl::NcclTransport& nccl_transport();
  /// NULL as long as nobody has asked.
  [[nodiscard]] nccl::NcclTransport* existing_nccl_transport() const noexcept;
  /// For the kernels that come next on this stream and change what must not be changed once the group is broken: their
  /// `stop` word, or NULL.
  [[nodiscard]] const uint32_t* gpu_stop(void* stream) const;

  /// Of the blocking calls.
  [[nodiscard]] collective::Transport& transport() noexcept;
  /// Of the models.
  [[nodiscard]] Channels& channels() noexcept;
  [[nodiscard]] bootstrap::Control& control() noexcept;
  /// A public collective call says here that it has begun, after its checks (CallState::In).
  [[nodiscard]] bootstrap::CallState& calls() noexcept;
  [[nodiscard]] const ddp_group_options& options() const noexcept;
  [[nodiscard]] const Origin& origin() const noexcept;

  /// A number for a model that all ranks have agreed on, from 1, so that two models that are built alike are not taken for
  /// one.
  [[nodiscard]] uint64_t next_model() noexcept;
  /// Some rank only answers calls on this owner's model: everything else is refused with this text, until it is empty again.
  void set_shadowing(const void* owner, std::string text);

  /// An error of a bucket: break the group for everybody if it is of that kind, and throw the first cause then.
  void fail(const Error& error);

  struct Impl;

 private:
  explicit Group(std::unique_ptr<Impl> impl);
  template <class Body>
  void run_collective(bootstrap::UserCall call, Body&& body);
  template <class Body>
  void run_on_tensors(bootstrap::UserCall call, const Tensor& tensor, const collective::Stamp& stamp, void* stream,
                      Body&& body);
  [[nodiscard]] void* alloc_in_host(int64_t bytes);
  std::unique_ptr<Impl> impl_;
};

}  // namespace ddp::group
