// SPDX-License-Identifier: Apache-2.0
/** @file
 * Requests: collectives and messages that return at once. As ddp/request.h.
 */
#ifndef DDP_CPP_REQUEST_HPP
#define DDP_CPP_REQUEST_HPP

#include <chrono>
#include <optional>
#include <vector>

#include "ddp/cpp/group.hpp"

namespace ddp {
inline namespace cpp17_v1 {

/** A call that was posted. Its tensors belong to it until it has ended. The destructor withdraws a receive for which nothing
 * has come, and waits for any other request. */
class Request {
 public:
  explicit Request(ddp_request* owned) : handle_(owned) {}

  ddp_request* get() const noexcept { return handle_.get(); }
  /** Has it ended well? Never waits. */
  bool test() const {
    std::int32_t done = 0;
    check(ddp_request_test(get(), &done));
    return done != 0;
  }
  void wait() const { check(ddp_request_wait(get(), -1, nullptr)); }
  /** False: the time is over, and it has not ended. */
  bool wait_for(std::chrono::milliseconds time) const {
    std::int32_t done = 0;
    check(ddp_request_wait(get(), time.count() < 0 ? 0 : static_cast<std::int64_t>(time.count()), &done));
    return done != 0;
  }
  /** The rank that sent what a receive got; -1 until then. */
  int source() const noexcept { return ddp_request_get_source(get()); }

 private:
  Handle<ddp_request, ddp_request_destroy> handle_;
};

/** The place of the first of these that has ended; none: the time is over. Without a time it waits until there is one. */
inline std::optional<std::size_t> wait_any(Span<const Request* const> requests,
                                           std::optional<std::chrono::milliseconds> time = std::nullopt) {
  std::vector<std::int64_t> ids;
  for (std::size_t at = 0; at < requests.size(); ++at) ids.push_back(ddp_request_get_id(requests.data()[at]->get()));
  std::int32_t index = -1;
  const std::int64_t limit = time ? static_cast<std::int64_t>(time->count()) : -1;
  check(ddp_request_wait_any(ids.data(), static_cast<std::int32_t>(ids.size()), limit, &index));
  return index < 0 ? std::nullopt : std::optional<std::size_t>(static_cast<std::size_t>(index));
}

namespace detail {

template <class Post>
Request posted(const Group& group, Post&& post) {
  ddp_request* made = nullptr;
  check(post(group.get(), &made), group.get());
  return Request(made);
}

inline const std::int64_t* counts_of(Span<const std::int64_t> counts) {
  return counts.size() == 0 ? nullptr : counts.data();
}

}  // namespace detail

inline Request post_barrier(const Group& group) {
  return detail::posted(group, [&](ddp_group* g, ddp_request** out) { return ddp_group_post_barrier(g, out); });
}
inline Request post_all_reduce(const Group& group, const Tensor& tensor, ddp_reduce op, void* stream = nullptr) {
  return detail::posted(
      group, [&](ddp_group* g, ddp_request** out) { return ddp_group_post_all_reduce(g, &tensor, op, out, stream); });
}
inline Request post_all_gather(const Group& group, const Input& input, const Tensor& output, void* stream = nullptr) {
  return detail::posted(group, [&](ddp_group* g, ddp_request** out) {
    return ddp_group_post_all_gather(g, input.get(), &output, out, stream);
  });
}
inline Request post_reduce_scatter(const Group& group, const Input& input, const Tensor& output, ddp_reduce op,
                                   void* stream = nullptr) {
  return detail::posted(group, [&](ddp_group* g, ddp_request** out) {
    return ddp_group_post_reduce_scatter(g, input.get(), &output, op, out, stream);
  });
}
inline Request post_broadcast(const Group& group, const Tensor& tensor, int root = 0, void* stream = nullptr) {
  return detail::posted(
      group, [&](ddp_group* g, ddp_request** out) { return ddp_group_post_broadcast(g, &tensor, root, out, stream); });
}
inline Request post_reduce(const Group& group, const Tensor& tensor, ddp_reduce op, int root = 0, void* stream = nullptr) {
  return detail::posted(
      group, [&](ddp_group* g, ddp_request** out) { return ddp_group_post_reduce(g, &tensor, op, root, out, stream); });
}
/** On the ranks that are not `root` the pointer may be NULL. */
inline Request post_gather(const Group& group, const Input& input, const Tensor* output, int root = 0,
                           void* stream = nullptr) {
  return detail::posted(group, [&](ddp_group* g, ddp_request** out) {
    return ddp_group_post_gather(g, input.get(), output, root, out, stream);
  });
}
inline Request post_scatter(const Group& group, const Tensor* input, const Tensor& output, int root = 0,
                            void* stream = nullptr) {
  return detail::posted(
      group, [&](ddp_group* g, ddp_request** out) { return ddp_group_post_scatter(g, input, &output, root, out, stream); });
}
/** Counts by rank, or none for equal parts. */
inline Request post_all_to_all(const Group& group, const Input& input, const Tensor& output,
                               Span<const std::int64_t> input_counts = {}, Span<const std::int64_t> output_counts = {},
                               void* stream = nullptr) {
  return detail::posted(group, [&](ddp_group* g, ddp_request** out) {
    return ddp_group_post_all_to_all(g, input.get(), &output, detail::counts_of(input_counts),
                                     detail::counts_of(output_counts), out, stream);
  });
}
inline Request post_all_gather_counts(const Group& group, const Input& input, const Tensor& output,
                                      Span<const std::int64_t> counts, void* stream = nullptr) {
  return detail::posted(group, [&](ddp_group* g, ddp_request** out) {
    return ddp_group_post_all_gather_counts(g, input.get(), &output, detail::counts_of(counts), out, stream);
  });
}
inline Request post_send(const Group& group, const Input& tensor, int peer, std::int64_t tag = 0, void* stream = nullptr) {
  return detail::posted(
      group, [&](ddp_group* g, ddp_request** out) { return ddp_group_post_send(g, tensor.get(), peer, tag, out, stream); });
}
/** Request::source() tells then which rank sent. */
inline Request post_receive(const Group& group, const Tensor& tensor, int source, std::int64_t tag = 0,
                            void* stream = nullptr) {
  return detail::posted(
      group, [&](ddp_group* g, ddp_request** out) { return ddp_group_post_receive(g, &tensor, source, tag, out, stream); });
}

}  // namespace cpp17_v1
}  // namespace ddp

#endif
