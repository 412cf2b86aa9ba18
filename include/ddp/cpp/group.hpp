// SPDX-License-Identifier: Apache-2.0
/** @file
 * Groups: who acts together, collectives, memory within reach of the others, recovery.
 */
#ifndef DDP_CPP_GROUP_HPP
#define DDP_CPP_GROUP_HPP

#include <algorithm>
#include <optional>
#include <vector>

#include "ddp/cpp/tensor.hpp"

namespace ddp {
inline namespace cpp17_v1 {

/** Options of a group, with their defaults. */
using GroupOptions = Options<ddp_group_options, ddp_group_options_init>;
/** Options of a recovery, with their defaults. */
using RecoverOptions = Options<ddp_recover_options, ddp_recover_options_init>;
using TraceOptions = Options<ddp_trace_options, ddp_trace_options_init>;

/** Elements in memory of Group::alloc, within reach of the other ranks of the host. Ends before its group, and after the
 * models that use it. */
template <class T>
class Memory {
 public:
  Memory(ddp_group* group, std::int64_t count) : group_(group), count_(static_cast<std::size_t>(count)) {
    void* data = nullptr;
    check(ddp_group_alloc(group, count * static_cast<std::int64_t>(sizeof(T)), &data), group);
    data_ = static_cast<T*>(data);
  }
  ~Memory() {
    if (data_ != nullptr) (void)ddp_group_free(group_, data_);
  }
  Memory(Memory&& other) noexcept
      : group_(other.group_), data_(std::exchange(other.data_, nullptr)), count_(std::exchange(other.count_, 0)) {}
  Memory& operator=(Memory&& other) noexcept {
    std::swap(group_, other.group_), std::swap(data_, other.data_), std::swap(count_, other.count_);
    return *this;
  }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;

  T* data() const noexcept { return data_; }
  std::size_t size() const noexcept { return count_; }
  T* begin() const noexcept { return data_; }
  T* end() const noexcept { return data_ + count_; }
  T& operator[](std::size_t index) const { return data_[index]; }

 private:
  ddp_group* group_;
  T* data_ = nullptr;
  std::size_t count_;
};

/** Ranks that act together. Leaves the group at the end of its scope; an exception that ends the scope tells the others no
 * reason (abort() does). */
class Group {
 public:
  /** Meet the other ranks at the launcher's rendezvous; without a launcher: a group of one. As ddp_group_create. */
  Group() : Group("env://") {}
  explicit Group(const std::string& rendezvous) {
    ddp_group* made = nullptr;
    check(ddp_group_create(rendezvous.c_str(), nullptr, &made));
    handle_ = Handle<ddp_group, ddp_group_destroy>(made);
  }
  Group(const std::string& rendezvous, const ddp_group_options& options) {
    ddp_group* made = nullptr;
    check(ddp_group_create(rendezvous.c_str(), &options, &made));
    handle_ = Handle<ddp_group, ddp_group_destroy>(made);
  }
  /** Own what the C API made. */
  explicit Group(ddp_group* owned) : handle_(owned) {}

  ddp_group* get() const noexcept { return handle_.get(); }
  int rank() const noexcept { return ddp_group_get_rank(get()); }
  /** In this process, as in ddp_log_message. */
  std::int64_t number() const noexcept { return ddp_group_get_number(get()); }
  int size() const noexcept { return ddp_group_get_size(get()); }
  ddp_backend backend() const noexcept { return ddp_group_get_backend(get()); }
  /** Throws the first cause if the group is broken. */
  void check_status() const { check(ddp_group_status(get()), get()); }
  /** By rank: seconds that this rank waited because that rank was late. As ddp_group_get_waits. */
  std::vector<double> waits() const {
    std::int32_t count = 0;
    check(ddp_group_get_waits(get(), nullptr, 0, &count), get());
    std::vector<double> seconds(static_cast<std::size_t>(count));
    check(ddp_group_get_waits(get(), seconds.data(), count, &count), get());
    return seconds;
  }
  /** Record what all ranks do, until stop_trace() writes the file; rank 0's path counts. As ddp_group_start_trace. */
  void start_trace(const std::string& path, const TraceOptions& options = {}) {
    check(ddp_group_start_trace(get(), path.c_str(), &options), get());
  }
  void stop_trace() { check(ddp_group_stop_trace(get()), get()); }
  /** Show a number of the program to those who watch the job. Any thread. As ddp_group_log_metric. */
  void log_metric(const std::string& name, double value) { check(ddp_group_log_metric(get(), name.c_str(), value), get()); }
  void barrier() { check(ddp_group_barrier(get()), get()); }
  /** Break the group: pending and later calls of all ranks fail with ABORTED and this reason. Any thread. */
  void abort(const std::string& reason) { check(ddp_group_abort(get(), reason.c_str()), get()); }

  /** The ranks of a color as a group of their own; none for a rank with DDP_NO_COLOR. As ddp_group_split. */
  std::optional<Group> split(int color, int key = 0, const ddp_group_options* options = nullptr) {
    ddp_group* made = nullptr;
    check(ddp_group_split(get(), color, key, options, &made), get());
    return made == nullptr ? std::nullopt : std::optional<Group>(std::in_place, made);
  }

  void all_reduce(const Tensor& tensor, ddp_reduce op, void* stream = nullptr) {
    check(ddp_group_all_reduce(get(), &tensor, op, stream), get());
  }
  void all_gather(const Input& input, const Tensor& output, void* stream = nullptr) {
    check(ddp_group_all_gather(get(), input.get(), &output, stream), get());
  }
  void reduce_scatter(const Input& input, const Tensor& output, ddp_reduce op, void* stream = nullptr) {
    check(ddp_group_reduce_scatter(get(), input.get(), &output, op, stream), get());
  }
  void broadcast(const Tensor& tensor, int root = 0, void* stream = nullptr) {
    check(ddp_group_broadcast(get(), &tensor, root, stream), get());
  }
  /** To one other rank, which receives it with the same tag. As ddp_group_send; any thread. */
  void send(const Input& tensor, int peer, std::int64_t tag = 0, void* stream = nullptr) {
    check(ddp_group_send(get(), tensor.get(), peer, tag, stream), get());
  }
  /** Of one other rank, or DDP_ANY_SOURCE. Gives the rank that sent. As ddp_group_receive; any thread. */
  int receive(const Tensor& tensor, int source, std::int64_t tag = 0, void* stream = nullptr) {
    std::int32_t from = -1;
    check(ddp_group_receive(get(), &tensor, source, tag, &from, stream), get());
    return from;
  }
  /** `root` gets the bits of all_reduce; what the others have then is undefined. */
  void reduce(const Tensor& tensor, ddp_reduce op, int root = 0, void* stream = nullptr) {
    check(ddp_group_reduce(get(), &tensor, op, root, stream), get());
  }
  /** The inputs of all ranks, on `root`; on the others `output` is not looked at. */
  void gather(const Input& input, const Tensor& output, int root = 0, void* stream = nullptr) {
    check(ddp_group_gather(get(), input.get(), &output, root, stream), get());
  }
  void gather(const Input& input, std::nullptr_t, int root = 0, void* stream = nullptr) {
    check(ddp_group_gather(get(), input.get(), nullptr, root, stream), get());
  }
  /** To each rank its part of the input of `root`; on the others `input` is not looked at. */
  void scatter(const Input& input, const Tensor& output, int root = 0, void* stream = nullptr) {
    check(ddp_group_scatter(get(), input.get(), &output, root, stream), get());
  }
  void scatter(std::nullptr_t, const Tensor& output, int root = 0, void* stream = nullptr) {
    check(ddp_group_scatter(get(), nullptr, &output, root, stream), get());
  }
  /** To each rank a part, and one of each; counts by rank, or none for equal parts. */
  void all_to_all(const Input& input, const Tensor& output, Span<const std::int64_t> input_counts = {},
                  Span<const std::int64_t> output_counts = {}, void* stream = nullptr) {
    check(ddp_group_all_to_all(get(), input.get(), &output, counts(input_counts), counts(output_counts), stream), get());
  }
  /** The inputs of all ranks, of which rank r gives counts[r] elements. */
  void all_gather_counts(const Input& input, const Tensor& output, Span<const std::int64_t> counts_of_ranks,
                         void* stream = nullptr) {
    check(ddp_group_all_gather_counts(get(), input.get(), &output, counts(counts_of_ranks), stream), get());
  }
  /** A few numbers (loss, samples, right answers), reduced in place in one message. */
  void reduce_metrics(Span<double> values, ddp_reduce op = DDP_SUM) {
    check(ddp_group_reduce_metrics(get(), values.data(), static_cast<std::int64_t>(values.size()), op), get());
  }
  /** As reduce_metrics, with `count` numbers for each of this rank's parts; the first `count` become the result. */
  void reduce_part_metrics(Span<double> values, std::int64_t count, ddp_reduce op = DDP_SUM) {
    if (static_cast<std::int64_t>(values.size()) != count * virtual_ranks().count) {
      throw Error(DDP_ERROR_INVALID_ARGUMENT, rank(), "ddp::Group::reduce_part_metrics takes `count` numbers for each part");
    }
    check(ddp_group_reduce_part_metrics(get(), values.data(), count, op), get());
  }

  /** Zeroed memory within reach of the other ranks of the host: tensors in it are reduced in place. */
  template <class T>
  Memory<T> alloc(std::int64_t count) {
    return Memory<T>(get(), count);
  }

  /** Share memory of the program with the other ranks of the host, where it is: tensors in it are reduced in place. The
   * memory stays until unshare(), or the end of the group. Throws NOT_SUPPORTED with the reason if it stays private. */
  template <class T>
  void share(Span<T> memory) {
    check(ddp_group_share(get(), memory.data(), static_cast<std::int64_t>(memory.size() * sizeof(T))), get());
  }
  /** Make it private again, with its contents, after the models that use it. */
  template <class T>
  void unshare(Span<T> memory) {
    check(ddp_group_unshare(get(), memory.data()), get());
  }

  /** Which parts of the global batch are this rank's. Again after recover(). */
  ddp_virtual_ranks virtual_ranks() const {
    auto found = sized<ddp_virtual_ranks>();
    check(ddp_group_get_virtual_ranks(get(), &found), get());
    return found;
  }
  /** Ranks that broke the group. Before recover(). */
  std::vector<std::int32_t> failed() const { return ranks(ddp_group_get_failed); }
  /** Ranks, by their old numbers, that were lost in the last recovery. */
  std::vector<std::int32_t> gone() const { return ranks(ddp_group_get_gone); }
  /** Ranks (of now) that the last recovery took in. */
  std::vector<std::int32_t> joined() const { return ranks(ddp_group_get_joined); }
  /** By rank before the last recovery: its rank now, -1 if it was lost. */
  std::vector<std::int32_t> renumbered() const { return ranks(ddp_group_get_renumbered); }
  /** The last known position of a rank; ddp_call_name() returns the name of its call. */
  ddp_rank_progress progress(int rank_asked) const {
    auto found = sized<ddp_rank_progress>();
    check(ddp_group_get_progress(get(), rank_asked, &found), get());
    return found;
  }
  /** Continue with the surviving ranks. As ddp_group_recover. */
  ddp_recovery recover(const RecoverOptions& options = {}) {
    auto found = sized<ddp_recovery>();
    check(ddp_group_recover(get(), &options, &found), get());
    return found;
  }
  /** The program's own bytes of State::keep, if the group went back to that. After recover(). */
  std::vector<std::uint8_t> kept() const {
    std::int64_t bytes = 0;
    check(ddp_group_get_kept(get(), nullptr, 0, &bytes), get());
    std::vector<std::uint8_t> own(static_cast<std::size_t>(bytes));
    check(ddp_group_get_kept(get(), own.data(), bytes, &bytes), get());
    return own;
  }

 private:
  /** By rank; NULL if there are none. */
  const std::int64_t* counts(Span<const std::int64_t> given) const {
    if (given.empty()) return nullptr;
    if (static_cast<int>(given.size()) != size()) {
      throw Error(DDP_ERROR_INVALID_ARGUMENT, rank(), "one count for each rank is needed");
    }
    return given.data();
  }
  std::vector<std::int32_t> ranks(ddp_status (*ask)(const ddp_group*, std::int32_t*, std::int32_t, std::int32_t*)) const {
    std::int32_t count = 0;
    check(ask(get(), nullptr, 0, &count), get());
    std::vector<std::int32_t> found(static_cast<std::size_t>(count));
    check(ask(get(), found.data(), count, &count), get());
    found.resize(std::min(found.size(), static_cast<std::size_t>(count)));
    return found;
  }

  Handle<ddp_group, ddp_group_destroy> handle_;
};

/** A key for the random numbers of one part in one step. As ddp_virtual_rank_key. */
inline std::int64_t virtual_rank_key(std::int64_t seed, std::int64_t step, int virtual_rank) {
  std::int64_t key = 0;
  check(ddp_virtual_rank_key(seed, step, virtual_rank, &key));
  return key;
}

}  // namespace cpp17_v1
}  // namespace ddp

#endif
