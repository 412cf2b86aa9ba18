// SPDX-License-Identifier: Apache-2.0
// Names into addresses, without the system resolver's time: it may take minutes and cannot be called off, so it works on a
// thread of its own that is left behind when the deadline comes first.
#include <netdb.h>
#include <sys/socket.h>

#include <chrono>
#include <condition_variable>
#include <cstring>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "control/net.hpp"
#include "control/texts.hpp"
#include "core/attempt.hpp"
#include "core/error.hpp"
#include "os/log.hpp"
#include "os/thread.hpp"

namespace ddp::bootstrap::net {
namespace {

constexpr int64_t kFirstPauseMs = 50;

struct Lookup {
  std::mutex mutex;  // guards all below
  std::condition_variable changed;
  bool done = false;
  int code = 0;
  std::vector<Endpoint> found;
};

int look_up(const std::string& host, int flags, std::vector<Endpoint>& found) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = flags;
  addrinfo* list = nullptr;
  const int code = ::getaddrinfo(host.c_str(), nullptr, &hints, &list);
  if (code != 0) return code;
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> owner(list, ::freeaddrinfo);
  for (const addrinfo* at = list; at != nullptr; at = at->ai_next) {
    Endpoint endpoint;
    std::memcpy(&endpoint.address, at->ai_addr, at->ai_addrlen);
    endpoint.length = at->ai_addrlen;
    found.push_back(endpoint);
  }
  return 0;
}

// One try; false when the deadline came first.
bool try_once(const std::string& host, const os::Deadline& deadline, int& code, std::vector<Endpoint>& found) {
  const auto lookup = std::make_shared<Lookup>();
  os::start_thread("ddp-resolve", [lookup, host] {
    std::vector<Endpoint> addresses;
    int result = 0;
    if (try_to([&] { result = look_up(host, 0, addresses); })) result = EAI_MEMORY;
    const std::lock_guard lock(lookup->mutex);
    lookup->code = result;
    lookup->found = std::move(addresses);
    lookup->done = true;
    lookup->changed.notify_all();
  }).detach();
  std::unique_lock lock(lookup->mutex);
  const auto limit = std::chrono::milliseconds(std::min<int64_t>(deadline.left_ms(), 86'400'000));
  if (!lookup->changed.wait_for(lock, limit, [&] { return lookup->done; })) return false;
  code = lookup->code;
  found = std::move(lookup->found);
  return true;
}

}  // namespace

std::vector<Endpoint> resolve(const std::string& host, os::Deadline deadline) {
  std::vector<Endpoint> found;
  if (look_up(host, AI_NUMERICHOST, found) == 0) return found;
  std::mutex mutex;
  std::condition_variable nothing;
  std::string why = "the name service does not answer";
  for (int64_t pause_ms = kFirstPauseMs; !deadline.passed(); pause_ms = std::min<int64_t>(2 * pause_ms, 1'000)) {
    int code = 0;
    if (!try_once(host, deadline, code, found)) break;
    if (code == 0 && !found.empty()) return found;
    why = ::gai_strerror(code);
    if (pause_ms == kFirstPauseMs)
      os::log(DDP_LOG_WARNING,
              "the host name %s, given for rank 0, is not known here (%s); it is looked up again until "
              "rendezvous_timeout_ms is over",
              host.c_str(), why.c_str());
    if (code == EAI_MEMORY)
      throw make_error(DDP_ERROR_OUT_OF_MEMORY, "the host name %s cannot be looked up: %s", host.c_str(), why.c_str());
    // A pod's or a new host's name may appear a little later.
    std::unique_lock lock(mutex);
    nothing.wait_for(lock, std::chrono::milliseconds(std::min(pause_ms, deadline.left_ms())));
  }
  throw make_error(
      DDP_ERROR_IO,
      "the host name %s, given for rank 0, could not be resolved until the time was up: %s; if only ssh knows the "
      "name, give the address (ddprun --rendezvous ADDRESS:PORT)",
      host.c_str(), why.c_str());
}

}  // namespace ddp::bootstrap::net
