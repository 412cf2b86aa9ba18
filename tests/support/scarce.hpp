// SPDX-License-Identifier: Apache-2.0
// Memory, threads and descriptors that run out: the n-th request of this process fails, or every one from the n-th on,
// counted from arm(). Include it in one source of a program: it defines malloc and its kin for the whole process, with the
// modules that are opened.
// Under a sanitizer, which has its own malloc, it defines operator new alone and leaves the system's calls as they are.
//
//   scarce::arm({.first = 7});             // the seventh allocation from here on fails
//   status = ddp_model_commit(model, NULL);
//   const int64_t asked = scarce::disarm();
#pragma once

#include <fcntl.h>
#include <pthread.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/timerfd.h>

#include <atomic>
#include <cerrno>
#include <cstdarg>
#include <cstdint>
#include <cstdlib>
#include <new>

#include "support/hidden.hpp"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define DDP_SCARCE_SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define DDP_SCARCE_SANITIZED 1
#endif
#endif

namespace ddp::test::scarce {

#ifdef DDP_SCARCE_SANITIZED
inline constexpr bool kRefusesSystem = false;
#else
inline constexpr bool kRefusesSystem = true;
#endif

enum class What { kMemory, kSystem };  // system: threads, descriptors, mappings

struct Plan {
  int64_t first = INT64_MAX;  // the request that fails, from 1; INT64_MAX: only count
  bool lasting = false;       // and all after it
  What what = What::kMemory;
  bool own_thread = false;  // only requests of the thread that calls arm() count
};

struct Switch {
  std::atomic<bool> on{false};
  std::atomic<int64_t> asked{0};
  Plan plan;
  pthread_t thread{};
};
inline Switch& the_switch() noexcept {
  static Switch instance;
  return instance;
}

inline void arm(const Plan& plan) noexcept {
  Switch& to = the_switch();
  to.plan = plan;
  to.thread = pthread_self();
  to.asked.store(0);
  to.on.store(true);
}

/// Requests since arm().
inline int64_t disarm() noexcept {
  the_switch().on.store(false);
  return the_switch().asked.load();
}

inline bool fails(What what) noexcept {
  Switch& is = the_switch();
  if (!is.on.load(std::memory_order_acquire) || is.plan.what != what) return false;
  if (is.plan.own_thread && pthread_equal(is.thread, pthread_self()) == 0) return false;
  const int64_t at = is.asked.fetch_add(1) + 1;
  return is.plan.lasting ? at >= is.plan.first : at == is.plan.first;
}

inline bool no_memory() noexcept { return fails(What::kMemory); }

}  // namespace ddp::test::scarce

#ifdef DDP_SCARCE_SANITIZED

inline void* ddp_scarce_new(std::size_t bytes) {
  if (ddp::test::scarce::no_memory()) throw std::bad_alloc();
  void* const data = std::malloc(bytes);
  if (data == nullptr) throw std::bad_alloc();
  return data;
}
void* operator new(std::size_t bytes) { return ddp_scarce_new(bytes); }
void* operator new[](std::size_t bytes) { return ddp_scarce_new(bytes); }
void operator delete(void* data) noexcept { std::free(data); }
void operator delete[](void* data) noexcept { std::free(data); }
void operator delete(void* data, std::size_t) noexcept { std::free(data); }
void operator delete[](void* data, std::size_t) noexcept { std::free(data); }

#else

#define DDP_SCARCE_MEMORY(failed) \
  if (ddp::test::scarce::no_memory()) return errno = ENOMEM, failed
#define DDP_SCARCE_SYSTEM(error, failed) \
  if (ddp::test::scarce::fails(ddp::test::scarce::What::kSystem)) return errno = (error), failed
