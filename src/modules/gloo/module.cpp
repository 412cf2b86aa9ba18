// SPDX-License-Identifier: Apache-2.0
// The C face of the module (socket/socket_abi.h). Every exception of Gloo ends here; the only export is
// ddp_socket_query.
// Tested by process/gloo_test.cpp.
#include <dlfcn.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <exception>
#include <iterator>
#include <memory>
#include <new>
#include <system_error>

#include "ddp/types.h"
#include "modules/gloo/endpoint.hpp"
#include "modules/gloo/pairs.hpp"

struct ddp_socket_endpoint : ddp::gloo::Endpoint {
  using Endpoint::Endpoint;
};

namespace {

constexpr int kExhausted[] = {EMFILE, ENFILE, ENOMEM, ENOBUFS, EAGAIN};

// Is it this process that has nothing left? Gloo keeps the system's errno only as words in its texts.
bool is_exhausted(const std::exception& thrown) noexcept {
  if (dynamic_cast<const std::bad_alloc*>(&thrown) != nullptr) return true;
  if (const auto* error = dynamic_cast<const std::system_error*>(&thrown))
    return std::find(std::begin(kExhausted), std::end(kExhausted), error->code().value()) != std::end(kExhausted);
  return std::strstr(thrown.what(), std::strerror(EMFILE)) != nullptr ||
         std::strstr(thrown.what(), std::strerror(ENFILE)) != nullptr ||
         std::strstr(thrown.what(), std::strerror(ENOMEM)) != nullptr;
}

// Runs `body`; the only common base of Gloo's errors is std::exception. Its texts begin with "[file:line] ".
template <class Body>
int32_t guarded(char* error, int64_t capacity, const Body& body) {
  try {
    return body();
  } catch (const std::exception& thrown) {
    const char* text = thrown.what();
    if (const char* end = text[0] == '[' ? std::strstr(text, "] ") : nullptr) text = end + 2;
    const bool exhausted = is_exhausted(thrown);
    if (dynamic_cast<const std::bad_alloc*>(&thrown) != nullptr) text = "out of memory";
    if (capacity > 0) std::snprintf(error, static_cast<size_t>(capacity), "%s", text);
    return exhausted ? DDP_SOCKET_EXHAUSTED : DDP_SOCKET_FAILED;
  }
}

int32_t create(int32_t index, int32_t size, const char*, int32_t, ddp_socket_endpoint** out, char* error, int64_t capacity) {
  return guarded(error, capacity, [&] {
    *out = new ddp_socket_endpoint(index, size);
    return DDP_SOCKET_DONE;
  });
}

const void* address(ddp_socket_endpoint*, int64_t* out_bytes) {
  *out_bytes = 0;
  return nullptr;
}

int32_t attach(ddp_socket_endpoint* endpoint, int32_t peer, const int32_t* descriptors, const void*, int64_t, char* error,
               int64_t capacity) {
  const int32_t both[] = {descriptors[0], descriptors[1]};
  static_assert(std::size(both) == ddp::gloo::Endpoint::kLanes);
  return guarded(error, capacity, [&] { return endpoint->attach(peer, both); });
}

int32_t post_send(ddp_socket_endpoint* endpoint, int32_t peer, uint64_t slot, const void* data, int64_t bytes,
                  int64_t* out_ticket, char* error, int64_t capacity) {
  return guarded(error, capacity,
                 [&] { return endpoint->post_send(peer, slot, data, static_cast<size_t>(bytes), *out_ticket); });
}

int32_t post_receive(ddp_socket_endpoint* endpoint, int32_t peer, uint64_t slot, void* data, int64_t bytes,
                     int64_t* out_ticket, char* error, int64_t capacity) {
  return guarded(error, capacity,
                 [&] { return endpoint->post_receive(peer, slot, data, static_cast<size_t>(bytes), *out_ticket); });
}

int32_t wait(ddp_socket_endpoint* endpoint, int64_t ticket, int64_t timeout_ms, char* error, int64_t capacity) {
  return guarded(error, capacity, [&] { return endpoint->wait(ticket, std::chrono::milliseconds(timeout_ms)); });
}

uint64_t moved(ddp_socket_endpoint* endpoint) { return endpoint->moved(); }

int64_t gaps(ddp_socket_endpoint* endpoint) { return endpoint->gaps(); }

void abort(ddp_socket_endpoint* endpoint) { endpoint->abort(); }

void close(ddp_socket_endpoint* endpoint) {
  static_cast<void>(guarded(nullptr, 0, [&] {
    endpoint->close();
    return DDP_SOCKET_DONE;
  }));
}

void destroy(ddp_socket_endpoint* endpoint) {
  close(endpoint);
  delete endpoint;
}

// What goes over a connection has not changed in the releases that we know. When it does, give the new one another text.
constexpr const char* kWire = "Gloo TCP, preamble of 48 bytes";
static_assert(sizeof(::gloo::transport::tcp::Op::preamble) == 48, "a release of Gloo with another wire format");

constexpr ddp_socket_table kTable{sizeof(ddp_socket_table),
                                  DDP_SOCKET_VERSION,
                                  ddp::gloo::Endpoint::kLanes,
                                  DDP_BACKEND_GLOO,
                                  0,
                                  "Gloo",
                                  kWire,
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
                                  sizeof(::gloo::transport::tcp::Op::preamble)};

// Releases of Gloo share a soname but not a layout of classes; this function exists in the newer layout only.
bool gloo_is_the_one_we_were_built_with() {
  void* gloo = dlopen("libgloo.so.0", RTLD_NOW | RTLD_NOLOAD);
  if (gloo == nullptr) return true;  // linked statically: it is what we were built with
  const bool has_lazy = dlsym(gloo, "_ZN4gloo9transport3tcp16CreateLazyDeviceERKNS1_4attrE") != nullptr;
  dlclose(gloo);
  return has_lazy == static_cast<bool>(DDP_GLOO_HAS_LAZY_DEVICE);
}

}  // namespace

extern "C" __attribute__((visibility("default"))) const ddp_socket_table* ddp_socket_query(int32_t version) {
  return version == DDP_SOCKET_VERSION && gloo_is_the_one_we_were_built_with() ? &kTable : nullptr;
}
