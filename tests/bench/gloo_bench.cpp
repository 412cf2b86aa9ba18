// SPDX-License-Identifier: Apache-2.0
// Our all-reduce over Gloo's pairs against Gloo's own ring, on one host over loopback. Both run in the same
// processes, round after round in turn; a round's time is that of the slowest rank. F32 sum. Printed: median, best and worst
// in milliseconds, the ratio of the medians to Gloo's ring, and the median of the ratios of each round.
//
//   bench.gloo [rounds [ranks [MiB, as often as wanted]]]
#include <gloo/allreduce.h>
#include <gloo/context.h>
#include <gloo/math.h>
#include <gloo/transport/address.h>
#include <gloo/transport/context.h>
#include <gloo/transport/pair.h>
#include <gloo/transport/tcp/device.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "bootstrap/failure.hpp"
#include "core/bytes.hpp"
#include "os/clock.hpp"
#include "socket/module.hpp"
#include "socket/transport.hpp"
#include "support/check.hpp"
#include "support/fork_control.hpp"
#include "support/procs.hpp"

namespace {

using namespace ddp::test;

os::Deadline limit() { return os::Deadline::in_ms(60'000); }

// Gloo as its users use it, connected to all ranks.
class FullMesh : public ::gloo::Context {
 public:
  explicit FullMesh(bootstrap::Control& control) : ::gloo::Context(control.rank(), control.size()) {
    ::gloo::transport::tcp::attr attributes;
    attributes.hostname = "127.0.0.1";
    device_ = ::gloo::transport::tcp::CreateDevice(attributes);
    transportContext_ = device_->createContext(rank, size);
    transportContext_->setTimeout(std::chrono::seconds(30));
    ByteWriter mine;
    for (int peer = 0; peer < size; ++peer) {
      if (peer == rank) {
        mine.text("");
        continue;
      }
      auto& pair = transportContext_->createPair(peer);
      pair->setLocalRank(0);
      const auto bytes = pair->address().bytes();
      mine.text(std::string(bytes.begin(), bytes.end()));
    }
    const auto all = control.gather("mesh", mine.bytes(), limit());
    for (int peer = 0; peer < size; ++peer) {
      ByteReader reader(all[static_cast<size_t>(peer)]);
      std::string address;
      for (int i = 0; i <= rank; ++i) address = reader.text();
      if (peer != rank) transportContext_->getPair(peer)->connect(std::vector<char>(address.begin(), address.end()));
    }
    setTimeout(std::chrono::seconds(30));
  }
};

struct Variant {
  const char* name;
  std::function<void()> run;
};

// Each round's time is the slowest rank's.
std::map<std::string, std::vector<double>> measure(bootstrap::Control& control, const std::vector<Variant>& variants,
                                                   int rounds) {
  std::map<std::string, std::vector<double>> times;
  for (int round = -1; round < rounds; ++round)  // one to warm up
    for (const Variant& variant : variants) {
      static_cast<void>(control.gather("begin", "", limit()));
      const int64_t begin = os::now_ns();
      variant.run();
      const int64_t mine = os::now_ns() - begin;
      int64_t slowest = 0;
      for (const auto& text : control.gather("end", std::to_string(mine), limit()))
        slowest = std::max<int64_t>(slowest, std::stoll(text));
      if (round >= 0) times[variant.name].push_back(static_cast<double>(slowest) / 1e6);
    }
  return times;
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

void print(int ranks, double mib, const std::vector<Variant>& variants,
           const std::map<std::string, std::vector<double>>& times) {
  const auto& ring = times.at("gloo ring");
  for (const Variant& variant : variants) {
    const auto& all = times.at(variant.name);
    std::vector<double> ratios;
    for (size_t i = 0; i < all.size(); ++i) ratios.push_back(all[i] / ring[i]);
    std::printf(
        "%d ranks %8.3f MiB  %-10s median %8.2f  best %8.2f  worst %8.2f  ratio to gloo ring %5.2f, by rounds %5.2f\n",
        ranks, mib, variant.name, median(all), *std::min_element(all.begin(), all.end()),
        *std::max_element(all.begin(), all.end()), median(all) / median(ring), median(ratios));
  }
}

void one_rank(ForkHub& hub, int rank, int ranks, int rounds, const std::vector<double>& sizes) {
  ForkControl control(hub, rank, 60'000);
  bootstrap::Failure failure;
  ddp_group_options group{};
  group.timeout_ms = group.rendezvous_timeout_ms = 60'000;
  const collective::TransportContext context{&control, &failure, group};
  const ddp_socket_table& table = socket::load_module();
  const auto ours = socket::make_socket_transport(context, table, "127.0.0.1", socket::SocketOptions{});
  const auto mesh = std::make_shared<FullMesh>(control);
  for (const double mib : sizes) {
    const auto count = static_cast<int64_t>(mib * 262'144);
    std::vector<float> data(static_cast<size_t>(count), 0.0F);
    const std::vector<Variant> variants{
        {"gloo ring",
         [&] {
           ::gloo::AllreduceOptions all(mesh);
           all.setOutput(data.data(), data.size());
           all.setReduceFunction(static_cast<void (*)(void*, const void*, const void*, size_t)>(&::gloo::sum<float>));
           ::gloo::allreduce(all);
         }},
        {"ours", [&] { ours->all_reduce(flat_tensor(data.data(), DDP_F32, count), DDP_SUM); }}};
    const auto times = measure(control, variants, mib < 2 ? 5 * rounds : rounds);
    if (rank == 0) print(ranks, mib, variants, times);
    if (rank == 0) std::fflush(stdout);
  }
}

}  // namespace

int main(int argc, char** argv) {
  setenv("DDP_MODULE_PATH", DDP_MODULE_BUILD_DIR, 0);
  const int rounds = argc > 1 ? std::atoi(argv[1]) : 15;
  std::vector<double> sizes;
  for (int i = 3; i < argc; ++i) sizes.push_back(std::atof(argv[i]));
  if (sizes.empty()) sizes = {1.0 / 1024, 1.0 / 16, 1.0, 4.0, 25.0, 100.0};
  for (const int ranks : argc > 2 ? std::vector<int>{std::atoi(argv[2])} : std::vector<int>{2, 4}) {
    ForkHub hub(ranks);
    Procs procs(ranks, [&](int rank, Reporter&) {
      one_rank(hub, rank, ranks, rounds, sizes);
      return std::string();
    });
    hub.release();
    for (const auto& result : procs.wait(600'000))
      if (result.exit_code != 0) std::printf("a rank ended with %s\n", result.describe().c_str());
  }
  return 0;
}
