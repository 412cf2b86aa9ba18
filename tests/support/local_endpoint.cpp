// SPDX-License-Identifier: Apache-2.0
#include "support/local_endpoint.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <tuple>
#include <utility>

#include "ddp/types.h"

namespace {

std::atomic<int64_t> violations{0};
std::atomic<int64_t> messages{0};
std::atomic<int64_t> early_sends{0};
std::atomic<int64_t> most_asked{0};
std::array<std::atomic<int64_t>, 64> gaps_at_a_look;  // by member

using Clock = std::chrono::steady_clock;

enum class State { kPosted, kMoving, kDone, kBroken };

struct Transfer {
  const void* from = nullptr;
  void* to = nullptr;
  int64_t bytes = 0;
  int32_t owner = 0;
  State state = State::kPosted;
  Clock::time_point due{};  // kMoving: then it is done

  [[nodiscard]] bool over() noexcept {
    if (state == State::kMoving && Clock::now() >= due) state = State::kDone;
    return state == State::kDone || state == State::kBroken;
  }
};
using TransferPtr = std::shared_ptr<Transfer>;

struct SlowLinks {
  std::mutex mutex;
  std::map<std::pair<int32_t, int32_t>, int64_t> ms;  // by the two ends

  int64_t of(int32_t from, int32_t to) {
    const std::lock_guard lock(mutex);
    const auto found = ms.find({from, to});
    return found == ms.end() ? 0 : found->second;
  }
};
SlowLinks slow_links;

// Everything of one rail under one lock: simple, and every interleaving of posts is possible.
struct Hub {
  struct Queue {
    std::deque<TransferPtr> sends, receives;
  };
  std::mutex mutex;
  std::condition_variable changed;
  std::map<std::tuple<int32_t, int32_t, uint64_t>, Queue> queues;  // from, to, slot
  std::map<int32_t, bool> closed;

  // Of parts and results.
  void note_asked(int32_t by) {
    std::set<int32_t> peers;
    for (const auto& [key, queue] : queues) {
      const auto& [from, to, slot] = key;
      if (to == by && (slot == 4 || slot == 5) && !queue.receives.empty()) peers.insert(from);
    }
    const auto number = static_cast<int64_t>(peers.size());
    for (int64_t most = most_asked; number > most && !most_asked.compare_exchange_weak(most, number);) {
    }
  }

  void match(Queue& queue, int64_t ms) {
    while (!queue.sends.empty() && !queue.receives.empty() && ms != ddp::test::kDeadLink) {
      const TransferPtr send = queue.sends.front(), receive = queue.receives.front();
      queue.sends.pop_front();
      queue.receives.pop_front();
      if (send->bytes <= receive->bytes) {
        std::memcpy(receive->to, send->from, static_cast<size_t>(send->bytes));
        send->state = receive->state = ms == 0 ? State::kDone : State::kMoving;
        send->due = receive->due = Clock::now() + std::chrono::milliseconds(ms);
        ++messages;
      } else {
        ++violations;
        send->state = receive->state = State::kBroken;
      }
    }
    changed.notify_all();
  }

  void close(int32_t index) {
    const std::lock_guard lock(mutex);
    closed[index] = true;
    for (auto& [key, queue] : queues) {
      if (std::get<0>(key) != index && std::get<1>(key) != index) continue;
      for (auto* list : {&queue.sends, &queue.receives}) {
        for (const TransferPtr& transfer : *list) transfer->state = State::kBroken;
        list->clear();
      }
    }
    changed.notify_all();
  }
};

std::shared_ptr<Hub> hub_named(const std::string& name) {
  static std::mutex mutex;
  static std::map<std::string, std::weak_ptr<Hub>> hubs;
  const std::lock_guard lock(mutex);
  std::shared_ptr<Hub> hub = hubs[name].lock();
  if (hub == nullptr) hubs[name] = hub = std::make_shared<Hub>();
  return hub;
}

}  // namespace

struct ddp_socket_endpoint {
  std::shared_ptr<Hub> hub;
  int32_t index = 0;
  bool aborted = false;  // guarded by the hub's mutex
  int64_t next_ticket = 1;
  uint64_t moved = 0;
  int64_t gaps = 0;
  std::map<int64_t, TransferPtr> tickets;
};

