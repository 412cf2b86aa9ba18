/* SPDX-License-Identifier: Apache-2.0 */
// Replaces a header of Gloo that the packages of Debian 12, 13 and sid leave out, although the headers of its TCP pairs
// include it. It comes last in the search path, so Gloo's own wins if it exists. Of these classes Gloo's headers need
// no more than their size: libgloo makes, uses and destroys them. AdmittedPair compares an address in memory with the one
// from libgloo, so that another layout is refused. Tested by process/gloo_test.cpp.
#pragma once

#include <memory>

namespace gloo {

template <class T>
class WeakNonOwningPtr;

/// Keeps the object alive, if it still is.
template <class T>
class NonOwningPtr {
 public:
  NonOwningPtr() = default;
  explicit NonOwningPtr(const WeakNonOwningPtr<T>& weak) : target_(weak.target_.lock()) {}
  explicit operator bool() const noexcept { return target_ != nullptr; }
  T* operator->() const noexcept { return target_.get(); }

 private:
  std::shared_ptr<T> target_;
};

template <class T>
class WeakNonOwningPtr {
 public:
  template <class Owner>
  explicit WeakNonOwningPtr(const Owner& owner);  // libgloo's
  WeakNonOwningPtr() = default;

 private:
  friend class NonOwningPtr<T>;
  std::weak_ptr<T> target_;
};

template <class T>
class ShareableNonOwningPtr {
  std::shared_ptr<T> target_;
};

}  // namespace gloo
