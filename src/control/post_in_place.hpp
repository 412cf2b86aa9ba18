// SPDX-License-Identifier: Apache-2.0
// Posts a handler to an Asio thread without allocating: the message about a lack of memory has its space from the beginning.
// Tested by scarce/collectives_test.cpp.
#pragma once

#include <asio/io_context.hpp>
#include <asio/post.hpp>
#include <cstddef>
#include <new>
#include <utility>

namespace ddp::bootstrap {

/// The place of one handler that is posted at most once. It outlives the io_context, which may still hold the handler when
/// it goes.
struct HandlerMemory {
  alignas(std::max_align_t) std::byte bytes[256];
};

/// An allocator that gives that place.
template <class T>
struct InPlace {
  using value_type = T;
  explicit InPlace(HandlerMemory* place) noexcept : memory(place) {}
  template <class U>
  InPlace(const InPlace<U>& other) noexcept : memory(other.memory) {}
  T* allocate(size_t count) {
    if (count * sizeof(T) > sizeof memory->bytes) throw std::bad_alloc();
    return reinterpret_cast<T*>(memory->bytes);
  }
  void deallocate(T*, size_t) noexcept {}
  template <class U>
  bool operator==(const InPlace<U>& other) const noexcept {
    return memory == other.memory;
  }
  HandlerMemory* memory;
};

template <class Body>
struct InPlaceHandler {
  using allocator_type = InPlace<std::byte>;
  [[nodiscard]] allocator_type get_allocator() const noexcept { return allocator_type(memory); }
  void operator()() { body(); }
  HandlerMemory* memory;
  Body body;
};

template <class Body>
void post_in_place(asio::io_context& io, HandlerMemory& memory, Body body) {
  asio::post(io, InPlaceHandler<Body>{&memory, std::move(body)});
}

}  // namespace ddp::bootstrap