namespace {

int32_t fail_with(char* error, int64_t capacity, const char* text, int32_t result) {
  if (capacity > 0) std::snprintf(error, static_cast<size_t>(capacity), "%s", text);
  return result;
}

int32_t create(int32_t index, int32_t, const char* set, int32_t, ddp_socket_endpoint** out, char*, int64_t) {
  auto endpoint = std::make_unique<ddp_socket_endpoint>();
  endpoint->hub = hub_named(set);
  endpoint->index = index;
  *out = endpoint.release();
  return DDP_SOCKET_DONE;
}

const void* address(ddp_socket_endpoint*, int64_t* out_bytes) {
  *out_bytes = 0;
  return nullptr;
}

int32_t attach(ddp_socket_endpoint*, int32_t, const int32_t*, ddp_socket_seal* const*, const void*, int64_t, char*,
               int64_t) {
  return DDP_SOCKET_DONE;
}

int32_t post(ddp_socket_endpoint* endpoint, int32_t from, int32_t to, uint64_t slot, TransferPtr transfer,
             int64_t* out_ticket, char* error, int64_t capacity) {
  const std::lock_guard lock(endpoint->hub->mutex);
  if (endpoint->aborted) return fail_with(error, capacity, "aborted", DDP_SOCKET_ABORTED);
  if (transfer->bytes <= 0) return fail_with(error, capacity, "a message of no bytes", DDP_SOCKET_FAILED);
  if (endpoint->hub->closed[from] || endpoint->hub->closed[to])
    return fail_with(error, capacity, "connection closed", DDP_SOCKET_FAILED);
  *out_ticket = endpoint->next_ticket++;
  endpoint->tickets[*out_ticket] = transfer;
  Hub::Queue& queue = endpoint->hub->queues[{from, to, slot}];
  if (transfer->from != nullptr && queue.receives.empty()) ++early_sends;
  (transfer->from != nullptr ? queue.sends : queue.receives).push_back(std::move(transfer));
  endpoint->hub->note_asked(to);
  endpoint->hub->match(queue, slow_links.of(from, to));
  return DDP_SOCKET_DONE;
}

int32_t post_send(ddp_socket_endpoint* endpoint, int32_t peer, uint64_t slot, const void* data, int64_t bytes,
                  int64_t* out_ticket, char* error, int64_t capacity) {
  auto transfer = std::make_shared<Transfer>(Transfer{data, nullptr, bytes, endpoint->index, State::kPosted});
  return post(endpoint, endpoint->index, peer, slot, std::move(transfer), out_ticket, error, capacity);
}

int32_t post_receive(ddp_socket_endpoint* endpoint, int32_t peer, uint64_t slot, void* data, int64_t bytes,
                     int64_t* out_ticket, char* error, int64_t capacity) {
  auto transfer = std::make_shared<Transfer>(Transfer{nullptr, data, bytes, endpoint->index, State::kPosted});
  return post(endpoint, peer, endpoint->index, slot, std::move(transfer), out_ticket, error, capacity);
}

int32_t wait(ddp_socket_endpoint* endpoint, int64_t ticket, int64_t timeout_ms, char* error, int64_t capacity) {
  std::unique_lock lock(endpoint->hub->mutex);
  const auto found = endpoint->tickets.find(ticket);
  if (found == endpoint->tickets.end()) return fail_with(error, capacity, "no such ticket", DDP_SOCKET_FAILED);
  const TransferPtr transfer = found->second;
  const Clock::time_point limit = Clock::now() + std::chrono::milliseconds(timeout_ms);
  bool over = endpoint->aborted || transfer->over();
  while (!over && Clock::now() < limit) {
    endpoint->hub->changed.wait_until(lock, transfer->state == State::kMoving ? std::min(limit, transfer->due) : limit);
    over = endpoint->aborted || transfer->over();
  }
  if (endpoint->aborted) return fail_with(error, capacity, "aborted", DDP_SOCKET_ABORTED);
  if (!over) return fail_with(error, capacity, "timed out", DDP_SOCKET_TIMED_OUT);
  if (transfer->state == State::kBroken) return fail_with(error, capacity, "connection closed", DDP_SOCKET_FAILED);
  endpoint->tickets.erase(found);
  return DDP_SOCKET_DONE;
}

uint64_t moved(ddp_socket_endpoint* endpoint) {
  const std::lock_guard lock(endpoint->hub->mutex);
  for (const auto& [ticket, transfer] : endpoint->tickets)
    if (transfer->state == State::kMoving) return ++endpoint->moved;
  return endpoint->moved;
}

int64_t gaps(ddp_socket_endpoint* endpoint) {
  const std::lock_guard lock(endpoint->hub->mutex);
  return endpoint->gaps += gaps_at_a_look.at(static_cast<size_t>(endpoint->index));
}

void abort(ddp_socket_endpoint* endpoint) {
  const std::lock_guard lock(endpoint->hub->mutex);
  endpoint->aborted = true;
  endpoint->hub->changed.notify_all();
}

void close(ddp_socket_endpoint* endpoint) { endpoint->hub->close(endpoint->index); }

void destroy(ddp_socket_endpoint* endpoint) {
  close(endpoint);
  delete endpoint;
}

constexpr ddp_socket_table kTable{sizeof(ddp_socket_table),
                                  DDP_SOCKET_VERSION,
                                  0,
                                  DDP_BACKEND_GLOO,
                                  0,
                                  "threads",
                                  "queues",
                                  create,
                                  address,
                                  attach,
                                  post_send,
                                  post_receive,
                                  wait,
                                  abort,
                                  close,
                                  destroy,
                                  moved,
                                  gaps,
                                  0,
                                  nullptr,
                                  nullptr,
                                  nullptr,
                                  nullptr,
                                  nullptr,
                                  nullptr};

}  // namespace

namespace ddp::test {

const ddp_socket_table& local_endpoint() noexcept { return kTable; }
void local_endpoint_slow_down(int32_t from, int32_t to, int64_t ms) {
  const std::lock_guard lock(slow_links.mutex);
  slow_links.ms[{from, to}] = ms;
}
int64_t local_endpoint_size_violations() noexcept { return violations; }
int64_t local_endpoint_early_sends() noexcept { return early_sends; }
void local_endpoint_lose(int32_t member, int64_t packets) { gaps_at_a_look.at(static_cast<size_t>(member)) = packets; }
int64_t local_endpoint_take_most_asked() { return most_asked.exchange(0); }
int64_t local_endpoint_messages() noexcept { return messages; }

}  // namespace ddp::test
