// SPDX-License-Identifier: Apache-2.0
// Bits that change on the wire past TCP's checksum (F14), where links are plain. What is sent between ranks for a sum
// carries no tag, so the damaged sum itself is not noticed. The promise: no rank dies or hangs, the check of the
// replicas (check_every) finds the rank that has other parameters since, on all ranks, and the group continues. Encrypted
// links: process/sealed_links_test.cpp. Control messages: unit/control/control_codec_test.cpp changes each of their bits.
#include <sys/socket.h>
#include <sys/uio.h>

#include "model/model.hpp"
#include "support/check.hpp"
#include "support/goes_on.hpp"
#include "support/hidden.hpp"
#include "support/on_processes.hpp"

using namespace ddp::test;

namespace {

constexpr size_t kPayload = 4'096;  // no control message of this test has as many bytes
std::atomic<bool> flips{false};
std::atomic<int> flipped{0};

void damage(void* data, size_t bytes) noexcept {
  if (!flips || bytes < kPayload) return;
  auto* at = static_cast<unsigned char*>(data) + bytes / 2;
  at[2 - (reinterpret_cast<uintptr_t>(at) & 3U)] ^= 0x20;  // high in a float's mantissa, so that no rounding hides it
  ++flipped;
}
void damage(const iovec* parts, size_t count, ssize_t got) noexcept {
  auto left = static_cast<size_t>(std::max<ssize_t>(got, 0));
  for (size_t i = 0; i < count && left > 0; ++i) {
    const size_t here = std::min(left, parts[i].iov_len);
    damage(parts[i].iov_base, here);
    left -= here;
  }
}

}  // namespace

/// In the place of the C library's, for Gloo too.
extern "C" {
ssize_t recv(int fd, void* data, size_t bytes, int flags) {
  static constinit Hidden hidden("recv");
  const ssize_t got = hidden.as<decltype(recv)>()(fd, data, bytes, flags);
  damage(data, static_cast<size_t>(std::max<ssize_t>(got, 0)));
  return got;
}
ssize_t read(int fd, void* data, size_t bytes) {
  static constinit Hidden hidden("read");
  const ssize_t got = hidden.as<decltype(read)>()(fd, data, bytes);
  damage(data, static_cast<size_t>(std::max<ssize_t>(got, 0)));
  return got;
}
ssize_t readv(int fd, const iovec* parts, int count) {
  static constinit Hidden hidden("readv");
  const ssize_t got = hidden.as<decltype(readv)>()(fd, parts, count);
  damage(parts, static_cast<size_t>(std::max(count, 0)), got);
  return got;
}
ssize_t recvmsg(int fd, msghdr* message, int flags) {
  static constinit Hidden hidden("recvmsg");
  const ssize_t got = hidden.as<decltype(recvmsg)>()(fd, message, flags);
  damage(message->msg_iov, message->msg_iovlen, got);
  return got;
}
}

namespace {

constexpr int kRanks = 3, kHit = 1, kDamagedPass = 2;
constexpr int64_t kCount = 1 << 18;

struct Training {
  explicit Training(std::shared_ptr<group::Group> of) : group(std::move(of)), model(group, options()) {
    const Tensor lent = flat_tensor(gradient.data(), DDP_F32, kCount);
    model.add_parameter("w", flat_tensor(values.data(), DDP_F32, kCount), &lent);
    model.commit();
  }
  static ddp_model_options options() {
    return {.first_bucket_bytes = 1 << 20, .bucket_bytes = 1 << 20, .drift = DDP_DRIFT_REPORT, .check_every = 1};
  }
  void step(int rank) {
    for (size_t i = 0; i < gradient.size(); ++i) gradient[i] = static_cast<float>(rank + static_cast<int>(i % 7));
    model.begin_backward(DDP_PASS_REDUCE);
    model.pass().mark_ready(0);
    model.end_backward();
    for (size_t i = 0; i < gradient.size(); ++i) values[i] -= 0.5F * gradient[i];
  }
  std::shared_ptr<group::Group> group;
  std::vector<float> values = std::vector<float>(kCount, 1), gradient = values;
  model::Model model;
};

ddp_case(the_rank_that_was_hit_is_found_and_all_go_on) {
  if (!gloo_is_there()) return;
  const Folder folder;
  ddp_group_options options = options_on(Hosts::kGloo);
  options.links = DDP_LINKS_PLAIN;
  Procs procs(kRanks, [&](int rank, Reporter&) {
    {
      Training training(join_process_group(folder, rank, kRanks, options));
      for (int pass = 0; pass <= kDamagedPass; ++pass) {
        flips = rank == kHit && pass == kDamagedPass;
        training.step(rank);
        flips = false;
      }
      expect((flipped > 0) == (rank == kHit), "bits of rank 1 were changed: " + std::to_string(flipped));
      expect_error(DDP_ERROR_MISMATCH, [&] { training.step(rank); }, {"parameter \"w\" is different on rank 1"});
      training.group->broadcast(flat_tensor(training.values.data(), DDP_F32, kCount), 0, nullptr);
      training.step(rank);  // the group is whole
    }
    and_goes_on(folder, rank, kRanks, options);
  });
  expect_success(procs, 60'000);
}

}  // namespace
