// Our chain over Gloo's pairs against Gloo's own ring, and against a direct exchange, on one host over loopback. All three run
// in the same processes, round after round in turn; a round's time is that of the slowest rank. F32 sum. Printed: median, best and
// worst in milliseconds, and the ratio of the medians to Gloo's ring.
//
//   bench.gloo [rounds [KiB of a segment]]
//
// "direct" is the alternative that was considered for the chain: rank r owns slice r, gets it from everybody, adds in rank order and
// sends the result to everybody. The same bits, but a connection between every two hosts.
#include <gloo/allreduce.h>
#include <gloo/context.h>
#include <gloo/math.h>
#include <gloo/transport/address.h>
#include <gloo/transport/context.h>
#include <gloo/transport/pair.h>
#include <gloo/transport/tcp/device.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/bytes.hpp"
#include "base/clock.hpp"
#include "comm/rail/module.hpp"
#include "comm/rail/transport.hpp"
#include "device/cpu/reduce.hpp"
#include "support/check.hpp"
#include "support/fork_control.hpp"
#include "support/procs.hpp"

namespace {

using namespace ddp;
using namespace ddp::test;

Deadline limit() { return Deadline::in_ms(60'000); }

// Gloo as its users use it, connected to everybody.
class FullMesh : public ::gloo::Context {
 public:
  explicit FullMesh(Control& control) : ::gloo::Context(control.rank(), control.size()) {
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

// The direct exchange over a rail that is connected to everybody. Slices are cut into segments; kDepth of each are under way.
class Direct {
 public:
  Direct(Control& control, const ddp_rail_table& table)
      : rank_(control.rank()), size_(control.size()), rail_(table, rank_, size_, "127.0.0.1", 30'000) {
    ByteWriter mine;
    for (int peer = 0; peer < size_; ++peer) mine.text(peer == rank_ ? "" : rail_.address_for(peer));
    const auto all = control.gather("direct", mine.bytes(), limit());
    for (int peer = 0; peer < size_; ++peer) {
      ByteReader reader(all[static_cast<size_t>(peer)]);
      std::string address;
      for (int i = 0; i <= rank_; ++i) address = reader.text();
      if (peer != rank_) check(rail_.connect(peer, address));
    }
    scratch_.resize(static_cast<size_t>(size_) * kDepth * kSegment);
  }
  ~Direct() { rail_.close(); }

  void all_reduce(float* data, int64_t count) {
    count_ = count;
    data_ = data;
    const int64_t number = (slice(0).count + kSegment - 1) / kSegment;
    std::vector<std::array<Rail::Ticket, 4>> tickets(static_cast<size_t>(size_ * kDepth));
    const auto at = [&](int peer, int64_t t) -> std::array<Rail::Ticket, 4>& {
      return tickets[static_cast<size_t>(peer * kDepth + t % kDepth)];
    };
    const auto post = [&](int64_t t) {
      for (int step = 1; step < size_; ++step) {
        const int peer = (rank_ + step) % size_;
        const Span mine = segment(rank_, t), theirs = segment(peer, t);
        if (mine.count > 0) check(rail_.receive(peer, 1, landing(peer, t), mine.count * 4, at(peer, t)[0]));
        if (theirs.count > 0) check(rail_.receive(peer, 2, data + theirs.first, theirs.count * 4, at(peer, t)[1]));
        if (theirs.count > 0) check(rail_.send(peer, 1, data + theirs.first, theirs.count * 4, at(peer, t)[2]));
      }
    };
    for (int64_t t = 0; t < std::min<int64_t>(kDepth, number); ++t) post(t);
    for (int64_t t = 0; t < number; ++t) {
      reduce(t, [&](int peer) -> std::array<Rail::Ticket, 4>& { return at(peer, t); });
      for (int peer = 0; peer < size_; ++peer) {
        if (peer == rank_) continue;
        if (segment(peer, t).count > 0) check(rail_.wait(at(peer, t)[2], 30'000));
        if (segment(peer, t).count > 0) check(rail_.wait(at(peer, t)[1], 30'000));
        if (segment(rank_, t).count > 0) check(rail_.wait(at(peer, t)[3], 30'000));
      }
      if (t + kDepth < number) post(t + kDepth);
    }
  }

 private:
  static constexpr int64_t kSegment = 65'536;  // elements
  static void check(RailResult result) {
    if (result != RailResult::kDone) throw make_error(DDP_ERROR_INTERNAL, "direct exchange failed");
  }
  [[nodiscard]] Span slice(int owner) const {
    const int64_t each = (count_ + size_ - 1) / size_;
    const int64_t first = std::min(count_, owner * each);
    return Span{first, std::min(each, count_ - first)};
  }
  [[nodiscard]] Span segment(int owner, int64_t t) const {
    const Span all = slice(owner);
    const int64_t first = std::min(all.count, t * kSegment);
    return Span{all.first + first, std::min(kSegment, all.count - first)};
  }
  [[nodiscard]] float* landing(int peer, int64_t t) { return scratch_.data() + (peer * kDepth + t % kDepth) * kSegment; }

  template <class At>
  void reduce(int64_t t, const At& at) {
    const Span mine = segment(rank_, t);
    if (mine.count == 0) return;
    std::vector<const void*> in;
    for (int peer = 0; peer < size_; ++peer) {
      if (peer != rank_) check(rail_.wait(at(peer)[0], 30'000));
      in.push_back(peer == rank_ ? data_ + mine.first : landing(peer, t));
    }
    void* out = data_ + mine.first;
    cpu::reduce(cpu::ReduceRule{DDP_F32, DDP_SUM, size_}, in.data(), size_, &out, 1, mine.count);
    for (int peer = 0; peer < size_; ++peer)
      if (peer != rank_) check(rail_.send(peer, 2, out, mine.count * 4, at(peer)[3]));
  }

  int32_t rank_;
  int32_t size_;
  Rail rail_;
  std::vector<float> scratch_;
  float* data_ = nullptr;
  int64_t count_ = 0;
};

struct Variant {
  const char* name;
  std::function<void()> run;
};

// Each round's time is the slowest rank's.
std::map<std::string, std::vector<double>> measure(Control& control, const std::vector<Variant>& variants, int rounds) {
  std::map<std::string, std::vector<double>> times;
  for (int round = -1; round < rounds; ++round)  // one to warm up
    for (const Variant& variant : variants) {
      static_cast<void>(control.gather("begin", "", limit()));
      const int64_t begin = now_ns();
      variant.run();
      const int64_t mine = now_ns() - begin;
      int64_t slowest = 0;
      for (const auto& text : control.gather("end", std::to_string(mine), limit())) slowest = std::max<int64_t>(slowest, std::stoll(text));
      if (round >= 0) times[variant.name].push_back(static_cast<double>(slowest) / 1e6);
    }
  return times;
}

void print(int ranks, double mib, const std::vector<Variant>& variants, std::map<std::string, std::vector<double>> times) {
  auto& ring = times["gloo ring"];
  std::sort(ring.begin(), ring.end());
  for (const Variant& variant : variants) {
    auto& all = times[variant.name];
    std::sort(all.begin(), all.end());
    std::printf("%d ranks %8.2f MiB  %-10s median %8.2f  best %8.2f  worst %8.2f  ratio to gloo ring %5.2f\n", ranks, mib, variant.name,
                all[all.size() / 2], all.front(), all.back(), all[all.size() / 2] / ring[ring.size() / 2]);
  }
}

void one_rank(ForkHub& hub, int rank, int ranks, int rounds, const ChainOptions& options) {
  ForkControl control(hub, rank, 60'000);
  Failure failure;
  ddp_group_options group{};
  group.timeout_ms = group.rendezvous_timeout_ms = 60'000;
  const ddp_rail_table& table = load_gloo_module();
  const auto transport = make_rail_transport(TransportContext{&control, &failure, group}, table, "127.0.0.1", options);
  Direct direct(control, table);
  const auto mesh = std::make_shared<FullMesh>(control);
  for (const double mib : {1.0 / 1024, 1.0 / 16, 1.0, 4.0, 25.0, 100.0}) {
    const auto count = static_cast<int64_t>(mib * 262'144);
    std::vector<float> data(static_cast<size_t>(count), 0.0F);
    const std::vector<Variant> variants{
        {"gloo ring",
         [&] {
           ::gloo::AllreduceOptions all(mesh);
           all.setOutput(data.data(), data.size());
           all.setReduceFunction(
               static_cast<void (*)(void*, const void*, const void*, size_t)>(&::gloo::sum<float>));
           ::gloo::allreduce(all);
         }},
        {"chain", [&] { transport->all_reduce(flat_tensor(data.data(), DDP_F32, count), DDP_SUM); }},
        {"direct", [&] { direct.all_reduce(data.data(), count); }}};
    const auto times = measure(control, variants, mib < 2 ? 5 * rounds : rounds);
    if (rank == 0) print(ranks, mib, variants, times);
    if (rank == 0) std::fflush(stdout);
  }
}

}  // namespace

int main(int argc, char** argv) {
  setenv("DDP_MODULE_PATH", DDP_MODULE_BUILD_DIR, 0);
  const int rounds = argc > 1 ? std::atoi(argv[1]) : 15;
  const ChainOptions options{argc > 2 ? std::atoll(argv[2]) * 1024 : 0, true};
  for (const int ranks : {2, 4}) {
    ForkHub hub(ranks);
    Procs procs(ranks, [&](int rank, Reporter&) {
      one_rank(hub, rank, ranks, rounds, options);
      return std::string();
    });
    hub.release();
    for (const auto& result : procs.wait(600'000))
      if (result.exit_code != 0) std::printf("a rank ended with %s\n", result.describe().c_str());
  }
  return 0;
}
