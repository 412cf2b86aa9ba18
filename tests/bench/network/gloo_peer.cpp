// SPDX-License-Identifier: Apache-2.0
// Gloo's own all-reduce between hosts, measured by the method of protocol.h.
//   gloo_peer ring|bcube|hd RANK SIZE FOLDER      FOLDER: empty, the ranks meet there
#include <gloo/allreduce.h>
#include <gloo/allreduce_halving_doubling.h>
#include <gloo/barrier.h>
#include <gloo/math.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/transport/tcp/device.h>

#include <chrono>
#include <cstdlib>
#include <map>
#include <memory>
#include <string>

#include "../peers/gloo_connect.hpp"
#include "protocol.h"

namespace {

struct Peer {
  std::shared_ptr<gloo::rendezvous::Context> context;
  std::string algorithm;
  uint32_t tag = 0;  // a new one for every call, the same on all ranks
  std::map<int64_t, std::unique_ptr<gloo::AllreduceHalvingDoubling<float>>> halving;
};

void sum(void* context, float* data, int64_t count) {
  auto* self = static_cast<Peer*>(context);
  if (self->algorithm == "hd") {
    auto& run = self->halving[count];
    if (!run)
      run = std::make_unique<gloo::AllreduceHalvingDoubling<float>>(self->context, std::vector<float*>{data},
                                                                    static_cast<int>(count));
    run->run();
    return;
  }
  void (*add)(void*, const void*, const void*, size_t) = &gloo::sum<float>;
  gloo::AllreduceOptions options(self->context);
  options.setOutput(data, static_cast<size_t>(count));
  options.setReduceFunction(add);
  options.setAlgorithm(self->algorithm == "ring" ? gloo::AllreduceOptions::Algorithm::RING
                                                 : gloo::AllreduceOptions::Algorithm::BCUBE);
  options.setTag(++self->tag);
  gloo::allreduce(options);
}

void barrier(void* context) {
  auto* self = static_cast<Peer*>(context);
  gloo::BarrierOptions options(self->context);
  options.setTag(++self->tag);
  gloo::barrier(options);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 5) return 2;
  const int rank = std::atoi(argv[2]), size = std::atoi(argv[3]);
  gloo::transport::tcp::attr where;
  where.iface = "eth0";
  Peer peer{std::make_shared<gloo::rendezvous::Context>(rank, size), argv[1], 0, {}};
  peer.context->setTimeout(std::chrono::seconds(60));
  connect_gloo(*peer.context, std::make_shared<gloo::rendezvous::FileStore>(argv[4]),
               gloo::transport::tcp::CreateDevice(where), 0);
  const protocol p{meeting_open(rank, size), &peer, sum, barrier};
  protocol_run(&p);
  std::_Exit(0);  // without Gloo's teardown, which takes long and is not what is measured
}
