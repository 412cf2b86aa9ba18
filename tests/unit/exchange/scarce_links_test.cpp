// SPDX-License-Identifier: Apache-2.0
// Memory runs out while receives are posted: the links are closed before the exception arrives, because its catcher frees
// the memory that is received into.
#include <atomic>

#include "support/check.hpp"
#include "support/scarce.hpp"
#include "support/socket_world.hpp"

/// Of this thread's rank.
struct Seen {
  int refused_after = INT32_MAX;  // the first request for memory after this many receives fails
  int receives = 0;
  const std::vector<float>* callers = nullptr;
  bool is_open = false;     // a receive into the caller's memory
  bool was_opened = false;  // there was one
  bool was_closed = false;
};
static thread_local Seen seen;

// As a module answers.
template <class Body>
int32_t or_exhausted(const Body& body) {
  try {
    return body();
  } catch (const std::bad_alloc&) {
    return DDP_SOCKET_EXHAUSTED;
  }
}

static int32_t post_send(ddp_socket_endpoint* endpoint, int32_t peer, uint64_t slot, const void* data, int64_t bytes,
                         int64_t* ticket, char* error, int64_t capacity) {
  return or_exhausted(
      [&] { return local_endpoint().post_send(endpoint, peer, slot, data, bytes, ticket, error, capacity); });
}

static int32_t post_receive(ddp_socket_endpoint* endpoint, int32_t peer, uint64_t slot, void* data, int64_t bytes,
                            int64_t* ticket, char* error, int64_t capacity) {
  if (seen.refused_after != INT32_MAX) static_cast<void>(scarce::disarm());
  const int32_t result = or_exhausted(
      [&] { return local_endpoint().post_receive(endpoint, peer, slot, data, bytes, ticket, error, capacity); });
  const auto* const at = static_cast<const float*>(data);
  if (seen.callers != nullptr && at >= seen.callers->data() && at < seen.callers->data() + seen.callers->size())
    seen.is_open = seen.was_opened = true;
  if (++seen.receives >= seen.refused_after) scarce::arm({.first = 1, .own_thread = true});
  return result;
}

static void close(ddp_socket_endpoint* endpoint) {
  seen.is_open = false;
  seen.was_closed = true;
  local_endpoint().close(endpoint);
}

static ddp_socket_table watched_table() {
  ddp_socket_table table = local_endpoint();
  table.post_send = post_send;
  table.post_receive = post_receive;
  table.close = close;
  return table;
}

using Make = std::function<std::unique_ptr<collective::Transport>()>;

/// Two ranks, each of which makes its transport when it wants.
static void run(const std::string& name, const std::function<void(int rank, const Make& make)>& body) {
  const ddp_socket_table table = watched_table();
  ThreadHub hub(2);
  run_ranks(2, [&](int rank) {
    bootstrap::Failure failure;
    ThreadControl control(hub, rank);
    control.on_failure([&](const Error& cause) { failure.set(cause); });
    ddp_group_options options{};
    options.timeout_ms = options.rendezvous_timeout_ms = 20'000;
    seen = Seen{};
    body(rank, [&] {
      return socket::make_socket_transport(collective::TransportContext{&control, &failure, options}, table, name,
                                           socket::SocketOptions{});
    });
  });
}

template <class Body>
bool lacks_memory(const Body& body) {
  try {
    body();
  } catch (const std::bad_alloc&) {
    return true;
  } catch (const Error& error) {
    return error.status() == DDP_ERROR_OUT_OF_MEMORY;
  }
  return false;
}

// Its receives are posted one after another; the request that fails is the next one after the second.
ddp_case(while_a_member_is_made) {
  run("a member", [](int rank, const Make& make) {
    if (rank == 1) {
      seen.refused_after = 2;
      const bool failed = lacks_memory([&] { static_cast<void>(make()); });
      static_cast<void>(scarce::disarm());
      expect(failed, "memory ran out");
      expect(seen.was_closed, "the links are closed, not only freed");
      return;
    }
    static_cast<void>(make());
  });
}

// What the ranks disagree on is found when receives into the caller's memory are posted.
ddp_case(while_a_disagreement_is_told) {
  std::atomic<int> failed_while_open{0};
  for (int64_t request = 30; request < 50; ++request)
    run("refusal " + std::to_string(request), [&](int rank, const Make& make) {
      const auto transport = make();
      std::vector<float> part(1'000'000), all(2'000'000);
      seen.callers = &all;
      const Tensor mine = flat_tensor(part.data(), DDP_F32, 1'000'000 - rank);
      const Tensor result = flat_tensor(all.data(), DDP_F32, 2'000'000);
      transport->barrier();
      if (rank == 1) scarce::arm({.first = request, .own_thread = true});
      const bool failed = lacks_memory([&] { transport->all_gather(mine, result); });
      static_cast<void>(scarce::disarm());
      expect(!seen.is_open, "nothing is received into the caller's memory any more");
      if (failed && seen.was_opened) ++failed_while_open;
    });
  expect(failed_while_open > 0, "memory ran out after receives were posted");
}