#define DDP_SCARCE_NEXT(name)                       \
  static constinit ddp::test::Hidden hidden(#name); \
  auto* const real = hidden.as<decltype(::name)>()

extern "C" {
void* __libc_malloc(std::size_t);
void* __libc_calloc(std::size_t, std::size_t);
void* __libc_realloc(void*, std::size_t);
void* __libc_memalign(std::size_t, std::size_t);

void* malloc(std::size_t bytes) noexcept {
  DDP_SCARCE_MEMORY(nullptr);
  return __libc_malloc(bytes);
}
void* calloc(std::size_t count, std::size_t bytes) noexcept {
  DDP_SCARCE_MEMORY(nullptr);
  return __libc_calloc(count, bytes);
}
void* realloc(void* data, std::size_t bytes) noexcept {
  DDP_SCARCE_MEMORY(nullptr);
  return __libc_realloc(data, bytes);
}
void* memalign(std::size_t alignment, std::size_t bytes) noexcept {
  DDP_SCARCE_MEMORY(nullptr);
  return __libc_memalign(alignment, bytes);
}
void* aligned_alloc(std::size_t alignment, std::size_t bytes) noexcept {
  DDP_SCARCE_MEMORY(nullptr);
  return __libc_memalign(alignment, bytes);
}
int posix_memalign(void** out, std::size_t alignment, std::size_t bytes) noexcept {
  if (ddp::test::scarce::no_memory()) return ENOMEM;
  void* const data = __libc_memalign(alignment, bytes);
  if (data == nullptr) return ENOMEM;
  *out = data;
  return 0;
}

int pthread_create(pthread_t* thread, const pthread_attr_t* attributes, void* (*body)(void*), void* argument) noexcept {
  DDP_SCARCE_NEXT(pthread_create);
  if (ddp::test::scarce::fails(ddp::test::scarce::What::kSystem)) return EAGAIN;
  return real(thread, attributes, body, argument);
}
void* mmap(void* at, std::size_t bytes, int protection, int flags, int fd, off_t offset) noexcept {
  DDP_SCARCE_NEXT(mmap);
  DDP_SCARCE_SYSTEM(ENOMEM, MAP_FAILED);
  return real(at, bytes, protection, flags, fd, offset);
}
int memfd_create(const char* name, unsigned flags) noexcept {
  DDP_SCARCE_NEXT(memfd_create);
  DDP_SCARCE_SYSTEM(EMFILE, -1);
  return real(name, flags);
}
int socket(int domain, int type, int protocol) noexcept {
  DDP_SCARCE_NEXT(socket);
  DDP_SCARCE_SYSTEM(EMFILE, -1);
  return real(domain, type, protocol);
}
int eventfd(unsigned value, int flags) noexcept {
  DDP_SCARCE_NEXT(eventfd);
  DDP_SCARCE_SYSTEM(EMFILE, -1);
  return real(value, flags);
}
int epoll_create(int size) noexcept {
  DDP_SCARCE_NEXT(epoll_create);
  DDP_SCARCE_SYSTEM(EMFILE, -1);
  return real(size);
}
int epoll_create1(int flags) noexcept {
  DDP_SCARCE_NEXT(epoll_create1);
  DDP_SCARCE_SYSTEM(EMFILE, -1);
  return real(flags);
}
int timerfd_create(clockid_t clock, int flags) noexcept {
  DDP_SCARCE_NEXT(timerfd_create);
  DDP_SCARCE_SYSTEM(EMFILE, -1);
  return real(clock, flags);
}
int accept4(int fd, sockaddr* address, socklen_t* length, int flags) {
  DDP_SCARCE_NEXT(accept4);
  DDP_SCARCE_SYSTEM(EMFILE, -1);
  return real(fd, address, length, flags);
}
int open(const char* path, int flags, ...) {
  va_list arguments;
  va_start(arguments, flags);
  const mode_t mode = va_arg(arguments, mode_t);
  va_end(arguments);
  static constinit ddp::test::Hidden hidden("open");
  auto* const real = hidden.as<int(const char*, int, mode_t)>();
  DDP_SCARCE_SYSTEM(EMFILE, -1);
  return real(path, flags, mode);
}
}

#endif
