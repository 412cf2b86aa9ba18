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
#include "modules/gloo/seal.hpp"

struct ddp_socket_endpoint : ddp::gloo::Endpoint {
  using Endpoint::Endpoint;
};
struct ddp_socket_seal {
  std::unique_ptr<ddp::gloo::Seal> seal;
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

int32_t attach(ddp_socket_endpoint* endpoint, int32_t peer, const int32_t* descriptors, ddp_socket_seal* const* seals,
               const void*, int64_t, char* error, int64_t capacity) {
  const int32_t both[] = {descriptors[0], descriptors[1]};
  std::unique_ptr<ddp::gloo::Seal> sealed[ddp::gloo::Endpoint::kLanes];
  static_assert(std::size(both) == ddp::gloo::Endpoint::kLanes);
  for (size_t lane = 0; lane < std::size(both); ++lane)
    if (const std::unique_ptr<ddp_socket_seal> taken(seals[lane]); taken != nullptr) sealed[lane] = std::move(taken->seal);
  return guarded(error, capacity, [&] { return endpoint->attach(peer, both, sealed); });
}

int32_t seal_create(int32_t descriptor, int32_t listens, const unsigned char* key, ddp_socket_seal** out, char* error,
                    int64_t capacity) {
  static_assert(sizeof(ddp::gloo::Seal::Key) == DDP_SOCKET_KEY_BYTES);
  return guarded(error, capacity, [&] {
    ddp::gloo::Seal::Key copy{};
    std::copy_n(key, copy.size(), copy.begin());
    const auto role = listens != 0 ? ddp::gloo::Seal::Role::kListens : ddp::gloo::Seal::Role::kConnects;
    *out = new ddp_socket_seal{std::make_unique<ddp::gloo::Seal>(descriptor, role, copy)};
    return DDP_SOCKET_DONE;
  });
}

void say(const char* what, char* error, int64_t capacity) {
  if (capacity > 0) std::snprintf(error, static_cast<size_t>(capacity), "%s", what);
}

int32_t seal_handshake(ddp_socket_seal* seal, char* error, int64_t capacity) {
  switch (seal->seal->shake_hands()) {
    case ddp::gloo::Seal::Step::kDone: return DDP_SOCKET_SEAL_DONE;
    case ddp::gloo::Seal::Step::kReads: return DDP_SOCKET_SEAL_READS;
    case ddp::gloo::Seal::Step::kWrites: return DDP_SOCKET_SEAL_WRITES;
    case ddp::gloo::Seal::Step::kExhausted: say(std::strerror(ENOMEM), error, capacity); return DDP_SOCKET_SEAL_EXHAUSTED;
    case ddp::gloo::Seal::Step::kFailed: break;
  }
  say(seal->seal->trouble(), error, capacity);
  return DDP_SOCKET_SEAL_FAILED;
}

int64_t moved_or_why(const ddp::gloo::Seal& seal, ssize_t moved, char* error, int64_t capacity) {
  if (moved >= 0) return moved;
  if (errno == EAGAIN) return DDP_SOCKET_SEAL_LATER;
  const int why = errno;
  say(why == EPROTO ? seal.trouble() : std::strerror(why), error, capacity);
  return why == EPROTO ? DDP_SOCKET_SEAL_CHANGED : why == ENOMEM ? DDP_SOCKET_SEAL_NO_MEMORY : DDP_SOCKET_SEAL_BROKEN;
}

int64_t seal_read(ddp_socket_seal* seal, void* data, int64_t bytes, char* error, int64_t capacity) {
  return moved_or_why(*seal->seal, seal->seal->read(data, static_cast<size_t>(bytes)), error, capacity);
}

int64_t seal_write(ddp_socket_seal* seal, const void* first, int64_t first_bytes, const void* second, int64_t second_bytes,
                   char* error, int64_t capacity) {
  const iovec parts[] = {{const_cast<void*>(first), static_cast<size_t>(first_bytes)},
                         {const_cast<void*>(second), static_cast<size_t>(second_bytes)}};
  return moved_or_why(*seal->seal, seal->seal->write(parts, 2), error, capacity);
}

void seal_destroy(ddp_socket_seal* seal) { delete seal; }

int32_t changed(ddp_socket_endpoint* endpoint, char* error, int64_t capacity) {
  const auto [peer, why] = endpoint->changed();
  if (peer >= 0) say(why, error, capacity);
  return peer;
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
                                  sizeof(::gloo::transport::tcp::Op::preamble),
                                  seal_create,
                                  seal_handshake,
                                  seal_read,
                                  seal_write,
                                  seal_destroy,
                                  changed};

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
