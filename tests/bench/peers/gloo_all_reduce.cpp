// SPDX-License-Identifier: Apache-2.0
// Gloo's own ring over loopback, as a program that uses Gloo has it, measured by the method of protocol.h.
//   gloo_all_reduce RANK SIZE FOLDER      FOLDER: empty, the ranks meet there
#include <gloo/allreduce.h>
#include <gloo/barrier.h>
#include <gloo/math.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/transport/tcp/device.h>

#include <chrono>
#include <cstdlib>
#include <memory>

#include "gloo_connect.hpp"
#include "protocol.h"

namespace {

struct Ring {
  std::shared_ptr<gloo::rendezvous::Context> context;
  uint32_t tag = 0;  // a new one for every call, the same on all ranks
};

void sum(void* ring, float* data, int64_t count) {
  auto* self = static_cast<Ring*>(ring);
  void (*add)(void*, const void*, const void*, size_t) = &gloo::sum<float>;
  gloo::AllreduceOptions options(self->context);
  options.setOutput(data, static_cast<size_t>(count));
  options.setReduceFunction(add);
  options.setAlgorithm(gloo::AllreduceOptions::Algorithm::RING);
  options.setTag(++self->tag);
  gloo::allreduce(options);
}

void barrier(void* ring) {
  auto* self = static_cast<Ring*>(ring);
  gloo::BarrierOptions options(self->context);
  options.setTag(++self->tag);
  gloo::barrier(options);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) return 2;
  const int rank = std::atoi(argv[1]), size = std::atoi(argv[2]);
  gloo::transport::tcp::attr where;
  where.iface = "lo";
  Ring ring{std::make_shared<gloo::rendezvous::Context>(rank, size)};
  ring.context->setTimeout(std::chrono::seconds(60));
  connect_gloo(*ring.context, std::make_shared<gloo::rendezvous::FileStore>(argv[3]),
               gloo::transport::tcp::CreateDevice(where), 0);
  const protocol p{rank, size, &ring, sum, barrier};
  protocol_run(&p, protocol_memory());
  std::_Exit(0);  // without Gloo's teardown, which takes long and is not what is measured
}
