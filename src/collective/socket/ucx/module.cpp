// SPDX-License-Identifier: Apache-2.0
// The C face of the module (collective/socket/socket_abi.h). Every exception ends here; the only export is ddp_socket_query.
// Tested by process/ucx_test.cpp.
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <exception>
#include <iterator>
#include <new>
#include <stdexcept>
#include <string>
#include <system_error>

#include "collective/socket/ucx/endpoint.hpp"
#include "collective/socket/ucx/log.hpp"
#include "ddp/types.h"
#include "os/signals.hpp"

namespace {

using ddp::ucx::Endpoint;
using ddp::ucx::Quiet;
using ddp::ucx::UcxError;

constexpr int kExhausted[] = {EMFILE, ENFILE, ENOMEM, ENOBUFS, EAGAIN};

// Is it this process that has nothing left? UCX has the system's errno in its lines only.
bool is_exhausted(const std::exception& thrown, const char* line) noexcept {
  if (dynamic_cast<const std::bad_alloc*>(&thrown) != nullptr) return true;
  if (const auto* error = dynamic_cast<const std::system_error*>(&thrown))
    return std::find(std::begin(kExhausted), std::end(kExhausted), error->code().value()) != std::end(kExhausted);
  const auto* error = dynamic_cast<const UcxError*>(&thrown);
  if (error != nullptr && error->status() == UCS_ERR_NO_MEMORY) return true;
  return std::strstr(line, std::strerror(EMFILE)) != nullptr || std::strstr(line, std::strerror(ENFILE)) != nullptr;
}

// The table's name for it.
Endpoint* of(ddp_socket_endpoint* endpoint) noexcept { return reinterpret_cast<Endpoint*>(endpoint); }

template <class Body>
int32_t guarded(char* error, int64_t capacity, const Body& body) {
  const Quiet quiet;
  try {
    return body();
  } catch (const std::exception& thrown) {
    const char* line = quiet.last_line();
    if (capacity > 0)
      std::snprintf(error, static_cast<size_t>(capacity), "%s%s%s", thrown.what(), *line != '\0' ? ": " : "", line);
    return is_exhausted(thrown, line) ? DDP_SOCKET_EXHAUSTED : DDP_SOCKET_FAILED;
  }
}

int32_t finds_rdma() {
  const Quiet quiet;
  return ddp::ucx::finds_rdma() ? 1 : 0;
}

int32_t create(int32_t index, int32_t size, const char*, int32_t one_host, ddp_socket_endpoint** out, char* error,
               int64_t capacity) {
  static const pid_t first = ::getpid();  // UCX has a thread and locks that a fork does not have
  const ddp::os::BlockSignals blocked;    // which inherits it
  return guarded(error, capacity, [&] {
    if (first != ::getpid())
      throw std::runtime_error("a process that was forked from one that uses UCX cannot use it; start it anew (exec)");
    *out = reinterpret_cast<ddp_socket_endpoint*>(new Endpoint(index, size, one_host != 0));
    return DDP_SOCKET_DONE;
  });
}

const void* address(ddp_socket_endpoint* endpoint, int64_t* out_bytes) {
  *out_bytes = static_cast<int64_t>(of(endpoint)->address().size());
  return of(endpoint)->address().data();
}

int32_t attach(ddp_socket_endpoint* endpoint, int32_t peer, const int32_t*, const void* address, int64_t address_bytes,
               char* error, int64_t capacity) {
  const ddp::os::BlockSignals blocked;
  return guarded(error, capacity, [&] {
    return of(endpoint)->attach(peer, {static_cast<const char*>(address), static_cast<size_t>(address_bytes)});
  });
}

int32_t post_send(ddp_socket_endpoint* endpoint, int32_t peer, uint64_t slot, const void* data, int64_t bytes,
                  int64_t* out_ticket, char* error, int64_t capacity) {
  return guarded(error, capacity,
                 [&] { return of(endpoint)->post_send(peer, slot, data, static_cast<size_t>(bytes), *out_ticket); });
}

int32_t post_receive(ddp_socket_endpoint* endpoint, int32_t peer, uint64_t slot, void* data, int64_t bytes,
                     int64_t* out_ticket, char* error, int64_t capacity) {
  return guarded(error, capacity,
                 [&] { return of(endpoint)->post_receive(peer, slot, data, static_cast<size_t>(bytes), *out_ticket); });
}

int32_t wait(ddp_socket_endpoint* endpoint, int64_t ticket, int64_t timeout_ms, char* error, int64_t capacity) {
  return guarded(error, capacity, [&] { return of(endpoint)->wait(ticket, std::chrono::milliseconds(timeout_ms)); });
}

uint64_t moved(ddp_socket_endpoint* endpoint) { return of(endpoint)->moved(); }

// UCX keeps its connections to itself.
int64_t gaps(ddp_socket_endpoint*) { return 0; }

void abort(ddp_socket_endpoint* endpoint) { of(endpoint)->abort(); }

void close(ddp_socket_endpoint* endpoint) {
  const Quiet quiet;
  of(endpoint)->close();
}

void destroy(ddp_socket_endpoint* endpoint) {
  close(endpoint);
  delete of(endpoint);
}

/// Addresses and messages are only understood by the same release of UCX.
std::string wire() {
  unsigned major = 0, minor = 0, release = 0;
  ucp_get_version(&major, &minor, &release);
  return "UCX " + std::to_string(major) + "." + std::to_string(minor);
}

}  // namespace

extern "C" __attribute__((visibility("default"))) const ddp_socket_table* ddp_socket_query(int32_t version) {
  ddp::ucx::catch_log();
  static const std::string spoken = wire();
  static const ddp_socket_table table{sizeof(ddp_socket_table),
                                      DDP_SOCKET_VERSION,
                                      0,
                                      DDP_BACKEND_UCX,
                                      0,
                                      "UCX",
                                      spoken.c_str(),
                                      finds_rdma,
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
                                      0};
  return version == DDP_SOCKET_VERSION ? &table : nullptr;
}
