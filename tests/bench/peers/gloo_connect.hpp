// SPDX-License-Identifier: Apache-2.0
// Connecting Gloo's ranks through a folder, for every version of Gloo.
#ifndef DDP_TESTS_BENCH_GLOO_CONNECT_HPP
#define DDP_TESTS_BENCH_GLOO_CONNECT_HPP

#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>

#include <memory>

// Gloo took a reference to the store for years, and takes a shared pointer now.
template <class Context>
auto connect_gloo(Context& context, const std::shared_ptr<gloo::rendezvous::FileStore>& store,
                  std::shared_ptr<gloo::transport::Device> device, int) -> decltype(context.connectFullMesh(store, device)) {
  return context.connectFullMesh(store, device);
}
template <class Context>
auto connect_gloo(Context& context, const std::shared_ptr<gloo::rendezvous::FileStore>& store,
                  std::shared_ptr<gloo::transport::Device> device, long)
    -> decltype(context.connectFullMesh(*store, device)) {
  return context.connectFullMesh(*store, device);
}

#endif
